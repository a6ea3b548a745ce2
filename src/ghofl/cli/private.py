"""Options that say what a recipe promises about rows, shared by the commands that write or use one."""

import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jaxtyping import Num

from ghofl.embeddings import load_rows
from ghofl.errors import EmbeddingsError, PrivacyError
from ghofl.features import usual_length
from ghofl.privacy import Guarantee
from ghofl.recipe import Privacy, Recipe

PANEL = "Privacy"
DELTA = 1e-5
DEFAULTS = Privacy()

Epsilon = Annotated[
    float | None, typer.Option(help="Promise this ε by noise; smaller is more private.", rich_help_panel=PANEL)
]
Delta = Annotated[
    float | None, typer.Option(help=f"The δ that goes with ε; {DELTA:g} unless given.", rich_help_panel=PANEL)
]
Radius = Annotated[
    float | None,
    typer.Option(
        help="Shorten feature rows to this length. With --epsilon and --unit-length, their usual one unless given.",
        rich_help_panel=PANEL,
    ),
]
Unit = Annotated[str, typer.Option(help="What ε protects: 'record' or 'client'.", rich_help_panel=PANEL)]
Neighbours = Annotated[
    str, typer.Option(help="'add-remove' a record or client, or 'replace-one'.", rich_help_panel=PANEL)
]
Noise = Annotated[
    str,
    typer.Option(
        help="Who adds noise: 'central' (the server), 'distributed' (clients, inside secure aggregation) or 'local'.",
        rich_help_panel=PANEL,
    ),
]
Secure = Annotated[
    bool, typer.Option("--secure", help="Secure aggregation: the server sees the total only.", rich_help_panel=PANEL)
]
MinCount = Annotated[
    int, typer.Option(help="Drop classes with fewer rows than this from the total.", rich_help_panel=PANEL)
]
MergeInto = Annotated[str, typer.Option(help="Put the rows of dropped classes into this class.", rich_help_panel=PANEL)]
MinCohort = Annotated[int | None, typer.Option(help="The fewest sites whose total is used.", rich_help_panel=PANEL)]
ClientRows = Annotated[
    int | None, typer.Option(help="Full rows that a client counts as, for --unit client.", rich_help_panel=PANEL)
]
Rounding = Annotated[int | None, typer.Option(help="Low bits to leave out of second moments.", rich_help_panel=PANEL)]
Anchor = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|mean-of:FILE",
        help="A public vector to subtract from rows: an .npz with an array 'anchor', or the mean of public rows.",
        rich_help_panel=PANEL,
    ),
]


def with_privacy(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    """The recipe with a privacy section of these options; those that are None are left at their defaults."""
    values = {name: value for name, value in values.items() if value is not None}
    if "epsilon" in values:
        values.setdefault("delta", DELTA)
        values.setdefault("radius", _usual_radius(recipe))
    return replace(recipe, privacy=Privacy(**values))


def load_anchor(text: str | None) -> tuple[tuple[float, ...], Num[np.ndarray, "p dim"] | None]:
    """The anchor that an option names, and the public rows it is the mean of, where it is one."""
    if text is None:
        return (), None
    of_rows = re.fullmatch(r"mean-of[ :=](.+)", text)
    if of_rows:
        rows = load_rows(Path(of_rows[1].strip()), labelled=False).x
        if not len(rows):
            raise EmbeddingsError(f"{of_rows[1]} holds no rows; an anchor is the mean of at least one.")
        return tuple(map(float, rows.mean(axis=0, dtype=np.float64))), rows
    return _anchor_in(Path(text)), None


def guarantee_text(guarantee: Guarantee | None) -> str:
    """A guarantee in one line."""
    return "no noise, so no differential privacy" if guarantee is None else str(guarantee).splitlines()[0]


def _anchor_in(path: Path) -> tuple[float, ...]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            anchor = archive["anchor"]
    except (ValueError, KeyError, AttributeError, TypeError, zipfile.BadZipFile, EOFError):
        raise EmbeddingsError(
            f"{path} is not an .npz with an array 'anchor'; write one with numpy.savez(path, anchor=vector), "
            f"or write mean-of:{path} for the mean of its rows."
        ) from None
    if anchor.ndim != 1 or anchor.dtype.kind not in "fiu":
        raise EmbeddingsError(
            f"{path}: the anchor has shape {anchor.shape} and dtype {anchor.dtype}; it is one vector."
        )
    return tuple(map(float, anchor))


def _usual_radius(recipe: Recipe) -> float:
    if not recipe.transform.unit_length:
        raise PrivacyError(
            "noise is sized by the longest row allowed; write --radius, or --unit-length for rows of one length."
        )
    return usual_length(recipe)
