"""What a recipe demands of a total: enough sites, no dominant site, sums within 64-bit integers and within memory."""

from collections.abc import Iterable, Sequence

from ghofl.errors import MessageError, MomentsOverflowError, PrivacyError, RosterError
from ghofl.moments import INT64_MAX, Layout
from ghofl.recipe import Recipe
from ghofl.wire.roster import Entry, Quarantined

SMALL = 2**30  # bytes of moments to which a file of any size may unpack
EXPANSION = 256  # and how many times its own size a larger one


def check_overflow(layout: Layout, rows: int, name: str) -> None:
    """Raise when sums of `rows` rows, including those of message `name`, could overflow 64-bit integers."""
    if rows * layout.largest > INT64_MAX:
        raise MomentsOverflowError(
            f"adding {name!r} gives {rows} rows, whose sums could overflow 64-bit integers; use fewer grid bits."
        )


def check_expansion(layout: Layout, size: int) -> None:
    """Raise when a file that contains its own recipe would unpack to far more bytes than it has."""
    if 8 * layout.entries > max(SMALL, EXPANSION * size):
        raise MessageError(
            f"this total of {size:,} bytes would unpack to {8 * layout.entries:,}, by the recipe inside it. Read it "
            "with the recipe that was agreed on, Total.load(path, recipe), or add its messages up again."
        )


def check_use(recipe: Recipe, roster: Sequence[Entry], rows: int, aside: Sequence[Quarantined]) -> None:
    """Raise unless a total of these sites may be released or built from."""
    check_cohort(recipe, len(roster))
    check_share(recipe, roster, rows)
    check_quarantine(recipe, aside)


def check_share(recipe: Recipe, roster: Iterable[Entry], rows: int) -> None:
    """Raise when one site has a larger share of a total's rows than the recipe allows."""
    most = recipe.limits.max_share
    if most is None:
        return
    for entry in roster:
        if entry.rows is not None and entry.rows > most * rows:
            raise RosterError(
                f"site {entry.name!r} has {entry.rows:,} of the {rows:,} rows in this total, and limits.max_share is "
                f"{most:g}: nothing is released or built from it. Wait for other sites, or subtract its message."
            )


def check_quarantine(recipe: Recipe, aside: Sequence[Quarantined]) -> None:
    """Raise when a total under an epsilon leaves messages out by what is in them: who is in it would have no noise."""
    if aside and recipe.privacy.epsilon is not None:
        raise PrivacyError(
            f"this total leaves out the message of {aside[0].name!r} by its exact rows, which is an answer without noise that "
            "the recipe's epsilon does not cover. Add all messages up without --quarantine."
        )


def check_cohort(recipe: Recipe, sites: int) -> None:
    """Raise when a total has fewer sites than the recipe's privacy needs."""
    if sites < recipe.privacy.min_cohort:
        raise PrivacyError(
            f"a total of {sites} sites may not be used: privacy.min_cohort is {recipe.privacy.min_cohort}. "
            "Wait for more sites."
        )
