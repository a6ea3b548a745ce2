"""From rows of a table to embeddings, by the schema in the recipe, a column at a time."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ghofl.errors import DatasetError, SampleError
from ghofl.names import columns_but_not, shorten
from ghofl.recipe import Column, Table
from ghofl.recipe.table import ENCODER, MISSING_WORDS, NO, YES
from ghofl.rows.reader import number_of, text_of
from ghofl.shapes import Float, Float32, Float64

NEUTRAL = 0.0
JUDGED_FROM = 20  # values of a column; if there are fewer, most of them may be outside by chance
Parsed = Float64[np.ndarray, " n"]


@dataclass(frozen=True, slots=True, eq=False)
class EncodedTable:
    """The embeddings of a table's rows, the rows that break the schema, and how many values fell outside, by column.

    `bad` has the number of a row and what is wrong with it; its embedding is all zeros and must not be used.
    """

    x: Float32[np.ndarray, "n dim"] = field(repr=False)
    bad: tuple[tuple[int, str], ...]
    outside: dict[str, int]


@dataclass(frozen=True, slots=True)
class TableEncoder:
    """The encoder called ``table``: from columns to embeddings, by a schema.

    Guarantees
    ----------
    A row's embedding depends only on that row and the schema, and every entry is in [−1, 1]. A value that does not fit
    its column is never guessed: the row is named and refused.

    Examples
    --------
    >>> table = Table((Column("age", "number", low=0, high=100), Column("smoker", "yes/no", missing="indicator")))
    >>> TableEncoder(table).embed({"age": ["50", 100], "smoker": ["no", ""]}).x
    array([[ 0., -1.,  0.], [ 1.,  0.,  1.]], dtype=float32)
    """

    table: Table
    kind: str = "table"

    @property
    def name(self) -> str:
        """``table``."""
        return ENCODER

    @property
    def dim(self) -> int:
        """Numbers in one embedding."""
        return self.table.dim

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the schema."""
        return self.table.fingerprint

    @property
    def sample_bytes(self) -> int:
        """The memory of one row."""
        return 64 * (self.dim + len(self.table.columns))

    def encode(self, batches: Iterable[Sequence[Any]]) -> Iterator[Float[np.ndarray, "n dim"]]:
        """The embeddings of batches of rows, each a mapping from column names to values."""
        for batch in batches:
            for row in batch:
                if not isinstance(row, Mapping):
                    raise SampleError(f"a row is {type(row).__name__}; give the encoder 'table' values by column.")
            done = self.embed({c.name: [row.get(c.name) for row in batch] for c in self.table.columns})
            if done.bad:
                raise SampleError(f"row {done.bad[0][0]} of a batch: {done.bad[0][1]}")
            yield done.x

    def embed(
        self, columns: Mapping[str, Sequence[Any]], where: str = "the table", row_by_row: bool = False
    ) -> EncodedTable:
        """The embeddings of columns of equal length; columns that the schema does not name are ignored.

        Where most values of a column are outside, its unit or coding is wrong, and that raises; not with `row_by_row`,
        which is for rows under an epsilon: whether it raises would be an answer about all of them.
        """
        absent = [c.name for c in self.table.columns if c.name not in columns]
        if absent:
            raise DatasetError(
                f"{where} has {columns_but_not(columns, absent[0])}; add every column that the recipe's schema names"
                + (f" ({len(absent)} are missing)." if len(absent) > 1 else ".")
            )
        rows = len(columns[self.table.columns[0].name])
        x, at = np.zeros((rows, self.dim), dtype=np.float32), 0
        bad: dict[int, str] = {}
        outside: dict[str, int] = {}
        words = frozenset((*MISSING_WORDS, *self.table.missing_words))
        for column in self.table.columns:
            x[:, at : at + column.width], beyond = _embed(column, columns[column.name], words, bad)
            at += column.width
            if beyond.size:
                outside[column.name] = beyond.size
                if not row_by_row:
                    _check_unit(column, columns[column.name], beyond, where)
        x[list(bad)] = 0.0
        return EncodedTable(x, tuple(sorted(bad.items())), outside)


def _embed(
    column: Column, values: Sequence[Any], words: frozenset[str], bad: dict[int, str]
) -> tuple[Float64[np.ndarray, "n width"], np.ndarray]:
    """The numbers of one column, and the positions of values outside it; rows that break the schema go to `bad`."""
    parse = {"category": _levels, "yes/no": _answers}.get(column.kind, _numbers)
    parsed, is_missing, wrong = parse(column, values, words)
    if column.kind == "category":
        beyond = np.flatnonzero(parsed < 0)
        numbers = (parsed[:, None] == np.arange(len(column.all_levels))).astype(np.float64)
    elif column.kind == "yes/no":
        beyond, numbers = np.zeros(0, dtype=np.int64), parsed[:, None]
    else:
        low, high = column.span
        beyond = np.flatnonzero((parsed < low) | (parsed > high))
        neutral = NEUTRAL if column.neutral is None else _scale(column, np.array([column.neutral]))[0]
        scaled = _scale(column, np.where(is_missing, low, parsed))
        numbers = np.where(is_missing, neutral, scaled)[:, None]
    if column.outside == "refuse":
        wrong += [(int(i), _outside_text(column)) for i in beyond]
        beyond = beyond[:0]
    if column.missing == "refuse":
        wrong += [
            (int(i), "it is missing, and the schema has no rule for missing values") for i in np.flatnonzero(is_missing)
        ]
    elif column.missing == "indicator":
        numbers = np.hstack([numbers, is_missing[:, None]])
    for i, why in wrong:
        bad.setdefault(i, f"column {column.name!r} has the value {_quote(values[i])}; {why}.")
    return numbers, beyond


def _scale(column: Column, values: Parsed) -> Parsed:
    """Numbers between −1 and 1; those outside the range go to its nearest end."""
    low, high = column.span
    values = np.clip(values, low, high)
    if column.kind == "quantiles":
        return np.interp(values, column.breaks, np.linspace(-1.0, 1.0, len(column.breaks)))
    if column.kind == "log":
        values, low, high = np.log(values), math.log(low), math.log(high)
    return np.clip(2.0 * (values - low) / (high - low) - 1.0, -1.0, 1.0)


Wrong = list[tuple[int, str]]


def _numbers(column: Column, values: Sequence[Any], words: frozenset[str]) -> tuple[Parsed, np.ndarray, Wrong]:
    def number(value: Any) -> float:
        if value is None or type(value).__name__ == "NAType":
            return math.nan
        if isinstance(value, str):
            value = value.strip()
            return math.nan if value in words else number_of(value)
        if isinstance(value, bool | np.bool_):
            raise SampleError("an answer is not a number")
        found = float(value)
        if math.isinf(found):
            raise SampleError("it is not finite")
        return found

    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values.astype(np.float64), np.zeros(len(values), dtype=bool), []
    parsed, wrong = _parse(values, number, column.span[0], "it is not a number")
    is_missing = np.isnan(parsed)
    return np.where(is_missing, column.span[0], parsed), is_missing, wrong


def _levels(column: Column, values: Sequence[Any], words: frozenset[str]) -> tuple[Parsed, np.ndarray, Wrong]:
    place = {level: float(i) for i, level in enumerate(column.all_levels)}
    unlisted = place.get(column.rest, -1.0)

    def level(value: Any) -> float:
        text = text_of(value)
        if text in place:
            return place[text]
        return math.nan if text in words else unlisted

    parsed, wrong = _parse(values, level, 0.0, "it is not a level")
    is_missing = np.isnan(parsed)
    return np.where(is_missing, float(len(place)), parsed), is_missing, wrong  # no level has that number


def _answers(column: Column, values: Sequence[Any], words: frozenset[str]) -> tuple[Parsed, np.ndarray, Wrong]:
    meaning = {**dict.fromkeys(YES, 1.0), **dict.fromkeys(NO, -1.0)}

    def answer(value: Any) -> float:
        text = text_of(value)
        if text.lower() in meaning:
            return meaning[text.lower()]
        if text in words:
            return math.nan
        raise SampleError("it is neither yes nor no")

    parsed, wrong = _parse(values, answer, 0.0, "it is neither yes nor no")
    is_missing = np.isnan(parsed)
    return np.where(is_missing, NEUTRAL, parsed), is_missing, wrong


def _parse(values: Sequence[Any], parse: Callable[[Any], float], instead: float, why: str) -> tuple[Parsed, Wrong]:
    out, wrong = np.empty(len(values)), []
    for i, value in enumerate(values):
        try:
            out[i] = parse(value)
        except (ValueError, TypeError, OverflowError):
            out[i] = instead
            wrong.append((i, why))
    return out, wrong


def _quote(value: Any) -> str:
    return repr(shorten(value, 40)) if isinstance(value, str) else shorten(value, 40)


def _outside_text(column: Column) -> str:
    if column.kind == "category":
        return f"the levels are {shorten(', '.join(column.levels), 200)}"
    low, high = column.span
    return f"the range is {low:g} to {high:g}{' ' if column.unit else ''}{column.unit}"


def _check_unit(column: Column, values: Sequence[Any], beyond: np.ndarray, where: str) -> None:
    """Raise if most values are outside: that is a mistake of units, codes or columns, and not a few extreme values."""
    if len(values) >= JUDGED_FROM and 2 * len(beyond) > len(values):
        raise DatasetError(
            f"{where}: {len(beyond)} of {len(values)} values of column {column.name!r} are outside, e.g. "
            f"{_quote(values[int(beyond[0])])}; {_outside_text(column)}. Check its unit, coding and column; where such a "
            "value stands for a missing one, leave the cell empty, or leave the column out of the schema."
        )
