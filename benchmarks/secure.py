"""What secure aggregation costs, as ratios measured in one run.

    python benchmarks/secure.py            # about a minute on one core
    python benchmarks/secure.py --quick    # about ten seconds

The first table sets the client's masking, per entry and neighbour, against one AES-256-CTR pass over as many bytes as
the masked vector has. The second is the server's work for a round of 1,000 clients of whom 10 % vanish after sharing.
"""

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ghofl.secure import (
    STAGES,
    Agreement,
    Identity,
    Participant,
    Plan,
    Ring,
    RoundRules,
    client,
    combine,
    plan,
    server,
    split,
)
from ghofl.secure.masking import RING_BITS


def best(work: Callable[[], object], repeats: int) -> float:
    """The shortest of a few timings of the processor's time, which other processes disturb little."""
    timings = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        timings.append(time.process_time() - start)
    return min(timings)


def one_pass(size: int) -> Callable[[], object]:
    """AES-256-CTR over `size` bytes, into memory that is already there."""
    content, room = bytes(size), bytearray(size + 15)

    def work() -> None:
        Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor().update_into(content, room)

    return work


def masking_table(entries: int, neighbours: int, repeats: int) -> None:
    """Print, for every ring, masking per entry and neighbour against one pass over the same bytes."""
    print(f"client masking, {entries:,} entries, {neighbours} neighbours (and its own mask)")
    print("  bits   AES pass   per neighbour   ratio   check and packing   ratio with it")
    for bits in RING_BITS:
        ring, values = Ring(bits), np.arange(entries) % 2001 - 1000
        seeds = [os.urandom(32) for _ in range(neighbours + 1)]
        half = len(seeds) // 2
        aes = best(one_pass(entries * ring.width), repeats)
        every = best(lambda: ring.mask(values, 1000, seeds[:half], seeds[half:]), repeats) / len(seeds)  # noqa: B023
        once = best(lambda: ring.mask(values, 1000), repeats)  # noqa: B023
        masks = every - once / len(seeds)
        print(
            f"  {bits:4}   {1e3 * aes:6.2f} ms   {1e3 * masks:10.2f} ms   {masks / aes:5.2f}   {1e3 * once:15.2f} ms"
            f"   {every / aes:12.2f}"
        )


class Clients:
    """The clients of one round, and the seconds they have worked so far."""

    def __init__(self, count: int, entries: int, agreed: Plan) -> None:
        self.names = [f"site-{i:04d}" for i in range(count)]
        self.vectors = dict(
            zip(self.names, np.random.default_rng(0).integers(-1000, 1001, (count, entries)), strict=True)
        )
        self._identities = {name: Identity.fresh() for name in self.names}
        sites = tuple(Participant(name, identity.public) for name, identity in self._identities.items())
        self.agreement = Agreement("benchmark", sites, os.urandom(32), entries, agreed)
        self._states: dict[str, client.ClientState] = {}
        self.worked = 0.0

    def answer(self, name: str, stage: str, letter: bytes) -> bytes:
        start = time.perf_counter()
        self._states[name], reply = self._step(name, stage, letter)
        self.worked += time.perf_counter() - start
        return reply

    def _step(self, name: str, stage: str, letter: bytes) -> tuple[client.ClientState, bytes]:
        identity, state = self._identities[name], self._states.get(name)
        if state is None:
            return client.advertise(self.agreement, name, identity, rules=RoundRules(corruption=0.0))
        if stage == "mask":
            return client.mask(state, letter, self.vectors[name])
        if stage == "endorse":
            return client.endorse(state, letter, identity)
        return client.share(state, letter) if stage == "share" else client.reveal(state, letter)


def server_round(count: int, entries: int, gone: int, agreed: Plan) -> None:
    """Print how long the server and the clients work at each stage of a round in which some vanish after sharing."""
    clients = Clients(count, entries, agreed)
    state, letters = server.open_round(clients.agreement), dict.fromkeys(clients.names, b"")
    spent: dict[str, tuple[float, float]] = {}
    for stage in STAGES:
        start, clients.worked = time.perf_counter(), 0.0
        for name in [name for name in letters if stage in STAGES[:2] or name not in clients.names[:gone]]:
            state = server.receive(state, name, clients.answer(name, stage, letters[name]))
        if stage != STAGES[-1]:
            state, letters = server.advance(state)
        spent[stage] = (time.perf_counter() - start - clients.worked, clients.worked)
    start = time.perf_counter()
    release = server.finish(state)
    spent["finish"] = (time.perf_counter() - start, 0.0)
    assert np.array_equal(release.total, sum(clients.vectors[name] for name in clients.names[gone:]))
    report(agreed, entries, gone, spent)


def report(agreed: Plan, entries: int, gone: int, spent: dict[str, tuple[float, float]]) -> None:
    """Print the server's time per stage, and all of it against the AES passes that it needs at least."""
    print(
        f"server, {agreed.clients:,} clients × {entries:,} entries of {agreed.bits} bits, {gone} vanish after sharing,"
    )
    print(f"  {agreed.neighbours} neighbours, threshold {agreed.threshold}; the sum is exact")
    for stage, (serving, working) in spent.items():
        clients = f"   all clients together {working:7.2f} s" if working else ""
        print(f"  {stage:10} {serving:7.2f} s{clients}")
    total = sum(serving for serving, _ in spent.values())
    alive = agreed.clients - gone
    passes = alive + gone * agreed.neighbours * alive / agreed.clients
    aes = best(one_pass(entries * agreed.ring.width), 5) * passes
    print(f"  together   {total:7.2f} s; the {passes:,.0f} AES passes over masks that are left take {aes:.2f} s of it")


def against_flower(entries: int, holders: int, repeats: int) -> None:
    """Flower's SecAgg+ helpers on the same vector and secret, where `flwr` is installed; what they do is weaker.

    Their mask comes from 32 bits of seed through the Mersenne Twister, and their round averages, clips and rounds.
    """
    try:
        from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
        from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
    except ImportError:
        print("\nflwr is not installed: its SecAgg+ helpers are left out (pip install 'flwr==1.41.*').")
        return
    seed, values = os.urandom(32), np.arange(entries, dtype=np.int64)
    ring = Ring(32)
    elements = (values % 1000).astype(ring.dtype)
    threshold = holders // 2 + 1
    ours, theirs = split(seed, range(1, holders + 1), threshold), create_shares(seed, threshold, holders)
    rows = {
        "one mask added": (
            lambda: ring.unmask(elements, plus=[seed]),
            lambda: (values + pseudo_rand_gen(seed, 1 << 32, [(entries,)])[0]) % (1 << 32),
        ),
        f"a secret split over {holders}": (
            lambda: split(seed, range(1, holders + 1), threshold),
            lambda: create_shares(seed, threshold, holders),
        ),
        "and put together again": (
            lambda: combine(ours[:threshold], threshold),
            lambda: combine_shares(theirs[:threshold]),
        ),
    }
    print(f"\nAgainst Flower's SecAgg+ helpers, {entries:,} entries\n\n| what | ours ms | Flower's ms | ratio |")
    print("|---|---:|---:|---:|")
    for name, (mine, other) in rows.items():
        a, b = 1000 * best(mine, repeats), 1000 * best(other, repeats)
        print(f"| {name} | {a:.2f} | {b:.2f} | {b / a:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, and a round of 300 clients")
    quick = parser.parse_args().quick
    masking_table(entries=1_000_000, neighbours=31, repeats=3 if quick else 9)
    against_flower(entries=100_000, holders=57, repeats=5)
    clients = 300 if quick else 1000
    server_round(clients, 100_000, clients // 10, plan(clients, bound=1000, dropout=0.1, corruption=0.0))


if __name__ == "__main__":
    main()
