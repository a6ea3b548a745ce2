import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghofl.errors import PartitionError
from ghofl.simulation import partition

SPLITS = {
    "iid": lambda y, k, rng: partition.iid(y, k, rng),
    "dirichlet_by_class": lambda y, k, rng: partition.dirichlet_by_class(y, k, 0.1, rng),
    "dirichlet_by_class at a tiny alpha": lambda y, k, rng: partition.dirichlet_by_class(y, k, 1e-8, rng),
    "classes_per_client": lambda y, k, rng: partition.classes_per_client(y, max(k, len(set(y))), 1, rng),
}


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
@given(st.integers(1, 30), st.integers(1, 200), st.integers(0, 2**32))
def test_every_row_goes_to_exactly_one_client(split, clients, rows, seed):
    y = np.random.default_rng(seed).integers(5, size=rows)
    parts = split(y, clients, np.random.default_rng(seed))
    assert sorted(np.concatenate(parts).tolist()) == list(range(rows))
    assert len(parts) >= clients


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
def test_a_split_is_a_function_of_its_generator(split):
    y = np.arange(500) % 7
    one, two, other = (split(y, 9, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_small_alpha_skews_and_a_large_one_evens_out():
    y = np.arange(10_000) % 10

    def largest_share(alpha):
        parts = partition.dirichlet_by_class(y, 10, alpha, np.random.default_rng(0))
        return np.mean([np.bincount(y[p], minlength=10).max() / max(1, len(p)) for p in parts])

    assert largest_share(0.05) > 0.5
    assert largest_share(1000.0) < 0.15


@given(st.integers(1, 5), st.integers(0, 2**32))
def test_no_client_has_more_classes_than_asked_for(count, seed):
    y = np.arange(300) % 5
    parts = partition.classes_per_client(y, 12, count, np.random.default_rng(seed))
    assert max(len(np.unique(y[p])) for p in parts) <= count


def test_empty_clients_are_counted():
    parts = partition.iid(np.zeros(3, dtype=int), 5, np.random.default_rng(0))
    assert partition.count_empty(parts) == 2


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda y, rng: partition.iid(y, 0, rng), "0 clients"),
        (lambda y, rng: partition.dirichlet_by_class(y, 3, 0.0, rng), "alpha is 0.0"),
        (lambda y, rng: partition.dirichlet_by_class(y, 3, float("nan"), rng), "alpha is nan"),
        (lambda y, rng: partition.classes_per_client(y, 3, 9, rng), "give a number from 1 to 4"),
        (lambda y, rng: partition.classes_per_client(y, 3, 1, rng), "use at least 4 clients"),
    ],
)
def test_a_split_that_cannot_be_made_says_what_could(call, says, rng):
    with pytest.raises(PartitionError, match=says):
        call(np.arange(20) % 4, rng)
