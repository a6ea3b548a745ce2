"""Files of public rows, for a recipe to learn from."""

from pathlib import Path

import numpy as np

from ghofl.planning.public import PublicRows
from ghofl.recipe import Encoder, Table
from ghofl.samples.from_schema import TABLES, table_rows
from ghofl.samples.rows import load_rows
from ghofl.shapes import Num


def load_public(
    path: str | Path | None, instead: Num[np.ndarray, "p dim"] | None = None, table: Table | None = None
) -> tuple[PublicRows | Num[np.ndarray, "p dim"] | None, Encoder | None]:
    """The public rows of a file of embeddings, or of a table with a schema, and their encoder.

    Without a file it returns `instead`, the rows to fit a grid to, and no encoder.
    """
    if path is None:
        return instead, None
    if table is not None and Path(path).suffix in TABLES:
        rows = table_rows(path, table, labelled=None)
    else:
        rows = load_rows(path, labelled=None)
    return PublicRows(rows.x, rows.y), rows.encoder or Encoder(dim=rows.x.shape[1])
