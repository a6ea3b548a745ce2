"""Ridge regression from moments: its weights, and a penalty that is the same on every processor."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_digits

from ghofl import Layout, Moments
from ghofl.errors import HeadError
from ghofl.gaussians import Gaussians
from ghofl.gaussians.sums import Sums
from ghofl.heads import ridge
from ghofl.heads.ridge import RidgeOptions, fit_ridge

STEP = ridge.GRID[1] - ridge.GRID[0]


def gaussians_of_rows(rng, rows=3000, dim=60, classes=5):
    y = rng.integers(classes, size=rows)
    spectrum = 1.0 / (1.0 + np.arange(dim))
    x = rng.normal(size=(rows, dim)) * spectrum + 0.3 * rng.normal(size=(classes, dim))[y] * spectrum
    hot = np.eye(classes)[y].T
    return Gaussians.of_sums(Sums(hot.sum(axis=1), hot @ x, None, x.T @ x))


def equations_of(gaussians):
    return ridge._Equations.of(*g_and_q(gaussians))


def g_and_q(gaussians):
    return gaussians.total_covariance() * gaussians.rows, (gaussians.means - gaussians.centre).T * gaussians.counts


def chosen(gaussians):
    """log₁₀ of the chosen penalty in units of the mean eigenvalue."""
    equations = equations_of(gaussians)
    return np.log10(equations.best_penalty(gaussians.counts) / equations.unit)


@pytest.mark.parametrize("dim", [1, 2, 60])
@pytest.mark.parametrize("penalty", [0.0, 1e-6, 0.1, 100.0])
def test_the_weights_of_a_given_penalty_solve_the_equations(penalty, dim, rng):
    gaussians = gaussians_of_rows(rng, dim=dim)
    g, q = g_and_q(gaussians)
    expected = np.linalg.solve(g + penalty * np.trace(g) / dim * np.eye(dim), q).T
    found = fit_ridge(gaussians, RidgeOptions(penalty=penalty))
    assert found.weights == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert found.bias == pytest.approx(gaussians.counts / gaussians.rows - expected @ gaussians.centre)


@pytest.mark.parametrize("rows", [40, 300])
def test_the_error_of_a_penalty_is_that_of_the_eigenvectors(rows, rng):
    gaussians = gaussians_of_rows(rng, rows)
    (g, q), n = g_and_q(gaussians), gaussians.counts
    equations, (values, vectors) = equations_of(gaussians), np.linalg.eigh(g)
    for penalty in (1e-2 * values.mean(), values.mean()):
        w = vectors.T @ q / (values + penalty)[:, None]
        total = rows - n @ n / rows
        rss = total - 2.0 * np.sum(w * (vectors.T @ q)) + np.sum(w * values[:, None] * w) + ridge.KNOWN * total
        df = 1.0 + np.sum(values / (values + penalty))
        error = rss / rows / (1.0 - ridge.COUNTED * df / rows) ** 2 if ridge.COUNTED * df < rows else np.inf
        assert equations.log_error(penalty, n) == pytest.approx(min(np.log(error), ridge.FAR))


def test_the_chosen_penalty_has_the_least_error(rng):
    """Between two values of the list, where the parabola is lowest."""
    for rows in (20, 300, 3000):
        gaussians = gaussians_of_rows(rng, rows)
        equations, found = equations_of(gaussians), chosen(gaussians)
        near = [equations.log_error(equations.unit * 10.0**at, gaussians.counts) for at in (found, *ridge.GRID)]
        assert near[0] <= min(near[1:]) + 1e-3


@cache
def digits():
    return load_digits(return_X_y=True)


def few_digits(per_class, bits, order=None):
    """So many rows of each digit, as integers of so many bits, with the totals that they add up to."""
    x, y = digits()
    kept = np.concatenate([np.flatnonzero(y == c)[:per_class] for c in range(10)])
    rows = np.rint(x[kept] / 16.0 * (2 ** (bits - 1) - 1)).astype(np.int64)
    rows = rows if order is None else rows[:, order]
    return Moments.of(rows, y[kept], Layout(10, 64, ("B",), bound=2 ** (bits - 1) - 1))


def moved(moments, rng):
    """Every integer of A and B one more or one less; another number of rows would be another total."""
    blocks = {name: b if name == "N" else b + rng.choice([-1, 1], size=b.shape) for name, b in moments.blocks.items()}
    return Moments(moments.layout, blocks)


def changed(one, other, bits, order=slice(None)):
    """The share of all digits that two heads disagree about."""
    x = np.rint(digits()[0] / 16.0 * (2 ** (bits - 1) - 1))
    return np.mean(fit_ridge(one).predict(x) != fit_ridge(other).predict(x[:, order]))


@pytest.mark.parametrize("per_class", [1, 2, 3, 5, 7, 20, 180])
def test_a_unit_in_every_sum_moves_the_penalty_by_less_than_a_step(per_class, rng):
    """With fewer rows than dimensions the penalty was rounding noise: two rows per digit, 67.2 to 69.4 % by processor.

    Of 10 bits, a unit moves class means of few rows, and some predictions with them, as it does under a fixed penalty; of 16
    bits it is little.
    """
    for bits, share in ((10, 0.005), (16, 0.001)):
        moments = few_digits(per_class, bits)
        known = Gaussians.estimate(moments)
        for _ in range(5):
            other = Gaussians.estimate(moved(moments, rng))
            assert abs(chosen(known) - chosen(other)) < STEP
            assert changed(known, other, bits) <= share


@pytest.mark.parametrize("per_class", [1, 2, 3, 5, 7, 20, 180])
def test_products_added_in_another_order_leave_the_penalty_and_the_predictions(per_class, rng):
    known = Gaussians.estimate(few_digits(per_class, 10))
    for _ in range(5):
        order = rng.permutation(64)
        other = Gaussians.estimate(few_digits(per_class, 10, order))
        assert chosen(other) == pytest.approx(chosen(known), abs=1e-6)
        assert changed(known, other, 10, order) <= 0.001


def test_labels_that_rows_tell_exactly_do_not_ask_for_the_least_penalty():
    """Nothing was left to explain but rounding, and the error was 0 or not by chance."""
    x, y = np.array([[0, 0], [0, 9], [90, 0], [90, 9]]), np.array([0, 0, 1, 1])
    known = Gaussians.estimate(Moments.of(np.repeat(x, 50, axis=0), np.repeat(y, 50), Layout(2, 2, ("B",))))
    assert -4.5 < chosen(known) < 0.0


@pytest.mark.parametrize("rows", [300, 1500])
def test_a_penalty_that_leaves_no_solution_is_refused_and_a_small_one_is_not(rows, rng):
    """Features that are there twice: once the weights were all zero, without a word."""
    y = np.arange(rows) % 3
    half = rng.integers(-20, 21, size=(rows, rows // 3)) + 9 * (np.arange(rows // 3) % 3 == y[:, None])
    x = np.hstack([half, half])
    gaussians = Gaussians.estimate(Moments.of(x, y, Layout(3, x.shape[1], ("B",))))
    with pytest.raises(HeadError, match=r"penalty=0 has no solution.*e\.g\. 1e-6"):
        fit_ridge(gaussians, RidgeOptions(penalty=0.0))
    assert np.mean(fit_ridge(gaussians, RidgeOptions(penalty=1e-6)).predict(x.astype(float)) == y) > 0.99


def test_covariances_of_more_directions_than_rows_take_a_penalty_that_leaves_degrees_of_freedom(rng):
    """Sums with noise, or a mean of two covariances: the least penalty of all had won, and every row was one class."""
    known = gaussians_of_rows(rng)
    few = replace(known, counts=known.counts * (40 / known.rows))
    equations = equations_of(few)
    values = np.maximum(equations.values, 0.0)
    assert 1.0 + np.sum(values / (values + equations.best_penalty(few.counts))) < 40
