"""The server's side of a round by files: a folder with the state of the round and the letters to sites.

::

    recipe.toml  round.json      the recipe, the id of the round and how many sites may vanish
    1-join/invitation.letter     for every site
    2-advertise/NAME.letter      for the site of that name, and so on: 3-share, 4-mask, 5-endorse, 6-reveal
    state  closed-STAGE  *.json  the stage the round has reached, and what sites sent; readable by its owner only
    total.ghofl                  the sum, once the round is over

Letters of sites are taken as they come, a few at a time or all at once. A stage ends when every site in it has answered,
or when whoever runs the server closes it.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ghofl import files, secure
from ghofl.errors import FederationError, MessageError, RosterError
from ghofl.mail import letters
from ghofl.mail.at_site import ACTIONS
from ghofl.moments import Layout
from ghofl.names import is_site_name
from ghofl.recipe import Recipe
from ghofl.secure import Agreement, Participant, ServerState
from ghofl.site import binding
from ghofl.site.cohorts import round_plan
from ghofl.site.letter import Letter
from ghofl.site.policy import load_peers
from ghofl.wire.total import Total

INVITATION, TOTAL, STATE, CLOSED, JOINED, ROUND = (
    "invitation",
    "total.ghofl",
    "state",
    "closed",
    "joined.json",
    "round.json",
)
CAME, PEERS = "came.json", "peers.toml"
SUFFIX = ".letter"
SLACK = 2**20  # bytes of a letter beside its payload
LEAST = 3


@dataclass(frozen=True, slots=True)
class Options:
    """How a round is conducted: the shares of sites that may vanish or collude with the server, and the fewest sites.

    `peers` is the text of a file of names and public keys; with one, only these sites join, each with its own key.
    """

    dropout: float = 0.1
    corruption: float = 0.1
    min_sites: int = LEAST
    peers: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a round stands: the stage, the sites whose letter came, and those whose letter is missing.

    `outgoing` are the letters to sites, and `taken` the sites whose letter was read just now.
    """

    round_id: str
    action: str
    came: tuple[str, ...]
    missing: tuple[str, ...]
    outgoing: tuple[Path, ...] = ()
    taken: tuple[str, ...] = ()
    total: Path | None = None


class RoundFolder:
    """A secure round at the server; its whole state is in the folder.

    Guarantees
    ----------
    Every command may be repeated, also after it was killed: no letter is counted twice, and letters to sites are the
    same to the bit. The total equals the sum of the plain messages, to the bit.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / ROUND).exists():
            raise FederationError(f"{path} holds no round; 'ghofl secure open {path} --recipe recipe.toml' opens one.")
        self.recipe = Recipe.load(self.path / "recipe.toml")
        saved = self._read(ROUND)
        try:
            self.round_id, self.options = str(saved["round"]), Options(**saved["options"])
        except (KeyError, TypeError):
            raise FederationError(_damaged(self.path / ROUND)) from None
        self._loaded: ServerState | None = None

    @classmethod
    def open(cls, path: str | Path, recipe: Recipe, options: Options) -> "RoundFolder":
        """A round with a new id; where the folder holds one of the same recipe and options, that one."""
        if not recipe.privacy.secure:
            raise FederationError(
                "the recipe has privacy.secure = false; make one with 'ghofl recipe --secure' for secure rounds."
            )
        path = files.own_folder(path)
        with files.alone(path):
            if (path / ROUND).exists():
                there = cls(path)
                if there.recipe.fingerprint != recipe.fingerprint or there.options != options:
                    raise FederationError(f"{path} holds a round of another recipe or options; give another folder.")
                return there
            files.write(path / "recipe.toml", recipe.to_toml(), files.PRIVATE)
            files.write(path / PEERS, options.peers, files.PRIVATE)
            new = {"round": secrets.token_hex(16), "options": {k: getattr(options, k) for k in options.__slots__}}
            files.write(path / ROUND, json.dumps(new, indent=1, ensure_ascii=False) + "\n", files.PRIVATE)
        return cls(path)

    def invite(self) -> Path:
        """The letter that asks sites to join, the same one for all of them."""
        fields = {"action": "join", "round": self.round_id, "recipe": self.recipe.to_toml()}
        return self._put("join", INVITATION, Letter(fields))

    def take(self, paths: Iterable[Path], close: str = "", is_last: bool = False) -> Standing:
        """Read letters of sites, end their stage where it is complete, and say where the round stands.

        If the round is at the stage `close`, that stage ends without the sites that have not answered, which are left
        out of the sum. The last stage ends, and the total is written, only with `is_last`.
        """
        with files.alone(self.path):
            if (self.path / TOTAL).exists():
                return self._standing()
            taken = [self._take(Path(path)) for path in paths]
            standing = self._standing()
            is_complete = standing.action != "join" and not standing.missing  # nobody knows who may still join
            if (standing.action == close or is_complete) and (is_last or standing.action != ACTIONS[-1]):
                self._close(standing.action)
            out = () if (self.path / TOTAL).exists() else self._write_letters()
            return replace(self._standing(), outgoing=out, taken=tuple(name for name, is_new in taken if is_new))

    def _take(self, path: Path) -> tuple[str, bool]:
        """The site whose letter is in a file, and whether it is new."""
        action = self._action()
        letter = letters.load(path, self._limit(action))
        name, asked = letters.text_of(letter, "site"), letters.text_of(letter, "action")
        if letters.text_of(letter, "round") != self.round_id:
            raise MessageError(
                f"{path} is of another round; this one is {self.round_id[:8]}…. Give a letter of this one."
            )
        if not is_site_name(name):
            raise MessageError(f"{path} has a site name that is not allowed; sites' names are printable and short.")
        known = self._hashes().get(f"{asked}/{name}")
        if known is not None:
            if known != hashlib.sha256(letters.to_bytes(letter)).hexdigest():
                raise MessageError(
                    f"{path} is a second, different {asked!r} of {name!r}; the first one counts. Leave it out."
                )
            return name, False
        if asked != action:
            raise MessageError(
                f"{path} is the answer to {asked!r}, and this round is at {action!r}: it came too late or too early."
            )
        try:
            (self._take_join if action == "join" else self._take_stage)(name, letter)
        except (secure.SecureError, MessageError, RosterError) as error:
            raise MessageError(f"{path}: {error}") from None
        hashes = self._hashes() | {f"{asked}/{name}": hashlib.sha256(letters.to_bytes(letter)).hexdigest()}
        files.write(self.path / CAME, json.dumps(hashes, indent=1, ensure_ascii=False), files.PRIVATE)
        return name, True

    def _take_join(self, name: str, letter: Letter) -> None:
        key, signature = letter.fields.get("key", b""), letter.fields.get("signature", b"")
        if not isinstance(key, bytes) or not isinstance(signature, bytes):
            raise MessageError("its key or signature is not bytes; let the site join again.")
        participant, joined = Participant(name, key), self._joined()
        letters.check_signed(letter, participant.key, name)
        if self.options.peers:
            self._check_peer(participant, signature)
        if any(other["key"] == key.hex() for other in joined.values()):
            raise RosterError(f"{name!r} uses the key of another site; let it join from its own folder.")
        joined[name] = {"key": key.hex(), "signature": signature.hex()}
        files.write(self.path / JOINED, json.dumps(joined, indent=1, ensure_ascii=False), files.PRIVATE)

    def _check_peer(self, participant: Participant, signature: bytes) -> None:
        peers = load_peers(self.path / PEERS)
        content = binding.statement(self.recipe.fingerprint, self.round_id, participant.name, participant.key)
        key = peers.get(participant.name)
        if key is None or not signature or not binding.is_signed(key, signature, content):
            raise MessageError(
                f"{participant.name!r} is not among the peers, or its node's key did not sign its round key; "
                "check the site's auth_key and the peers given to 'ghofl secure open'."
            )

    def _take_stage(self, name: str, letter: Letter) -> None:
        state = self._state()
        seat = state.agreement.seat_of(name)
        if seat is None:
            raise MessageError(f"{name!r} did not join this round in time; leave its letter out.")
        letters.check_signed(letter, state.agreement.participants[seat].key, name)
        if name not in state.senders():  # a command may have died after the state was written
            self._save(secure.receive(state, name, letter.content))

    def _close(self, action: str) -> None:
        """Begin the next stage, or write the total."""
        if action == "join":
            self._save(secure.open_round(self._agreement()))
            return
        state = self._state()
        if action != ACTIONS[-1]:
            after, _ = secure.advance(state)
            files.write(self.path / f"{CLOSED}-{after.stage}", state.to_bytes(), files.PRIVATE)
            self._save(after)
            return
        release = secure.finish(state)
        total = Total.of_round(release.total, self.recipe, release.survivors)
        Total.from_bytes(total.to_bytes())  # a lying site may have made the sum unreadable
        total.save(self.path / TOTAL)
        for path in (self.path / STATE, *self.path.glob(f"{CLOSED}-*")):  # nobody needs the round's shares any more
            path.unlink(missing_ok=True)

    def _agreement(self) -> Agreement:
        joined = self._joined()
        least = max(LEAST, self.options.min_sites)
        if len(joined) < least:
            raise FederationError(
                f"{len(joined)} sites joined the round, and it needs at least {least} to hide each among the others; "
                "wait for more before --close join."
            )
        participants = tuple(Participant(name, bytes.fromhex(joined[name]["key"])) for name in sorted(joined))
        plan = round_plan(
            self.recipe, len(participants), self.options.dropout, self.options.corruption, self.options.min_sites
        )
        seed = binding.seed_of(self.round_id, participants)
        return Agreement(self.round_id, participants, seed, Layout.of(self.recipe).entries, plan)

    def _write_letters(self) -> tuple[Path, ...]:
        """Write the letters of the current stage; repeated, they are the same."""
        action = self._action()
        if action == "join":
            return (self.invite(),)
        state = self._state()
        fields: dict[str, Any] = {"action": action, "round": self.round_id}
        if action == "advertise":
            joined, content = self._joined(), state.agreement.to_bytes()
            fields["signatures"] = [bytes.fromhex(joined[p.name]["signature"]) for p in state.agreement.participants]
            payloads = dict.fromkeys((p.name for p in state.agreement.participants), content)
        else:
            closed = ServerState.from_bytes((self.path / f"{CLOSED}-{state.stage}").read_bytes())
            payloads = secure.advance(closed)[1]
        return tuple(
            self._put(action, name, Letter({**fields, "site": name}, payload)) for name, payload in payloads.items()
        )

    def _put(self, action: str, name: str, letter: Letter) -> Path:
        folder = files.private_folder(self.path / f"{1 + ACTIONS.index(action)}-{action}")
        path, content = folder / f"{name}{SUFFIX}", letters.to_bytes(letter)
        if not path.exists() or path.read_bytes() != content:
            files.write(path, content, files.PRIVATE)
        return path

    def _standing(self) -> Standing:
        action = self._action()
        if action in ("join", "done"):
            total = self.path / TOTAL if action == "done" else None
            return Standing(self.round_id, action, tuple(sorted(self._joined())), (), total=total)
        state = self._state()
        came = state.senders()
        return Standing(self.round_id, action, tuple(sorted(came)), tuple(sorted(self._expected(state) - came)))

    def _expected(self, state: ServerState) -> set[str]:
        closed = self.path / f"{CLOSED}-{state.stage}"
        if closed.exists():
            return set(secure.advance(ServerState.from_bytes(closed.read_bytes()))[1])
        return {p.name for p in state.agreement.participants}

    def _action(self) -> str:
        if (self.path / TOTAL).exists():
            return "done"
        if not (self.path / STATE).exists():
            return "join"
        return secure.STAGES[secure.SERVER_STAGES.index(self._state().stage)]

    def _limit(self, action: str) -> int:
        """The most bytes of a letter that a site may send at a stage."""
        if action == "join" or not (self.path / STATE).exists():
            return SLACK
        agreement = self._state().agreement
        return SLACK + agreement.control_limit + agreement.entries * agreement.plan.ring.width

    def _state(self) -> ServerState:
        if self._loaded is None:
            self._loaded = ServerState.from_bytes((self.path / STATE).read_bytes())
        return self._loaded

    def _save(self, state: ServerState) -> None:
        files.write(self.path / STATE, state.to_bytes(), files.PRIVATE)
        self._loaded = state

    def _joined(self) -> dict[str, dict[str, str]]:
        return self._read(JOINED)

    def _hashes(self) -> dict[str, str]:
        return self._read(CAME)

    def _read(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            values = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise FederationError(_damaged(path))
        return values


def _damaged(path: Path) -> str:
    return f"{path} is damaged; restore it from a backup, or open a new round in another folder."
