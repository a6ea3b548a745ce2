"""Whether rows on the recipe's grid could have made some moments.

Single entries are looked at whenever moments are read (`check_plausible`); whole matrices once, when a message arrives
(`check_possible`), because that takes a Cholesky factor per class.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np
import scipy

from ghofl.errors import MessageError
from ghofl.features import Features, radius_of
from ghofl.moments import Layout, Moments
from ghofl.privacy import allowances, plan_of
from ghofl.recipe import Recipe
from ghofl.statistics import INT64_MAX, STATISTICS, Statistic, arrays
from ghofl.statistics.triangles import apply, diagonal, unpacked
from ghofl.workers import each

AT_ONCE = 2**16  # entries that are compared at a time
WIDE = 256  # dimensions from which classes are looked at on several threads: starting those takes time too


def check_plausible(
    moments: Moments, recipe: Recipe | None = None, messages: int = 1, is_released: bool = False
) -> None:
    """Raise unless rows on the grid could have made these moments, as far as single entries tell.

    For bound β: N_c ≥ 0, every sum of p-th powers or products within ±β^p N_c, which is what keeps one site from
    outweighing the others beyond its count; even powers at least 0, and as large as Cauchy–Schwarz asks: A_cj² ≤ N_c D_cj.
    No class has more length than its count of rows of privacy.radius. Rounding and cutting get their allowance. Where
    there is noise, each entry gets what the noise may reach, and what sets squares against sums is left out.
    """
    allowed = dict.fromkeys(moments.layout.shapes, 0) if recipe is None else allowances(recipe, messages, is_released)
    _check_entries(moments, allowed)
    plan = None if recipe is None else plan_of(recipe)
    if plan is None or (plan.mechanism == "central" and not is_released):
        _check_squares(moments, allowed)
        check_lengths(moments, None if recipe is None else radius_of(recipe), allowed)


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
    allowed, sketch = allowances(recipe, 1), Features.of(recipe).sketch if moments.layout.sketch else None
    present = moments.counts.nonzero()[0]
    counts = moments.counts[present].astype(float)
    for record in (record for record in moments.layout.records if record.is_symmetric):
        name, block, sums = record.name, moments.blocks[record.name], moments.sums[present]
        if record.is_sketched:
            assert sketch is not None, "a layout with a sketch comes from a recipe with one"
            sums = apply(sums, sketch.astype(np.int64))
        if not record.is_per_class:
            _check_scatter(name, block, sums, counts, allowed[name])
        else:
            _check_classes(name, block, present, sums, counts, allowed[name])


def _check_classes(
    name: str, block: np.ndarray, present: np.ndarray, sums: np.ndarray, counts: np.ndarray, allowed: int
) -> None:
    def check(i: int) -> None:
        own = block[present[i]]
        _check_scatter(name, own, sums[i : i + 1], counts[i : i + 1], allowed)
        arrays.forget(own)

    if sums.shape[1] < WIDE:
        for i in range(len(present)):
            check(i)
    else:
        each(check, range(len(present)))


def _check_scatter(name: str, packed: np.ndarray, sums: np.ndarray, counts: np.ndarray, allowed: int) -> None:
    scatter = unpacked(packed.astype(float), sums.shape[1])
    on_diagonal = scatter.reshape(-1)[:: len(scatter) + 1]
    slack = 1e-9 * float(on_diagonal.sum()) + 1.0
    # Each entry may be off by so much, and the products of sums of every class that were cut too by a little more.
    if allowed:
        reach = float(np.abs(sums / counts[:, None]).max(initial=0.0))
        slack += len(scatter) * (allowed + len(sums) * (reach + 1.0) ** 2)
    weighted = sums / np.sqrt(counts)[:, None]
    scatter -= weighted.T @ weighted
    on_diagonal += slack
    # The transpose is the same matrix in the order that LAPACK works on without a copy.
    if scipy.linalg.lapack.dpotrf(scatter.T, overwrite_a=True, clean=False)[1]:  # type: ignore[attr-defined]
        raise MessageError(
            f"no rows have the second moments in {name} beside these sums: they are not a scatter of anything. The site "
            "must send what its own rows give."
        )


def _check_entries(moments: Moments, allowed: Mapping[str, int]) -> None:
    layout, n = moments.layout, moments.counts + allowed["N"]
    each = n.tolist()  # whole numbers that never overflow
    if min(each, default=0) < 0:
        raise MessageError(
            f"class {int(n.argmin())} has a count of {int(moments.counts.min())}; counts are never negative"
            + (f" beyond the noise, which reaches {allowed['N']}." if allowed["N"] else ".")
        )
    if max(each, default=0) > 2**53 or sum(each) * layout.largest + max(allowed.values()) > INT64_MAX:
        raise MessageError(f"counts of up to {max(each)} rows could leave the 64-bit integers; no site has so many.")
    for record in (record for record in layout.records if record.power):
        rows = n[:, None] if record.is_per_class else sum(each)
        limit = record.largest(layout.bound, layout.dim) * rows + allowed[record.name]
        _check_within(record.name, moments.blocks[record.name], limit)


def _check_squares(moments: Moments, allowed: Mapping[str, int]) -> None:
    """Raise where even powers are negative, or smaller than lower powers ask for."""
    layout, n = moments.layout, moments.counts + allowed["N"]
    if "B" in moments.blocks:
        on_diagonal = moments.blocks["B"][diagonal(layout.dim)] + allowed["B"]
        _check_large("squares in B", on_diagonal, "sums in A", moments.sums.sum(axis=0), n.sum())
    for record in _even_powers(layout):
        block = moments.block(record.name) + allowed[layout.source(record.name)]
        if (block < 0).any():
            raise MessageError(f"the {record.noun} in {record.name} are negative; no rows give such moments.")
        for small, other in (pair for pair in record.above if layout.has(pair[0]) and layout.has(pair[1])):
            lower = np.abs(moments.block(small)) - allowed[layout.source(small)]
            by = n[:, None] if other == "N" else moments.block(other) + allowed[layout.source(other)]
            words = f"{record.noun} in {record.name}", f"{STATISTICS[small].noun} in {small}"
            _check_large(words[0], block, words[1], np.maximum(lower, 0), by)


@lru_cache(maxsize=64)
def _even_powers(layout: Layout) -> tuple[Statistic, ...]:
    found = (record for record in STATISTICS.values() if record.is_unsigned and record.power)
    return tuple(record for record in found if layout.has(record.name))


def _check_large(what: str, block: np.ndarray, than: str, small: np.ndarray, other: Any) -> None:
    """Raise unless small² ≤ other · block, in float64, whose rounding is far below the part in 10⁹ granted here."""
    roots = small.astype(float)
    if (block < 0).any() or (roots * roots > block * (np.asarray(other, dtype=float) * (1 + 1e-9))).any():
        raise MessageError(f"the {what} are smaller than the {than} allow; no rows give such moments.")


def check_lengths(moments: Moments, radius: int | None, allowed: Mapping[str, int] | None = None) -> None:
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
    for record in layout.records:
        if record.power > 2 and record.is_per_class and not record.is_sketched:
            sizes = np.linalg.norm(moments.blocks[record.name].astype(float).reshape(len(n), -1), axis=1)
            own = sqrt(record.entries_per_row(layout.dim, 0)) * slack.get(record.name, 0)
            is_long |= sizes > record.length(float(radius), layout.bound, 1.0) * n * (1 + 1e-9) + own
    if is_long.any():
        raise MessageError(
            f"the moments hold rows longer than privacy.radius, which is {radius} steps of the grid; "
            "rows come from Features.of(recipe), which clips them."
        )


def _check_within(name: str, block: np.ndarray, limit: Any) -> None:
    if any((part > most).any() or (part < -most).any() for part, most in _by_class(block, limit)):
        raise MessageError(
            f"an entry of {name} is larger than its count of rows on the grid allows; the site must resend."
        )


def _by_class(block: np.ndarray, limit: Any) -> Iterator[tuple[np.ndarray, Any]]:
    """Class by class where there are classes: truth values of a whole block would take an eighth of it."""
    if np.ndim(limit) != 2 or block.size <= AT_ONCE:
        yield block, limit
        return
    for part, most in zip(block, limit, strict=True):
        yield part, most
        arrays.forget(part)
