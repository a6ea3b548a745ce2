"""The secure mode: Flower as the carrier of a round. Nodes are asked, their answers received, and each stage closed."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ghofl import files
from ghofl.errors import FederationError, GhoflError, RosterError
from ghofl.federation.round import ACTIONS, LEAST, ROUND, Options, Round, after_failure
from ghofl.flower.server.asking import Engine, Node, Progress, ask, site_of, wait_for_nodes
from ghofl.flower.server.folder import RunFolder
from ghofl.flower.server.settings import Settings
from ghofl.recipe import Recipe
from ghofl.wire.letter import Letter
from ghofl.wire.total import Total

log = logging.getLogger("flwr")


def secure_total(engine: Engine, recipe: Recipe, settings: Settings, folder: RunFolder, sites: dict[str, str]) -> Total:
    """The total of a secure round, and of those before it; a round that was in progress continues where it stood."""
    before = folder.total()
    inside = {entry.site for entry in before.roster} if before is not None else set()
    sites |= dict.fromkeys(inside, "counted before")
    if before is not None and before.is_released:
        return _without_latecomers(engine, before, inside, folder, sites)
    kept = _kept_round(folder, inside)
    nodes = [node for node in wait_for_nodes(engine, settings, len(inside)) if node.name not in inside]
    here = kept or _open(recipe, settings, folder, len(inside))
    carried = _Carried(engine, settings, here, sites)
    by_name = carried.invite(nodes, inside)
    if before is not None and kept is None and len(by_name) < LEAST:
        sites |= dict.fromkeys(by_name, "left out: a later secure round needs three new sites")
        folder.end_round()
        return before
    try:
        total = carried.finish(by_name)
        whole = total if before is None else before.join(total)
    except GhoflError as error:  # if it were kept, the round would fail in every later run too
        raise FederationError(f"{error} {_end(folder)}") from error
    sites |= {entry.site: "counted" for entry in total.roster}
    return whole


def _without_latecomers(
    engine: Engine, before: Total, inside: set[str], folder: RunFolder, sites: dict[str, str]
) -> Total:
    """The total as it is: sites add their noise inside a round, so a later site's vector could not be added."""
    folder.end_round()
    late = [node.name for node in engine.nodes() if node.name and node.name not in inside]
    sites |= dict.fromkeys(late, "left out: the total has the noise of its own sites, and no site can be added")
    log.info("Nobody is asked: the total has the noise of its %d sites, and no site can be added", len(inside))
    return before


def _kept_round(folder: RunFolder, inside: set[str]) -> Round | None:
    """The round in progress. One that cannot be read is forgotten, so that the next run opens another.

    So is one that has not begun, since other nodes may be connected now, and one whose sites are counted: the server
    was killed after the total was written and before the round was forgotten.
    """
    if not (folder.round / ROUND).exists():
        return None
    try:
        kept = Round(folder.round)
    except GhoflError as error:
        raise FederationError(f"{error} {_end(folder)}") from None
    if kept.action != ACTIONS[0] and not {participant.name for participant in kept.participants} & inside:
        log.info("Continuing round %s at %r", kept.round_id[:8], kept.action)
        return kept
    folder.end_round()
    return None


def _open(recipe: Recipe, settings: Settings, folder: RunFolder, inside: int) -> Round:
    peers = Path(settings.peers).read_text(encoding="utf-8") if settings.peers else None
    fewest = settings.min_sites - inside
    options = Options(settings.dropout, settings.corruption, fewest, peers, settings.authenticated)
    return Round.open(files.private_folder(folder.round), recipe, options)


def _end(folder: RunFolder) -> str:
    """End a round that cannot be completed, and say what to do."""
    what_to_do = f"The next run opens a new one. {after_failure(folder.round)}".strip()
    folder.end_round()
    return what_to_do


class _Carried:
    """A round whose letters Flower carries."""

    def __init__(self, engine: Engine, settings: Settings, here: Round, sites: dict[str, str]) -> None:
        self._engine, self._settings, self._here, self._sites = engine, settings, here, sites

    def invite(self, nodes: Sequence[Node], inside: set[str]) -> dict[str, Node]:
        """The nodes of the sites that joined, by the names of these."""
        by_name: dict[str, Node] = {}
        progress = Progress("joined the round", len(nodes))
        members = {participant.name for participant in self._here.participants}

        def accept(node: Node, letter: Letter) -> None:
            name = site_of(node, letter)
            if name in by_name:
                raise RosterError(f"a second node calls itself {name!r}; the first one counts.")
            if name in inside:
                progress.add(name, "counted before")
                return
            if self._here.action != "join" and name not in members:
                self._sites[name] = "left out: the round had begun without it; a later run includes it"
                return
            self._here.receive(name, "join", letter, node.key)
            by_name[name] = replace(node, name=name)
            self._sites[name] = "joined"
            progress.add(name, "")

        query, limit = self._here.invitation(), self._here.limit("join")
        ask(self._engine, "join", dict.fromkeys(nodes, query), self._settings, accept, self._sites, limit)
        return by_name

    def finish(self, nodes: Mapping[str, Node]) -> Total:
        """Go through the stages that are left, and return the total."""
        if self._here.action == "join":
            self._here.close()
        while True:
            self._ask(nodes)
            self._here.save()
            if self._here.action == ACTIONS[-1]:
                return self._here.finish()
            self._here.close()

    def _ask(self, nodes: Mapping[str, Node]) -> None:
        """Ask every connected site for what it has not sent yet."""
        here, action = self._here, self._here.action
        letters, missing = here.letters(), sorted(here.missing)
        for name in (name for name in missing if name not in nodes):
            self._sites[name] = f"left out: it was not connected to {action}"
            log.warning("%s was not connected to %s", name, action)
        progress = Progress(_DONE[action], len(letters), len(here.came))

        def accept(node: Node, letter: Letter) -> None:
            here.receive(node.name, action, letter)
            progress.add(node.name, "")

        queries = {nodes[name]: letters[name] for name in missing if name in nodes}
        ask(self._engine, action, queries, self._settings, accept, self._sites, here.limit(action))


_DONE = {
    "advertise": "advertised keys",
    "share": "shared seeds",
    "mask": "sent their masked vector",
    "endorse": "signed the survivor list",
    "reveal": "revealed shares",
}
