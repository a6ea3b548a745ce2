"""Secure aggregation: the server learns the sum of the sites' integer vectors, and nothing else about them.

This holds where sites know each other by keys that the server did not choose and that somebody
checked before (`peers` of a site's policy): a server that may invent the other sites learns a site's own vector.

The protocol is dropout-resilient double masking (Bonawitz et al. 2017) on a neighbour graph (Bell et al. 2020), exact in
Z_2^b. Everything is pure functions over bytes and arrays, whatever carries the bytes. `rounds` shows who sends what.
"""

from ghofl.secure.client import ClientState, advertise, endorse, mask, reveal, share
from ghofl.secure.errors import (
    PlanError,
    RefusedError,
    RingError,
    RoundFailedError,
    SecureError,
    SharingError,
    WireError,
)
from ghofl.secure.graph import CORRUPTION, DROPOUT, Graph, Plan, arrange, plan
from ghofl.secure.keys import Identity
from ghofl.secure.masking import Ring
from ghofl.secure.messages import masked_bytes
from ghofl.secure.refusals import RoundRules
from ghofl.secure.rounds import Agreement, Participant, public_seed
from ghofl.secure.server import SERVER_STAGES, RevealedSum, ServerState, advance, finish, open_round, receive
from ghofl.secure.sharing import Share, combine, split
from ghofl.secure.simulate import STAGES, Outcome, simulate_round
from ghofl.secure.unmasking import Blame

__all__ = [  # noqa: RUF022  (story order)
    "Ring",
    "Share",
    "split",
    "combine",
    "Plan",
    "plan",
    "DROPOUT",
    "CORRUPTION",
    "Graph",
    "arrange",
    "Identity",
    "Participant",
    "public_seed",
    "Agreement",
    "RoundRules",
    "ClientState",
    "advertise",
    "share",
    "mask",
    "endorse",
    "reveal",
    "masked_bytes",
    "SERVER_STAGES",
    "ServerState",
    "open_round",
    "receive",
    "advance",
    "finish",
    "RevealedSum",
    "Blame",
    "STAGES",
    "Outcome",
    "simulate_round",
    "SecureError",
    "RingError",
    "SharingError",
    "PlanError",
    "WireError",
    "RefusedError",
    "RoundFailedError",
]
