"""Options: fields of a frozen record, each with its type, default, meaning and range, and nothing of it written twice.

Whoever needs an option (a check, the command line, a table in the docs) asks the record for it.
"""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, wraps
from math import inf, isfinite
from numbers import Integral, Real
from types import UnionType
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

import numpy as np

from ghofl.errors import RecipeError
from ghofl.names import shorten

LARGEST = {int: 2**63 - 1, float: sys.float_info.max}
NOUNS = {bool: "true or false", str: "a text", int: "a whole number"}
P = ParamSpec("P")
Record = TypeVar("Record")
Result = TypeVar("Result")


def option(
    default: Any,
    about: str,
    *,
    between: tuple[float, float] = (-inf, inf),
    above: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
    joined: str = "",
    auto: str = "",
    paper: Any = None,
    key: str = "",
    is_common: bool = False,
) -> Any:
    """A field of a record of options.

    A number lies `between` two bounds, which are allowed themselves, `above` one and `below` one that are not. A text is
    one of `choices`, or several of them `joined` by a character. `auto` says how the value is found where the option is
    left out. `paper` is the value under the preset of that name, where it has one. `key` is where a recipe holds the value,
    unless the record has a `SECTION`, whose fields are the options. Help shows options that are `is_common` first.
    """
    limits = {"between": between, "above": above, "below": below, "choices": choices, "joined": joined}
    return field(
        default=default,
        metadata={"about": about, "auto": auto, "paper": paper, "key": key, "is_common": is_common, **limits},
    )


@dataclass(frozen=True, slots=True)
class Option:
    """One option: the arguments of `option`, with its name and type."""

    name: str
    kind: Any
    default: Any
    about: str
    auto: str
    paper: Any
    key: str
    is_common: bool
    between: tuple[float, float]
    above: float | None
    below: float | None
    choices: tuple[str, ...]
    joined: str

    def accepts(self, value: object) -> bool:
        """Whether the option can have this value; a number of NumPy's counts as Python's."""
        value = value.item() if isinstance(value, np.generic) else value
        if value is None:
            return self.default is None
        if self.kind is str and self.choices:
            parts = value.split(self.joined) if isinstance(value, str) and self.joined else [value]
            return all(part in self.choices for part in parts) and len({*parts}) == len(parts)
        if self.kind not in LARGEST:
            return isinstance(value, self.kind if isinstance(self.kind, type) else tuple)
        is_number = isinstance(value, Integral if self.kind is int else Real) and not isinstance(value, bool)
        return is_number and self._is_within(value)

    def _is_within(self, value: Any) -> bool:
        low, high = self.between
        is_open = (self.above is None or value > self.above) and (self.below is None or value < self.below)
        return abs(value) <= LARGEST[self.kind] and low <= value <= high and is_open

    @property
    def allowed(self) -> str:
        """What the option can be, in words."""
        if self.choices:
            several = f", or several different ones joined by {self.joined!r}" if self.joined else ""
            return f"one of {', '.join(self.choices)}{several}"
        if self.kind not in LARGEST:
            return NOUNS.get(self.kind, "a list")
        (low, high), above = self.between, self.above
        noun = NOUNS.get(self.kind, "a number" if isfinite(high) else "a finite number")
        if self.below is not None:
            limits = f" above {above:g} and below {self.below:g}"
        elif isfinite(high):
            limits = f" between {low:g} and {high:,}" if above is None else f" above {above:g} and up to {high:,}"
        else:
            limits = f", {low:g} or more" if above is None else f" above {above:g}"
        return noun + limits + (f", or left out ({self.auto})" if self.auto else "")


@cache
def known_options(record: type) -> dict[str, Option]:
    """The options of a record by name, in the order of its fields.

    A subclass may narrow the type of a field and give it another default; what the option means stays that of its record.
    """
    found: dict[str, Option] = {}
    for kind in reversed(record.__mro__):
        section, declared = vars(kind).get("SECTION", ""), inspect.get_annotations(kind)
        for f in (f for f in vars(kind).get("__dataclass_fields__", {}).values() if f.name in declared):
            if "about" in f.metadata:
                about: dict[str, Any] = {**f.metadata, **({"key": f"{section}.{f.name}"} if section else {})}
                found[f.name] = Option(f.name, _kind(get_type_hints(kind)[f.name]), f.default, **about)
    return found


def _kind(hint: Any) -> Any:
    return next(t for t in get_args(hint) if t is not type(None)) if isinstance(hint, UnionType) else hint


def check_ranges(section: Any) -> None:
    """Raise `RecipeError` unless every option of a record has a value in its range."""
    for name, known in known_options(type(section)).items():
        value = getattr(section, name)
        if not known.accepts(value):
            raise RecipeError(f"{known.key or name} is {shorten(repr(value))}; it must be {known.allowed}.")


def takes(
    record: Callable[P, Record], error: type[Exception] = TypeError
) -> Callable[[Callable[[Record], Result]], Callable[P, Result]]:
    """Let a function of one record be called with the record's fields, which editors and `inspect` then know by name.

    A name that the record does not have raises `error`.

    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: float = 1.0
    >>> @takes(Size)
    ... def doubled(size):
    ...     return 2 * size.width
    >>> doubled(width=3.0)
    6.0
    """

    signature = inspect.signature(record)

    def decorate(function: Callable[[Record], Result]) -> Callable[P, Result]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            for name in kwargs:
                if name not in signature.parameters:
                    raise error(f"there is no option {name!r}; choose from {', '.join(sorted(signature.parameters))}.")
            return function(record(*args, **kwargs))

        returned = inspect.signature(function).return_annotation
        call.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
        return call

    return decorate
