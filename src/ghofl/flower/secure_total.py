"""The secure mode: sites join a round and go through its stages, and the server learns their sum."""

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ghofl import secure
from ghofl.aggregation import Total
from ghofl.cohort import refuse_few
from ghofl.errors import FederationError, MessageError, RosterError
from ghofl.flower import binding
from ghofl.flower.asking import Engine, Node, Progress, ask, present, site_of
from ghofl.flower.folder import RunFolder
from ghofl.flower.letter import Letter
from ghofl.flower.policy import load_peers
from ghofl.flower.settings import Settings
from ghofl.moments import Layout
from ghofl.privacy import entry_bound
from ghofl.recipe import Recipe
from ghofl.secure import Agreement, Participant, ServerState

log = logging.getLogger("flwr")
CONTROL = 64 * 2**10  # the most bytes of an answer to "join", which has a key and a signature


def secure_total(engine: Engine, recipe: Recipe, settings: Settings, folder: RunFolder, sites: dict[str, str]) -> Total:
    """The total of a secure round, and of those before it; a round that was in progress goes on where it stood."""
    before = folder.total()
    inside = {entry.site for entry in before.roster} if before is not None else set()
    sites |= dict.fromkeys(inside, "counted before")
    if settings.remove:
        raise FederationError(
            f"{', '.join(settings.remove)} cannot be removed: a secure total hides its parts. Run a new round without "
            "them, in another folder."
        )
    kept = folder.round()
    if kept is not None and {p.name for p in kept[1].agreement.participants} & inside:
        folder.end_round()  # killed after the total was written and before the round was forgotten
        kept = None
    nodes = present(engine, settings, len(inside))
    round_id = secrets.token_hex(16) if kept is None else kept[1].agreement.round_id
    joined = _joined(engine, recipe, settings, round_id, nodes, sites, inside)
    if before is not None and kept is None and (len(joined) < 3 or before.is_released):
        why = (
            "the noise of a total is that of its sites"
            if before.is_released
            else "a later secure round needs three new sites"
        )
        sites |= dict.fromkeys(joined, f"left out: {why}")
        return before
    if kept is None:
        state = _opened(recipe, settings, round_id, joined)
        closed = None
        folder.save_stage(closed, state)
    else:
        closed, state = kept
        late = set(joined) - {p.name for p in state.agreement.participants}
        sites |= dict.fromkeys(late, "left out: the round had begun without it; a later run takes it in")
        log.info("Going on with round %s at stage %r", round_id[:8], state.stage)
    by_name = {name: replace(member.node, name=name) for name, member in joined.items()}
    signatures = [joined[p.name].signature if p.name in joined else b"" for p in state.agreement.participants]
    try:
        release = _Round(engine, settings, folder, by_name, signatures, sites).finished(closed, state)
    except secure.RoundFailedError as error:
        folder.end_round()
        raise FederationError(f"{error} The next run opens a new one.") from None
    for blame in release.blamed:
        log.warning("%s gave a wrong share: %s", blame.name, blame.what)
    total = Total.of_round(release.total, recipe, release.survivors)
    sites |= dict.fromkeys(release.survivors, "counted")
    return total if before is None else before.joined(total)


@dataclass(frozen=True, slots=True)
class _Member:
    """A site that joined a round."""

    node: Node
    key: bytes
    signature: bytes


def _joined(
    engine: Engine,
    recipe: Recipe,
    settings: Settings,
    round_id: str,
    nodes: Sequence[Node],
    sites: dict[str, str],
    inside: set[str],
) -> dict[str, _Member]:
    joined: dict[str, _Member] = {}
    peers = load_peers(settings.peers) if settings.peers else {}
    progress = Progress("joined the round", len(nodes))

    def accept(node: Node, letter: Letter) -> None:
        name, key = site_of(node, letter), letter.fields.get("key", b"")
        signature = letter.fields.get("signature", b"")
        if not isinstance(key, bytes) or not isinstance(signature, bytes):
            raise MessageError("its key or signature are no bytes.")
        if name in inside:
            progress.add(name, "counted before")
            return
        if name in joined or any(member.key == key for member in joined.values()):
            raise RosterError(f"a second node says that it is {name!r}, or uses its key; the first one counts.")
        if settings.authenticated:
            _check_binding(node, recipe, round_id, name, key, signature, peers)
        joined[name] = _Member(node, Participant(name, key).key, signature)
        sites[name] = "joined"
        progress.add(name, "")

    query = Letter({"recipe": recipe.to_toml(), "round": round_id})
    ask(engine, "join", dict.fromkeys(nodes, query), settings, accept, sites, CONTROL)
    return joined


def _check_binding(
    node: Node, recipe: Recipe, round_id: str, name: str, key: bytes, signature: bytes, peers: Mapping[str, Any]
) -> None:
    """Raise unless the key the node is registered with vouches for the site's key of this round."""
    if not node.key or not signature:
        raise MessageError(
            "its round key is not signed by the key that its node is registered with; give the site its auth_key, or "
            "run with authenticated=false where nodes have no keys."
        )
    registered = binding.load_public_key(node.key, f"node {node.id}")
    if not binding.is_signed(registered, signature, binding.statement(recipe.fingerprint, round_id, name, key)):
        raise MessageError("its round key is signed by another key than the one its node is registered with.")
    if peers and (name not in peers or not binding.is_same(registered, peers[name])):
        raise MessageError(f"{name!r} with this key is not in the file of peers.")


def _opened(recipe: Recipe, settings: Settings, round_id: str, joined: Mapping[str, _Member]) -> ServerState:
    if len(joined) < max(3, settings.min_sites):
        raise FederationError(
            f"{len(joined)} sites joined the secure round; it hides sites among each other and needs at least "
            f"{max(3, settings.min_sites)}. Nothing was sent."
        )
    participants = tuple(Participant(name, joined[name].key) for name in sorted(joined))
    bound = entry_bound(recipe)
    plan = secure.plan(len(participants), bound, settings.dropout, settings.corruption)
    refuse_few(recipe, plan)
    entries = Layout.of(recipe).entries
    log.info(
        "Round %s: %d sites, %d may vanish, %d neighbours each, %d bits an entry",
        round_id[:8], plan.clients, plan.dropped, plan.neighbours, plan.bits,
    )  # fmt: skip
    return secure.open_round(Agreement(round_id, participants, binding.seed_of(round_id, participants), entries, plan))


@dataclass(frozen=True, slots=True)
class _Round:
    """Who is at which node in a round, and what carries its letters."""

    engine: Engine
    settings: Settings
    folder: RunFolder
    nodes: Mapping[str, Node]
    signatures: list[bytes]
    sites: dict[str, str]

    def finished(self, closed: ServerState | None, state: ServerState) -> secure.Release:
        """The round from wherever it stands to its end; `closed` is the state that its last stage was closed in."""
        while True:
            state = self._stage(closed, state)
            self.folder.save_stage(closed, state)
            if state.stage == secure.SERVER_STAGES[-1]:
                return secure.finish(state)
            closed, state = state, secure.advance(state)[0]
            self.folder.save_stage(closed, state)

    def _stage(self, closed: ServerState | None, state: ServerState) -> ServerState:
        """The state after every client that is there was asked for what it has not sent yet."""
        agreement, stage = state.agreement, secure.STAGES[secure.SERVER_STAGES.index(state.stage)]
        fields: dict[str, Any] = {"round": agreement.round_id}
        if closed is None:
            letters = dict.fromkeys((p.name for p in agreement.participants), agreement.to_bytes())
            fields["signatures"] = self.signatures
        else:
            letters = secure.advance(closed)[1]
        done = state.senders()
        self._miss(sorted(set(letters) - set(self.nodes) - done), stage)
        queries = {
            self.nodes[name]: Letter(fields, letter)
            for name, letter in letters.items()
            if name in self.nodes and name not in done
        }
        progress = Progress(_DONE[stage], len(letters), len(done))

        def accept(node: Node, letter: Letter) -> None:
            nonlocal state
            state = secure.receive(state, node.name, letter.content)
            self.folder.save_progress(state)
            progress.add(node.name, "")

        size = agreement.control_limit + (agreement.entries * agreement.plan.ring.width if stage == "mask" else 0)
        ask(self.engine, stage, queries, self.settings, accept, self.sites, size)
        return state

    def _miss(self, names: Sequence[str], stage: str) -> None:
        for name in names:
            self.sites[name] = f"left out: it was not there to {stage}"
            log.warning("%s was not there to %s", name, stage)


_DONE = {
    "advertise": "advertised keys",
    "share": "shared seeds",
    "mask": "sent their masked vector",
    "endorse": "signed the survivor list",
    "reveal": "revealed shares",
}
