"""The default head of class covariances: LDA, and a share of what they add."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_t

from federations import blobs, recipe_of, total_of
from ghofl import Classifier, Features, Gaussians
from ghofl.gaussians import linalg
from ghofl.heads.hedge import HedgeOptions, fit_hedge
from ghofl.heads.lda import fit_lda
from ghofl.heads.rules import Linear
from ghofl.planning.assembly import assemble
from ghofl.recipe import Column, RecipeOptions, Table


def gaussians_of(recipe, x, y) -> Gaussians:
    return Gaussians.of_total(total_of(recipe, x, y), Features.of(recipe))


def written_out(gaussians, x, weight, shrinkage, dof):
    """The formula of the docstring, one class at a time, with SciPy's Student density."""
    scores, k = fit_lda(gaussians).scores(x), x.shape[1]
    for c in np.flatnonzero(gaussians.counts).tolist():
        n = gaussians.counts[c]
        own = min(1.0, 224 / (k + 128)) * n / (n + 2 * min(k, 128))
        sigma = linalg.shrink(own * gaussians.by_class(c) + (1 - own) * gaussians.pooled(), shrinkage)
        density = multivariate_t(gaussians.means[c], sigma, df=dof)
        scores[:, c] += weight * (density.logpdf(x) + gaussians.log_priors[c])
    return scores - weight * fit_lda(gaussians).scores(x)


def test_scores_are_those_of_the_formula(rng):
    x, y = blobs(rng)
    gaussians = gaussians_of(recipe_of(), x, y)
    found = fit_hedge(gaussians, HedgeOptions(weight=0.4, shrinkage=0.02, dof=30.0)).scores(x)
    expected = written_out(gaussians, x, 0.4, 0.02, 30.0)
    # The density's constant is the same for all classes.
    assert found - found[:, :1] == pytest.approx(expected - expected[:, :1], abs=1e-7)


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_without_weight_it_is_lda(seed):
    x, y = blobs(np.random.default_rng(seed), rows=60)
    gaussians = gaussians_of(recipe_of(), x, y)
    assert fit_hedge(gaussians, HedgeOptions(weight=0.0)) == fit_lda(gaussians)


def test_fewer_rows_than_features_leave_lda_alone(rng):
    x, y = blobs(rng, rows=25, dim=30)
    gaussians = gaussians_of(recipe_of(dim=30), x, y)
    assert isinstance(fit_hedge(gaussians), Linear)
    assert not isinstance(fit_hedge(gaussians_of(recipe_of(), *blobs(rng))), Linear)


def test_a_class_of_few_rows_has_nearly_the_shared_covariance():
    """18 rare rows in 30 dimensions: blended by the mean rows per class, every row was called common."""
    local = np.random.default_rng(0)

    def rows(counts):
        y = np.repeat([0, 1], counts)
        return local.standard_normal((len(y), 30)) + 1.3 * y[:, None] * (np.arange(30) < 8), y

    x, y = rows((3582, 18))
    total = total_of(recipe_of(dim=30, classes=2, bits=12), x, y)
    x, y = rows((2000, 2000))
    balanced = {}
    for name in ("hedge", "lda", "student"):
        predicted = Classifier.fit(total, name).predict_numbers(x)
        balanced[name] = np.mean([np.mean(predicted[y == c] == c) for c in (0, 1)])
    assert balanced["hedge"] > balanced["lda"] - 0.05
    assert balanced["hedge"] > balanced["student"] + 0.15


def two_valued(rng, rows=600):
    """Two numbers that tell classes apart, and ten one-hot columns of a category that does not."""
    y = rng.integers(2, size=rows)
    level = rng.integers(10, size=rows)
    return np.hstack([rng.normal(size=(rows, 2)) + y[:, None], np.eye(10)[level]]), y


def test_two_valued_features_of_exact_totals_are_recognised(rng):
    x, y = two_valued(rng)
    gaussians = gaussians_of(recipe_of(dim=12, classes=2), x, y)
    assert gaussians.smooth.tolist() == [True] * 2 + [False] * 10
    signs = gaussians_of(recipe_of(dim=3, classes=2), np.where(x[:, 2:5] > 0, 2.0, -2.0), y)
    assert not signs.smooth.any()
    assert isinstance(fit_hedge(signs), Linear)


def test_columns_that_are_left_out_change_only_the_linear_part(rng):
    x, y = two_valued(rng)
    rule = fit_hedge(gaussians_of(recipe_of(dim=12, classes=2), x, y))
    moved = x.copy()
    moved[:, 2:] += rng.normal(size=(len(x), 10))
    _, quadratic = rule.inner
    assert np.array_equal(quadratic.scores(x), quadratic.scores(moved))


def test_a_schema_says_which_columns_are_numbers_also_under_noise(rng):
    columns = (
        Column("age", "number", low=0, high=100, missing="indicator"),
        Column("ward", "category", levels=("a", "b")),
        Column("smokes", "yes/no"),
        Column("reach", "number", low=0, high=10**6),
    )
    table = Table(columns)
    assert table.numbers == (True, False, False, False, False, True)
    y = rng.integers(2, size=400)
    spread = np.array([0.5, 0.0, 0.0, 0.0, 0.0, 1e-3])
    x = np.clip(rng.normal(size=(400, 6)) * spread, -1, 1)
    for epsilon in (None, 8.0):
        options = RecipeOptions(statistics=("S",), epsilon=epsilon)
        recipe = assemble(options, ("a", "b"), table.encoder, table=table).recipe
        total = total_of(recipe, x, y)
        gaussians = Gaussians.of_total(total if epsilon is None else total.release(), Features.of(recipe))
        # The last number reaches a thousand deviations far: its squares would decide alone.
        assert gaussians.smooth[1:5].tolist() == [False] * 4
        assert epsilon is not None or gaussians.smooth[[0, 5]].tolist() == [True, False]
