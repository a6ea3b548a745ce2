"""Heads against scikit-learn on the same rows: the rows on the grid, which is what the moments are of."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.special
import scipy.stats
from sklearn.covariance import oas
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.linear_model import RidgeCV
from sklearn.naive_bayes import GaussianNB

from federations import blobs, gaussians_of, recipe_of, sketched_recipe, total_of
from ghofl import Classifier, Features, Gaussians
from ghofl.gaussians import ClassCovariances
from ghofl.gaussians.linalg import shrink
from ghofl.heads.lda import LDAOptions, fit_lda
from ghofl.heads.low_rank_qda import LowRankQDAOptions, fit_low_rank_qda
from ghofl.heads.naive_bayes import NaiveBayesOptions, fit_naive_bayes
from ghofl.heads.nearest_mean import fit_nearest_mean
from ghofl.heads.qda import QDAOptions, fit_qda
from ghofl.heads.rda import RDAOptions, fit_rda
from ghofl.heads.ridge import RidgeOptions, fit_ridge

RECIPE = recipe_of(dim=8)


@pytest.fixture
def data(rng):
    x, y = blobs(rng, rows=500, dim=8)
    return Features.of(RECIPE).values(x), y, gaussians_of(RECIPE, x, y)


@dataclass(frozen=True, eq=False)
class Scaled(ClassCovariances):
    """Class covariances times a factor each."""

    gaussians: Gaussians
    factors: np.ndarray

    def matrix(self, c):
        return self.gaussians.by_class(c) * self.factors[c]


def relative(scores):
    """Scores up to the term common to all classes."""
    return scores - scores[:, :1]


def test_lda_agrees_with_scikit_learn(data):
    """scikit-learn divides the scatter by N and we by N − C, which scales everything but the priors; then to 1e-8."""
    values, y, gaussians = data
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2).fit(values, y)
    # theirs shrinks each class covariance and averages; with equal traces' mean that is shrinking the average
    ours = fit_lda(gaussians, LDAOptions(shrinkage=0.2))
    factor = (gaussians.rows - gaussians.present) / gaussians.rows
    prior = gaussians.log_priors
    expected = factor * relative(theirs.decision_function(values) - prior)
    assert relative(ours.scores(values) - prior) == pytest.approx(expected, rel=1e-7, abs=1e-7)


def test_lda_predictions_agree_with_scikit_learn(data):
    values, y, gaussians = data
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1).fit(values, y)
    assert np.mean(fit_lda(gaussians, LDAOptions(0.1)).predict(values) == theirs.predict(values)) > 0.995


def test_qda_agrees_with_scikit_learn(data):
    """Without shrinkage, whose target is another there; releases divide by N_c or by N_c − 1, we by the latter."""
    values, y, gaussians = data
    theirs = QuadraticDiscriminantAnalysis(store_covariance=True).fit(values, y)
    n = gaussians.counts
    factors = np.array([theirs.covariance_[c][0, 0] / gaussians.by_class(c)[0, 0] for c in range(4)])
    assert factors == pytest.approx(np.ones(4)) or factors == pytest.approx((n - 1) / n)
    scaled = Gaussians(n, gaussians.means, covariances=Scaled(gaussians, factors))
    scores = fit_qda(scaled, QDAOptions(shrinkage=0.0)).scores(values)
    assert relative(scores) == pytest.approx(relative(theirs.decision_function(values)), rel=1e-7, abs=1e-7)


def test_qda_is_the_log_density_of_its_gaussians(data):
    values, _, gaussians = data
    ours = fit_qda(gaussians, QDAOptions(shrinkage=0.1)).scores(values)
    for c in range(4):
        sigma = shrink(gaussians.by_class(c), 0.1)
        density = scipy.stats.multivariate_normal(gaussians.means[c], sigma).logpdf(values)
        expected = density + gaussians.log_priors[c] + 4 * np.log(2 * np.pi)
        assert ours[:, c] == pytest.approx(expected, rel=1e-9)


def test_naive_bayes_agrees_with_scikit_learn(data):
    values, y, gaussians = data
    theirs = GaussianNB(var_smoothing=0.0).fit(values, y)
    ours = fit_naive_bayes(gaussians, NaiveBayesOptions(shrinkage=0.0))
    probabilities = scipy.special.softmax(ours.scores(values), axis=1)
    assert probabilities == pytest.approx(theirs.predict_proba(values), abs=1e-9)


def test_oas_from_moments_agrees_with_scikit_learn(data):
    values, y, gaussians = data
    centred = values - gaussians.means[y]
    _, theirs = oas(centred, assume_centered=True)
    assert gaussians.oas == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("penalty", [1e-3, 1.0, 100.0])
def test_ridge_agrees_with_scikit_learn(data, penalty):
    values, y, gaussians = data
    unit = np.trace(gaussians.total_covariance()) * gaussians.rows / 8
    theirs = SklearnRidge(alpha=penalty * unit).fit(values, np.eye(4)[y])
    ours = fit_ridge(gaussians, RidgeOptions(penalty=penalty))
    assert ours.scores(values) == pytest.approx(theirs.predict(values), abs=1e-9)


def test_the_gcv_penalty_leaves_out_rows_as_well_as_leave_one_out_does(data):
    """Leave-one-out on the rows themselves picks a penalty whose error ours is within one part in a hundred of."""
    values, y, gaussians = data
    unit = np.trace(gaussians.total_covariance()) * gaussians.rows / 8
    grid = unit * 10.0 ** np.linspace(-8, 3, 67)
    targets = np.eye(4)[y]
    cv = RidgeCV(alphas=grid, store_cv_results=True).fit(values, targets)
    errors = dict(zip(grid, cv.cv_results_.mean(axis=(0, 1)), strict=True))
    ours = fit_ridge(gaussians)
    chosen = min(grid, key=lambda a: np.abs(SklearnRidge(alpha=a).fit(values, targets).coef_ - ours.weights).max())
    assert errors[chosen] <= 1.01 * min(errors.values())


def test_afl_and_fed3r_are_ridge():
    """Their closed form on rows with a constant feature, at the same penalty on all but the constant."""
    rng = np.random.default_rng(3)
    x, y = blobs(rng, dim=8)
    gaussians, values = gaussians_of(RECIPE, x, y), Features.of(RECIPE).values(x)
    unit = np.trace(gaussians.total_covariance()) * gaussians.rows / 8
    with_one = np.hstack([values, np.ones((len(values), 1))])
    penalty = np.diag([0.5 * unit] * 8 + [0.0])
    weights = np.linalg.solve(with_one.T @ with_one + penalty, with_one.T @ np.eye(4)[y])
    assert fit_ridge(gaussians, RidgeOptions(penalty=0.5)).scores(values) == pytest.approx(with_one @ weights, abs=1e-9)


def test_rda_ends_in_lda_and_qda(data):
    values, _, gaussians = data
    qda, lda = fit_qda(gaussians, QDAOptions(shrinkage=0.1)), fit_lda(gaussians, LDAOptions(shrinkage=0.1))
    assert fit_rda(gaussians, RDAOptions(blend=0.0, shrinkage=0.1)).scores(values) == pytest.approx(qda.scores(values))
    linear_end = relative(fit_rda(gaussians, RDAOptions(blend=1.0, shrinkage=0.1)).scores(values))
    assert linear_end == pytest.approx(relative(lda.scores(values)), abs=1e-7)


def test_low_rank_qda_of_full_rank_is_qda(data):
    values, _, gaussians = data
    full = fit_low_rank_qda(gaussians, LowRankQDAOptions(rank=8, shrinkage=0.2))
    assert full.scores(values) == pytest.approx(
        fit_qda(gaussians, QDAOptions(shrinkage=0.2)).scores(values), rel=1e-7, abs=1e-7
    )


def test_low_rank_qda_of_rank_zero_is_naive_bayes(data):
    """With the same variances: ours divides by N_c − 1 where naive Bayes divides by N_c."""
    values, _, gaussians = data
    zero = fit_low_rank_qda(gaussians, LowRankQDAOptions(rank=0, shrinkage=0.0))
    unbiased = gaussians.variances() * (gaussians.counts / (gaussians.counts - 1))[:, None]
    diagonal = Gaussians(gaussians.counts, gaussians.means, None, unbiased)
    expected = fit_naive_bayes(diagonal, NaiveBayesOptions(shrinkage=0.0)).scores(values)
    assert relative(zero.scores(values)) == pytest.approx(relative(expected), rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("rank", [1, 3])
def test_low_rank_qda_is_the_gaussian_of_its_covariance(data, rank):
    """Woodbury against the dense inverse of diag + U Uᵀ, with the leading eigenvectors computed by LAPACK."""
    values, _, gaussians = data
    ours = fit_low_rank_qda(gaussians, LowRankQDAOptions(rank=rank, shrinkage=0.1)).scores(values)
    for c in range(4):
        sigma = gaussians.by_class(c)
        eigenvalues, vectors = np.linalg.eigh(0.9 * sigma)
        low = (vectors[:, -rank:] * eigenvalues[-rank:]) @ vectors[:, -rank:].T
        dense = low + np.diag(0.9 * sigma.diagonal() - low.diagonal() + 0.1 * np.trace(sigma) / 8)
        shifted = values - gaussians.means[c]
        distance = np.einsum("nd,nd->n", shifted @ np.linalg.inv(dense), shifted)
        expected = gaussians.log_priors[c] - 0.5 * (np.linalg.slogdet(dense)[1] + distance)
        assert ours[:, c] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_lanczos_and_lapack_find_the_same_directions(rng):
    from ghofl.heads.low_rank_qda import _leading

    a = rng.normal(size=(64, 200))
    sigma = a @ a.T
    values, vectors = _leading(sigma, 4)
    expected = np.linalg.eigvalsh(sigma)[-4:]
    assert np.sort(values) == pytest.approx(expected)
    assert sigma @ vectors == pytest.approx(vectors * values, rel=1e-6, abs=1e-6)


def test_nearest_mean_is_the_cosine(data):
    values, _, gaussians = data
    scores = fit_nearest_mean(gaussians).scores(values)
    row, mean = values[3], gaussians.means[2]
    assert scores[3, 2] == pytest.approx(row @ mean / np.linalg.norm(row) / np.linalg.norm(mean))


def test_sketched_qda_adds_up_its_three_closed_forms(rng):
    x, y = blobs(rng)
    recipe = sketched_recipe()
    features = Features.of(recipe)
    ours = Classifier.fit(total_of(recipe, x, y), "sketched_qda(blend=0.3, shrinkage=0.1, dof=0)")
    gaussians = gaussians_of(recipe_of(), x, y)
    of_z = gaussians.mapped(features.sketch.astype(float))
    values, z = features.values(x), features.values(x) @ features.sketch
    linear_z, quadratic_z = fit_lda(of_z, LDAOptions(0.1)), fit_rda(of_z, RDAOptions(0.3, 0.1))
    expected = fit_lda(gaussians).scores(values) - linear_z.scores(z) + quadratic_z.scores(z)
    assert relative(ours.scores(x)) == pytest.approx(relative(expected), rel=1e-7, abs=1e-7)


def test_sketched_qda_with_blend_one_is_lda(rng):
    x, y = blobs(rng)
    sketched = Classifier.fit(total_of(sketched_recipe(), x, y), "sketched_qda(blend=1, dof=0)")
    lda = Classifier.fit(total_of(recipe_of(statistics=("B",)), x, y), "lda")
    assert relative(sketched.scores(x)) == pytest.approx(relative(lda.scores(x)), abs=1e-6)
