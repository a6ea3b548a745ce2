"""Files of embeddings and labels."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from ghofl import files
from ghofl.errors import EmbeddingsError
from ghofl.names import shown
from ghofl.recipe import Encoder
from ghofl.recipe.labels import class_numbers, numbers_row_by_row
from ghofl.rows.columnar import SUFFIXES, read_columns
from ghofl.rows.damage import damage_as
from ghofl.shapes import Int64, Num, Shaped

_NUMERIC = "fiu"
NAME, FINGERPRINT, VIEWS = "encoder", "encoder_fingerprint", "encoder_views"


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


def load_rows(
    path: str | Path,
    split: str = "",
    labelled: bool | None = True,
    column: str = "",
    label: str = "",
    row_by_row: int | None = None,
) -> Rows:
    """The rows of a file: arrays ``x`` and ``y``, or ``x_train``/``y_train`` with split ``train``, and so on.

    Files are .npz, .safetensors, .parquet, .arrow or .feather (a column of lists, `column` or ``x`` or ``embedding``, and
    a `label` column) or .npy, whose labels are in NAME.labels.npy beside it. Files of the last four kinds may be larger
    than memory. Without a split, ``x``/``y`` are read, or ``x_train``/``y_train`` if only those are there. With `labelled`
    None, labels are read if there are any. Nothing pickled is ever loaded. With `row_by_row`, the length that rows should
    have, rows of another length or without a label are not refused: they are not finite, or have no label.
    """
    path = Path(path)
    with damage_as(_not_arrays(path)), ExitStack() as opened:
        arrays = _read(path, column, label, opened, row_by_row)
        suffix = suffix_in(list(arrays), split, path)
        has_labels = "y" + suffix in arrays
        if labelled and not has_labels:
            raise EmbeddingsError(_without_labels(path, suffix))
        x, y = arrays["x" + suffix], arrays["y" + suffix] if has_labels and labelled is not False else None
        if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray | None)):  # numpy returns other members as bytes
            raise EmbeddingsError(_not_arrays(path))
        encoder = encoder_in(arrays, x.shape[1]) if x.ndim == 2 else None
    check_shapes(x, y, path)
    return Rows(x, y, encoder)


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
    with files.replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def drop_bad(rows: Rows) -> tuple[Rows, list[tuple[int, str]]]:
    """The rows of finite numbers, and for each other row its number and what is wrong with it.

    >>> rows, bad = drop_bad(Rows(np.array([[1.0], [np.nan]]), np.array([0, 1])))
    >>> len(rows.x), bad
    (1, [(1, 'row 1 holds a number that is not finite')])
    """
    if rows.x.dtype.kind != "f":
        return rows, []
    finite = np.isfinite(rows.x).all(axis=1)
    bad = [(int(i), f"row {i} holds a number that is not finite") for i in np.flatnonzero(~finite)]
    return (Rows(rows.x[finite], None if rows.y is None else rows.y[finite], rows.encoder) if bad else rows), bad


def _not_arrays(path: Path) -> str:
    return f"{path} is not an .npz of plain arrays; write one with numpy.savez(path, x=embeddings, y=labels)."


def _without_labels(path: Path, suffix: str) -> str:
    if path.suffix != ".npy":
        return f"{path} holds x{suffix} without its labels y{suffix}; save both with numpy.savez."
    return (
        f"{path} holds one bare array, and its labels are not in {_labels_beside(path).name} beside it; save embeddings "
        "and labels with numpy.savez."
    )


def _read(path: Path, column: str, label: str, opened: ExitStack, row_by_row: int | None) -> Mapping[str, Any]:
    """The arrays of a file by name; those of an archive are read when they are needed, while `opened` is open."""
    if path.suffix in SUFFIXES:
        return read_columns(path, column, label, row_by_row)
    if path.suffix == ".npy":
        beside = _labels_beside(path)
        labels = {"y": np.load(beside, allow_pickle=False)} if beside.is_file() else {}
        return {"x": np.load(path, mmap_mode="r", allow_pickle=False), **labels}
    file = opened.enter_context(path.open("rb"))  # numpy would not close a damaged archive that it opened itself
    if path.suffix == ".safetensors":
        return load_file(path)
    archive = np.load(file, allow_pickle=False)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise EmbeddingsError(f"{path} holds one bare array; save embeddings and labels with numpy.savez.")
    return opened.enter_context(archive)


def _labels_beside(path: Path) -> Path:
    return path.with_suffix(".labels.npy")


def encoder_in(arrays: Mapping[str, Any], dim: int) -> Encoder | None:
    """The encoder that a file names for its rows of `dim` numbers, if it names one."""
    if NAME not in arrays or FINGERPRINT not in arrays or not dim:
        return None
    views = str(arrays[VIEWS]) if VIEWS in arrays else ""
    return Encoder(dim, str(arrays[NAME]) or "unnamed", str(arrays[FINGERPRINT]), views)


def suffix_in(names: list[str], split: str, path: Path) -> str:
    """The suffix of the names of a split's arrays; without a split, nothing or _train."""
    wanted = [f"_{split}"] if split else ["", "_train"]
    for suffix in wanted:
        if "x" + suffix in names:
            return suffix
    raise EmbeddingsError(
        f"{path} holds {shown(', '.join(sorted(names)), 200) or 'nothing'}; expected an array x{wanted[0]}. "
        f"numpy.savez(path, x{wanted[0]}=embeddings, y{wanted[0]}=labels) writes one."
    )


def check_shapes(x: np.ndarray, y: np.ndarray | None, path: Path) -> None:
    """Raise `EmbeddingsError` unless x has numbers, one row per sample, and y as many labels."""
    if x.ndim != 2 or x.dtype.kind not in _NUMERIC:
        raise EmbeddingsError(
            f"{path}: embeddings have shape {x.shape} and dtype {x.dtype}; expected numbers, one row per sample."
        )
    if y is not None and y.shape != (len(x),):
        raise EmbeddingsError(f"{path}: labels have shape {y.shape} for {len(x)} rows; expected one per row.")
