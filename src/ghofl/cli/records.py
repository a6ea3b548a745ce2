"""Options that several commands share and that reach them as one value."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def takes(
    command: Callable[..., None],
    parameter: str,
    options: Mapping[str, tuple[Any, Any]],
    build: Callable[..., Any],
) -> Callable[..., None]:
    """The command with `options` (annotation and default by name) in the place of a parameter, which gets `build(…)`."""
    parameters = []
    for own in inspect.signature(command, eval_str=True).parameters.values():
        parameters += (
            [own]
            if own.name != parameter
            else [own.replace(name=name, annotation=a, default=default) for name, (a, default) in options.items()]
        )

    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name in options}
        command(**values, **{parameter: build(**given)})

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__annotations__ = {own.name: own.annotation for own in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    vars(run).pop("__wrapped__", None)  # a type checker may wrap functions; whoever unwraps them stops here
    return run
