"""The rows of an experiment, from whatever a user has: arrays, DataFrames, files, with class names or numbers."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from ghofl.encoders.from_schema import columns_of, labels_of, table_rows
from ghofl.encoders.given import columns_of as frame_columns
from ghofl.encoders.given import embeddings_of
from ghofl.errors import DatasetError, EmbeddingsError, IdentifierWarning, RecipeError
from ghofl.names import columns_but_not
from ghofl.planning.drafting import IDENTIFIER, schema_of_rows
from ghofl.recipe import OPTIONS, Schema, Table
from ghofl.recipe import labels as given_labels
from ghofl.recipe.labels import class_numbers
from ghofl.rows import classes_of, load_rows
from ghofl.rows.from_text import SUFFIXES
from ghofl.shapes import Int64, Num

TEST_SHARE = 0.3
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
KEYWORDS = ("classes", "label_column", "schema", "without")


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Training and test rows of one experiment, with labels as class numbers."""

    x_train: Num[np.ndarray, "n dim"] = field(repr=False)
    y_train: Int64[np.ndarray, " n"] = field(repr=False)
    x_test: Num[np.ndarray, "m test_dim"] = field(repr=False)
    y_test: Int64[np.ndarray, " m"] = field(repr=False)
    classes: tuple[str, ...]

    @classmethod
    def load(cls, path: str | Path) -> "Dataset":
        """The rows of a file with x_train, y_train, x_test and y_test; its classes are those of the training rows."""
        train, test = load_rows(path, "train"), load_rows(path, "test")
        try:
            return cls.of((train.x, train.y), (test.x, test.y))
        except EmbeddingsError as error:
            raise EmbeddingsError(f"{path}: {error}") from None

    @classmethod
    def of(cls, train: tuple[Any, Any], test: tuple[Any, Any], classes: Iterable[str] | None = None) -> "Dataset":
        """Rows and labels for training and for the test, as arrays, lists or DataFrames.

        Labels are names or class numbers. The classes are those of the training labels; `classes` are all names, in the
        order of class numbers.

        >>> Dataset.of(([[0.0], [1.0]], ["cat", "dog"]), ([[0.5]], ["dog"])).y_test
        array([1])
        """
        (x, y), (x_test, y_test) = (
            (embeddings_of(rows), given_labels.labels_of(labels)) for rows, labels in (train, test)
        )
        names = classes_of(y) if classes is None else tuple(classes)
        numbers = [class_numbers(labels, names, classes is not None) for labels in (y, y_test)]
        for rows, of_rows, which in ((x, numbers[0], "training"), (x_test, numbers[1], "test")):
            if len(rows) != len(of_rows):
                raise EmbeddingsError(f"{len(of_rows)} labels for {len(rows)} {which} rows; give one label per row.")
        return cls(x, numbers[0], x_test, numbers[1], names)

    def __post_init__(self) -> None:
        if self.x_train.shape[1] != self.x_test.shape[1]:
            raise EmbeddingsError(
                f"training rows have {self.x_train.shape[1]} numbers and test rows {self.x_test.shape[1]}; "
                "encode both with one encoder."
            )
        if not len(self.x_test):
            raise EmbeddingsError("there are no test rows, and a head is judged on at least one; give more rows.")


Loaded = tuple[Dataset, Table | None]
Source = Dataset | Callable[[int], Loaded]  # from a seed, where training and test rows are drawn


def source_of(
    data: Any,
    classes: Iterable[str] | None = None,
    label_column: str = "",
    schema: Schema | str | Path | None = None,
    without: Iterable[str] = (),
    is_private: bool = False,
) -> Source:
    """The rows of an experiment, or a function that draws them by a seed, from what a user has.

    ============================================  =======================================================================
    `((x_train, y_train), (x_test, y_test))`      embeddings and labels
    `(x, y)`                                      the same, of which 30 % of every class, by seed, are test rows
    arrays by name, or the path of their file     `x_train`, `y_train`, `x_test` and `y_test`
    a DataFrame or the path of a table            with a `label_column`; columns go through a `schema`, or a draft of one
    a `Dataset`, or a function from a seed        as it is
    ============================================  =======================================================================
    """
    if isinstance(data, Dataset) or (callable(data) and not hasattr(data, "columns")):
        return cast("Source", data)
    if label_column:
        if classes is not None:
            raise DatasetError(f"the classes of a table are those in {label_column!r}; leave out `classes`.")
        return _table_source(data, label_column, schema, tuple(without), is_private)
    if schema is not None or tuple(without):
        raise DatasetError(
            "a schema and columns to leave out are about a table with labels in a column; name the column in "
            f"`label_column` beside {'schema' if schema is not None else 'without'}."
        )
    if isinstance(data, str | Path):
        if Path(data).suffix in SUFFIXES:
            raise DatasetError(f"{data} is a table; name its column of labels in `label_column`.")
        loaded = Dataset.load(data)
        return loaded if classes is None else replace(loaded, classes=_renamed(loaded, tuple(classes)))
    if isinstance(data, Mapping) and set(ARRAYS) <= set(data):
        return Dataset.of((data["x_train"], data["y_train"]), (data["x_test"], data["y_test"]), classes)
    return _source_of_pairs(data, classes)


def split_keywords(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `source_of` takes, and the options of a recipe, among keywords of an experiment; any other raises."""
    for name in given:
        if name not in (*KEYWORDS, *OPTIONS):
            raise DatasetError(
                f"there is no parameter {name!r}; beside those in the signature there are {', '.join(KEYWORDS)}, and the "
                f"options of a recipe: {', '.join(OPTIONS)}."
            )
    return {k: v for k, v in given.items() if k in KEYWORDS}, {k: v for k, v in given.items() if k in OPTIONS}


def load(source: Source, seed: int) -> Loaded:
    """The rows of an experiment under a seed, and their schema where they come from a table."""
    return (source, None) if isinstance(source, Dataset) else source(seed)


def _source_of_pairs(data: Any, classes: Iterable[str] | None) -> Source:
    is_pair = isinstance(data, tuple | list) and len(data) == 2
    if is_pair and all(isinstance(each, tuple | list) and len(each) == 2 and _is_rows(each[0]) for each in data):
        return Dataset.of(tuple(data[0]), tuple(data[1]), classes)
    if is_pair and _is_rows(data[0]):
        x, y = embeddings_of(data[0]), given_labels.labels_of(data[1])
        names = classes_of(y) if classes is None else tuple(classes)
        numbers = class_numbers(y, names, classes is not None)
        if len(numbers) != len(x):
            raise EmbeddingsError(f"{len(numbers)} labels for {len(x)} rows; give one label per row.")
        return lru_cache(maxsize=1)(lambda seed: (_drawn(x, numbers, names, seed), None))
    if frame_columns(data) is not None:
        raise DatasetError(
            "data is a table; name its column of labels in `label_column`, or give (embeddings, labels)."
        )
    raise DatasetError(
        f"data is {type(data).__name__}{f' of {len(data)}' if hasattr(data, '__len__') else ''}; give (x, y), "
        "((x_train, y_train), (x_test, y_test)), arrays by the names x_train, y_train, x_test and y_test, or a file."
    )


def _is_rows(value: Any) -> bool:
    """Whether it looks like rows: an array of two dimensions, a DataFrame, or a list of lists."""
    if isinstance(value, np.ndarray):
        return value.ndim == 2
    if isinstance(value, list | tuple):
        return len(value) > 0 and isinstance(value[0], list | tuple | np.ndarray) and np.ndim(value[0]) == 1
    return frame_columns(value) is not None


def _renamed(data: Dataset, classes: tuple[str, ...]) -> tuple[str, ...]:
    if len(classes) < len(data.classes) or any(name != str(i) for i, name in enumerate(data.classes)):
        raise DatasetError(
            f"`classes` are {len(classes)} names, and the file has the classes {', '.join(data.classes[:5])}, …; names are for "
            "files of class numbers, one name per number."
        )
    return classes


def _drawn(x: np.ndarray, y: np.ndarray, classes: tuple[str, ...], seed: int) -> Dataset:
    train, test = _split(y, TEST_SHARE, np.random.default_rng(seed))
    return Dataset(x[train], y[train], x[test], y[test], classes)


def table_dataset(
    rows: Any,
    label_column: str,
    schema: Schema | str | Path | None = None,
    *,
    without: Iterable[str] = (),
    seed: int = 0,
    test_share: float = TEST_SHARE,
    is_private: bool = False,
) -> Loaded:
    """Training and test rows of a table with labels, and its schema: a given one, or a draft from the training rows.

    `rows` are a DataFrame or a file. The same share of every class becomes test rows, chosen by `seed`. A draft leaves out
    the columns `without`, and identifiers with a warning. Where the run is private, a draft is refused: its ranges would be
    somebody's values.
    """
    return _table_source(rows, label_column, schema, tuple(without), is_private, test_share)(seed)


def _table_source(
    rows: Any, label_column: str, schema: Schema | str | Path | None, without: tuple[str, ...], is_private: bool,
    test_share: float = TEST_SHARE,
) -> Callable[[int], Loaded]:  # fmt: skip
    """What `table_dataset` gives for a seed; the table is read once for all of them."""
    if schema is None and is_private:
        raise RecipeError(
            "a schema drafted from rows reveals somebody's smallest and largest values, which epsilon would not cover; "
            "give one with `schema`, drafted from a data dictionary by 'ghofl schema'."
        )
    if schema is not None and without:
        raise DatasetError(
            f"a schema is given, and `without` ({', '.join(without)}) is about a draft; give one of the two."
        )
    if not 0 < test_share < 1:
        raise DatasetError(f"the share of test rows is {test_share}; give a number between 0 and 1.")
    columns, where = columns_of(rows), str(rows) if isinstance(rows, str | Path) else "the table"
    if label_column not in columns:
        raise DatasetError(f"{where} has {columns_but_not(columns, label_column)}; check `label_column`.")
    names = labels_of(columns, label_column, rows)
    assert names is not None
    classes = tuple(sorted(set(names.tolist())))
    y = class_numbers(names, classes)
    given = schema if schema is None or isinstance(schema, Schema) else Schema.load(schema)

    @lru_cache(maxsize=1)
    def drawn(seed: int) -> Loaded:
        train, test = _split(y, test_share, np.random.default_rng(seed))
        made = given
        if made is None:
            of_train = {name: [values[i] for i in train] for name, values in columns.items()}
            made = schema_of_rows(of_train, label_column, without, beside=columns)
            _warn_of_identifiers(made, where)
        x = table_rows(rows, made.table, label_column, columns=columns).x
        return Dataset(x[train], y[train], x[test], y[test], classes), made.table

    return drawn


def _warn_of_identifiers(made: Schema, where: str) -> None:
    for name, why in made.left_out:
        if why == IDENTIFIER:
            told = f"{where}: column {name!r} is left out: {why}. Give a schema with it if it is not one."
            warnings.warn(told, IdentifierWarning, stacklevel=4)


def _split(
    y: Int64[np.ndarray, " n"], test_share: float, rng: np.random.Generator
) -> tuple[Int64[np.ndarray, " train"], Int64[np.ndarray, " test"]]:
    """Positions of training and test rows; the same share of every class, rounded down, is for the test."""
    test: list[int] = []
    for c in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == c))
        test += rows[: int(test_share * len(rows))].tolist()
    return np.setdiff1d(np.arange(len(y)), test), np.array(sorted(test), dtype=np.int64)
