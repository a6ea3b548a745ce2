"""Rows that arrive in pieces, added up into the blocks of a layout."""

from collections.abc import Iterator

import numpy as np

from ghofl.compute import arrays
from ghofl.compute.threads import parallel_for
from ghofl.errors import EmbeddingsError, LayoutError, MomentsOverflowError
from ghofl.features import exact_product
from ghofl.moments.layout import Layout
from ghofl.shapes import Int, Int64, Integer
from ghofl.statistics import INT64_MAX, Statistic
from ghofl.statistics.triangles import is_leading

SMALLEST_BUFFER = 8 * 2**20


class BlockBuilder:
    """Builds the blocks of rows that arrive in pieces; a statistic adds rows as they come, or many at a time per class.

    Rows that wait are kept as small integers, until they take a sixteenth of the memory of the statistics (a quarter
    where there is one matrix per class), at most a quarter of what an array may take, and at least 8 MiB.
    """

    def __init__(self, layout: Layout, sketch: Int[np.ndarray, "dim sketch"] | None = None) -> None:
        if (0 if sketch is None else sketch.shape[1]) != layout.sketch:
            raise LayoutError(
                f"layout {layout} needs the sketch matrix of its recipe, {layout.dim} × {layout.sketch}; "
                f"got {'none' if sketch is None else sketch.shape}. Give Features.of(recipe).sketch."
            )
        self.layout = layout
        self._sketch = sketch
        self._blocks = {name: arrays.zeros(shape) for name, shape in layout.shapes.items()}
        self._room = INT64_MAX // layout.largest
        self._immediate = [(record, self._blocks[record.name]) for record in layout.records if not record.is_deferred]
        assert all(record.is_per_class for record, _ in self._immediate), (
            "threads add to different classes at the same time"
        )
        self._deferred = [record for record in layout.records if record.is_deferred]
        self._buffers: dict[int, list[np.ndarray]] = {}
        self._buffered = 0
        self._is_finished = False
        has_matrices = any(record.is_per_class and not record.is_sketched for record in self._deferred)
        # With fewer bits more rows can wait, so that matrices in a file are read and written less often.
        self._kind = np.int8 if layout.bound < 2**7 and has_matrices else np.int16 if layout.bound < 2**15 else np.int32
        wanted = 8 * layout.entries // (4 if has_matrices else 16)
        self._budget = max(SMALLEST_BUFFER, min(wanted, arrays.limit() // 4))

    def add(self, x: Integer[np.ndarray, "n dim"], y: Integer[np.ndarray, " n"]) -> None:
        """Add rows and their class numbers. Nothing is added when any of them is refused."""
        if self._is_finished:
            raise LayoutError("this builder is finished; start another one, and add the two moments.")
        check_rows(x, y, self.layout)
        self._check_room(int(self._blocks["N"].sum()) + len(y))
        y = y.astype(np.int64, copy=False)
        small = x.astype(self._kind, copy=False)
        step = max(1, self._budget // max(1, small.shape[1] * small.itemsize))
        for start in range(0, len(y), step):
            self._add(small[start : start + step], y[start : start + step])

    def finish(self) -> dict[str, Int64[np.ndarray, "..."]]:
        """The blocks of all rows. They are not copied, so the builder cannot be used again."""
        self._flush()
        self._is_finished = True
        return self._blocks

    def _add(self, x: np.ndarray, y: np.ndarray) -> None:
        of_classes = list(_by_label(x, y))
        parallel_for(lambda part: self._add_now(*part), of_classes)
        if self._deferred:
            for c, rows in of_classes:
                self._buffers.setdefault(c, []).append(rows)
                self._buffered += rows.nbytes
        if self._buffered >= self._budget:
            self._flush()

    def _add_now(self, c: int, rows: np.ndarray) -> None:
        for record, block in self._immediate:
            record.add(self._features(rows, record), block[c, ...])

    def _flush(self) -> None:
        waiting, self._buffers, self._buffered = self._buffers, {}, 0
        for record in self._deferred if waiting else []:
            block, classes = self._blocks[record.name], sorted(waiting)
            rows_of = {c: list(waiting[c]) for c in classes}
            if record is self._deferred[-1]:
                waiting.clear()
            if record.is_per_class:
                parallel_for(lambda c: self._add_waiting(rows_of[c], record, block[c]), classes)  # noqa: B023 - it returns before the next record
            else:
                together = [rows for c in classes for rows in rows_of.pop(c)]
                self._add_waiting(together, record, block)

    def _add_waiting(self, waiting: list[np.ndarray], record: Statistic, out: np.ndarray) -> None:
        rows = np.concatenate(waiting)
        waiting.clear()  # rows are not kept twice while they are multiplied
        record.add(self._features(rows, record), out)
        arrays.evict(out)

    def _check_room(self, rows: int) -> None:
        if rows > self._room:
            raise MomentsOverflowError(
                f"{rows} rows that add up to {self.layout.largest} each could overflow 64-bit integers; use "
                "fewer grid bits."
            )

    def _features(self, rows: np.ndarray, record: Statistic) -> np.ndarray:
        """The features that a statistic sums: the rows, or their sketch."""
        if not record.is_sketched or self._sketch is None:
            return rows
        if not is_leading(self._sketch):
            rows = exact_product(rows, self._sketch, self.layout.bound * self.layout.dim).astype(np.int64)
        return rows[:, : self.layout.sketch]


def check_rows(x: np.ndarray, y: np.ndarray, layout: Layout) -> None:
    """Raise unless these are integer rows of the layout with their class numbers."""
    if x.dtype.kind not in "iu":
        raise EmbeddingsError(
            f"feature rows are {x.dtype}, and moments need integers; make them with Features.of(recipe).rows(embeddings)."
        )
    if y.dtype.kind not in "iu":
        raise EmbeddingsError(
            f"labels are {y.dtype}, and moments need class numbers: integers from 0 to {layout.classes - 1}."
        )
    if x.shape[1] != layout.dim:
        raise EmbeddingsError(f"feature rows have {x.shape[1]} entries, and the layout has dim={layout.dim}.")
    if len(x) != len(y):
        raise EmbeddingsError(f"{len(x)} rows came with {len(y)} labels; give one label per row.")
    if len(y) and not (y.min() >= 0 and y.max() < layout.classes):
        bad = y.min() if y.min() < 0 else y.max()
        raise EmbeddingsError(
            f"label {bad} is not a class number; the recipe's {layout.classes} classes are 0 to {layout.classes - 1}."
        )
    if x.size and (size := max(int(x.max()), -int(x.min()))) > layout.bound:
        raise EmbeddingsError(
            f"a feature of {size} is beyond the layout's bound of {layout.bound}; "
            "make features with Features.of(recipe).rows."
        )


def _by_label(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    order = np.argsort(y, kind="stable")
    present, starts = np.unique(y[order], return_index=True)
    ends, rows = [*starts[1:], len(y)], np.take(x, order, axis=0)
    for c, start, end in zip(present, starts, ends, strict=True):
        yield int(c), rows[start:end]
