"""The secure mode: sites join a round and go through its stages, and the server learns their sum."""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ghofl import secure
from ghofl.errors import FederationError, GhoflError, MessageError, RosterError
from ghofl.flower.server.asking import Engine, Node, Progress, ask, site_of, wait_for_nodes
from ghofl.flower.server.folder import RunFolder
from ghofl.flower.server.settings import Settings
from ghofl.moments import Layout
from ghofl.recipe import Recipe
from ghofl.secure import Agreement, Participant, ServerState
from ghofl.site import binding
from ghofl.site.cohorts import round_plan
from ghofl.site.letter import Letter
from ghofl.site.policy import load_peers
from ghofl.wire.total import Total

log = logging.getLogger("flwr")
CONTROL = 64 * 2**10  # the most bytes of an answer to "join", which has a key and a signature

T = TypeVar("T")


def secure_total(engine: Engine, recipe: Recipe, settings: Settings, folder: RunFolder, sites: dict[str, str]) -> Total:
    """The total of a secure round, and of those before it; a round that was in progress continues where it stood."""
    before = folder.total()
    inside = {entry.site for entry in before.roster} if before is not None else set()
    sites |= dict.fromkeys(inside, "counted before")
    if before is not None and before.is_released:
        return _without_latecomers(engine, before, inside, folder, sites)
    kept = _kept_round(folder)
    if kept is not None and {p.name for p in kept[1].agreement.participants} & inside:
        folder.end_round()  # killed after the total was written and before the round was forgotten
        kept = None
    nodes = [node for node in wait_for_nodes(engine, settings, len(inside)) if node.name not in inside]
    round_id = secrets.token_hex(16) if kept is None else kept[1].agreement.round_id
    joined = _invite(engine, recipe, settings, round_id, nodes, sites, inside)
    if before is not None and kept is None and len(joined) < 3:
        sites |= dict.fromkeys(joined, "left out: a later secure round needs three new sites")
        return before
    if kept is None:
        state = _open(recipe, settings, round_id, joined, len(inside))
        closed = None
        folder.save_stage(closed, state)
    else:
        closed, state = kept
        late = set(joined) - {p.name for p in state.agreement.participants}
        sites |= dict.fromkeys(late, "left out: the round had begun without it; a later run includes it")
        log.info("Continuing round %s at stage %r", round_id[:8], state.stage)
    by_name = {name: replace(member.node, name=name) for name, member in joined.items()}
    members = [joined.get(p.name) for p in state.agreement.participants]
    proofs = {
        "signatures": [b"" if member is None else member.signature for member in members],
        "known": ["" if member is None else member.known for member in members],
    }
    try:
        release = _Round(engine, settings, folder, by_name, proofs, sites).finish(closed, state)
        for blame in release.blamed:
            log.warning("%s gave a wrong share: %s", blame.name, blame.what)
        total = Total.of_round(release.total, recipe, release.survivors)
        Total.from_bytes(total.to_bytes())  # a lying site may have made the sum unreadable for later runs
        if before is not None:
            total = before.join(total)
    except GhoflError as error:  # if it were kept, the round would fail in every later run too
        raise FederationError(f"{error} {_after_failure(folder)}") from error
    sites |= dict.fromkeys(release.survivors, "counted")
    return total


def _without_latecomers(
    engine: Engine, before: Total, inside: set[str], folder: RunFolder, sites: dict[str, str]
) -> Total:
    """The total as it is: sites add their noise inside a round, so a later site's vector could not be added."""
    folder.end_round()
    late = [node.name for node in engine.nodes() if node.name and node.name not in inside]
    sites |= dict.fromkeys(late, "left out: the total has the noise of its own sites, and no site can be added")
    log.info("Nobody is asked: the total has the noise of its %d sites, and no site can be added", len(inside))
    return before


def _kept_round(folder: RunFolder) -> tuple[ServerState | None, ServerState] | None:
    """The round in progress; one that cannot be read is forgotten, so that the next run opens another."""
    try:
        return folder.round()
    except secure.SecureError as error:
        raise FederationError(f"the round kept in {folder.path} is damaged: {error} {_after_failure(folder)}") from None


def _after_failure(folder: RunFolder) -> str:
    """End a round that cannot be completed, and say what to do."""
    is_revealing = (folder.path / "round" / f"closed-{secure.SERVER_STAGES[-1]}").exists()
    folder.end_round()
    if is_revealing:
        return (
            "The next run opens a new round; sites that revealed their shares in this one join it when their "
            "administrators re-open them (ghofl flower reopen)."
        )
    return "The next run opens a new one."


@dataclass(frozen=True, slots=True)
class _Member:
    """A site that joined a round."""

    node: Node
    key: bytes
    signature: bytes
    known: str = ""


def _invite(
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
        signature, known = letter.fields.get("signature", b""), letter.fields.get("known", "")
        if not isinstance(key, bytes) or not isinstance(signature, bytes) or not isinstance(known, str):
            raise MessageError("its key or signature is not bytes, or what it knows of earlier sums is not a text.")
        if name in inside:
            progress.add(name, "counted before")
            return
        if name in joined or any(member.key == key for member in joined.values()):
            raise RosterError(f"a second node calls itself {name!r}, or uses its key; the first one counts.")
        if settings.authenticated:
            content = binding.statement(recipe.fingerprint, round_id, name, key, known)
            _check_binding(node, name, signature, content, peers)
        joined[name] = _Member(node, Participant(name, key).key, signature, known)
        sites[name] = "joined"
        progress.add(name, "")

    query = Letter({"recipe": recipe.to_toml(), "round": round_id})
    ask(engine, "join", dict.fromkeys(nodes, query), settings, accept, sites, CONTROL)
    return joined


def _check_binding(node: Node, name: str, signature: bytes, content: bytes, peers: Mapping[str, Any]) -> None:
    """Raise unless the site's key of this round is signed by a key that was known before.

    That is the key of this name in the file of peers, if there is one: a site's keeper has its own key, which its node,
    and whatever app runs there, cannot read. Without the file it is the key that the node is registered with.
    """
    if not signature or not (node.key or peers):
        raise MessageError(
            "its round key is not signed by the key that its node is registered with; give the site its auth_key, or "
            "run with authenticated=false where nodes have no keys."
        )
    if peers:
        if name not in peers or not binding.is_signed(peers[name], signature, content):
            raise MessageError(f"{name!r} with this key is not in the file of peers; add its public key there.")
        return
    registered = binding.load_public_key(node.key, f"node {node.id}")
    if not binding.is_signed(registered, signature, content):
        raise MessageError(
            "its round key is signed by another key than the one its node is registered with; check its auth_key."
        )


def _open(recipe: Recipe, settings: Settings, round_id: str, joined: Mapping[str, _Member], inside: int) -> ServerState:
    needed = max(3, settings.min_sites - inside)
    if len(joined) < needed:
        raise FederationError(
            f"{len(joined)} sites joined the secure round, and it needs at least {needed} to hide each among the others. "
            "Nothing was sent; run again when more are connected."
        )
    participants = tuple(Participant(name, joined[name].key) for name in sorted(joined))
    plan = _plan(recipe, settings, len(participants), inside)
    entries = Layout.of(recipe).entries
    log.info(
        "Round %s: %d sites, of which %d may vanish and %d may collude with the server; %d neighbours each, %d bits per entry",
        round_id[:8], plan.clients, plan.dropped, plan.corrupted, plan.neighbours, plan.bits,
    )  # fmt: skip
    return secure.open_round(Agreement(round_id, participants, binding.seed_of(round_id, participants), entries, plan))


def _plan(recipe: Recipe, settings: Settings, clients: int, inside: int) -> secure.Plan:
    """The plan of a round: for as many dropouts as asked for, but no more than leave enough sites for a usable total."""
    plan = round_plan(recipe, clients, settings.dropout, settings.corruption, settings.min_sites - inside)
    if plan.dropped < settings.dropout * clients - 1e-9:
        log.warning(
            "dropout=%g is %.2g of %d sites; with %d that may be corrupted and at least %d in the sum, %d may vanish",
            settings.dropout, settings.dropout * clients, clients, plan.corrupted, plan.min_survivors, plan.dropped,
        )  # fmt: skip
    return plan


def _run_step(step: Callable[[ServerState], T], state: ServerState) -> T:
    """A step of the round; an unexpected error, whoever's bytes caused it, fails the round."""
    try:
        return step(state)
    except (GhoflError, OSError, MemoryError):
        raise
    except Exception as error:
        log.exception("Round %s cannot continue", state.agreement.round_id[:8])
        raise secure.RoundFailedError(
            f"round {state.agreement.round_id!r} fails with an unexpected error ({type(error).__name__}); "
            "nothing is released."
        ) from error


@dataclass(frozen=True, slots=True)
class _Round:
    """The nodes of a round's sites, and what carries its letters."""

    engine: Engine
    settings: Settings
    folder: RunFolder
    nodes: Mapping[str, Node]
    proofs: Mapping[str, Any]
    sites: dict[str, str]

    def finish(self, closed: ServerState | None, state: ServerState) -> secure.Release:
        """Run the round to its end; `closed` is the state in which its last stage was closed."""
        while True:
            state = self._stage(closed, state)
            self.folder.save_stage(closed, state)
            if state.stage == secure.SERVER_STAGES[-1]:
                return _run_step(secure.finish, state)
            closed, state = state, _run_step(secure.advance, state)[0]
            self.folder.save_stage(closed, state)

    def _stage(self, closed: ServerState | None, state: ServerState) -> ServerState:
        """The state after every connected client was asked for what it has not sent yet."""
        agreement, stage = state.agreement, secure.STAGES[secure.SERVER_STAGES.index(state.stage)]
        fields: dict[str, Any] = {"round": agreement.round_id}
        if closed is None:
            letters = dict.fromkeys((p.name for p in agreement.participants), agreement.to_bytes())
            fields |= self.proofs
        else:
            letters = _run_step(secure.advance, closed)[1]
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
            data = letter.content
            try:
                state = secure.receive(state, node.name, data)
            except secure.SecureError:
                raise
            except Exception as error:
                log.exception("The answer of %s could not be read", node.name)
                raise MessageError(f"its answer could not be read ({type(error).__name__}).") from None
            self.folder.save_progress(state)
            progress.add(node.name, "")

        size = agreement.control_limit + (agreement.entries * agreement.plan.ring.width if stage == "mask" else 0)
        ask(self.engine, stage, queries, self.settings, accept, self.sites, size)
        return state

    def _miss(self, names: Sequence[str], stage: str) -> None:
        for name in names:
            self.sites[name] = f"left out: it was not connected to {stage}"
            log.warning("%s was not connected to %s", name, stage)


_DONE = {
    "advertise": "advertised keys",
    "share": "shared seeds",
    "mask": "sent their masked vector",
    "endorse": "signed the survivor list",
    "reveal": "revealed shares",
}
