"""Commands for federations on Flower: `flower new` and `flower check`."""

from pathlib import Path
from typing import Annotated

import typer

from ghofl.cli import console
from ghofl.cli.site import Json
from ghofl.flower.new import write_app
from ghofl.flower.parcel import approve, is_approved, pack, remember, remembered
from ghofl.flower.site import Site
from ghofl.recipe import Recipe

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
