"""A client's side of a round: five small functions, each from a state and a message to a new state and a reply.

::

    advertise ─▶ share ─▶ mask ─▶ endorse ─▶ reveal          (endorse and reveal are the two halves of unmasking)

States are values that can be saved and loaded, so a process may stop between any two stages. **Save the new state
before sending the reply**, and never return to an older one. Only `advertise` draws anything at random, so a
stage that is run again from the same state and message gives the same bytes.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ghofl.secure import keys, refusals
from ghofl.secure.errors import WireError
from ghofl.secure.keys import Entropy, Identity, Secrets
from ghofl.secure.messages import (
    Advertisement,
    Box,
    Endorsement,
    Endorsements,
    Inbox,
    KeyList,
    MaskedVector,
    Opened,
    Reveal,
    Shares,
    Survivors,
    read,
)
from ghofl.secure.refusals import RoundRules, refuse
from ghofl.secure.rounds import Agreement
from ghofl.secure.sharing import SHARE_BYTES, Share, is_share, split
from ghofl.secure.wire import from_bytes, to_bytes
from ghofl.shapes import Int64

CLIENT_STAGES = ("advertised", "shared", "masked", "endorsed", "revealed")
MAX_STATE_BYTES = 2**30

Delivery = TypeVar("Delivery", KeyList, Inbox, Endorsements)


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client remembers between two stages. It holds the secrets of the round: keep it as safe as a key.

    `used_rounds` are the ids of this and all earlier rounds; pass them to the next `advertise`.
    """

    agreement: Agreement
    seat: int
    stage: str
    used_rounds: tuple[str, ...]
    secrets: Secrets = field(repr=False)
    peers: tuple[Advertisement, ...] = field(default=(), repr=False)
    inbox: tuple[Box, ...] = field(default=(), repr=False)
    survivors: bytes = b""
    vanished: bytes = b""

    def __post_init__(self) -> None:
        seats = [self.seat, *(peer.seat for peer in self.peers), *(box.seat for box in self.inbox)]
        if self.stage not in CLIENT_STAGES or max(seats) >= self.agreement.plan.clients:
            raise WireError(f"this client state, at stage {self.stage[:20]!r}, does not fit its round; it was damaged.")

    def to_bytes(self) -> bytes:
        """The state as bytes, secrets included."""
        return to_bytes(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ClientState":
        """The state that was saved."""
        return from_bytes(cls, data, limit=MAX_STATE_BYTES)


def advertise(
    agreement: Agreement,
    name: str,
    identity: Identity,
    used_rounds: Sequence[str] = (),
    rules: RoundRules | None = None,
    entropy: Entropy = os.urandom,
) -> tuple[ClientState, bytes]:
    """Stage 1: draw the secrets of this round and sign their public halves.

    Refuses a round id that was used before, and a participant list or plan that does not meet the rules.
    """
    seat = refusals.check_agreement(agreement, name, identity.public, used_rounds, rules or RoundRules())
    secrets = Secrets.fresh(entropy)
    unsigned = Advertisement(
        round=agreement.digest,
        seat=seat,
        cipher_key=keys.public_key(secrets.cipher_key),
        mask_key=keys.public_key(secrets.mask_key),
        seed_commitment=keys.commitment(agreement.context("seed", seat), secrets.mask_seed),
        signature=bytes(keys.SIGNATURE_BYTES),
    )
    signed = replace(unsigned, signature=identity.sign(agreement.context("keys", seat) + unsigned.signed))
    state = ClientState(agreement, seat, "advertised", (*used_rounds, agreement.round_id), secrets)
    return state, to_bytes(signed)


def share(state: ClientState, key_list: bytes) -> tuple[ClientState, bytes]:
    """Stage 2: check the neighbours' keys and seal shares of both secrets for each of them.

    Refuses keys that are not signed by a neighbour on the participant list, and lists that are too short.
    """
    _expect(state, "advertised")
    peers = _read_delivery(KeyList, state, key_list).advertisements
    refusals.check_peers(state.agreement, state.seat, peers)
    state = replace(state, stage="shared", peers=peers)
    return state, to_bytes(Shares(state.agreement.digest, state.seat, _boxes(state)))


def mask(state: ClientState, inbox: bytes, vector: Int64[np.ndarray, " entries"]) -> tuple[ClientState, bytes]:
    """Stage 3: hide the vector under its own mask and one mask for every neighbour that shared.

    Refuses boxes of clients that are not on the signed key list, boxes whose dealer sealed something else than shares,
    too few boxes, and entries beyond the bound.
    """
    _expect(state, "shared")
    agreement, boxes = state.agreement, _read_delivery(Inbox, state, inbox).boxes
    refusals.check_inbox(agreement, state.seat, {peer.seat for peer in state.peers}, boxes)
    _check_boxes(state, boxes)
    if len(vector) != agreement.entries:
        refuse(agreement, state.seat, f"mask {len(vector)} entries where {agreement.entries} were agreed on")
    pairs = _pair_seeds(state, [box.seat for box in boxes])
    plus = [state.secrets.mask_seed, *(seed for seat, seed in pairs.items() if seat > state.seat)]
    minus = [seed for seat, seed in pairs.items() if seat < state.seat]
    elements = agreement.plan.ring.mask(vector, agreement.plan.bound, plus, minus)
    message = MaskedVector(agreement.digest, state.seat, elements)
    return replace(state, stage="masked", inbox=boxes), to_bytes(message)


def endorse(state: ClientState, survivors: bytes, identity: Identity) -> tuple[ClientState, bytes]:
    """Stage 4, first half: check the survivor list and sign it.

    Refuses a list that is too short or too thin somewhere on the ring, that lacks this client, that names a client
    both as survived and as vanished, or that does not fit the boxes that came.
    """
    _expect(state, "masked")
    agreement, shown = state.agreement, read(Survivors, survivors, state.agreement)
    survives, vanished = agreement.marks(shown.survivors), agreement.marks(shown.vanished)
    refusals.check_survivors(agreement, state.seat, {box.seat for box in state.inbox}, survives, vanished)
    signature = identity.sign(agreement.survivors_content(state.seat, shown.survivors, shown.vanished))
    state = replace(state, stage="endorsed", survivors=shown.survivors, vanished=shown.vanished)
    return state, to_bytes(Endorsement(agreement.digest, state.seat, signature))


def reveal(state: ClientState, endorsements: bytes) -> tuple[ClientState, bytes]:
    """Stage 4, second half: give back one share of every neighbour, of its seed or of its key, but never both.

    Refuses when fewer than the threshold of its circle signed the same survivor list, and always a second time.
    """
    _expect(state, "endorsed")
    signed = _read_delivery(Endorsements, state, endorsements).endorsements
    refusals.check_endorsements(state.agreement, state.seat, state.survivors, state.vanished, signed)
    survives = state.agreement.marks(state.survivors)
    seeds, mask_keys, spoilt = [Opened(state.seat, _own_seed_share(state))], [], []
    private = keys.private_key(state.secrets.cipher_key)
    for box in state.inbox:
        pair = _open(state, private, box)
        if pair is None:
            spoilt.append(box.seat)
        elif survives[box.seat]:
            seeds.append(Opened(box.seat, pair[0]))
        else:
            mask_keys.append(Opened(box.seat, pair[1]))
    message = Reveal(state.agreement.digest, state.seat, tuple(seeds), tuple(mask_keys), tuple(spoilt))
    return replace(state, stage="revealed"), to_bytes(message)


def _pair_seeds(state: ClientState, seats: Sequence[int]) -> dict[int, bytes]:
    publics, private = {peer.seat: peer.mask_key for peer in state.peers}, keys.private_key(state.secrets.mask_key)
    return {seat: state.agreement.pair_seed(private, publics[seat], state.seat, seat) for seat in sorted(seats)}


def _boxes(state: ClientState) -> tuple[Box, ...]:
    """A box for every member of the circle whose keys came, including an empty one for itself."""
    publics = {peer.seat: peer.cipher_key for peer in state.peers}
    holders = sorted([state.seat, *publics])
    seeds = _shares(state, state.secrets.mask_seed, "seed", holders)
    mask_keys = _shares(state, state.secrets.mask_key, "key", holders)
    private = keys.private_key(state.secrets.cipher_key)
    return tuple(
        _box(state, private, holder, publics.get(holder), seed.content, key.content)
        for holder, seed, key in zip(holders, seeds, mask_keys, strict=True)
    )


def _box(
    state: ClientState, private: X25519PrivateKey, holder: int, public: bytes | None, seed: bytes, key: bytes
) -> Box:
    agreement = state.agreement
    seed_commitment = keys.commitment(agreement.context("seed share", state.seat, holder), seed)
    key_commitment = keys.commitment(agreement.context("key share", state.seat, holder), key)
    box = Box(holder, b"", seed_commitment, key_commitment)
    if public is None:
        return box
    context = agreement.context("box", state.seat, holder)
    box_key = keys.pair_key(private, public, context)
    return replace(box, sealed=keys.seal(box_key, seed + key, context + box.commitments))


def _check_boxes(state: ClientState, boxes: Sequence[Box]) -> None:
    """Refuse a box that its dealer sealed around something else than shares; a box damaged on its way is tolerated.

    Later, such a dealer would make the round fail when everybody has revealed; now, nothing of this client's has left.
    """
    private = keys.private_key(state.secrets.cipher_key)
    for box in boxes:
        content = _unseal(state, private, box)
        if content is not None and not _are_shares(state, box, content):
            dealer = state.agreement.name_of(box.seat)
            refuse(state.agreement, state.seat, f"mask beside {dealer}, who dealt it something that is not a share")


def _unseal(state: ClientState, private: X25519PrivateKey, box: Box) -> bytes | None:
    """What a dealer sealed for this client, or None when the box cannot be opened."""
    public = next(peer.cipher_key for peer in state.peers if peer.seat == box.seat)
    context = state.agreement.context("box", box.seat, state.seat)
    return keys.unseal(keys.pair_key(private, public, context), box.sealed, context + box.commitments)


def _are_shares(state: ClientState, box: Box, content: bytes) -> bool:
    """Whether what a dealer sealed is a seed share and a key share, both numbers of the field that it committed to."""
    agreement, dealer, holder = state.agreement, box.seat, state.seat
    seed, key = content[:SHARE_BYTES], content[SHARE_BYTES:]
    is_seed = keys.is_committed(box.seed_commitment, agreement.context("seed share", dealer, holder), seed)
    is_key = keys.is_committed(box.key_commitment, agreement.context("key share", dealer, holder), key)
    return is_seed and is_key and is_share(seed) and is_share(key)


def _open(state: ClientState, private: X25519PrivateKey, box: Box) -> tuple[bytes, bytes] | None:
    """The seed share and the key share in a box, or None when they are not what their dealer committed to."""
    content = _unseal(state, private, box)
    if content is None or not _are_shares(state, box, content):
        return None
    return content[:SHARE_BYTES], content[SHARE_BYTES:]


def _own_seed_share(state: ClientState) -> bytes:
    circle = state.agreement.graph.circle_of(state.seat)
    return _shares(state, state.secrets.mask_seed, "seed", circle)[circle.index(state.seat)].content


def _shares(state: ClientState, secret: bytes, kind: str, holders: Sequence[int]) -> tuple[Share, ...]:
    """The shares of a secret; the polynomial is the client's own for this round, whoever holds shares of it."""
    seed = keys.commitment(kind.encode(), state.secrets.polynomial_seed)
    points = [holder + 1 for holder in holders]
    return split(secret, points, state.agreement.plan.threshold, keys.entropy_of(seed))


def _read_delivery(kind: type[Delivery], state: ClientState, data: bytes) -> Delivery:
    delivery = read(kind, data, state.agreement)
    if delivery.seat != state.seat:
        raise WireError(
            f"a {kind.__name__} for seat {delivery.seat} came to seat {state.seat}; send it to its own seat."
        )
    return delivery


def _expect(state: ClientState, stage: str) -> None:
    if state.stage == "revealed":
        refuse(state.agreement, state.seat, "do anything more: it has unmasked, and does so once per round")
    if state.stage != stage:
        refuse(state.agreement, state.seat, f"do this now: it has {state.stage}, and this follows when it has {stage}")
