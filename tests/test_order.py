"""The order in which processes share the tests leaves none out and gives every process long ones first."""

from pathlib import Path

import order
import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[1]


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 9)), max_size=9), st.integers(0, 99), st.integers(1, 6))
def test_every_test_is_dealt_once_and_files_stay_together(files, short, workers):
    long = [(seconds, [(i, k) for k in range(count)]) for i, (seconds, count) in enumerate(files)]
    dealt = order.dealt(long, [(-1, k) for k in range(short)], workers)
    assert sorted(dealt) == sorted([test for _, tests in long for test in tests] + [(-1, k) for k in range(short)])
    for _, tests in long:
        assert not tests or dealt[dealt.index(tests[0]) :][: len(tests)] == tests


@given(st.integers(0, 999), st.integers(1, 9))
def test_shares_are_equal_up_to_one_and_are_all_tests(count, workers):
    sizes = order.shares(count, workers)
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1


def test_every_process_begins_with_a_long_test():
    dealt = order.dealt([(9, ["a"] * 3), (5, ["b"]), (4, ["c"]), (1, ["d"])], ["."] * 14, 3)
    assert "".join(dealt) == "".join(["aaa...", "b......", "cd....."])


@pytest.mark.parametrize("name", order.SECONDS)
def test_the_files_of_long_tests_are_there(name):
    assert (ROOT / name).is_file()
