"""How the features of each class are distributed about their mean: skewness and excess kurtosis, from sums of powers.

With n rows of a class and P_k = Σ x^k, the central moments m_k = Σ (x − x̄)^k / n are, in whole numbers::

    n² m₂ = n P₂ − P₁²
    n³ m₃ = n² P₃ − 3 n P₁ P₂ + 2 P₁³
    n⁴ m₄ = n³ P₄ − 4 n² P₁ P₃ + 6 n P₁² P₂ − 3 P₁⁴

Both measures are ratios in which the powers of n cancel, as do the units of the features.
"""

from collections.abc import Callable

import numpy as np

from ghofl.moments.moments import Moments
from ghofl.shapes import Float, Shaped


def skewness(moments: Moments) -> Float[np.ndarray, "classes dim"]:
    """m₃ / m₂^1.5 of every feature within every class: 0 for every symmetric distribution, such as a normal one.

    Guarantees
    ----------
    Sums of powers are combined in whole numbers, so that nothing cancels; the result is rounded once at the end. It is
    NaN where a class has no spread: no row, one row, or equal ones.

    Examples
    --------
    >>> from ghofl.moments import Layout
    >>> layout = Layout(classes=2, dim=1, statistics=("D", "D3"))
    >>> skewness(Moments.of(np.array([[0], [0], [3], [1]]), np.array([0, 0, 0, 1]), layout)).round(4)
    array([[0.7071], [   nan]])
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

    Examples
    --------
    >>> from ghofl.moments import Layout
    >>> layout = Layout(classes=2, dim=1, statistics=("D", "D3", "D4"))
    >>> excess_kurtosis(Moments.of(np.array([[-1], [1], [0]]), np.array([0, 0, 1]), layout))
    array([[-2.], [nan]])
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
