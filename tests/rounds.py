"""Secure rounds that tests run, here or in a process of their own.

    python tests/rounds.py CLIENTS FRACTION STAGES …      e.g. 1000 0.1 mask,reveal endorse

runs one round for each list of stages at which clients vanish, and fails unless every total is the plain one. With
hundreds of clients that is several times quicker than under the type checks that pytest switches on.
"""

import sys

import numpy as np

from deadlines import run
from ghofl.secure import Plan, simulate_round


def vectors_of(clients, entries=5, bound=1000, seed=0):
    rng = np.random.default_rng(seed)
    return {f"site-{i:04d}": rng.integers(-bound, bound + 1, entries) for i in range(clients)}


def check(vectors, outcome, drops):
    """The survivors are those that sent a vector, and the total is the sum of theirs."""
    sent = [name for name in vectors if drops.get(name) not in ("advertise", "share", "mask")]
    assert list(outcome.survivors) == sent
    assert np.array_equal(outcome.total, np.sum([vectors[name] for name in sent], axis=0))
    assert outcome.total.dtype == np.int64
    assert outcome.blamed == ()


def some_drops(vectors, fraction, stages, seed=1):
    rng = np.random.default_rng(seed)
    gone = rng.permutation(sorted(vectors))[: int(len(vectors) * fraction + 1e-9)].tolist()
    return {name: stages[i % len(stages)] for i, name in enumerate(gone)}


def quick_plan(clients, fraction):
    """Fewer neighbours and a lower threshold than `plan` gives: sums are the same, and quickly seen."""
    return Plan(clients, 16, 4, 1, 32, 1000, int(clients * fraction), 0)


def fixed(seed):
    """Entropy that is the same in every run."""
    return np.random.default_rng(seed).bytes


def play(clients, fraction, stages, seed):
    """One round on a ring, checked."""
    vectors = vectors_of(clients, entries=10)
    drops = some_drops(vectors, fraction, stages, seed)
    check(vectors, simulate_round(vectors, 1000, drops, quick_plan(clients, fraction), entropy=fixed(seed)), drops)


def play_elsewhere(clients, fraction, *schedules):
    """Rounds in a process of their own, one for each schedule of stages; returns how many were right."""
    command = [sys.executable, __file__, str(clients), str(fraction), *map(",".join, schedules)]
    return run(*command, seconds=300).stdout.split().count("right")


if __name__ == "__main__":
    for number, schedule in enumerate(sys.argv[3:], start=4):
        play(int(sys.argv[1]), float(sys.argv[2]), schedule.split(","), number)
        print("right")
