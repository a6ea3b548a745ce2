"""Rows in Parquet and Arrow files: a column of lists and a column of labels, read a few thousand rows at a time.

Rows that take more than `IN_MEMORY` bytes go to an anonymous temporary file that is mapped into memory, so that a file
may be larger than memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ghofl.errors import EmbeddingsError, MissingExtraError
from ghofl.names import shown
from ghofl.recipe.labels import each_label
from ghofl.rows.tables import cells, name_array, pick, text_columns
from ghofl.statistics import arrays

SUFFIXES = (".parquet", ".arrow", ".feather")
IN_MEMORY = 2**28
BATCH = 4096
BATCH_BYTES = 2**26  # of the numbers of a batch


class _File(NamedTuple):
    """An open file of either kind: the names of its columns, how many rows it has, and batches of some columns."""

    names: list[str]
    rows: int
    batches: Any  # a function from names of columns to record batches


def read_columns(path: Path, column: str, label: str, row_by_row: int | None = None) -> dict[str, np.ndarray]:
    """The columns of rows and of labels of a file, as ``x`` and, where there is one, ``y``.

    With `row_by_row`, the length that rows should have, no row raises: one of another length becomes NaN, and one without
    a label gets an empty one.
    """
    with open_columns(path) as file:
        x, y = pick(file.names, column, ("x", "embedding")), pick(file.names, label, ("y", "label"))
        if x is None or (label and y is None):
            raise EmbeddingsError(
                f"{path} has the columns {shown(', '.join(sorted(file.names)), 200) or 'nothing'}; expected a column "
                f"{column or 'embedding'!r} of lists of one length" + (f" and a column {label!r}." if label else ".")
            )
        found = {"x": _rows(file, x, path, row_by_row)}
        if y is not None:
            where = f"{path}, column {y!r}"
            labels = [value for batch in file.batches([y]) for value in cells(batch.column(0), where)]
            if row_by_row is not None:
                found["y"] = each_label(labels)
                return found
            if None in labels:
                raise EmbeddingsError(f"{path}: row {labels.index(None)} has no {y!r}; every row needs a label.")
            is_text = all(isinstance(value, str) for value in labels)
            found["y"] = name_array(labels, where) if is_text else np.array(labels)
        return found


@contextmanager
def open_columns(path: Path, size: int = BATCH) -> Iterator[_File]:
    """An open Parquet or Arrow file, whose batches have `size` rows, in an Arrow file as many as it was written with."""
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ModuleNotFoundError:
        raise MissingExtraError(
            f"{path} needs pyarrow, which is not installed: pip install 'ghofl[datasets]'."
        ) from None
    kind = "a parquet" if path.suffix == ".parquet" else "an Arrow"
    try:
        if path.suffix == ".parquet":
            with parquet.ParquetFile(path) as file:
                texts = text_columns(file.schema_arrow)
            with parquet.ParquetFile(path, memory_map=True, read_dictionary=texts) as file:
                names, rows = file.schema_arrow.names, file.metadata.num_rows
                few = min(size, _rows_at_once(file.metadata))
                yield _File(names, rows, lambda wanted: file.iter_batches(few, columns=wanted))
        else:
            with pyarrow.memory_map(str(path)) as source, ipc.open_file(source) as file:
                count = file.num_record_batches
                rows = sum(file.get_batch(i).num_rows for i in range(count))
                yield _File(
                    file.schema.names, rows, lambda wanted: (_read_batch(file, i, wanted) for i in range(count))
                )
    except FileNotFoundError:
        raise
    # pyarrow reports a damaged page as an OSError, and a name or text that is not UTF-8 by Python's own error.
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as damage:
        raise EmbeddingsError(
            f"{path} is not {kind} file that can be read ({shown(str(damage).partition(chr(10))[0], 160)}); write it again."
        ) from None


def _rows_at_once(metadata: Any) -> int:
    """How many rows of a parquet file are decoded at once, as a few bytes may stand for many equal numbers."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    values = [
        max(group.column(j).num_values for j in range(group.num_columns)) for group in groups if group.num_columns
    ]
    widest = max((count / max(1, group.num_rows) for count, group in zip(values, groups, strict=False)), default=1)
    return max(1, int(BATCH_BYTES // (8 * max(1, widest))))


def _read_batch(file: Any, number: int, wanted: list[str]) -> Any:
    """Some columns of a batch of an Arrow file; offsets are checked, as pyarrow would follow them out of the file."""
    batch = file.get_batch(number).select(wanted)
    batch.validate(full=True)
    return batch


def _rows(file: _File, name: str, path: Path, row_by_row: int | None = None) -> np.ndarray:
    out, done = None if row_by_row is None or file.rows else np.zeros((0, row_by_row)), 0
    for batch in file.batches([name]):
        some = matrix(batch.column(0)) if row_by_row is None else _padded(batch.column(0), row_by_row)
        if some is None or (out is not None and some.shape[1] != out.shape[1]):
            raise EmbeddingsError(
                f"{path}: {name!r} is not a column of numbers in lists of one length; repair its rows."
            )
        if out is None:
            out = arrays.zeros((file.rows, some.shape[1]), some.dtype, most=IN_MEMORY)
        if done + len(some) <= file.rows:
            out[done : done + len(some)] = some
            arrays.forget(out[done : done + len(some)])
        done += len(some)
    if out is None:
        raise EmbeddingsError(f"{path} has no rows; give a file with rows.")
    if done != file.rows:  # part of the array would be uninitialised
        raise EmbeddingsError(f"{path} says that it has {file.rows:,} rows and holds {done:,}; write it again.")
    return out


def _padded(column: Any, dim: int) -> np.ndarray | None:
    """A batch of lists as a matrix of `dim` columns, with NaN in rows that are not `dim` numbers; None if not of lists."""
    from pyarrow import types

    kind = column.type
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return None
    if not (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
        return None
    dtype = np.float32 if types.is_float32(kind.value_type) or types.is_float16(kind.value_type) else np.float64
    whole = matrix(column)
    if whole is not None and whole.shape[1] == dim:
        return whole.astype(dtype, copy=False)
    out = np.full((len(column), dim), np.nan, dtype=dtype)
    for i, row in enumerate(column.to_pylist()):
        if row is not None and len(row) == dim and None not in row:
            out[i] = row
    return out


def matrix(column: Any) -> np.ndarray | None:
    """A batch of lists as a matrix, or None where they are not all of one length, or hold anything but numbers."""
    from pyarrow import compute, types

    kind = column.type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_list or column.null_count or not len(column):
        return None
    lengths = compute.list_value_length(column).unique()  # type: ignore[attr-defined]
    values = column.flatten()
    if (
        len(lengths) != 1
        or values.null_count
        or not (types.is_floating(kind.value_type) or types.is_integer(kind.value_type))
    ):
        return None
    return values.to_numpy(zero_copy_only=False).reshape(len(column), lengths[0].as_py())
