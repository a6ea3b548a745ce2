"""Heads by their names and options, as users write them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ghofl.errors import HeadError, MissingStatisticError
from ghofl.gaussians import Gaussians
from ghofl.heads import HEADS, Head
from ghofl.heads.best import best_head
from ghofl.heads.options import HeadOptions
from ghofl.moments import Layout
from ghofl.names import shorten
from ghofl.recipe import Recipe
from ghofl.wire.head_file import NAME

BEST = "best"
DEFAULT_HEAD = BEST  # what every door builds unless it is told which
IN_ROUNDS = ("fedavg", "fedprox")  # what simulations compare heads with
_SPEC = re.compile(r"\s*([a-z_]+)\s*(?:\(([^()]*)\))?\s*")
_WORD = re.compile(r"[a-z_]+(?:[.+][a-z_]+)*")


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """The name of a head and the options that are given, written ``lda`` or ``rda(blend=0.9, shrinkage=0.05)``.

    `own` is the head itself where it is not one of ghofl's.

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
    own: Head | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.own is not None:
            assert self.name == self.own.name, "a spec has the name of its head"
            _check_own(self.own)
        elif self.name in IN_ROUNDS:
            raise HeadError(
                f"{self.name!r} is a baseline and not a head: it is trained in rounds on the rows of clients, which no total "
                f"holds; compare it with heads in a simulation, heads = 'best,{self.name}'."
            )
        elif self.name != BEST and self.name not in HEADS:
            raise HeadError(
                f"head {self.name!r} is unknown; known are {', '.join(HEADS)}, and {BEST}. A head of your own is given as the "
                "Head itself."
            )
        if self.name == BEST and self.options:
            raise HeadError(
                f"'best' takes no options, and {', '.join(self.options)} came: it follows from the total; name "
                "a head to give it options."
            )
        checked = self._kind.parse(self.options)
        object.__setattr__(self, "options", {name: getattr(checked, name) for name in self.options})

    @classmethod
    def parse(cls, text: str, preset: str = "default") -> "HeadSpec":
        """A spec from its text; the preset has the options that it does not set."""
        name, given = split_spec(text)
        return cls(name, {**cls(name)._kind.preset(preset), **given})

    @classmethod
    def of(cls, head: "AnyHead", preset: str = "default") -> "HeadSpec":
        """The spec of a head, which is a text, a `Head`, perhaps with options, or a spec already."""
        if isinstance(head, HeadSpec):
            return head
        if not isinstance(head, Head):
            return cls.parse(head, preset)
        plain = replace(head, given=())
        own = None if plain == HEADS.get(head.name) else plain
        return cls(head.name, {**head.Options.preset(preset), **dict(head.given)}, own)

    @classmethod
    def parse_list(cls, heads: "AnyHead | Iterable[AnyHead]", preset: str = "default") -> dict[str, "HeadSpec"]:
        """Specs of one or several heads, texts separated by commas, each under the text it is written as."""
        found = ((head, cls.of(head, preset)) for head in each_head(heads))
        return {head if isinstance(head, str) else str(spec): spec for head, spec in found}

    def __str__(self) -> str:
        return written(self.name, self.options)

    @property
    def head(self) -> Head:
        """The head itself; 'best' is one only when it is chosen."""
        return HEADS[self.name] if self.own is None else self.own

    @property
    def _kind(self) -> type[HeadOptions]:
        return BestOptions if self.name == BEST else self.head.Options

    @property
    def record(self) -> HeadOptions:
        """The head's own record of its options, with the defaults of those that are not given."""
        return self._kind.parse(self.options)

    @property
    def needs(self) -> tuple[tuple[str, ...], ...]:
        """The sets of statistics that are enough, best first; the best head uses what there is."""
        return (("S",), ("B",), ("D",), ()) if self.name == BEST else self.head.needs_with(self.record)

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


AnyHead = str | Head | HeadSpec
"""Whatever names a head: the text of a spec, a `Head`, or a spec."""


@dataclass(frozen=True)
class BestOptions(HeadOptions, head=BEST):
    """No options: the best head follows from the total."""


def written(name: str, options: Mapping[str, Any]) -> str:
    """A head with its options as one would write it.

    >>> written("rda", {"shrinkage": 0.05, "blend": 0.9})
    'rda(blend=0.9, shrinkage=0.05)'
    """
    given = ", ".join(f"{key}={options[key]}" for key in sorted(options))
    return name + (f"({given})" if given else "")


def _check_own(head: Head) -> None:
    """Raise unless a head of somebody's own has a name that a file can hold, and that is not one of ghofl's."""
    if not NAME.fullmatch(head.name) or head.name in (*HEADS, *IN_ROUNDS, BEST):
        raise HeadError(
            f"{shorten(head.name, 60)!r} cannot be the name of a head of your own: it is one of ghofl's, or not up to 40 small "
            "letters and underscores; choose another name in its options."
        )


def each_head(heads: AnyHead | Iterable[AnyHead]) -> Iterator[AnyHead]:
    """Heads one by one, texts split at their commas.

    >>> list(each_head(["lda, ridge", HEADS["qda"](shrinkage=0.2)]))
    ['lda', 'ridge', <Head: name qda; needs S; options shrinkage; given shrinkage=0.2>]
    """
    for head in [heads] if isinstance(heads, AnyHead) else heads:
        yield from split_list(head) if isinstance(head, str) else [head]


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
