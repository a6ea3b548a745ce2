"""Rounded messages still add and come back to within half a step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghofl.errors import MomentsOverflowError
from ghofl.moments import Layout, Moments
from ghofl.privacy import PrivacyError, restore, round_moments

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


def test_whole_steps_stay_as_they_are():
    moments = moments_of([64, -128, 0, 640])
    assert restore(round_moments(moments, {"A": 6}), {"A": 6}) == moments


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
