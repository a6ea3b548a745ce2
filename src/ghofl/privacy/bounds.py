"""How far one record, or one client, can move the moments: the only place that knows.

Lengths are taken in the coordinates in which noise is added. There a symmetric matrix counts its off-diagonal
entries twice, so that ‖x xᵀ‖ = ‖x‖² whatever the direction of x, and block b is divided by a public scale w_b::

    ‖M‖² = Σ_b ‖M_b‖² / w_b²        ‖M_b‖² = Σ_i M_ii² + 2 Σ_{i<j} M_ij²  for B, S_c and Z_c

A record x of class c with ‖x‖ ≤ R adds the vector φ = (e_c, e_c⊗x, e_c⊗x∘x, x xᵀ or e_c⊗x xᵀ, e_c⊗z zᵀ), where
z is its sketch; its blocks are no longer than Δ_N = 1, Δ_A = R, Δ_D = R·min(R, bound), Δ_B = Δ_S = R² and
Δ_Z = ‖sketch‖₂² R².
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np
from jaxtyping import Float, Int, Integer

from ghofl.features import EXACT_IN_FLOAT64
from ghofl.moments import Layout, Moments, diagonal
from ghofl.privacy.errors import PrivacyError

SYMMETRIC = ("B", "S", "Z")
UNITS = ("record", "client")
NEIGHBOURS = ("add-remove", "replace-one")
BLOCK = 256  # rows clipped at a time: their temporaries stay in the cache
LEVELS = 16  # roundings tried by `clip_rows`: from the nearest integer (8/16) to towards zero (16/16)
SLACK = 2.0**-48  # covers the rounding of the few float operations that a bound goes through
SUM_SLACK = 2.0**-20  # and of a float sum over up to 2^32 entries


def grid_radius(radius: float, step: float) -> int:
    """The recipe's radius in steps of the grid, rounded down; `step` is `Features.unit`.

    >>> grid_radius(1.0, step=1 / 16)
    16
    """
    on_grid = radius / step
    if not (isfinite(on_grid) and on_grid >= 1):
        raise PrivacyError(
            f"privacy.radius = {radius} is {on_grid:g} steps of the grid; rows need at least one step: "
            "raise privacy.radius or grid.scale."
        )
    return int(on_grid)


def clip_rows(q: Integer[np.ndarray, "n dim"], radius: int) -> Integer[np.ndarray, "n dim"]:
    """Integer rows no longer than `radius`: the long ones are scaled down and rounded, the others untouched.

    A row with ‖q‖ > R becomes ``sign(q) ⌊f|q| + 1 − θ⌋`` with ``f = R/‖q‖`` and θ the first of 8/16, 9/16, … 16/16
    for which the result is no longer than R: the nearest integers where they fit, and otherwise a little shorter.

    Guarantees
    ----------
    Every row of the result has Σ q² ≤ R², in integers. The tests for θ < 1 are exact integer comparisons; at θ = 1
    each entry is rounded towards zero, so Σ ⌊f|q|⌋² ≤ f² Σ q² ≤ R², where f is taken 2⁻⁴⁸ short of R/‖q‖ to cover
    its own rounding. A row's result depends on that row alone, and is the same on every platform.

    Examples
    --------
    >>> clip_rows(np.array([[3, 4], [30, -41]]), radius=5)
    array([[ 3, 4], [ 3, -4]])
    """
    _refuse_radius(radius)
    _refuse_large(q)
    out = q.copy()
    for start in range(0, len(q), BLOCK):
        x = q[start : start + BLOCK].astype(np.float64)
        over = np.flatnonzero(_squared_norms(x) > radius**2)
        if over.size:
            out[start + over] = _shortened(x[over], radius).astype(q.dtype)
    return out


def clip_vector(moments: Moments, limit: float, scales: Mapping[str, float] | None = None) -> Moments:
    """A client's moments no longer than `limit`, scaled down as a whole and rounded towards zero where they are.

    Guarantees
    ----------
    ``length(clip_vector(moments, limit, scales), scales) <= limit``: the factor is 2⁻²⁰ short, which covers the
    rounding of the sums, and rounding towards zero lengthens nothing.

    Examples
    --------
    >>> layout = Layout(classes=2, dim=1, statistics=("A",))
    >>> moments = Moments.of(np.array([[30], [40]]), np.array([0, 1]), layout)
    >>> clip_vector(moments, 10.0).sums.ravel()
    array([5, 7])
    """
    size = length(moments, scales)
    if size * (1 + SUM_SLACK) <= limit:
        return moments
    factor = limit / size * (1 - SUM_SLACK)
    return Moments(
        moments.layout, {name: np.trunc(block * factor).astype(np.int64) for name, block in moments.blocks.items()}
    )


def length(moments: Moments, scales: Mapping[str, float] | None = None) -> float:
    """The length of moments in the coordinates in which they are noised, as in the formula at the top.

    >>> layout = Layout(classes=2, dim=2)
    >>> length(Moments.of(np.array([[3, 4]]), np.array([0]), layout)) ** 2  # 1 + R² + R⁴
    651.0
    """
    dims = {"B": moments.layout.dim, "S": moments.layout.dim, "Z": moments.layout.sketch}
    total = 0.0
    for name, block in moments.blocks.items():
        squares = np.square(block.astype(np.float64) / _scale(scales, name))
        total += float(squares.sum())
        if name in SYMMETRIC:
            total += float(squares.sum() - squares[..., diagonal(dims[name])].sum())
    return sqrt(total)


def sketch_norm(sketch: Int[np.ndarray, "dim sketch"]) -> float:
    """An upper bound of ‖sketch‖₂, its largest singular value, so that ‖sketchᵀ x‖ ≤ sketch_norm · ‖x‖.

    The Gram matrix is exact and its largest eigenvalue is raised by 2⁻³⁰, far more than the backward error of a
    symmetric eigensolver (a small multiple of k·2⁻⁵³; Golub & Van Loan, §8.1).
    """
    gram = sketch.T.astype(np.float64) @ sketch.astype(np.float64)
    return float(np.sqrt(np.linalg.eigvalsh(gram)[-1] * (1 + 2.0**-30)))


def record_bounds(layout: Layout, radius: int, sketch_norm: float | None = None) -> dict[str, float]:
    """Δ_b: how far one record of length at most `radius` moves each stored block.

    >>> record_bounds(Layout(classes=10, dim=64, statistics=("D", "B")), radius=200)
    {'N': 1.0, 'A': 200.0, 'D': 25400.0, 'B': 40000.0}
    """
    _refuse_radius(radius)
    if layout.sketch and sketch_norm is None:
        raise PrivacyError(
            f"layout {layout} holds class moments of a sketch; pass the sketch_norm of Features.of(recipe).sketch."
        )
    r = float(radius)
    # Σ x_i⁴ ≤ max x_i² · Σ x_i², and no feature is beyond the grid's own bound.
    every = {"N": 1.0, "A": r, "D": r * min(r, layout.bound), "B": r * r, "S": r * r}
    every["Z"] = (sketch_norm or 0.0) ** 2 * r * r
    return {name: every[name] for name in layout.shapes}


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The most that one record or client moves the moments, with the formula that says so.

    >>> print(sensitivity(Layout(classes=10, dim=64), radius=16))
    256.501 = √(1² + R² + (R²)²), R = 16; record, add-remove
    """

    value: float
    unit: str
    neighbours: str
    formula: str

    def __str__(self) -> str:
        return f"{self.value:.6g} = {self.formula}; {self.unit}, {self.neighbours}"


def sensitivity(
    layout: Layout,
    radius: int,
    unit: str = "record",
    neighbours: str = "add-remove",
    *,
    scales: Mapping[str, float] | None = None,
    sketch_norm: float | None = None,
    shifts: Mapping[str, int] | None = None,
    client_rows: int | None = None,
) -> Sensitivity:
    """The L2 sensitivity of the packed integers, in the coordinates in which they are noised.

    ``record``, ``add-remove``
        ‖φ‖ ≤ Δ = √(Σ_b Δ_b²/w_b²): √(1 + R² + R⁴) for (N, A, B) or (N, A, S) with scales of one.
    ``record``, ``replace-one``
        ‖φ − φ'‖² = ‖φ‖² + ‖φ'‖² − 2⟨φ, φ'⟩ ≤ 2Δ² − 2 min(0, m), where m is the least of 1/w_N² + t/w_A² + t²/w_B² over
        t = x·x' in ±R²: two records of one class may point apart in A, but then they agree in N, B and S. Where
        m ≥ 0, as for scales of one with B or S, that is √2 Δ, less than the 2Δ of the triangle inequality.
    ``client``
        The vector is cut to the length `client_rows` · Δ by `clip_vector`, the last thing done to it before noise,
        and moves by that, or by twice that when a client is replaced.

    `shifts` says that messages are rounded to multiples of 2^shift before noise (see `rounding`): each of the m
    entries that a record reaches may then move by one step more, which adds √m steps, or √(2m) for a replaced one.

    Guarantees
    ----------
    For add-remove it is attained by every record on the sphere ‖x‖ = R when the layout has neither D nor Z. The
    packed integers themselves, off-diagonals once, move by no more than this.
    """
    _refuse_words(unit, neighbours)
    bounds = record_bounds(layout, radius, sketch_norm)
    terms = {name: (bound / _scale(scales, name)) ** 2 for name, bound in bounds.items()}
    steps = _steps_squared(layout, scales, shifts)
    formula = _formula(terms, radius, is_scaled=scales is not None)
    if unit == "client":
        return _of_client(sqrt(sum(terms.values())), neighbours, formula, client_rows)
    rounding = " + √m steps of rounding" if steps else ""
    if neighbours == "add-remove":
        value = sqrt(sum(terms.values())) + sqrt(steps)
        return Sensitivity(value * (1 + SLACK), unit, neighbours, formula + rounding)
    apart = max(0.0, -_least_agreement(terms))
    value = sqrt(2 * (sum(terms.values()) + apart)) + sqrt(2 * steps)
    times = f"√2 · {formula}" if not apart else f"√(2(Δ² + {apart:.3g})), Δ = {formula}"
    return Sensitivity(value * (1 + SLACK), unit, neighbours, times + rounding)


def _of_client(single: float, neighbours: str, formula: str, client_rows: int | None) -> Sensitivity:
    if client_rows is None or client_rows < 1:
        raise PrivacyError(
            f"client_rows is {client_rows}; protecting whole clients needs the number of rows a client may contribute "
            "in full, e.g. client_rows=500. A longer vector is scaled down by clip_vector."
        )
    times = client_rows if neighbours == "add-remove" else 2 * client_rows
    return Sensitivity(times * single * (1 + SLACK), "client", neighbours, f"{times} · {formula}")


def _least_agreement(terms: Mapping[str, float]) -> float:
    """The least of ⟨φ, φ'⟩ for two records of one class, in units of t/R² ∈ [−1, 1]; D and Z only add to it."""
    n, a, second = terms["N"], terms["A"], terms.get("B", 0.0) + terms.get("S", 0.0)
    t = -1.0 if second == 0 else max(-1.0, -a / (2 * second))
    return n + a * t + second * t * t


def _steps_squared(layout: Layout, scales: Mapping[str, float] | None, shifts: Mapping[str, int] | None) -> float:
    """m steps squared: what rounding can add for the entries that one record reaches, those of its own class."""
    d, k = layout.dim, layout.sketch
    entries = {"N": 1, "A": d, "D": d, "B": d * d, "S": d * d, "Z": k * k}
    shifts = {name: shift for name, shift in (shifts or {}).items() if shift and name in layout.shapes}
    return sum(entries[name] * (2.0**shift / _scale(scales, name)) ** 2 for name, shift in shifts.items())


def _formula(terms: Mapping[str, float], radius: int, is_scaled: bool) -> str:
    if is_scaled:
        return "√(" + " + ".join(f"{term:.3g}" for term in terms.values()) + f") over {', '.join(terms)}, R = {radius}"
    words = {"N": "1²", "A": "R²", "D": "(R·min(R, bound))²", "B": "(R²)²", "S": "(R²)²", "Z": "(‖sketch‖²R²)²"}
    return "√(" + " + ".join(words[name] for name in terms) + f"), R = {radius}"


def _scale(scales: Mapping[str, float] | None, name: str) -> float:
    return 1.0 if scales is None else scales[name]


def _shortened(x: Float[np.ndarray, "n dim"], radius: int) -> Float[np.ndarray, "n dim"]:
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


def _refuse_large(q: Integer[np.ndarray, "n dim"]) -> None:
    largest = max(int(q.max(initial=0)), -int(q.min(initial=0)))
    if largest**2 * q.shape[1] > EXACT_IN_FLOAT64:
        raise PrivacyError(
            f"a row of {q.shape[1]} entries up to {largest} has squares beyond 2^53; rows come from Features.rows."
        )


def _refuse_radius(radius: int) -> None:
    if radius < 1:
        raise PrivacyError(
            f"radius is {radius}; on the grid it is a whole number of steps, at least 1: see grid_radius."
        )


def _refuse_words(unit: str, neighbours: str) -> None:
    for what, word, known in (("unit", unit, UNITS), ("neighbours", neighbours, NEIGHBOURS)):
        if word not in known:
            raise PrivacyError(f"{what} is {word!r}; write one of {', '.join(map(repr, known))}.")
