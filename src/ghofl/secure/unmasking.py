"""From revealed shares to the masks that are left in the sum, with a check of every share and secret.

A share is used only if it is the one that its dealer committed to in stage 2; a secret only if it is the one that its
owner committed to in stage 1. So whoever is at fault can be named: the holder of a share that was changed, or the dealer
of shares that fit their commitments but give another secret.
"""

import hmac
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from ghofl.secure import keys
from ghofl.secure.errors import RoundFailedError, SharingError
from ghofl.secure.messages import Advertisement, Box, Opened, Reveal, Shares
from ghofl.secure.rounds import Agreement
from ghofl.secure.sharing import Share, combine


@dataclass(frozen=True, slots=True)
class Blame:
    """A client whose share was wrong, and what was wrong with it; the share was left out."""

    name: str
    what: str


@dataclass(frozen=True, slots=True)
class Recovered:
    """The mask seeds of survivors and the mask keys of vanished clients, by seat, and who is to blame for what."""

    seeds: Mapping[int, bytes] = field(repr=False)
    mask_keys: Mapping[int, bytes] = field(repr=False)
    blamed: tuple[Blame, ...] = ()


def recover(
    agreement: Agreement,
    advertisements: Sequence[Advertisement],
    shares: Sequence[Shares],
    reveals: Sequence[Reveal],
    survivors: Collection[int],
) -> Recovered:
    """The secrets that the shares give; raises `RoundFailedError` for the first client whose secret they do not."""
    boxes = {(message.seat, box.seat): box for message in shares for box in message.boxes}
    seed_shares: dict[int, list[Share]] = {message.seat: [] for message in shares}
    key_shares: dict[int, list[Share]] = {message.seat: [] for message in shares}
    blamed: list[Blame] = []
    for reveal in reveals:
        blamed += _sort(agreement, boxes, reveal.seat, "seed", reveal.seeds, seed_shares)
        blamed += _sort(agreement, boxes, reveal.seat, "key", reveal.keys, key_shares)
        blamed += _complaints(agreement, reveal)
    known = {message.seat: message for message in advertisements}
    seeds, mask_keys = {}, {}
    for seat in seed_shares:
        if seat in survivors:
            seeds[seat] = _seed(agreement, known[seat], seed_shares[seat], blamed)
        else:
            mask_keys[seat] = _mask_key(agreement, known[seat], key_shares[seat], blamed)
    return Recovered(seeds, mask_keys, tuple(blamed))


def masks_left(
    agreement: Agreement, advertisements: Sequence[Advertisement], secrets: Recovered
) -> tuple[list[bytes], list[bytes]]:
    """The seeds whose masks must be added to the masked sum, and those whose masks must be subtracted."""
    publics = {message.seat: message.mask_key for message in advertisements}
    plus, minus = [], list(secrets.seeds.values())
    for gone, secret in secrets.mask_keys.items():
        private = keys.private_key(secret)
        for survivor in agreement.graph.neighbours_of(gone):
            if survivor in secrets.seeds:
                seed = agreement.pair_seed(private, publics[survivor], gone, survivor)
                # A survivor adds the masks of higher seats and subtracts those of lower ones.
                (minus if gone > survivor else plus).append(seed)
    return plus, minus


def _sort(
    agreement: Agreement,
    boxes: Mapping[tuple[int, int], Box],
    holder: int,
    kind: str,
    opened: Iterable[Opened],
    good: Mapping[int, list[Share]],
) -> list[Blame]:
    """Add the shares that fit their dealer's commitment to the good ones; blame the holder for the others.

    A share that fits but is not a number of the field is the dealer's fault, and ends the round.
    """
    blamed = []
    for one in opened:
        box = boxes[one.seat, holder]
        expected = box.seed_commitment if kind == "seed" else box.key_commitment
        if keys.is_committed(expected, agreement.context(f"{kind} share", one.seat, holder), one.content):
            good[one.seat].append(_share(agreement, one, holder))
        else:
            what = f"revealed a {kind} share that is not the one {agreement.name_of(one.seat)} dealt"
            blamed.append(Blame(agreement.participants[holder].name, what))
    return blamed


def _share(agreement: Agreement, opened: Opened, holder: int) -> Share:
    try:
        return Share.of_content(holder + 1, opened.content)
    except SharingError:
        _fail(agreement, f"{agreement.name_of(opened.seat)} dealt a share that is not a number of the field", [])


def _complaints(agreement: Agreement, reveal: Reveal) -> list[Blame]:
    what = f"sealed a box that {agreement.name_of(reveal.seat)} says it could not open"
    return [Blame(agreement.participants[dealer].name, what) for dealer in reveal.spoilt]


def _seed(agreement: Agreement, owner: Advertisement, shares: Sequence[Share], blamed: Sequence[Blame]) -> bytes:
    seed = _combine(agreement, owner.seat, shares, blamed)
    if not keys.is_committed(owner.seed_commitment, agreement.context("seed", owner.seat), seed):
        _fail(agreement, f"{agreement.name_of(owner.seat)} dealt shares of another seed than it committed to", blamed)
    return seed


def _mask_key(agreement: Agreement, owner: Advertisement, shares: Sequence[Share], blamed: Sequence[Blame]) -> bytes:
    key = _combine(agreement, owner.seat, shares, blamed)
    if not hmac.compare_digest(keys.public_key(key), owner.mask_key):
        _fail(agreement, f"{agreement.name_of(owner.seat)} dealt shares of another key than it advertised", blamed)
    return key


def _combine(agreement: Agreement, seat: int, shares: Sequence[Share], blamed: Sequence[Blame]) -> bytes:
    threshold, name = agreement.plan.threshold, agreement.name_of(seat)
    if len(shares) < threshold:
        came = f"{len(shares)} good shares of {name} came and {threshold} are needed"
        _fail(agreement, f"{came}, of a circle of {agreement.plan.neighbours + 1}", blamed)
    try:
        return combine(shares[:threshold], threshold)
    except SharingError:
        _fail(agreement, f"the shares that {name} dealt give no secret", blamed)


def _fail(agreement: Agreement, why: str, blamed: Sequence[Blame]) -> NoReturn:
    names = sorted({blame.name for blame in blamed})
    hint = f" Wrong shares involve {', '.join(names[:5])}." if names else ""
    raise RoundFailedError(f"round {agreement.round_id!r} fails: {why}; no sum is revealed.{hint} Start another round.")
