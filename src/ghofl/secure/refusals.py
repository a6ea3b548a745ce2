"""What a client refuses: every check between a server's request and a client's secrets.

Each function takes what the client knows and what it was shown, and raises if something is wrong.
``docs/secure-aggregation.md`` says what each refusal stops.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ghofl.secure.errors import RefusedError
from ghofl.secure.graph import portion
from ghofl.secure.keys import is_signed
from ghofl.secure.messages import Advertisement, Box, Endorsement
from ghofl.secure.rounds import Agreement
from ghofl.shapes import Bool


@dataclass(frozen=True, slots=True)
class RoundRules:
    """A client's conditions, whatever the server proposes.

    The sum covers at least `min_survivors` clients, and at least `min_honest` besides those that the plan assumes to be
    corrupted (shared noise is sized for these); the plan withstands this fraction of corrupted clients, rounded up, with
    a failure probability of at most 2^−sigma.
    """

    min_survivors: int = 2
    corruption: float = 0.1
    sigma: int = 40
    min_honest: int = 2


def check_agreement(
    agreement: Agreement, name: str, identity: bytes, used_rounds: Collection[str], rules: RoundRules
) -> int:
    """The client's seat; raises if the round id was used before, or the round lacks the client or breaks its rules."""
    prefix = f"{name!r} refuses round {agreement.round_id!r}: "
    if agreement.round_id in used_rounds:
        raise RefusedError(f"{prefix}the id was used before; start a round with a new one.")
    seat = agreement.seat_of(name)
    if seat is None or agreement.participants[seat].key != identity:
        raise RefusedError(f"{prefix}the participant list lacks it, or names it with another key; ask to be listed.")
    _check_plan(agreement, rules, prefix)
    return seat


def _check_plan(agreement: Agreement, rules: RoundRules, prefix: str) -> None:
    plan = agreement.plan
    if plan.min_survivors < rules.min_survivors:
        raise RefusedError(
            f"{prefix}the participant list is too short: of {plan.clients} sites {plan.dropped} may vanish, and a sum "
            f"covers at least {rules.min_survivors} here."
        )
    if plan.min_survivors - plan.corrupted < rules.min_honest:
        raise RefusedError(
            f"{prefix}its sum may cover {plan.min_survivors} sites of which {plan.corrupted} are corrupted; this site "
            f"asks for {rules.min_honest} that keep their noise to themselves."
        )
    asked = portion(plan.clients, rules.corruption)
    if plan.corrupted < asked:
        raise RefusedError(
            f"{prefix}it withstands {plan.corrupted} corrupted clients of {plan.clients}; this site asks for {asked}."
        )
    if plan.privacy_failure > 2.0**-rules.sigma * (1 + 1e-6):  # room for the last digits of another scipy
        raise RefusedError(
            f"{prefix}its plan fails with probability up to {plan.privacy_failure:.2g}; this site allows "
            f"2^−{rules.sigma}. Use `plan(...)`, or more neighbours."
        )


def check_peers(agreement: Agreement, seat: int, peers: Sequence[Advertisement]) -> None:
    """Refuse keys that no neighbour on the participant list signed for this round, and too few keys."""
    seats = [peer.seat for peer in peers]
    strangers = set(seats) - set(agreement.graph.neighbours_of(seat))
    if strangers or len(set(seats)) != len(seats):
        refuse(agreement, seat, f"use {len(seats)} keys: {len(strangers)} are not of neighbours, or some come twice")
    for peer in peers:
        content = agreement.context("keys", peer.seat) + peer.signed
        key = agreement.participants[peer.seat].key
        if peer.round != agreement.digest or not is_signed(key, peer.signature, content):
            refuse(agreement, seat, f"use keys that {agreement.name_of(peer.seat)} of the participants did not sign")
    _check_enough(agreement, seat, len(peers) + 1, "keys")


def check_inbox(agreement: Agreement, seat: int, known: Collection[int], boxes: Sequence[Box]) -> None:
    """Refuse boxes of clients whose signed keys never came, boxes that come twice, and too few boxes."""
    seats = [box.seat for box in boxes]
    strangers = set(seats) - set(known)
    if strangers:
        refuse(agreement, seat, f"mask against {len(strangers)} clients whose keys are not on the signed list")
    if len(set(seats)) != len(seats):
        refuse(agreement, seat, f"mask against {len(seats)} clients of which some come twice")
    _check_enough(agreement, seat, len(boxes) + 1, "shares")


def _check_enough(agreement: Agreement, seat: int, count: int, what: str) -> None:
    plan = agreement.plan
    if count < plan.threshold:
        circle = f"{count} of its circle of {plan.neighbours + 1}"
        refuse(agreement, seat, f"continue with the {what} of {circle}; {plan.threshold} are needed")


def check_survivors(
    agreement: Agreement,
    seat: int,
    shared: Collection[int],
    survives: Bool[np.ndarray, " clients"],
    vanished: Bool[np.ndarray, " clients"],
) -> None:
    """Refuse a survivor list that is too short or thin, contradicts itself, or does not fit the shares that came."""
    plan, count = agreement.plan, int(survives.sum())
    both = np.flatnonzero(survives & vanished).tolist()
    if both:
        names = ", ".join(agreement.names_of(both[:3]))
        refuse(agreement, seat, f"reveal both the seed and the key of one client, as is asked for {names}")
    if count < plan.min_survivors:
        refuse(agreement, seat, f"unmask a sum of {count} clients: too short a list, {plan.min_survivors} are needed")
    if agreement.graph.thinnest_window(survives) < plan.window:
        where = f"in some {plan.neighbours // 2} consecutive places"
        refuse(agreement, seat, f"unmask: the list leaves fewer than {plan.window} survivors {where}")
    if not survives[seat]:
        refuse(agreement, seat, "unmask a sum that its own vector is not in")
    unmasked = [v for v in agreement.graph.neighbours_of(seat) if survives[v] and v not in shared]
    unnamed = [v for v in shared if not survives[v] and not vanished[v]]
    if unmasked or unnamed:
        never = f"the list counts {len(unmasked)} neighbours as survivors whose shares never came"
        refuse(agreement, seat, f"unmask: {never}, and says nothing of {len(unnamed)} whose shares did")


def check_endorsements(
    agreement: Agreement, seat: int, survivors: bytes, vanished: bytes, endorsements: Sequence[Endorsement]
) -> None:
    """Refuse unless a threshold of the client's circle, including itself, signed exactly the list it was shown."""
    needed, candidates = agreement.plan.threshold, set(agreement.graph.neighbours_of(seat))
    signers = 1
    for endorsement in endorsements:
        if signers < needed and endorsement.seat in candidates:
            content = agreement.survivors_content(endorsement.seat, survivors, vanished)
            key = agreement.participants[endorsement.seat].key
            if is_signed(key, endorsement.signature, content):
                candidates.remove(endorsement.seat)
                signers += 1
    if signers < needed:
        refuse(agreement, seat, f"unmask: {signers} of its circle signed this survivor list; {needed} are needed")


def refuse(agreement: Agreement, seat: int, what: str) -> NoReturn:
    """Raise `RefusedError`, saying who refuses what in which round."""
    raise RefusedError(
        f"{agreement.name_of(seat)} refuses, in round {agreement.round_id!r}, to {what}. Start another round."
    )
