"""A secure round at the server: who joins, its stages, and how it is closed, resumed and finished.

::

    open ─▶ invitation ─▶ receive … receive ─▶ close ─▶ letters ─▶ receive … receive ─▶ close ─▶ … ─▶ finish

A carrier says who is there and takes letters to them and back: Flower asks, receives and closes in one process; files
take one step per command. Between any two letters the whole round is in its folder, which only its owner can read::

    recipe.toml  round.json  peers.toml   the recipe, the id of the round, how it is conducted, and who may join
    joined.json  came.json                who joined with which key, and the hashes of the answers that came
    state  closed-STAGE                   what came, and the state that the letters of the current stage follow from
"""

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from ghofl import files, secure
from ghofl.custody.cohorts import round_plan
from ghofl.custody.policy import load_peers
from ghofl.errors import FederationError, GhoflError, MessageError, RosterError
from ghofl.federation.joining import check_join, check_peer, check_registered
from ghofl.moments import Layout
from ghofl.names import shorten
from ghofl.recipe import Recipe
from ghofl.secure import Agreement, Participant, ServerState
from ghofl.wire.letter import Letter
from ghofl.wire.total import Total

ACTIONS = ("join", *secure.STAGES)
LEAST = 3  # sites of a round
UNKNOWN = ""  # the hash of an answer that was saved before its hash was
CONTROL = 64 * 2**10  # the most bytes of an answer to "join", which has a key and a signature
IDLE_SHARE = 9  # a round's state is written again after nine times as long as writing it took
RECIPE, ROUND, PEERS = "recipe.toml", "round.json", "peers.toml"
JOINED, CAME, STATE = "joined.json", "came.json", "state"
log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """How a round is conducted: the shares of sites that may vanish or collude with the server, and the fewest sites.

    `peers` is the text of a file of names and public keys; with one, only these sites join, each with its own key. If
    the round is `authenticated` without one, sites join with the key that their node is registered with.
    """

    dropout: float = secure.DROPOUT
    corruption: float = secure.CORRUPTION
    min_sites: int = LEAST
    peers: str | None = None
    authenticated: bool = False


class Round:
    """A secure round, as far as its folder says it has come.

    Guarantees
    ----------
    Letters to sites are the same to the bit whenever they are asked for, and no answer is counted twice, also after the
    server was killed. The total equals the sum of the plain messages of the sites in it, to the bit.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.recipe = self._kept(RECIPE, lambda data: Recipe.from_toml(data.decode()))
        self.round_id, self.options = self._kept(ROUND, _read_round)
        self._joined = self._kept(JOINED, _read_joined)
        self._came = self._kept(CAME, lambda data: {action: dict(each) for action, each in json.loads(data).items()})
        self._peers = load_peers(self.path / PEERS)
        self._state, self._payloads = self._load_state()
        for name in self.came:
            self._came.setdefault(self.action, {}).setdefault(name, UNKNOWN)
        self._is_saved, self._next_save = True, 0.0

    @classmethod
    def open(cls, path: str | Path, recipe: Recipe, options: Options) -> "Round":
        """A round with a new id, in a folder that exists."""
        if not recipe.privacy.secure:
            raise FederationError(
                f"the recipe {recipe.fingerprint[:12]}… has privacy.secure = false; make one with 'ghofl recipe --secure' for "
                "secure rounds."
            )
        path = Path(path)
        files.write(path / RECIPE, recipe.to_toml(), files.PRIVATE)
        files.write(path / PEERS, options.peers or "", files.PRIVATE)
        load_peers(path / PEERS)  # raises where a key cannot be read
        _write(path / JOINED, {})
        _write(path / CAME, {})
        _write(path / ROUND, {"round": secrets.token_hex(16), "options": asdict(options)})
        return cls(path)

    @property
    def action(self) -> str:
        """What sites are asked for now: to join, or the name of a stage."""
        return ACTIONS[0] if self._state is None else secure.STAGES[secure.SERVER_STAGES.index(self._state.stage)]

    @property
    def participants(self) -> tuple[Participant, ...]:
        """The sites of the round, in the order of their seats; those that have joined so far, while sites may join."""
        if self._state is not None:
            return self._state.agreement.participants
        return tuple(Participant(name, self._joined[name].fields["key"]) for name in sorted(self._joined))

    @property
    def came(self) -> set[str]:
        """The sites whose answer has come."""
        return set(self._joined) if self._state is None else self._state.senders()

    @property
    def missing(self) -> set[str]:
        """The sites that have a letter and have not answered it; nobody knows who may still join."""
        return set(self._payloads) - self.came

    def limit(self, action: str) -> int:
        """The most bytes of a payload that a site may answer an action with."""
        if self._state is None or action == "join":
            return CONTROL
        agreement = self._state.agreement
        return agreement.control_limit + (action == "mask") * agreement.entries * agreement.plan.ring.width

    def invitation(self) -> Letter:
        """The letter that asks sites to join, the same one for all of them."""
        return Letter({"action": "join", "round": self.round_id, "recipe": self.recipe.to_toml()})

    def letters(self) -> dict[str, Letter]:
        """The letters of the current stage, by the names of sites.

        With the first, every site learns who vouches for the others' keys and what the others know of earlier sums.
        """
        fields: dict[str, Any] = {"action": self.action, "round": self.round_id}
        if self.action == secure.STAGES[0]:
            members = [self._joined[participant.name].fields for participant in self.participants]
            fields["signatures"] = [member.get("signature", b"") for member in members]
            fields["known"] = [member.get("known", "") for member in members]
        return {name: Letter({**fields, "site": name}, payload) for name, payload in self._payloads.items()}

    def receive(self, name: str, action: str, letter: Letter, registered: bytes = b"") -> bool:
        """Take a site's answer, and say whether it is new; what cannot be taken raises, and changes nothing.

        The carrier knows that the site of this `name` sent it. `registered` is the key of its node, if it has one.
        """
        content = letter.content
        digest, first = _digest(action, letter, content), self._came.get(action, {}).get(name)
        if first in (UNKNOWN, digest):
            return False
        if first is not None:
            raise RosterError(f"a second, different {action!r} of {name!r} came; the first one counts. Leave it out.")
        if action != self.action:
            raise MessageError(
                f"this is the answer to {shorten(action, 20)!r}, and the round is at {self.action!r}: it came too late or "
                "too early."
            )
        try:
            if self._state is None:
                self._join(name, letter, registered)
            else:
                self._state = secure.receive(self._state, name, content)
        except GhoflError:
            raise
        except Exception as error:
            log.exception("The answer of %s could not be read", name)
            raise MessageError(f"its answer could not be read ({type(error).__name__}).") from None
        self._came.setdefault(action, {})[name] = digest
        self._is_saved = False
        self._save_soon()
        return True

    def close(self) -> None:
        """End the current stage without the sites that have not answered; they are left out from now on.

        Where too few have answered, it raises and the round stays where it is.
        """
        if self._state is None:
            self.save()
            after, payloads = self._begin()
        else:
            after, payloads = self._step(secure.advance, self._state)
            files.write(self._closed(after), self._state.to_bytes(), files.PRIVATE)
        self._state, self._payloads, self._is_saved = after, payloads, False
        self.save()
        for path in set(self.path.glob("closed-*")) - {self._closed(after)}:
            path.unlink()

    def finish(self) -> Total:
        """The total over the sites whose masked moments came, once enough have revealed their shares."""
        assert self._state is not None, "a round that has not begun has no last stage"
        revealed = self._step(secure.finish, self._state)
        for blame in revealed.blamed:
            log.warning("%s gave a wrong share: %s", blame.name, blame.what)
        total = Total.of_round(revealed.total, self.recipe, revealed.survivors)
        Total.from_bytes(total.to_bytes())  # a lying site may have made the sum unreadable
        return total

    def save(self) -> None:
        """Write what came to the folder."""
        if self._is_saved:
            return
        if self._state is None:
            _write(self.path / JOINED, {name: letter.to_bytes().hex() for name, letter in self._joined.items()})
        else:
            files.write(self.path / STATE, self._state.to_bytes(), files.PRIVATE)
        _write(self.path / CAME, self._came)
        self._is_saved = True

    def forget_secrets(self) -> None:
        """Delete what came: the round is over, and nobody needs the shares any more."""
        for path in (self.path / STATE, *self.path.glob("closed-*")):
            path.unlink(missing_ok=True)

    def _save_soon(self) -> None:
        """Save the progress of a stage, as often as possible without slowing the round down."""
        started = time.monotonic()
        if started >= self._next_save:
            self.save()
            self._next_save = time.monotonic() + IDLE_SHARE * (time.monotonic() - started)

    def _join(self, name: str, letter: Letter, registered: bytes) -> None:
        check_join(name, letter)
        if any(other.fields["key"] == letter.fields["key"] for other in self._joined.values()):
            raise RosterError(f"{name!r} uses the key of another site; let it join from its own folder.")
        if self.options.peers is not None:
            check_peer(name, letter, self.recipe.fingerprint, self.round_id, self._peers)
        elif self.options.authenticated:
            check_registered(name, letter, self.recipe.fingerprint, self.round_id, registered)
        self._joined[name] = letter

    def _begin(self) -> tuple[ServerState, dict[str, bytes]]:
        least, participants = max(LEAST, self.options.min_sites), self.participants
        if len(participants) < least:
            raise FederationError(
                f"{len(participants)} sites joined the secure round, and it needs at least {least} to hide each among the "
                "others. Nothing was sent; wait for more."
            )
        plan, seed = self._plan(len(participants)), secure.public_seed(self.round_id, participants)
        agreement = Agreement(self.round_id, participants, seed, Layout.of(self.recipe).entries, plan)
        log.info(
            "Round %s: %d sites, of which %d may vanish and %d may collude with the server; %d neighbours each, "
            "%d bits per entry",
            self.round_id[:8], plan.clients, plan.dropped, plan.corrupted, plan.neighbours, plan.bits,
        )  # fmt: skip
        return secure.open_round(agreement), _first_payloads(agreement)

    def _plan(self, clients: int) -> secure.Plan:
        """The plan: for as many dropouts as asked for, but no more than leave enough sites for a usable total."""
        options = self.options
        plan = round_plan(self.recipe, clients, options.dropout, options.corruption, options.min_sites)
        if plan.dropped < options.dropout * clients - 1e-9:
            log.warning(
                "This round of %d sites can lose %s of them, fewer than dropout=%g asks for: a sum needs at least %d sites, "
                "and %d may collude with the server. If more sites vanish, the round ends without a sum.",
                clients, plan.dropped or "none", options.dropout, plan.min_survivors, plan.corrupted,
            )  # fmt: skip
        return plan

    def _step(self, step: Callable[[ServerState], T], state: ServerState) -> T:
        """A step of the protocol; an unexpected error, whoever's bytes caused it, fails the round."""
        try:
            return step(state)
        except (GhoflError, OSError, MemoryError):
            raise
        except Exception as error:
            log.exception("Round %s cannot continue", self.round_id[:8])
            raise secure.RoundFailedError(
                f"round {self.round_id!r} fails with an unexpected error ({type(error).__name__}); no sum is revealed."
            ) from error

    def _load_state(self) -> tuple[ServerState | None, dict[str, bytes]]:
        if not (self.path / STATE).exists():
            return None, {}
        state = self._kept(STATE, ServerState.from_bytes)
        if state.stage == secure.SERVER_STAGES[0]:
            return state, _first_payloads(state.agreement)
        return state, self._step(secure.advance, self._kept(self._closed(state).name, ServerState.from_bytes))[1]

    def _kept(self, name: str, read: Callable[[bytes], T]) -> T:
        """What a file of the folder says; raises where it is missing or damaged."""
        path = self.path / name
        try:
            return read(path.read_bytes())
        except (GhoflError, FileNotFoundError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise FederationError(f"{path} is damaged; restore it from a backup, or open a new round.") from None

    def _closed(self, state: ServerState) -> Path:
        """Where the state is kept in which the stage before this one was closed."""
        return self.path / f"closed-{state.stage}"


def after_failure(path: str | Path) -> str:
    """What sites need before another round, if the one in this folder cannot be completed."""
    is_revealing = (Path(path) / f"closed-{secure.SERVER_STAGES[-1]}").exists()
    return is_revealing * (
        "Sites that revealed their shares in this round join another when their administrators re-open them "
        "(ghofl flower reopen)."
    )


def _digest(action: str, letter: Letter, content: bytes) -> str:
    """What shows whether two answers are the same: the key of a site that joins, otherwise the payload."""
    key = letter.fields.get("key") if action == "join" else None
    return hashlib.sha256(key if isinstance(key, bytes) else content).hexdigest()


def _first_payloads(agreement: Agreement) -> dict[str, bytes]:
    return dict.fromkeys((participant.name for participant in agreement.participants), agreement.to_bytes())


def _read_round(data: bytes) -> tuple[str, Options]:
    values = json.loads(data)
    return str(values["round"]), Options(**values["options"])


def _read_joined(data: bytes) -> dict[str, Letter]:
    return {name: Letter.from_bytes(bytes.fromhex(text)) for name, text in json.loads(data).items()}


def _write(path: Path, values: dict[str, Any]) -> None:
    files.write(path, json.dumps(values, indent=1, ensure_ascii=False) + "\n", files.PRIVATE)
