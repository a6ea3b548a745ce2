"""Tables of cells: CSV, TSV, JSON lines, Parquet, Arrow and Feather, as columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.errors import DatasetError
from ghofl.names import columns_but_not
from ghofl.rows import from_arrow, from_text
from ghofl.rows.reader import BLOCK, LABEL, SHEETS, OpenFile, labels_in, pick, unknown_suffix
from ghofl.shapes import Shaped

SUFFIXES = (*from_text.SUFFIXES, *from_arrow.SUFFIXES)


def open_table(path: Path) -> AbstractContextManager[OpenFile]:
    """An open table; a file of another suffix is read as CSV, but for spreadsheets."""
    if path.suffix.lower() in SHEETS:
        raise DatasetError(unknown_suffix(path, SUFFIXES))
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
    """The labels as in `labels_in`; None where there is no column of them."""
    name = pick(table, asked, LABEL)
    if name is None:
        if asked:
            raise DatasetError(f"{path} has {columns_but_not(table, asked)}; check `label_column`.")
        return None
    return labels_in(table[name], f"{path}, column {name!r}", row_by_row)


def places_in(data: Any) -> Callable[[int], str]:
    """A function that says where people find a row: its line in a text file, or its number elsewhere.

    Rows that come in order are found in one reading of the file, however many they are.
    """
    if not isinstance(data, str | Path):
        return lambda row: f"row {row}"
    lines, at, line = None, -1, None

    def place(row: int) -> str:
        nonlocal lines, at, line
        if lines is None or row < at:
            lines, at = from_text.lines_of(Path(data)), -1
        if row > at:
            line, at = next(islice(lines, row - at - 1, None)), row
        return f"{data}, row {row + 1}" if line is None else f"{data}, line {line}"

    return place
