"""Which tests begin first when several processes share them: the long ones, each file's in one process."""

from collections.abc import Sequence
from itertools import islice
from typing import TypeVar

import pytest

T = TypeVar("T")

# About how many seconds the slow tests of a file take. Federations of real processes mostly wait, so that others can
# compute.
SECONDS = {
    "tests/flower/test_deployment.py": 240,
    "tests/integration/test_real_best.py": 200,
    "tests/integration/test_real_embeddings.py": 150,
    "tests/flower/test_walk_through.py": 70,
    "tests/test_installed.py": 60,
    "tests/flower/test_simulation.py": 50,
    "tests/federation/test_rounds.py": 50,
    "tests/secure/test_rounds.py": 40,
    "tests/samples/test_embed.py": 40,
    "tests/test_aggregation.py": 35,
    "tests/test_docs.py": 25,
    "tests/encoders/test_views.py": 20,
    "tests/encoders/test_how_to.py": 15,
    "tests/test_simulate.py": 15,
    "tests/test_diagnosis.py": 12,
}


def shares(count: int, workers: int) -> list[int]:
    """How many tests each process is given at first with `--dist worksteal`: consecutive ones, and equally many."""
    sizes: list[int] = []
    for left in range(workers, 0, -1):
        sizes.append((count - sum(sizes)) // left)
    return sizes


def dealt(long: Sequence[tuple[float, Sequence[T]]], short: Sequence[T], workers: int) -> list[T]:
    """All tests, in an order where every process begins with long ones, and those take about as long in each."""
    hands: list[list[T]] = [[] for _ in range(workers)]
    seconds = [0.0] * workers
    for weight, tests in sorted(long, key=lambda pair: -pair[0]):
        least = seconds.index(min(seconds))
        hands[least] += tests
        seconds[least] += weight
    rest, order = iter(short), []
    for hand, size in zip(hands, shares(sum(map(len, hands)) + len(short), workers), strict=True):
        order += [*hand, *islice(rest, max(0, size - len(hand)))]
    return [*order, *rest]


def with_long_ones_first(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """The slow tests of the files above at the start of each process's share, the others in their order after them."""
    files: dict[str, list[pytest.Item]] = {name: [] for name in SECONDS}
    short = []
    for item in items:
        name = item.nodeid.split("::")[0]
        (files[name] if name in files and item.get_closest_marker("slow") else short).append(item)
    return dealt([(SECONDS[name], tests) for name, tests in files.items()], short, workers)
