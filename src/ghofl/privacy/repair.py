"""Turning noisy moments into moments that some rows could have.

Noise leaves counts below zero and covariances with negative eigenvalues. Everything here sees only what was released,
so it costs no privacy, and it draws nothing, so the same total always gives the same result.
"""

from collections.abc import Mapping
from math import log, sqrt

import numpy as np

from ghofl.moments import Moments
from ghofl.privacy.errors import PrivacyError
from ghofl.shapes import Float, Int, Num
from ghofl.statistics import Statistic
from ghofl.statistics.triangles import unpack_triangle

TOLERANCE = 1e-12  # share of the trace that float64 may lose when the means are subtracted and added again
EDGE = 0.25  # of the noise's spectral norm: see `noise_shrinkage`


def repair(
    moments: Moments, radius: float | None = None, sketch: Int[np.ndarray, "dim sketch"] | None = None
) -> dict[str, Float[np.ndarray, "..."]]:
    """Every stored block as floats that are consistent with each other, symmetric matrices in full.

    Counts are at least 0; a class with a count below 1 is empty in every block; no sum is longer than its count
    allows when `radius` is given; scatters within classes have no negative eigenvalue; sums of even powers are
    at least what sums of lower powers imply. Class moments of a sketch (Z) need the matrix that made them.

    Guarantees
    ----------
    Exact moments of clipped rows stay as they are. Repairing a second time changes nothing.

    Examples
    --------
    >>> from ghofl.moments import Layout
    >>> moments = Moments.of(np.array([[3, 4], [6, 8]]), np.array([0, 1]), Layout(classes=2, dim=2))
    >>> repair(moments)["B"]
    array([[45., 60.], [60., 80.]])
    """
    n = repair_counts(moments.counts)
    a = repair_sums(moments.sums, n, radius)
    out = {"N": n, "A": a}
    for record in moments.layout.records:
        if record.is_symmetric:
            out[record.name] = _repair_matrices(record, moments, a, n, sketch)
        elif record.name not in out:
            out[record.name] = repair_powers(record, moments.blocks[record.name], out)
    return out


def repair_counts(n: Num[np.ndarray, " classes"]) -> Float[np.ndarray, " classes"]:
    """Counts of at least 0; less than one row counts as none."""
    return np.where(n >= 1, n, 0).astype(np.float64)


def repair_sums(
    a: Num[np.ndarray, "classes dim"], n: Float[np.ndarray, " classes"], radius: float | None = None
) -> Float[np.ndarray, "classes dim"]:
    """Sums that are zero for empty classes, and no longer than `radius` times the count."""
    a = np.where(n[:, None] > 0, a, 0).astype(np.float64)
    if radius is None:
        return a
    size = np.sqrt(np.square(a).sum(axis=1))
    # The tolerance covers the rounding of one pass, so that a second pass finds nothing to shorten.
    is_long = size > radius * n * (1 + TOLERANCE)
    return a * np.where(is_long, radius * n / np.where(is_long, size, 1.0), 1.0)[:, None]


def repair_powers(
    record: Statistic, block: Num[np.ndarray, "..."], others: Mapping[str, Float[np.ndarray, "..."]]
) -> Float[np.ndarray, "..."]:
    """Sums of powers that are zero for empty classes and at least what the repaired `others` imply.

    For example, D is at least A²/N, so that no variance is negative.
    """
    n = others["N"][:, None] if record.is_per_class else others["N"].sum()
    block = np.where(n > 0, block, 0).astype(np.float64)
    for small, other in (pair for pair in record.above if pair[0] in others and pair[1] in others):
        by = n if other == "N" else others[other]
        block = np.maximum(block, np.square(others[small]) / np.where(by > 0, by, np.inf))
    return np.maximum(block, 0.0) if record.is_unsigned else block


def repair_second(
    second: Num[np.ndarray, "dim dim"], a: Float[np.ndarray, "classes dim"], n: Float[np.ndarray, " classes"]
) -> Float[np.ndarray, "dim dim"]:
    """The nearest symmetric second moments whose scatter W = B − Σ_c A_c A_cᵀ/N_c has no negative eigenvalue.

    For S_c, pass the sums and the count of that class alone.
    """
    second = _symmetric(second)
    between = _symmetric((a.T / np.maximum(n, 1.0)) @ a)
    values, vectors = np.linalg.eigh(second - between)
    if values[0] >= -TOLERANCE * np.abs(second).max(initial=0.0) * len(second):
        return second
    return _symmetric((vectors * np.maximum(values, 0.0)) @ vectors.T) + between


def noise_shrinkage(sigma: float, dim: int, trace: float) -> float:
    """How far to shrink a noisy scatter matrix towards (trace/dim)·I, which follows from the noise without held-out rows.

    A symmetric matrix of noise with off-diagonal deviation σ has spectral norm 2σ√d (Wigner). Eigenvalues of the
    scatter below that are mostly noise, and LDA divides by them, so a quarter of it, λ = ½σ√d, is added to all::

        shrink(W, a) = (1 − a) W + a (tr W/d) I   ∝   W + λI          a = λ / (λ + tr W/d)

    `sigma` and `trace` are in the same units: of the sum W, or both divided by the number of rows. The quarter
    is where accuracy is flattest over ε from 0.5 to 8 (docs/privacy.md, "Shrinking for noise").

    Examples
    --------
    >>> noise_shrinkage(sigma=0.0, dim=100, trace=50.0), round(noise_shrinkage(sigma=0.1, dim=100, trace=50.0), 3)
    (0.0, 0.5)
    """
    if not trace > 0:
        return 1.0
    level = EDGE * 2.0 * sigma * sqrt(dim)
    return level / (level + trace / dim)


def diagonal_shrinkage(
    sigma: Float[np.ndarray, " classes"], variances: Float[np.ndarray, "classes dim"]
) -> Float[np.ndarray, " classes"]:
    """How far to shrink noisy variances of each class towards their mean, as `noise_shrinkage` does for a matrix.

    A diagonal matrix of noise has spectral norm σ√(2 ln d). All of it is added to every variance: in a matrix noise is
    spread over directions, but a single small variance can be all noise, and naive Bayes divides by it.
    (docs/privacy.md, "Shrinking for noise".)

    >>> diagonal_shrinkage(np.array([0.0, 1.0]), np.ones((2, 100))).round(2)
    array([0.  , 0.75])
    """
    level = sigma * sqrt(2.0 * log(max(2, variances.shape[1])))
    return level / np.maximum(level + variances.mean(axis=1), np.finfo(float).tiny)


def _symmetric(matrix: Num[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    return (matrix + matrix.T) / 2.0


def _repair_matrices(
    record: Statistic,
    moments: Moments,
    a: Float[np.ndarray, "classes dim"],
    n: Float[np.ndarray, " classes"],
    sketch: Int[np.ndarray, "dim sketch"] | None,
) -> Float[np.ndarray, "..."]:
    if record.is_sketched:
        if sketch is None:
            raise PrivacyError(
                f"the moments include those of a sketch ({record.name}); pass sketch=Features.of(recipe).sketch."
            )
        a = a @ sketch
    width, block = a.shape[1], moments.blocks[record.name]
    if not record.is_per_class:
        return repair_second(unpack_triangle(block, width), a, n)
    out = np.zeros((len(n), width, width))
    for c in np.flatnonzero(n):
        out[c] = repair_second(unpack_triangle(block[c], width), a[c : c + 1], n[c : c + 1])
    return out
