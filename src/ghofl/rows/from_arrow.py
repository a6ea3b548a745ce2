"""Columns of Parquet, Arrow and Feather files, through pyarrow, a few thousand rows at a time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ghofl.errors import DatasetError, GhoflError, MissingExtraError
from ghofl.names import shorten
from ghofl.rows.reader import BLOCK, OpenFile

SUFFIXES = (".parquet", ".arrow", ".feather")
BATCH_BYTES = 2**26  # of the numbers of a batch
LONGEST_CELL = 2**24  # bytes


class Ragged(NamedTuple):
    """Lists that are no matrix: their rows, and the type of their numbers, or None where they hold anything else."""

    rows: list[Any]
    dtype: type[np.floating] | None

    def __len__(self) -> int:
        return len(self.rows)


@contextmanager
def open_arrow(path: Path, error: type[GhoflError] = DatasetError) -> Iterator[OpenFile]:
    """An open file of columns; raises `error` where it cannot be read, inside the block as well.

    Lists of numbers of one length are a matrix, and other lists are `Ragged`. The batches of an Arrow file are no longer
    than it was written with.
    """
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ModuleNotFoundError:
        raise MissingExtraError(
            f"{path} needs pyarrow, which is not installed: pip install 'ghofl[datasets]'."
        ) from None
    is_parquet = path.suffix == ".parquet"
    try:
        if is_parquet:
            with parquet.ParquetFile(path) as file:  # texts are read as a list of different ones and their numbers
                texts = [each.name for each in file.schema_arrow if _is_text(each.type)]
            with parquet.ParquetFile(path, memory_map=True, read_dictionary=texts) as file:
                few, rows = _rows_at_once(file), file.metadata.num_rows
                yield _opened(
                    path, file.schema_arrow, rows, lambda names, size: file.iter_batches(min(size, few), columns=names)
                )
        else:
            with pyarrow.memory_map(str(path)) as source, ipc.open_file(source) as file:
                numbers = range(file.num_record_batches)
                rows = sum(file.get_batch(i).num_rows for i in numbers)
                yield _opened(
                    path, file.schema, rows, lambda names, _: (_checked(file.get_batch(i), names) for i in numbers)
                )
    except FileNotFoundError:
        raise
    # pyarrow reports a damaged page as an OSError, and a name or text that is not UTF-8 by Python's own error.
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as damage:
        why = shorten(str(damage).partition("\n")[0], 160)
        raise error(
            f"{path} is not {'a parquet' if is_parquet else 'an Arrow'} file that can be read ({why}); write it again."
        ) from None


def _opened(path: Path, schema: Any, rows: int, batches: Callable[[list[str], int], Any]) -> OpenFile:
    from pyarrow import types

    shapes = {each.name: (rows, None) if types.is_nested(each.type) else (rows,) for each in schema}
    if len(shapes) < len(schema.names):
        raise DatasetError(f"{path} names a column twice; give every column its own name.")

    def blocks(names: Sequence[str], size: int) -> Iterator[dict[str, Any]]:
        size, is_empty = size or BLOCK, True
        for batch in batches(list(names), size):
            for start in range(0, len(batch), size):
                some, is_empty = batch.slice(start, size), False
                yield {name: _values(some.column(name), f"{path}, column {name!r}") for name in names}
        if is_empty:
            yield {name: [] for name in names}

    return OpenFile(list(shapes), shapes.__getitem__, blocks)


def _rows_at_once(file: Any) -> int:
    """How many rows of a parquet file are decoded at once, as a few bytes may stand for many equal numbers of lists."""
    from pyarrow import types

    nested = [each.name for each in file.schema_arrow if types.is_nested(each.type)]
    places = [j for j in range(len(file.schema.names)) if file.schema.column(j).path.split(".")[0] in nested]
    widest = 1.0
    for i in range(file.metadata.num_row_groups if nested else 0):
        next(
            file.iter_batches(1, row_groups=[i], columns=nested), None
        )  # pyarrow ends the process below for a damaged group
        group = file.metadata.row_group(i)
        widest = max(widest, *(group.column(j).num_values / max(1, group.num_rows) for j in places))
    return max(1, int(BATCH_BYTES // (8 * widest)))


def _checked(batch: Any, names: list[str]) -> Any:
    """Some columns of a batch of an Arrow file; offsets are checked, as pyarrow would follow them out of the file."""
    batch = batch.select(names)
    batch.validate(full=True)
    return batch


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return any(
        is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _values(column: Any, where: str) -> list[Any] | np.ndarray | Ragged:
    """The values of a column; equal texts of a file that lists them once are one text, however many rows have it."""
    from pyarrow import compute, types

    if types.is_dictionary(column.type):
        column.validate(full=True)  # pyarrow would take a number that stands for no text
        values = _values(column.dictionary, where)
        return [None if number is None else values[number] for number in column.indices.to_pylist()]
    if types.is_nested(column.type):
        return _matrix(column)
    if _is_text(column.type):
        longest = compute.max(compute.binary_length(column)).as_py() or 0  # type: ignore[attr-defined]
        if longest > LONGEST_CELL:
            raise DatasetError(f"{where} has a cell of {longest:,} bytes, and at most {LONGEST_CELL:,} are read.")
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):
        return [_cell(value) for value in column]


def _cell(value: Any) -> Any:
    """A cell; a time that Python does not know, such as one after the year 9999, is a text that no other value is."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return f"{value.value} {value.type}"


def _matrix(column: Any) -> np.ndarray | Ragged:
    """A batch of lists of numbers as a matrix, or as they are where they differ in length or something is missing."""
    from pyarrow import compute, types

    kind = column.type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_list or not (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
        return Ragged([None] * len(column), None)
    lengths, values = compute.list_value_length(column).unique(), column.flatten()  # type: ignore[attr-defined]
    if column.null_count or values.null_count or len(lengths) != 1:
        is_short = types.is_float32(kind.value_type) or types.is_float16(kind.value_type)
        return Ragged(column.to_pylist(), np.float32 if is_short else np.float64)
    return values.to_numpy(zero_copy_only=False).reshape(len(column), lengths[0].as_py())
