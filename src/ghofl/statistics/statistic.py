"""What one kind of sum is, in one record: whoever needs its shape, bound, sensitivity or parent asks the record."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from ghofl.shapes import Int, Int64, Integer

Rows = Integer[np.ndarray, "n dim"]
Block = Int64[np.ndarray, "..."]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistic:
    """A sum over rows x, per class or over all of them, whose entries are products of `power` features of a row.

    Everything that treats statistics alike (layouts, the builder, messages, sensitivity, noise, minimum counts,
    plausibility, repair, estimates of size) reads these fields. In them, R is the longest a row can be, β the largest a
    feature can be and ‖sketch‖ the largest singular value of the sketch matrix, or 1.

    - `name`: what recipes and messages call it.
    - `noun`: what its entries are, in the plural, for error messages.
    - `power`: how many features are multiplied in an entry; one row adds at most β^power to it.
    - `of_class`: the shape of what one class has, or the whole where there is no class, from the number of features.
    - `add`: adds rows to such a part, exactly; with `is_deferred` it is called for many rows at a time.
    - `length`: Δ, no row's contribution is longer, from R, β and ‖sketch‖; `formula` writes Δ² down.
    - `share`: its part of the privacy budget, beside those of the others.
    - `agreement`: (p, q, r) such that the contributions of two rows of one class have an inner product of at least
      Δ²(p + q·t + r·t²), where t ∈ [−1, 1] is x·x'/R².
    - `is_per_class`: whether each class has its own, so that a minimum count can take the class out.
    - `is_symmetric`: whether it is the packed upper triangle of second moments Σ x xᵀ.
    - `is_sketched`: whether it is of the sketch z = Rᵀx instead of x; it is there when the recipe has a sketch.
    - `is_unsigned`: whether no entry can be negative.
    - `is_rounded`: whether privacy.rounding leaves low bits out.
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
    agreement: tuple[float, float, float] = (0.0, 0.0, 0.0)
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
        """How many features it is about."""
        return sketch if self.is_sketched else dim

    def shape(self, classes: int, dim: int, sketch: int) -> tuple[int, ...]:
        """The shape of its block."""
        part = self.of_class(self.width(dim, sketch))
        return (classes, *part) if self.is_per_class else part

    def largest(self, bound: int, dim: int) -> int:
        """The largest entry that one row can add; the features of a sketch are sums of `dim` others."""
        return (bound * dim if self.is_sketched else bound) ** self.power

    def reached(self, dim: int, sketch: int) -> int:
        """How many entries one row adds to, those beside the diagonal of a symmetric matrix counted twice."""
        width = self.width(dim, sketch)
        return width * width if self.is_symmetric else prod(self.of_class(width))

    @property
    def wish(self) -> str:
        """What a recipe says to have it."""
        return "a [sketch] section" if self.is_sketched else f"statistics = ['{self.name}']"
