"""Commands for secure rounds by files: at the server `secure open|next`, at a site `secure answer`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ghofl import files
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, SiteFile
from ghofl.custody.site import Site
from ghofl.federation.round import ACTIONS, Options
from ghofl.mail.at_site import answer_letter
from ghofl.mail.round_folder import RoundFolder, RoundStatus
from ghofl.recipe import Recipe
from ghofl.secure import CORRUPTION, DROPOUT
from ghofl.wire import letter as letters
from ghofl.wire.total import Total

app = typer.Typer(
    help="Secure aggregation with files alone: the server learns the sum of the sites' moments and nothing else.",
    no_args_is_help=True,
    add_completion=False,
)

Folder = Annotated[Path, typer.Argument(help="The folder of the round, at the server.")]

WHAT = {
    "join": "the site's name and its key for this round",
    "advertise": "the keys that other sites seal their shares with",
    "share": "shares of the secrets that hide the site's moments, sealed for the other sites",
    "mask": "the site's moments under masks",
    "endorse": "a signature on the list of sites in the sum",
    "reveal": "the shares that take the masks off the sum, and only off the sum",
}


@app.command(name="open")
def open_round(
    folder: Folder,
    recipe: Annotated[Path, typer.Option("--recipe", "-r", help="The recipe all sites share; privacy.secure = true.")],
    dropout: Annotated[float, typer.Option(help="The share of sites that may vanish, rounded up.")] = DROPOUT,
    corruption: Annotated[
        float, typer.Option(help="The share of sites that may collude with the server.")
    ] = CORRUPTION,
    peers: Annotated[
        Path | None, typer.Option(help="A file of names and public keys: only these sites may join.")
    ] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: open a round, and write the letter that invites sites to it.

    Example: ghofl secure open round --recipe recipe.toml
    """
    console.check_outputs(json, force)
    if not (0 <= dropout < 1 and 0 <= corruption < 1):
        raise typer.BadParameter(
            f"--dropout is {dropout} and --corruption {corruption}; both are shares from 0 to below 1."
        )
    named = None if peers is None else peers.read_text(encoding="utf-8")
    opened = RoundFolder.open(folder, Recipe.load(recipe), Options(dropout, corruption, peers=named))
    invitation = opened.invite()
    result = {"round": opened.round_id, "letters": [str(invitation)]}
    console.say(
        result, f"Round {opened.round_id[:8]}… is open. Give {invitation} to every site: ghofl secure answer.", json
    )


@app.command(name="next")
def next_stage(
    folder: Folder,
    came: Annotated[list[Path] | None, typer.Argument(help="Letters that sites wrote.", show_default=False)] = None,
    close: Annotated[
        str, typer.Option(help=f"End this stage without the sites that have not answered: {', '.join(ACTIONS)}.")
    ] = "",
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: read letters of sites, and once everybody has answered write the next ones, or at the end the total.

    Letters may come one at a time. Only the first stage has to be ended by hand, with --close join. The total is in the folder.

    Example: ghofl secure next round north-join.letter south-join.letter west-join.letter --close join
    """
    console.check_outputs(json, force)
    if close and close not in ACTIONS:
        raise typer.BadParameter(f"--close is {close!r}; write one of {', '.join(ACTIONS)}.")
    standing = RoundFolder(folder).take(came or [], close)
    if standing.total is None:
        console.say(_result(standing), _sentence(standing, folder), json)
        return
    total = Total.load(standing.total)
    sites, rows = [entry.site for entry in total.roster], total.moments.rows
    about = {"file": str(standing.total), "total_sha256": total.moments.sha256, "rows": rows, "sites": sites}
    console.say(
        {**_result(standing), **about},
        f"{standing.total} is the sum over {', '.join(sites)}, {rows:,} rows. The round is over, and its secrets are deleted.",
        json,
        is_private=True,
    )


@app.command(name="answer")
def answer(
    site: SiteFile,
    letter: Annotated[Path, typer.Argument(help="The letter that the server wrote for this site.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The letter to write, for the server.")],
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site: answer any letter of the server, and say what the answer holds; repeated, it writes the same answer.

    Example: ghofl secure answer site.toml round/1-join/invitation.letter -o north-join.letter
    """
    console.check_outputs(json, force)
    here = Site.load(site)
    written = answer_letter(letters.load(letter), here, here.storage())
    content, action = letters.to_file(written), written.fields["action"]
    _write_same(output, content, force)
    result = {"site": here.name, "action": action, "round": written.fields["round"], "file": str(output)}
    console.say(
        {**result, "bytes": len(content)},
        f"Wrote {output}, {console.size(len(content))}: {WHAT[action]}. Give it to the server.",
        json,
    )


def _write_same(path: Path, content: bytes, force: bool) -> None:
    """Write a file; if it exists with the same content, the command was repeated and nothing is lost."""
    if not (path.exists() and path.read_bytes() == content):
        console.check_free(path, force)
        files.write(path, content, files.PRIVATE)


def _result(standing: RoundStatus) -> dict[str, Any]:
    return {
        "round": standing.round_id,
        "waits_for": standing.action,
        "taken": list(standing.taken),
        "came": list(standing.came),
        "missing": list(standing.missing),
        "letters": [str(path) for path in standing.outgoing],
    }


def _sentence(standing: RoundStatus, folder: Path) -> str:
    read = f"Read the letters of {', '.join(standing.taken)}. " if standing.taken else ""
    if standing.action == "join":
        return read + f"Joined so far: {', '.join(standing.came) or 'nobody'}. --close join starts the round with them."
    where = standing.outgoing[0].parent if standing.outgoing else folder
    return read + (
        f"Waiting for the {standing.action!r} letters of {', '.join(standing.missing)}; the letters to them are in {where}."
    )
