"""Commands for federations on Flower: `flower new`, `flower check`, `flower reopen` and `flower status`."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import click
import typer
from rich.table import Table
from rich.text import Text

from ghofl.cli import console
from ghofl.cli.site import Force, Json
from ghofl.flower.new import write_app
from ghofl.flower.server import report
from ghofl.names import shown
from ghofl.recipe import Recipe
from ghofl.site.parcel import (
    approve,
    doubts,
    is_approved,
    is_outdated,
    pack,
    remember,
    remembered,
    rows_now,
    smallest_class,
)
from ghofl.site.reveals import Ledger, Opening
from ghofl.site.site import Site

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
    force: Force = False,
    json: Json = None,
) -> None:
    """Write a complete Flower app for a recipe, which 'flwr run' takes as it is.

    Example: ghofl flower new hospitals --recipe recipe.toml
    """
    console.check_outputs(json, force)
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
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site: say what would leave under a recipe before anything does, and approve it.

    Example: ghofl flower check site.toml --recipe recipe.toml --confirm
    """
    console.check_outputs(json, force)
    here, agreed = Site.load(site), Recipe.load(recipe)
    here.check_recipe(agreed)
    here.conditions().peer_keys()
    memory = here.memory()
    click.get_current_context().with_resource(memory.alone())  # a node may be answering a query just now
    now = rows_now(here, agreed)
    rules = () if now is None else here.conditions().disclosure.verdicts(now.moments, agreed)
    for verdict in rules:
        if verdict.is_refusal and agreed.privacy.epsilon is None:  # what leaves the site says less: this is for its administrator
            console.told("Warning", str(verdict))
    parcel = None if again else remembered(memory, agreed)
    if parcel is None:
        parcel = pack(here, agreed, now)
        remember(memory, agreed, parcel)
    if confirm:
        approve(memory, agreed, parcel)
    needed, approved = here.conditions().confirm, is_approved(memory, agreed, parcel)
    is_old = is_outdated(parcel, now)
    what = "a vector of {} that a secure round hides" if not parcel.is_message else "a message of {}"
    revealed = not parcel.is_message and not Ledger.load(memory).allows(agreed.fingerprint, parcel.data)
    state = "is approved, as it was packed before" if is_old else "is approved"
    state = state if approved else "waits for --confirm" if needed else "leaves when it is asked for"
    state = "does not leave: this folder has unmasked in a round, see 'ghofl flower reopen'" if revealed else state
    result = {
        "site": here.name,
        "recipe": agreed.fingerprint,
        "rows": parcel.rows,
        "rows_now": None if now is None else now.moments.rows,
        "smallest_class": None if now is None else smallest_class(now.moments),
        "rows_changed": is_old,
        "clipped_share": parcel.clipped,
        "bytes": len(parcel.content),
        "secure": not parcel.is_message,
        "sha256": parcel.sha256,
        "data": parcel.data,
        "reveals": list(parcel.sentences),
        "approved": approved,
        "approval_needed": needed,
        "revealed": revealed,
    }
    result["disclosure"] = [dataclasses.asdict(verdict) for verdict in rules]
    told = (*doubts(parcel, agreed, now), *parcel.sentences, *map(str, rules))
    sentences = "\n".join(f"- {text}" for text in told)
    smallest = (
        "" if now is None or not now.moments.rows else f" (the smallest class has {smallest_class(now.moments):,} now)"
    )
    console.said(
        result,
        f"{here.name}: {what.format(console.size(len(parcel.content)))}, made of {console.count(parcel.rows, 'row')}"
        f"{smallest}, {parcel.clipped:.3%} of entries clipped; it {state}.\n{sentences}",
        json,
    )


@app.command(name="reopen")
def reopen(
    site: Annotated[Path, typer.Argument(help="The site's configuration, a TOML file.")],
    recipe: Annotated[Path, typer.Option("--recipe", "-r", help="The recipe of the round that may unmask.")],
    cohort: Annotated[str, typer.Option(help="All sites of that round, this one too, e.g. north,south,west.")],
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Re-open the folder; without it, only what that means is shown.")
    ] = False,
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site that has unmasked: allow one more secure round, of this recipe, these rows and exactly these sites.

    A secure round shows the sum over its sites, and a site takes part in one. A second sum over other sites, or over
    other rows, also shows the difference of the two: a round of five sites and one of four of them show what the fifth
    has, exactly. Re-open when that is harmless, e.g. after a round that failed before its sum was known, with the same
    sites again.

    Example: ghofl flower reopen site.toml --recipe recipe.toml --cohort north,south,west --confirm
    """
    console.check_outputs(json, force)
    here, agreed = Site.load(site), Recipe.load(recipe)
    here.check_recipe(agreed)
    memory = here.memory()
    click.get_current_context().with_resource(memory.alone())
    ledger, parcel = Ledger.load(memory), remembered(memory, agreed)
    if parcel is None:
        parcel = pack(here, agreed)
        remember(memory, agreed, parcel)
    opening = Opening.of(here.name, agreed, parcel.data, cohort.split(","))
    after = ledger.reopened(opening)
    if confirm:
        after.save(memory)
    risks = ledger.risks(opening)
    result = {
        "site": here.name,
        "recipe": opening.recipe,
        "data": opening.data,
        "cohort": list(opening.cohort),
        "reopened": confirm,
        "reveals": [
            {"round": r.round, "recipe": r.recipe, "data": r.data, "cohort": list(r.cohort)} for r in ledger.reveals
        ],
        "risks": list(risks),
    }
    done = "is re-opened" if confirm else "would be re-opened by --confirm"
    listed = "\n".join(f"- {text}" for text in (*doubts(parcel, agreed, rows_now(here, agreed)), *risks))
    console.said(
        result,
        f"{here.name} {done} for one round of recipe {opening.recipe[:12]}…, rows "
        f"{opening.data[:12]}… and the sites {', '.join(opening.cohort)}.\n{listed}",
        json,
    )


@app.command(name="status")
def status(
    folder: Annotated[Path, typer.Argument(help="The folder of the run's configuration, at the server.")],
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: say how the last run came out, which 'flwr run' does not.

    Exits with 0 if it is complete, 1 if it failed, was refused or was killed, 2 if the folder holds no report or a
    damaged one, and 3 while a server is at work.

    Example: ghofl flower status /srv/ghofl/chest
    """
    console.check_outputs(json, force)
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
