"""A whole round in one process, with clients that vanish at given stages; every message travels as bytes."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ghofl.secure import client, server
from ghofl.secure.client import ClientState
from ghofl.secure.errors import PlanError
from ghofl.secure.graph import Plan, plan
from ghofl.secure.keys import Entropy, Identity
from ghofl.secure.refusals import RoundRules
from ghofl.secure.rounds import Agreement, Participant
from ghofl.secure.server import ServerState
from ghofl.secure.unmasking import Blame
from ghofl.shapes import Int64

STAGES = ("advertise", "share", "mask", "endorse", "reveal")

S = TypeVar("S", ClientState, ServerState)
Step = Callable[[ClientState, bytes], tuple[ClientState, bytes]]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The result of a simulated round: the sum, whose vectors are in it, and the bytes each client sent and received."""

    total: Int64[np.ndarray, " entries"]
    survivors: tuple[str, ...]
    sent: Mapping[str, int] = field(repr=False)
    received: Mapping[str, int] = field(repr=False)
    blamed: tuple[Blame, ...] = ()


def simulate_round(
    vectors: Mapping[str, Int64[np.ndarray, " entries"]],
    bound: int,
    drops: Mapping[str, str] | None = None,
    agreed: Plan | None = None,
    round_id: str = "simulated",
    entropy: Entropy = os.urandom,
    restarts: bool = False,
) -> Outcome:
    """The sum of the vectors of all clients that did not vanish before they sent theirs.

    `drops` says before which stage a client vanishes: advertise, share, mask, endorse or reveal. `agreed` is the plan,
    by default the one for 10 % dropouts and 10 % corrupted clients. With `restarts` every state is saved and
    loaded after every stage, as if each process had been restarted.

    Guarantees
    ----------
    The total is the plain sum of the survivors' vectors, to the bit, or `RoundFailedError` is raised.

    Examples
    --------
    >>> vectors = {name: np.array([1, -2]) for name in ("ann", "bob", "cem", "dan", "eva")}
    >>> outcome = simulate_round(vectors, bound=10, drops={"eva": "mask"}, agreed=plan(5, bound=10, dropout=0.2))
    >>> outcome.total
    array([ 4, -8])
    >>> outcome.survivors
    ('ann', 'bob', 'cem', 'dan')
    """
    identities = {name: Identity.fresh(entropy) for name in vectors}
    _check_drops(drops or {}, vectors)
    agreement = _agreement(vectors, identities, agreed or plan(len(vectors), bound), round_id, entropy)
    cohort = _Cohort(vectors, drops or {}, restarts)
    # Clients of a simulation accept the plan they are given: the caller is responsible for it.
    rules = RoundRules(corruption=agreement.plan.corrupted / agreement.plan.clients, sigma=0)
    cohort.start(agreement, identities, rules, entropy)
    cohort.play("share", lambda _name: client.share)
    cohort.play("mask", lambda name: lambda state, came: client.mask(state, came, vectors[name]))
    cohort.play("endorse", lambda name: lambda state, came: client.endorse(state, came, identities[name]))
    cohort.play("reveal", lambda _name: client.reveal)
    revealed = server.finish(cohort.server)
    return Outcome(revealed.total, revealed.survivors, cohort.sent, cohort.received, revealed.blamed)


class _Cohort:
    """The clients and the server of one simulated round, stage by stage."""

    def __init__(self, names: Mapping[str, object], drops: Mapping[str, str], restarts: bool) -> None:
        self._drops, self._restarts = drops, restarts
        self._clients: dict[str, ClientState] = {}
        self.sent, self.received = dict.fromkeys(names, 0), dict.fromkeys(names, 0)

    def start(
        self, agreement: Agreement, identities: Mapping[str, Identity], rules: RoundRules, entropy: Entropy
    ) -> None:
        self.server = server.open_round(agreement)
        for name, identity in identities.items():
            if self._is_there(name, "advertise"):
                self._keep(name, *client.advertise(agreement, name, identity, (), rules, entropy))

    def play(self, stage: str, step: Callable[[str], Step]) -> None:
        self.server, deliveries = server.advance(self.server)
        self.server = self._restart(self.server)
        for name, delivery in deliveries.items():
            self.received[name] += len(delivery)
            if self._is_there(name, stage):
                self._keep(name, *step(name)(self._clients[name], delivery))

    def _keep(self, name: str, state: ClientState, reply: bytes) -> None:
        self._clients[name] = self._restart(state)
        self.sent[name] += len(reply)
        self.server = self._restart(server.receive(self.server, name, reply))

    def _is_there(self, name: str, stage: str) -> bool:
        return STAGES.index(stage) < STAGES.index(self._drops[name]) if name in self._drops else True

    def _restart(self, state: S) -> S:
        return type(state).from_bytes(state.to_bytes()) if self._restarts else state


def _agreement(
    vectors: Mapping[str, np.ndarray], identities: Mapping[str, Identity], agreed: Plan, round_id: str, entropy: Entropy
) -> Agreement:
    participants = tuple(Participant(name, identities[name].public) for name in vectors)
    entries = {len(vector) for vector in vectors.values()}
    if len(entries) != 1:
        raise PlanError(f"vectors of {sorted(entries)} entries cannot be added; give vectors of one length.")
    return Agreement(round_id, participants, entropy(32), entries.pop(), agreed)


def _check_drops(drops: Mapping[str, str], vectors: Mapping[str, object]) -> None:
    unknown = sorted(set(drops) - set(vectors))
    if unknown:
        raise PlanError(
            f"{unknown[:3]} cannot vanish, as they are not among the clients, which are {sorted(vectors)[:5]} …."
        )
    stages = sorted(set(drops.values()) - set(STAGES))
    if stages:
        raise PlanError(f"clients cannot vanish before {stages}; stages are {', '.join(STAGES)}.")
