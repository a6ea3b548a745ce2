"""Whether rows on the recipe's grid could have made some moments.

Single entries are looked at whenever moments are read (`check_plausible`); whole matrices once, when a message arrives
(`check_possible`), because that takes a Cholesky factor per class.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import sqrt

import numpy as np
import scipy

from ghofl.compute import arrays
from ghofl.compute.threads import parallel_for
from ghofl.errors import MessageError
from ghofl.features import Features, radius_of
from ghofl.moments import Layout, Moments
from ghofl.privacy import allowances, plan_of
from ghofl.recipe import Recipe
from ghofl.statistics import INT64_MAX, STATISTICS, Statistic
from ghofl.statistics.triangles import SMALL, apply, diagonal, unpack_triangle

AT_ONCE = 2**16  # entries that are compared at a time
WIDE = 256  # dimensions from which classes are looked at on several threads: starting those takes time too


def check_plausible(
    moments: Moments, recipe: Recipe | None = None, messages: int = 1, is_released: bool = False
) -> None:
    """Raise unless rows on the grid could have made these moments, as far as single entries tell.

    For bound β: N_c ≥ 0, every sum of p-th powers or products within ±β^p N_c, which is what keeps one site from
    outweighing the others beyond its count; even powers at least 0, and as large as Cauchy–Schwarz asks: A_cj² ≤ N_c D_cj.
    No class has more length than its count of rows of privacy.radius. Rounding and cutting get their allowance, and sums of
    so many rows that they may have been cut under an epsilon are only compared with their own bounds. Where
    there is noise, each entry gets what the noise may reach, and what sets squares against sums is left out.
    """
    allowed = dict.fromkeys(moments.layout.shapes, 0) if recipe is None else allowances(recipe, messages, is_released)
    _check_entries(moments, allowed)
    plan = None if recipe is None else plan_of(recipe)
    has_noise = plan is not None and (plan.mechanism != "central" or is_released)
    if not has_noise and (recipe is None or not _may_be_cut(moments, recipe)):
        _check_squares(moments, allowed)
        if recipe is not None and recipe.privacy.radius is not None:
            _check_lengths(moments, radius_of(recipe), allowed)


def check_rows(moments: Moments, recipe: Recipe) -> None:
    """Raise when a message claims more rows than one site may have.

    Under an epsilon a site cuts the count of every class to that many instead of refusing, and local noise adds to it.
    """
    most, rows = recipe.max_rows, moments.rows
    if plan_of(recipe) is not None:
        most = moments.layout.classes * (recipe.max_rows + allowances(recipe, 1)["N"])
    if rows > most:
        raise MessageError(
            f"the message counts {rows:,} rows and the recipe allows {recipe.max_rows:,} of one site "
            "(max_rows in its [limits] section); leave the site out, or agree on another recipe."
        )


def check_possible(moments: Moments, recipe: Recipe) -> None:
    """Raise unless some rows could have these second moments: within each class, or over all of them for B.

    S_c − A_c A_cᵀ/N_c is the scatter of the rows of a class, which has no negative eigenvalue, and neither has
    B − Σ_c A_c A_cᵀ/N_c. Both are tried for a Cholesky factor after adding τ to the diagonal, which covers rounding: of
    the recipe's messages (half a step per entry, or one where they are cut) and of float64. Not where there is noise.
    """
    plan, counts = plan_of(recipe), moments.counts
    if (plan is not None and plan.mechanism != "central") or _may_be_cut(moments, recipe):
        return
    if counts.min() < 0:
        raise MessageError(f"a class has a count of {int(counts.min())} beside exact sums; the site must resend.")
    allowed, is_there = allowances(recipe, 1), counts > 0
    sketch = Features.of(recipe).sketch if moments.layout.sketch else None
    for record in (record for record in moments.layout.records if record.is_symmetric):
        name, block, sums = record.name, moments.blocks[record.name], moments.sums
        if record.is_sketched:
            assert sketch is not None, "a layout with a sketch comes from a recipe with one"
            sums = apply(sums, sketch.astype(np.int64))
        if record.is_per_class:  # each class has a matrix of its own, where it has rows
            where, sums, n = is_there.nonzero()[0], sums[is_there, None], counts[is_there, None]
            _check_scatters(name, block, where, sums, n, allowed[name])
        else:
            sums = np.where(is_there[:, None], sums, 0)
            _check_scatters(name, block[None], np.arange(1), sums[None], counts[None], allowed[name])


def check_lengths(moments: Moments, radius: int | None) -> None:
    """Raise unless rows no longer than the radius could have made these moments."""
    _check_lengths(moments, radius, {})


def _may_be_cut(moments: Moments, recipe: Recipe) -> bool:
    """Whether a site may have cut each entry by itself (`before_noise`), after which squares and sums need not fit each other.

    Only under an epsilon, and with max_rows rows or more.
    """
    return plan_of(recipe) is not None and moments.rows >= recipe.max_rows


def _check_scatters(
    name: str, packed: np.ndarray, where: np.ndarray, sums: np.ndarray, counts: np.ndarray, allowed: int
) -> None:
    """Raise unless each of these packed matrices is one of second moments beside its sums, by class, and counts."""
    dim = sums.shape[-1]
    step = AT_ONCE // dim**2 + 1 if dim <= SMALL else 1  # small ones some at a time

    def check(start: int) -> None:
        some = slice(start, start + step)
        own = packed[where[some]] if step > 1 else packed[where[start]][None]
        if not _is_scatter(unpack_triangle(own.astype(float), dim), sums[some], counts[some], allowed):
            raise MessageError(
                f"no rows have the second moments in {name} beside these sums: they are not a scatter of anything. The "
                "site must send what its own rows give."
            )
        arrays.evict(own)

    starts = range(0, len(where), step)
    if dim < WIDE:
        for start in starts:
            check(start)
    else:
        parallel_for(check, starts)


def _is_scatter(second: np.ndarray, sums: np.ndarray, counts: np.ndarray, allowed: int) -> bool:
    on_diagonal = np.einsum("kii->ki", second)
    slack, n = 1e-9 * on_diagonal.sum(axis=1) + 1.0, np.maximum(counts, 1).astype(float)[..., None]
    # Each entry may be off by so much, and the products of sums of every class that were cut too by a little more.
    if allowed:
        reach = np.abs(sums / n).max(axis=(1, 2), initial=0.0)
        slack += sums.shape[2] * (allowed + (counts > 0).sum(axis=1) * (reach + 1.0) ** 2)
    weighted = sums / np.sqrt(n)
    second -= weighted.swapaxes(1, 2) @ weighted
    on_diagonal += slack[:, None]
    # The transpose is the same matrix in the order that LAPACK works on without a copy.
    factor = scipy.linalg.lapack.dpotrf  # type: ignore[attr-defined]
    return not any(factor(one.T, overwrite_a=True, clean=False)[1] for one in second)


def _check_entries(moments: Moments, allowed: Mapping[str, int]) -> None:
    layout, blocks, n = moments.layout, moments.blocks, moments.counts + allowed["N"]
    if n.min(initial=0) < 0:
        raise MessageError(
            f"class {int(n.argmin())} has a count of {int(moments.counts.min())}; counts are never negative"
            + (f" beyond the noise, which reaches {allowed['N']}." if allowed["N"] else ".")
        )
    rows = sum(n.tolist())  # a whole number that never overflows
    if int(n.max(initial=0)) > 2**53 or rows * layout.largest + max(allowed.values()) > INT64_MAX:
        raise MessageError(
            f"counts of up to {int(n.max())} rows could overflow 64-bit integers: too many rows for one site."
        )
    for record in (record for record in layout.records if record.power):
        of_each = n if record.is_per_class else n.sum(keepdims=True)
        limit = record.largest(layout.bound, layout.dim) * of_each + allowed[record.name]
        _check_within(record, blocks[record.name], limit)


def _check_squares(moments: Moments, allowed: Mapping[str, int]) -> None:
    """Raise where even powers are negative, or smaller than lower powers ask for."""
    layout, n = moments.layout, moments.counts + allowed["N"]
    if "B" in moments.blocks:
        on_diagonal = moments.blocks["B"][diagonal(layout.dim)] + allowed["B"]
        _check_large("squares in B", on_diagonal, "sums in A", moments.sums.sum(axis=0), n.sum(keepdims=True))
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


def _check_large(what: str, block: np.ndarray, than: str, small: np.ndarray, other: np.ndarray) -> None:
    """Raise unless small² ≤ other · block, in float64, whose rounding is far below the part in 10⁹ granted here."""
    root = small.astype(float)
    if (block < 0).any() or (root * root > block * (other.astype(float) * (1 + 1e-9))).any():
        raise MessageError(f"the {what} are smaller than the {than} allow; no rows give such moments.")


def _check_lengths(moments: Moments, radius: int | None, slack: Mapping[str, int]) -> None:
    if radius is None:
        return
    layout, blocks, n = moments.layout, moments.blocks, (moments.counts + slack.get("N", 0)).astype(float)
    # In float64, whose rounding is far below the one part in 10⁹ granted here.
    is_long = np.square(moments.sums.astype(float)).sum(axis=1) > (radius * n) ** 2 * (1 + 1e-9)
    if layout.has("D"):
        own = layout.dim * slack.get("D", slack.get("S", 0))
        is_long |= moments.block("D").sum(axis=1, dtype=float) > radius**2 * n * (1 + 1e-9) + own
    elif "B" in blocks:
        trace = blocks["B"][diagonal(layout.dim)].sum(dtype=float)
        is_long |= trace > radius**2 * n.sum() * (1 + 1e-9) + layout.dim * slack.get("B", 0)
    for record in layout.records:
        if record.power > 2 and record.is_per_class and not record.is_sketched:
            sizes = np.linalg.norm(blocks[record.name].astype(float).reshape(len(n), -1), axis=1)
            own = sqrt(record.entries_per_row(layout.dim, 0)) * slack.get(record.name, 0)
            is_long |= sizes > record.length(float(radius), layout.bound, 1.0) * n * (1 + 1e-9) + own
    if is_long.any():
        raise MessageError(
            f"the moments hold rows longer than privacy.radius, which is {radius} steps of the grid; "
            "rows come from Features.of(recipe), which clips them."
        )


def _check_within(record: Statistic, block: np.ndarray, limit: np.ndarray) -> None:
    if any((part > most).any() or (part < -most).any() for part, most in _by_class(block, limit)):
        raise MessageError(
            f"an entry of {record.name} is larger than its count of rows on the grid allows; the site must resend."
        )


def _by_class(block: np.ndarray, limit: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Entries and their limits; of a large block class by class: truth values of all would take an eighth of it."""
    rows, limits = block.reshape(len(limit), -1), limit[:, None]
    if block.size <= AT_ONCE:
        yield rows, limits
        return
    for part, most in zip(rows, limits, strict=True):
        yield part, most
        arrays.evict(part)
