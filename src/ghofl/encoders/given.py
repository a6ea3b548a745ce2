"""Rows given in Python: arrays, lists, DataFrames, and tables with a recipe's schema."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ghofl.encoders.from_table import TableEncoder
from ghofl.errors import ClippingWarning, EmbeddingsError, SampleError
from ghofl.names import shorten
from ghofl.recipe import Table
from ghofl.shapes import Num

Data = Any  # an array, a list of rows, a DataFrame of pandas, polars or pyarrow, or columns by name


def embeddings_of(data: Data, table: Table | None = None, row_by_row: bool = False) -> Num[np.ndarray, "n dim"]:
    """The embeddings of rows as a user gives them; a DataFrame goes through a recipe's `table` if there is one.

    A row that breaks the table's schema raises; with `row_by_row` it is not finite, so that it is not counted.

    >>> embeddings_of([[1, 2], [3, 4.5]])
    array([[1. , 2. ], [3. , 4.5]])
    """
    columns = columns_of(data, as_lists=table is not None)
    if columns is not None and table is not None:
        return _encode_table(columns, table, row_by_row)
    x = _array(data) if columns is None else _matrix(columns)
    if x.ndim != 2 or x.dtype.kind not in "fiu":
        raise EmbeddingsError(
            f"rows are {type(data).__name__} of shape {x.shape} and {x.dtype}; give numbers, one row per sample: an array "
            "of two dimensions (x[None] for a single row), a list of rows or a DataFrame."
        )
    return x


def columns_of(data: Data, as_lists: bool = True) -> dict[str, Any] | None:
    """The columns of a DataFrame by name, as lists or as arrays; None for data that is not a table."""
    found = _columns(data)
    if found is None:
        return None
    if isinstance(data, Mapping):
        listed = {name: each if isinstance(each, list | np.ndarray) else list(each) for name, each in found.items()}
        if len({len(each) for each in listed.values()}) > 1:
            sizes = ", ".join(f"{name} ({len(each):,})" for name, each in listed.items())
            raise EmbeddingsError(
                f"columns have different numbers of values: {shorten(sizes, 200)}; give each one value per row."
            )
        as_arrays = {name: np.asarray(each) for name, each in listed.items()} if not as_lists else {}
        return as_arrays or {name: each if isinstance(each, list) else each.tolist() for name, each in listed.items()}
    return {name: each.to_list() if as_lists else each.to_numpy() for name, each in found.items()}


def _columns(data: Data) -> dict[str, Any] | None:
    """The columns of a DataFrame by name, as narwhals gives them."""
    if isinstance(data, np.ndarray | list | tuple):
        return None
    if isinstance(data, Mapping):
        return {str(name): values for name, values in data.items()}
    import narwhals

    frame = narwhals.from_native(data, eager_only=True, pass_through=True)
    if not isinstance(frame, narwhals.DataFrame):
        return None
    return {str(each.name): each for each in frame.iter_columns()}


def column_of(data: Data, name: str) -> list[Any]:
    """The values in a column of a DataFrame; raises `EmbeddingsError` where there is no such column."""
    columns = _columns(data) or {}
    if name not in columns:
        has = f"a table with the columns {shorten(', '.join(columns), 200)}" if columns else f"a {type(data).__name__}"
        raise EmbeddingsError(
            f"rows are {has}, without a column {name!r}; name a column of a DataFrame, or give one value per row."
        )
    return columns[name].to_list() if hasattr(columns[name], "to_list") else list(columns[name])


def warn_of_outside(outside: Mapping[str, int], where: str) -> None:
    """Warn about values outside their column's range or levels, with their number by column."""
    if outside:
        some = ", ".join(f"{name} ({count})" for name, count in list(outside.items())[:10])
        many = sum(outside.values())
        are = f"{many:,} values are outside their" if many > 1 else "1 value is outside its"
        warnings.warn(
            f"{where}: {are} column's range or levels and {'count' if many > 1 else 'counts'} as the nearest end or as none of "
            f"the levels: {some}.",
            ClippingWarning,
            stacklevel=4,
        )


def _encode_table(columns: Mapping[str, Sequence[Any]], table: Table, row_by_row: bool) -> Num[np.ndarray, "n dim"]:
    encoded = TableEncoder(table).embed(columns, row_by_row=row_by_row)
    if row_by_row:
        encoded.x[[i for i, _ in encoded.bad]] = np.nan
    elif encoded.bad:
        i, why = encoded.bad[0]
        more = f" {len(encoded.bad) - 1} more rows break the schema." if len(encoded.bad) > 1 else ""
        raise SampleError(f"row {i}: {why}{more}")
    warn_of_outside(encoded.outside, "the table")
    return encoded.x


def _array(data: Data) -> np.ndarray:
    if isinstance(data, np.ndarray) and data.dtype.kind != "O":
        return data
    try:
        x = np.asarray(data)
        # numpy makes objects of a column of lists, or of numbers that may be missing.
        return np.array(list(x), dtype=np.float64) if x.dtype == object and x.ndim else x
    except (ValueError, TypeError):
        raise EmbeddingsError(
            f"rows are {shorten(data, 60)}; give numbers, as many in each row as in the first."
        ) from None


def _matrix(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Columns of numbers as a matrix; a single column of lists is one embedding per row."""
    if len(columns) == 1:
        (only,) = columns.values()
        return _array(only) if only.dtype == object else only[:, None]
    for name, values in columns.items():
        if values.ndim != 1 or values.dtype.kind not in "fiu":
            raise EmbeddingsError(
                f"column {shorten(name, 40)!r} holds {values.dtype}, and columns of embeddings hold numbers. Leave it out, "
                "or name it as the column of labels or persons."
            )
    return np.column_stack(list(columns.values())) if columns else np.zeros((0, 0))
