"""The plain mode: one query, one message per site, kept in a file before it is counted."""

import logging

from ghofl.errors import FederationError, MessageError, MomentsOverflowError, RosterError
from ghofl.flower.server.asking import Engine, Node, Progress, ask, site_of, wait_for_nodes
from ghofl.flower.server.folder import RunFolder
from ghofl.flower.server.settings import Settings
from ghofl.moments import Layout
from ghofl.recipe import Recipe
from ghofl.wire.envelope import size_limit
from ghofl.wire.letter import Letter
from ghofl.wire.message import MAX_HEADER, Message
from ghofl.wire.roster import check_overflow
from ghofl.wire.total import Aggregator, Total

log = logging.getLogger("flwr")


def plain_total(engine: Engine, recipe: Recipe, settings: Settings, folder: RunFolder, sites: dict[str, str]) -> Total:
    """The total of all messages, new and earlier ones; `sites` records what happened to each site."""
    kept, removed, counted = folder.headers().values(), set(folder.removed().values()), folder.ids()
    inside, rows = {header["site"] for header in kept}, sum(header["rows"] for header in kept)
    layout = Layout.of(recipe)
    sites |= dict.fromkeys(inside, "counted before") | dict.fromkeys(removed, "removed")
    nodes = wait_for_nodes(engine, settings, len(inside))
    query = Letter({"recipe": recipe.to_toml(), "counted": sorted(counted)})
    limit = size_limit(layout, MAX_HEADER)
    progress = Progress("sent their message", len(nodes))

    def accept(node: Node, letter: Letter) -> None:
        nonlocal rows
        name = site_of(node, letter)
        if letter.fields["status"] == "counted":
            if name not in inside | removed:
                raise MessageError(f"{name!r} says that it is already counted, but it is not; check its folder.")
            if name in removed:
                progress.skip()
                log.info("%s was removed and stays out", name)
            else:
                progress.add(name, sites[name])
            return
        if len(letter.payload) > limit:
            raise MessageError(f"{len(letter.payload):,} bytes came, and this recipe allows {limit:,}.")
        message, size = Message.from_bytes(letter.payload, recipe), len(letter.payload)
        if message.site != name:
            raise MessageError(f"a message of site {message.site!r} came from {name!r}.")
        if name in removed:
            raise RosterError(f"it was removed; delete its files in {folder.path / 'removed'} to admit it again.")
        if name in inside or message.id in counted:
            raise RosterError(f"site {name!r} is already in the total; each site is counted once.")
        check_overflow(layout, rows + message.rows, name)
        folder.keep(message.id, letter.payload)
        rows += message.rows
        counted.add(message.id)
        inside.add(name)
        sites[name] = "counted"
        progress.add(name, f"{message.rows:,} rows, {size:,} bytes")

    ask(engine, "message", dict.fromkeys(nodes, query), settings, accept, sites, limit)
    return _sum(folder, recipe)


def _sum(folder: RunFolder, recipe: Recipe) -> Total:
    """The total of all messages in the folder, read from their files in pieces."""
    aggregator = Aggregator(recipe)
    for message_id in folder.headers():
        path = folder.message(message_id)
        try:
            aggregator.add_file(path)
        except (MessageError, MomentsOverflowError, RosterError) as error:
            raise FederationError(f"{path}: {error} Remove the file, and the site is asked again.") from None
    return aggregator.finish()
