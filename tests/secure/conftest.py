"""A round that tests can stop at any stage, look into, and go on with by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from ghofl.secure import (
    STAGES,
    Agreement,
    ClientState,
    Identity,
    Participant,
    Plan,
    RoundRules,
    ServerState,
    advance,
    advertise,
    endorse,
    mask,
    open_round,
    plan,
    receive,
    reveal,
    share,
)


@dataclass
class Table:
    """All parties of one round, and the letters that wait for the clients."""

    agreement: Agreement
    identities: dict[str, Identity]
    server: ServerState
    clients: dict[str, ClientState] = field(default_factory=dict)
    letters: dict[str, bytes] = field(default_factory=dict)
    replies: dict[str, bytes] = field(default_factory=dict)

    def vector(self, name: str) -> np.ndarray:
        size = self.agreement.entries
        return np.random.default_rng(self.agreement.seat_of(name)).integers(-100, 101, size)

    def answer(self, name: str, stage: str, letter: bytes | None = None) -> tuple[ClientState, bytes]:
        """What a client does at a stage, without keeping it."""
        state, identity = self.clients.get(name), self.identities[name]
        letter = self.letters.get(name) if letter is None else letter
        match stage:
            case "advertise":
                return advertise(self.agreement, name, identity, (), RoundRules(sigma=0, corruption=0.0))
            case "share":
                return share(state, letter)
            case "mask":
                return mask(state, letter, self.vector(name))
            case "endorse":
                return endorse(state, letter, identity)
            case _:
                return reveal(state, letter)

    def play(self, stage: str, absent: tuple[str, ...] = ()) -> None:
        """All clients that have a letter answer it, and the server goes on."""
        names = self.identities if stage == "advertise" else self.letters
        for name in [name for name in names if name not in absent]:
            self.clients[name], self.replies[name] = self.answer(name, stage)
            self.server = receive(self.server, name, self.replies[name])
        if stage != "reveal":
            self.server, self.letters = advance(self.server)


@pytest.fixture(scope="session")
def table() -> Callable[..., Table]:
    """A round of `clients`, played until before `stage`."""

    def lay(stage: str = "advertise", clients: int = 5, agreed: Plan | None = None, round_id: str = "r1") -> Table:
        names = [f"site-{i:02d}" for i in range(clients)]
        identities = {name: Identity.fresh() for name in names}
        participants = tuple(Participant(name, identities[name].public) for name in names)
        agreed = agreed or plan(clients, bound=100, dropout=0.2, corruption=0.0)
        agreement = Agreement(round_id, participants, bytes(range(32)), 7, agreed)
        laid = Table(agreement, identities, open_round(agreement))
        for earlier in STAGES[: STAGES.index(stage)]:
            laid.play(earlier)
        return laid

    return lay
