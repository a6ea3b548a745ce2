"""What a site does with its own rows and a total: `evaluate --leave-out` and `personal`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, LabelsAreNumbers, complete_heads
from ghofl.cli.options import (
    DATA_HELP,
    EncoderOptions,
    Reading,
    RecipesEncoder,
    SampleOptions,
    encoding_of,
    takes_groups,
)
from ghofl.cli.server import load_total
from ghofl.cli.use import ReportOptions, named_numbers, register
from ghofl.custody.site import Site
from ghofl.errors import RosterError
from ghofl.evaluation.confusion import interval_text
from ghofl.evaluation.leave_out import FOLDS, LeftOut, OwnRows, assign_folds, leave_out
from ghofl.evaluation.selection import Report
from ghofl.heads.decision import priors_of
from ghofl.heads.spec import DEFAULT_HEAD, HeadSpec
from ghofl.personal.choice import Personal, personal_head
from ghofl.recipe import Recipe
from ghofl.wire.total import Total

NOT_LEFT_OUT = "What the recipe learned from rows beforehand, such as its grid or a schema's breaks, is not left out."


def show_leave_out(
    path: Path, rows: str, reading: Reading, about: ReportOptions, folds: int, heads: str, json: str | None
) -> None:
    """Judge heads of a total on the site's own rows, and print what was found."""
    total = load_total(path)
    x, y, persons = reading.load(total.recipe, rows)
    own = own_rows(total, rows, x, y, about.site_file)
    with console.progress() as report:
        fold = assign_folds(y, folds, persons)
        found = leave_out(own, HeadSpec.parse_list(heads), fold, report, about.tally)
    reports, measured = [Report.of_left_out(one) for one in found.values()], [one.metrics for one in found.values()]
    if about.site_file is not None and json is not None:
        reports = register(reports, about.site_file, total.recipe, x, y, total)
        measured = [replace(one, thresholds=()) for one in measured]  # they are probabilities of single rows
    unseen = list(next(iter(found.values())).unseen)
    judged = [
        {**one.to_dict(), "classes_without_rows": unseen, **report.to_dict()}
        for one, report in zip(measured, reports, strict=True)
    ]
    first = {key: judged[0][key] for key in ("kind", "total_sha256", "recipe", "folds", "rows", "sites")}
    console.show({**first, "heads": judged, "assumes": NOT_LEFT_OUT}, _table(found, folds), json, is_private=True)
    for name in unseen:
        console.tell("Warning", f"class {name!r} has no rows outside of a fold; its rows there count as errors.")
    if json != "-":
        console.out.print(NOT_LEFT_OUT, soft_wrap=True)


@dataclass(frozen=True)
class OwnRowsOptions:
    """What a file of a site's rows holds, and how they stand to the total."""

    new_site: Annotated[
        bool, typer.Option("--new-site", help="These rows are not in the total: this site never sent anything.")
    ] = False
    leave_out: Annotated[int, typer.Option(metavar="FOLDS", help="Folds by which the head is chosen.")] = FOLDS
    split: Annotated[str, typer.Option(help="Read x_SPLIT and y_SPLIT, or this split of the samples.")] = ""
    labels_are_numbers: LabelsAreNumbers = False
    person: Annotated[
        str, typer.Option(help="The column that says who a row is about; a fold has all rows of a person.")
    ] = ""
    site_file: Annotated[
        Path | None, typer.Option(help="The site's TOML file, whose ledger says which rows went into a secure total.")
    ] = None


@takes_groups
def personal(
    total: Annotated[Path, typer.Argument(help="The total: exact, or with --new-site any.")],
    data: Annotated[str, typer.Argument(help=f"This site's rows. {DATA_HELP}.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The head file to write, for this site alone.")],
    *,
    head: Annotated[
        str, typer.Option(help="Which head, as in 'ghofl head'.", autocompletion=complete_heads)
    ] = DEFAULT_HEAD,
    priors: Annotated[
        str,
        typer.Option(
            metavar="PRIORS",
            help="How common classes are where the head is used: as in the 'own' rows, in the 'total', 'uniform', or "
            "a=0.9,b=0.1.",
        ),
    ] = "own",
    rows: OwnRowsOptions,
    encoder: RecipesEncoder = "",
    model: EncoderOptions,
    samples: SampleOptions,
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site: make a head for this site alone, from a total and the site's own rows. Nothing leaves the site.

    The head of the total is kept unless exact leave-out on these rows shows that another one is better.

    Example: ghofl personal total.ghofl north.npz -o own.safetensors
    """
    console.check_outputs(json, force, output)
    encoding = encoding_of(encoder, model, samples)
    reading = Reading(rows.split, samples, encoding, rows.labels_are_numbers, rows.person)
    found, spec = load_total(total), HeadSpec.parse(head)
    shares = _shares(priors, found)
    x, y, persons = reading.load(found.recipe, data)
    own = own_rows(found, data, x, y, rows.site_file, rows.new_site)
    with console.progress() as report:
        choice = personal_head(own, spec, assign_folds(y, rows.leave_out, persons), shares, report)
    made = choice.classifier
    made.save(output)
    result = {"file": str(output), "head": made.head, "priors": priors, "personal": made.personal, **choice.to_dict()}
    console.say(result, f"Wrote {output}: {made.head}, {_said(choice)} {made.warning}", json, is_private=True)


def _said(choice: Personal) -> str:
    """The figures of a choice, in words."""
    shared, chosen = choice.shared, choice.chosen
    figures = (
        ("accuracy on the own mix", shared.own_accuracy, chosen.own_accuracy),
        ("mean over classes", shared.balanced_accuracy, chosen.balanced_accuracy),
    )
    text = ", ".join(f"{name} {100 * a:.1f} → {100 * b:.1f} %" for name, a, b in figures)
    loss = f"log loss {shared.log_loss:.4f} → {chosen.log_loss:.4f}"
    return f"changed: {chosen.adaptation}; {choice.why}. By leave-out, head of the total → this one: {text}, {loss}."


def _shares(text: str, total: Total) -> np.ndarray | None:
    """The shares that --priors states; None for those of the site's own rows."""
    if text == "own":
        return None
    if text == "total":
        return np.maximum(total.moments.counts, 0).astype(np.float64)
    shares = priors_of(text if text == "uniform" else named_numbers(text, "--priors"), total.recipe.classes)
    if not (np.isfinite(shares).all() and (shares >= 0).all() and shares.sum() > 0):
        raise typer.BadParameter(f"--priors {text} is not one number per class, none below 0 and one above.")
    return shares


def own_rows(
    total: Total, data: str, x: np.ndarray, y: np.ndarray, site_file: Path | None, is_new: bool = False
) -> OwnRows:
    """Labelled rows beside the total that they are in, or for a new site are not in."""
    if is_new and site_file is not None:
        raise typer.BadParameter(
            "--new-site says that these rows were never sent, and --site-file which were; give one."
        )
    site = "" if site_file is None else Site.load(site_file).name
    with console.errors_about(data):
        own = OwnRows.of_new_site(total, x, y) if is_new else OwnRows.of(total, x, y, site)
    if site_file is not None and own.entry is not None and not own.entry.sha256:
        _check_sent(site_file, total.recipe, x, y)
    return own


def _check_sent(path: Path, recipe: Recipe, x: np.ndarray, y: np.ndarray) -> None:
    """Raise unless a site's ledger says that these rows left it under the recipe."""
    from ghofl.custody.history import History
    from ghofl.custody.ledger import Ledger
    from ghofl.outbox.row_version import version_of

    site = Site.load(path)
    storage, version = site.storage(), version_of(x, y, recipe.classes)
    with storage.lock():  # a keeper may be writing
        left = History.of(Ledger.load(storage)).releases
    about = [each for each in left if each.recipe == recipe.fingerprint and not each.is_report]
    if all(each.data != version for each in about):
        raise RosterError(
            f"the ledger of {site.name!r} has no line that says that these {len(y):,} rows left under this recipe; give the rows "
            "that the site took part with."
        )
    if recipe.privacy.secure and len({each.data for each in about}) > 1:
        raise RosterError(
            f"the ledger of {site.name!r} says that several versions of its rows left under this recipe, and a secure total does "
            "not tell which of them is inside."
        )


def _table(found: dict[str, LeftOut], folds: int) -> Table:
    some: Any = next(iter(found.values()))
    table = console.titled(f"{len(some.y):,} own rows, each left out in one of {folds} folds")
    table.add_column("head")
    for name in ("accuracy %", "95 % interval", "balanced %", "log loss", "calibration error %"):
        table.add_column(name, justify="right")
    for name, one in found.items():
        metrics, written = one.metrics, name if one.head.startswith(name) else f"{name}: {one.head}"
        counts = metrics.confusion
        table.add_row(
            written, f"{100 * counts.accuracy:.2f}", interval_text(counts.accuracy_interval, 2),
            f"{100 * counts.balanced_accuracy:.2f}", f"{metrics.log_loss:.4f}", f"{100 * metrics.ece:.2f}",
        )  # fmt: skip
    return table
