"""Sums of third and fourth powers, and what they tell: the skewness and kurtosis of the features of each class.

::

    D3_c = Σ_{y=c} x∘x∘x        D4_c = Σ_{y=c} x∘x∘x∘x

No head reads them, so ghofl does not know them; a kind of sum is one record, and `registered` makes these two known.

A row no longer than R with entries within ±β adds a vector of length √Σ x_i^2p ≤ max|x_i|^(p−1) · ‖x‖, at most
R·min(R, β)^(p−1), which a row along one axis attains. The cubes of two rows can point in opposite directions; their fourth
powers cannot. By Cauchy–Schwarz (Σx²)² ≤ N Σx⁴ and (Σx³)² ≤ Σx² Σx⁴. They are not rounded: central moments are small
differences of large sums.

With n rows of a class and P_k = Σ x^k, the central moments m_k = Σ (x − x̄)^k / n are, in whole numbers::

    n² m₂ = n P₂ − P₁²
    n³ m₃ = n² P₃ − 3 n P₁ P₂ + 2 P₁³
    n⁴ m₄ = n³ P₄ − 4 n² P₁ P₃ + 6 n P₁² P₂ − 3 P₁⁴

Skewness and kurtosis are ratios in which the powers of n cancel, as do the units of the features.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ghofl import Moments
from ghofl.shapes import Float, Shaped
from ghofl.statistics import STATISTICS
from ghofl.statistics.statistic import Block, Rows, Statistic


def _add_cubes(rows: Rows, out: Block) -> None:
    out += np.einsum("ij,ij,ij->j", rows, rows, rows, dtype=np.int64)


def _add_fourth_powers(rows: Rows, out: Block) -> None:
    out += np.einsum("ij,ij,ij,ij->j", rows, rows, rows, rows, dtype=np.int64)


CUBES = Statistic(
    name="D3",
    noun="third powers",
    power=3,
    of_class=lambda dim: (dim,),
    add=_add_cubes,
    length=lambda r, bound, norm: r * min(r, bound) ** 2,
    formula="(R·min(R, bound)²)²",
    share=1.0,
)
FOURTH_POWERS = Statistic(
    name="D4",
    noun="fourth powers",
    power=4,
    of_class=lambda dim: (dim,),
    add=_add_fourth_powers,
    length=lambda r, bound, norm: r * min(r, bound) ** 3,
    formula="(R·min(R, bound)³)²",
    share=1.0,
    is_unsigned=True,
    above=(("D", "N"), ("D3", "D")),
)
POWERS = {record.name: record for record in (CUBES, FOURTH_POWERS)}


@contextmanager
def registered() -> Iterator[None]:
    """Both are known inside: to recipes, messages, totals and whatever else reads statistics."""
    STATISTICS.update(POWERS)
    try:
        yield
    finally:
        for name in POWERS:
            del STATISTICS[name]


def skewness(moments: Moments) -> Float[np.ndarray, "classes dim"]:
    """m₃ / m₂^1.5 of every feature within every class: 0 for every symmetric distribution, such as a normal one.

    Guarantees
    ----------
    Sums of powers are combined in whole numbers, so that nothing cancels; the result is rounded once at the end. It is
    NaN where a class has no spread: no row, one row, or equal ones.
    """
    n, a, d = _powers(moments)
    d3 = moments.block("D3").astype(object)
    spread = n * d - a * a
    third = n * n * d3 - 3 * n * a * d + 2 * a**3
    return _ratio(third, spread, lambda top, bottom: float(top) / float(bottom) ** 1.5)


def excess_kurtosis(moments: Moments) -> Float[np.ndarray, "classes dim"]:
    """m₄ / m₂² − 3 of every feature within every class: 0 for a normal distribution, more for heavier tails.

    Guarantees
    ----------
    As for `skewness`; for exact moments it is never below −2.
    """
    n, a, d = _powers(moments)
    d3, d4 = moments.block("D3").astype(object), moments.block("D4").astype(object)
    spread = n * d - a * a
    fourth = n**3 * d4 - 4 * n * n * a * d3 + 6 * n * a * a * d - 3 * a**4
    return _ratio(fourth, spread, lambda top, bottom: top / bottom**2 - 3.0)


def _powers(moments: Moments) -> tuple[Shaped[np.ndarray, "classes _"], ...]:
    """N, A and D as Python integers, which never overflow."""
    return moments.counts[:, None].astype(object), moments.sums.astype(object), moments.squares.astype(object)


def _ratio(
    tops: np.ndarray, bottoms: np.ndarray, ratio: Callable[[int, int], float]
) -> Float[np.ndarray, "classes dim"]:
    pairs = zip(tops.ravel(), bottoms.ravel(), strict=True)
    values = [ratio(top, bottom) if bottom > 0 else np.nan for top, bottom in pairs]
    return np.array(values, dtype=np.float64).reshape(tops.shape)
