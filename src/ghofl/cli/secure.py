"""Commands for secure rounds by files: at the server `secure open|next|finish`, at a site one command per letter."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ghofl import files
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json
from ghofl.mail import letters
from ghofl.mail.at_site import ACTIONS, answered
from ghofl.mail.round_folder import LEAST, Options, RoundFolder, Standing
from ghofl.recipe import Recipe
from ghofl.site.site import Site
from ghofl.wire.total import Total

app = typer.Typer(
    help="Secure aggregation with files alone: the server learns the sum of the sites' moments and nothing else.",
    no_args_is_help=True,
    add_completion=False,
)

Folder = Annotated[Path, typer.Argument(help="The folder of the round, at the server.")]
Letters = Annotated[list[Path] | None, typer.Argument(help="Letters that sites wrote.", show_default=False)]
SiteFile = Annotated[Path, typer.Argument(help="The site's configuration, a TOML file.")]
LetterFile = Annotated[Path, typer.Argument(help="The letter that the server wrote for this site.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="The letter to write, for the server.")]

WHAT = {
    "join": "the site's name and its key for this round",
    "advertise": "keys that other sites seal shares with",
    "share": "shares of the secrets that hide the site's vector, sealed for the other sites",
    "mask": "the site's moments, hidden",
    "endorse": "a signature on whose moments are in the sum",
    "reveal": "what takes the masks off the sum, and only off the sum",
}


@app.command(name="open")
def open_round(
    folder: Folder,
    recipe: Annotated[Path, typer.Option("--recipe", "-r", help="The recipe all sites share; privacy.secure = true.")],
    dropout: Annotated[float, typer.Option(help="The share of sites that may vanish, rounded up.")] = 0.1,
    corruption: Annotated[float, typer.Option(help="The share of sites that may collude with the server.")] = 0.1,
    min_sites: Annotated[int, typer.Option(help="The fewest sites whose sum is made.")] = LEAST,
    peers: Annotated[Path | None, typer.Option(help="A file of names and public keys: only these sites join.")] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: open a round, and write the letter that invites sites to it.

    Example: ghofl secure open round --recipe recipe.toml
    """
    console.check_outputs(json, force)
    if not (0 <= dropout < 1 and 0 <= corruption < 1) or min_sites < 1:
        raise typer.BadParameter(
            "--dropout and --corruption are shares from 0 to below 1, and --min-sites is 1 or more."
        )
    named = "" if peers is None else peers.read_text(encoding="utf-8")
    opened = RoundFolder.open(folder, Recipe.load(recipe), Options(dropout, corruption, min_sites, named))
    invitation = opened.invite()
    result = {"round": opened.round_id, "letters": [str(invitation)]}
    console.say(
        result, f"Round {opened.round_id[:8]}… is open. Give {invitation} to every site: ghofl secure join.", json
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
    """At the server: take in letters of sites, and write the next ones once everybody has answered.

    Letters may come one at a time. Only sites' joining is ended by hand, with --close join.

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
    output: Annotated[Path, typer.Option("--output", "-o", help="The total file to write.")],
    came: Letters = None,
    close: Annotated[bool, typer.Option("--close", help="Finish without the sites that have not answered.")] = False,
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: take in the last letters and write the total, once everybody has answered.

    Example: ghofl secure finish round north-reveal.letter south-reveal.letter west-reveal.letter -o total.ghofl
    """
    console.check_outputs(json, True if output.exists() else force)
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
        "The round is over; what it knew of its secrets is deleted.",
        json,
    )


@app.command(name="join")
def join(site: SiteFile, letter: LetterFile, output: Output, force: Force = False, json: Json = None) -> None:
    """At a site: answer the server's letter with its name and its key for this round.

    Example: ghofl secure join site.toml 1-join/invitation.letter -o north-join.letter
    """
    _answer("join", site, letter, output, force, json)


@app.command(name="advertise")
def advertise(site: SiteFile, letter: LetterFile, output: Output, force: Force = False, json: Json = None) -> None:
    """At a site: answer the server's letter with keys that other sites seal shares with.

    Example: ghofl secure advertise site.toml 2-advertise/north.letter -o north-advertise.letter
    """
    _answer("advertise", site, letter, output, force, json)


@app.command(name="share")
def share(site: SiteFile, letter: LetterFile, output: Output, force: Force = False, json: Json = None) -> None:
    """At a site: answer the server's letter with shares of the secrets that hide its vector, sealed for the other sites.

    Example: ghofl secure share site.toml 3-share/north.letter -o north-share.letter
    """
    _answer("share", site, letter, output, force, json)


@app.command(name="mask")
def mask(site: SiteFile, letter: LetterFile, output: Output, force: Force = False, json: Json = None) -> None:
    """At a site: answer the server's letter with its moments, hidden.

    Example: ghofl secure mask site.toml 4-mask/north.letter -o north-mask.letter
    """
    _answer("mask", site, letter, output, force, json)


@app.command(name="endorse")
def endorse(site: SiteFile, letter: LetterFile, output: Output, force: Force = False, json: Json = None) -> None:
    """At a site: answer the server's letter with a signature on whose moments are in the sum.

    Example: ghofl secure endorse site.toml 5-endorse/north.letter -o north-endorse.letter
    """
    _answer("endorse", site, letter, output, force, json)


@app.command(name="reveal")
def reveal(site: SiteFile, letter: LetterFile, output: Output, force: Force = False, json: Json = None) -> None:
    """At a site: answer the server's letter with what takes the masks off the sum, and only off the sum.

    Example: ghofl secure reveal site.toml 6-reveal/north.letter -o north-reveal.letter
    """
    _answer("reveal", site, letter, output, force, json)


def _answer(action: str, site: Path, letter: Path, output: Path, force: bool, json: str | None) -> None:
    """Answer a letter and write the reply; the same again where the command is given again."""
    console.check_outputs(json, force)
    here = Site.load(site)
    written = answered(action, letters.load(letter), here, here.memory())
    content = letters.to_bytes(written)
    _write_same(output, content, force)
    result = {"site": here.name, "action": action, "round": written.fields["round"], "file": str(output)}
    console.say(
        {**result, "bytes": len(content)},
        f"Wrote {output}, {console.size(len(content))}: {WHAT[action]}. Give it to the server.",
        json,
    )


def _write_same(path: Path, content: bytes, force: bool) -> None:
    """Write a file; where the very same is there already, a command was given again and nothing is lost."""
    if not (path.exists() and path.read_bytes() == content):
        console.check_free(path, force)
        files.write(path, content, files.PRIVATE)


def _result(standing: Standing) -> dict[str, Any]:
    return {
        "round": standing.round_id,
        "waits_for": standing.action,
        "taken": list(standing.taken),
        "came": list(standing.came),
        "missing": list(standing.missing),
        "letters": [str(path) for path in standing.outgoing],
    }


def _sentence(standing: Standing, folder: Path) -> str:
    if standing.total is not None:
        return f"The round is over; 'ghofl secure finish {folder} -o total.ghofl' writes its total."
    took = f"Took in {', '.join(standing.taken)}. " if standing.taken else ""
    if standing.action == "join":
        return took + f"Joined so far: {', '.join(standing.came) or 'nobody'}. --close join begins with these."
    where = standing.outgoing[0].parent if standing.outgoing else folder
    return took + (
        f"Waiting for the {standing.action!r} letters of {', '.join(standing.missing)}; what asks them for it is in {where}."
        if standing.missing
        else f"Everybody has answered {standing.action!r}; finish the round."
    )
