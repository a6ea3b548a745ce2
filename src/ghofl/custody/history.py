"""What a site's ledger says about what may leave next: reveals, survivor lists, releases, approvals.

A secure round shows the sum of its sites. Two rounds over the same rows with different cohorts show two sums, and their
difference is what the cohorts do not share: five sites minus four of them is exactly the fifth. So a site reveals
once, whatever the recipe or the rows, unless its administrator re-opens it; and it never signs a survivor list whose
sum, combined with those it knows of, would show fewer sites than its policy's `min_difference`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ghofl.custody.budget import Release
from ghofl.custody.known_sums import Known, sum_over, sums_of
from ghofl.custody.ledger import Ledger, Line
from ghofl.custody.overlap import (
    FEW_LOOKS,
    MOST_LOOKS,
    Sum,
    find_isolated,
    find_shown_to,
    nearest_cohort,
    without_versions,
)
from ghofl.errors import PolicyError, PrivacyError, SiteError
from ghofl.privacy import Guarantee
from ghofl.recipe import Recipe

FEWEST_SITES = 3  # of a secure round
MOST_KNOWN = 8  # sums, up to which another cohort is searched for


@dataclass(frozen=True, slots=True)
class Revealed:
    """A survivor list that a site signed, or a reveal that left: the round, what it was of, its cohort and survivors."""

    round: str
    recipe: str
    data: str
    cohort: tuple[str, ...]
    survivors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Permit:
    """What an administrator allows: one round of one recipe, these rows and exactly these sites.

    Without a cohort, it is for the first one that it is used for. `parcel` is the sha256 of what was shown.
    """

    recipe: str
    data: str
    cohort: tuple[str, ...] = ()
    parcel: str = ""
    is_used: bool = False

    @classmethod
    def of(cls, site: str, recipe: Recipe, data: str, cohort: Iterable[str], parcel: str = "") -> "Permit":
        """A checked permit: for a cohort that could have a round."""
        names = tuple(sorted({name.strip() for name in cohort if name.strip()}))
        if names and not recipe.privacy.secure:
            raise SiteError("the recipe has privacy.secure = false; only secure rounds have a cohort.")
        if names and (site not in names or len(names) < FEWEST_SITES):
            raise SiteError(
                f"the cohort is {', '.join(names) or 'empty'}; name all sites of the round, {site!r} among them and "
                "three at least, e.g. --cohort north,south,west."
            )
        return cls(recipe.fingerprint, data, names, parcel)

    def covers(self, recipe: str, data: str, cohort: Iterable[str] | None) -> bool:
        """Whether a round is the one that is allowed; the cohort may not be known yet."""
        names = self.cohort if cohort is None or not self.cohort else tuple(sorted(cohort))
        return not self.is_used and (self.recipe, self.data, self.cohort) == (recipe, data, names)


@dataclass(frozen=True, slots=True)
class History:
    """A ledger's content: `reveals` that left, survivor `lists` that were signed, `releases`, and what is allowed.

    `declined` are the recipes under which an administrator wants nothing to leave; the last decision about a recipe holds.
    `told` are the sums, each a round and its survivors, that the other sites of a round knew of when a vector left in it.
    """

    reveals: tuple[Revealed, ...] = ()
    lists: tuple[Revealed, ...] = ()
    releases: tuple[Release, ...] = ()
    opening: Permit | None = None
    approvals: Mapping[str, Permit] = field(default_factory=dict)
    declined: frozenset[str] = frozenset()
    told: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, ledger: Ledger) -> "History":
        """The history in a ledger."""
        reveals, lists, releases, told = [], [], [], []
        opening: Permit | None = None
        approvals: dict[str, Permit] = {}
        declined: set[str] = set()
        for line in ledger.lines:
            what, facts = line.what, line.facts
            try:
                if what == "endorsed":
                    lists.append(listed := _revealed(facts))
                    if listed.recipe in approvals:
                        approvals[listed.recipe] = replace(approvals[listed.recipe], is_used=True)
                elif what == "revealed":
                    reveals.append(_revealed(facts))
                    opening = None
                elif what in ("sent", "masked", "reported"):
                    releases.append(_release(line))
                    told += [(of, tuple(names)) for of, names in facts.get("told", [])]
                elif what == "reopened":
                    opening = _permit(facts)
                elif what == "approved":
                    approvals[facts["recipe"]] = _permit(facts)
                    declined.discard(facts["recipe"])
                elif what == "declined":
                    approvals.pop(facts["recipe"], None)
                    declined.add(facts["recipe"])
            except (KeyError, TypeError, ValueError, AttributeError, PrivacyError):
                raise SiteError(
                    f"line {line.number} of the site's ledger ({what[:40]!r}) lacks fields of such a line; it was "
                    "not written by this version. Restore the ledger from a copy."
                ) from None
        so_far = (tuple(reveals), tuple(lists), tuple(releases))
        return cls(*so_far, opening, approvals, frozenset(declined), tuple(told))

    def has_left(self, key: str) -> bool:
        """Whether something left under this key: the id of a message or an evaluation, or the round of a masked vector."""
        return any(release.key == key for release in self.releases)

    def check_reveal(self, round_id: str, recipe: str, data: str, cohort: Iterable[str] | None = None) -> None:
        """Raise `PolicyError` unless a reveal in this round is allowed; the cohort may not be known yet.

        Guarantees
        ----------
        It allows the first round, a round that was counted before (its reveal is asked for again), and a round of
        exactly what the folder is re-opened for. It refuses everything else, with one text.
        """
        if self.allows(recipe, data, cohort) or any(reveal.round == round_id for reveal in self.reveals):
            return
        raise PolicyError(
            f"this site has already revealed in a round ({', '.join(each.round[:8] for each in self.reveals[-3:])}), and does "
            "so only once; its administrator may re-open it for one recipe, its rows and one cohort: ghofl flower reopen."
        )

    def allows(self, recipe: str, data: str, cohort: Iterable[str] | None = None) -> bool:
        """Whether a reveal in a new round is allowed: the first one, or what the folder is re-opened for."""
        if not self.reveals or self.opening is None:
            return not self.reveals
        return self.opening.covers(recipe, data, cohort)

    def known(self, site: str, data: str, round_id: str = "") -> Known:
        """What this site tells its peers about earlier sums before a round of these rows: its own, and those it was told of.

        In {1,2,3,4,5}, {1,2,3,4,6,7,8} and {6,7,8}, no site of the third is in the first, and the three show {5}.
        """
        every = [*((each.round, each.survivors, each.data) for each in (*self.lists, *self.reveals)),
                 *((release.key, (site,) if release.is_message else (), release.data) for release in self.releases
                   if not release.is_report and (release.is_exact or not release.is_message))]  # fmt: skip
        own = {of: version for of, _, version in every}
        every += [(of, names, own.get(of, data)) for of, names in self.told]
        numbers: dict[str, int] = {}
        for _, _, version in (*every, ("", (), data)):
            numbers.setdefault(version, len(numbers))
        sums = dict.fromkeys((of, names, numbers[version]) for of, names, version in every if of != round_id)
        listed = {of for of, names, _ in sums if names}
        return Known(numbers[data], tuple(each for each in sums if each[1] or each[0] not in listed))

    def check_sum(
        self, site: str, survivors: Iterable[str], data: str, fewest: int, round_id: str = "",
        others: Mapping[str, Known] | None = None, colluders: int | None = None,
    ) -> None:  # fmt: skip
        """Raise `PolicyError` when a sum over these sites, with those already known, shows fewer than `fewest` of them.

        `others` is what the other sites of the round know. It is checked twice: a site whose rows changed is another
        one, and then it is the same one, because sums under other recipes are about the same rows. With `colluders` the
        sum is handed out to its sites, and must show none of them, with as many others, so few.
        """
        if fewest <= 1:
            return
        by_site = {**(others or {}), site: self.known(site, data, round_id)}
        cohort, known = frozenset(survivors), sums_of(by_site)
        if shown := _shown([*known, sum_over(cohort, by_site)], fewest) if known else ():
            raise PolicyError(
                f"with the sums that this site knows of, a sum over these sites would show {', '.join(shown)} by "
                f"{'itself' if len(shown) == 1 else 'themselves'}; its policy's min_difference is {fewest}."
                + (_advice(known, cohort, shown, by_site, fewest, site) if len(cohort) > 1 else "")
            )
        if colluders is not None:
            check_recipients(cohort, [*known, sum_over(cohort, by_site)], fewest, colluders)

    def check_list(self, round_id: str, survivors: Iterable[str]) -> None:
        """Raise `PolicyError` where the ledger names other survivors for this round."""
        names = tuple(sorted(survivors))
        if any(each.round == round_id and each.survivors != names for each in (*self.lists, *self.reveals)):
            raise PolicyError(
                f"this site's ledger names other survivors for round {round_id!r}, and a round has one list; start another "
                "round."
            )

    def check_message(self, site: str, data: str, fewest: int) -> None:
        """Raise `PolicyError` when an exact message would show fewer than `fewest` sites beside a secure sum.

        A masked vector counts as a sum: once it has left, the others can finish the round without this site.
        """
        masked = [release.key for release in self.releases if not release.is_message and not release.is_report]
        if self.lists or self.reveals:
            self.check_sum(site, [site], data, fewest)
        if masked and fewest > 1:
            raise PolicyError(
                f"a masked vector of this site left in round {masked[-1][:8]}, and beside the sum of that round an exact "
                f"message would show {site} by itself; its policy's min_difference is {fewest}."
            )

    def check_approval(
        self, recipe: Recipe, parcel: str, data: str, cohort: Iterable[str] | None = None, round_id: str = ""
    ) -> None:
        """Raise `PolicyError` unless an administrator approved exactly this parcel, for a round with these sites.

        A round whose survivor list was signed under the approval may continue when its last stages are asked for again.
        """
        permit = self.approvals.get(recipe.fingerprint)
        if permit is None or permit.parcel != parcel:
            raise approval_error(recipe)
        if round_id and any(listed.round == round_id for listed in self.lists):
            return
        if recipe.privacy.secure and not permit.covers(recipe.fingerprint, data, cohort):
            raise PolicyError(
                f"the approval of recipe {recipe.fingerprint[:12]}… by this site's administrator is used up, or is for "
                "other sites: ghofl flower check SITE.toml --recipe RECIPE.toml --cohort A,B,C --confirm SHA256."
            )

    def risks(self, opening: Permit) -> tuple[str, ...]:
        """What the sum of a new round would show with the sums of earlier ones, one sentence for each of those."""
        return tuple(_risk(earlier, opening) for earlier in self.reveals)


def _shown(sums: Sequence[Sum], fewest: int, most_looks: int = MOST_LOOKS) -> tuple[str, ...]:
    """The sites that some sums show, by versions of rows or by names alone."""
    by_names = without_versions(sums)
    return find_isolated(sums, fewest, most_looks) or find_isolated(by_names, fewest, most_looks)


def check_recipients(recipients: Collection[str], sums: Sequence[Sum], fewest: int, colluders: int) -> None:
    """Raise `PolicyError` where a site that gets some sums could find one of fewer than `fewest` others."""
    for every in (sums, without_versions(sums)):
        name, shown = find_shown_to(recipients, every, fewest, colluders)
        if name:
            raise PolicyError(
                f"the total is handed out, and less its own sums, {name} would have one over {len(shown)} "
                f"site{'' if len(shown) == 1 else 's'}; min_difference asks for {fewest} beside {colluders} that may collude "
                "with it. Wait for more sites."
            )


def _advice(
    known: Sequence[Sum],
    cohort: frozenset[str],
    shown: Sequence[str],
    by_site: Mapping[str, Known],
    fewest: int,
    site: str,
) -> str:
    """What to change so that a round of these sites would be allowed, in a sentence after the refusal."""

    def passes(names: frozenset[str]) -> bool:
        if site not in names or len(names) < FEWEST_SITES or len(known) > MOST_KNOWN:
            return False
        with suppress(PolicyError):  # too much to check
            return not _shown([*known, sum_over(names, by_site)], fewest, FEW_LOOKS)
        return False

    found = nearest_cohort(cohort, {name for each in known for name, _ in each}, shown, passes)
    if found is None:
        return " No cohort close to this one was found that would be allowed."
    more, less = sorted(found - cohort), sorted(cohort - found)
    words = [f"with {' and '.join(more)} as well"] * bool(more) + [f"without {' and '.join(less)}"] * bool(less)
    return f" It would be allowed {' and '.join(words)}."


def approval_error(recipe: Recipe) -> PolicyError:
    """The error for a recipe that no administrator has approved."""
    return PolicyError(
        f"this site's administrator has not approved recipe {recipe.fingerprint[:12]}… yet: "
        "ghofl flower check SITE.toml --recipe RECIPE.toml shows what would leave, and what to confirm."
    )


def _revealed(facts: Mapping[str, Any]) -> Revealed:
    return Revealed(facts["round"], facts["recipe"], facts["data"], tuple(facts["cohort"]), tuple(facts["survivors"]))


def _permit(facts: Mapping[str, Any]) -> Permit:
    return Permit(facts["recipe"], facts["data"], tuple(facts["cohort"]), facts.get("parcel", ""))


def _release(line: Line) -> Release:
    facts, promised = line.facts, line.facts["guarantee"]
    guarantee = None if promised is None else Guarantee.from_dict({**promised, "assumptions": []})
    key, is_message = facts["round" if line.what == "masked" else "id"], line.what == "sent"
    return Release(key, facts["recipe"], facts["data"], is_message, guarantee, line.what == "reported")


def _risk(earlier: Revealed, opening: Permit) -> str:
    start = f"Round {earlier.round[:8]} (recipe {earlier.recipe[:12]}…, rows {earlier.data[:12]}…) "
    apart = sorted(set(earlier.survivors) ^ set(opening.cohort))
    if earlier.recipe != opening.recipe:
        return start + "was of another recipe: the two sums are two views of the same rows."
    if apart:
        return start + f"and the new one differ in {', '.join(apart)}: the difference of the two sums is theirs alone."
    if earlier.data != opening.data:
        return start + "was of the same sites and other rows here: the difference of the two sums is what changed."
    return (
        start + "was of the same sites and rows: the sums are the same if nobody vanishes this time; otherwise their "
        "difference is what the vanished sites have."
    )


def guarantee_facts(guarantee: Guarantee | None) -> dict[str, Any] | None:
    """A guarantee for a line of the ledger: its numbers, without the sentences that follow from the recipe."""
    if guarantee is None:
        return None
    return {key: value for key, value in guarantee.to_dict().items() if key != "assumptions"}
