"""Who is inside a total, what else its header says (recipe, noise, small classes), and what a recipe demands of it."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ghofl.errors import MessageError, MomentsOverflowError, PrivacyError, RecipeError, RosterError
from ghofl.moments import INT64_MAX, Layout, Moments
from ghofl.names import is_hex, is_site_name, shorten
from ghofl.privacy import Guarantee, MinCount, compose, plan_of
from ghofl.recipe import Recipe
from ghofl.wire.envelope import is_share
from ghofl.wire.message import ID_DIGITS, Message

MAX_RELEASES = 10_000  # of one total, or in one run's folder
SMALL = 2**30  # bytes of moments to which a file of any size may unpack
EXPANSION = 256  # and how many times its own size a larger one


@dataclass(frozen=True, slots=True)
class Entry:
    """One site's line in the roster; a released total, or one of a secure round, hides rows, hash and clipping."""

    id: str
    site: str
    rows: int | None
    sha256: str
    clipped: float | None = None

    @classmethod
    def of(cls, message: Message) -> "Entry":
        """The line of a message: who, how many rows, the hash of what was added, and the share that was clipped."""
        return cls(message.id, message.site, message.rows, message.moments.sha256, message.clipped)

    @classmethod
    def hidden(cls, site: str) -> "Entry":
        """The line of a site of which only the name is known."""
        return cls(secrets.token_hex(16), site, None, "")

    @property
    def name(self) -> str:
        """How people tell this site from others."""
        return self.site or self.id[:8]


class Sites:
    """Who is in a total that grows: each message and each site once."""

    def __init__(self, roster: Iterable[Entry] = ()) -> None:
        self._roster: dict[str, Entry] = {}
        self._is_closed = False
        self._names: set[str] = set()
        for entry in roster:
            self.enter(entry)

    def check(self, message_id: str, site: str) -> None:
        """Raise when a message, or its site, is inside already."""
        self._check_open()
        if message_id in self._roster:
            raise RosterError(
                f"message {site or message_id[:8]!r} (id {message_id[:8]}…) is already in the total; each is counted once."
            )
        if site and site in self._names:
            raise RosterError(
                f"site {site!r} is already in the total; subtract its earlier message before adding a new one."
            )

    def enter(self, entry: Entry) -> None:
        """Count a message in."""
        self._roster[entry.id] = entry
        self._names.add(entry.site)

    def lines(self) -> tuple[Entry, ...]:
        """Everybody inside, by name."""
        self._check_open()
        return tuple(sorted(self._roster.values(), key=lambda entry: (entry.site, entry.id)))

    def close(self) -> None:
        """Let nobody in any more: the sum was given away."""
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise MessageError("this sum is finished and was given away; add to its total: Aggregator(recipe, total).")


def kept_in(header: Mapping[str, Any], recipe: Recipe, moments: Moments) -> dict[str, Any]:
    """What a total's header says beside its recipe and moments, under the names of the fields of `Total`."""
    return {
        "roster": roster_in(header, moments),
        "guarantee": guarantee_in(header, recipe),
        "small_classes": small_classes_in(header, len(recipe.classes)),
    }


def roster_in(header: Mapping[str, Any], moments: Moments) -> tuple[Entry, ...]:
    lines = header.get("roster")
    if not isinstance(lines, list) or not all(_is_line(line) for line in lines):
        raise MessageError("the total's roster is damaged; make the total again from its messages.")
    roster = tuple(Entry(*line) for line in lines)
    known = [e.rows for e in roster if e.rows is not None]
    is_short = len(known) == len(roster) and sum(known) != moments.rows
    if len({e.id for e in roster}) != len(roster) or is_short:
        raise MessageError(
            f"the total's roster does not account for its rows ({sum(known):,} of {len(roster)} sites, {moments.rows:,} in the "
            "sums); make the total again from its messages."
        )
    return roster


def _is_line(line: Any) -> bool:
    """Whether something can be a line of a roster: id, site, rows, sha256 and the share clipped."""
    if not isinstance(line, list) or len(line) != 5:
        return False
    message_id, site, rows, sha256, clipped = line
    return (
        is_hex(message_id, ID_DIGITS)
        and is_site_name(site)
        and (rows is None or type(rows) is int)
        and (sha256 == "" or is_hex(sha256, 64))
        and is_share(clipped)
    )


def recipe_in(header: Mapping[str, Any], size: int) -> Recipe:
    """The recipe that a total of `size` bytes brings, by which it may not unpack to far more than it has."""
    try:
        recipe = Recipe.from_toml(str(header.get("recipe_toml", "")))
    except RecipeError as error:
        raise MessageError(f"the total carries a recipe that does not work: {shorten(error, 300)}") from None
    whole = 8 * Layout.of(recipe).entries
    if whole > max(SMALL, EXPANSION * size):
        raise MessageError(
            f"this total of {size:,} bytes would unpack to {whole:,}, by the recipe inside it. Read it "
            "with the recipe that was agreed on, Total.load(path, recipe), or add its messages up again."
        )
    return recipe


def guarantee_in(header: Mapping[str, Any], recipe: Recipe) -> Guarantee | None:
    """The guarantee in a header, which must be the one that the recipe's noise gives in as many releases."""
    values, plan = header.get("guarantee"), plan_of(recipe)
    if values is None:
        return None
    try:
        guarantee = Guarantee.from_dict(values)
    except PrivacyError as error:
        raise MessageError(f"the guarantee in the file is damaged: {shorten(error, 300)}") from None
    own = None if plan is None or not 1 <= guarantee.releases <= MAX_RELEASES else plan.guarantee
    if own is None or not guarantee.agrees_with(
        own if guarantee.releases == 1 else compose([own] * guarantee.releases)
    ):
        raise MessageError(
            f"the guarantee in the file, epsilon = {guarantee.epsilon:g}, is not the one of its recipe; it "
            "promises something else."
        )
    # Only numbers are compared, so the sentences in the file could say anything: ours replace them.
    return replace(guarantee, assumptions=own.assumptions)


def small_classes_in(header: Mapping[str, Any], classes: int) -> MinCount | None:
    values = header.get("small_classes")
    if values is None:
        return None
    try:
        small = MinCount(**{**values, "small": tuple(values["small"])})
    except (TypeError, KeyError):
        small = None
    numbers = () if small is None else (*small.small, *(() if small.merged_into is None else (small.merged_into,)))
    if (
        small is None
        or type(small.threshold) is not int
        or type(small.is_pooled_whole) is not bool
        or not all(type(c) is int and 0 <= c < classes for c in numbers)
    ):
        raise MessageError(f"what the total says about small classes, {shorten(values)}, is damaged; release it again.")
    return small


def list_names(roster: Sequence[Entry]) -> str:
    """The first few sites of a roster, for an error."""
    names = ", ".join(repr(e.name) for e in roster[:5])
    return names + (f" and {len(roster) - 5} more" if len(roster) > 5 else "") if roster else "nobody"


def check_overflow(layout: Layout, rows: int, name: str) -> None:
    """Raise when sums of `rows` rows, including those of message `name`, could overflow 64-bit integers."""
    if rows * layout.largest > INT64_MAX:
        raise MomentsOverflowError(
            f"adding {name!r} gives {rows} rows, whose sums could overflow 64-bit integers; use fewer grid bits."
        )


def check_cohort(recipe: Recipe, sites: int) -> None:
    """Raise when a total has fewer sites than the recipe's privacy needs."""
    if sites < recipe.privacy.min_cohort:
        raise PrivacyError(
            f"a total of {sites} sites may not be used: privacy.min_cohort is {recipe.privacy.min_cohort}. "
            "Wait for more sites."
        )
