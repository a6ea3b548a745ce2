"""The rows of a site from its files: embeddings, or samples with the encoder that has yet to run.

A limit on the rows per person turns a promise about single rows into one about persons.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ghofl import encoders
from ghofl.encoders import Runtime, SampleEncoder
from ghofl.encoders.embed import Bad, load_encoder
from ghofl.encoders.from_schema import check_encoder, rows_for
from ghofl.errors import DatasetError, EmbeddingsError, PrivacyError
from ghofl.names import columns_but_not
from ghofl.recipe import Recipe
from ghofl.rows import Columns, Samples, drop_bad, load_samples
from ghofl.rows.from_arrays import open_arrays
from ghofl.rows.reader import name_array, text_of
from ghofl.rows.tables import open_table
from ghofl.shapes import Int64, Num, Shaped

ARRAYS = ".npz"


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """Rows of a site as embeddings and class numbers, with the rows that were left out."""

    x: Num[np.ndarray, "n dim"] = field(repr=False)
    y: Int64[np.ndarray, " n"] = field(repr=False)
    bad: tuple[Bad, ...] = field(default=(), repr=False)
    rows_per_person: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Encodable:
    """Rows of a site that an encoder still has to make: samples with labels, and how to run the encoder on them."""

    samples: Samples = field(repr=False)
    encoder: SampleEncoder = field(repr=False)
    runtime: Runtime | None = None
    batch_size: int = 0
    skip_bad: bool = False
    labels_are_numbers: bool = False
    rows_per_person: int | None = None


def load_embedded(
    recipe: Recipe,
    path: str | Path,
    split: str = "",
    *,
    label: str = "",
    skip_bad: bool = False,
    labels_are_numbers: bool = False,
) -> Embedded:
    """Rows of a file of embeddings that the recipe's encoder made, with class numbers; `skip_bad` leaves some out.

    Under a recipe with a table, the file may be one that follows its schema. Under an epsilon no row is refused: those that
    do not fit are left out when the others are counted (see `count`).
    """
    if recipe.privacy.epsilon is not None:
        rows = rows_for(recipe, path, split, label, row_by_row=True)
        return Embedded(rows.x, rows.numbers(recipe.classes, labels_are_numbers, row_by_row=True))
    rows = rows_for(recipe, path, split, label, skip_bad)
    rows, bad = drop_bad(rows) if skip_bad else (rows, [])
    return Embedded(rows.x, rows.numbers(recipe.classes, labels_are_numbers), tuple(bad))


def load_encodable(
    recipe: Recipe,
    data: str,
    encoder: str,
    split: str = "",
    *,
    columns: Columns | None = None,
    runtime: Runtime | None = None,
    weights: str | Path | None = None,
    pooling: str | None = None,
    fit: str | None = None,
    skip_bad: bool = False,
    labels_are_numbers: bool = False,
) -> Encodable:
    """Samples and the encoder of a spec, or the recipe's by its name, with its views; options as in `encoders.load`.

    Under an epsilon no sample is refused: those that do not fit are left out when the others are counted.
    """
    if recipe.table is not None:
        raise EmbeddingsError(
            f"{data} is given as samples, and the recipe reads rows of tables by its schema; give it as the file of rows: "
            "'ghofl moments FILE', or embeddings = \"FILE\" in the site's file."
        )
    is_private = recipe.privacy.epsilon is not None
    dim = recipe.encoder.dim if is_private else None
    samples = load_samples(data, split, columns, dim)
    encoder = encoders.spec_for(recipe.encoder, encoder, data)
    views = encoders.agreed_views(encoder, recipe.encoder)
    loaded = load_encoder(encoder, samples, runtime, weights=weights, pooling=pooling, fit=fit, views=views, dim=dim)
    check_encoder(encoders.identity(loaded), recipe, data)
    return Encodable(samples, loaded, runtime, skip_bad=skip_bad or is_private, labels_are_numbers=labels_are_numbers)


def limit_persons(
    rows: Embedded | Encodable, recipe: Recipe, source: str, split: str, column: str, own: int | None
) -> Embedded | Encodable:
    """The rows, limited to so many per person by a column of their file; all of them without a column."""
    if not column:
        if own is not None:
            raise EmbeddingsError("rows_per_person needs the column that says who a row is about; write person too.")
        return rows
    most, is_private = rows_per_person(recipe, own), recipe.privacy.epsilon is not None
    if isinstance(rows, Embedded):
        persons = load_persons(source, column, split, len(rows.x), is_private)
        return first_embedded(rows, persons, most)
    keep = first_rows(load_persons(source, column, split, len(rows.samples), is_private), most)
    return replace(rows, samples=rows.samples.only(keep), rows_per_person=most)


def first_embedded(rows: Embedded, persons: Shaped[np.ndarray, " n"], most: int) -> Embedded:
    """The first `most` rows of every person; rows without a person are bad ones."""
    keep, is_nobody = (
        first_rows(persons, most),
        persons == "" if persons.dtype.kind in "UT" else np.zeros(len(persons), bool),
    )
    nobody = tuple((int(i), f"row {i} has no person") for i in np.flatnonzero(is_nobody))
    return Embedded(rows.x[keep], rows.y[keep], (*rows.bad, *nobody), most)


def first_rows(persons: Shaped[np.ndarray, " n"], most: int) -> Int64[np.ndarray, " kept"]:
    """The positions of the first `most` rows of every person, in order; rows without a person are left out.

    Which rows of a person count depends on that person's rows alone, so adding a person changes nobody else's.

    >>> first_rows(np.array(["ann", "bob", "ann", "ann"]), 2)
    array([0, 1, 2])
    """
    order = np.argsort(persons, kind="stable")
    sorted_persons = persons[order]
    starts = (
        np.flatnonzero(np.r_[True, sorted_persons[1:] != sorted_persons[:-1]]) if len(persons) else np.empty(0, int)
    )
    lengths = np.diff(np.r_[starts, len(persons)])
    place = np.arange(len(persons)) - np.repeat(starts, lengths)
    has_person = sorted_persons != persons.dtype.type("") if persons.dtype.kind in "US" else True
    return np.sort(order[(place < most) & has_person]).astype(np.int64)


def load_persons(
    path: str | Path, column: str, split: str, rows: int, row_by_row: bool = False
) -> Shaped[np.ndarray, " rows"]:
    """Who each row of a file is about: an array of an .npz (``person``, or ``person_train``), or a column of a table.

    A row without a person raises; with `row_by_row` its person is empty, and `first_rows` leaves it out.
    """
    path = Path(path)
    if path.suffix == ARRAYS:
        names = [f"{column}_{split}", column] if split else [column, f"{column}_train"]
        with open_arrays(path) as file:
            name = next((name for name in names if name in file.names), None)
            parts = [] if name is None else [block[name] for block in file.blocks([name], 0)]
        found = np.concatenate(parts) if len(parts) > 1 else next(iter(parts), None)
        if row_by_row and found is not None and found.dtype.kind == "f" and found.ndim == 1:
            found = _digests(map(text_of, found))  # whole numbers beside a missing one
    elif path.is_file():
        with open_table(path) as file:
            names = file.names
            blocks = file.blocks([column], 0) if column in file.cells else ()
            values = [text_of(value) for block in blocks for value in block[column]]
        if column not in names and (names or not row_by_row):  # JSON lines without a line do not name their columns
            raise DatasetError(f"{path} has {columns_but_not(names, column)}; check the column of persons.")
        found = _digests(values) if row_by_row else name_array(values, f"{path}, column {column!r}").astype(np.str_)
    else:
        raise EmbeddingsError(
            f"{path} is not a file with a column of persons; give an .npz or a table with {column!r}."
        )
    if found is None or found.ndim != 1 or len(found) != rows or found.dtype.kind not in "iuUS":
        came = "does not exist" if found is None else f"has shape {found.shape} and {found.dtype}"
        raise EmbeddingsError(
            f"{path}: the column {column!r} of persons {came}; it needs one id per row, {rows} of them (remove bad "
            "rows from the file, as --skip-bad does not work here)."
        )
    if not row_by_row and found.dtype.kind in "US" and bool(np.any(found == found.dtype.type(""))):
        raise EmbeddingsError(f"{path}: {column!r} has rows without a person; every row needs an id.")
    return found


def _digests(names: Iterable[str]) -> Shaped[np.ndarray, " n"]:
    """Names as digests of one width, so that no long name decides how much memory the others take; empty ones stay."""
    digests = [name and hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32] for name in names]
    return np.array(digests, dtype="U32")


def rows_per_person(recipe: Recipe, own: int | None) -> int:
    """How many rows of one person count: the recipe's number or the site's own, whichever is smaller."""
    agreed = recipe.privacy.person_rows
    if own is not None and own < 1:
        raise PrivacyError(f"rows per person is {own}; write 1 or more.")
    if agreed is None and own is None:
        raise PrivacyError(
            "nothing says how many rows of one person count; give that number, or a recipe with person_rows."
        )
    return min(each for each in (agreed, own) if each is not None)


def check_persons(recipe: Recipe, limited_to: int | None) -> None:
    """Raise unless rows were limited to at most the recipe's number per person."""
    agreed = recipe.privacy.person_rows
    if agreed is not None and (limited_to is None or limited_to > agreed):
        raise PrivacyError(
            f"the recipe counts at most {agreed} rows of one person, and who these rows are about is not known; name the "
            'column of persons: ghofl moments --person COLUMN, or person = "COLUMN" in the site\'s file.'
        )
