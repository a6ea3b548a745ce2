"""What all releases of a site promise together, and how much more its policy allows.

Every message with local noise, and every secure round that a site put its vector into, is a release about its rows.
Their guarantees compose (`privacy.compose`); if one release among them is exact, there is no guarantee at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ghofl.custody.policy import Policy
from ghofl.errors import PolicyError
from ghofl.privacy import CompositionError, Guarantee, compose, plan_of
from ghofl.recipe import Recipe

ROOM = 1 + 1e-6  # for what root finding and the lattice may add to an epsilon


@dataclass(frozen=True, slots=True)
class Release:
    """Something about a site's rows that left: a message or a report with its id, or a masked vector with its round.

    `guarantee` is what its noise promises, None where it is exact. `data` is the version of the rows.
    """

    key: str
    recipe: str
    data: str
    is_message: bool
    guarantee: Guarantee | None = None
    is_report: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether it was exact when it left: without noise, or with noise that the server adds later."""
        return self.guarantee is None or self.guarantee.mechanism == "central"


def promise_of(recipe: Recipe) -> Guarantee | None:
    """What one release under a recipe promises; None where it is exact."""
    plan = plan_of(recipe)
    return None if plan is None else plan.guarantee


def compose_releases(releases: Sequence[Release], delta: float | None = None) -> Guarantee | None:
    """The guarantee of all releases of a folder together; None when there are none, or one of them is exact.

    Raises `CompositionError` for promises about different units, which do not add up.
    """
    guarantees = [release.guarantee for release in releases if release.guarantee is not None]
    return compose(guarantees, delta) if guarantees and len(guarantees) == len(releases) else None


def describe_releases(releases: Sequence[Release]) -> str:
    """What all releases of a folder promise together, in a sentence."""
    exact = sum(release.guarantee is None for release in releases)
    if not releases:
        return "Nothing has left this folder yet."
    if exact:
        return f"No differential privacy covers them: {exact} of {len(releases)} left without noise."
    try:
        together = compose_releases(releases)
    except CompositionError as error:
        return f"No single promise covers them: {error}"
    return f"Together they keep {str(together).splitlines()[0]}"


def check_budget(policy: Policy, releases: Sequence[Release], recipe: Recipe, key: str = "") -> None:
    """Raise `PolicyError` unless one more release under this recipe stays within what the site's policy allows.

    That is `max_epsilon` and `max_delta`, or else the policy's `epsilon` and `delta`, or else a single release under an
    epsilon with none before or after it. What left before under the same `key` is not a new release.

    Guarantees
    ----------
    The decision does not depend on rows: every site with this policy refuses the same recipes in the same order.
    """
    if key and any(release.key == key for release in releases):
        return
    promised, budget = promise_of(recipe), policy.budget
    if budget is None:
        if releases and (promised or any(release.guarantee for release in releases)):
            raise PolicyError(
                f"this site has already sent {len(releases)} release(s), and one under an epsilon must be the only one unless "
                "the site's policy says what all of them may spend together: max_epsilon and max_delta."
            )
        return
    epsilon, delta = budget
    if promised is None:
        raise PolicyError(
            f"this site's budget is epsilon = {epsilon:g} in all, and an exact release has none; use a recipe with noise."
        )
    if any(release.guarantee is None for release in releases):
        raise PolicyError(
            "an exact release has left this site's folder, so no epsilon holds for its rows any more; start a budget in a "
            "new folder, with other rows."
        )
    spent = [release.guarantee for release in releases if release.guarantee is not None]
    try:
        together = compose([*spent, promised], delta)
    except CompositionError as error:
        raise PolicyError(f"this site's budget cannot take the recipe: {error}") from None
    if together.epsilon > epsilon * ROOM:
        raise PolicyError(
            f"this site's budget is epsilon = {epsilon:g} at delta = {delta:g} in all; with this recipe, its "
            f"{together.releases} releases would spend {together.epsilon:.4g}."
        )
