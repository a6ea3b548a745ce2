"""The command that guards a site: `keeper`."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from ghofl.cli import console
from ghofl.cli.arguments import Force, Json
from ghofl.errors import MissingExtraError

try:
    from ghofl.keeper import process
except ModuleNotFoundError:  # Windows has no Unix users and groups
    process = None


def keeper(
    site: Annotated[Path, typer.Argument(help="The site's configuration, a TOML file with a socket.")],
    check: Annotated[bool, typer.Option("--check", help="Check the configuration and say what it would do.")] = False,
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site: guard its rows, keys, policy and ledger, and answer requests on a Unix socket.

    Run it as the site's own user, who alone can read its files. The SuperNode runs as another user and relays letters:
    --node-config 'keeper="/run/ghofl/north.sock"'. SIGTERM or Ctrl-C ends it.

    Example: ghofl keeper site.toml
    """
    console.check_outputs(json, force)
    if process is None:
        raise MissingExtraError("a keeper needs Unix sockets that tell which user connects; run it on Linux.")
    guard = process.Keeper(site)
    here = guard.site
    result = {"site": here.name, "socket": here.socket, "folder": here.folder, "allowed": sorted(guard.allowed)}
    sentence = f"{here.name}: answers users {', '.join(map(str, sorted(guard.allowed)))} at {here.socket}."
    if check:
        console.say(result, sentence, json)
        return
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with process.stop_on_signals(guard):
        guard.serve(lambda: console.say(result, sentence, json))
    console.tell("Stopped", "The socket is gone, and nothing was left half-written.", mark=".")
