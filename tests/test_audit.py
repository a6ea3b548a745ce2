"""`ghofl audit` finds rows that a file holds, and noise stops that."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cli import ghofl

from federations import blobs, moments_of, recipe_of
from ghofl import Layout, Message, Moments, Privacy, Total, Transform
from ghofl.privacy.audit import audit, exposures


def as_set(rows):
    return {tuple(row) for row in np.asarray(rows).tolist()}


@settings(max_examples=30)
@given(st.integers(2, 40), st.sampled_from([7, 127, 2047]), st.integers(0, 2**32))
def test_up_to_three_rows_are_rebuilt_exactly_from_their_sum_and_second_moments(dim, bound, seed):
    q = np.random.default_rng(seed).integers(-bound, bound + 1, size=(6, dim))
    y = np.array([0, 1, 1, 2, 2, 2])
    moments = Moments.of(q, y, Layout(4, dim, ("S",), bound=bound))
    for exposure in exposures(moments):
        if dim >= 8 or exposure.rows < 3:  # in few dimensions other integer rows may come nearest to the same sums
            assert exposure.is_exact
            assert as_set(exposure.recovered) == as_set(q[y == exposure.label])


def test_two_rows_with_squares_only_are_known_up_to_which_has_which(rng):
    q = rng.integers(-50, 51, size=(2, 9))
    (exposure,) = exposures(Moments.of(q, np.array([1, 1]), Layout(3, 9, ("D",))))
    assert exposure.is_exact
    assert exposure.is_shuffled
    assert np.array_equal(np.sort(exposure.recovered, axis=0), np.sort(q, axis=0))


@pytest.mark.parametrize(("statistics", "rows"), [(("B",), 2), (("B",), 3), (("D",), 3), ((), 2)])
def test_rows_that_do_not_follow_are_not_claimed(rng, statistics, rows):
    q = rng.integers(-50, 51, size=(rows, 9))
    (exposure,) = exposures(Moments.of(q, np.zeros(rows, dtype=np.int64), Layout(3, 9, statistics)))
    assert exposure.recovered is None
    assert not exposure.is_exact
    assert "not the rows themselves" in exposure.sentence("'a'")


def test_classes_with_more_rows_or_none_are_not_exposed(rng):
    q = rng.integers(-50, 51, size=(4, 5))
    assert exposures(Moments.of(q, np.zeros(4, dtype=np.int64), Layout(3, 5, ("S",)))) == ()


def test_a_noisy_total_exposes_no_rows_and_says_how_far_it_is_blurred(rng):
    privacy = Privacy(radius=1.0, epsilon=1.0, delta=1e-5)
    recipe = recipe_of(transform=Transform(unit_length=True), scale=100.0, privacy=privacy)
    x, y = rng.normal(size=(1, 6)), np.array([2])
    total = Total.of([Message.of(moments_of(recipe, x, y), recipe)], recipe)
    exposed = audit(total.moments, recipe)
    assert [e.label for e in exposed.exposures] == [2]
    released = total.release()
    found = audit(released.moments, recipe, released.guarantee)
    assert found.exposures == ()
    assert found.blur > 1
    assert "no row can be read off" in " ".join(found.sentences())
    assert found.advantage == pytest.approx(0.1066, abs=1e-3)
    assert "Whether a record was there can be told with an advantage of at most 0.107" in " ".join(found.sentences())
    assert found.to_dict()["largest_advantage"] == found.advantage


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A site with one row of class 0, two of class 1 and many others."""
    monkeypatch.chdir(tmp_path)
    x, y = blobs(np.random.default_rng(0), rows=600)
    keep = np.concatenate([np.flatnonzero(y == 0)[:1], np.flatnonzero(y == 1)[:2], np.flatnonzero(y > 1)[:100]])
    np.savez("site.npz", x=x[keep], y=y[keep])
    ghofl("recipe", "recipe.toml", "--classes", "4", "--dim", "6", "--statistics", "S", "--scale", "8")
    ghofl("moments", "site.npz", "-r", "recipe.toml", "-o", "site.ghofl")
    ghofl("sum", "site.ghofl", "-r", "recipe.toml", "-o", "total.ghofl")
    return tmp_path


@pytest.mark.parametrize("file", ["site.ghofl", "total.ghofl"])
def test_audit_finds_the_one_row_class_and_gives_its_row(folder, file):
    recipe = ("-r", "recipe.toml") if file == "site.ghofl" else ()
    result = json.loads(ghofl("audit", file, *recipe, "--json", "-"))
    first, second = result["exposed_classes"]
    assert (first["class"], first["rows"], first["is_exact"]) == ("0", 1, True)
    assert first["recovered"] == np.rint(np.load("site.npz")["x"][:1] * 8).astype(int).tolist()
    assert (second["class"], second["rows"], second["is_exact"]) == ("1", 2, True)
    assert as_set(second["recovered"]) == as_set(np.rint(np.load("site.npz")["x"][1:3] * 8).astype(int))


def test_audit_says_it_in_words(folder):
    said = ghofl("audit", "site.ghofl", "-r", "recipe.toml")
    assert "the embedding is in the file, error 0" in said
    assert "someone who knows all rows but one gets that one by subtraction" in said
