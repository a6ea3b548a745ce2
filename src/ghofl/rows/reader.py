"""What every reader of files gives: columns by name, a block of rows at a time; and what a cell means as text or number.

::

    from_text     .csv .tsv .jsonl              cells are texts, or what JSON has; needs nothing but Python
    from_arrow    .parquet .arrow .feather      cells, and lists of numbers as matrices; needs pyarrow
    from_arrays   .npz .npy .safetensors        arrays
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.errors import DatasetError
from ghofl.recipe.labels import each_label, is_nothing
from ghofl.shapes import Shaped

BLOCK = 8192  # rows at a time
MOST_NAMES = 2**30  # bytes of an array of names, all as wide as the longest one
TEXT = ("text", "sentence", "content", "utterance")
PATHS = ("path", "file", "filename", "file_name", "image")
SHEETS = (".xlsx", ".xls", ".ods", ".numbers")
LABEL = ("label", "class", "intent", "y")
# A comma and one to three digits before and three after it may separate thousands, and then it is not a decimal comma.
_DECIMAL_COMMA = re.compile(r"[+-]?(?![1-9]\d{0,2},\d{3}\Z)\d+,\d+(?:[eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True, eq=False)
class OpenFile:
    """An open file: the names of its columns, the shape of each, and their blocks.

    `shape(name)` has None for lengths that are not known before a column is read: one length for a column of cells, two or
    more for rows of numbers. `blocks(names, size)` gives the columns by name, at most `size` rows at a time, in order; there
    is at least one block, which may have no rows. With size 0 a block is as long as is sensible for the file.
    """

    names: list[str]
    shape: Callable[[str], tuple[int | None, ...]] = field(repr=False)
    blocks: Callable[[Sequence[str], int], Iterator[dict[str, Any]]] = field(repr=False)

    @property
    def cells(self) -> list[str]:
        """The columns of cells."""
        return [name for name in self.names if len(self.shape(name)) == 1]


def unknown_suffix(path: Path, known: Iterable[str]) -> str:
    """What is said about a file whose suffix is not a `known` one."""
    is_sheet = path.suffix.lower() in SHEETS
    return f"{path} has no known suffix; " + (
        "save the sheet as .csv." if is_sheet else f"give one of {', '.join(dict.fromkeys(known))}."
    )


def pick(columns: Iterable[str], asked: str, usual: tuple[str, ...]) -> str | None:
    """The column asked for, or if none is the first usual one; None where it does not exist."""
    return next((name for name in ((asked,) if asked else usual) if name in columns), None)


def text_of(value: Any) -> str:
    """A cell as a text: empty for nulls and NaN, and whole numbers without a decimal point."""
    if isinstance(value, str):
        return value.strip()
    if is_nothing(value):
        return ""
    if isinstance(value, float | np.floating):
        return str(int(value)) if float(value).is_integer() else str(float(value))
    return str(value).strip()


def labels_in(values: Sequence[Any], where: str, row_by_row: bool = False) -> Shaped[np.ndarray, " n"]:
    """The labels in a column of cells: whole numbers, or names; a missing one is −1 or an empty text.

    One missing label makes 1.0 of every 1 in a column of numbers, so whole floats beside a missing one are whole numbers.
    With `row_by_row` each is what it is in its own row, and empty where it cannot be a label.
    """
    if row_by_row:
        return each_label(values)
    texts = list(map(text_of, values))
    may_be_float = "" in texts
    for i, (value, text) in enumerate(zip(values, texts, strict=True)):
        if isinstance(value, list | dict) or (
            isinstance(value, float) and text and not (may_be_float and text.isdecimal())
        ):
            raise DatasetError(f"{where}, row {i + 1} has the label {value!r}; expected a class name or number.")
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values if value is not None):
        return np.array([int(text or -1) for text in texts], dtype=np.int64)
    return name_array([str(value) if text else "" for value, text in zip(values, texts, strict=True)], where)


def number_of(text: str) -> float:
    """The finite number that a text is; anything else raises `ValueError`.

    A decimal comma is one unless it could separate thousands. Python reads 1_000 and nan, which people do not mean.

    >>> number_of("007"), number_of("3,14"), number_of("0,125")
    (7.0, 3.14, 0.125)
    """
    number = float(text.replace(",", ".") if _DECIMAL_COMMA.fullmatch(text) else text)
    if "_" in text or not math.isfinite(number):
        raise DatasetError(f"{text[:40]!r} is not a finite number in digits.")
    return number


def name_array(values: list[str], where: str) -> Shaped[np.ndarray, " n"]:
    """Names as an array, in which each is as wide as the longest one."""
    longest = max(map(len, values), default=0)
    if 4 * longest * len(values) > MOST_NAMES:
        raise DatasetError(
            f"{where}: the longest of {len(values):,} names has {longest:,} characters, too many to keep; use short names."
        )
    return np.array(values)
