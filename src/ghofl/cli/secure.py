"""Commands for secure rounds by files: at the server `secure open|next|finish`, at a site `secure answer`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ghofl import files
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, SiteFile, TotalOutput
from ghofl.custody.site import Site
from ghofl.federation.round import ACTIONS, LEAST, Options
from ghofl.mail import letters
from ghofl.mail.at_site import answer_letter
from ghofl.mail.round_folder import RoundFolder, RoundStatus
from ghofl.recipe import Recipe
from ghofl.secure import CORRUPTION, DROPOUT
from ghofl.wire.total import Total

app = typer.Typer(
    help="Secure aggregation with files alone: the server learns the sum of the sites' moments and nothing else.",
    no_args_is_help=True,
    add_completion=False,
)

Folder = Annotated[Path, typer.Argument(help="The folder of the round, at the server.")]
Letters = Annotated[list[Path] | None, typer.Argument(help="Letters that sites wrote.", show_default=False)]

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
    min_cohort: Annotated[int, typer.Option(help="The fewest sites whose sum may be revealed.")] = LEAST,
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
    if not (0 <= dropout < 1 and 0 <= corruption < 1) or min_cohort < 1:
        raise typer.BadParameter(
            f"--dropout is {dropout}, --corruption {corruption} and --min-cohort {min_cohort}; the first two "
            "are shares from 0 to "
            "below 1, and --min-cohort is 1 or more."
        )
    named = None if peers is None else peers.read_text(encoding="utf-8")
    opened = RoundFolder.open(folder, Recipe.load(recipe), Options(dropout, corruption, min_cohort, named))
    invitation = opened.invite()
    result = {"round": opened.round_id, "letters": [str(invitation)]}
    console.say(
        result, f"Round {opened.round_id[:8]}… is open. Give {invitation} to every site: ghofl secure answer.", json
    )


@app.command(name="next")
def next_stage(
    folder: Folder,
    came: Letters = None,
    close: Annotated[
        str, typer.Option(help=f"End this stage without the sites that have not answered: {', '.join(ACTIONS[:-1])}.")
    ] = "",
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: read letters of sites, and write the next ones once everybody has answered.

    Letters may come one at a time. Only the first stage has to be ended by hand, with --close join.

    Example: ghofl secure next round north-join.letter south-join.letter west-join.letter --close join
    """
    console.check_outputs(json, force)
    if close and close not in ACTIONS[:-1]:
        raise typer.BadParameter(f"--close is {close!r}; write one of {', '.join(ACTIONS[:-1])}.")
    standing = RoundFolder(folder).take(came or [], close)
    console.say(_result(standing), _sentence(standing, folder), json)


@app.command(name="finish")
def finish(
    folder: Folder,
    output: TotalOutput,
    came: Letters = None,
    close: Annotated[bool, typer.Option("--close", help="Finish without the sites that have not answered.")] = False,
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: read the last letters and write the total, once everybody has answered.

    Example: ghofl secure finish round north-reveal.letter south-reveal.letter west-reveal.letter -o total.ghofl
    """
    console.check_outputs(json, force)
    standing = RoundFolder(folder).take(came or [], ACTIONS[-1] if close else "", is_last=True)
    if standing.total is None:
        console.say(_result(standing), _sentence(standing, folder), json)
        return
    _write_same(output, standing.total.read_bytes(), force)
    total = Total.load(output)
    result = {
        **_result(standing),
        "file": str(output),
        "total_sha256": total.moments.sha256,
        "rows": total.moments.rows,
    }
    result["sites"] = [entry.site for entry in total.roster]
    console.say(
        result,
        f"Wrote {output}: the sum over {', '.join(result['sites'])}, {total.moments.rows:,} rows. "
        "The round is over, and its secrets are deleted.",
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
    content, action = letters.to_bytes(written), written.fields["action"]
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
    if standing.total is not None:
        return f"The round is over; 'ghofl secure finish {folder} -o total.ghofl' writes its total."
    read = f"Read the letters of {', '.join(standing.taken)}. " if standing.taken else ""
    if standing.action == "join":
        return read + f"Joined so far: {', '.join(standing.came) or 'nobody'}. --close join starts the round with them."
    where = standing.outgoing[0].parent if standing.outgoing else folder
    return read + (
        f"Waiting for the {standing.action!r} letters of {', '.join(standing.missing)}; the letters to them are in {where}."
        if standing.missing
        else f"Everybody has answered {standing.action!r}; finish the round."
    )
