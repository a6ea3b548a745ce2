"""Messages become one total: added as they come, each site once, and taken out again exactly.

Only the total is kept, never the messages, so ten thousand sites need no more memory than one. The roster says who
is inside; a message id or site name that is already there is refused, and one that is not cannot be subtracted.

A total that carries noise, or has lost its small classes, is *released*: it is what others may see, and nothing is
added to it or taken out of it. (Noise of single messages is part of those messages: such totals add like any other.)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.compute import arrays
from ghofl.errors import MessageError, PrivacyError, RosterError
from ghofl.features import TOLERATED_CLIPPING
from ghofl.files import FileBytes
from ghofl.moments import Layout, Moments
from ghofl.notebook import Printable, abbreviate, bars
from ghofl.privacy import (
    Guarantee,
    MinCount,
    NoiseStream,
    draw_noise,
    from_vector,
    plan_of,
    shifts_of,
    without_small_classes,
)
from ghofl.recipe import Recipe
from ghofl.shapes import Int64
from ghofl.wire import envelope, packing
from ghofl.wire.envelope import check_fingerprint, decode, encode, open_envelope
from ghofl.wire.message import Message, open_message
from ghofl.wire.plausible import check_plausible
from ghofl.wire.roster import (
    Entry,
    Sites,
    check_cohort,
    check_overflow,
    kept_in,
    list_names,
    recipe_in,
)

MAX_TOTAL_HEADER = 512 * 2**20
FIELDS = {"schema", "kind", "recipe", "recipe_toml", "roster", "layout", "rows", "sha256"}
OPTIONAL = frozenset({"guarantee", "small_classes"})


@dataclass(frozen=True, slots=True, repr=False)
class Total(Printable):
    """The sum of some sites' moments, with the recipe they share and the roster of who is inside.

    Guarantees
    ----------
    ``total + message - message == total``, roster included, to the bit, unless it is released; then both raise.
    A site is never inside twice. `guarantee` is what the noise inside promises, and nothing without noise.

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
    guarantee: Guarantee | None = None
    small_classes: MinCount | None = None

    @classmethod
    def of(cls, messages: Iterable[Message], recipe: Recipe) -> "Total":
        """The total of messages that arrive one after another; none of them is kept."""
        aggregator = Aggregator(recipe)
        for message in messages:
            aggregator.add(message)
        return aggregator.total()

    @classmethod
    def of_round(cls, vector: Int64[np.ndarray, " entries"], recipe: Recipe, sites: Sequence[str]) -> "Total":
        """The total that a round of secure aggregation released: the sum of the vectors of these sites.

        Noise of the sites is in it. Fewer sites than privacy.min_cohort would have too little, and raise.
        """
        check_cohort(recipe, len(sites))
        plan = plan_of(recipe)
        guarantee = None if plan is None or plan.mechanism == "central" else plan.guarantee
        return cls(recipe, from_vector(vector, recipe), tuple(map(Entry.hidden, sites)), guarantee)

    @property
    def is_released(self) -> bool:
        """Whether the total has noise of its own or lost its small classes, so that nothing adds to it any more."""
        of_its_own = self.guarantee is not None and self.guarantee.mechanism != "local"
        return of_its_own or self.small_classes is not None

    def release(self, stream: NoiseStream | None = None) -> "Total":
        """The total as others may see it: with the recipe's central noise, and without its small classes.

        Rows and hashes of single sites, which are exact, leave the roster. Every call on an exact total draws new
        noise and is another release: `privacy.compose` says what several promise together.
        """
        if self.small_classes is not None:
            raise PrivacyError("this total is released already; release the total that it was made from, if at all.")
        check_cohort(self.recipe, len(self.roster))
        plan, moments, guarantee, small = plan_of(self.recipe), self.moments, self.guarantee, None
        if plan is not None and guarantee is None:
            moments, guarantee = draw_noise(moments, self.recipe, stream), plan.guarantee
        if self.recipe.privacy.min_count:
            moments, small = without_small_classes(moments, self.recipe)
        if guarantee is None and small is None:
            return self
        roster = tuple(replace(e, rows=None, sha256="", clipped=None) for e in self.roster)
        return Total(self.recipe, moments, roster, guarantee, small)

    def for_heads(self) -> "Total":
        """The total that heads may be built from: with all that the recipe promises, or `PrivacyError`."""
        if plan_of(self.recipe) is not None and self.guarantee is None:
            raise PrivacyError(
                f"the recipe promises epsilon = {self.recipe.privacy.epsilon} by noise on the total, and this total has "
                "none yet; 'ghofl release total.ghofl -o released.ghofl' (or Total.release) adds it, once."
            )
        check_cohort(self.recipe, len(self.roster))
        return self.release() if self.recipe.privacy.min_count and self.small_classes is None else self

    def _check_exact(self, verb: str) -> None:
        if self.is_released:
            raise PrivacyError(
                f"cannot {verb} a released total: its noise, or its missing classes, are those of the sites that were in it. "
                f"{verb.capitalize()} the exact total, and release the result: a release of its own."
            )

    def _facts(self) -> dict[str, object]:
        sites, classes = abbreviate([e.name for e in self.roster]), abbreviate(self.recipe.classes)
        noise = {} if self.guarantee is None else {"privacy": str(self.guarantee).splitlines()[0]}
        about = {"sites": sites, **self.moments._facts(), "classes": classes, **noise}
        return {**about, "recipe": f"{self.recipe.fingerprint[:12]}…"}

    def _picture(self) -> str:
        return bars(self.recipe.classes, self.moments.counts.tolist(), "rows by class")

    def clipped(self) -> tuple[Entry, ...]:
        """The sites of which more entries fell outside the grid than is harmless, the worst first."""
        over = [e for e in self.roster if e.clipped is not None and e.clipped > TOLERATED_CLIPPING]
        return tuple(sorted(over, key=lambda e: -(e.clipped or 0.0)))

    def deviation(self, statistic: str, off_diagonal: bool = False) -> float:
        """The standard deviation of noise and rounding in a stored block, in steps of the grid; 0 where it is exact."""
        plan, messages = plan_of(self.recipe), max(1, len(self.roster))
        step = 2.0 ** shifts_of(self.recipe).get(statistic, 0)
        rounding = messages / 12.0 if step > 1 else 0.0  # the variance of a uniform number, once per message
        noise = 0.0
        if plan is not None and self.guarantee is not None:
            noise = plan.deviation(statistic, messages, off_diagonal)
        return step * np.sqrt(rounding + noise**2)

    def __add__(self, other: "Message | Total") -> "Total":
        if isinstance(other, Total):
            return self.join(other)
        aggregator = Aggregator(self.recipe, self)
        aggregator.add(other)
        return aggregator.total()

    def join(self, other: "Total") -> "Total":
        """The total of the sites of both, such as those of a later secure round; no site is in both."""
        check_fingerprint({"recipe": other.recipe.fingerprint}, self.recipe)
        self._check_exact("join")
        other._check_exact("join")
        both = (self.roster, other.roster)
        sites, ids = (set.intersection(*({getattr(e, key) for e in r} for r in both)) for key in ("site", "id"))
        if twice := sorted(sites - {""}) or sorted(ids):
            raise RosterError(f"{', '.join(map(repr, twice[:5]))} are in both totals; each site is counted once.")
        roster = tuple(sorted((*self.roster, *other.roster), key=lambda e: (e.site, e.id)))
        return Total(self.recipe, self.moments + other.moments, roster, self.guarantee)

    def __sub__(self, message: Message) -> "Total":
        check_fingerprint({"recipe": message.fingerprint}, self.recipe)
        self._check_exact("subtract from")
        entry = next((e for e in self.roster if e.id == message.id), None)
        if entry is None:
            raise RosterError(
                f"message {message.name!r} (id {message.id[:8]}…) is not in this total, which holds "
                f"{list_names(self.roster)}; subtract a message that was added."
            )
        if entry != Entry.of(message):
            raise RosterError(
                f"message {message.name!r} has the id of one that was added and other moments; "
                "subtract the very message that was added."
            )
        return replace(self, moments=self.moments - message.moments, roster=tuple(e for e in self.roster if e != entry))

    def to_bytes(self) -> bytes:
        """The total as bytes, with its recipe and roster in the header."""
        return encode(self.moments, self._header())

    def _header(self) -> dict[str, Any]:
        agreed = {"recipe": self.recipe.fingerprint, "recipe_toml": self.recipe.to_toml()}
        lines = [[e.id, e.site, e.rows, e.sha256, e.clipped] for e in self.roster]
        header: dict[str, Any] = {"kind": "total", **agreed, "roster": lines}
        if self.guarantee is not None:
            header["guarantee"] = self.guarantee.to_dict()
        if self.small_classes is not None:
            header["small_classes"] = asdict(self.small_classes)
        return header

    @classmethod
    def from_bytes(cls, data: bytes | FileBytes, recipe: Recipe | None = None) -> "Total":
        """The total in some bytes, in memory or in a file, with the same checks as a message.

        Without its `recipe` at hand it is read by the one it brings, and then it may not unpack to more than a gigabyte
        unless it has a 256th of that itself.
        """
        opened = open_envelope(data, None, "total", MAX_TOTAL_HEADER, FIELDS, OPTIONAL)
        recipe = recipe_in(opened.header, len(data)) if recipe is None else recipe
        check_fingerprint(opened.header, recipe)
        moments = decode(opened, Layout.of(recipe))
        total = cls(recipe, moments, **kept_in(opened.header, recipe, moments))
        check_plausible(moments, recipe, max(1, len(total.roster)), total.is_released)
        return total

    def save(self, path: str | Path) -> None:
        """Write the total to a file; an exact one for its owner's eyes only."""
        envelope.write(path, self.moments, self._header(), mode=0o666 if self.is_released else 0o600)

    @classmethod
    def load(cls, path: str | Path, recipe: Recipe | None = None) -> "Total":
        """Read a total from a file; `recipe` as in `from_bytes`."""
        with FileBytes(path) as data:
            return cls.from_bytes(data, recipe)


class Aggregator:
    """Adds messages one at a time in bounded memory: one set of moments and one line of the roster per site."""

    def __init__(self, recipe: Recipe, start: Total | None = None) -> None:
        if start is not None:
            start._check_exact("add to")
        if recipe.privacy.secure:
            raise MessageError(
                f"the recipe {recipe.fingerprint[:12]}… asks for secure aggregation, where messages are never "
                "seen one by one; its totals come from secure rounds ('ghofl secure', 'ghofl flower', Total.of_round)."
            )
        self.recipe, plan = recipe, plan_of(recipe)
        self._guarantee = None if plan is None or plan.mechanism == "central" else plan.guarantee
        self._layout, self._blocks = Layout.of(recipe), None if start is None else arrays.copies(start.moments.blocks)
        self._sites = Sites() if start is None else Sites(start.roster)
        self._rows = 0 if start is None else start.moments.rows

    def add(self, message: Message, is_given: bool = False) -> None:
        """Add a message, unless it or its site is inside, its recipe is another, or the sum could overflow.

        Sums of a message that `is_given` away are not copied.
        """
        check_fingerprint({"recipe": message.fingerprint}, self.recipe)
        self._check(message.id, message.site, message.rows)
        self._add(message.moments.blocks, is_given)
        self._enter(Entry.of(message))

    def add_file(self, path: str | Path) -> Entry:
        """Add a message that lies in a file and was read before, a few megabytes at a time.

        The bytes are checked against their hash; whether they are plausible was for `Message.load` to say.
        """
        if self._guarantee is not None:
            self.add(message := Message.load(path, self.recipe))
            return Entry.of(message)
        layout, shifts = self._layout, shifts_of(self.recipe)
        with FileBytes(path) as data:
            opened = open_message(data, self.recipe)
            envelope.check_body(opened, layout)
            header, rows = opened.header, envelope.count_rows(opened, layout)
            self._check(header["id"], header["site"], rows)
            digest, self._blocks = layout.digest(), self._blocks or dict(Moments.zeros(layout).blocks)
            for low, entries in packing.unpacked_slabs(opened.entries, layout.entries):
                for name, view, where in envelope.views_of(self._blocks, low, len(entries)):
                    entries[where] <<= shifts.get(name, 0)
                    arrays.add_to(view, entries[where])
                digest.update(entries.astype("<i8", copy=False).data)
        entry = Entry(header["id"], header["site"], rows, digest.hexdigest(), header["clipped"])
        self._enter(entry)
        return entry

    def _check(self, message_id: str, site: str, rows: int) -> None:
        self._sites.check(message_id, site)
        if self._guarantee is None:
            check_overflow(self._layout, self._rows + rows, site or message_id[:8])

    def _add(self, blocks: Mapping[str, np.ndarray], is_given: bool) -> None:
        if self._blocks is None:
            self._blocks = dict(blocks) if is_given else arrays.copies(blocks)
        elif self._guarantee is not None:  # noise is not bounded by counts: moments look at every entry as they add
            self._blocks = dict((Moments(self._layout, self._blocks) + Moments(self._layout, blocks)).blocks)
        else:
            for name, block in self._blocks.items():
                arrays.add_to(block, blocks[name])

    def total(self) -> Total:
        """The total so far. More messages may be added afterwards; the total given here stays as it is."""
        return self._total(None if self._blocks is None else arrays.copies(self._blocks))

    def finish(self) -> Total:
        """The total, without a copy of it; nothing can be added any more."""
        total, self._blocks = self._total(self._blocks), None
        self._sites.close()
        return total

    def _total(self, blocks: dict[str, np.ndarray] | None) -> Total:
        moments = Moments.zeros(self._layout) if blocks is None else Moments(self._layout, blocks)
        return Total(self.recipe, moments, guarantee=self._guarantee, roster=self._sites.lines())

    def _enter(self, entry: Entry) -> None:
        self._sites.enter(entry)
        self._rows += entry.rows or 0
