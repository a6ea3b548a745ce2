"""Tables of samples: CSV, TSV, JSON lines and parquet, as columns."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.errors import DatasetError, GhoflError, MissingExtraError
from ghofl.shapes import Shaped

TEXT = ("text", "sentence", "content", "utterance")
PATHS = ("path", "file", "filename", "file_name", "image")
LABEL = ("label", "class", "intent", "y")


def read_table(path: Path) -> dict[str, list[Any]]:
    """The columns of a table, in the order of the file."""
    if path.suffix == ".parquet":
        return parquet_columns(path, DatasetError)
    try:
        return _json_lines(path) if path.suffix == ".jsonl" else _delimited(path)
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from None


def parquet_columns(path: Path, error: type[GhoflError]) -> dict[str, list[Any]]:
    """The columns of a parquet file, by name; `error` is raised for a file that cannot be read."""
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError:
        raise MissingExtraError(
            f"{path} needs pyarrow, which is not installed: pip install 'ghofl[datasets]'."
        ) from None
    try:
        return parquet.read_table(path).to_pydict()
    except FileNotFoundError:
        raise
    except (ArrowException, OSError) as damage:  # pyarrow tells a damaged page as an OSError
        raise error(f"{path} is not a parquet file that can be read ({str(damage).splitlines()[0]}).") from None


def pick(columns: Any, asked: str, usual: tuple[str, ...]) -> str | None:
    """The column asked for where it is there, or the first usual one where none is asked for."""
    return next((name for name in ((asked,) if asked else usual) if name in columns), None)


def read_labels(table: dict[str, list[Any]], asked: str, path: Path) -> Shaped[np.ndarray, " n"] | None:
    """The labels, as class numbers where all are whole numbers of the file's own, and as names otherwise."""
    name = pick(table, asked, LABEL)
    if name is None:
        if asked:
            raise DatasetError(f"{path} has the columns {', '.join(table)} and not {asked!r}; check --label-column.")
        return None
    values = table[name]
    for i, value in enumerate(values):
        if value is None or isinstance(value, float | list | dict) or not str(value).strip():
            raise DatasetError(f"{path}, row {i + 1} has the label {value!r}; expected a class name or number.")
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return np.array(values, dtype=np.int64)
    return np.array([str(value) for value in values])


def _delimited(path: Path) -> dict[str, list[Any]]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        try:
            header = next(rows, None)
            if header is None:
                raise DatasetError(f"{path} is empty; its first line names the columns.")
            columns: dict[str, list[Any]] = {name: [] for name in header}
            if len(columns) < len(header):
                raise DatasetError(f"{path} names a column twice in its first line; every column has its own name.")
            for row in rows:
                if len(row) != len(header):
                    raise DatasetError(
                        f"{path}, line {rows.line_num} has {len(row)} fields and the header names {len(header)}; "
                        "quote fields that hold the delimiter."
                    )
                for name, value in zip(header, row, strict=True):
                    columns[name].append(value)
        except csv.Error as error:
            raise DatasetError(f"{path}, line {rows.line_num}: {error}; repair the quotes there.") from None
    return columns


def _json_lines(path: Path) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(filter(str.strip, file), start=1):
            try:
                values = json.loads(line)
            except json.JSONDecodeError as error:
                raise DatasetError(f"{path}, record {number} is not JSON: {error}.") from None
            if not isinstance(values, dict) or (columns and set(values) != set(columns)):
                raise DatasetError(f"{path}, record {number} has other fields than the first; every line has the same.")
            for name, value in values.items():
                columns.setdefault(name, []).append(value)
    return columns
