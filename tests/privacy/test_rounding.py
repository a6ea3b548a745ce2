"""Rounded messages still add, come back to within their step, and are right on average where that is promised."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghofl.errors import MomentsOverflowError
from ghofl.moments import Layout, Moments
from ghofl.privacy import NoiseStream, PrivacyError, restore, round_moments

LAYOUT = Layout(classes=2, dim=2, statistics=("A",))
entries = st.lists(st.integers(-(2**62), 2**62), min_size=4, max_size=4)


def moments_of(values):
    return Moments(LAYOUT, {"N": np.array([3, 5]), "A": np.array(values).reshape(2, 2)})


@given(entries, st.integers(0, 40))
@settings(max_examples=200, deadline=None)
def test_rounding_half_up_is_off_by_at_most_half_a_step(values, shift):
    moments = moments_of(values)
    coarse = round_moments(moments, {"A": shift})
    exact = [(v + (2**shift) // 2) >> shift for v in values]
    assert coarse.sums.ravel().tolist() == exact
    back = restore(coarse, {"A": shift})
    assert np.abs(back.sums - moments.sums).max() <= 2**shift // 2
    assert np.array_equal(back.counts, moments.counts)


@given(entries, st.integers(1, 40), st.binary(min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_stochastic_rounding_is_off_by_less_than_a_step(values, shift, entropy):
    moments = moments_of(values)
    back = restore(round_moments(moments, {"A": shift}, NoiseStream(entropy)), {"A": shift})
    assert np.abs(back.sums - moments.sums).max() < 2**shift


def test_stochastic_rounding_is_right_on_average():
    layout = Layout(classes=20_000, dim=1, statistics=("A",))
    moments = Moments(layout, {"N": np.zeros(20_000, dtype=np.int64), "A": np.full((20_000, 1), -1003)})
    back = restore(round_moments(moments, {"A": 6}, NoiseStream(b"mean")), {"A": 6})
    assert back.sums.mean() == pytest.approx(-1003, abs=4 * 32 / np.sqrt(20_000))
    assert set(np.unique(back.sums)) == {-1024, -960}


def test_whole_steps_stay_as_they_are():
    moments = moments_of([64, -128, 0, 640])
    assert restore(round_moments(moments, {"A": 6}, NoiseStream()), {"A": 6}) == moments


def test_rounding_at_the_edge_of_the_integers_does_not_overflow():
    moments = moments_of([2**63 - 1, -(2**63), 0, 0])
    assert round_moments(moments, {"A": 1}).sums[0].tolist() == [2**62, -(2**62)]
    with pytest.raises(MomentsOverflowError, match="block A times 2\\^40"):
        restore(moments_of([2**30, 0, 0, 0]), {"A": 40})


def test_unknown_blocks_and_impossible_shifts_are_refused():
    with pytest.raises(PrivacyError, match="block 'B', and these moments hold N, A"):
        round_moments(moments_of([0] * 4), {"B": 3})
    with pytest.raises(PrivacyError, match="shift of A is 41"):
        round_moments(moments_of([0] * 4), {"A": 41})
