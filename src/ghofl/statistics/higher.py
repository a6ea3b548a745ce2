"""Third and fourth powers of features, summed per class: what skewness and kurtosis need in addition to N, A and D.

::

    D3_c = Σ_{y=c} x∘x∘x        D4_c = Σ_{y=c} x∘x∘x∘x

A row no longer than R with entries within ±β adds a vector of length √Σ x_i^2p ≤ max|x_i|^(p−1) · ‖x‖, at most
R·min(R, β)^(p−1), which a row along one axis attains. The cubes of two rows can
point in opposite directions; their fourth powers cannot.
By Cauchy–Schwarz (Σx²)² ≤ N Σx⁴ and (Σx³)² ≤ Σx² Σx⁴. They are not rounded: central moments are small differences of
large sums. `ghofl.moments.skewness` and `excess_kurtosis` read them.
"""

import numpy as np

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
    agreement=(-1.0, 0.0, 0.0),
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
HIGHER = (CUBES, FOURTH_POWERS)
