"""How far one record, or one client, can move the moments; no other module knows.

Lengths are measured in the coordinates in which noise is added. There a symmetric matrix counts its off-diagonal
entries twice, so that ‖x xᵀ‖ = ‖x‖² whatever the direction of x, and block b is divided by a public scale w_b::

    ‖M‖² = Σ_b ‖M_b‖² / w_b²        ‖M_b‖² = Σ_i M_ii² + 2 Σ_{i<j} M_ij²  for B, S_c and Z_c

A record x of class c with ‖x‖ ≤ R adds the vector φ = (e_c, e_c⊗x, e_c⊗x∘x, x xᵀ or e_c⊗x xᵀ, e_c⊗z zᵀ, …), where
z is its sketch. Each statistic's own record says how long its block of φ can be: Δ_N = 1, Δ_A = R,
Δ_D = R·min(R, bound), Δ_B = Δ_S = R², Δ_Z = ‖sketch‖₂² R² and so on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ghofl.features.radius import SLACK, check_radius
from ghofl.moments import Layout, Moments
from ghofl.privacy.errors import PrivacyError
from ghofl.shapes import Int
from ghofl.statistics import STATISTICS
from ghofl.statistics.triangles import diagonal

UNITS = ("record", "client", "person")
NEIGHBOURS = "add-remove"  # the relation of all bounds here: two data sets, of which one has a unit more
SUM_SLACK = 2.0**-20  # covers the rounding of a float sum over up to 2^32 entries


def clip_vector(moments: Moments, limit: float, scales: Mapping[str, float] | None = None) -> Moments:
    """A client's moments no longer than `limit`: longer ones are scaled down as a whole and rounded towards zero.

    Guarantees
    ----------
    ``length(clip_vector(moments, limit, scales), scales) <= limit``: the factor is smaller by 2⁻²⁰, which covers the
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
    """The length of moments in the coordinates in which noise is added, as in the formula at the top.

    >>> layout = Layout(classes=2, dim=2)
    >>> length(Moments.of(np.array([[3, 4]]), np.array([0]), layout)) ** 2  # 1 + R² + R⁴
    651.0
    """
    total = 0.0
    for record in moments.layout.records:
        squares = np.square(moments.blocks[record.name].astype(np.float64) / _scale(scales, record.name))
        total += float(squares.sum())
        if record.is_symmetric:
            total += float(squares.sum() - squares[..., diagonal(moments.layout.width(record))].sum())
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
    check_radius(radius)
    if layout.sketch and sketch_norm is None:
        raise PrivacyError(
            f"layout {layout} holds class moments of a sketch; pass the sketch_norm of Features.of(recipe).sketch."
        )
    norm = 1.0 if sketch_norm is None else sketch_norm
    return {record.name: record.length(float(radius), layout.bound, norm) for record in layout.records}


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The most that one record or client moves the moments, with the formula that says so.

    >>> print(sensitivity(Layout(classes=10, dim=64), radius=16))
    256.501 = √(1² + R² + (R²)²), R = 16; record, add-remove
    """

    value: float
    unit: str
    formula: str

    def __str__(self) -> str:
        return f"{self.value:.6g} = {self.formula}; {self.unit}, {NEIGHBOURS}"


def sensitivity(
    layout: Layout,
    radius: int,
    unit: str = "record",
    *,
    scales: Mapping[str, float] | None = None,
    sketch_norm: float | None = None,
    shifts: Mapping[str, int] | None = None,
    client_rows: int | None = None,
    person_rows: int | None = None,
) -> Sensitivity:
    """The L2 sensitivity of the packed integers to a unit more or less, in the coordinates in which noise is added.

    ``record``
        ‖φ‖ ≤ Δ = √(Σ_b Δ_b²/w_b²): √(1 + R² + R⁴) for (N, A, B) or (N, A, S) with scales of one.
    ``client``
        The vector is cut to the length `client_rows` · Δ by `clip_vector`, the last thing done to it before noise.
    ``person``
        At most `person_rows` rows of one person count, so the vector moves by that many times what one record moves it.

    `shifts` says that messages are rounded to multiples of 2^shift before noise (see `rounding`): each of the m
    entries that a record reaches may then move by one step more, which adds √m steps.

    Guarantees
    ----------
    It is attained by every record on the sphere ‖x‖ = R when the layout has nothing but N, A, B and S. The
    packed integers themselves, off-diagonals once, move by no more than this.
    """
    if unit not in UNITS:
        raise PrivacyError(f"unit is {unit!r}; write one of {', '.join(map(repr, UNITS))}.")
    bounds = record_bounds(layout, radius, sketch_norm)
    terms = {name: (bound / _scale(scales, name)) ** 2 for name, bound in bounds.items()}
    steps = _steps_squared(layout, scales, shifts)
    formula = _formula(terms, radius, is_scaled=scales is not None)
    if unit == "client":
        return _of_client(sqrt(sum(terms.values())), formula, client_rows)
    value = (sqrt(sum(terms.values())) + sqrt(steps)) * (1 + SLACK)
    one = Sensitivity(value, "record", formula + (" + √m steps of rounding" if steps else ""))
    return _of_person(one, person_rows, steps) if unit == "person" else one


def _of_client(single: float, formula: str, client_rows: int | None) -> Sensitivity:
    if client_rows is None or client_rows < 1:
        raise PrivacyError(
            f"client_rows is {client_rows}; to protect whole clients, give the number of full rows that a client may count "
            "as, e.g. client_rows=500. A longer vector is scaled down by clip_vector."
        )
    return Sensitivity(client_rows * single * (1 + SLACK), "client", f"{client_rows} · {formula}")


def _of_person(one: Sensitivity, person_rows: int | None, steps: float) -> Sensitivity:
    if person_rows is None or person_rows < 1 or steps:
        raise PrivacyError(
            f"person_rows is {person_rows}; to protect whole persons, give the maximum rows per person that count, e.g. "
            "person_rows=3, and no rounding."
        )
    return Sensitivity(person_rows * one.value, "person", f"{person_rows} · {one.formula}")


def _steps_squared(layout: Layout, scales: Mapping[str, float] | None, shifts: Mapping[str, int] | None) -> float:
    """The sum of squared steps over the m entries that one record reaches: what rounding can add."""
    shifted = {record: shift for record in layout.records if (shift := (shifts or {}).get(record.name))}
    return sum(
        record.entries_per_row(layout.dim, layout.sketch) * (2.0**shift / _scale(scales, record.name)) ** 2
        for record, shift in shifted.items()
    )


def _formula(terms: Mapping[str, float], radius: int, is_scaled: bool) -> str:
    if is_scaled:
        return "√(" + " + ".join(f"{term:.3g}" for term in terms.values()) + f") over {', '.join(terms)}, R = {radius}"
    return "√(" + " + ".join(STATISTICS[name].formula for name in terms) + f"), R = {radius}"


def _scale(scales: Mapping[str, float] | None, name: str) -> float:
    return 1.0 if scales is None else scales[name]
