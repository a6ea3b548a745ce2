"""What a recipe learns from, out of files: an anchor (a vector, or the mean of public rows), and public rows."""

import re
from pathlib import Path

import numpy as np

from ghofl.encoders.from_schema import table_rows
from ghofl.errors import EmbeddingsError
from ghofl.planning.public import PublicRows
from ghofl.recipe import Encoder, Table
from ghofl.recipe.labels import check_present
from ghofl.rows.embeddings import load_rows
from ghofl.rows.from_arrays import open_arrays
from ghofl.rows.tables import SUFFIXES
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
    with open_arrays(path) as file:
        if "anchor" not in file.names:
            raise EmbeddingsError(
                f"{path} has no array 'anchor'; write one with numpy.savez(path, anchor=vector), or write mean-of:{path} for "
                "the mean of its rows."
            )
        (anchor,) = (block["anchor"] for block in file.blocks(["anchor"], 0))
    if anchor.ndim != 1 or anchor.dtype.kind not in "fiu":
        raise EmbeddingsError(
            f"{path}: the anchor has shape {anchor.shape} and dtype {anchor.dtype}; give one vector of numbers."
        )
    return tuple(map(float, anchor))


def load_public(
    path: str | Path | None, instead: Num[np.ndarray, "p dim"] | None = None, table: Table | None = None
) -> tuple[PublicRows | Num[np.ndarray, "p dim"] | None, Encoder | None]:
    """The public rows of a file of embeddings, or of a table with a schema, and their encoder.

    Without a file it returns `instead`, the rows to fit a grid to, and no encoder.
    """
    if path is None:
        return instead, None
    if table is not None and Path(path).suffix in SUFFIXES:
        rows = table_rows(path, table, labelled=None)
    else:
        rows = load_rows(path, labelled=None)
        if rows.y is not None:
            check_present(rows.y)
    return PublicRows(rows.x, rows.y), rows.encoder or Encoder(dim=rows.x.shape[1])
