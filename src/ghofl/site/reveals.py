"""What a site's folder has unmasked: once, and once more for every time its administrator re-opens it.

A secure round shows the sum of its sites. Two rounds over the same rows with other cohorts show two sums, and their
difference is what the cohorts do not share: five sites minus four of them is the fifth, exactly. So a site reveals
once, whatever the recipe or the rows, and counts it before the reply leaves.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ghofl.errors import PolicyError, SiteError
from ghofl.recipe import Recipe
from ghofl.site.memory import Memory

LEDGER = "reveals.json"


@dataclass(frozen=True, slots=True)
class Opening:
    """What an administrator re-opened a folder for: one round of this recipe, these rows and exactly these sites."""

    recipe: str
    data: str
    cohort: tuple[str, ...]

    @classmethod
    def of(cls, site: str, recipe: Recipe, data: str, cohort: Iterable[str]) -> "Opening":
        """An opening of a site's folder, checked: a secure recipe, and a cohort that could have a round."""
        names = tuple(sorted({name.strip() for name in cohort if name.strip()}))
        if not recipe.privacy.secure:
            raise SiteError("the recipe has privacy.secure = false; only secure rounds unmask, and need re-opening.")
        if site not in names or len(names) < 3:
            raise SiteError(
                f"the cohort is {', '.join(names) or 'empty'}; name all sites of the round, {site!r} among them and "
                "three at least, e.g. --cohort north,south,west."
            )
        return cls(recipe.fingerprint, data, names)


@dataclass(frozen=True, slots=True)
class Revealed:
    """A reveal that left: in which round, of what, among whom, and whose vectors were in the sum."""

    round: str
    recipe: str
    data: str
    cohort: tuple[str, ...]
    survivors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The reveals of a site's folder, and what it is re-opened for, if it is.

    Guarantees
    ----------
    `check` returns for the first round, for a round that was counted before (its reveal is asked for again), and for
    a round of exactly what the folder is re-opened for. Everything else it refuses, with one text.
    """

    reveals: tuple[Revealed, ...] = ()
    opening: Opening | None = None

    @classmethod
    def load(cls, memory: Memory) -> "Ledger":
        """The ledger of a site's folder; an empty one when nothing was revealed yet.

        A reveal whose reply is kept counts also where no ledger is: in a folder of an earlier version, or after a loss.
        """
        kept = memory.get(LEDGER)
        if kept is None:
            return cls(tuple(_without_ledger(memory)))
        try:
            values = json.loads(kept)
            reveals = tuple(Revealed(**_tuples(reveal)) for reveal in values["reveals"])
            opening = values["opening"]
            return cls(reveals, None if opening is None else Opening(**_tuples(opening)))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SiteError(
                f"{LEDGER} in the site's folder is damaged; it says what was unmasked. Bring it back from a copy: "
                "without it, nothing is revealed."
            ) from None

    def save(self, memory: Memory) -> None:
        """Write the ledger down."""
        memory.put(LEDGER, json.dumps(asdict(self), indent=1, ensure_ascii=False).encode())

    def check(self, round_id: str, recipe: str, data: str, cohort: Iterable[str] | None = None) -> None:
        """Raise `PolicyError` unless a reveal in this round is allowed; the cohort may not be known yet."""
        if self.allows(recipe, data, cohort) or any(reveal.round == round_id for reveal in self.reveals):
            return
        raise PolicyError(
            "this site has unmasked in a round already, and does so once; its administrator may re-open it for one "
            "recipe, its rows and one cohort: ghofl flower reopen."
        )

    def allows(self, recipe: str, data: str, cohort: Iterable[str] | None = None) -> bool:
        """Whether a reveal in a new round is allowed: the first one, or what the folder is re-opened for."""
        if not self.reveals or self.opening is None:
            return not self.reveals
        names = self.opening.cohort if cohort is None else tuple(sorted(cohort))
        return self.opening == Opening(recipe, data, names)

    def counting(self, reveal: Revealed) -> "Ledger":
        """The ledger with one more reveal, which uses up what the folder was re-opened for."""
        if any(earlier.round == reveal.round for earlier in self.reveals):
            return self
        return Ledger((*self.reveals, reveal), None)

    def reopened(self, opening: Opening) -> "Ledger":
        """The ledger that allows one more reveal, in place of any that was allowed before."""
        if not self.reveals:
            raise SiteError("nothing was revealed from this folder yet; its first round needs no re-opening.")
        return Ledger(self.reveals, opening)

    def risks(self, opening: Opening) -> tuple[str, ...]:
        """What the sum of a new round would show beside the sums of earlier ones, a sentence for each of those."""
        return tuple(_risk(earlier, opening) for earlier in self.reveals)


def _without_ledger(memory: Memory) -> Iterator[Revealed]:
    for round_id in (memory.get("used-rounds") or b"").decode().split():
        recipe = memory.get(f"round/{round_id}/recipe")
        if recipe is not None and memory.get(f"round/{round_id}/reply/reveal") is not None:
            yield Revealed(round_id, Recipe.from_toml(recipe.decode()).fingerprint, "", (), ())


def _risk(earlier: Revealed, opening: Opening) -> str:
    start = f"Round {earlier.round[:8]} (recipe {earlier.recipe[:12]}…, rows {earlier.data[:12]}…) "
    apart = sorted(set(earlier.survivors) ^ set(opening.cohort))
    if earlier.recipe != opening.recipe:
        return start + "was of another recipe: the two sums are two views of the same rows."
    if not earlier.survivors:
        return start + "is known from its reply only: whose rows its sum covers is not."
    if apart:
        return start + f"and the new one differ in {', '.join(apart)}: the difference of the two sums is theirs alone."
    if earlier.data != opening.data:
        return start + "was of the same sites and other rows here: the difference of the two sums is what changed."
    return (
        start + "was of the same sites and rows: the sums are the same if nobody vanishes this time; otherwise their "
        "difference is what the vanished sites have."
    )


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(map(str, value)) if isinstance(value, list) else str(value) for key, value in values.items()}
