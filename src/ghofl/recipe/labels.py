"""Labels as a recipe knows them: names, or positions in its list of classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ghofl.errors import EmbeddingsError
from ghofl.names import shorten
from ghofl.shapes import Int64, Shaped


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
    for i, label in enumerate(found):
        if not isinstance(label, str):
            raise EmbeddingsError(
                f"{what} {shorten(label, 40)} of row {i} is of type {type(label).__name__}; {what}s are all names (texts), or "
                "all whole numbers, one for every row."
            )
    return np.array(found, dtype=np.str_)


def each_label(values: Sequence[Any]) -> Shaped[np.ndarray, " n"]:
    """Labels of which each is a text or a whole number, and empty where a row has neither.

    >>> each_label(["cat", 1, None, 0.5]).tolist()
    ['cat', 1, '', '']
    """
    out = np.full(len(values), "", dtype=object)
    for i, value in enumerate(values):
        out[i] = value if isinstance(value, str) else _whole(value)
    return out


def _whole(value: Any) -> Any:
    """A whole number as an int, and an empty text for anything else.

    One missing label makes 1.0 of every 1 in a column of numbers (in pandas, and in what it writes): that row must not
    decide what becomes of the others.
    """
    if isinstance(value, float | np.floating) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | np.integer) and not isinstance(value, bool) else ""


def classes_of(labels: Shaped[np.ndarray, " n"]) -> tuple[str, ...]:
    """The classes that labels name: the names in order, or 0 … C−1 for whole numbers up to C−1.

    >>> classes_of(np.array(["dog", "cat"])), classes_of(np.array([2, 0]))
    (('cat', 'dog'), ('0', '1', '2'))
    """
    if labels.dtype.kind in "iu":
        if labels.min(initial=0) < 0:
            raise EmbeddingsError(f"labels start at {labels.min()}; write class numbers from 0 on.")
        return tuple(map(str, range(int(labels.max(initial=0)) + 1)))
    return tuple(sorted(set(_names(labels))))


def class_numbers(
    labels: Shaped[np.ndarray, " n"], classes: tuple[str, ...], labels_are_numbers: bool = False
) -> Int64[np.ndarray, " n"]:
    """Labels as positions in `classes`: texts are looked up, whole numbers are already positions.

    Whole numbers are accepted where the classes are called 0 … C−1 in this order, or where the caller says that
    `labels_are_numbers`: with names in another order, they would silently mean other classes.

    >>> class_numbers(np.array(["dog", "cat"]), ("cat", "dog"))
    array([1, 0])
    >>> class_numbers(np.array([1, 0]), ("cat", "dog"), labels_are_numbers=True)
    array([1, 0])
    """
    if labels.dtype.kind in "iu":
        if not labels_are_numbers and classes != tuple(map(str, range(len(classes)))):
            raise EmbeddingsError(
                f"labels are whole numbers and the recipe's classes have names ({_some(classes)}); write names, or "
                "confirm that 0 is the first class of the recipe, 1 the second and so on: `labels_are_numbers`, or "
                "labels_are_numbers = true in the site file."
            )
        numbers = labels.astype(np.int64)
        outside = (numbers < 0) | (numbers >= len(classes))
    else:
        position = {name: i for i, name in enumerate(classes)}
        numbers = np.array([position.get(name, -1) for name in _names(labels)], dtype=np.int64)
        outside = numbers < 0
    if outside.any():
        unknown = list(dict.fromkeys(map(str, labels[outside].tolist())))
        many = int(outside.sum())
        also = f", nor {shorten(', '.join(map(repr, unknown[1:])), 80)}" if len(unknown) > 1 else ""
        raise EmbeddingsError(
            f"label {labels[outside].tolist()[0]!r} of row {int(outside.argmax())} is not in the recipe's "
            f"{len(classes)} classes ({_some(classes)}){also}; {f'{many:,} rows have' if many > 1 else '1 row has'} "
            "such a label. Correct the labels, or agree on a recipe with these classes."
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
    counts = len(classes) if labels_are_numbers or classes == tuple(map(str, range(len(classes)))) else 0
    if labels.dtype.kind in "iu":
        return np.where((labels >= 0) & (labels < counts), labels, -1).astype(np.int64)
    position = {name: i for i, name in enumerate(classes)}

    def number(label: Any) -> int:
        if isinstance(label, str):
            return position.get(label, -1)
        whole = _whole(label)
        return int(whole) if whole != "" and 0 <= whole < counts else -1

    return np.array([number(label) for label in labels], dtype=np.int64)


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
