"""The command that reads a site's ledger: `ledger`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ghofl import files
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, SiteFile
from ghofl.custody.budget import describe_releases
from ghofl.custody.departures import departures
from ghofl.custody.history import History
from ghofl.custody.ledger import START, Ledger
from ghofl.custody.site import Site
from ghofl.errors import SiteError
from ghofl.names import shorten

SHOWN = (
    "action",
    "round",
    "recipe",
    "total",
    "sites",
    "survivors",
    "cohort",
    "id",
    "status",
    "bytes",
    "why",
    "data",
)


def ledger(
    site: SiteFile,
    noted: Annotated[
        str, typer.Argument(metavar="[HEAD]", help="A head that was noted earlier; its line must still be there.")
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write a copy of the ledger (.jsonl), or a page about what left (.html)."),
    ] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """Show what a site was asked, what left it, and what all of that promises together; or write it to a file.

    The exit code is 2 if a line was changed, moved or left out. Note the head elsewhere from time to time: given here, it
    also detects a ledger that was rewritten as a whole. A page states numbers of rows, so it is for the site itself.

    Example: ghofl ledger site.toml -o what-left.html
    """
    console.check_outputs(json, force, output)
    if output is not None and output.suffix not in (".jsonl", ".html"):
        raise typer.BadParameter(f"{output} ends in {output.suffix!r}; name a copy .jsonl, or a page .html.")
    here, read = _load(site)
    _check_noted(read, noted)
    history = History.of(read)
    if output is not None:
        files.write(output, read.content if output.suffix == ".jsonl" else _page(here, read, site), files.PRIVATE)
    promise = describe_releases(history.releases)
    result = {
        "site": here.name,
        "head": read.head,
        "torn_bytes": read.torn,
        "lines": [line.to_dict() for line in read.lines],
        "departures": [
            {"line": one.line, "time": one.time, "what": one.kind, "recipe": one.recipe, "rows": one.rows}
            | {"bytes": one.bytes, "sha256": one.sha256, "reveals": list(one.reveals)}
            for one in departures(read, history, here.storage())
        ],
        "releases": len(history.releases),
        "reveals": len(history.reveals),
        "guarantee": promise,
    }
    console.show(result, None if output else _table(read), json, is_private=True)
    if json != "-":
        written = f"Wrote {output}. " if output else ""
        torn = f" The last line, of {read.torn} bytes, was half-written when a process died; the next one cuts it off."
        console.out.print(
            f"{written}{console.count(len(history.releases), 'release')}. {promise}\n"
            f"{console.count(len(read.lines), 'line')}, each in its place. Head: {read.head}."
            + (torn if read.torn else ""),
            soft_wrap=True,
        )


def _table(ledger: Ledger) -> Table:
    table = Table("", "time", "what", "of what")
    for line in ledger.lines:
        table.add_row(str(line.number), Text(shorten(line.time)), Text(shorten(line.what)), Text(_text(line.facts)))
    return table


def _page(site: Site, ledger: Ledger, path: Path) -> str:
    from ghofl.report.what_left import what_left

    return what_left(site, ledger, str(path))


def _check_noted(ledger: Ledger, noted: str) -> None:
    heads = [START, *(line.sha256 for line in ledger.lines)]
    if noted and not (len(noted) >= 8 and any(head.startswith(noted) for head in heads)):
        raise SiteError(
            f"no line of the ledger has the sha256 {noted[:64]!r} that was noted, so the ledger was rewritten; "
            "restore it from a copy."
        )


def _load(path: Path) -> tuple[Site, Ledger]:
    site = Site.load(path)
    if not Path(site.folder).is_dir():
        raise SiteError(
            f"{site.folder}, the folder of site {site.name!r}, does not exist; nothing has left the site yet."
        )
    storage = site.storage()
    with storage.lock():
        return site, Ledger.load(storage)


def _text(facts: Any) -> str:
    """The facts of a line for a table; hashes are shortened to their first digits."""
    parts = []
    for key in SHOWN:
        value = facts.get(key)
        if value in (None, "", []):
            continue
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        parts.append(
            f"{key} {text[:12] + '…' if key in ('round', 'recipe', 'total', 'id', 'data') and len(text) > 12 else text}"
        )
    return shorten("; ".join(parts), 1000)
