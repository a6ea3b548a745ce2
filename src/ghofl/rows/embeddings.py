"""Files of embeddings and labels: arrays, or columns of lists, whole or a block at a time.

Rows that take more than `IN_MEMORY` bytes go to an anonymous temporary file that is mapped into memory, so that a file
may be larger than memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ghofl import files
from ghofl.compute import arrays
from ghofl.errors import EmbeddingsError
from ghofl.names import shorten
from ghofl.recipe import Encoder
from ghofl.recipe.labels import class_numbers, is_missing, numbers_row_by_row
from ghofl.rows import from_arrays, from_arrow
from ghofl.rows.from_arrays import damage_as
from ghofl.rows.from_arrow import Ragged
from ghofl.rows.reader import OpenFile, labels_in, pick
from ghofl.shapes import Int64, Num, Shaped

SUFFIXES = (*from_arrays.SUFFIXES, *from_arrow.SUFFIXES)
NAME, FINGERPRINT, VIEWS = "encoder", "encoder_fingerprint", "encoder_views"
EMBEDDING = ("x", "embedding")
IN_MEMORY = 2**28
BATCH = 4096  # rows of a column of lists that are read at once


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Embeddings and, if the file has them, their labels (class numbers or names) and their encoder."""

    x: Num[np.ndarray, "n dim"] = field(repr=False)
    y: Shaped[np.ndarray, " n"] | None = field(default=None, repr=False)
    encoder: Encoder | None = None

    def numbers(
        self, classes: tuple[str, ...], labels_are_numbers: bool = False, row_by_row: bool = False
    ) -> Int64[np.ndarray, " n"]:
        """The labels as class numbers (see `class_numbers`); the rows must have been read with labels.

        With `row_by_row`, a label that is not a class is −1 (see `numbers_row_by_row`).
        """
        assert self.y is not None
        return (numbers_row_by_row if row_by_row else class_numbers)(self.y, classes, labels_are_numbers)


class RowFile(NamedTuple):
    """An open file of embeddings: how many rows it has, how long they are (None before lists are read), its encoder
    where it says so, and its blocks: rows, and their labels and ids as the file has them, or None.
    """

    rows: int
    dim: int | None
    encoder: Encoder | None
    blocks: Iterator[tuple[np.ndarray, Any, Any]]


def load_rows(
    path: str | Path,
    split: str = "",
    labelled: bool | None = True,
    label: str = "",
    row_by_row: int | None = None,
) -> Rows:
    """The rows of a file: arrays ``x`` and ``y``, or ``x_train``/``y_train`` with split ``train``, and so on.

    Files are .npz, .safetensors, .parquet, .arrow or .feather (a column of lists, ``x`` or ``embedding``, and a
    `label` column) or .npy, whose labels are in NAME.labels.npy beside it. Without a split, ``x``/``y`` are read, or
    ``x_train``/``y_train`` if only those are there. With `labelled` None, labels are read if there are any. Nothing pickled
    is ever loaded. With `row_by_row`, the length that rows should have, rows of another length or without a label are not
    refused: they are not finite, or have no label.
    """
    path = Path(path)
    x, labels, done = None, [], 0
    with open_rows(path, 0, split, label=label, labelled=labelled, row_by_row=row_by_row) as file:
        for some, y, _ in file.blocks:
            if x is None:
                with damage_as(f"{path} is damaged; write it again."):  # it may claim more rows than fit anywhere
                    shape = (file.rows, some.shape[1])
                    x = some if len(some) == file.rows else arrays.zeros(shape, some.dtype, most=IN_MEMORY)
            if some.shape[1] != x.shape[1]:
                raise EmbeddingsError(f"{path} does not hold lists of one length; repair its rows.")
            if x is not some and done + len(some) <= file.rows:
                x[done : done + len(some)] = some
                arrays.evict(x[done : done + len(some)])
            done += len(some)
            labels.append(y)
    if x is None:
        raise EmbeddingsError(f"{path} has no rows; give a file with rows.")
    if done != file.rows:  # part of the array would be uninitialised
        raise EmbeddingsError(f"{path} says that it has {file.rows:,} rows and holds {done:,}; write it again.")
    return Rows(x, None if labels[0] is None else _labels(labels, path, row_by_row is not None), file.encoder)


def _labels(parts: Sequence[Any], path: Path, row_by_row: bool) -> Shaped[np.ndarray, " n"]:
    """The labels of blocks as one array: whole numbers, or names."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return labels_in([value for part in parts for value in part], f"{path}, labels", row_by_row)


@contextmanager
def open_rows(
    path: Path,
    size: int = 0,
    split: str = "",
    ids: str = "",
    *,
    label: str = "",
    labelled: bool | None = False,
    row_by_row: int | None = None,
) -> Iterator[RowFile]:
    """The rows of a file as in `load_rows`, a block at a time; `ids` names an array or column of ids.

    A damaged file raises `EmbeddingsError`, here or while its blocks are read.
    """
    if path.suffix in from_arrow.SUFFIXES:
        with from_arrow.open_arrow(path, EmbeddingsError) as file:
            x, y = pick(file.names, "", EMBEDDING), pick(file.names, label, ("y", "label"))
            if x is None or split or (label and y is None) or len(file.shape(x)) != 2:
                has = shorten(", ".join(sorted(file.names)), 200) + (" and no splits" if split else "")
                raise EmbeddingsError(
                    f"{path} has the columns {has}; expected a column 'embedding' of lists of one length"
                    + (f" and a column {label!r}." if label else ".")
                )
            yield _row_file(file, path, x, y, ids, labelled, size or BATCH, row_by_row)
        return
    if label:
        raise EmbeddingsError(f"{path} holds arrays, x and y, and no column {label!r}; leave out its name.")
    with from_arrays.open_arrays(path) as file:
        suffix = suffix_in(file.names, split, path)
        ids = ids + suffix if ids + suffix in file.names else ids
        yield _row_file(file, path, "x" + suffix, "y" + suffix, ids, labelled, size, None)


def _row_file(
    file: OpenFile,
    path: Path,
    x: str,
    y: str | None,
    ids: str,
    labelled: bool | None,
    size: int,
    row_by_row: int | None,
) -> RowFile:
    """The rows of an open file, after a look at which columns it has, and whether all have one entry per row."""
    has_labels, shape = y in file.names, file.shape(x)
    if labelled and not has_labels:
        raise EmbeddingsError(
            f"{path} holds {x} without its labels {y or 'label'}; save both with numpy.savez. Those of one bare array may be "
            f"in {from_arrays.labels_beside(path).name} beside it."
        )
    if ids and ids not in file.names:
        has = shorten(", ".join(sorted(file.names)), 200)
        raise EmbeddingsError(f"{path} holds {has} but no ids {ids!r}; check --id-column.")
    if len(shape) != 2:
        raise EmbeddingsError(f"{path}: embeddings have shape {shape}; expected numbers, one row per sample.")
    names = (x, y if has_labels and labelled is not False else None, ids or None)
    for name, what in zip(names[1:], ("labels", "ids"), strict=True):
        if name and file.shape(name) != shape[:1]:
            raise EmbeddingsError(
                f"{path}: {what} have shape {file.shape(name)} for {shape[0]} rows; expected one text or whole number per row, "
                f"{shape[0]}."
            )
    encoder = encoder_in(file, shape[1]) if shape[1] else None
    return RowFile(shape[0] or 0, shape[1], encoder, _blocks(file, names, size, path, row_by_row))


def _blocks(
    file: OpenFile, names: tuple[str, str | None, str | None], size: int, path: Path, row_by_row: int | None
) -> Iterator[tuple[np.ndarray, Any, Any]]:
    x, y, key = names
    for block in file.blocks([name for name in dict.fromkeys(names) if name], size):
        found, labels, ids = block[x], block.get(y or ""), block.get(key or "")
        if isinstance(found, list):  # no rows, and no lists that would say how long rows are
            if row_by_row is None:
                return
            found = np.zeros((0, row_by_row))
        if row_by_row is not None:
            found = _padded(found, row_by_row)
        if isinstance(found, Ragged):
            raise EmbeddingsError(f"{path}: column {x!r} does not hold lists of one length; repair its rows.")
        if found.dtype.kind not in "fiu":
            raise EmbeddingsError(f"{path}: embeddings are {found.dtype}; expected numbers, one row per sample.")
        if isinstance(ids, np.ndarray):
            if ids.dtype.kind not in "iuU":
                raise EmbeddingsError(f"{path}: {key!r} has {ids.dtype}; expected one text or whole number per row.")
            ids = ids.tolist()
        yield found, labels, ids


def _padded(found: np.ndarray | Ragged, dim: int) -> np.ndarray | Ragged:
    """A block of lists as a matrix of `dim` columns, with NaN in rows that are not `dim` numbers.

    The type of its numbers follows from that of the column, so that no row decides about it.
    """
    if isinstance(found, np.ndarray):
        found = found.astype(np.float32 if found.dtype in (np.float16, np.float32) else np.float64, copy=False)
        return found if found.shape[1] == dim else np.full((len(found), dim), np.nan, dtype=found.dtype)
    if found.dtype is None:
        return found
    out = np.full((len(found), dim), np.nan, dtype=found.dtype)
    for i, row in enumerate(found.rows):
        if row is not None and len(row) == dim and None not in row:
            out[i] = row
    return out


def part_of(path: Path, wanted: Sequence[str]) -> str:
    """The first of the `wanted` splits that a file of arrays has where it has no array x; otherwise an empty text."""
    if path.suffix not in from_arrays.SUFFIXES:
        return ""
    with from_arrays.open_arrays(path) as file:
        return "" if "x" in file.names else next((split for split in wanted if f"x_{split}" in file.names), "")


def holds_rows(path: Path, rather: tuple[str, ...] = ()) -> bool:
    """Whether a file holds embeddings: by its suffix or, by a column of lists and none it is `rather` read by."""
    if path.suffix not in from_arrow.SUFFIXES:
        return path.suffix in from_arrays.SUFFIXES
    with from_arrow.open_arrow(path) as file:
        name = pick(file.names, "", EMBEDDING)
        return name is not None and len(file.shape(name)) == 2 and pick(file.cells, "", rather) is None


def save_rows(path: str | Path, splits: Mapping[str, Rows], encoder: Encoder) -> None:
    """Write rows as an .npz that says which encoder made them: ``x`` and ``y``, or ``x_train`` … for named splits."""
    arrays: dict[str, np.ndarray] = {NAME: np.array(encoder.name), FINGERPRINT: np.array(encoder.fingerprint)}
    if encoder.views:
        arrays[VIEWS] = np.array(encoder.views)
    for split, rows in splits.items():
        suffix = f"_{split}" if split else ""
        arrays["x" + suffix] = rows.x
        if rows.y is not None:
            arrays["y" + suffix] = rows.y
    with files.open_to_replace(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def drop_bad(rows: Rows) -> tuple[Rows, list[tuple[int, str]]]:
    """The rows of finite numbers that have a label if any have, and for each other row its number and what is wrong.

    >>> rows, bad = drop_bad(Rows(np.array([[1.0], [np.nan], [2.0]]), np.array([0, 1, -1])))
    >>> len(rows.x), bad
    (1, [(1, 'row 1 holds a number that is not finite'), (2, 'row 2 has no label')])
    """
    finite = np.ones(len(rows.x), dtype=bool)
    if rows.x.dtype.kind == "f":
        for start in range(0, len(rows.x), BATCH):  # they may be a mapped file
            finite[start : start + BATCH] = np.isfinite(rows.x[start : start + BATCH]).all(axis=1)
    has_label = finite if rows.y is None else ~is_missing(rows.y)
    kept = finite & has_label
    bad = [
        (int(i), f"row {i} has no label" if finite[i] else f"row {i} holds a number that is not finite")
        for i in np.flatnonzero(~kept)
    ]
    return (Rows(rows.x[kept], None if rows.y is None else rows.y[kept], rows.encoder) if bad else rows), bad


def encoder_in(file: OpenFile, dim: int) -> Encoder | None:
    """The encoder that a file names for its rows of `dim` numbers, if it names one."""
    if NAME not in file.names or FINGERPRINT not in file.names or not dim:
        return None
    name, fingerprint, views = (
        str(next(file.blocks([each], 1))[each]) if each in file.names else "" for each in (NAME, FINGERPRINT, VIEWS)
    )
    return Encoder(dim, name or "unnamed", fingerprint, views)


def suffix_in(names: list[str], split: str, path: Path) -> str:
    """The suffix of the names of a split's arrays; without a split, nothing or _train."""
    wanted = [f"_{split}"] if split else ["", "_train"]
    for suffix in wanted:
        if "x" + suffix in names:
            return suffix
    raise EmbeddingsError(
        f"{path} holds {shorten(', '.join(sorted(names)), 200) or 'nothing'}; expected an array x{wanted[0]}. "
        f"numpy.savez(path, x{wanted[0]}=embeddings, y{wanted[0]}=labels) writes one."
    )
