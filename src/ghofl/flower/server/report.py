"""The files of a run for people: roster, guarantee, and a report in Markdown and JSON; and how to read them back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ghofl import files
from ghofl.errors import FederationError, MissingExtraError
from ghofl.flower.server.folder import (
    GUARANTEE,
    HTML,
    PAGE,
    REFUSED,
    RELEASED,
    REPORT,
    ROSTER,
    RUNNING,
    TOTAL,
    RunFolder,
)
from ghofl.privacy import Guarantee
from ghofl.recipe import Recipe
from ghofl.wire.total import Total

COMPLETE, FAILED, REFUSED_RUN, IN_PROGRESS, KILLED = "complete", "failed", "refused", "in progress", "killed"
LARGEST = 256 * 2**20  # bytes of a report


def write(
    folder: RunFolder,
    exact: Total,
    released: Total,
    heads: Mapping[str, Path],
    sites: Mapping[str, str],
    notes: Sequence[str],
) -> None:
    """Write roster, guarantee and report of a completed run."""
    roster = [{"site": e.site, "id": e.id, "rows": e.rows, "sha256": e.sha256} for e in released.roster]
    folder.write(ROSTER, roster)
    together = guarantee_of_releases(folder, released)
    guarantee = None if together is None else together.to_dict()
    folder.write(GUARANTEE, {"guarantee": guarantee, "in_words": _promise(together)})
    values: dict[str, Any] = {
        "status": COMPLETE,
        "recipe": exact.recipe.fingerprint,
        "total_sha256": exact.moments.sha256 if released is exact else None,
        "sites": dict(sites),
        "counted": len(exact.roster),
        "rows": released.moments.rows,
        "heads": {name: str(path.relative_to(folder.path)) for name, path in heads.items()},
        "guarantee": guarantee,
        "notes": list(notes),
    }
    folder.write(REPORT, values)
    folder.write(PAGE, _page(exact, released, together, heads, sites, notes, folder.path))
    folder.discard(REFUSED)


def guarantee_of_releases(folder: RunFolder, released: Total) -> Guarantee | None:
    """What all releases of this folder promise together; None where the total is exact."""
    if released.guarantee is None or released.guarantee.mechanism == "local":
        return released.guarantee
    return folder.releases.compose(released.guarantee.assumptions)


def write_failure(folder: RunFolder, recipe: Recipe, sites: Mapping[str, str], why: str) -> None:
    """Write the report of a run that was not completed."""
    values = {"status": FAILED, "why": why, "recipe": recipe.fingerprint, "sites": dict(sites)}
    folder.write(REPORT, values)
    lines = ["# The run was not completed", "", _cell(why), "", *_table(sites)]
    folder.write(PAGE, "\n".join(lines) + "\n")
    folder.discard(REFUSED)
    folder.discard(HTML)  # it would show the previous run


def load_used_total(folder: Path) -> tuple[Total, str]:
    """The total that a run's heads were built from, noisy if there is noise, and what all its releases promise."""
    total = Total.load(folder / RELEASED if (folder / RELEASED).exists() else folder / TOTAL)
    try:
        words = json.loads((folder / GUARANTEE).read_text(encoding="utf-8"))["in_words"]
    except (OSError, ValueError, KeyError, TypeError):
        raise FederationError(f"{folder} has no readable {GUARANTEE}; run again, and it is written again.") from None
    return total, str(words)


def write_html(folder: str | Path) -> str:
    """Write the page about a run, if the report extra is installed; the returned sentence says what was done."""
    path = Path(folder) / HTML
    try:
        from ghofl.report.findings import Findings
        from ghofl.report.page import page
    except MissingExtraError as error:
        return f"There is no {HTML}: {error}, and then 'ghofl report {folder} -o {path}'"
    total, promise = load_used_total(path.parent)
    findings = replace(Findings.of_total(total, f"The run in {path.parent.name}"), guarantee=promise)
    files.write(path, page(findings), files.PRIVATE)
    return f"{path} shows this run in a browser"


def write_refusal(folder: RunFolder, why: str) -> None:
    """Record why a run was refused before it began; the report of the previous run stays as it is."""
    folder.write(REFUSED, {"status": REFUSED_RUN, "why": why})


@dataclass(frozen=True, slots=True)
class Status:
    """How the last run of a folder ended: complete, failed, refused, in progress, or killed before its report."""

    status: str
    why: str = ""
    counted: int | None = None
    rows: int | None = None
    heads: Mapping[str, str] = field(default_factory=dict)
    sites: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def status_of(folder: str | Path) -> Status:
    """How the last run ended, from the report in its folder, which may be damaged or missing.

    >>> status_of("/no/such/folder")
    Traceback (most recent call last):
    ...
    ghofl.errors.FederationError: /no/such/folder is not a folder; give the one of the run's configuration.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FederationError(f"{folder} is not a folder; give the one of the run's configuration.")
    if files.is_busy(folder):
        return Status(IN_PROGRESS, "a server is at work in the folder.")
    if (folder / RUNNING).exists():
        return Status(KILLED, "the server ended without a report; run again, and it continues from the folder.")
    if (folder / REFUSED).exists():
        return _read(folder / REFUSED, (REFUSED_RUN,))
    if not (folder / REPORT).exists():
        raise FederationError(f"{folder} has no {REPORT}: no run of ghofl has ended there. Give the folder of a run.")
    return _read(folder / REPORT, (COMPLETE, FAILED))


def _read(path: Path, expected: tuple[str, ...]) -> Status:
    try:
        values = json.loads(path.read_text(encoding="utf-8") if path.stat().st_size <= LARGEST else "")
        status = Status(
            values["status"],
            values.get("why", ""),
            values.get("counted"),
            values.get("rows"),
            values.get("heads", {}),
            values.get("sites", {}),
            tuple(values.get("notes", [])),
        )
        is_whole = (
            status.status in expected
            and isinstance(status.why, str)
            and all(value is None or type(value) is int for value in (status.counted, status.rows))
            and all(
                isinstance(pairs, dict) and all(isinstance(text, str) for text in pairs.values())
                for pairs in (status.heads, status.sites)
            )
            and all(isinstance(note, str) for note in status.notes)
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_whole = False
        status = Status("")
    if not is_whole:
        raise FederationError(f"{path} is damaged: it is not a report of ghofl. Run again, and it is written again.")
    return status


def _page(
    exact: Total,
    released: Total,
    together: Guarantee | None,
    heads: Mapping[str, Path],
    sites: Mapping[str, str],
    notes: Sequence[str],
    folder: Path,
) -> str:
    recipe = exact.recipe
    lines = [
        f"# {len(exact.roster)} sites, {released.moments.rows:,} rows, {len(recipe.classes)} classes",
        "",
        f"Recipe `{recipe.fingerprint}`, {recipe.dim} features of `{recipe.encoder.name}`, "
        f"statistics {', '.join(recipe.statistics)}"
        + (
            ", secure aggregation: the server saw the sum and no part of a site that checks its peers."
            if recipe.privacy.secure
            else "."
        ),
        "",
        _promise(together),
        "",
        "## Heads",
        "",
        *(f"- `{name}`: `{path.relative_to(folder)}`" for name, path in heads.items()),
        "",
        *(line for note in notes for line in (_cell(note), "")),
        "## Sites",
        "",
        *_table(sites),
    ]
    return "\n".join(lines) + "\n"


def _table(sites: Mapping[str, str]) -> list[str]:
    rows = [f"| {_cell(name)} | {_cell(what)} |" for name, what in sorted(sites.items())]
    return ["| site | what happened |", "|---|---|", *rows]


def _cell(text: str) -> str:
    """A text from outside in a table: no markup, no line breaks."""
    safe = "".join(c if c.isprintable() else " " for c in text)
    return "".join("\\" + c if c in "\\|`*_<>[]#~&" else c for c in safe)


def _promise(guarantee: Guarantee | None) -> str:
    if guarantee is None:
        return "No noise was added: the total is exact, and there is no differential privacy."
    return str(guarantee).splitlines()[0]
