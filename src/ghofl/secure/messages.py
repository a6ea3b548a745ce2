"""The messages of a round, one dataclass each; `rounds` shows who sends which to whom.

`round` is the digest of the round that a message belongs to. `seat` is the client that it comes from, or goes to.
"""

from dataclasses import dataclass, field
from typing import TypeVar

from ghofl.secure.errors import WireError
from ghofl.secure.keys import KEY_BYTES, SIGNATURE_BYTES, TAG_BYTES, commitment
from ghofl.secure.masking import Ring
from ghofl.secure.rounds import Agreement
from ghofl.secure.sharing import SHARE_BYTES
from ghofl.secure.wire import from_bytes, to_bytes

BOX_BYTES = 2 * SHARE_BYTES + TAG_BYTES


@dataclass(frozen=True, slots=True)
class Advertisement:
    """Client to server, 1: the two public keys of this round, a commitment to the mask seed, and a signature."""

    round: bytes
    seat: int
    cipher_key: bytes
    mask_key: bytes
    seed_commitment: bytes
    signature: bytes

    def __post_init__(self) -> None:
        _check_lengths(self, KEY_BYTES, "cipher_key", "mask_key", "seed_commitment")
        _check_lengths(self, SIGNATURE_BYTES, "signature")

    @property
    def signed(self) -> bytes:
        """What the identity signs."""
        return self.cipher_key + self.mask_key + self.seed_commitment


@dataclass(frozen=True, slots=True)
class KeyList:
    """Server to client, 1: the advertisements of its neighbours."""

    round: bytes
    seat: int
    advertisements: tuple[Advertisement, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """Shares of one client's mask seed and mask key, sealed for one holder, with a commitment to each.

    `seat` is the holder on the way to the server and the dealer on the way from it. A client's box for itself is
    empty: it knows what is inside, and the server needs only the commitments.
    """

    seat: int
    sealed: bytes
    seed_commitment: bytes
    key_commitment: bytes

    def __post_init__(self) -> None:
        _check_lengths(self, KEY_BYTES, "seed_commitment", "key_commitment")
        if len(self.sealed) not in (0, BOX_BYTES):
            raise WireError(f"a sealed share of {len(self.sealed)} bytes came; boxes have {BOX_BYTES}.")

    @property
    def commitments(self) -> bytes:
        """Both commitments, to which the seal binds the box."""
        return self.seed_commitment + self.key_commitment


@dataclass(frozen=True, slots=True)
class Shares:
    """Client to server, 2: one box for every member of the circle."""

    round: bytes
    seat: int
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Inbox:
    """Server to client, 2: the boxes that neighbours sealed for it."""

    round: bytes
    seat: int
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class MaskedVector:
    """Client to server, 3: the masked vector, bits/8 bytes per entry."""

    round: bytes
    seat: int
    elements: memoryview = field(repr=False)


def masked_bytes(entries: int, clients: int, bound: int) -> int:
    """How many bytes a client sends as its masked vector, in a round of so many clients with entries within ±bound."""
    empty = to_bytes(MaskedVector(commitment(b"", b""), 0, memoryview(b"")))
    return len(empty) + entries * Ring.for_sum(clients, bound).width


@dataclass(frozen=True, slots=True)
class Survivors:
    """Server to client, 4: whose vectors are in the sum, and who vanished after sharing, as bitmaps."""

    round: bytes
    survivors: bytes
    vanished: bytes


@dataclass(frozen=True, slots=True)
class Endorsement:
    """Client to server, 4: the client's signature on the survivor list it was shown."""

    round: bytes
    seat: int
    signature: bytes

    def __post_init__(self) -> None:
        _check_lengths(self, SIGNATURE_BYTES, "signature")


@dataclass(frozen=True, slots=True)
class Endorsements:
    """Server to client, 4: the endorsements of its neighbours."""

    round: bytes
    seat: int
    endorsements: tuple[Endorsement, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """A share that a holder gives back, of the client at `seat`."""

    seat: int
    content: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _check_lengths(self, SHARE_BYTES, "content")


@dataclass(frozen=True, slots=True)
class Reveal:
    """Client to server, 4: seed shares of survivors, key shares of vanished clients, and whose boxes were spoilt."""

    round: bytes
    seat: int
    seeds: tuple[Opened, ...]
    keys: tuple[Opened, ...]
    spoilt: tuple[int, ...]


def _check_lengths(message: object, length: int, *names: str) -> None:
    for name in names:
        if len(getattr(message, name)) != length:
            raise WireError(
                f"{name} of a {type(message).__name__} has {len(getattr(message, name))} bytes; expected {length}."
            )


Message = Advertisement | KeyList | Shares | Inbox | MaskedVector | Survivors | Endorsement | Endorsements | Reveal
M = TypeVar("M", bound=Message)


def read(kind: type[M], data: bytes, agreement: Agreement) -> M:
    """A message of this kind and this round, from bytes that may come from anyone."""
    vector = agreement.entries * agreement.plan.ring.width if kind is MaskedVector else 0
    message = from_bytes(kind, data, limit=agreement.control_limit + vector)
    if message.round != agreement.digest:
        raise WireError(f"a {kind.__name__} of another round came; this is round {agreement.round_id!r}.")
    seat = getattr(message, "seat", 0)
    if seat >= agreement.plan.clients:
        raise WireError(f"a {kind.__name__} names seat {seat}; the round has {agreement.plan.clients} participants.")
    return message
