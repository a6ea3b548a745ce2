"""The options of heads: one frozen record per head that parses, checks and describes itself.

A field is declared with its default, its meaning and its range, and with the value that the GH-OFL paper uses where it
has one; nothing about an option is written anywhere else.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from math import inf, isfinite
from numbers import Integral, Real
from typing import Any, ClassVar, get_args, get_type_hints

from ghofl.errors import HeadError
from ghofl.names import shown

PRESETS = ("default", "paper")
LARGEST = {int: 2**63 - 1, float: sys.float_info.max}


def option(
    default: Any,
    about: str,
    *,
    between: tuple[float, float] = (-inf, inf),
    above: float | None = None,
    choices: tuple[str, ...] = (),
    joined: str = "",
    auto: str = "",
    paper: Any = None,
) -> Any:
    """A field of a head's options.

    A number lies `between` two bounds, which are allowed themselves, and `above` one that is not. A text is one of
    `choices`, or several of them `joined` by a character. `auto` says how the value is found where the option is left
    out. `paper` is the value under the preset of that name, where it has one.
    """
    limits = {"between": between, "above": above, "choices": choices, "joined": joined}
    return field(default=default, metadata={"about": about, "auto": auto, "paper": paper, **limits})


@dataclass(frozen=True, slots=True)
class Option:
    """One option: the arguments of `option`, with its name and type."""

    name: str
    kind: type
    default: Any
    about: str
    auto: str
    paper: Any
    between: tuple[float, float]
    above: float | None
    choices: tuple[str, ...]
    joined: str

    def accepts(self, value: object) -> bool:
        """Whether the option can have this value."""
        if value is None:
            return self.default is None
        if self.kind is str:
            parts = value.split(self.joined) if isinstance(value, str) and self.joined else [value]
            return all(part in self.choices for part in parts) and len({*parts}) == len(parts)
        return isinstance(value, Integral if self.kind is int else Real) and self._is_within(value)

    def _is_within(self, value: Any) -> bool:
        low, high = self.between
        is_above = self.above is None or value > self.above
        return abs(value) <= LARGEST[self.kind] and low <= value <= high and is_above

    @property
    def allowed(self) -> str:
        """What the option can be, in words."""
        if self.kind is str:
            several = f", or several different ones joined by {self.joined!r}" if self.joined else ""
            return f"one of {', '.join(self.choices)}{several}"
        (low, high), above = self.between, self.above
        noun = "a whole number" if self.kind is int else "a number" if isfinite(high) else "a finite number"
        if isfinite(high):
            limits = f" between {low:g} and {high:,}" if above is None else f" above {above:g} and up to {high:,}"
        else:
            limits = f", {low:g} or more" if above is None else f" above {above:g}"
        return noun + limits + (f", or left out ({self.auto})" if self.auto else "")


class HeadOptions:
    """The base of every head's options; a record names its head, and cannot hold a value that is not allowed.

    Guarantees
    ----------
    A value out of its range, of another type, or not finite raises one `HeadError`, which names the head, the option, the
    value and what is allowed.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class BlurOptions(HeadOptions, head="blur"):
    ...     width: float = option(1.0, "how far a mean reaches", between=(0, 9), paper=2.0)
    >>> BlurOptions.parse({"width": 3}), BlurOptions.preset("paper")
    (BlurOptions(width=3), {'width': 2.0})
    >>> BlurOptions(width=10)
    Traceback (most recent call last):
    ghofl.errors.HeadError: width is 10; option width of head 'blur' is a number between 0 and 9: how far a mean reaches.
    >>> print(BlurOptions.describe())
    width = 1.0 (paper: 2.0): how far a mean reaches; a number between 0 and 9
    """

    head: ClassVar[str] = ""

    def __init_subclass__(cls, head: str) -> None:
        cls.head = head

    def __post_init__(self) -> None:
        for name in self.known():
            self.check_value(name, getattr(self, name))

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> "HeadOptions":
        """The record of the options that were given, the others at their defaults."""
        for name, value in given.items():
            cls.check_value(name, value)
        return cls(**given)

    @classmethod
    def check_value(cls, name: str, value: object) -> None:
        """Raise `HeadError` unless the head has an option of this name that can have this value."""
        known = cls.known()
        if name not in known:
            has = ", ".join(known) or "none"
            raise HeadError(f"head {cls.head!r} has no option {shown(name, 40)!r}; it has {has}.")
        if not known[name].accepts(value):
            raise HeadError(
                f"{name} is {shown(value, 40)}; option {name} of head {cls.head!r} is {known[name].allowed}: "
                f"{known[name].about}."
            )

    @classmethod
    def preset(cls, name: str) -> dict[str, Any]:
        """The options that a preset gives."""
        if name not in PRESETS:
            raise HeadError(f"preset {name!r} is unknown; known are {', '.join(PRESETS)}.")
        return {o.name: o.paper for o in cls.known().values() if o.paper is not None} if name == "paper" else {}

    @classmethod
    def known(cls) -> dict[str, Option]:
        """The options of the record by name."""
        return _known(cls)

    @classmethod
    def describe(cls) -> str:
        """The options in words, one per line."""
        lines = []
        for o in cls.known().values():
            paper = "" if o.paper is None else f" (paper: {o.paper})"
            lines.append(f"{o.name} = {o.default}{paper}: {o.about}; {o.allowed}")
        return "\n".join(lines)


@cache
def _known(kind: type[HeadOptions]) -> dict[str, Option]:
    hints, found = get_type_hints(kind), {}
    for f in fields(kind):  # type: ignore[arg-type]  # every record is a dataclass
        of_type = next(t for t in (*get_args(hints[f.name]), hints[f.name]) if t is not type(None))
        found[f.name] = Option(f.name, of_type, f.default, **f.metadata)
    return found
