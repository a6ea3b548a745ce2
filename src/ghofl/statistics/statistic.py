"""Kinds of sums that sites can send, one record each: its shape, bound, sensitivity and parent.

Heads are built from counts, sums and second moments::

    N_c = #{y = c}      A_c = Σ_{y=c} x      D_c = Σ_{y=c} x∘x      B = Σ x xᵀ      S_c = Σ_{y=c} x xᵀ      Z_c = Rᵀ S_c R

B is the sum of S over classes, D its diagonal and Z its sketch, so that all three follow from S.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from ghofl.compute.arrays import pieces
from ghofl.errors import RecipeError
from ghofl.shapes import Int, Int64, Integer
from ghofl.statistics.triangles import add_products, diagonal, sketch_triangle, triangle_size

INT64_MAX = 2**63 - 1
Rows = Integer[np.ndarray, "n dim"]
Block = Int64[np.ndarray, "..."]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistic:
    """A sum over rows x, per class or over all of them, whose entries are products of `power` features of a row.

    Everything that treats statistics alike (layouts, the builder, messages, sensitivity, noise, minimum counts,
    plausibility, repair, estimates of size) reads these fields. In them, R is the largest length of a row, β the
    largest absolute value of a feature and ‖sketch‖ the largest singular value of the sketch
    matrix, or 1.

    - `name`: its name in recipes and messages.
    - `noun`: what its entries are, in the plural, for error messages.
    - `power`: how many features are multiplied in an entry; one row adds at most β^power to it.
    - `of_class`: the shape of one class's part, or of the whole block where it is not per class, from the number of features.
    - `add`: adds rows to such a part, exactly; with `is_deferred` it is called for many rows at a time.
    - `length`: Δ, the largest length of one row's contribution, from R, β and ‖sketch‖; `formula` is Δ² as text.
    - `share`: its part of the privacy budget, relative to the shares of the other statistics.
    - `is_per_class`: whether each class has its own part, so that a minimum count can remove a small class.
    - `is_symmetric`: whether it is the packed upper triangle of second moments Σ x xᵀ.
    - `is_sketched`: whether it sums the sketch z = Rᵀx instead of x; it is sent when the recipe has a sketch.
    - `is_unsigned`: whether no entry can be negative.
    - `is_rounded`: whether privacy.rounding drops its low bits.
    - `is_deferred`: whether rows wait for one product per class, which is quicker than adding them as they come.
    - `parent`, `derive`: the statistic it follows from, and how: from the parent's block, the number of features and the
      sketch matrix.
    - `above`: pairs (small, other) with small² ≤ other · this in every entry, whatever the rows (Cauchy–Schwarz).
    """

    name: str
    noun: str
    power: int
    of_class: Callable[[int], tuple[int, ...]]
    add: Callable[[Rows, Block], None]
    length: Callable[[float, float, float], float]
    formula: str
    share: float
    is_per_class: bool = True
    is_symmetric: bool = False
    is_sketched: bool = False
    is_unsigned: bool = False
    is_rounded: bool = False
    is_deferred: bool = False
    parent: str = ""
    derive: Callable[[Block, int, Int[np.ndarray, "dim sketch"] | None], Block] | None = None
    above: tuple[tuple[str, str], ...] = ()

    def width(self, dim: int, sketch: int) -> int:
        """The number of features that it sums: those of a row, or of its sketch."""
        return sketch if self.is_sketched else dim

    def shape(self, classes: int, dim: int, sketch: int) -> tuple[int, ...]:
        """The shape of its block."""
        part = self.of_class(self.width(dim, sketch))
        return (classes, *part) if self.is_per_class else part

    def largest(self, bound: int, dim: int) -> int:
        """The largest entry that one row can add; the features of a sketch are sums of `dim` others."""
        return (bound * dim if self.is_sketched else bound) ** self.power

    def entries_per_row(self, dim: int, sketch: int) -> int:
        """How many entries one row adds to; a symmetric matrix counts those off its diagonal twice."""
        width = self.width(dim, sketch)
        return width * width if self.is_symmetric else prod(self.of_class(width))

    @property
    def recipe_entry(self) -> str:
        """What to write in a recipe so that sites send it."""
        return "a [sketch] section" if self.is_sketched else f"statistics = ['{self.name}']"


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
    is_sketched=True,
    parent="S",
    derive=sketch_triangle,
)
# By name, in the order in which they are hashed and sent.
STATISTICS: dict[str, Statistic] = {
    record.name: record for record in (COUNTS, SUMS, SQUARES, POOLED, BY_CLASS, OF_SKETCH)
}


def statistics_to_store(statistics: Sequence[str]) -> tuple[str, ...]:
    """The statistics to store so that all of `statistics` can be derived, in the order of `STATISTICS`.

    >>> statistics_to_store(["S", "B"])
    ('N', 'A', 'S')
    """
    return _statistics_to_store(tuple(statistics))


@lru_cache(maxsize=64)
def _statistics_to_store(statistics: tuple[str, ...]) -> tuple[str, ...]:
    asked = {"N", "A", *statistics}
    listed = {name: record for name, record in STATISTICS.items() if not record.is_sketched}
    unknown = sorted(asked - listed.keys())
    if unknown:
        sketched = " and ".join(name for name in unknown if name in STATISTICS)
        end = f"; class moments of a sketch ({sketched}) come with a [sketch] section." if sketched else "."
        raise RecipeError(f"statistics lists {unknown}; known are {', '.join(listed)}{end}")
    return tuple(name for name, record in listed.items() if name in asked and record.parent not in asked)
