"""Asking nodes and reading their answers: who they are, how long to wait, and what to report about those that fail."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ghofl.errors import GhoflError, MessageError
from ghofl.files import FileBytes
from ghofl.flower.server.settings import Settings
from ghofl.names import is_site_name, shorten
from ghofl.wire.letter import Letter

log = logging.getLogger("flwr")
POLL = 0.5


@dataclass(frozen=True, slots=True)
class Node:
    """A connected node: its id at the engine, and the name and public key it is registered with, if any."""

    id: int
    name: str = ""
    key: bytes = field(default=b"", repr=False)

    @property
    def label(self) -> str:
        """How the node is called before its site has answered."""
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
        """Ask nodes and yield their answers as they come, one per node; `size` is the most bytes of a payload."""
        ...


def ask(
    engine: Engine,
    action: str,
    queries: Mapping[Node, Letter],
    settings: Settings,
    accept: Callable[[Node, Letter], None],
    sites: dict[str, str],
    size: int,
) -> None:
    """Ask nodes, `accept` their answers, and record in `sites` what is wrong with an answer."""
    by_id = {node.id: node for node in queries}
    letters = {node.id: letter for node, letter in queries.items()}
    for answer in engine.ask(action, letters, settings.timeout, size):
        node = by_id[answer.node]
        label, why = node.label, answer.error
        try:
            if not why and answer.letter.fields.get("status") == "refused":
                label, why = _label_of(node, answer.letter), _refusal(answer.letter)
            if not why:
                accept(node, answer.letter)
                continue
        except GhoflError as error:
            label, why = _label_of(node, answer.letter), str(error)
        finally:
            _discard(answer.letter)
        if sites.get(label) not in ("counted", "counted before"):
            sites[label] = f"left out: {why}"
        log.warning("%s is left out of %r: %s", label, action, why)


def _discard(letter: Letter) -> None:
    """Close the file that an answer came in, and delete it unless it was kept."""
    if isinstance(letter.payload, FileBytes):
        letter.payload.close()
        letter.payload.path.unlink(missing_ok=True)


def site_of(node: Node, letter: Letter) -> str:
    """The site's name in an answer; it must be the one its node is registered with, if there is one."""
    name, status = letter.fields.get("site"), letter.fields.get("status")
    if not name or not is_site_name(name) or status not in ("sent", "counted", "joined"):
        raise MessageError(
            f"its answer has no site and status ({shorten(name)!r}, {shorten(status)!r}); the node runs another app."
        )
    if node.name and node.name != name:
        raise MessageError(
            f"its node is registered as {node.name!r} and its site calls itself {name!r}; use one name for both."
        )
    return name


def _label_of(node: Node, letter: Letter) -> str:
    """The label of a node whose answer was not accepted; a name that it only claims is marked as such."""
    name = letter.fields.get("site")
    return node.label if node.name or not name or not is_site_name(name) else f"{node.label} (as {name!r})"


def _refusal(letter: Letter) -> str:
    why = str(letter.fields.get("why", "it gave no reason"))[:500]
    return "".join(c if c.isprintable() else " " for c in why)


def wait_for_nodes(engine: Engine, settings: Settings, inside: int) -> list[Node]:
    """The connected nodes, after waiting for as many as are expected."""
    deadline = time.monotonic() + settings.wait
    expected = settings.sites or max(1, settings.min_sites - inside)
    nodes, next_line = list(engine.nodes()), 0.0
    while len(nodes) < expected and time.monotonic() < deadline:
        if time.monotonic() >= next_line:
            log.info("%d of %d nodes are connected; waiting", len(nodes), expected)
            next_line = time.monotonic() + 10
        time.sleep(POLL)
        nodes = list(engine.nodes())
    return sorted(nodes, key=lambda node: (node.name, node.id))


class Progress:
    """A log line per site: who has done what, and how many sites there are."""

    def __init__(self, what: str, expected: int, done: int = 0) -> None:
        self._what, self._expected, self._done = what, expected, done
        self._every = max(1, expected // 20) if expected > 50 else 1

    def skip(self) -> None:
        """Expect one site fewer."""
        self._expected -= 1

    def add(self, name: str, detail: str) -> None:
        """Count a site that has done it."""
        self._done += 1
        if self._done % self._every == 0 or self._done == self._expected:
            log.info(
                "%d of %d sites %s: %s%s",
                self._done, self._expected, self._what, name, f" ({detail})" if detail else "",
            )  # fmt: skip
