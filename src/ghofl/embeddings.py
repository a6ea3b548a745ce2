"""Files of embeddings and labels, and labels as class numbers."""

import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Int64, Num, Shaped

from ghofl.errors import EmbeddingsError

_NUMERIC = "fiu"


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Embeddings and, where the file has them, their labels (class numbers or names)."""

    x: Num[np.ndarray, "n dim"] = field(repr=False)
    y: Shaped[np.ndarray, " n"] | None = field(default=None, repr=False)


def load_rows(path: str | Path, split: str = "", labelled: bool = True) -> Rows:
    """The rows of an .npz file: arrays ``x`` and ``y``, or ``x_train``/``y_train`` with split ``train``, and so on.

    Without a split, ``x``/``y`` are read, or ``x_train``/``y_train`` where only those are there. Nothing pickled is
    ever loaded.
    """
    path = Path(path)
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise EmbeddingsError(f"{path} holds one bare array; save embeddings and labels with numpy.savez.")
        with archive:
            suffix = _suffix(archive.files, split, path)
            if labelled and "y" + suffix not in archive.files:
                raise EmbeddingsError(
                    f"{path} holds x{suffix} without its labels y{suffix}; save both with numpy.savez."
                )
            x = archive["x" + suffix]
            y = archive["y" + suffix] if labelled else None
    except EmbeddingsError:
        raise
    except (ValueError, zipfile.BadZipFile, EOFError):
        raise EmbeddingsError(
            f"{path} is not an .npz of plain arrays; write one with numpy.savez(path, x=embeddings, y=labels)."
        ) from None
    _check(x, y, path)
    return Rows(x, y)


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
