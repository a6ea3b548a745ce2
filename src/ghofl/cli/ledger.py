"""Commands that read a site's ledger: `ledger show`, `ledger export` and `ledger report`."""

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
from ghofl.custody.ledger import LEDGER, START, Ledger
from ghofl.custody.site import Site
from ghofl.errors import SiteError
from ghofl.names import shorten

app = typer.Typer(
    help="Read a site's ledger: what it was asked, what left it, and what all of that promises together.",
    no_args_is_help=True,
    add_completion=False,
)
SHOWN = (
    "action",
    "round",
    "recipe",
    "total",
    "sites",
    "survivors",
    "cohort",
    "rounds",
    "id",
    "status",
    "bytes",
    "why",
    "data",
)


@app.command(name="show")
def show(
    site: SiteFile,
    noted: Annotated[
        str, typer.Argument(metavar="[HEAD]", help="A head that was noted earlier; its line must still be there.")
    ] = "",
    force: Force = False,
    json: Json = None,
) -> None:
    """Show what a site was asked, answered and refused, line by line, and what all releases promise together.

    The exit code is 2 if a line was changed, moved or left out. Note the head elsewhere from time to time: given here, it
    also detects a ledger that was rewritten as a whole.

    Example: ghofl ledger show site.toml
    """
    console.check_outputs(json, force)
    here, ledger = _load(site)
    _check_noted(ledger, noted)
    history = History.of(ledger)
    table = Table("", "time", "what", "of what")
    for line in ledger.lines:
        table.add_row(str(line.number), Text(shorten(line.time)), Text(shorten(line.what)), Text(_text(line.facts)))
    promise = describe_releases(history.releases)
    result = {
        "site": here.name,
        "head": ledger.head,
        "torn_bytes": ledger.torn,
        "lines": [line.to_dict() for line in ledger.lines],
        "releases": len(history.releases),
        "reveals": len(history.reveals),
        "guarantee": promise,
    }
    console.show(result, table, json, is_private=True)
    if json != "-":
        console.out.print(f"{console.count(len(history.releases), 'release')}. {promise}", soft_wrap=True)
        torn = (
            f" The last line, of {ledger.torn} bytes, was half-written when a process died; the next one cuts it off."
        )
        console.out.print(
            f"{console.count(len(ledger.lines), 'line')}, each in its place. Head: {ledger.head}."
            + (torn if ledger.torn else ""),
            soft_wrap=True,
        )


@app.command(name="export")
def export(
    site: SiteFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write, JSON lines.")],
    force: Force = False,
    json: Json = None,
) -> None:
    """Write a checked copy of a site's ledger, for an archive or an auditor; it names rounds, recipes and sites, not rows.

    Example: ghofl ledger export site.toml -o ledger-north.jsonl
    """
    console.check_outputs(json, force, output)
    here, ledger = _load(site)
    content = (here.storage().get(LEDGER) or b"").rpartition(b"\n")
    files.write(output, content[0] + content[1], files.PRIVATE)
    console.say(
        {"site": here.name, "file": str(output), "lines": len(ledger.lines), "head": ledger.head},
        f"Wrote {output}: {console.count(len(ledger.lines), 'line')}, head {ledger.head}.",
        json,
    )


@app.command(name="report")
def report(
    site: SiteFile = Path("site.toml"),
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")],
    force: Force = False,
    json: Json = None,
) -> None:
    """Write one printable page about what left a site: when, to whom, under which recipe and policy, what it reveals.

    It states numbers of rows, so it is for the site itself; only its owner can read the file.

    Example: ghofl ledger report site.toml -o what-left.html
    """
    from ghofl.report.what_left import what_left

    console.check_outputs(json, force, output)
    here, ledger = _load(site)
    files.write(output, what_left(here, ledger, str(site)), files.PRIVATE)
    history = History.of(ledger)
    promise = describe_releases(history.releases)
    console.say(
        {
            "site": here.name,
            "file": str(output),
            "head": ledger.head,
            "departures": [
                {"line": one.line, "time": one.time, "what": one.kind, "recipe": one.recipe, "rows": one.rows}
                | {"bytes": one.bytes, "sha256": one.sha256, "reveals": list(one.reveals)}
                for one in departures(ledger, history, here.storage())
            ],
            "guarantee": promise,
        },
        f"Wrote {output}: {console.count(len(history.releases), 'departure')}. {promise}",
        json,
        is_private=True,
    )


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
