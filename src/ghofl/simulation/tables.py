"""The data of an experiment from one table: a schema, a split into training and test rows, and their embeddings."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ghofl.encoders.from_schema import columns_of, labels_of, table_rows
from ghofl.errors import DatasetError, IdentifierWarning, RecipeError, warn_once
from ghofl.planning.drafting import IDENTIFIER, schema_of_rows
from ghofl.recipe import Schema, Table
from ghofl.recipe.labels import class_numbers
from ghofl.shapes import Int64
from ghofl.simulation.simulate import Dataset

TEST_SHARE = 0.3


def table_dataset(
    path: str | Path,
    label: str,
    schema: str | Path | None = None,
    *,
    without: Iterable[str] = (),
    seed: int = 0,
    test_share: float = TEST_SHARE,
    is_private: bool = False,
) -> tuple[Dataset, Table]:
    """Training and test rows of a table with labels, and its schema: a given one, or a draft from the training rows.

    The same share of every class becomes test rows, chosen by `seed`. A draft leaves out the columns `without`, and
    identifiers with a warning. Where the run is private, a draft is refused: its ranges would be somebody's values.
    """
    if schema is None and is_private:
        raise RecipeError(
            "a schema drafted from rows reveals somebody's smallest and largest values, which epsilon would not cover; "
            "give one with --schema, drafted from a data dictionary by 'ghofl schema'."
        )
    if not 0 < test_share < 1:
        raise DatasetError(f"the share of test rows is {test_share}; give a number between 0 and 1.")
    columns = columns_of(path)
    if label not in columns:
        raise DatasetError(f"{path} has the columns {', '.join(columns)} but not {label!r}; check --label-column.")
    names = labels_of(columns, label, path)
    assert names is not None
    classes = tuple(sorted(set(names.tolist())))
    y = class_numbers(names, classes)
    train, test = _split(y, test_share, np.random.default_rng(seed))
    if schema is None:
        of_train = {name: [values[i] for i in train] for name, values in columns.items()}
        made = schema_of_rows(of_train, label, without, beside=columns)
        _warn_of_identifiers(made, path)
        table = made.table
    else:
        table = Schema.load(schema).table
    x = table_rows(path, table, label).x
    return Dataset(x[train], y[train], x[test], y[test], classes), table


def _warn_of_identifiers(made: Schema, path: str | Path) -> None:
    for name, why in made.left_out:
        if why == IDENTIFIER:
            told = f"{path}: column {name!r} is left out: {why}. Give a schema with it if it is not one."
            warn_once(("identifier", str(path), name), told, IdentifierWarning, stacklevel=3)


def _split(
    y: Int64[np.ndarray, " n"], test_share: float, rng: np.random.Generator
) -> tuple[Int64[np.ndarray, " train"], Int64[np.ndarray, " test"]]:
    """Positions of training and test rows; the same share of every class, rounded down, is for the test."""
    test: list[int] = []
    for c in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == c))
        test += rows[: int(test_share * len(rows))].tolist()
    return np.setdiff1d(np.arange(len(y)), test), np.array(sorted(test), dtype=np.int64)
