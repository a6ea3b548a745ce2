"""A round of secure aggregation: what its parties agree on, and what they send each other.

::

      client u                                     server                                   its neighbours v
    1 advertise keys
      ── Advertisement(keys, commitment, signature) ──▶
                                          ◀── KeyList(the neighbours' advertisements) ──
    2 share seeds
      ── Shares(one sealed box for each v) ───────────▶
                                          ◀── Inbox(the boxes that the v sealed for u) ──
    3 send masked vector
      ── MaskedVector ─────────────────────────────────▶  adds it to one accumulator
                                          ◀── Survivors(whose vector came, who vanished) ──
    4 unmask
      ── Endorsement(u's signature on that list) ─────▶
                                          ◀── Endorsements(the neighbours' signatures) ──
      ── Reveal(of each v: a share of its seed if it
         survived, of its mask key if it vanished) ───▶  takes the masks away: the sum

The vector of u is masked twice (Bonawitz et al. 2017)::

    y_u = x_u + PRG(seed_u) + Σ_{v > u} PRG(pair_uv) − Σ_{v < u} PRG(pair_uv)   mod 2^b

Pair masks cancel between survivors. The seed of a survivor, or the mask key of a client that vanished, is rebuilt from
the shares of its circle; never both, because then nothing would hide its vector. A client is identified by its *seat*,
its position in the participant list; sets of clients are bitmaps over the seats.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ghofl.names import WHY_NO_SITE_NAME, is_site_name
from ghofl.secure.errors import PlanError, WireError
from ghofl.secure.graph import Graph, Plan, arrange
from ghofl.secure.keys import KEY_BYTES, commitment, pair_key
from ghofl.secure.wire import from_bytes, to_bytes
from ghofl.shapes import Bool

MAX_NAME_BYTES = 64
MAX_ENTRIES = 2**32


@dataclass(frozen=True, slots=True)
class Participant:
    """A site of the list: its name, and the public key of its `Identity`."""

    name: str
    key: bytes

    def __post_init__(self) -> None:
        _check_text("a participant's name", self.name)
        if not is_site_name(self.name):
            raise PlanError(f"a participant is called {self.name!r}, which is not allowed: {WHY_NO_SITE_NAME}")
        if len(self.key) != KEY_BYTES:
            raise PlanError(f"the identity key of {self.name!r} has {len(self.key)} bytes; keys have {KEY_BYTES}.")

    @property
    def label(self) -> bytes:
        """Bytes that identify the participant."""
        return self.key + self.name.encode()


def public_seed(round_id: str, participants: tuple[Participant, ...]) -> bytes:
    """The public seed of a round: it follows from everyone's fresh keys, so no single party chooses it."""
    digest = hashlib.sha256(b"ghofl-flower/1 seed" + round_id.encode())
    for participant in sorted(participants, key=lambda p: p.label):
        digest.update(len(participant.label).to_bytes(4, "big") + participant.label)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class Agreement:
    """What all parties of one round agree on before it starts; `digest` identifies it in every message.

    `seed` is public and random: 32 bytes that nobody could choose after the participants were known, because they
    decide who is whose neighbour. `round_id` is used once. `entries` is the length of every vector.

    Guarantees
    ----------
    Participants have different names and identity keys, and there are as many as the plan says. Different agreements
    have different digests, and ``Agreement.from_bytes(agreement.to_bytes()) == agreement``.

    Examples
    --------
    >>> from ghofl.secure import Identity, plan
    >>> sites = tuple(Participant(name, Identity.fresh().public) for name in ("ann", "bob", "cem"))
    >>> agreement = Agreement("2024-05-01", sites, seed=bytes(32), entries=10, plan=plan(clients=3, bound=100))
    >>> agreement.graph.neighbours_of(0)
    (1, 2)
    """

    round_id: str
    participants: tuple[Participant, ...]
    seed: bytes
    entries: int
    plan: Plan
    digest: bytes = field(init=False, repr=False, compare=False)
    graph: Graph = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        labels = [participant.label for participant in self.participants]
        object.__setattr__(self, "digest", commitment(b"", to_bytes(self)))
        object.__setattr__(self, "graph", arrange(labels, self.seed, self.plan.neighbours))

    def _check(self) -> None:
        _check_text("the round id", self.round_id)
        if len(self.seed) != KEY_BYTES:
            raise PlanError(f"the public seed has {len(self.seed)} bytes; give {KEY_BYTES}.")
        if not 1 <= self.entries <= MAX_ENTRIES:
            raise PlanError(f"vectors have {self.entries} entries; give 1 to {MAX_ENTRIES}.")
        if len(self.participants) != self.plan.clients:
            raise PlanError(f"{len(self.participants)} sites take part, but the plan is for {self.plan.clients}.")
        names, keys = {p.name for p in self.participants}, {p.key for p in self.participants}
        if min(len(names), len(keys)) < len(self.participants):
            raise PlanError(
                f"the participant list has duplicates: {len(self.participants)} sites with {len(names)} names and "
                f"{len(keys)} identity keys; list every site once, each with its own key."
            )

    def seat_of(self, name: str) -> int | None:
        """The seat of the participant with this name, or None when it is not on the list."""
        return next((seat for seat, participant in enumerate(self.participants) if participant.name == name), None)

    def name_of(self, seat: int) -> str:
        """The name at a seat, in quotes for an error."""
        return repr(self.participants[seat].name)

    def names_of(self, seats: Iterable[int]) -> tuple[str, ...]:
        """The names at some seats."""
        return tuple(self.participants[seat].name for seat in seats)

    def context(self, purpose: str, *seats: int) -> bytes:
        """Bytes that are unique to this purpose, in this round, for these participants in this order."""
        labels = [self.participants[seat].label for seat in seats]
        return b"ghofl-secure/1 " + purpose.encode() + self.digest + b"".join(bytes([len(x)]) + x for x in labels)

    def survivors_content(self, seat: int, survivors: bytes, vanished: bytes) -> bytes:
        """What the client at a seat signs to confirm that it was shown this survivor list."""
        return self.context("survivors", seat) + survivors + vanished

    def pair_seed(self, private: X25519PrivateKey, public: bytes, one: int, other: int) -> bytes:
        """The seed of the mask between two seats, from the mask key of either and the public one of the other."""
        return pair_key(private, public, self.context("mask", min(one, other), max(one, other)))

    def bitmap(self, seats: Iterable[int]) -> bytes:
        """A set of seats as bytes: seat i is bit i mod 8, from the lowest, of byte i div 8."""
        marks = np.zeros(self.plan.clients, dtype=bool)
        marks[list(seats)] = True
        return np.packbits(marks, bitorder="little").tobytes()

    def marks(self, bitmap: bytes) -> Bool[np.ndarray, " clients"]:
        """The set of seats in a bitmap as one truth value per seat."""
        if len(bitmap) != (self.plan.clients + 7) // 8:
            raise WireError(
                f"a set of clients came in {len(bitmap)} bytes; {self.plan.clients} clients take "
                f"{(self.plan.clients + 7) // 8}."
            )
        bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little").astype(bool)
        if bits[self.plan.clients :].any():
            raise WireError(f"a set of clients names seats beyond the {self.plan.clients} of the round.")
        return bits[: self.plan.clients]

    @property
    def control_limit(self) -> int:
        """The most bytes of a message that holds no vector."""
        return 4096 + 512 * self.plan.clients

    def to_bytes(self) -> bytes:
        """The agreement as bytes, to be announced."""
        return to_bytes(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Agreement":
        """The agreement in announced bytes, which may come from anyone."""
        return from_bytes(cls, data, limit=64 * 2**20)


def _check_text(what: str, text: str) -> None:
    size = len(text.encode(errors="replace"))
    if not (1 <= size <= MAX_NAME_BYTES and text.isprintable()):
        raise PlanError(f"{what} has {size} bytes; give 1 to {MAX_NAME_BYTES} bytes of printable text.")
