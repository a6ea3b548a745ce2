"""Commands for federations on Flower: `flower new`, `flower check`, `flower reopen` and `flower status`."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, RecipeFile, SiteFile
from ghofl.custody import inspection
from ghofl.custody.site import Site
from ghofl.flower.new import write_app
from ghofl.flower.server import report
from ghofl.names import shorten
from ghofl.outbox.parcel import smallest_class
from ghofl.recipe import Recipe

MOST_LINES, LONGEST = 30, 1000  # lines about sites, and characters per line

app = typer.Typer(
    help="Run a federation on Flower: write its app, and check at a site what would leave.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command(name="new")
def new(
    folder: Annotated[Path, typer.Argument(help="The folder to write; it must be new or empty.")],
    recipe: RecipeFile,
    force: Force = False,
    json: Json = None,
) -> None:
    """Write a complete Flower app for a recipe, ready for 'flwr run', under the name of its folder.

    Example: ghofl flower new hospitals --recipe recipe.toml
    """
    console.check_outputs(json, force)
    agreed = Recipe.load(recipe)
    written = write_app(folder, agreed)
    result = {"folder": str(folder), "files": [str(path) for path in written], "fingerprint": agreed.fingerprint}
    console.say(
        result,
        f"Wrote {folder}, {console.count(len(written), 'file')} for recipe {agreed.fingerprint[:12]}…. "
        "Its README.md says what to do at the server and at the sites.",
        json,
    )


@app.command(name="check")
def check(
    site: SiteFile,
    recipe: Annotated[Path, typer.Option("--recipe", "-r", help="The recipe that the server is going to use.")],
    confirm: Annotated[
        str | None, typer.Option(metavar="SHA256", help="Approve what was shown: exactly the bytes with this sha256.")
    ] = None,
    decline: Annotated[bool, typer.Option("--decline", help="Let nothing leave under the recipe.")] = False,
    cohort: Annotated[
        str,
        typer.Option(help="Approve for a secure round of exactly these sites; for the first that asks unless given."),
    ] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Make it again from the rows as they are now, with a new id and new noise.")
    ] = False,
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site: show what would leave under a recipe before anything does, and approve or decline it.

    It prints the sha256 of what would leave. --confirm with it approves exactly that; if anything else would leave by then,
    nothing is approved and the exit code is 2. It is 4 if nothing leaves, or if too much was clipped to be sent.

    Example: ghofl flower check site.toml --recipe recipe.toml
    """
    console.check_outputs(json, force)
    if decline and confirm is not None:
        raise typer.BadParameter("--confirm approves and --decline refuses; give one of them.")
    if again and confirm is not None:
        raise typer.BadParameter(
            "--again makes bytes that nobody has seen; look at them before you confirm their sha256."
        )
    here, sites = Site.load(site), cohort.split(",")
    with inspection.Decision().heeding_ctrl_c() as decision:
        found = inspection.inspect(
            here, Recipe.load(recipe), again=again, cohort=sites, tell=lambda text: console.tell("Warning", text)
        )
        if decline:
            found = inspection.decline(found, here, decision)
        elif confirm is not None:
            found = inspection.approve(found, here, confirm, sites, decision)
        console.say(found.to_dict(), _described(found), json, is_private=True)
    if found.is_held:
        raise typer.Exit(console.HELD)


def _described(found: inspection.Inspection) -> str:
    parcel, moments = found.parcel, None if found.rows is None else found.rows.moments
    many = f"{console.size(found.bytes)} ({found.bytes:,} bytes)"
    what = (
        f"a message of {many}" if parcel.is_message else f"a vector of {many} in a secure round of {found.sites} sites"
    )
    smallest = f" (the smallest class has {smallest_class(moments):,} now)" if moments and moments.rows else ""
    sentences = "\n".join(f"- {text}" for text in found.sentences)
    return (
        f"{found.site}: {what}, made of {console.count(parcel.rows, 'row')}"
        f"{smallest}, {parcel.clipped:.3%} of entries clipped; it {found.state}.\n{sentences}\n"
        f"- sha256 of what would leave: {parcel.sha256}"
    )


@app.command(name="reopen")
def reopen(
    site: SiteFile,
    recipe: Annotated[Path, typer.Option("--recipe", "-r", help="The recipe of the round that is allowed.")],
    cohort: Annotated[str, typer.Option(help="All sites of that round, including this one, e.g. north,south,west.")],
    confirm: Annotated[
        str | None,
        typer.Option(metavar="SHA256", help="Re-open the folder for the bytes with the sha256 that was shown."),
    ] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site that has revealed: allow another secure round, of this recipe, these rows and exactly these sites.

    The sum of five sites and the sum of four of them show exactly what the fifth has, so a site takes part in one round only.
    Re-open when it is harmless, e.g. with the same sites again, after a round that failed before its sum was known. Without
    --confirm the command only shows what that means, and the sha256 to confirm.

    Example: ghofl flower reopen site.toml --recipe recipe.toml --cohort north,south,west
    """
    console.check_outputs(json, force)
    with inspection.Decision().heeding_ctrl_c() as decision:
        found = inspection.reopen(
            Site.load(site), Recipe.load(recipe), cohort.split(","), confirm=confirm, decision=decision
        )
        done = "is re-opened" if found.is_done else f"would be re-opened by --confirm {found.sha256}"
        listed = "\n".join(f"- {text}" for text in (*found.doubts, *found.risks))
        console.say(
            found.to_dict(),
            f"{found.site} {done} for a round of recipe {found.opening.recipe[:12]}…, rows "
            f"{found.opening.data[:12]}… and the sites {', '.join(found.opening.cohort)}.\n{listed}",
            json,
        )


@app.command(name="status")
def status(
    folder: Annotated[Path, typer.Argument(help="The folder of the run's configuration, at the server.")],
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: say how the last run ended, which 'flwr run' does not.

    Exits with 0 if it is complete, 1 if it failed, was refused or was killed, 2 if the folder holds no report or a
    damaged one, and 3 while a server is at work.

    Example: ghofl flower status /srv/ghofl/chest
    """
    console.check_outputs(json, force)
    found = report.status_of(folder)
    table = Table("", "", show_header=False)
    lines = {
        "status": found.status,
        "why": found.why,
        "sites in the total": "" if found.counted is None else f"{found.counted:,}",
        "rows": "" if found.rows is None else f"{found.rows:,}",
        "heads": ", ".join(found.heads.values()),
        **_site_lines(found.sites),
        **{f"note {i}": note for i, note in enumerate(found.notes, start=1)},
    }
    for name, what in lines.items():
        if what:
            table.add_row(Text(shorten(name)), Text(shorten(what, LONGEST)))
    console.show({"folder": str(folder), **dataclasses.asdict(found)}, table, json)
    codes = {report.COMPLETE: 0, report.IN_PROGRESS: 3}
    raise typer.Exit(codes.get(found.status, 1))


def _site_lines(sites: Mapping[str, str]) -> dict[str, str]:
    """What happened to sites, line by line: those not in the total first, and no more than fit."""
    is_in = ("counted", "counted before")
    ordered = sorted(sites.items(), key=lambda pair: (pair[1] in is_in, pair[0]))
    lines = {f"site {name}": what for name, what in ordered[:MOST_LINES]}
    left = len(ordered) - MOST_LINES
    return lines | ({"": f"and {console.count(left, 'site')} more; --json - has all of them"} if left > 0 else {})
