"""Files of embeddings and labels, and labels as class numbers."""

import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, Num, Shaped
from safetensors import SafetensorError
from safetensors.numpy import load_file

from ghofl import files
from ghofl.errors import EmbeddingsError, MissingExtraError
from ghofl.recipe import Encoder, Recipe

_NUMERIC = "fiu"
NAME, FINGERPRINT = "encoder", "encoder_fingerprint"


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Embeddings and, where the file has them, their labels (class numbers or names) and their encoder."""

    x: Num[np.ndarray, "n dim"] = field(repr=False)
    y: Shaped[np.ndarray, " n"] | None = field(default=None, repr=False)
    encoder: Encoder | None = None


def load_rows(
    path: str | Path, split: str = "", labelled: bool | None = True, column: str = "", label: str = ""
) -> Rows:
    """The rows of a file: arrays ``x`` and ``y``, or ``x_train``/``y_train`` with split ``train``, and so on.

    Files are .npz, .safetensors, .parquet (a column of lists, `column` or ``x`` or ``embedding``, and a `label`
    column) or .npy, whose labels lie beside it as NAME.labels.npy. Without a split, ``x``/``y`` are read, or
    ``x_train``/``y_train`` where only those are there. With `labelled` None labels are read where there are any.
    Nothing pickled is ever loaded.
    """
    path = Path(path)
    try:
        with ExitStack() as opened:
            arrays = {".npy": _npy, ".safetensors": _safetensors, ".parquet": _parquet}.get(path.suffix, _npz)(
                path, opened
            )
            if path.suffix == ".parquet":
                arrays = _renamed(arrays, column, label, path)
            suffix = _suffix(list(arrays), split, path)
            has_labels = "y" + suffix in arrays
            if labelled and not has_labels:
                raise EmbeddingsError(
                    f"{path} holds x{suffix} without its labels y{suffix}; save both with numpy.savez."
                )
            x, y = arrays["x" + suffix], arrays["y" + suffix] if has_labels and labelled is not False else None
            encoder = _encoder(arrays, x)
    except EmbeddingsError:
        raise
    except (ValueError, zipfile.BadZipFile, EOFError, SafetensorError):
        raise EmbeddingsError(
            f"{path} is not an .npz of plain arrays; write one with numpy.savez(path, x=embeddings, y=labels)."
        ) from None
    _check(x, y, path)
    return Rows(x, y, encoder)


def save_rows(path: str | Path, splits: Mapping[str, Rows], encoder: Encoder) -> None:
    """Write rows as an .npz that says which encoder made them: ``x`` and ``y``, or ``x_train`` … for named splits."""
    arrays: dict[str, np.ndarray] = {NAME: np.array(encoder.name), FINGERPRINT: np.array(encoder.fingerprint)}
    for split, rows in splits.items():
        suffix = f"_{split}" if split else ""
        arrays["x" + suffix] = rows.x
        if rows.y is not None:
            arrays["y" + suffix] = rows.y
    with files.replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def parquet_columns(path: Path) -> dict[str, list[Any]]:
    """The columns of a parquet file, by name."""
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError:
        raise MissingExtraError(
            f"{path} needs pyarrow, which is not installed: pip install 'ghofl[datasets]'."
        ) from None
    try:
        return parquet.read_table(path).to_pydict()
    except FileNotFoundError:
        raise
    except (ArrowException, OSError) as error:  # pyarrow tells a damaged page as an OSError
        raise EmbeddingsError(
            f"{path} is not a parquet file that can be read ({str(error).splitlines()[0]})."
        ) from None


def refuse_encoder(theirs: Encoder | None, recipe: Recipe, where: str | Path) -> None:
    """An error when samples or rows come from an encoder whose fingerprint is not the recipe's."""
    agreed = recipe.encoder
    if theirs is not None and theirs.fingerprint and agreed.fingerprint and theirs.fingerprint != agreed.fingerprint:
        raise EmbeddingsError(
            f"{where}: the encoder is {theirs.name} ({theirs.fingerprint[:12]}…) and the recipe says {agreed.name} "
            f"({agreed.fingerprint[:12]}…): other weights, preprocessing or pooling. Encode with the recipe's encoder."
        )


def class_numbers(labels: Shaped[np.ndarray, " n"], classes: tuple[str, ...]) -> Int64[np.ndarray, " n"]:
    """Labels as positions in `classes`: whole numbers are positions already, texts are looked up.

    >>> class_numbers(np.array(["dog", "cat"]), ("cat", "dog"))
    array([1, 0])
    """
    if labels.dtype.kind in "iu":
        numbers = labels.astype(np.int64)
        outside = (numbers < 0) | (numbers >= len(classes))
    elif labels.dtype.kind == "U":
        position = {name: i for i, name in enumerate(classes)}
        numbers = np.array([position.get(str(label), -1) for label in labels], dtype=np.int64)
        outside = numbers < 0
    else:
        raise EmbeddingsError(
            f"labels have dtype {labels.dtype}; write class numbers (integers) or class names (texts)."
        )
    if outside.any():
        raise EmbeddingsError(
            f"label {labels[outside].tolist()[0]!r} of row {int(outside.argmax())} is not in the recipe's "
            f"{len(classes)} classes ({', '.join(classes[:5])}{', …' if len(classes) > 5 else ''}); "
            f"{int(outside.sum())} rows have such a label."
        )
    return numbers


def _npz(path: Path, opened: ExitStack) -> Mapping[str, Any]:
    file = opened.enter_context(path.open("rb"))  # numpy leaves a damaged archive open that it opened itself
    archive = np.load(file, allow_pickle=False)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise EmbeddingsError(f"{path} holds one bare array; save embeddings and labels with numpy.savez.")
    return opened.enter_context(archive)  # an archive reads an array when it is asked for, and no other


def _npy(path: Path, opened: ExitStack) -> Mapping[str, Any]:
    beside = path.with_suffix(".labels.npy")
    if not beside.is_file():
        raise EmbeddingsError(
            f"{path} holds one bare array and its labels are not beside it as {beside.name}; save embeddings and labels "
            "with numpy.savez."
        )
    return {"x": np.load(path, mmap_mode="r", allow_pickle=False), "y": np.load(beside, allow_pickle=False)}


def _safetensors(path: Path, opened: ExitStack) -> Mapping[str, Any]:
    with open(path, "rb"):  # a missing file is told as one, not as a damaged one
        pass
    return load_file(path)


def _parquet(path: Path, opened: ExitStack) -> Mapping[str, Any]:
    return {name: np.array(values) for name, values in parquet_columns(path).items() if _is_even(values)}


def _is_even(values: list) -> bool:
    """Whether all entries are scalars, or all are lists of one length."""
    return len({len(v) if isinstance(v, list) else -1 for v in values}) <= 1 and None not in values


def _renamed(arrays: Mapping[str, Any], column: str, label: str, path: Path) -> dict[str, np.ndarray]:
    x = next((name for name in ((column,) if column else ("x", "embedding")) if name in arrays), None)
    y = next((name for name in ((label,) if label else ("y", "label")) if name in arrays), None)
    if x is None or (label and y is None):
        raise EmbeddingsError(
            f"{path} has the columns {', '.join(sorted(arrays)) or 'nothing'}; expected a column "
            f"{column or 'embedding'!r} of lists of one length" + (f" and a column {label!r}." if label else ".")
        )
    return {"x": arrays[x]} if y is None else {"x": arrays[x], "y": arrays[y]}


def _encoder(arrays: Mapping[str, Any], x: np.ndarray) -> Encoder | None:
    if NAME not in arrays or FINGERPRINT not in arrays or x.ndim != 2 or not x.shape[1]:
        return None
    return Encoder(dim=x.shape[1], name=str(arrays[NAME]) or "unnamed", fingerprint=str(arrays[FINGERPRINT]))


def _suffix(names: list[str], split: str, path: Path) -> str:
    wanted = [f"_{split}"] if split else ["", "_train"]
    for suffix in wanted:
        if "x" + suffix in names:
            return suffix
    raise EmbeddingsError(f"{path} holds {', '.join(sorted(names)) or 'nothing'}; expected an array x{wanted[0]}.")


def _check(x: np.ndarray, y: np.ndarray | None, path: Path) -> None:
    if x.ndim != 2 or x.dtype.kind not in _NUMERIC:
        raise EmbeddingsError(
            f"{path}: embeddings have shape {x.shape} and dtype {x.dtype}; expected numbers, one row a sample."
        )
    if y is not None and y.shape != (len(x),):
        raise EmbeddingsError(f"{path}: labels have shape {y.shape} for {len(x)} rows; expected one a row.")
