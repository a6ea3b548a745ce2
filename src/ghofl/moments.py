"""Per-class sums of integer features: the only thing a site computes, and the only thing that travels.

For feature rows x with label y, over the rows of one site or of all of them::

    N_c = #{y = c}      A_c = Σ_{y=c} x      D_c = Σ_{y=c} x∘x      B = Σ x xᵀ      S_c = Σ_{y=c} x xᵀ

and Z_c, the S_c of a sketch z = Rᵀx. Symmetric matrices are kept as their upper triangle, row by row. All entries
are int64 and every operation is exact, so moments of a union are the sum of the moments of its parts, to the bit.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Int, Int64, Integer

from ghofl.errors import EmbeddingsError, LayoutError, MissingStatisticError, MomentsOverflowError
from ghofl.features import exact_product
from ghofl.recipe import Recipe, stored
from ghofl.triangles import EXACT_IN_FLOAT64, add_products, apply, diagonal, is_leading, packed, triangle, unpacked

INT64_MAX = 2**63 - 1
SMALLEST_BUFFER = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Layout:
    """Which statistics are inside some moments, of how many classes and dimensions, and how large a feature can be.

    >>> Layout(classes=10, dim=256, statistics=("N", "A", "B")).entries
    35466
    """

    classes: int
    dim: int
    statistics: tuple[str, ...] = ("N", "A", "B")
    sketch: int = 0
    bound: int = 127

    def __post_init__(self) -> None:
        object.__setattr__(self, "statistics", stored(self.statistics))

    @classmethod
    def of(cls, recipe: Recipe) -> "Layout":
        """The layout that every site of this recipe fills."""
        sketch = 0 if recipe.sketch is None or "S" in recipe.statistics else recipe.sketch.dim
        return cls(len(recipe.classes), recipe.dim, recipe.statistics, sketch, recipe.grid.bound)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every stored block, in the order they are hashed and sent."""
        c, d = self.classes, self.dim
        every = {"N": (c,), "A": (c, d), "D": (c, d), "B": (triangle(d),), "S": (c, triangle(d))}
        shapes = {name: every[name] for name in self.statistics}
        return shapes | {"Z": (c, triangle(self.sketch))} if self.sketch else shapes

    @property
    def entries(self) -> int:
        """The number of integers in all blocks."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def digest(self) -> Any:
        """A sha256 that has seen the layout, and waits for every entry as little-endian int64."""
        return hashlib.sha256(json.dumps([str(self), *self.shapes]).encode())

    def has(self, statistic: str) -> bool:
        """Whether a statistic is stored or can be derived: B, D and any sketch follow from S."""
        return statistic in self.shapes or (statistic in "BDZ" and "S" in self.shapes)

    def __str__(self) -> str:
        blocks = ",".join(self.shapes)
        sketch = f", sketch={self.sketch}" if self.sketch else ""
        return f"(classes={self.classes}, dim={self.dim}, {blocks}{sketch}, bound={self.bound})"


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """The sums of one site, or of many: a value with `zeros`, `of`, `+`, `-` and `==`.

    Guarantees
    ----------
    ``Moments.of(union) == sum of Moments.of(parts)`` for every split and every order, and
    ``total - part + part == total``, to the bit. A sum that would leave the 64-bit integers raises
    `MomentsOverflowError` and gives nothing.

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
        return cls(layout, {name: np.zeros(shape, dtype=np.int64) for name, shape in layout.shapes.items()})

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
        self._refuse(other, "add")
        return Moments(self.layout, {name: a + other.blocks[name] for name, a in self.blocks.items()})

    def __sub__(self, other: "Moments") -> "Moments":
        self._refuse(other, "subtract")
        return Moments(self.layout, {name: a - other.blocks[name] for name, a in self.blocks.items()})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Moments):
            return NotImplemented
        return self.layout == other.layout and all(
            np.array_equal(a, other.blocks[name]) for name, a in self.blocks.items()
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside; `sha256` is the name of a value

    @property
    def sha256(self) -> str:
        """The sha256 over the layout and every entry as little-endian int64, in hexadecimal."""
        digest = self.layout.digest()
        for block in self.blocks.values():
            digest.update(np.ascontiguousarray(block, dtype="<i8").data)
        return digest.hexdigest()

    @property
    def rows(self) -> int:
        """How many rows were added up."""
        return int(self.counts.sum())

    @property
    def counts(self) -> Int64[np.ndarray, " classes"]:
        """N: the rows of each class."""
        return self.blocks["N"]

    @property
    def sums(self) -> Int64[np.ndarray, "classes dim"]:
        """A: the sum of the rows of each class."""
        return self.blocks["A"]

    @property
    def squares(self) -> Int64[np.ndarray, "classes dim"]:
        """D: the sum of squared entries of each class, stored or read off the diagonal of S."""
        self.require("D")
        return self.blocks["D"] if "D" in self.blocks else self.blocks["S"][:, diagonal(self.layout.dim)]

    def pooled(self) -> Int64[np.ndarray, "dim dim"]:
        """B as a full matrix, stored or summed from S over classes."""
        self.require("B")
        packed = self.blocks["B"] if "B" in self.blocks else self.blocks["S"].sum(axis=0)
        return unpacked(packed, self.layout.dim)

    def by_class(self, c: int) -> Int64[np.ndarray, "dim dim"]:
        """S_c as a full matrix."""
        self.require("S")
        return unpacked(self.blocks["S"][c], self.layout.dim)

    def of_sketch(self, sketch: Int[np.ndarray, "dim sketch"]) -> "Moments":
        """The moments (N, A, S) of the sketch z = Rᵀx: sums follow from A; second moments are Z, or follow from S."""
        self.require("Z")
        layout = Layout(self.layout.classes, sketch.shape[1], ("S",), bound=self.layout.bound * self.layout.dim)
        sums = np.ascontiguousarray(apply(self.sums, sketch.astype(np.int64)))
        return Moments(layout, {"N": self.counts, "A": sums, "S": self._sketched(sketch)})

    def restricted(self, layout: Layout, sketch: Int[np.ndarray, "dim sketch"] | None = None) -> "Moments":
        """The same sums with only the statistics of a coarser layout, as if only those had been collected."""
        if replace(layout, statistics=self.layout.statistics, sketch=self.layout.sketch) != self.layout:
            raise LayoutError(f"moments of layout {self.layout} do not hold those of layout {layout}.")
        blocks = {name: self._block(name) for name in layout.statistics}
        if layout.sketch:
            self.require("Z")
            if sketch is None or sketch.shape[1] != layout.sketch:
                raise LayoutError(f"layout {layout} needs its sketch matrix, {layout.dim} × {layout.sketch}.")
            blocks["Z"] = self._sketched(sketch)
        return Moments(layout, blocks)

    def require(self, statistic: str) -> None:
        """Raise `MissingStatisticError` unless the statistic is there or can be derived."""
        if not self.layout.has(statistic):
            wish = "a [sketch] section" if statistic == "Z" else f"statistics = ['{statistic}']"
            raise MissingStatisticError(
                f"statistic {statistic} is not in these moments, which hold {', '.join(self.layout.shapes)}; "
                f"a recipe with {wish} has it. Sites must send again: it cannot be computed from the others."
            )

    def _sketched(self, sketch: Int[np.ndarray, "dim sketch"]) -> Int64[np.ndarray, "classes triangle"]:
        if "Z" in self.blocks:
            return self.blocks["Z"]
        out = np.zeros((self.layout.classes, triangle(sketch.shape[1])), dtype=np.int64)
        for c in np.flatnonzero(self.counts):
            s = self.by_class(int(c))
            exact = float(np.abs(s).sum(dtype=np.float64)) * float(np.abs(sketch).max()) ** 2 < EXACT_IN_FLOAT64
            dtype = np.float64 if exact else np.int64
            out[c] = packed((sketch.T.astype(dtype) @ s.astype(dtype) @ sketch.astype(dtype)).astype(np.int64))
        return out

    def _block(self, name: str) -> Int64[np.ndarray, "..."]:
        if name in self.blocks:
            return self.blocks[name]
        self.require(name)
        return self.squares if name == "D" else self.blocks["S"].sum(axis=0)

    def _refuse(self, other: "Moments", verb: str) -> None:
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
    """Moments of rows that arrive in pieces: buffers them by class and does one product per class.

    Rows wait as small integers until they take a sixteenth of the memory of the statistics (a quarter when there is
    one matrix a class), or 4 MiB, and are then multiplied out in panels of columns. Whatever the number of rows,
    memory stays within 1.5 × the statistics, plus 16 MiB that small layouts notice.

    >>> layout = Layout(classes=2, dim=2)
    >>> builder = MomentsBuilder(layout)
    >>> builder.add(np.array([[1, 2]]), np.array([0]))
    >>> builder.add(np.array([[3, 4]]), np.array([1]))
    >>> builder.moments().counts
    array([1, 1])
    """

    def __init__(self, layout: Layout, sketch: Int[np.ndarray, "dim sketch"] | None = None) -> None:
        if (0 if sketch is None else sketch.shape[1]) != layout.sketch:
            raise LayoutError(
                f"layout {layout} needs the sketch matrix of its recipe, {layout.dim} × {layout.sketch}; "
                f"got {'none' if sketch is None else sketch.shape}. Features.of(recipe).sketch is the one."
            )
        self.layout = layout
        self._sketch = sketch
        self._blocks = dict(Moments.zeros(layout).blocks)
        self._buffers: dict[int, list[np.ndarray]] = {}
        self._buffered = 0
        self._closed = False
        self._budget = max(SMALLEST_BUFFER, 8 * layout.entries // (4 if "S" in self._blocks else 16))

    def add(self, x: Integer[np.ndarray, "n dim"], y: Integer[np.ndarray, " n"]) -> None:
        """Add rows and their class numbers. Nothing is added when any of them is refused."""
        if self._closed:
            raise LayoutError("this builder has given its moments away; start another and add the two results.")
        y = self._checked(x, y)
        rows = int(self._blocks["N"].sum()) + len(y)
        self._refuse_rows_that_could_overflow(rows)
        small = x.astype(np.int16 if self.layout.bound < 2**15 else np.int32, copy=False)
        step = max(1, self._budget // max(1, 2 * small.shape[1] * small.itemsize))
        for start in range(0, len(y), step):
            self._buffer(small[start : start + step], y[start : start + step])

    def moments(self) -> Moments:
        """The moments of all rows. This ends the builder: its sums are handed over, not copied."""
        self._flush()
        self._closed = True
        return Moments(self.layout, self._blocks)

    def _buffer(self, x: np.ndarray, y: np.ndarray) -> None:
        by_class = "S" in self._blocks or "Z" in self._blocks
        for c, rows in _by_label(x, y):
            self._blocks["N"][c] += len(rows)
            self._blocks["A"][c] += rows.sum(axis=0, dtype=np.int64)
            if "D" in self._blocks:
                self._blocks["D"][c] += np.einsum("ij,ij->j", rows, rows, dtype=np.int64)
            if by_class or "B" in self._blocks:
                self._buffers.setdefault(c, []).append(rows)
                self._buffered += rows.nbytes
        if self._buffered >= self._budget:
            self._flush()

    def _flush(self) -> None:
        if "B" in self._blocks and self._buffers:
            add_products(
                np.concatenate([rows for parts in self._buffers.values() for rows in parts]), self._blocks["B"]
            )
        for c, parts in self._buffers.items():
            if "S" in self._blocks:
                add_products(np.concatenate(parts), self._blocks["S"][c])
            if self._sketch is not None:
                rows = np.concatenate(parts)
                if not is_leading(self._sketch):
                    rows = exact_product(rows, self._sketch, self.layout.bound * self.layout.dim).astype(np.int64)
                add_products(rows[:, : self.layout.sketch], self._blocks["Z"][c])
        self._buffers, self._buffered = {}, 0

    def _checked(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if x.dtype.kind not in "iu":
            raise EmbeddingsError(
                f"feature rows are {x.dtype} and moments add integers; Features.of(recipe).rows(embeddings) makes them."
            )
        if y.dtype.kind not in "iu":
            raise EmbeddingsError(
                f"labels are {y.dtype} and moments need class numbers, integers from 0 to {self.layout.classes - 1}."
            )
        if x.shape[1] != self.layout.dim:
            raise EmbeddingsError(f"feature rows have {x.shape[1]} entries and the layout has dim={self.layout.dim}.")
        if len(x) != len(y):
            raise EmbeddingsError(f"{len(x)} rows came with {len(y)} labels; every row needs one.")
        if len(y) and not (y.min() >= 0 and y.max() < self.layout.classes):
            bad = y.min() if y.min() < 0 else y.max()
            raise EmbeddingsError(
                f"label {bad} is not a class number; the recipe's {self.layout.classes} classes are 0 to "
                f"{self.layout.classes - 1}."
            )
        if x.size and max(int(x.max()), -int(x.min())) > self.layout.bound:
            raise EmbeddingsError(
                f"a feature of {max(int(x.max()), -int(x.min()))} is beyond the layout's bound of {self.layout.bound}; "
                "features come from Features.of(recipe).rows."
            )
        return y.astype(np.int64, copy=False)

    def _refuse_rows_that_could_overflow(self, rows: int) -> None:
        largest = max(self.layout.bound, self.layout.bound * self.layout.dim if self.layout.sketch else 0)
        if rows * largest**2 > INT64_MAX:
            raise MomentsOverflowError(
                f"{rows} rows with entries up to {largest} could leave the 64-bit integers; use fewer grid bits."
            )


def _by_label(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    order = np.argsort(y, kind="stable")
    present, starts = np.unique(y[order], return_index=True)
    ends = [*starts[1:], len(y)]
    for c, start, end in zip(present, starts, ends, strict=True):
        yield int(c), x[order[start:end]]


def _largest(block: Int64[np.ndarray, "..."]) -> int:
    return max(int(block.max(initial=0)), -int(block.min(initial=0)))
