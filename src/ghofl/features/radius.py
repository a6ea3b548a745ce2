"""Rows no longer than a radius, in integers, which is the basis of every bound on a record."""

from math import isfinite

import numpy as np

from ghofl.errors import PrivacyError
from ghofl.shapes import Float, Integer

BLOCK = 256  # rows clipped at a time: their temporaries stay in the cache
LEVELS = 16  # roundings tried by `clip_rows`: from the nearest integer (8/16) to towards zero (16/16)
SLACK = 2.0**-48  # covers the rounding of the few float operations that a bound goes through
LARGEST_SQUARE = 2**53  # whole numbers up to here are exact in float64


def grid_radius(radius: float, step: float) -> int:
    """The recipe's radius in steps of the grid, rounded down; `step` is `Features.unit`.

    >>> grid_radius(1.0, step=1 / 16)
    16
    """
    on_grid = radius / step
    if not (isfinite(on_grid) and on_grid >= 1):
        raise PrivacyError(
            f"privacy.radius = {radius} is {on_grid:g} steps of the grid, and it must be at least one: "
            "raise privacy.radius or grid.scale."
        )
    return int(on_grid)


def clip_rows(q: Integer[np.ndarray, "n dim"], radius: int) -> Integer[np.ndarray, "n dim"]:
    """Integer rows no longer than `radius`: longer ones are scaled down and rounded, the others stay as they are.

    A row with ‖q‖ > R becomes ``sign(q) ⌊f|q| + 1 − θ⌋`` with ``f = R/‖q‖`` and θ the first of 8/16, 9/16, … 16/16
    for which the result is no longer than R: the nearest integers where they fit, and otherwise a little shorter.

    Guarantees
    ----------
    Every row of the result has Σ q² ≤ R², in integers. The tests for θ < 1 are exact integer comparisons; at θ = 1
    each entry is rounded towards zero, so Σ ⌊f|q|⌋² ≤ f² Σ q² ≤ R², where f is taken 2⁻⁴⁸ short of R/‖q‖ to cover
    its own rounding. A row's result depends only on that row, and is the same on every platform.

    Examples
    --------
    >>> clip_rows(np.array([[3, 4], [30, -41]]), radius=5)
    array([[ 3, 4], [ 3, -4]])
    """
    check_radius(radius)
    _check_squares(q)
    out = q.copy()
    for start in range(0, len(q), BLOCK):
        x = q[start : start + BLOCK].astype(np.float64)
        over = np.flatnonzero(_squared_norms(x) > radius**2)
        if over.size:
            out[start + over] = _scale_down(x[over], radius).astype(q.dtype)
    return out


def check_radius(radius: int) -> None:
    """Raise unless a radius is at least one step of the grid."""
    if radius < 1:
        raise PrivacyError(f"radius is {radius}; give a whole number of grid steps, at least 1 (see grid_radius).")


def _scale_down(x: Float[np.ndarray, "n dim"], radius: int) -> Float[np.ndarray, "n dim"]:
    """Rows longer than the radius, scaled to it and rounded as `clip_rows` says."""
    # IEEE square roots, quotients and products are rounded alike everywhere, so no platform disagrees.
    scaled = np.abs(x) * (radius * (1.0 - SLACK) / np.sqrt(_squared_norms(x)))[:, None]
    size = np.floor(scaled + 0.5)
    for level in range(LEVELS // 2 + 1, LEVELS + 1):
        over = np.flatnonzero(_squared_norms(size) > radius**2)
        if not over.size:
            break
        size[over] = np.floor(scaled[over] + (1 - level / LEVELS))
    return np.copysign(size, x)


def _squared_norms(x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
    # Whole numbers below 2^53 in every partial sum: exact in any order.
    return np.einsum("ij,ij->i", x, x)


def _check_squares(q: Integer[np.ndarray, "n dim"]) -> None:
    largest = max(int(q.max(initial=0)), -int(q.min(initial=0)))
    if largest**2 * q.shape[1] > LARGEST_SQUARE:
        raise PrivacyError(
            f"a row of {q.shape[1]} entries up to {largest} has squares beyond 2^53; give rows from Features.rows."
        )
