"""Heads by their names and options, as users write them."""

import re
from dataclasses import dataclass, field
from typing import Any

from ghofl.errors import HeadError, MissingStatisticError
from ghofl.gaussians import Gaussians
from ghofl.heads import HEADS
from ghofl.heads.best import best_head
from ghofl.heads.options import HeadOptions
from ghofl.heads.plugins import BEST
from ghofl.moments import Layout
from ghofl.names import shorten
from ghofl.recipe import Recipe

DEFAULT_HEAD = BEST  # what every door builds unless it is told which
IN_ROUNDS = ("fedavg", "fedprox")  # what simulations compare heads with
_SPEC = re.compile(r"\s*([a-z_]+)\s*(?:\(([^()]*)\))?\s*")
_WORD = re.compile(r"[a-z_]+(?:[.+][a-z_]+)*")


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """The name of a head and the options that are given, written ``lda`` or ``rda(blend=0.9, shrinkage=0.05)``.

    Guarantees
    ----------
    A spec names an existing head, with options that it has and values that it allows; anything else raises `HeadError`.

    Examples
    --------
    >>> spec = HeadSpec.parse("rda(blend=0.9)")
    >>> spec
    HeadSpec(name='rda', options={'blend': 0.9})
    >>> spec.record
    RDAOptions(blend=0.9, shrinkage=None)
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name in IN_ROUNDS:
            raise HeadError(
                f"{self.name!r} is a baseline and not a head: it is trained in rounds on the rows of clients, which no total "
                f"holds; compare it with heads in a simulation, heads = 'best,{self.name}'."
            )
        if self.name != BEST and self.name not in HEADS:
            raise HeadError(f"head {self.name!r} is unknown; known are {', '.join(HEADS)}, and {BEST}.")
        if self.name == BEST and self.options:
            raise HeadError(
                f"'best' takes no options, and {', '.join(self.options)} came: it follows from the total; name "
                "a head to give it options."
            )
        _options_of(self.name).parse(self.options)

    @classmethod
    def parse(cls, text: str, preset: str = "default") -> "HeadSpec":
        """A spec from its text; the preset has the options that it does not set."""
        name, given = split_spec(text)
        return cls(name, {**_options_of(cls(name).name).preset(preset), **given})

    @classmethod
    def parse_list(cls, text: str, preset: str = "default") -> dict[str, "HeadSpec"]:
        """Specs from a list separated by commas, each under the text it was written as."""
        return {part: cls.parse(part, preset) for part in split_list(text)}

    @property
    def record(self) -> HeadOptions:
        """The head's own record of its options, with the defaults of those that are not given."""
        return _options_of(self.name).parse(self.options)

    @property
    def needs(self) -> tuple[tuple[str, ...], ...]:
        """The sets of statistics that are enough, best first; the best head uses what there is."""
        return (("S",), ("B",), ("D",), ()) if self.name == BEST else HEADS[self.name].needs_with(self.record)

    def choose(self, layout: Layout, recipe: Recipe, gaussians: Gaussians | None = None) -> "HeadSpec":
        """The spec itself, or for 'best' that of the strongest head for this layout and these Gaussians."""
        return HeadSpec.parse(best_head(layout, recipe, gaussians).spec) if self.name == BEST else self

    def is_possible(self, layout: Layout, recipe: Recipe) -> bool:
        """Whether a total of this layout has what the head needs."""
        has_sketch = recipe.sketch is not None
        return any(all(layout.has(s) and (s != "Z" or has_sketch) for s in need) for need in self.needs)

    def check(self, layout: Layout, recipe: Recipe) -> None:
        """Raise `MissingStatisticError` unless a total of this layout has what the head needs."""
        if not self.is_possible(layout, recipe):
            wish = " and ".join("a [sketch] section" if s == "Z" else f"statistics = ['{s}']" for s in self.needs[0])
            possible = [name for name in HEADS if HeadSpec(name).is_possible(layout, recipe)]
            raise MissingStatisticError(
                f"head {self.name!r} needs {wish} in the recipe, and this total holds {', '.join(layout.shapes)}. "
                f"Possible from it: {', '.join(possible)}."
            )


@dataclass(frozen=True)
class BestOptions(HeadOptions, head=BEST):
    """No options: the best head follows from the total."""


def _options_of(name: str) -> type[HeadOptions]:
    return BestOptions if name == BEST else HEADS[name].Options


def split_list(text: str) -> list[str]:
    """The texts of heads in a list separated by commas.

    >>> split_list("lda, rda(blend=0.9, shrinkage=0.05)")
    ['lda', 'rda(blend=0.9, shrinkage=0.05)']
    """
    parts = [p.strip() for p in re.split(r",(?![^()]*\))", text) if p.strip()]
    if not parts:
        raise HeadError(f"no head in {text!r}; known are {', '.join(HEADS)}.")
    return parts


def split_spec(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the given options in the text of a head, not yet checked.

    >>> split_spec("rda(blend=0.9)")
    ('rda', {'blend': 0.9})
    """
    match = _SPEC.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise HeadError(
            f"{shorten(text, 60)!r} is not a head; write a name such as 'lda', or 'rda(blend=0.9, shrinkage=0.05)'."
        )
    given = [part.strip() for part in (match[2] or "").split(",") if part.strip()]
    split = [(part, *part.partition("=")[::2]) for part in given]
    return match[1], {key.strip(): _read_value(value.strip(), part) for part, key, value in split}


def _read_value(text: str, part: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if _WORD.fullmatch(text):
        return text
    raise HeadError(f"option {part!r} is not of the form name=value, e.g. shrinkage=0.05 or base=lda.")
