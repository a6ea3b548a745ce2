"""Small classes are gone from a total before a head is built, and a site is told before it sends one row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghofl.features import rademacher
from ghofl.moments import Layout, Moments
from ghofl.privacy import PrivacyError, apply_min_count, site_warning

DIM = 3


def moments_of(counts, statistics=("S",), sketch=None):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(len(counts)), counts)
    x = rng.integers(-9, 9, (len(y), DIM))
    layout = Layout(len(counts), DIM, statistics, 0 if sketch is None else sketch.shape[1])
    return x, y, Moments.of(x, y, layout, sketch)


@given(st.lists(st.integers(0, 12), min_size=2, max_size=6), st.integers(0, 8), st.booleans())
@settings(max_examples=80, deadline=None)
def test_every_class_has_no_rows_or_enough(counts, threshold, is_merged):
    _, _, moments = moments_of(counts, ("D", "B"))
    kept, outcome = apply_min_count(moments, threshold, merge_into=0 if is_merged else None)
    assert np.all((kept.counts == 0) | (kept.counts >= threshold))
    for name in ("A", "D"):
        assert not kept.blocks[name][kept.counts == 0].any()
    assert str(outcome) == outcome.revealed


@given(st.lists(st.integers(0, 12), min_size=2, max_size=6), st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_dropping_gives_the_moments_of_the_rows_that_are_left(counts, threshold):
    x, y, moments = moments_of(counts, ("S",), None)
    kept, outcome = apply_min_count(moments, threshold)
    stays = np.isin(y, [c for c, n in enumerate(counts) if n >= threshold])
    assert kept == Moments.of(x[stays], y[stays], moments.layout)
    assert not outcome.is_pooled_whole


@given(st.lists(st.integers(0, 12), min_size=2, max_size=6), st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_merging_gives_the_moments_of_the_relabelled_rows(counts, threshold):
    counts[1] = 20
    x, y, moments = moments_of(counts, ("D", "B"))
    kept, outcome = apply_min_count(moments, threshold, merge_into=1)
    small = [c for c, n in enumerate(counts) if n < threshold]
    assert kept == Moments.of(x, np.where(np.isin(y, small), 1, y), moments.layout)
    assert outcome.small == tuple(small)
    assert outcome.merged_into == (1 if small else None)


def test_a_sketch_is_dropped_with_its_class():
    sketch = rademacher(0, DIM, 2, "sketch")
    _, _, moments = moments_of([5, 1], ("B",), sketch)
    kept, outcome = apply_min_count(moments, 3)
    assert not kept.blocks["Z"][1].any()
    assert np.array_equal(kept.blocks["B"], moments.blocks["B"])
    assert "still part of the one matrix B" in outcome.revealed


def test_a_merged_class_that_is_still_small_is_dropped():
    _, _, moments = moments_of([1, 1, 9])
    kept, outcome = apply_min_count(moments, 5, merge_into=0)
    assert kept.counts.tolist() == [0, 0, 9]
    assert outcome.small == (0, 1)
    assert outcome.merged_into is None


def test_nothing_small_changes_nothing_and_says_so():
    _, _, moments = moments_of([4, 4])
    kept, outcome = apply_min_count(moments, 4)
    assert kept == moments
    assert "Every class has at least 4 rows" in outcome.revealed


def test_what_is_revealed_does_not_tell_empty_classes_from_small_ones():
    texts = {apply_min_count(moments_of([9, n])[2], 5)[1].revealed for n in (0, 1, 4)}
    assert len(texts) == 1


def test_a_site_is_told_which_rows_its_message_gives_away():
    """One row: A is the row. Two rows with S: the sum and the second moments give both."""
    _, _, moments = moments_of([1, 2, 3, 0, 8])
    warning = site_warning(moments, 5)
    assert warning
    assert warning.counts == {0: 1, 1: 2, 2: 3}
    assert warning.exposed == (0, 1)
    assert "class 2 (3 rows)" in str(warning)
    assert site_warning(moments_of([1, 2, 3], ("B",))[2], 5).exposed == (0,)


def test_a_site_with_enough_rows_is_not_warned():
    warning = site_warning(moments_of([5, 0])[2], 5)
    assert not warning
    assert str(warning) == "No class in this message has between 1 and 4 rows."


def test_impossible_thresholds_and_classes_are_refused():
    _, _, moments = moments_of([5, 5])
    with pytest.raises(PrivacyError, match="minimum count is -1"):
        apply_min_count(moments, -1)
    with pytest.raises(PrivacyError, match="merge_into is 2; the classes are 0 to 1"):
        apply_min_count(moments, 3, merge_into=2)
