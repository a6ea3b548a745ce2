"""Counts, sums and second moments: the statistics that heads are built from.

::

    N_c = #{y = c}      A_c = Σ_{y=c} x      D_c = Σ_{y=c} x∘x      B = Σ x xᵀ      S_c = Σ_{y=c} x xᵀ      Z_c = Rᵀ S_c R

B is the sum of S over classes, D its diagonal and Z its sketch, so that all three follow from S.
"""

from dataclasses import replace

import numpy as np

from ghofl.compute.arrays import pieces
from ghofl.statistics.statistic import Block, Rows, Statistic
from ghofl.statistics.triangles import add_products, diagonal, sketch_triangle, triangle_size


def _add_counts(rows: Rows, out: Block) -> None:
    out[()] += len(rows)  # far quicker than `out += …` on an array without dimensions


def _add_sums(rows: Rows, out: Block) -> None:
    out += rows.sum(axis=0, dtype=np.int64)


def _add_squares(rows: Rows, out: Block) -> None:
    out += np.einsum("ij,ij->j", rows, rows, dtype=np.int64)


def _diagonals(by_class: Block, dim: int, sketch: np.ndarray | None) -> Block:
    return np.concatenate([some[:, diagonal(dim)] for (some,) in pieces(by_class)])


def _over_classes(by_class: Block, dim: int, sketch: np.ndarray | None) -> Block:
    out = np.zeros(by_class.shape[1:], dtype=np.int64)
    for (some,) in pieces(by_class):
        out += some.sum(axis=0)
    return out


# Shares of the privacy budget were chosen for LDA (docs/privacy.md, "Sharing the budget"): means are divided by the rows
# of one class, B by all rows.
COUNTS = Statistic(
    name="N",
    noun="counts",
    power=0,
    of_class=lambda dim: (),
    add=_add_counts,
    length=lambda r, bound, norm: 1.0,
    formula="1²",
    share=1.0,
    agreement=(1.0, 0.0, 0.0),
    is_unsigned=True,
)
SUMS = Statistic(
    name="A",
    noun="sums",
    power=1,
    of_class=lambda dim: (dim,),
    add=_add_sums,
    length=lambda r, bound, norm: r,
    formula="R²",
    share=6.0,
    agreement=(0.0, 1.0, 0.0),
)
SQUARES = Statistic(
    name="D",
    noun="squares",
    power=2,
    of_class=lambda dim: (dim,),
    add=_add_squares,
    # Σ x_i⁴ ≤ max x_i² · Σ x_i², and no feature is beyond the grid's own bound.
    length=lambda r, bound, norm: r * min(r, bound),
    formula="(R·min(R, bound))²",
    share=3.0,
    is_unsigned=True,
    is_rounded=True,
    parent="S",
    derive=_diagonals,
    above=(("A", "N"),),
)
BY_CLASS = Statistic(
    name="S",
    noun="second moments",
    power=2,
    of_class=lambda dim: (triangle_size(dim),),
    add=add_products,
    length=lambda r, bound, norm: r * r,
    formula="(R²)²",
    share=3.0,
    agreement=(0.0, 0.0, 1.0),
    is_symmetric=True,
    is_rounded=True,
    is_deferred=True,
)
POOLED = replace(
    BY_CLASS,
    name="B",
    is_per_class=False,
    parent="S",
    derive=_over_classes,
)
OF_SKETCH = replace(
    BY_CLASS,
    name="Z",
    length=lambda r, bound, norm: norm**2 * r * r,
    formula="(‖sketch‖²R²)²",
    agreement=(0.0, 0.0, 0.0),  # (z·z')² is at least 0, whatever t is
    is_sketched=True,
    parent="S",
    derive=sketch_triangle,
)
STANDARD = (COUNTS, SUMS, SQUARES, POOLED, BY_CLASS, OF_SKETCH)
