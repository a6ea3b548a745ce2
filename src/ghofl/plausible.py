"""Whether rows on the recipe's grid could have made some moments.

Single entries are looked at whenever moments are read (`check_plausible`); whole matrices once, when a message arrives
(`check_possible`), because that takes a Cholesky factor per class.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.linalg

from ghofl.errors import MessageError
from ghofl.features import Features, radius_of
from ghofl.moments import Moments
from ghofl.privacy import allowances, plan_of
from ghofl.recipe import Recipe
from ghofl.triangles import diagonal


def check_plausible(
    moments: Moments, recipe: Recipe | None = None, messages: int = 1, is_released: bool = False
) -> None:
    """Raise unless rows on the grid could have made these moments, as far as single entries tell.

    For bound β: N_c ≥ 0, |A_cj| ≤ β N_c, 0 ≤ D_cj ≤ β² N_c, A_cj² ≤ N_c D_cj (Cauchy–Schwarz), and every second
    moment within ±β² N_c, which is what keeps one site from outweighing the others beyond its count; no class has more
    length than its count of rows of privacy.radius. Rounding and cutting get their allowance. Where there is
    noise, each entry gets what the noise may reach, and what sets squares against sums is left out.
    """
    allowed = dict.fromkeys(moments.layout.shapes, 0) if recipe is None else allowances(recipe, messages, is_released)
    _check_entries(moments, allowed)
    plan = None if recipe is None else plan_of(recipe)
    if plan is None or (plan.mechanism == "central" and not is_released):
        _check_all_squares(moments, allowed)
        check_radius(moments, None if recipe is None else radius_of(recipe), allowed)


def check_rows(moments: Moments, recipe: Recipe) -> None:
    """Raise when a message claims more rows than one site may have.

    Under an epsilon a site cuts the count of every class to that many instead of refusing, and local noise adds to it.
    """
    most = recipe.max_rows
    if plan_of(recipe) is not None:
        most = moments.layout.classes * (recipe.max_rows + allowances(recipe, 1)["N"])
    if moments.rows > most:
        raise MessageError(
            f"the message counts {moments.rows:,} rows and the recipe allows {recipe.max_rows:,} of one site "
            "(max_rows in its [limits] section); leave the site out, or agree on another recipe."
        )


def check_possible(moments: Moments, recipe: Recipe) -> None:
    """Raise unless some rows could have these second moments: within each class, or over all of them for B.

    S_c − A_c A_cᵀ/N_c is the scatter of the rows of a class, which has no negative eigenvalue, and neither has
    B − Σ_c A_c A_cᵀ/N_c. Both are tried for a Cholesky factor after adding τ to the diagonal, which covers rounding: of
    the recipe's messages (half a step per entry, or one where they are cut) and of float64. Not where there is noise.
    """
    plan = plan_of(recipe)
    if plan is not None and plan.mechanism != "central":
        return
    allowed, counts, present = allowances(recipe, 1), moments.counts, np.flatnonzero(moments.counts)
    if "S" in moments.blocks:
        for c in present:
            mean = moments.sums[c] / counts[c]
            _check_scatter("S", moments.by_class(int(c)), mean[None], counts[c : c + 1], allowed["S"])
    if "B" in moments.blocks:
        means = moments.sums[present] / counts[present, None]
        _check_scatter("B", moments.pooled(), means, counts[present], allowed["B"])
    if "Z" in moments.blocks:
        sketch = Features.of(recipe).sketch
        assert sketch is not None, "a layout with Z comes from a recipe with a sketch"
        sketched = moments.of_sketch(sketch)
        for c in present:
            mean = sketched.sums[c] / counts[c]
            _check_scatter("Z", sketched.by_class(int(c)), mean[None], counts[c : c + 1], allowed["Z"])


def _check_scatter(name: str, second: np.ndarray, means: np.ndarray, counts: np.ndarray, allowed: int) -> None:
    weighted = means * np.sqrt(counts.astype(float))[:, None]
    scatter = second.astype(float)
    slack = 1e-9 * float(scatter.diagonal().sum()) + 1.0
    if (
        allowed
    ):  # each entry may be off by so much, and the products of sums of every class that were cut too by a little more
        reach = float(np.abs(means).max(initial=0.0))
        slack += len(scatter) * (allowed + len(means) * (reach + 1.0) ** 2)
    scatter -= weighted.T @ weighted
    scatter[np.diag_indices_from(scatter)] += slack
    try:
        scipy.linalg.cholesky(scatter, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        raise MessageError(
            f"no rows have the second moments in {name} beside these sums: they are not a scatter of anything. The site "
            "must send what its own rows give."
        ) from None


def _check_entries(moments: Moments, allowed: Mapping[str, int]) -> None:
    layout, n = moments.layout, moments.counts + allowed["N"]
    if n.min(initial=0) < 0:
        raise MessageError(
            f"class {int(n.argmin())} has a count of {int(moments.counts.min())}; counts are never negative"
            + (f" beyond the noise, which reaches {allowed['N']}." if allowed["N"] else ".")
        )
    largest = layout.bound * layout.dim if layout.sketch else layout.bound
    if int(n.max(initial=0)) > 2**53 or sum(map(int, n)) * largest**2 + max(allowed.values()) > 2**63 - 1:
        raise MessageError(f"counts of up to {int(n.max())} rows could leave the 64-bit integers; no site has so many.")
    _check_within("A", moments.sums, layout.bound * n[:, None] + allowed["A"])
    for name, limit in (("D", layout.bound**2), ("S", layout.bound**2), ("Z", (layout.bound * layout.dim) ** 2)):
        if name in moments.blocks:
            _check_within(name, moments.blocks[name], limit * n[:, None] + allowed[name])
    if "B" in moments.blocks:
        _check_within("B", moments.blocks["B"], np.int64(layout.bound**2 * int(n.sum()) + allowed["B"]))


def _check_all_squares(moments: Moments, allowed: Mapping[str, int]) -> None:
    layout, n = moments.layout, moments.counts + allowed["N"]
    if "B" in moments.blocks:
        diagonal_of_b = moments.blocks["B"][diagonal(layout.dim)] + allowed["B"]
        _check_squares("B", moments.sums.sum(axis=0), diagonal_of_b, np.int64(n.sum()))
    if layout.has("D"):
        _check_squares("D", moments.sums, moments.squares + allowed.get("D", allowed.get("S", 0)), n[:, None])


def check_radius(moments: Moments, radius: int | None, allowed: Mapping[str, int] | None = None) -> None:
    """Raise unless rows no longer than the radius could have made these moments."""
    if radius is None:
        return
    layout, slack = moments.layout, allowed or {}
    n = (moments.counts + slack.get("N", 0)).astype(float)
    # In float64, whose rounding is far below the one part in 10⁹ granted here.
    is_long = np.square(moments.sums.astype(float)).sum(axis=1) > (radius * n) ** 2 * (1 + 1e-9)
    if layout.has("D"):
        own = layout.dim * slack.get("D", slack.get("S", 0))
        is_long |= moments.squares.sum(axis=1, dtype=float) > radius**2 * n * (1 + 1e-9) + own
    elif "B" in moments.blocks:
        trace = moments.blocks["B"][diagonal(layout.dim)].sum(dtype=float)
        is_long |= trace > radius**2 * n.sum() * (1 + 1e-9) + layout.dim * slack.get("B", 0)
    if is_long.any():
        raise MessageError(
            f"the moments hold rows longer than privacy.radius, which is {radius} steps of the grid; "
            "rows come from Features.of(recipe), which clips them."
        )


def _check_within(name: str, block: np.ndarray, limit: Any) -> None:
    if any(np.any(part > most) or np.any(part < -most) for part, most in _by_class(block, limit)):
        raise MessageError(
            f"an entry of {name} is larger than its count of rows on the grid allows; the site must resend."
        )


def _by_class(block: np.ndarray, limit: Any) -> Iterator[tuple[np.ndarray, Any]]:
    """Class by class where there are classes: truth values of a whole block would take an eighth of it."""
    return zip(block, limit, strict=True) if np.ndim(limit) == 2 else iter([(block, limit)])


def _check_squares(name: str, sums: np.ndarray, squares: np.ndarray, counts: Any) -> None:
    # In float64, whose rounding is far below the one part in 10⁹ granted here.
    if np.any(squares < 0) or np.any(sums.astype(float) ** 2 > counts.astype(float) * squares * (1 + 1e-9)):
        raise MessageError(f"the squares in {name} are smaller than the sums in A allow; no rows give such moments.")
