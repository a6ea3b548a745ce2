"""A public anchor from a file: a vector, or the mean of public rows."""

import re
from pathlib import Path

import numpy as np

from ghofl.errors import EmbeddingsError
from ghofl.samples.damage import damage_as
from ghofl.samples.rows import load_rows
from ghofl.shapes import Num


def load_anchor(text: str | None) -> tuple[tuple[float, ...], Num[np.ndarray, "p dim"] | None]:
    """The anchor in ``FILE`` or ``mean-of:FILE``, and for the latter the public rows that it is the mean of."""
    if text is None:
        return (), None
    of_rows = re.fullmatch(r"mean-of[ :=](.+)", text)
    if of_rows is None:
        return _read(Path(text)), None
    rows = load_rows(Path(of_rows[1].strip()), labelled=False).x
    if not len(rows):
        raise EmbeddingsError(f"{of_rows[1]} holds no rows; give at least one, as the anchor is their mean.")
    return tuple(map(float, rows.mean(axis=0, dtype=np.float64))), rows


def _read(path: Path) -> tuple[float, ...]:
    words = (
        f"{path} is not an .npz with an array 'anchor'; write one with numpy.savez(path, anchor=vector), "
        f"or write mean-of:{path} for the mean of its rows."
    )
    # numpy would not close a damaged archive that it opened itself
    with path.open("rb") as file, damage_as(words), np.load(file, allow_pickle=False) as archive:
        anchor = archive["anchor"]
    if anchor.ndim != 1 or anchor.dtype.kind not in "fiu":
        raise EmbeddingsError(
            f"{path}: the anchor has shape {anchor.shape} and dtype {anchor.dtype}; give one vector of numbers."
        )
    return tuple(map(float, anchor))
