import numpy as np
import pytest

from federations import blobs, gaussians_of, recipe_of
from ghofl.errors import HeadError
from ghofl.gaussians import METHODS, draw
from ghofl.gaussians.linalg import shrink


@pytest.fixture
def gaussians(rng):
    return gaussians_of(recipe_of(), *blobs(rng))


@pytest.mark.parametrize("method", METHODS)
def test_draws_have_the_means_and_covariances_asked_for(gaussians, method):
    drawn = draw(gaussians, 20_000, np.random.default_rng(0), dispersion=0.9, shrinkage=0.1, method=method)
    for c in range(4):
        z, expected = drawn.z[drawn.y == c], 0.81 * shrink(gaussians.by_class(c), 0.1)
        assert z.mean(axis=0) == pytest.approx(gaussians.means[c], abs=0.05 * np.sqrt(expected.max()))
        assert np.cov(z.T) == pytest.approx(expected, abs=0.05 * expected.max())


def test_matched_draws_have_them_exactly(gaussians):
    drawn = draw(gaussians, 50, np.random.default_rng(0), dispersion=1.3, shrinkage=0.0, method="matched")
    z = drawn.z[drawn.y == 2].astype(float)
    assert z.mean(axis=0) == pytest.approx(gaussians.means[2], abs=1e-5)
    assert np.cov(z.T, bias=True) == pytest.approx(1.69 * gaussians.by_class(2), rel=1e-4, abs=1e-4)


def test_without_class_covariances_the_shared_one_is_drawn_from(rng):
    gaussians = gaussians_of(recipe_of(statistics=("B",)), *blobs(rng))
    drawn = draw(gaussians, 200, np.random.default_rng(0), dispersion=1.0, shrinkage=0.0, method="matched")
    for c in range(4):
        assert np.cov(drawn.z[drawn.y == c].T.astype(float), bias=True) == pytest.approx(gaussians.pooled(), abs=1e-3)


def test_with_variances_alone_draws_are_independent_features(rng):
    gaussians = gaussians_of(recipe_of(statistics=("D",)), *blobs(rng)).diagonal()
    drawn = draw(gaussians, 200, np.random.default_rng(0), dispersion=1.0, shrinkage=0.0, method="matched")
    covariance = np.cov(drawn.z[drawn.y == 1].T.astype(float), bias=True)
    assert covariance == pytest.approx(np.diag(gaussians.variances()[1]), abs=1e-3)


def test_classes_are_equal_or_follow_their_priors_and_an_absent_one_gets_none(rng):
    x, y = blobs(rng)
    keep = (y != 1) | (np.arange(len(y)) % 5 == 0)
    gaussians = gaussians_of(recipe_of(classes=6), x[keep], y[keep])
    equal = draw(gaussians, 100, np.random.default_rng(0))
    assert np.bincount(equal.y, minlength=6).tolist() == [100, 100, 100, 100, 0, 0]
    weighted = np.bincount(draw(gaussians, 100, np.random.default_rng(0), by_prior=True).y, minlength=6)
    assert weighted[:4] == pytest.approx(400 * gaussians.counts[:4] / gaussians.rows, abs=1)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"method": "best"}, "give one of plain, matched, quasi"), ({"dispersion": 0.0}, "both must be positive")],
)
def test_options_out_of_range_are_refused(gaussians, options, says):
    with pytest.raises(ValueError, match=says):
        draw(gaussians, 10, np.random.default_rng(0), **options)


def test_matched_draws_estimate_a_mean_score_with_less_spread(gaussians):
    """Variance reduction: the mean of a quadratic over few draws varies far less than with plain ones."""

    def spread(method):
        means = []
        for seed in range(30):
            drawn = draw(gaussians, 64, np.random.default_rng(seed), method=method)
            means.append(float((drawn.z.astype(float) ** 2).sum(axis=1).mean()))
        return np.std(means)

    assert spread("matched") < 0.1 * spread("plain")
    assert spread("quasi") < 0.5 * spread("plain")


def test_draws_that_are_too_few_to_be_matched_are_refused(gaussians):
    dim = gaussians.means.shape[1]
    with pytest.raises(HeadError, match=f"and there are {dim} for {dim}; draw more"):
        draw(gaussians, dim, np.random.default_rng(0), method="matched")
