"""Scores whose products are float32 first: what decides is float64, and the rest is known to be far below."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghofl.heads.rules import quadratic
from ghofl.heads.rules.base import softmax
from ghofl.heads.rules.quadratic import MANY, NEAR, SEVERAL, SMALL, WIDE, quadratic_scores


def problem(seed: int, spread: float, smallest: float, shift: float, classes: int = SEVERAL + 1):
    """Rows around class means, and whiteners of covariances whose eigenvalues reach down to `smallest`."""
    rng = np.random.default_rng(seed)
    means = shift + spread * rng.standard_normal((classes, WIDE))
    whiteners = np.empty((classes, WIDE, WIDE))
    for c in range(classes):
        turn = np.linalg.qr(rng.standard_normal((WIDE, WIDE)))[0]
        covariance = turn @ (np.geomspace(smallest, 1.0, WIDE)[:, None] * turn.T)
        whiteners[c] = np.linalg.inv(np.linalg.cholesky((covariance + covariance.T) / 2)).T
    x = means[rng.integers(classes, size=3 * MANY)] + rng.standard_normal((3 * MANY, WIDE))
    return x, means, whiteners, rng.standard_normal(classes)


def in_float64(x, means, whiteners, base, dof=np.inf):
    squared = np.stack([(((x - m) @ w) ** 2).sum(axis=1) for m, w in zip(means, whiteners, strict=True)], axis=1)
    return base - 0.5 * (squared if np.isinf(dof) else (dof + x.shape[1]) * np.log1p(squared / dof))


def check(found, expected):
    below = expected.max(axis=1, keepdims=True) - expected
    np.testing.assert_array_equal(found.argmax(axis=1), expected.argmax(axis=1))
    is_near = below <= NEAR
    np.testing.assert_allclose(found[is_near], expected[is_near], rtol=1e-9, atol=1e-9)
    assert (np.abs(found - expected)[~is_near] <= SMALL * below[~is_near]).all()


@settings(max_examples=10)
@given(
    st.integers(0, 2**20), st.sampled_from([0.05, 0.5, 5.0]), st.sampled_from([1e-1, 1e-6, 1e-11]),
    st.sampled_from([0.0, 1e5]), st.sampled_from([np.inf, 5.0, 100.0]),
)  # fmt: skip
def test_scores_near_the_highest_are_those_of_float64_and_the_others_are_far_below(seed, spread, smallest, shift, dof):
    given = problem(seed, spread, smallest, shift)
    check(quadratic_scores(*given, dof), in_float64(*given, dof))


def test_what_float32_cannot_hold_is_computed_in_float64():
    x, means, whiteners, base = problem(2, 1.0, 0.1, 0.0)
    for scale in (1e30, 1e-30):
        found = quadratic_scores(x * scale, means * scale, whiteners / scale, base)
        np.testing.assert_allclose(found, in_float64(x, means, whiteners, base), rtol=1e-4)


@pytest.mark.parametrize("rows", [1, MANY - 1, MANY, 3 * MANY])
def test_a_class_nobody_has_scores_minus_infinity_and_costs_nothing(rows, monkeypatch):
    x, means, whiteners, base = problem(4, 1.0, 0.1, 0.0)
    whiteners[2], base[2] = 0.0, -np.inf
    seen = []
    lengths = quadratic._squared_lengths
    monkeypatch.setattr(
        quadratic, "_squared_lengths", lambda some, upper: seen.append(upper.any()) or lengths(some, upper)
    )
    found = quadratic_scores(x[:rows], means, whiteners, base)
    assert (found[:, 2] == -np.inf).all()
    assert np.isfinite(np.delete(found, 2, axis=1)).all()
    assert all(seen)


@pytest.mark.parametrize("spread", [0.5, 5.0])
@pytest.mark.parametrize("temperature", [1.0, 30.0])
def test_far_scores_of_a_batch_are_those_of_single_rows(spread, temperature):
    """A temperature brings classes near that were 20 below, so their scores must be right as well."""
    x, means, whiteners, base = problem(5, spread, 0.01, 0.0)
    batch = quadratic_scores(x, means, whiteners, base, 50.0)
    single = np.vstack([quadratic_scores(row[None], means, whiteners, base, 50.0) for row in x[:40]])
    below = single.max(axis=1, keepdims=True) - single
    assert not np.array_equal(batch[:40], single)
    assert (np.abs(batch[:40] - single) <= 1e-4 * below + 1e-9).all()
    apart = softmax(batch[:40] / temperature) - softmax(single / temperature)
    assert np.abs(apart).max() < 1e-5
