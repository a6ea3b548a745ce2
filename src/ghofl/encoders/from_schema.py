"""Tables whose rows are the samples: the schema in a recipe turns them into embeddings."""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.encoders import given
from ghofl.encoders.from_table import TableEncoder
from ghofl.encoders.views import Views
from ghofl.errors import ClippingWarning, DatasetError, EmbeddingsError, SampleError
from ghofl.names import columns_but_not
from ghofl.recipe import Encoder, Recipe, Table
from ghofl.recipe.labels import each_label
from ghofl.rows.embeddings import Rows, load_rows
from ghofl.rows.reader import LABEL, pick, text_of
from ghofl.rows.tables import SUFFIXES, places_in, read_table
from ghofl.shapes import Shaped

Frame = Any  # a DataFrame of pandas or polars, a pyarrow table, or columns by name


def rows_for(
    recipe: Recipe,
    path: str | Path,
    split: str = "",
    label: str = "",
    skip_bad: bool = False,
    row_by_row: bool = False,
) -> Rows:
    """The rows of a file under a recipe: a table through its schema, or embeddings as `load_rows` reads them.

    Embeddings of another encoder than the recipe's are refused.
    With `row_by_row`, for rows under an epsilon, no row is refused and none is removed: one that breaks the schema has no
    label, and one whose embedding cannot be read is not finite, so that neither is counted.
    """
    path = Path(path)
    if recipe.table is None or path.suffix not in SUFFIXES:
        rows = load_rows(path, split, True, label, recipe.encoder.dim if row_by_row else None)
        check_encoder(rows.encoder, recipe, path)
        return rows
    if split:
        raise DatasetError(f"{path} is one table and has no split {split!r}; leave it out.")
    return table_rows(path, recipe.table, label, skip_bad=skip_bad, row_by_row=row_by_row)


def check_encoder(theirs: Encoder | None, recipe: Recipe, where: str | Path) -> None:
    """Raise `EmbeddingsError` when samples or rows come from an encoder whose fingerprint is not the recipe's."""
    agreed = recipe.encoder
    if theirs is not None and theirs.fingerprint and agreed.fingerprint and theirs.fingerprint != agreed.fingerprint:
        is_other = theirs.views != agreed.views
        raise EmbeddingsError(
            f"{where}: the encoder is {theirs.name} ({theirs.fingerprint[:12]}…) and the recipe says {agreed.name} "
            f"({agreed.fingerprint[:12]}…): other weights, preprocessing or pooling"
            + (
                f", or other views: the recipe's has {_views_of(agreed)} and this has {_views_of(theirs)}"
                if is_other
                else ""
            )
            + ". Encode with the recipe's encoder"
            + (f" and its views: ghofl embed {Views.parse(agreed.views).options}" if is_other else "")
            + "."
        )


def _views_of(encoder: Encoder) -> str:
    return f"the views '{encoder.views}'" if encoder.views else "one view"


def table_rows(
    data: str | Path | Frame,
    table: Table,
    label: str = "",
    labelled: bool | None = True,
    skip_bad: bool = False,
    row_by_row: bool = False,
    columns: Mapping[str, Sequence[Any]] | None = None,
) -> Rows:
    """The embeddings of a table's rows with their labels, which are always names.

    `data` is a CSV, TSV, JSON-lines or Parquet file, a DataFrame, or columns by name; `columns` are its own where they have
    been read. A row that breaks the schema is
    named by line, column and value, or left out with `skip_bad`, as is one without a label. Values outside a range, and
    levels that the schema does not list, are counted in a `ClippingWarning`. `row_by_row` is as in `rows_for`.

    >>> from ghofl.recipe import Column
    >>> rows = table_rows({"age": [30, 60], "sick": ["no", "yes"]}, Table((Column("age", "number", low=0, high=120),)), "sick")
    >>> rows.x.tolist(), rows.y.tolist()
    ([[-0.5], [0.0]], ['no', 'yes'])
    """
    columns = columns_of(data) if columns is None else columns
    if row_by_row and not columns:  # a file of JSON lines without a line does not name its columns
        return Rows(np.zeros((0, table.dim), dtype=np.float32), np.zeros(0, dtype=np.str_), table.encoder)
    if row_by_row:
        return _unrefused(columns, label, data, table)
    bad: list[tuple[int, str]] = []
    ((x, _, kept, _),) = encode_blocks([columns], table, data, skip_bad, bad)
    asked = label or table.label
    y = None if labelled is False else labels_of(columns, asked, data, needed=bool(labelled), may_be_empty=skip_bad)
    if y is not None:
        y, has_label = y[kept].astype(np.str_), y[kept] != ""
        place = places_in(data)
        bad += [(int(i), f"{place(int(i))}: the row has no label.") for i in kept[~has_label]]
        x, y = x[has_label], y[has_label]
    for _, why in sorted(bad):
        warnings.warn(f"left out: {why}", ClippingWarning, stacklevel=2)
    return Rows(x, y, table.encoder)


def encode_blocks(
    blocks: Iterable[Mapping[str, Sequence[Any]]], table: Table, data: str | Path | Frame, skip_bad: bool, bad: list
) -> Iterator[tuple[np.ndarray, int, np.ndarray, Mapping[str, Sequence[Any]]]]:
    """For each block of a table's columns: the embeddings, the number of its first row, which of its rows they are, and it.

    A row that breaks the schema raises, or with `skip_bad` goes to `bad` with its number.
    """
    encoder, outside, first, place = TableEncoder(table), Counter[str](), 0, places_in(data)
    where = str(data) if isinstance(data, str | Path) else "the table"
    for columns in blocks:
        encoded = encoder.embed(columns, where)
        if encoded.bad and not skip_bad:
            (i, why), more = encoded.bad[0], len(encoded.bad) - 1
            raise SampleError(
                f"{place(first + i)}: {why}{f' {more} more rows break the schema.' if more else ''} Repair the row, "
                "or leave such rows out with `skip_bad`."
            )
        bad += [(first + i, f"{place(first + i)}: {why}") for i, why in encoded.bad]
        outside.update(encoded.outside)
        kept = np.delete(np.arange(len(encoded.x)), [i for i, _ in encoded.bad])
        yield encoded.x[kept], first, kept, columns
        first += len(encoded.x)
    given.warn_of_outside(outside, where)


def _unrefused(columns: Mapping[str, Sequence[Any]], label: str, data: str | Path | Frame, table: Table) -> Rows:
    """All rows of a table, of which those that break the schema have no label."""
    where = str(data) if isinstance(data, str | Path) else "the table"
    encoded = TableEncoder(table).embed(columns, where, row_by_row=True)
    given.warn_of_outside(encoded.outside, where)
    y = labels_of(columns, label or table.label, data, may_be_empty=True)
    assert y is not None, "they were asked for"
    y[[i for i, _ in encoded.bad]] = ""
    return Rows(encoded.x, y, table.encoder)


def columns_of(data: str | Path | Frame) -> Mapping[str, Sequence[Any]]:
    """The columns of a table, by name; the cells of a file as texts."""
    if isinstance(data, str | Path):
        if not Path(data).is_file():
            raise FileNotFoundError(2, "No such file", str(data))
        return {name: list(map(text_of, values)) for name, values in read_table(Path(data)).items()}
    found = given.columns_of(data)
    if found is not None:
        return found
    raise DatasetError(f"the table is {type(data).__name__}; give a file, a DataFrame or columns by name.")


def labels_of(
    columns: Mapping[str, Sequence[Any]],
    asked: str,
    data: str | Path | Frame,
    needed: bool = True,
    may_be_empty: bool = False,
) -> Shaped[np.ndarray, " n"] | None:
    """The labels in a column of a table, as names; `data` is the source of the columns, for errors.

    A row without a label raises, unless its label `may_be_empty`.
    """
    where = str(data) if isinstance(data, str | Path) else "the table"
    name = pick(columns, asked, LABEL)
    if name is None:
        if needed or asked:
            raise DatasetError(
                f"{where} has {columns_but_not(columns, asked or 'label')}; name the column of labels in `label_column`, or "
                "write label = … into the [table] of the recipe."
            )
        return None
    labels = [text_of(value) for value in columns[name]]
    empty = next((i for i, text in enumerate(labels) if not text), None)
    if empty is not None and not may_be_empty:
        raise SampleError(
            f"{places_in(data)(empty)}: column {name!r} has no label; every row needs one. Write it, or leave such rows out with "
            "`skip_bad`."
        )
    return each_label(labels) if may_be_empty else np.array(labels, dtype=np.str_)
