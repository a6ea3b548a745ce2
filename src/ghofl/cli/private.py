"""Options that say what a recipe promises about rows, shared by the commands that write or use one."""

import inspect
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jaxtyping import Num

from ghofl.errors import EmbeddingsError
from ghofl.planning.assembly import DELTA, PrivacyOptions
from ghofl.planning.public import PublicRows
from ghofl.privacy import Guarantee
from ghofl.recipe import Encoder, Table
from ghofl.samples import load_rows, table_rows
from ghofl.samples.from_schema import TABLES

PANEL = "Privacy"


def _option(kind: Any, help_text: str, *names: str) -> Any:
    return Annotated[kind, typer.Option(*names, help=help_text, rich_help_panel=PANEL)]


# The options of privacy, once for all commands, under the names of `PrivacyOptions`.
OPTIONS = {
    "epsilon": _option(float | None, "Promise this ε by noise; smaller is more private."),
    "delta": _option(float | None, f"The δ that goes with ε; {DELTA:g} unless given."),
    "radius": _option(
        float | None,
        "Shorten feature rows to this length. With --epsilon and --unit-length, their usual one unless given.",
    ),
    "unit": _option(str, "What ε protects: 'record' or 'client'."),
    "neighbours": _option(str, "'add-remove' a record or client, or 'replace-one'."),
    "noise": _option(
        str, "Who adds noise: 'central' (the server), 'distributed' (clients, inside secure aggregation) or 'local'."
    ),
    "secure": _option(bool, "Secure aggregation: the server sees the total only.", "--secure"),
    "min_count": _option(int, "Drop classes with fewer rows than this from the total."),
    "merge_into": _option(str, "Put the rows of dropped classes into this class."),
    "min_cohort": _option(int | None, "The fewest sites whose total is used."),
    "client_rows": _option(int | None, "Full rows that a client counts as, for --unit client."),
    "rounding": _option(int | None, "Low bits to leave out of second moments."),
}
MaxRows = Annotated[
    int | None,
    typer.Option(help="The most rows of one site; one million unless given. Smaller ones make secure rounds smaller."),
]
MaxShare = Annotated[
    float | None, typer.Option(help="The largest share of all rows that one site may have in a total that is used.")
]
Anchor = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|mean-of:FILE",
        help="A public vector to subtract from rows: an .npz with an array 'anchor', or the mean of public rows.",
        rich_help_panel=PANEL,
    ),
]

Public = Annotated[
    Path | None,
    typer.Option(
        "--public",
        metavar="FILE",
        help="Rows that are nobody's secret, through the same encoder: they teach a centre, the grid, the directions of a "
        "projection and, if labelled, a metric; under --epsilon the radius.",
        rich_help_panel=PANEL,
    ),
]


def takes_privacy(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of privacy in the place of its parameter `privacy`, which gets them as one value."""
    defaults, parameters = PrivacyOptions(), []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        parameters += (
            [parameter]
            if parameter.name != "privacy"
            else [
                parameter.replace(name=name, annotation=annotation, default=getattr(defaults, name))
                for name, annotation in OPTIONS.items()
            ]
        )

    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name in OPTIONS}
        command(**values, privacy=PrivacyOptions(**given))

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    vars(run).pop("__wrapped__", None)  # a type checker may wrap functions; whoever unwraps them stops here
    return run


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


def load_public(
    path: Path | None, anchored: Num[np.ndarray, "p dim"] | None, table: Table | None = None
) -> tuple[PublicRows | Num[np.ndarray, "p dim"] | None, Encoder | None]:
    """The public rows that a recipe learns from, and their encoder; the rows that an anchor is the mean of otherwise."""
    if path is None:
        return anchored, None
    if table is not None and path.suffix in TABLES:
        rows = table_rows(path, table, labelled=None)
    else:
        rows = load_rows(path, labelled=None)
    return PublicRows(rows.x, rows.y), rows.encoder or Encoder(dim=rows.x.shape[1])


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
