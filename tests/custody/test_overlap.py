"""What sums over overlapping cohorts show, by rational arithmetic and by trying every small combination."""

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghofl.custody.known_sums import Known, sum_over, sums_of
from ghofl.custody.overlap import find_isolated
from ghofl.errors import PolicyError


def over(sites, version=""):
    return frozenset((site, version) for site in sites)


def by_trying(sums, fewest, most=3):
    """Whether some combination with whole coefficients up to `most` is zero but at a few sites."""
    names = sorted({name for each in sums for name, _ in each})
    rows = np.array([[int((name, "") in each) for name in names] for each in sums])
    combinations = np.array(list(product(range(-most, most + 1), repeat=len(sums)))) @ rows
    sizes = np.count_nonzero(combinations, axis=1)
    return bool(((sizes > 0) & (sizes < fewest)).any())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcdef"), min_size=3), min_size=1, max_size=4), st.integers(1, 4))
def test_a_group_is_isolated_exactly_when_some_combination_of_the_sums_shows_it(cohorts, fewest):
    sums = list({over(cohort) for cohort in cohorts})
    shown = find_isolated(sums, fewest)
    # With up to four 0/1 rows, by Hadamard's bound the coefficients of such a combination are at most 3.
    assert bool(shown) == by_trying(sums, fewest)
    assert len(shown) < max(fewest, 1)


@pytest.mark.parametrize(
    ("cohorts", "fewest", "shown"),
    [
        (["abcde", "abcd"], 2, "e"),
        (["abcde", "abcd"], 1, ""),
        (["abcd", "abef", "cdef"], 3, "ab"),
        (["abcd", "abef", "cdef"], 2, ""),
        (["abcde", "abcde"], 3, ""),
        (["abc", "def"], 3, ""),
        (["abc", "def"], 4, "abc"),
    ],
)
def test_the_known_attacks_and_their_limits(cohorts, fewest, shown):
    assert "".join(find_isolated([over(cohort) for cohort in cohorts], fewest)) == shown


def test_one_row_more_at_one_site_is_a_difference_of_that_site_alone():
    before, after = over("ab") | over("c", "0"), over("ab") | over("c", "1")
    assert find_isolated([before, after], 2) == ("c",)
    assert find_isolated([before, before], 2) == ()


def test_what_is_too_much_to_check_is_refused():
    many = [over([f"s{j}" for j in range(8) if i >> j & 1]) for i in range(1, 80)]
    with pytest.raises(PolicyError, match="79 different sums"):
        find_isolated(many, 3)
    rng = np.random.default_rng(1)
    wide = [over(np.array([f"s{i}" for i in range(900)])[rng.random(900) < 0.5]) for _ in range(12)]
    with pytest.raises(PolicyError, match="too many to check"):
        find_isolated(wide, 3)


def test_what_sites_tell_each_other_is_put_together_by_round():
    """No site was in all three; together they know that the third sum would show the first two sites."""
    first, second = ("r1", ("a", "b", "c", "d"), 0), ("r2", ("a", "b", "e", "f"), 0)
    told = {name: Known(0, (first,)) for name in "cd"} | {name: Known(0, (second,)) for name in "ef"}
    sums = sums_of(told)
    assert len(sums) == 2
    assert find_isolated([*sums, sum_over("cdef", told)], 3) == ("a", "b")
    changed = told | {"e": Known(1, (second,))}
    assert find_isolated([*sums_of(changed), sum_over("abef", changed)], 3) == ("e",)


@pytest.mark.parametrize("text", ["[", "[1]", '[0, [["r", "ab"]]]', '["0", []]', 5, "[0, 3]", "x" * 40_000, "[" * 9000])
def test_damaged_words_about_earlier_sums_are_refused(text):
    with pytest.raises(PolicyError, match="damaged"):
        Known.from_text(text)


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\nINFO forged", " a", "x" * 65])
def test_a_name_that_no_site_may_have_is_not_taken_from_others(name):
    for sums in ([["r1", ["b", name], 0]], [[name, ["b"], 0]]):
        with pytest.raises(PolicyError, match="earlier sums is damaged"):
            Known.from_text(json.dumps([0, sums]))


def test_words_about_earlier_sums_come_back_as_they_were_told():
    known = Known(2, (("r1", ("nörd", "b"), 0), ("r2", (), 1)))
    assert Known.from_text(known.to_text()) == known
    assert Known().to_text() == ""
    with pytest.raises(PolicyError, match="too many to tell"):
        Known(0, tuple((f"r{i}", ("a" * 40,), 0) for i in range(1000))).to_text()
