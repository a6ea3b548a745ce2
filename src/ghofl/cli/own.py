"""What a site does with its own rows and the total they are in: leave-out."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ghofl.cli import console
from ghofl.errors import RosterError
from ghofl.evaluation.confusion import interval_text
from ghofl.evaluation.leave_out import LeftOut, OwnRows, leave_out
from ghofl.heads.spec import HeadSpec
from ghofl.recipe import Recipe
from ghofl.wire.total import Total

NOT_LEFT_OUT = "What the recipe learned from rows beforehand, such as its grid or a schema's breaks, is not left out."


def show_leave_out(total: Total, own: OwnRows, fold: np.ndarray, heads: str, json: str | None) -> None:
    """Judge heads of a total on the site's own rows, and print what was found."""
    with console.progress() as report:
        found = leave_out(own, HeadSpec.parse_list(heads), fold, report)
    folds = int(fold.max()) + 1
    about = {"kind": "leave-out", "total_sha256": total.moments.sha256, "recipe": total.recipe.fingerprint}
    result = {**about, "folds": folds, "rows": len(own.y), "heads": [one.to_dict() for one in found.values()]}
    console.show({**result, "assumes": NOT_LEFT_OUT}, _table(found, folds), json, is_private=True)
    for name in next(iter(found.values())).unseen:
        console.tell("Warning", f"class {name!r} has no rows outside of a fold; its rows there count as errors.")
    if json != "-":
        console.out.print(NOT_LEFT_OUT, soft_wrap=True)


def own_rows(
    total: Path, rows: Path, split: str, label: str, labels_are_numbers: bool, person: str, site_file: Path | None
) -> tuple[Total, OwnRows, np.ndarray | None]:
    """A total, the rows that a site sent into it, and who they are about where a column says so."""
    with console.errors_about(total):
        found = Total.load(total)
    x, y, persons = load(found.recipe, rows, split, label, labels_are_numbers, person)
    site = "" if site_file is None else _site_that_sent(site_file, found.recipe, x, y)
    with console.errors_about(rows):
        return found, OwnRows.of(found, x, y, site), persons


def load(
    recipe: Recipe, rows: Path, split: str, label: str, labels_are_numbers: bool, person: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Labelled rows of a file that the recipe's encoder made, and who they are about where a column says so."""
    from ghofl.site.persons import first_rows, load_persons
    from ghofl.site.rows import load_embedded

    found = load_embedded(recipe, rows, split, label=label, labels_are_numbers=labels_are_numbers)
    if not person:
        return found.x, found.y, None
    persons = load_persons(str(rows), person, split, len(found.x))
    kept = first_rows(persons, recipe.privacy.person_rows or len(persons))
    return found.x[kept], found.y[kept], persons[kept]


def _site_that_sent(path: Path, recipe: Recipe, x: np.ndarray, y: np.ndarray) -> str:
    """The name of the site whose ledger says that these rows left it under the recipe."""
    from ghofl.site.history import History
    from ghofl.site.site import Site
    from ghofl.site.version import version_of

    site = Site.load(path)
    sent, version = History.load(site.memory()).releases, version_of(x, y, recipe.classes)
    if not any(
        (release.recipe, release.data) == (recipe.fingerprint, version) for release in sent if not release.is_report
    ):
        raise RosterError(
            f"the ledger of {site.name!r} has no line that says that these {len(y):,} rows left under this recipe; give the rows "
            "that the site took part with."
        )
    return site.name


def _table(found: dict[str, LeftOut], folds: int) -> Table:
    some: Any = next(iter(found.values()))
    table = Table(title=f"{len(some.y):,} own rows, each left out in one of {folds} folds")
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
