"""Per-class sums of integer features: the only thing a site computes, and the only thing that travels.

For feature rows x with label y, over the rows of one site or of all of them, `ghofl.statistics` says what is added up.
All entries are int64 and every operation is exact, so moments of a union are the sum of the moments of its parts, to
the bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ghofl.compute import arrays
from ghofl.errors import LayoutError, MissingStatisticError, MomentsOverflowError
from ghofl.moments.builder import BlockBuilder
from ghofl.moments.layout import Layout
from ghofl.notebook import Printable
from ghofl.shapes import Int, Int64, Integer
from ghofl.statistics import INT64_MAX, STATISTICS
from ghofl.statistics.triangles import apply, unpack_triangle

HALF = 32  # bits of the two halves that a `CutSum` holds


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Moments(Printable):
    """The sums of one site, or of many: a value with `zeros`, `of`, `+`, `-` and `==`.

    Guarantees
    ----------
    ``Moments.of(union) == sum of Moments.of(parts)`` for every split and every order, and
    ``total - part + part == total``, to the bit. A sum that would overflow 64-bit integers raises
    `MomentsOverflowError`.

    Examples
    --------
    >>> layout = Layout(classes=2, dim=2, statistics=("S",))
    >>> x, y = np.array([[1, 2], [3, 4], [5, 6]]), np.array([0, 1, 1])
    >>> whole = Moments.of(x, y, layout)
    >>> whole == Moments.of(x[:1], y[:1], layout) + Moments.of(x[1:], y[1:], layout)
    True
    >>> whole.by_class(1)
    array([[34, 42], [42, 52]])
    """

    layout: Layout
    blocks: Mapping[str, Int64[np.ndarray, "..."]] = field(repr=False)

    @classmethod
    def zeros(cls, layout: Layout) -> "Moments":
        """The moments of no rows."""
        return cls(layout, {name: arrays.zeros(shape) for name, shape in layout.shapes.items()})

    @classmethod
    def of(
        cls,
        x: Integer[np.ndarray, "n dim"],
        y: Integer[np.ndarray, " n"],
        layout: Layout,
        sketch: Int[np.ndarray, "dim sketch"] | None = None,
    ) -> "Moments":
        """The moments of integer rows, as `Features.rows` gives them, and their class numbers."""
        builder = MomentsBuilder(layout, sketch)
        builder.add(x, y)
        return builder.moments()

    def __add__(self, other: "Moments") -> "Moments":
        self._check_sum(other, "add")
        return Moments(self.layout, self._combine(np.add, other))

    def __radd__(self, other: object) -> "Moments":
        return self if other == 0 else NotImplemented  # where `sum` starts

    def __sub__(self, other: "Moments") -> "Moments":
        self._check_sum(other, "subtract")
        return Moments(self.layout, self._combine(np.subtract, other))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Moments):
            return NotImplemented
        return self.layout == other.layout and all(
            np.array_equal(a, b)
            for name, block in self.blocks.items()
            for a, b in arrays.pieces(block, other.blocks[name])
        )

    __hash__ = None  # type: ignore[assignment]  # it holds arrays; `sha256` identifies a value

    def _facts(self) -> dict[str, object]:
        blocks = " ".join(self.layout.shapes)
        return {"rows": f"{self.rows:,}", "classes": self.layout.classes, "features": self.layout.dim, "holds": blocks}

    @property
    def sha256(self) -> str:
        """The sha256 over the layout and every entry as little-endian int64, in hexadecimal."""
        digest = self.layout.digest()
        for block in self.blocks.values():
            for (some,) in arrays.pieces(block):
                digest.update(np.ascontiguousarray(some, dtype="<i8").data)
        return digest.hexdigest()

    @property
    def rows(self) -> int:
        """How many rows were added up."""
        return int(self.counts.sum())

    @property
    def counts(self) -> Int64[np.ndarray, " classes"]:
        """N: the number of rows per class."""
        return self.blocks["N"]

    @property
    def sums(self) -> Int64[np.ndarray, "classes dim"]:
        """A: the sum of the rows per class."""
        return self.blocks["A"]

    @property
    def squares(self) -> Int64[np.ndarray, "classes dim"]:
        """D: the sum of squared entries per class, stored or read off the diagonal of S."""
        return self.block("D")

    def pooled(self) -> Int64[np.ndarray, "dim dim"]:
        """B as a full matrix, stored or summed from S over classes."""
        return unpack_triangle(self.block("B"), self.layout.dim)

    def by_class(self, c: int) -> Int64[np.ndarray, "dim dim"]:
        """S_c as a full matrix."""
        return unpack_triangle(self.block("S")[c], self.layout.dim)

    def block(self, statistic: str, sketch: Int[np.ndarray, "dim sketch"] | None = None) -> Int64[np.ndarray, "..."]:
        """The entries of a statistic as they are stored, or as they follow from its parent."""
        self.check_has(statistic)
        record, source = STATISTICS[statistic], self.layout.source(statistic)
        if source == statistic:
            return self.blocks[statistic]
        assert record.derive is not None, "a statistic with a parent has a way to derive it"
        return record.derive(self.blocks[source], self.layout.dim, sketch)

    def of_sketch(self, sketch: Int[np.ndarray, "dim sketch"]) -> "Moments":
        """The moments (N, A, S) of the sketch z = Rᵀx: sums follow from A; second moments are Z, or follow from S."""
        self.check_has("Z")
        layout = Layout(self.layout.classes, sketch.shape[1], ("S",), bound=self.layout.bound * self.layout.dim)
        sums = np.ascontiguousarray(apply(self.sums, sketch.astype(np.int64)))
        return Moments(layout, {"N": self.counts, "A": sums, "S": self.block("Z", sketch)})

    def restrict(self, layout: Layout, sketch: Int[np.ndarray, "dim sketch"] | None = None) -> "Moments":
        """The same sums with only the statistics of a coarser layout, as if only those had been collected."""
        if replace(layout, statistics=self.layout.statistics, sketch=self.layout.sketch) != self.layout:
            raise LayoutError(
                f"moments of layout {self.layout} do not hold those of layout {layout}; ask for fewer statistics."
            )
        is_given = sketch is not None and sketch.shape[1] == layout.sketch
        if layout.sketch and not is_given:
            self.check_has("Z")
            raise LayoutError(
                f"layout {layout} needs its sketch matrix, {layout.dim} × {layout.sketch}; give Features.of(recipe).sketch."
            )
        return Moments(layout, {name: self.block(name, sketch) for name in layout.shapes})

    def check_has(self, statistic: str) -> None:
        """Raise `MissingStatisticError` unless the statistic is there or can be derived."""
        if not self.layout.has(statistic):
            raise MissingStatisticError(
                f"statistic {statistic} is not in these moments, which hold {', '.join(self.layout.shapes)}; a recipe "
                f"with {STATISTICS[statistic].recipe_entry} has it. Sites must send again: it cannot be computed from the others."
            )

    def _combine(self, work: np.ufunc, other: "Moments") -> dict[str, np.ndarray]:
        return {name: arrays.map_entries(work, block, other.blocks[name]) for name, block in self.blocks.items()}

    def _check_sum(self, other: "Moments", verb: str) -> None:
        if self.layout != other.layout:
            raise LayoutError(
                f"cannot {verb} moments of layout {self.layout} and {other.layout}; "
                "all sites of one federation use one recipe."
            )
        for name, a in self.blocks.items():
            reach = _largest(a) + _largest(other.blocks[name])
            if reach > INT64_MAX:
                raise MomentsOverflowError(
                    f"cannot {verb} moments: an entry of {name} could reach {reach}, beyond the 64-bit integers; "
                    "use fewer grid bits."
                )


class MomentsBuilder:
    """Builds the moments of rows that arrive in pieces.

    For second moments, rows wait in a buffer and are then multiplied in panels of columns, one product per class.
    Whatever the number of rows, memory stays within 1.5 × that of the statistics, plus 16 MiB. Statistics that are too
    large for memory lie in a temporary file (`ghofl.compute.arrays`).

    >>> layout = Layout(classes=2, dim=2)
    >>> builder = MomentsBuilder(layout)
    >>> builder.add(np.array([[1, 2]]), np.array([0]))
    >>> builder.add(np.array([[3, 4]]), np.array([1]))
    >>> builder.moments().counts
    array([1, 1])
    """

    def __init__(self, layout: Layout, sketch: Int[np.ndarray, "dim sketch"] | None = None) -> None:
        self.layout = layout
        self._blocks = BlockBuilder(layout, sketch)

    def add(self, x: Integer[np.ndarray, "n dim"], y: Integer[np.ndarray, " n"]) -> None:
        """Add rows and their class numbers. Nothing is added when any of them is refused."""
        self._blocks.add(x, y)

    def moments(self) -> Moments:
        """The moments of all rows. Sums are not copied, so the builder cannot be used again."""
        return Moments(self.layout, self._blocks.finish())


class CutSum:
    """Adds moments up without ever refusing: a sum beyond the 64-bit integers stays at their end, ±(2⁶³ − 1).

    For moments under an epsilon, where refusing would be an answer about the number of rows. Entries are held as two halves
    of 32 bits, so that up to 2³¹ moments are added exactly before anything is cut.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._high = {name: arrays.zeros(shape) for name, shape in layout.shapes.items()}
        self._low = {name: arrays.zeros(shape) for name, shape in layout.shapes.items()}

    def add(self, moments: Moments) -> None:
        """Add moments of the same layout."""
        for name, block in moments.blocks.items():
            self._high[name] += block >> HALF
            self._low[name] += block & (2**HALF - 1)

    def moments(self) -> Moments:
        """The sum of all moments, cut where it leaves the 64-bit integers."""
        return Moments(self.layout, {name: self._cut(name) for name in self._high})

    def _cut(self, name: str) -> Int64[np.ndarray, "..."]:
        high, low = self._high[name] + (self._low[name] >> HALF), self._low[name] & (2**HALF - 1)
        is_inside = (high >= -(2 ** (HALF - 1))) & (high < 2 ** (HALF - 1))
        whole = np.where(is_inside, (high << HALF) | low, np.where(high < 0, -INT64_MAX, INT64_MAX))
        return np.maximum(whole, -INT64_MAX)


class CutBuilder:
    """Builds moments as `MomentsBuilder` does, of any number of rows: sums are cut as in `CutSum` and never refused."""

    def __init__(self, layout: Layout, sketch: Int[np.ndarray, "dim sketch"] | None = None) -> None:
        self._start = lambda: MomentsBuilder(layout, sketch)
        self._room, self._rows, self._builder = INT64_MAX // layout.largest, 0, self._start()
        self._sum: CutSum | None = None

    def add(self, x: Integer[np.ndarray, "n dim"], y: Integer[np.ndarray, " n"]) -> None:
        """Add rows and their class numbers."""
        for start in range(0, len(y), self._room):
            some = y[start : start + self._room]
            if self._rows + len(some) > self._room:
                self._flush()
            self._builder.add(x[start : start + self._room], some)
            self._rows += len(some)

    def moments(self) -> Moments:
        """The moments of all rows; the builder cannot be used again."""
        if self._sum is None:
            return self._builder.moments()
        self._flush()
        return self._sum.moments()

    def _flush(self) -> None:
        full, self._builder, self._rows = self._builder.moments(), self._start(), 0
        self._sum = self._sum or CutSum(full.layout)
        self._sum.add(full)


def _largest(block: Int64[np.ndarray, "..."]) -> int:
    return max(max(int(a.max(initial=0)), -int(a.min(initial=0))) for (a,) in arrays.pieces(block))
