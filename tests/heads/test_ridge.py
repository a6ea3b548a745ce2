from dataclasses import replace

import numpy as np
import pytest

from ghofl import Layout, Moments
from ghofl.errors import HeadError
from ghofl.gaussians import Gaussians
from ghofl.gaussians.sums import Sums
from ghofl.heads import ridge
from ghofl.heads.ridge import RidgeOptions, fit_ridge


def gaussians_of_rows(rng, rows=3000, dim=60, classes=5):
    y = rng.integers(classes, size=rows)
    spectrum = 1.0 / (1.0 + np.arange(dim))
    x = rng.normal(size=(rows, dim)) * spectrum + 0.3 * rng.normal(size=(classes, dim))[y] * spectrum
    hot = np.eye(classes)[y].T
    return Gaussians.of_sums(Sums(hot.sum(axis=1), hot @ x, None, x.T @ x))


@pytest.mark.parametrize("rows", [40, 300, 3000])
def test_the_walk_with_cholesky_factors_meets_the_penalty_of_the_eigenvectors(rows, rng, monkeypatch):
    """At most one step of the grid apart, as the walk estimates df; its error is no more than 0.1 % above the least."""
    gaussians = gaussians_of_rows(rng, rows)
    exact = fit_ridge(gaussians)
    monkeypatch.setattr(ridge, "LARGEST", 1)
    walked = fit_ridge(gaussians)
    assert np.corrcoef(exact.weights.ravel(), walked.weights.ravel())[0, 1] > 0.99


@pytest.mark.parametrize("penalty", [0.0, 1e-6, 0.1, 100.0])
def test_a_given_penalty_gives_the_same_weights_either_way(penalty, rng, monkeypatch):
    gaussians = gaussians_of_rows(rng)
    exact = fit_ridge(gaussians, RidgeOptions(penalty=penalty))
    monkeypatch.setattr(ridge, "LARGEST", 1)
    walked = fit_ridge(gaussians, RidgeOptions(penalty=penalty))
    assert walked.weights == pytest.approx(exact.weights, rel=1e-5, abs=1e-9)
    assert walked.bias == pytest.approx(exact.bias, rel=1e-5, abs=1e-9)


def test_the_estimated_degrees_of_freedom_are_those_of_the_eigenvalues(rng):
    gaussians = gaussians_of_rows(rng)
    g, n = gaussians.total_covariance() * gaussians.rows, gaussians.counts
    values = np.linalg.eigvalsh(g)
    q = (gaussians.means - gaussians.centre).T * n
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(len(g), ridge.PROBES))
    for penalty in (1e-3 * values.mean(), values.mean()):
        vectors = np.linalg.eigh(g)[1]
        exact = ridge._gcv(penalty, values, vectors.T @ q, n, gaussians.rows)
        assert ridge._error(g, np.hstack([q, signs]), penalty, n) == pytest.approx(exact, rel=1e-3)


def test_a_penalty_that_leaves_no_solution_is_refused_and_a_small_one_is_not(rng):
    """Features that are there twice: once the weights were all zero, without a word."""
    y = np.arange(1500) % 3
    half = rng.integers(-20, 21, size=(1500, 550)) + 9 * (np.arange(550) % 3 == y[:, None])
    x = np.hstack([half, half])
    gaussians = Gaussians.estimate(Moments.of(x, y, Layout(3, 1100, ("B",))))
    with pytest.raises(HeadError, match=r"penalty=0 has no solution.*e\.g\. 1e-6"):
        fit_ridge(gaussians, RidgeOptions(penalty=0.0))
    assert np.mean(fit_ridge(gaussians, RidgeOptions(penalty=1e-6)).predict(x.astype(float)) == y) > 0.99


@pytest.mark.parametrize("largest", [1024, 1])
def test_covariances_of_more_directions_than_rows_take_a_penalty_that_leaves_degrees_of_freedom(
    largest, rng, monkeypatch
):
    """Sums with noise, or a mean of two covariances: the least penalty of all had won, and every row was one class."""
    monkeypatch.setattr(ridge, "LARGEST", largest)
    known = gaussians_of_rows(rng)
    few = replace(known, counts=known.counts * (40 / known.rows))
    values = np.maximum(np.linalg.eigvalsh(few.total_covariance() * few.rows), 0.0)
    weights = fit_ridge(few).weights
    taken = min(ridge.GRID, key=lambda p: np.abs(fit_ridge(few, RidgeOptions(penalty=p)).weights - weights).max())
    assert 1.0 + np.sum(values / (values + taken * values.mean())) < 40
