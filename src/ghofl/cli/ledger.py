"""Commands that read a site's ledger: `ledger show`, `ledger verify` and `ledger export`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ghofl import files
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, SiteFile
from ghofl.custody.budget import describe_releases
from ghofl.custody.history import History
from ghofl.custody.ledger import LEDGER, START, Ledger
from ghofl.custody.site import Site
from ghofl.errors import SiteError
from ghofl.names import shown

app = typer.Typer(
    help="Read a site's ledger: what it was asked, what left it, and what all of that promises together.",
    no_args_is_help=True,
    add_completion=False,
)
SHOWN = ("action", "round", "recipe", "survivors", "cohort", "rounds", "id", "status", "bytes", "why", "data")


@app.command(name="show")
def show(
    site: SiteFile,
    last: Annotated[int, typer.Option(min=0, help="Show only this many lines, the last ones; 0 for all.")] = 0,
    force: Force = False,
    json: Json = None,
) -> None:
    """Show what a site was asked, answered and refused, line by line, and what all releases promise together.

    Example: ghofl ledger show site.toml --last 20
    """
    console.check_outputs(json, force)
    here, ledger = _load(site)
    lines, history = ledger.lines[-last:] if last else ledger.lines, History.of(ledger)
    table = Table("", "time", "what", "of what")
    for line in lines:
        table.add_row(str(line.number), Text(shown(line.time)), Text(shown(line.what)), Text(_text(line.facts)))
    promise = describe_releases(history.releases)
    result = {
        "site": here.name,
        "head": ledger.head,
        "lines": [line.to_dict() for line in lines],
        "releases": len(history.releases),
        "reveals": len(history.reveals),
        "guarantee": promise,
    }
    console.show(result, table, json, is_private=True)
    if json != "-":
        console.out.print(f"Releases: {len(history.releases)}. Guarantee of all together: {promise}", soft_wrap=True)


@app.command(name="verify")
def verify(
    site: SiteFile,
    noted: Annotated[str, typer.Option(help="A head that was noted earlier; its line must still be there.")] = "",
    force: Force = False,
    json: Json = None,
) -> None:
    """Check that no line of a site's ledger was changed, moved or left out; the exit code is 2 if one was.

    Note the head elsewhere from time to time: with --noted, a ledger that was rewritten as a whole is detected too.

    Example: ghofl ledger verify site.toml --noted 5be0c1…
    """
    console.check_outputs(json, force)
    here, ledger = _load(site)
    heads = [START, *(line.sha256 for line in ledger.lines)]
    if noted and not (len(noted) >= 8 and any(head.startswith(noted) for head in heads)):
        raise SiteError(
            f"no line of the ledger has the sha256 {noted[:64]!r} that was noted, so the ledger was rewritten; "
            "restore it from a copy."
        )
    torn = f" The last line, of {ledger.torn} bytes, was half-written when a process died; the next one cuts it off."
    console.say(
        {"site": here.name, "lines": len(ledger.lines), "head": ledger.head, "torn_bytes": ledger.torn},
        f"{here.name}: {console.count(len(ledger.lines), 'line')}, each in its place. Head: {ledger.head}."
        + (torn if ledger.torn else ""),
        json,
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
            f"{key} {text[:12] + '…' if key in ('round', 'recipe', 'id', 'data') and len(text) > 12 else text}"
        )
    return shown("; ".join(parts), 1000)
