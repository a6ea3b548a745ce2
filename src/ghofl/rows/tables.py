"""Tables of cells: CSV, TSV, JSON lines, Parquet, Arrow and Feather, as columns."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.errors import DatasetError
from ghofl.names import columns_but_not
from ghofl.recipe.labels import each_label
from ghofl.rows import from_arrow, from_text
from ghofl.rows.reader import BLOCK, LABEL, OpenFile, name_array, pick
from ghofl.shapes import Shaped

SUFFIXES = (*from_text.SUFFIXES, *from_arrow.SUFFIXES)


def open_table(path: Path) -> AbstractContextManager[OpenFile]:
    """An open table; a file of another suffix is read as CSV."""
    return from_arrow.open_arrow(path) if path.suffix in from_arrow.SUFFIXES else from_text.open_text(path)


def table_blocks(path: Path, size: int = BLOCK) -> Iterator[dict[str, list[Any]]]:
    """The columns of cells of a table, `size` rows at a time; there is at least one block, which may have no rows."""
    with open_table(path) as file:
        yield from file.blocks(file.cells, size)


def read_table(path: Path) -> dict[str, list[Any]]:
    """The columns of cells of a table, in the order of the file."""
    columns: dict[str, list[Any]] = {}
    for block in table_blocks(path):
        for name, values in block.items():
            columns.setdefault(name, []).extend(values)
    return columns


def read_labels(
    table: Mapping[str, Sequence[Any]], asked: str, path: Path, row_by_row: bool = False
) -> Shaped[np.ndarray, " n"] | None:
    """The labels, as class numbers if the file holds only whole numbers, and otherwise as names.

    With `row_by_row` each is what it is in its own row, and empty where it cannot be a label.
    """
    name = pick(table, asked, LABEL)
    if name is None:
        if asked:
            raise DatasetError(f"{path} has {columns_but_not(table, asked)}; check `label_column`.")
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


def place_of(data: Any, row: int) -> str:
    """Where people find a row: its line in a text file, or its number elsewhere."""
    if not isinstance(data, str | Path):
        return f"row {row}"
    line = from_text.line_of(Path(data), row)
    return f"{data}, row {row + 1}" if line is None else f"{data}, line {line}"
