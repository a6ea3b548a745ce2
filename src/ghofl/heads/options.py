"""The options of heads: one frozen record per head that parses and checks itself.

A field is declared with its default, its meaning and its range, and with the value that the GH-OFL paper uses where it
has one; nothing about an option is written anywhere else.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from ghofl.errors import HeadError
from ghofl.names import shorten
from ghofl.recipe.option import Option, known_options, option
from ghofl.recipe.schema import without_numpy

__all__ = ["PRESETS", "HeadOptions", "Option", "option"]
PRESETS = ("default", "paper")


class HeadOptions:
    """The base of every head's options; a record names its head, and cannot hold a value that is not allowed.

    Guarantees
    ----------
    A value out of its range, of another type, or not finite raises one `HeadError`, which names the head, the option, the
    value and what is allowed.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class BlurOptions(HeadOptions, head="blur"):
    ...     width: float = option(1.0, "how far a mean reaches", between=(0, 9), paper=2.0)
    >>> BlurOptions.parse({"width": 3}), BlurOptions.preset("paper")
    (BlurOptions(width=3), {'width': 2.0})
    >>> BlurOptions(width=10)
    Traceback (most recent call last):
    ghofl.errors.HeadError: width is 10; option width of head 'blur' is a number between 0 and 9: how far a mean reaches.
    """

    head: ClassVar[str] = ""
    noun: ClassVar[str] = "head"

    def __init_subclass__(cls, head: str, noun: str = "head") -> None:
        cls.head, cls.noun = head, noun

    def __post_init__(self) -> None:
        for name in self.known():
            self.check_value(name, getattr(self, name))

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> "HeadOptions":
        """The record of the options that were given, in Python's own types, the others at their defaults."""
        for name, value in given.items():
            cls.check_value(name, value)
        return cls(**{name: without_numpy(value) for name, value in given.items()})

    @classmethod
    def check_value(cls, name: str, value: object) -> None:
        """Raise `HeadError` unless the head has an option of this name that can have this value."""
        known = cls.known()
        if name not in known:
            has = ", ".join(known) or "none"
            raise HeadError(f"{cls.noun} {cls.head!r} has no option {shorten(name, 40)!r}; it has {has}.")
        if not known[name].accepts(value):
            raise HeadError(
                f"{name} is {shorten(value, 40)}; option {name} of {cls.noun} {cls.head!r} is {known[name].allowed}: "
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
        return known_options(cls)
