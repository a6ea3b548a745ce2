"""Tables of samples: CSV, TSV, JSON lines and parquet, as columns."""

import csv
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ghofl.errors import DatasetError, GhoflError, MissingExtraError
from ghofl.names import shown
from ghofl.recipe.labels import each_label
from ghofl.shapes import Shaped

TEXT = ("text", "sentence", "content", "utterance")
PATHS = ("path", "file", "filename", "file_name", "image")
LABEL = ("label", "class", "intent", "y")
BLOCK = 8192  # rows of a table at a time
LONGEST_CELL = 2**24  # bytes
MOST_NAMES = 2**30  # bytes of an array of names, all as wide as the longest one


def read_table(path: Path) -> dict[str, list[Any]]:
    """The columns of a table, in the order of the file."""
    columns: dict[str, list[Any]] = {}
    for block in table_blocks(path):
        for name, values in block.items():
            columns.setdefault(name, []).extend(values)
    return columns


def table_blocks(path: Path, rows: int = BLOCK) -> Iterator[dict[str, list[Any]]]:
    """The columns of a table, `rows` rows at a time; there is at least one block, which may have no rows."""
    if path.suffix == ".parquet":
        yield from _parquet_blocks(path, rows)
        return
    try:
        yield from (_json_lines if path.suffix == ".jsonl" else _delimited)(path, rows)
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from None


def parquet_columns(path: Path, error: type[GhoflError]) -> dict[str, list[Any]]:
    """The columns of a parquet file by name; raises `error` for a file that cannot be read."""
    columns: dict[str, list[Any]] = {}
    with open_parquet(path, error) as file:
        for block in _file_blocks(file, path, BLOCK):
            for name, values in block.items():
                columns.setdefault(name, []).extend(values)
    return columns


@contextmanager
def open_parquet(path: Path, error: type[GhoflError] = DatasetError) -> Iterator[Any]:
    """An open parquet file; raises `error` where it cannot be read, inside the block as well."""
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError:
        raise MissingExtraError(
            f"{path} needs pyarrow, which is not installed: pip install 'ghofl[datasets]'."
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            texts = text_columns(file.schema_arrow)
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            yield file
    except FileNotFoundError:
        raise
    # pyarrow reports a damaged page as an OSError, and a name or text that is not UTF-8 by Python's own error.
    except (ArrowException, OSError, UnicodeDecodeError) as damage:
        raise error(
            f"{path} is not a parquet file that can be read ({shown(str(damage).partition(chr(10))[0], 160)}); write it again."
        ) from None


def _parquet_blocks(path: Path, rows: int) -> Iterator[dict[str, list[Any]]]:
    with open_parquet(path) as file:
        yield from _file_blocks(file, path, rows)


def _file_blocks(file: Any, path: Path, rows: int) -> Iterator[dict[str, list[Any]]]:
    """The columns of a parquet file of texts, numbers and the like; lists and records are no cells of a table."""
    from pyarrow import types

    names = [field.name for field in file.schema_arrow if not types.is_nested(field.type)]
    yield {name: [] for name in names}
    for batch in file.iter_batches(rows, columns=names):
        yield {
            name: cells(column, f"{path}, column {name!r}")
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }


def text_columns(schema: Any) -> list[str]:
    """The columns of texts, to be read as a list of different texts and their numbers, as they are in the file."""
    from pyarrow import types

    kinds = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return [field.name for field in schema if any(is_kind(field.type) for is_kind in kinds)]


def cells(column: Any, where: str) -> list[Any]:
    """The values of a column; equal texts of a file that lists them once are one text, however many rows have it."""
    from pyarrow import compute, types

    if types.is_dictionary(column.type):
        column.validate(full=True)  # pyarrow would take a number that stands for no text
        values = cells(column.dictionary, where)
        return [None if number is None else values[number] for number in column.indices.to_pylist()]
    if text_columns([_Typed("", column.type)]):
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


class _Typed(NamedTuple):
    name: str
    type: Any


def text_of(value: Any) -> str:
    """A cell as a text: empty for nulls and NaN, and whole numbers without a decimal point."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return ""
    if isinstance(value, float | np.floating):
        if math.isnan(value):
            return ""
        return str(int(value)) if float(value).is_integer() else str(float(value))
    return str(value).strip()


def name_array(values: list[str], where: str) -> Shaped[np.ndarray, " n"]:
    """Names as an array, in which each is as wide as the longest one."""
    longest = max(map(len, values), default=0)
    if 4 * longest * len(values) > MOST_NAMES:
        raise DatasetError(
            f"{where}: the longest of {len(values):,} names has {longest:,} characters, too many to keep; use short names."
        )
    return np.array(values)


def pick(columns: Any, asked: str, usual: tuple[str, ...]) -> str | None:
    """The column asked for, or if none is the first usual one; None where it does not exist."""
    return next((name for name in ((asked,) if asked else usual) if name in columns), None)


def read_labels(
    table: dict[str, list[Any]], asked: str, path: Path, row_by_row: bool = False
) -> Shaped[np.ndarray, " n"] | None:
    """The labels, as class numbers if the file holds only whole numbers, and otherwise as names.

    With `row_by_row` each is what it is in its own row, and empty where it cannot be a label.
    """
    name = pick(table, asked, LABEL)
    if name is None:
        if asked:
            raise DatasetError(f"{path} has the columns {', '.join(table)} but not {asked!r}; check --label-column.")
        return None
    values = table[name]
    if row_by_row:
        return each_label(values)
    for i, value in enumerate(values):
        if value is None or isinstance(value, float | list | dict) or not str(value).strip():
            raise DatasetError(f"{path}, row {i + 1} has the label {value!r}; expected a class name or number.")
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return np.array(values, dtype=np.int64)
    return name_array([str(value) for value in values], f"{path}, column {name!r}")


def _delimited(path: Path, size: int) -> Iterator[dict[str, list[Any]]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        try:
            header = next(rows, None)
            if header is None:
                raise DatasetError(f"{path} is empty; write the names of the columns in its first line.")
            if len(header) == 1 and ";" in header[0]:
                raise DatasetError(
                    f"{path} has one column, {shown(header[0], 200)!r}; separate columns by commas, or by tabs in a .tsv."
                )
            columns: dict[str, list[Any]] = {name: [] for name in header}
            if len(columns) < len(header):
                raise DatasetError(f"{path} names a column twice in its first line; give every column its own name.")
            for count, row in enumerate(rows, start=1):
                if len(row) != len(header):
                    advice = "quote fields that hold the delimiter" if row else "remove lines without anything"
                    raise DatasetError(
                        f"{path}, line {rows.line_num} has {len(row)} fields and the header names {len(header)}; {advice}."
                    )
                for name, value in zip(header, row, strict=True):
                    columns[name].append(value)
                if count % size == 0:
                    yield columns
                    columns = {name: [] for name in header}
            yield columns
        except csv.Error as error:
            raise DatasetError(f"{path}, line {rows.line_num}: {error}; repair the quotes there.") from None


def _json_lines(path: Path, size: int) -> Iterator[dict[str, list[Any]]]:
    columns: dict[str, list[Any]] = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(filter(str.strip, file), start=1):
            try:
                values = json.loads(line)
            except (ValueError, RecursionError) as error:  # also for numbers of thousands of digits, or deep nesting
                raise DatasetError(f"{path}, record {number} is not JSON that can be read: {error}.") from None
            if not isinstance(values, dict) or (columns and set(values) != set(columns)):
                raise DatasetError(
                    f"{path}, record {number} has other fields than the first; write the same fields in every line."
                )
            for name, value in values.items():
                columns.setdefault(name, []).append(value)
            if number % size == 0:
                yield columns
                columns = {name: [] for name in columns}
    yield columns
