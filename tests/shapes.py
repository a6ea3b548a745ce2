"""The type checker that jaxtyping applies to ghofl while tests run; an int is accepted where a float is asked for.

jaxtyping binds the arguments of every call and opens a new scope for the names of its axes, which costs more than most
functions do. Only functions whose signature names axes need that; the others are given to beartype alone, which checks
the same annotations and raises the same error. Either way the check is written when a function is first called: most
processes of a test run call few of the two thousand functions.
"""

import dataclasses
import functools
import inspect
import re
import types
import typing

import jaxtyping
from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError))
with_axes = jaxtyping.jaxtyped


def jaxtyped(what=None, *, typechecker):
    """`jaxtyping.jaxtyped` for what has axes in its signature, beartype for the rest."""
    if what is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if isinstance(what, types.FunctionType):
        return _checked_later(
            what, functools.partial(with_axes, typechecker=typechecker) if names_axes(what) else checked
        )
    if inspect.isclass(what) and dataclasses.is_dataclass(what):
        made = what.__init__
        if isinstance(made, types.FunctionType) and made.__globals__["__name__"] == __name__:
            return what  # inherited, or written by hand and checked as a function
        if isinstance(made, types.FunctionType) and not hasattr(made, "__wrapped__") and not names_axes(made):
            what.__init__ = _checked_later(made, checked)
            return what
    return with_axes(what, typechecker=typechecker)


def names_axes(function):
    """Whether any annotation of a function holds an array with axes, also one that is written as a string."""
    return any(_has_axes(annotation, function.__globals__) for annotation in function.__annotations__.values())


def _has_axes(annotation, names):
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        words = re.findall(r"\w+", annotation)
        return any(hasattr(jaxtyping, word) or _has_axes(names.get(word), {}) for word in words)
    if isinstance(annotation, list | tuple):
        return any(_has_axes(part, names) for part in annotation)
    if getattr(annotation, "__module__", "").split(".")[0] == "jaxtyping":
        return True
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(_has_axes(part, names) for part in typing.get_args(annotation))


def _checked_later(function, check):
    if not function.__annotations__:
        return function
    strict = None

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        nonlocal strict
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if strict is None:
            strict = check(function)
        return strict(*args, **kwargs)

    return wrapped


# The import hook decorates with `jaxtyping.jaxtyped`, looked up for each function.
jaxtyping.jaxtyped = jaxtyped
