"""A federation's run at the server: who is asked, what is accepted, what is kept, and what comes of it.

::

    plain    wait ─▶ ask for messages ─▶ keep and add each ─▶ total ─▶ heads, report
    secure   wait ─▶ join ─▶ advertise ─▶ share ─▶ mask ─▶ endorse ─▶ reveal ─▶ total ─▶ heads, report

Whatever carries the letters is an `Engine`. A site that fails in any way is reported by name and left out; whether
the rest is enough is for the recipe and the settings to say.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ghofl import secure
from ghofl.aggregation import Aggregator, Total
from ghofl.classifier import Classifier, HeadSpec
from ghofl.cohort import refuse_few
from ghofl.envelope import size_limit
from ghofl.errors import FederationError, GhoflError, MessageError, RosterError, SiteError
from ghofl.files import FileBytes
from ghofl.flower import binding, report
from ghofl.flower.folder import TOTAL, RunFolder
from ghofl.flower.letter import Letter
from ghofl.flower.policy import load_peers
from ghofl.message import MAX_HEADER, Message
from ghofl.moments import Layout
from ghofl.privacy import entry_bound
from ghofl.recipe import Recipe
from ghofl.secure import Agreement, Participant, ServerState

log = logging.getLogger("flwr")
POLL = 0.5
CONTROL = 64 * 2**10  # bytes of a letter without a vector, roughly


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is connected: its id at the engine, and the name and public key it is registered with, if any."""

    id: int
    name: str = ""
    key: bytes = field(default=b"", repr=False)

    @property
    def label(self) -> str:
        """How people tell this node from others before its site has spoken."""
        return self.name or f"node {self.id}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A node's answer, or why there is none."""

    node: int
    letter: Letter = field(default_factory=Letter)
    error: str = ""


@runtime_checkable
class Engine(Protocol):
    """What carries letters between the server and the nodes."""

    def nodes(self) -> Sequence[Node]:
        """Who is connected now."""
        ...

    def ask(self, action: str, letters: Mapping[int, Letter], seconds: float, size: int) -> Iterator[Answer]:
        """Ask nodes and give their answers as they come, one for every node; `size` is about what an answer has."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run is conducted; everything that sites have to agree on is in the recipe instead.

    `sites` nodes are waited for, `wait` seconds at most; a query waits `timeout` seconds for its answers. Messages are
    asked for from `at_once` sites at a time, 0 for all: fewer take longer, and less memory where they are relayed. A
    total of fewer than `min_sites` is not used. In secure rounds `dropout` and `corruption` are the shares of sites that may
    vanish or work with the server, `max_rows` is the most rows of a site, and `authenticated` asks every site for
    the signature of its node's key. `peers` is a file of the names and keys that may take part.
    """

    folder: str
    sites: int = 0
    min_sites: int = 1
    wait: float = 60.0
    timeout: float = 600.0
    at_once: int = 0
    heads: str = "best"
    preset: str = "default"
    remove: tuple[str, ...] = ()
    dropout: float = 0.1
    corruption: float = 0.1
    max_rows: int = 1_000_000
    authenticated: bool = True
    peers: str = ""

    def __post_init__(self) -> None:
        if not self.folder:
            raise SiteError("the run needs a folder at the server; give --run-config 'folder=\"/srv/ghofl/run\"'.")
        for name, least in (
            ("sites", 0),
            ("min_sites", 1),
            ("wait", 0),
            ("timeout", 1),
            ("max_rows", 1),
            ("at_once", 0),
        ):
            if getattr(self, name) < least:
                raise SiteError(f"{name.replace('_', '-')} is {getattr(self, name)}; it is {least} or more.")

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> "Settings":
        """The settings in a run's configuration; keys that begin with 'simulated-' are for simulated sites."""
        values: dict[str, Any] = {}
        for key, value in config.items():
            name = key.replace("-", "_")
            if key.startswith("simulated-"):
                continue
            if name not in cls.__slots__:
                raise SiteError(f"unknown run-config key {key}; known are {', '.join(cls.__slots__)}.")
            values[name] = tuple(filter(None, map(str.strip, value.split(",")))) if name == "remove" else value
            if name in ("wait", "timeout", "dropout", "corruption"):
                values[name] = float(value)
        return cls(**{"folder": "", **values})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to: the total that heads were built from, the heads, and what happened to every site."""

    total: Total
    heads: dict[str, Path]
    sites: dict[str, str]


def run(engine: Engine, recipe: Recipe, settings: Settings) -> Outcome:
    """One run of a federation: gather what is missing, and build heads from the total.

    Guarantees
    ----------
    Every site is in the total at most once, however often runs were killed and repeated. A site that is left out
    is named in the report with the reason. With fewer sites than the recipe or the settings ask for,
    `FederationError` is raised and no head is written.
    """
    specs = HeadSpec.parse_list(settings.heads, settings.preset)
    with RunFolder(settings.folder, recipe) as folder:
        sites: dict[str, str] = {}
        try:
            gather = _secure_total if recipe.privacy.secure else _plain_total
            total = gather(engine, recipe, settings, folder, sites)
            _check_enough(total, recipe, settings)
            total.save(folder.path / TOTAL)
            folder.end_round()
            released = folder.released(total).for_heads()
            heads = _heads(released, specs, folder)
        except GhoflError as error:
            report.write_failure(folder, recipe, sites, str(error))
            raise
        report.write(folder, total, released, heads, sites)
        log.info("Done: %d sites, head %s, everything in %s", len(total.roster), ", ".join(heads), folder.path)
        return Outcome(released, heads, sites)


def _plain_total(engine: Engine, recipe: Recipe, settings: Settings, folder: RunFolder, sites: dict[str, str]) -> Total:
    for name in settings.remove:
        if not folder.remove(name):
            raise RosterError(f"site {name!r} is to be removed and is not in {folder.path}; check the name.")
    inside, removed, counted = set(folder.sites().values()), folder.removed_sites(), folder.ids()
    sites |= dict.fromkeys(inside, "counted before") | dict.fromkeys(removed, "removed")
    nodes = _present(engine, settings, len(inside))
    query = Letter({"recipe": recipe.to_toml(), "counted": sorted(counted)})
    limit = size_limit(Layout.of(recipe), MAX_HEADER)
    progress = _Progress("sent their message", len(nodes))

    def accept(node: Node, letter: Letter) -> None:
        name = _site_of(node, letter)
        if letter.fields["status"] == "counted":
            progress.add(name, "counted before")
            return
        if len(letter.payload) > limit:
            raise MessageError(f"{len(letter.payload):,} bytes came, and this recipe allows {limit:,}.")
        message, size = Message.from_bytes(letter.payload, recipe), len(letter.payload)
        if message.site != name:
            raise MessageError(f"a message of site {message.site!r} came from {name!r}.")
        if name in removed:
            raise RosterError(f"it was removed; delete its file in {folder.path / 'removed'} to admit it again.")
        if name in inside or message.id in counted:
            raise RosterError(f"site {name!r} is already in the total; each is counted once.")
        folder.keep(message.id, letter.payload)
        counted.add(message.id)
        inside.add(name)
        sites[name] = "counted"
        progress.add(name, f"{message.rows:,} rows, {size:,} bytes")

    _ask(engine, "message", dict.fromkeys(nodes, query), settings, accept, sites, limit)
    return _sum(folder, recipe)


def _sum(folder: RunFolder, recipe: Recipe) -> Total:
    """The total of all messages in the folder, from their files: none of them is ever whole in memory."""
    aggregator = Aggregator(recipe)
    for message_id in folder.sites():
        path = folder.message(message_id)
        try:
            aggregator.add_file(path)
        except MessageError as error:
            raise FederationError(f"{path}: {error} Remove the file, and the site is asked again.") from None
    return aggregator.finished()


def _secure_total(
    engine: Engine, recipe: Recipe, settings: Settings, folder: RunFolder, sites: dict[str, str]
) -> Total:
    before = folder.total()
    inside = {entry.site for entry in before.roster} if before is not None else set()
    sites |= dict.fromkeys(inside, "counted before")
    if settings.remove:
        raise FederationError(
            f"{', '.join(settings.remove)} cannot be removed: a secure total hides its parts. Run a new round without "
            "them, in another folder."
        )
    kept = folder.round()
    if kept is not None and {p.name for p in kept[1].agreement.participants} <= inside:
        folder.end_round()  # killed after the total was written and before the round was forgotten
        kept = None
    nodes = _present(engine, settings, len(inside))
    round_id = secrets.token_hex(16) if kept is None else kept[1].agreement.round_id
    joined = _joined(engine, recipe, settings, round_id, nodes, sites, inside)
    if before is not None and kept is None and len(joined) < 3:
        sites |= dict.fromkeys(joined, "left out: a later secure round needs three new sites")
        return before
    if kept is None:
        state = _opened(recipe, settings, round_id, joined)
        folder.save_round(None, state, at_once=True)
        closed = None
    else:
        closed, state = kept
        late = set(joined) - {p.name for p in state.agreement.participants}
        sites |= dict.fromkeys(late, "left out: the round had begun without it; a later run takes it in")
        log.info("Going on with round %s at stage %r", round_id[:8], state.stage)
    by_name = {name: member.node for name, member in joined.items()}
    signatures = [joined[p.name].signature if p.name in joined else b"" for p in state.agreement.participants]
    try:
        release = _Round(engine, settings, folder, by_name, signatures, sites).finished(closed, state)
    except secure.RoundFailedError as error:
        folder.end_round()
        raise FederationError(f"{error} The next run opens a new one.") from None
    for blame in release.blamed:
        log.warning("%s", blame)
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
    progress = _Progress("joined the round", len(nodes))

    def accept(node: Node, letter: Letter) -> None:
        name, key = _site_of(node, letter), letter.fields.get("key", b"")
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
    _ask(engine, "join", dict.fromkeys(nodes, query), settings, accept, sites, CONTROL)
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
    bound = entry_bound(recipe, settings.max_rows)
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
            self.folder.save_round(closed, state, at_once=True)
            if state.stage == secure.SERVER_STAGES[-1]:
                return secure.finish(state)
            closed, state = state, secure.advance(state)[0]
            self.folder.save_round(closed, state, at_once=True)

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
        names = {node.id: name for name, node in self.nodes.items()}
        progress = _Progress(_DONE[stage], len(letters), len(done))

        def accept(node: Node, letter: Letter) -> None:
            nonlocal state
            state = secure.receive(state, names[node.id], letter.content)
            self.folder.save_round(closed, state)
            progress.add(names[node.id], "")

        size = agreement.entries * agreement.plan.ring.width if stage == "mask" else CONTROL
        _ask(self.engine, stage, queries, self.settings, accept, self.sites, size, names)
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


def _ask(
    engine: Engine,
    action: str,
    queries: Mapping[Node, Letter],
    settings: Settings,
    accept: Callable[[Node, Letter], None],
    sites: dict[str, str],
    size: int,
    names: Mapping[int, str] | None = None,
) -> None:
    """Ask nodes, take in what they answer, and note under their name what is wrong with an answer."""
    by_id = {node.id: node for node in queries}
    for answer in _asked(engine, action, queries, settings, size):
        node = by_id[answer.node]
        label, why = (names or {}).get(node.id, node.label), answer.error
        if not why and answer.letter.fields.get("status") == "refused":
            label, why = _refusal(node, answer.letter, label)
        if not why:
            try:
                accept(node, answer.letter)
                continue
            except GhoflError as error:
                label, why = _claimed(answer.letter, label), str(error)
            finally:
                _put_away(answer.letter)
        if sites.get(label) not in ("counted", "counted before"):
            sites[label] = f"left out: {why}"
        log.warning("%s is left out of %r: %s", label, action, why)


def _asked(
    engine: Engine, action: str, queries: Mapping[Node, Letter], settings: Settings, size: int
) -> Iterator[Answer]:
    """Answers of all nodes; for large ones, of so many nodes at once as the settings allow."""
    letters = [(node.id, letter) for node, letter in queries.items()]
    step = settings.at_once if settings.at_once and action in ("message", "mask") else max(1, len(letters))
    for start in range(0, len(letters), step):
        yield from engine.ask(action, dict(letters[start : start + step]), settings.timeout, size)


def _put_away(letter: Letter) -> None:
    """Close the file that an answer came in, and remove it unless it was kept."""
    if isinstance(letter.payload, FileBytes):
        letter.payload.close()
        letter.payload.path.unlink(missing_ok=True)


def _site_of(node: Node, letter: Letter) -> str:
    """The name a site goes by, which is the one its node is registered with, where it has one."""
    name, status = letter.fields.get("site"), letter.fields.get("status")
    if not isinstance(name, str) or not name or status not in ("sent", "counted", "joined"):
        raise MessageError("its answer has no site and status; it runs another app.")
    if node.name and node.name != name:
        raise MessageError(f"its node is registered as {node.name!r} and says that it is {name[:64]!r}.")
    return name


def _claimed(letter: Letter, label: str) -> str:
    """The label of a node whose answer was not taken; a name that it only claims is not used for it."""
    name = letter.fields.get("site")
    return f"{label} (as {name[:64]!r})" if label.startswith("node ") and isinstance(name, str) and name else label


def _refusal(node: Node, letter: Letter, label: str) -> tuple[str, str]:
    why = str(letter.fields.get("why", "it gave no reason"))[:500]
    return _claimed(letter, label), "".join(c if c.isprintable() else " " for c in why)


def _present(engine: Engine, settings: Settings, inside: int) -> list[Node]:
    """The nodes that are there, after waiting for as many as are expected."""
    deadline = time.monotonic() + settings.wait
    expected = settings.sites or max(1, settings.min_sites - inside)
    nodes, told = list(engine.nodes()), 0.0
    while len(nodes) < expected and time.monotonic() < deadline:
        if time.monotonic() >= told:
            log.info("%d of %d nodes are connected; waiting", len(nodes), expected)
            told = time.monotonic() + 10
        time.sleep(POLL)
        nodes = list(engine.nodes())
    return sorted(nodes, key=lambda node: (node.name, node.id))


def _check_enough(total: Total, recipe: Recipe, settings: Settings) -> None:
    needed = max(settings.min_sites, recipe.privacy.min_cohort)
    if len(total.roster) < needed:
        raise FederationError(
            f"{len(total.roster)} sites are in the total and {needed} are needed; no head is built. What came is kept: "
            "run again when more sites are there."
        )


def _heads(total: Total, specs: Mapping[str, HeadSpec], folder: RunFolder) -> dict[str, Path]:
    paths = {}
    for name, spec in specs.items():
        paths[name] = folder.path / "heads" / f"{''.join(c if c.isalnum() else '-' for c in name).strip('-')}.ghofl"
        Classifier.fit(total, spec).save(paths[name])
        log.info("Built head %s", name)
    return paths


class _Progress:
    """A line a site: who has done what, and how many are awaited."""

    def __init__(self, what: str, expected: int, done: int = 0) -> None:
        self._what, self._expected, self._done = what, expected, done
        self._every = max(1, expected // 20) if expected > 50 else 1

    def add(self, name: str, detail: str) -> None:
        self._done += 1
        if self._done % self._every == 0 or self._done == self._expected:
            log.info(
                "%d of %d sites %s: %s%s",
                self._done, self._expected, self._what, name, f" ({detail})" if detail else "",
            )  # fmt: skip
