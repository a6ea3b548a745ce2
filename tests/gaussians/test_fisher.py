import numpy as np
import pytest

from federations import blobs, gaussians_of, recipe_of
from ghofl import Features, Fisher
from ghofl.gaussians.fisher import EPSILON
from ghofl.gaussians.linalg import shrink
from ghofl.heads.lda import LDAOptions, fit_lda


@pytest.fixture
def gaussians(rng):
    return gaussians_of(recipe_of(dim=12, classes=5), *blobs(rng, dim=12, classes=5))


def test_the_shared_covariance_is_the_identity_in_fisher_space(gaussians):
    fisher = Fisher.of_dim(gaussians, 4)
    within = shrink(gaussians.pooled(), 0.05) + EPSILON * np.eye(12)
    assert fisher.basis.T @ within @ fisher.basis == pytest.approx(np.eye(4), abs=1e-9)


def test_directions_solve_the_generalised_eigenproblem(gaussians):
    import scipy.linalg

    fisher = Fisher.of_dim(gaussians, 4)
    within = shrink(gaussians.pooled(), 0.05) + EPSILON * np.eye(12)
    values = scipy.linalg.eigh(gaussians.between(), within, eigvals_only=True)[::-1]
    assert fisher.ratios == pytest.approx(values[:4], rel=1e-8)
    assert gaussians.between() @ fisher.basis == pytest.approx(within @ fisher.basis * fisher.ratios, abs=1e-8)


def test_lda_in_all_fisher_directions_equals_lda_in_x(rng):
    """Posterior differences agree: the directions left out tell classes apart by nothing."""
    x, y = blobs(rng, dim=12, classes=5)
    gaussians = gaussians_of(recipe_of(dim=12, classes=5), x, y)
    values = Features.of(recipe_of(dim=12, classes=5)).values(x)
    fisher = Fisher.of_dim(gaussians, 99, shrinkage=0.05)
    assert fisher.basis.shape == (12, 4)
    inside = fisher.project(gaussians)
    # In z the shrunk covariance of x is the identity, so LDA there is the nearest mean with priors.
    z = values @ fisher.basis
    scores_z = z @ inside.means.T + inside.log_priors - 0.5 * (inside.means**2).sum(axis=1)
    scores_x = fit_lda(gaussians, LDAOptions(shrinkage=0.05)).scores(values)
    difference = (scores_z - scores_z[:, :1]) - (scores_x - scores_x[:, :1])
    assert np.abs(difference).max() < 1e-4 * np.abs(scores_x - scores_x[:, :1]).max()
    assert np.array_equal(scores_z.argmax(axis=1), scores_x.argmax(axis=1))


def test_energy_chooses_the_fewest_directions_that_reach_it(gaussians):
    every = Fisher.of_dim(gaussians, 4)
    shares = np.cumsum(every.ratios) / every.ratios.sum()
    for k in range(1, 5):
        assert len(Fisher.of_energy(gaussians, float(shares[k - 1])).ratios) == k
    assert len(Fisher.of_energy(gaussians, 1.0, at_most=2).ratios) == 2
    assert every.energy == pytest.approx(1.0)


def test_a_class_nobody_has_adds_no_direction(rng):
    x, y = blobs(rng)
    assert len(Fisher.of_dim(gaussians_of(recipe_of(classes=9), x, y), 99).ratios) == 3


def test_equal_means_give_one_direction_without_energy_and_no_nan():
    x = np.array([[1.0, 2, 3, 4, 5, 6], [2.0, 1, 4, 3, 6, 5]] * 2)
    gaussians = gaussians_of(recipe_of(classes=2), x, np.array([0, 0, 1, 1]))
    fisher = Fisher.of_energy(gaussians)
    assert fisher.basis.shape == (6, 1)
    assert np.isfinite(fisher.basis).all()
