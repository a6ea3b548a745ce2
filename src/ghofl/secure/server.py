"""The server's side of a round: receive messages one by one, close each stage, and reveal the sum at the end.

::

    open_round ─▶ receive … receive ─▶ advance ─▶ receive … receive ─▶ advance ─▶ … ─▶ finish

The same two functions serve every stage: `receive` takes one client's message, `advance` stops waiting and returns the
next deliveries to clients. Masked vectors are added to one accumulator as they come and are not kept.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ghofl.secure import keys
from ghofl.secure.errors import RoundFailedError, WireError
from ghofl.secure.messages import (
    Advertisement,
    Box,
    Endorsement,
    Endorsements,
    Inbox,
    KeyList,
    MaskedVector,
    Message,
    Opened,
    Reveal,
    Shares,
    Survivors,
    read,
)
from ghofl.secure.rounds import Agreement
from ghofl.secure.unmasking import Blame, masks_left, recover
from ghofl.secure.wire import from_bytes, to_bytes
from ghofl.shapes import Int64

Sender = Advertisement | Shares | MaskedVector | Endorsement | Reveal | Opened
SERVER_STAGES = ("advertising", "sharing", "masking", "endorsing", "revealing")
MAX_STATE_BYTES = 2**36
MOST_NAMED = 20  # clients in an error


@dataclass(frozen=True, slots=True, eq=False)
class ServerState:
    """What the server remembers between two messages: what came, and the sum of the masked vectors so far."""

    agreement: Agreement
    stage: str
    total: np.ndarray = field(repr=False)
    advertisements: tuple[Advertisement, ...] = field(default=(), repr=False)
    shares: tuple[Shares, ...] = field(default=(), repr=False)
    masked: tuple[int, ...] = ()
    endorsements: tuple[Endorsement, ...] = field(default=(), repr=False)
    reveals: tuple[Reveal, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        agreement, senders = self.agreement, (self.advertisements, self.shares, self.endorsements, self.reveals)
        seats = [0, *self.masked, *(message.seat for messages in senders for message in messages)]
        fits = len(self.total) == agreement.entries and self.total.dtype == agreement.plan.ring.dtype
        if not fits or self.stage not in SERVER_STAGES or max(seats) >= agreement.plan.clients:
            raise WireError(f"this server state, at stage {self.stage[:20]!r}, does not fit its round; it was damaged.")

    def senders(self) -> set[str]:
        """The clients whose message of the current stage has come."""
        came: dict[str, Iterable[int]] = {
            "advertising": _seats(self.advertisements),
            "sharing": _seats(self.shares),
            "masking": self.masked,
            "endorsing": _seats(self.endorsements),
            "revealing": _seats(self.reveals),
        }
        return set(self.agreement.names_of(came[self.stage]))

    def to_bytes(self) -> bytes:
        """The state as bytes."""
        return to_bytes(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ServerState":
        """The state that was saved."""
        return from_bytes(cls, data, limit=MAX_STATE_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class RevealedSum:
    """The sum of the survivors' vectors, who the survivors are, and who gave wrong shares."""

    total: Int64[np.ndarray, " entries"]
    survivors: tuple[str, ...]
    blamed: tuple[Blame, ...] = ()


def open_round(agreement: Agreement) -> ServerState:
    """The state of a round that waits for its first advertisement."""
    return ServerState(agreement, "advertising", np.zeros(agreement.entries, dtype=agreement.plan.ring.dtype))


def receive(state: ServerState, sender: str, data: bytes) -> ServerState:
    """The state with one more client's message of the current stage; `sender` is the client whose connection it used.

    Bytes that are not such a message raise `WireError` and change nothing: the round continues without them.
    """
    kind, accept = _RECEIVE[state.stage]
    message = read(kind, data, state.agreement)
    if state.agreement.participants[message.seat].name != sender:
        raise WireError(f"a {kind.__name__} of {state.agreement.name_of(message.seat)} came from {sender!r}.")
    return accept(state, message)


def advance(state: ServerState) -> tuple[ServerState, dict[str, bytes]]:
    """The next stage, and for every remaining client, by name, the delivery that starts it.

    With fewer clients than the plan needs it raises `RoundFailedError`.
    """
    if state.stage == SERVER_STAGES[-1]:
        raise RoundFailedError(f"round {state.agreement.round_id!r} has no stage after this one; `finish` it.")
    deliveries = _ADVANCE[state.stage](state)
    following = SERVER_STAGES[SERVER_STAGES.index(state.stage) + 1]
    named = {state.agreement.participants[seat].name: to_bytes(one) for seat, one in deliveries}
    return replace(state, stage=following), named


def finish(state: ServerState) -> RevealedSum:
    """The exact sum of the survivors' vectors, found by rebuilding their seeds and the vanished clients' keys.

    Guarantees
    ----------
    Every rebuilt secret is the one that its owner committed to in stage 1, and every share used is the one that its
    dealer committed to in stage 2. Otherwise, and when fewer than the threshold of any circle answered,
    `RoundFailedError` is raised and no sum is revealed; it names the clients that have revealed.
    """
    if state.stage != "revealing":
        raise RoundFailedError(f"round {state.agreement.round_id!r} is still {state.stage}; `advance` it to the end.")
    agreement = state.agreement
    try:
        _check_enough(state, len(state.reveals), "revealed their shares", agreement.plan.threshold)
        secrets = recover(agreement, state.advertisements, state.shares, state.reveals, set(state.masked))
    except RoundFailedError as error:
        raise RoundFailedError(f"{error} {_who_revealed(state)}") from None
    plus, minus = masks_left(agreement, state.advertisements, secrets)
    total = agreement.plan.ring.unmask(state.total, plus, minus)
    return RevealedSum(total, agreement.names_of(sorted(state.masked)), secrets.blamed)


def _who_revealed(state: ServerState) -> str:
    """Which clients a failed round cost their reveal, in a sentence."""
    names = sorted(state.senders())
    if not names:
        return "Nobody has revealed anything in it, so every client may join another round."
    listed = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" * (len(names) > MOST_NAMED))
    return f"Those that revealed shares in it are {listed}; all others may join another round as they are."


def _accept_advertisement(state: ServerState, message: Advertisement) -> ServerState:
    agreement = state.agreement
    _check_new(state, message, state.advertisements)
    key, content = agreement.participants[message.seat].key, agreement.context("keys", message.seat) + message.signed
    if not keys.is_signed(key, message.signature, content):
        raise WireError(f"the keys of {agreement.name_of(message.seat)} are not signed by its identity.")
    if not (keys.is_usable(message.cipher_key) and keys.is_usable(message.mask_key)):
        raise WireError(
            f"a public key of {agreement.name_of(message.seat)} is of low order, so no secret can be agreed on with it."
        )
    return replace(state, advertisements=(*state.advertisements, message))


def _accept_shares(state: ServerState, message: Shares) -> ServerState:
    agreement = state.agreement
    _check_new(state, message, state.shares, _seats(state.advertisements))
    expected = set(agreement.graph.circle_of(message.seat)) & _seats(state.advertisements)
    holders = [box.seat for box in message.boxes]
    is_sealed = all(bool(box.sealed) == (box.seat != message.seat) for box in message.boxes)
    if sorted(holders) != sorted(expected) or not is_sealed:
        raise WireError(
            f"{agreement.name_of(message.seat)} shared with {len(holders)} clients; each of the {len(expected)} of its "
            "circle that advertised keys gets one sealed box, and it keeps an empty one."
        )
    return replace(state, shares=(*state.shares, message))


def _accept_masked(state: ServerState, message: MaskedVector) -> ServerState:
    agreement = state.agreement
    _check_new(state, message, [], _seats(state.shares) - set(state.masked))
    elements = agreement.plan.ring.unpack(message.elements, agreement.entries)
    elements += state.total
    return replace(state, total=elements, masked=(*state.masked, message.seat))


def _accept_endorsement(state: ServerState, message: Endorsement) -> ServerState:
    agreement = state.agreement
    _check_new(state, message, state.endorsements, state.masked)
    content = agreement.survivors_content(message.seat, *_survivor_bitmaps(state))
    if not keys.is_signed(agreement.participants[message.seat].key, message.signature, content):
        raise WireError(f"{agreement.name_of(message.seat)} did not sign the survivor list of this round.")
    return replace(state, endorsements=(*state.endorsements, message))


def _accept_reveal(state: ServerState, message: Reveal) -> ServerState:
    agreement = state.agreement
    _check_new(state, message, state.reveals, _seats(state.endorsements))
    circle = set(agreement.graph.circle_of(message.seat))
    survivors, vanished = circle & set(state.masked), (circle & _seats(state.shares)) - set(state.masked)
    named = [share.seat for share in (*message.seeds, *message.keys)] + list(message.spoilt)
    asked = _seats(message.seeds) <= survivors and _seats(message.keys) <= vanished
    if not asked or len(set(named)) != len(named) or not set(named) <= survivors | vanished:
        raise WireError(f"{agreement.name_of(message.seat)} revealed shares that it was not asked for.")
    return replace(state, reveals=(*state.reveals, message))


def _key_lists(state: ServerState) -> Iterator[tuple[int, Message]]:
    _check_enough(state, len(state.advertisements), "advertised keys")
    by_seat = {message.seat: message for message in state.advertisements}
    for seat in by_seat:
        known = tuple(by_seat[v] for v in state.agreement.graph.neighbours_of(seat) if v in by_seat)
        yield seat, KeyList(state.agreement.digest, seat, known)


def _inboxes(state: ServerState) -> Iterator[tuple[int, Message]]:
    _check_enough(state, len(state.shares), "shared their seeds")
    boxes: dict[int, list[Box]] = {message.seat: [] for message in state.shares}
    for message in state.shares:
        for box in message.boxes:
            if box.seat in boxes and box.sealed:
                boxes[box.seat].append(replace(box, seat=message.seat))
    for seat, inbox in boxes.items():
        yield seat, Inbox(state.agreement.digest, seat, tuple(inbox))


def _survivor_lists(state: ServerState) -> Iterator[tuple[int, Message]]:
    agreement, plan = state.agreement, state.agreement.plan
    _check_enough(state, len(state.masked), "sent a masked vector")
    survivors, vanished = _survivor_bitmaps(state)
    thinnest = agreement.graph.thinnest_window(agreement.marks(survivors))
    if thinnest < plan.window:
        raise RoundFailedError(
            f"round {agreement.round_id!r} fails: {thinnest} clients in some {plan.neighbours // 2} consecutive places "
            f"sent a masked vector and {plan.window} are needed; no sum is revealed. Start another round."
        )
    for seat in state.masked:
        yield seat, Survivors(agreement.digest, survivors, vanished)


def _endorsement_lists(state: ServerState) -> Iterator[tuple[int, Message]]:
    _check_enough(state, len(state.endorsements), "signed the survivor list", state.agreement.plan.threshold)
    by_seat = {message.seat: message for message in state.endorsements}
    for seat in by_seat:
        signed = tuple(by_seat[v] for v in state.agreement.graph.neighbours_of(seat) if v in by_seat)
        yield seat, Endorsements(state.agreement.digest, seat, signed)


def _survivor_bitmaps(state: ServerState) -> tuple[bytes, bytes]:
    vanished = _seats(state.shares) - set(state.masked)
    return state.agreement.bitmap(state.masked), state.agreement.bitmap(vanished)


def _seats(messages: Iterable[Sender]) -> set[int]:
    return {message.seat for message in messages}


def _check_new(
    state: ServerState, message: Sender, earlier: Iterable[Sender], expected: Collection[int] | None = None
) -> None:
    """Raise unless it is the client's first message of this stage, and the client took part in the stage before."""
    name, kind = state.agreement.name_of(message.seat), type(message).__name__
    if message.seat in _seats(earlier):
        raise WireError(f"a second {kind} of {name} came; the first one counts.")
    if expected is not None and message.seat not in expected:
        raise WireError(f"a {kind} of {name} came, which missed the stage before or has already sent one.")


def _check_enough(state: ServerState, count: int, what: str, needed: int | None = None) -> None:
    plan = state.agreement.plan
    needed = plan.min_survivors if needed is None else needed
    if count < needed:
        raise RoundFailedError(
            f"round {state.agreement.round_id!r} fails: {count} of {plan.clients} clients {what} and {needed} are "
            "needed; no sum is revealed. Start another round."
        )


_RECEIVE: dict[str, tuple[type[Any], Callable[[ServerState, Any], ServerState]]] = {
    "advertising": (Advertisement, _accept_advertisement),
    "sharing": (Shares, _accept_shares),
    "masking": (MaskedVector, _accept_masked),
    "endorsing": (Endorsement, _accept_endorsement),
    "revealing": (Reveal, _accept_reveal),
}
_ADVANCE: dict[str, Callable[[ServerState], Iterator[tuple[int, Message]]]] = {
    "advertising": _key_lists,
    "sharing": _inboxes,
    "masking": _survivor_lists,
    "endorsing": _endorsement_lists,
}
