"""Messages become one total: added as they come, each site once, and taken out again exactly.

Only the total is kept, never the messages, so ten thousand sites need no more memory than one. The roster says who
is inside; a message id or site name that is already there is refused, and one that is not cannot be subtracted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ghofl import files
from ghofl.errors import MessageError, MomentsOverflowError, RecipeError, RosterError
from ghofl.message import Message, check_fingerprint, decode, encode, open_envelope
from ghofl.moments import INT64_MAX, Layout, Moments
from ghofl.recipe import Recipe

MAX_TOTAL_HEADER = 512 * 2**20
FIELDS = {"schema", "kind", "recipe", "recipe_toml", "roster", "layout", "rows", "sha256"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One site's line in the roster."""

    id: str
    site: str
    rows: int
    sha256: str

    @classmethod
    def of(cls, message: Message) -> "Entry":
        """The line of a message: who, how many rows, and the hash of what was added."""
        return cls(message.id, message.site, message.rows, message.moments.sha256)

    @property
    def name(self) -> str:
        """How people tell this site from others."""
        return self.site or self.id[:8]


@dataclass(frozen=True, slots=True)
class Total:
    """The sum of some sites' moments, with the recipe they share and the roster of who is inside.

    Guarantees
    ----------
    ``total + message - message == total``, roster included, to the bit.
    A site is never inside twice.

    Examples
    --------
    >>> from ghofl.recipe import Encoder
    >>> recipe = Recipe(classes=("a", "b"), encoder=Encoder(dim=2))
    >>> layout = Layout.of(recipe)
    >>> north = Message.of(Moments.of(np.array([[1, 2]]), np.array([0]), layout), recipe, "north")
    >>> south = Message.of(Moments.of(np.array([[3, 4]]), np.array([1]), layout), recipe, "south")
    >>> both = Total.of([north, south], recipe)
    >>> both - south == Total.of([north], recipe)
    True
    """

    recipe: Recipe
    moments: Moments
    roster: tuple[Entry, ...] = field(default=())

    @classmethod
    def of(cls, messages: Iterable[Message], recipe: Recipe) -> "Total":
        """The total of messages that arrive one after another; none of them is kept."""
        aggregator = Aggregator(recipe)
        for message in messages:
            aggregator.add(message)
        return aggregator.total()

    def __add__(self, message: Message) -> "Total":
        aggregator = Aggregator(self.recipe, self)
        aggregator.add(message)
        return aggregator.total()

    def __sub__(self, message: Message) -> "Total":
        check_fingerprint({"recipe": message.fingerprint}, self.recipe)
        entry = next((e for e in self.roster if e.id == message.id), None)
        if entry is None:
            raise RosterError(
                f"message {message.name!r} (id {message.id[:8]}…) is not in this total, which holds "
                f"{_names(self.roster)}; subtract a message that was added."
            )
        if entry != Entry.of(message):
            raise RosterError(
                f"message {message.name!r} has the id of one that was added and other moments; "
                "subtract the very message that was added."
            )
        return Total(self.recipe, self.moments - message.moments, tuple(e for e in self.roster if e != entry))

    def to_bytes(self) -> bytes:
        """The total as bytes, with its recipe and roster in the header."""
        header = {
            "kind": "total",
            "recipe": self.recipe.fingerprint,
            "recipe_toml": self.recipe.to_toml(),
            "roster": [[e.id, e.site, e.rows, e.sha256] for e in self.roster],
        }
        return encode(self.moments, header)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Total":
        """The total in some bytes, with the same checks as a message."""
        header, body = open_envelope(data, None, "total", MAX_TOTAL_HEADER, FIELDS)
        recipe = _recipe_in(header)
        moments = decode(header, body, Layout.of(recipe))
        return cls(recipe, moments, _roster_in(header, moments))

    def save(self, path: str | Path) -> None:
        """Write the total to a file."""
        files.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> "Total":
        """Read a total from a file."""
        return cls.from_bytes(Path(path).read_bytes())


class Aggregator:
    """Adds messages one at a time in bounded memory: one set of moments and a line of roster a site."""

    def __init__(self, recipe: Recipe, start: Total | None = None) -> None:
        self.recipe = recipe
        self._fingerprint = recipe.fingerprint
        self._layout = Layout.of(recipe)
        blocks = Moments.zeros(self._layout).blocks if start is None else start.moments.blocks
        self._blocks = {name: np.array(block) for name, block in blocks.items()}
        self._roster: dict[str, Entry] = {}
        self._sites: set[str] = set()
        for entry in () if start is None else start.roster:
            self._enter(entry)

    def add(self, message: Message) -> None:
        """Add a message, unless its id or site is inside already, its recipe is another, or the sum could overflow."""
        if message.fingerprint != self._fingerprint:
            check_fingerprint({"recipe": message.fingerprint}, self.recipe)
        if message.id in self._roster:
            raise RosterError(
                f"message {message.name!r} (id {message.id[:8]}…) is already in the total; each is counted once."
            )
        if message.site and message.site in self._sites:
            raise RosterError(
                f"site {message.site!r} is already in the total; subtract its earlier message before adding a new one."
            )
        self._refuse_overflow(message)
        for name, block in self._blocks.items():
            block += message.moments.blocks[name]
        self._enter(Entry.of(message))

    def total(self) -> Total:
        """The total so far. More messages may be added afterwards; the total given here stays as it is."""
        blocks = {name: block.copy() for name, block in self._blocks.items()}
        roster = tuple(sorted(self._roster.values(), key=lambda e: (e.site, e.id)))
        return Total(self.recipe, Moments(self._layout, blocks), roster)

    def _enter(self, entry: Entry) -> None:
        self._roster[entry.id] = entry
        self._sites.add(entry.site)

    def _refuse_overflow(self, message: Message) -> None:
        largest = self._layout.bound * (self._layout.dim if self._layout.sketch else 1)
        rows = int(self._blocks["N"].sum()) + message.rows
        if rows * largest**2 > INT64_MAX:
            raise MomentsOverflowError(
                f"adding {message.name!r} gives {rows} rows, whose sums could leave the 64-bit integers; "
                "use fewer grid bits."
            )


def _recipe_in(header: Mapping[str, Any]) -> Recipe:
    try:
        recipe = Recipe.from_toml(str(header.get("recipe_toml", "")))
    except RecipeError as error:
        raise MessageError(f"the total carries a recipe that does not work: {error}") from None
    check_fingerprint(header, recipe)
    return recipe


def _roster_in(header: Mapping[str, Any], moments: Moments) -> tuple[Entry, ...]:
    lines = header.get("roster")
    if not isinstance(lines, list) or not all(
        isinstance(line, list) and [type(v) for v in line] == [str, str, int, str] for line in lines
    ):
        raise MessageError("the total's roster is damaged; make the total again from its messages.")
    roster = tuple(Entry(*line) for line in lines)
    if len({e.id for e in roster}) != len(roster) or sum(e.rows for e in roster) != moments.rows:
        raise MessageError("the total's roster does not account for its rows; make the total again from its messages.")
    return roster


def _names(roster: tuple[Entry, ...]) -> str:
    shown = ", ".join(repr(e.name) for e in roster[:5])
    return shown + (f" and {len(roster) - 5} more" if len(roster) > 5 else "") if roster else "nobody"
