"""How many sites a secure round must end with under a recipe's privacy."""

from ghofl import secure
from ghofl.errors import PrivacyError
from ghofl.privacy import entry_bound
from ghofl.recipe import Recipe


def fewest_survivors(recipe: Recipe) -> tuple[int, int]:
    """The fewest survivors of a round, and the fewest honest ones among them, that a recipe's privacy asks for."""
    privacy = recipe.privacy
    return privacy.min_cohort, privacy.min_cohort if privacy.noise == "distributed" else 0


def check_cohort(recipe: Recipe, agreed: secure.Plan) -> None:
    """Raise when a round may end with fewer clients than min_cohort, or fewer honest ones than noise was sized for."""
    least, least_honest = fewest_survivors(recipe)
    honest = agreed.min_survivors - agreed.corrupted
    if honest < least_honest:
        raise PrivacyError(
            f"noise is shared among privacy.min_cohort = {recipe.privacy.min_cohort} clients, and this round may end "
            f"with {honest} that keep theirs to themselves; lower min_cohort, or assume fewer dropouts."
        )
    if agreed.min_survivors < least:
        raise PrivacyError(
            f"privacy.min_cohort is {least}, and of {agreed.clients} clients {agreed.dropped} may vanish from this "
            "round; invite more clients, or assume fewer dropouts."
        )


def round_plan(recipe: Recipe, clients: int, dropout: float, corruption: float, min_sites: int) -> secure.Plan:
    """The plan of a round: for as many dropouts as asked for, but no more than leave enough sites for a usable total."""
    least, least_honest = fewest_survivors(recipe)
    corrupted = secure.plan(clients, 1, 0.0, corruption).corrupted
    needed = max(min_sites, least, least_honest + corrupted if least_honest else 0)
    plan = secure.plan(clients, entry_bound(recipe), dropout, corruption, min_survivors=min(needed, clients))
    check_cohort(recipe, plan)
    return plan
