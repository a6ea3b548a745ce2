"""Labels as a recipe knows them: names, or positions in its list of classes.

A missing label is an empty text among names, and −1 among whole numbers.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ghofl.errors import EmbeddingsError
from ghofl.names import shorten
from ghofl.recipe.recipe import MAX_CLASSES
from ghofl.shapes import Bool, Int64, Shaped


def labels_of(values: Any, what: str = "label", row_by_row: bool = False) -> Shaped[np.ndarray, " n"]:
    """Labels from a user (a list, an array, a column of a DataFrame) as an array of texts or of whole numbers.

    With `row_by_row` each is what it is in its own row, and empty where it cannot be a label.

    >>> labels_of(["cat", "dog"]).tolist(), labels_of(np.array([1, 0], dtype=object)).dtype.kind
    (['cat', 'dog'], 'i')
    """
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise EmbeddingsError(f"{what}s are {type(values).__name__}; give one {what} per row, as a list or an array.")
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise EmbeddingsError(f"{what}s have shape {values.shape}; give one {what} per row.")
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuUT":
        return values
    listing = next((way for way in ("tolist", "to_list", "to_pylist") if hasattr(values, way)), "")
    found = getattr(values, listing)() if listing else list(values)  # numpy, pandas; polars; pyarrow
    if row_by_row:
        return each_label(found)
    numbers = [isinstance(label, int | np.integer) and not isinstance(label, bool) for label in found]
    if found and all(numbers):
        return np.array(found, dtype=np.int64)
    if nowhere := [i for i, label in enumerate(found) if is_nothing(label)]:
        more = f", nor have {len(nowhere) - 1:,} more" if len(nowhere) > 1 else ""
        raise EmbeddingsError(f"row {nowhere[0]} has no {what} ({found[nowhere[0]]}){more}; every row needs one.")
    for i, label in enumerate(found):
        if not isinstance(label, str):
            raise EmbeddingsError(
                f"{what} {shorten(label, 40)} of row {i} is of type {type(label).__name__}; {what}s are all names (texts), or "
                "all whole numbers, one for every row."
            )
    return np.array(found, dtype=np.str_)


def is_nothing(value: Any) -> bool:
    """Whether a value stands for a missing one: None, NaN, or what pandas has for them."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def each_label(values: Sequence[Any]) -> Shaped[np.ndarray, " n"]:
    """Labels of which each is a text or a whole number, and empty where a row has neither.

    >>> each_label(["cat", 1, None, 0.5]).tolist()
    ['cat', 1, '', '']
    """
    out = np.full(len(values), "", dtype=object)
    for i, value in enumerate(values):
        out[i] = value if isinstance(value, str) else whole_number(value)
    return out


def whole_number(value: Any) -> int | str:
    """A whole number as an int, and an empty text for anything else.

    One missing label makes 1.0 of every 1 in a column of numbers (in pandas, and in what it writes): that row must not
    decide what becomes of the others.
    """
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return int(value) if is_whole or (isinstance(value, float | np.floating) and value.is_integer()) else ""


def is_missing(labels: Shaped[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Which rows have no label: an empty text, or a number below 0, with which data sets hide theirs.

    >>> is_missing(np.array([1, -1])), is_missing(np.array(["", "cat"]))
    (array([False,  True]), array([ True, False]))
    """
    if labels.dtype.kind in "iu":
        return labels < 0
    return np.array(labels == "", dtype=bool) if labels.dtype.kind in "UTO" else np.zeros(len(labels), dtype=bool)


def check_present(labels: Shaped[np.ndarray, " n"]) -> None:
    """Raise `EmbeddingsError`, which names rows, unless every row has a label."""
    rows = np.flatnonzero(is_missing(labels))
    if len(rows):
        named = ", ".join(map(str, rows[:5].tolist())) + (f" and {len(rows) - 5:,} more" if len(rows) > 5 else "")
        named = f"row {named} has" if len(rows) == 1 else f"rows {named} have"
        raise EmbeddingsError(
            f"{named} no label ({labels[rows[:1]].tolist()[0]!r}); every row needs one. Write it, or leave such rows out with "
            "`skip_bad`; where -1 is a class, write it as a text."
        )


def classes_of(labels: Shaped[np.ndarray, " n"]) -> tuple[str, ...]:
    """The classes that labels name, in order.

    Whole numbers up to C−1 of which at least half occur are positions: the classes are 0 … C−1, so that a site that lacks one
    makes the same recipe as the others. Any others, such as years, are names.

    >>> classes_of(np.array(["dog", "cat"])), classes_of(np.array([2, 0])), classes_of(np.array([2024, 2023]))
    (('cat', 'dog'), ('0', '1', '2'), ('2023', '2024'))
    """
    check_present(labels)
    if labels.dtype.kind not in "iu":
        return tuple(sorted(set(_names(labels))))
    found = np.unique(labels).tolist()
    names = range(found[-1] + 1) if found and found[-1] < 2 * len(found) else found
    if len(names) > MAX_CLASSES:
        raise EmbeddingsError(
            f"labels are {len(names):,} different numbers, and a recipe has at most {MAX_CLASSES:,} classes; give the classes, "
            "or name another column of labels."
        )
    return tuple(map(str, names))


def class_numbers(
    labels: Shaped[np.ndarray, " n"],
    classes: tuple[str, ...],
    labels_are_numbers: bool = False,
    may_be_missing: bool = False,
) -> Int64[np.ndarray, " n"]:
    """Labels as positions in `classes`, in which texts and whole numbers are looked up: 7 is the class called 7.

    Where `labels_are_numbers`, whole numbers are positions already. With names in another order, they would silently mean
    other classes, so the caller has to say so. A missing label raises, or is −1 where labels `may_be_missing`.

    >>> class_numbers(np.array(["dog", "cat"]), ("cat", "dog"))
    array([1, 0])
    >>> class_numbers(np.array([1, 0]), ("cat", "dog"), labels_are_numbers=True)
    array([1, 0])
    """
    if not may_be_missing:
        check_present(labels)
    are_whole = labels.dtype.kind in "iu"
    numbers = _places(labels if are_whole else np.array(_names(labels)), classes, labels_are_numbers)
    outside = (numbers < 0) & ~is_missing(labels)
    if outside.any():
        unknown = list(dict.fromkeys(map(str, labels[outside].tolist())))
        many = int(outside.sum())
        also = f", nor {shorten(', '.join(map(repr, unknown[1:])), 80)}" if len(unknown) > 1 else ""
        raise EmbeddingsError(
            f"label {labels[outside].tolist()[0]!r} of row {int(outside.argmax())} is not in the recipe's "
            f"{len(classes)} classes ({_some(classes)}){also}; {f'{many:,} rows have' if many > 1 else '1 row has'} "
            "such a label. Correct the labels, or agree on a recipe with these classes."
            + (
                " If 0 is the first class of the recipe, 1 the second and so on, confirm it: `labels_are_numbers`, or "
                "labels_are_numbers = true in the site file."
                if are_whole and not labels_are_numbers
                else ""
            )
        )
    return numbers


def numbers_row_by_row(
    labels: Shaped[np.ndarray, " n"], classes: tuple[str, ...], labels_are_numbers: bool = False
) -> Int64[np.ndarray, " n"]:
    """Labels as positions in `classes`, and −1 for each that is not one of them: nothing is refused.

    For rows under an epsilon. What becomes of a row depends on that row alone, so a row more or less never stops a site.

    >>> numbers_row_by_row(np.array(["dog", "cow", ""]), ("cat", "dog"))
    array([ 1, -1, -1])
    >>> numbers_row_by_row(np.array([1, 7, 0]), ("cat", "dog"), labels_are_numbers=True)
    array([ 1, -1,  0])
    """
    return _places(labels if labels.dtype.kind in "iuUT" else each_label(labels.tolist()), classes, labels_are_numbers)


def _places(
    labels: Shaped[np.ndarray, " n"], classes: tuple[str, ...], labels_are_numbers: bool
) -> Int64[np.ndarray, " n"]:
    """Labels as positions in `classes`, and −1 for each that is not one of them."""
    position: dict[Any, int] = {name: i for i, name in enumerate(classes)}
    key = (lambda label: label) if labels_are_numbers else str
    position |= {i: i for i in range(len(classes))} if labels_are_numbers else {}
    # Objects may be of types that have no order.
    found, rows = (labels, slice(None)) if labels.dtype.kind == "O" else np.unique(labels, return_inverse=True)
    return np.array([position.get(key(label), -1) for label in found.tolist()], dtype=np.int64)[rows]


def _some(classes: tuple[str, ...]) -> str:
    return ", ".join(classes[:5]) + (", …" if len(classes) > 5 else "")


def _names(labels: Shaped[np.ndarray, " n"]) -> list[str]:
    """Labels that are class names, as texts."""
    if labels.dtype.kind in "UT":
        return [str(label) for label in labels]
    if labels.dtype.kind != "O":
        raise EmbeddingsError(
            f"labels have dtype {labels.dtype}; write class numbers (integers) or class names (texts)."
        )
    for i, label in enumerate(labels):
        if not isinstance(label, str):
            raise EmbeddingsError(
                f"label {label!r} of row {i} is a {type(label).__name__}, and in an array of objects labels must be texts; "
                "write all labels as texts, or all as integers in an integer array."
            )
    return [str(label) for label in labels]
