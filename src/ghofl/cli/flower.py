"""Commands for federations on Flower: `flower new`, `flower check` and `flower status`."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import click
import typer
from rich.table import Table
from rich.text import Text

from ghofl.cli import console
from ghofl.cli.site import Json
from ghofl.flower import report
from ghofl.flower.new import write_app
from ghofl.flower.parcel import approve, is_approved, pack, remember, remembered
from ghofl.flower.site import Site
from ghofl.names import shown
from ghofl.recipe import Recipe

MOST_LINES, LONGEST = 30, 1000  # of what is shown

app = typer.Typer(
    help="Run a federation on Flower: write its app, and see at a site what would leave.", no_args_is_help=True
)


@app.command(name="new")
def new(
    folder: Annotated[Path, typer.Argument(help="The folder to write; it must be new or empty.")],
    recipe: Annotated[Path, typer.Option("--recipe", "-r", help="The recipe all sites share.")],
    name: Annotated[str, typer.Option(help="The app's name; the folder's if not given.")] = "",
    publisher: Annotated[str, typer.Option(help="Who publishes the app, in Flower's words.")] = "ghofl",
    json: Json = None,
) -> None:
    """Write a complete Flower app for a recipe, which 'flwr run' takes as it is.

    Example: ghofl flower new hospitals --recipe recipe.toml
    """
    agreed = Recipe.load(recipe)
    written = write_app(folder, agreed, name, publisher)
    result = {"folder": str(folder), "files": [str(path) for path in written], "fingerprint": agreed.fingerprint}
    console.said(
        result,
        f"Wrote {folder}, {console.count(len(written), 'file')} for recipe {agreed.fingerprint[:12]}…. "
        f"Its README.md says what to do at the server and at the sites.",
        json,
    )


@app.command(name="check")
def check(
    site: Annotated[Path, typer.Argument(help="The site's configuration, a TOML file.")],
    recipe: Annotated[Path, typer.Option("--recipe", "-r", help="The recipe that the server is going to use.")],
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Approve what is shown: the SuperNode may send exactly this.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Make it anew from the rows as they are now, with a new id and new noise.")
    ] = False,
    json: Json = None,
) -> None:
    """At a site: say what would leave under a recipe before anything does, and approve it.

    Example: ghofl flower check site.toml --recipe recipe.toml --confirm
    """
    here, agreed = Site.load(site), Recipe.load(recipe)
    here.check_recipe(agreed)
    memory = here.memory()
    click.get_current_context().with_resource(memory.alone())  # a node may be answering a query just now
    parcel = None if again else remembered(memory, agreed)
    if parcel is None:
        parcel = pack(here, agreed)
        remember(memory, agreed, parcel)
    if confirm:
        approve(memory, agreed, parcel)
    needed, approved = here.conditions().confirm, is_approved(memory, agreed, parcel)
    what = "a vector of {} that a secure round hides" if not parcel.is_message else "a message of {}"
    state = "approved" if approved else "waits for --confirm" if needed else "leaves when it is asked for"
    result = {
        "site": here.name,
        "recipe": agreed.fingerprint,
        "rows": parcel.rows,
        "bytes": len(parcel.content),
        "secure": not parcel.is_message,
        "sha256": parcel.sha256,
        "reveals": list(parcel.sentences),
        "approved": approved,
        "approval_needed": needed,
    }
    sentences = "\n".join(f"- {sentence}" for sentence in parcel.sentences)
    console.said(
        result,
        f"{here.name}: {what.format(console.size(len(parcel.content)))}, made of "
        f"{console.count(parcel.rows, 'row')}; it {state if state != 'approved' else 'is approved'}.\n{sentences}",
        json,
    )


@app.command(name="status")
def status(
    folder: Annotated[Path, typer.Argument(help="The folder of the run's configuration, at the server.")],
    json: Json = None,
) -> None:
    """At the server: say how the last run came out, which 'flwr run' does not.

    Exits with 0 if it is complete, 1 if it failed, was refused or was killed, 2 if the folder holds no report or a
    damaged one, and 3 while a server is at work.

    Example: ghofl flower status /srv/ghofl/chest
    """
    found = report.status_of(folder)
    table = Table("", "", show_header=False)
    told = {
        "status": found.status,
        "why": found.why,
        "sites in the total": "" if found.counted is None else f"{found.counted:,}",
        "rows": "" if found.rows is None else f"{found.rows:,}",
        "heads": ", ".join(found.heads.values()),
        **_shown(found.sites),
        **{f"note {i}": note for i, note in enumerate(found.notes, start=1)},
    }
    for name, what in told.items():
        if what:
            table.add_row(Text(shown(name)), Text(shown(what, LONGEST)))
    console.present({"folder": str(folder), **dataclasses.asdict(found)}, table, json)
    codes = {report.COMPLETE: 0, report.IN_PROGRESS: 3}
    raise typer.Exit(codes.get(found.status, 1))


def _shown(sites: Mapping[str, str]) -> dict[str, str]:
    """What happened to sites, line by line; of many, those that are not in the total come first, and some are shown."""
    is_in = ("counted", "counted before")
    ordered = sorted(sites.items(), key=lambda pair: (pair[1] in is_in, pair[0]))
    lines = {f"site {name}": what for name, what in ordered[:MOST_LINES]}
    left = len(ordered) - MOST_LINES
    return lines | ({"": f"and {console.count(left, 'site')} more; --json - has all of them"} if left > 0 else {})
