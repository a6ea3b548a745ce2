"""One kind of sum as a record, which holds its shape, bound, sensitivity and parent."""

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
    - `agreement`: (p, q, r) such that the contributions of two rows of one class have an inner product of at least
      Δ²(p + q·t + r·t²), where t ∈ [−1, 1] is x·x'/R².
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
