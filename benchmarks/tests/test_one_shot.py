"""One-shot baselines against their definitions, other libraries, and each other."""

import numpy as np
import pytest
from ghofl_benchmarks.baselines.closed import CLOSED, afl, bytes_of, fed3r, fedcgs, fedncm
from ghofl_benchmarks.baselines.compared import COMPARED, FEDCGS, spec_of
from ghofl_benchmarks.baselines.linear import Fit, LinearHead, ensemble_scores, probe, train_head
from ghofl_benchmarks.baselines.one_shot import baselines, pooled_probe
from ghofl_benchmarks.baselines.pft import Mixture, fedpft, fit_mixture

from ghofl import Gaussians, HeadSpec
from ghofl.classifier import Classifier
from ghofl.heads.lda import LDAOptions, fit_lda
from ghofl.moments import Layout, Moments
from ghofl.simulation.simulate import Dataset, recipe_for, simulate


def blobs(rows=300, dim=5, classes=3, seed=0, apart=3.0):
    rng = np.random.default_rng(seed)
    y = np.arange(rows, dtype=np.int64) % classes
    spread = rng.normal(size=(dim, dim)) / 2 + np.eye(dim)
    x = rng.normal(size=(rows, dim)) @ spread + apart * np.eye(classes, dim)[y]
    return x.astype(np.float32), y


def in_parts(x, y, parts=4):
    order = np.argsort(y, kind="stable")  # as skewed as it gets
    return [(x[rows], y[rows]) for rows in np.array_split(order, parts)]


@pytest.mark.parametrize("method", CLOSED)
def test_heads_in_closed_form_do_not_depend_on_the_split(method):
    x, y = blobs()
    whole, split = CLOSED[method]([(x, y)], 3), CLOSED[method](in_parts(x, y), 3)
    np.testing.assert_allclose(split.scores(x), whole.scores(x), rtol=1e-3, atol=1e-4)


def test_fedcgs_of_rows_is_the_head_of_a_total():
    x, y = blobs(600)
    data = Dataset(x, y, x, y, ("a", "b", "c"))
    total = simulate(data, [np.arange(600)], recipe_for(data, [FEDCGS], bits=16), {}).total
    theirs = Classifier.fit(total, FEDCGS).predict_numbers(x)
    assert (fedcgs([(x, y)], 3).scores(x).argmax(axis=1) == theirs).mean() > 0.99  # the grid rounds


def test_spherical_is_lda_under_full_shrinkage():
    x, y = blobs()
    gaussians = Gaussians.estimate(Moments.of(np.rint(10 * x).astype(np.int64), y, Layout(3, 5, ("B",))))
    whole = fit_lda(gaussians, LDAOptions(shrinkage=1.0)).scores(10.0 * x)
    ours = spec_of("spherical").head.fit(gaussians).scores(10.0 * x)
    np.testing.assert_allclose(ours - ours[:, :1], whole - whole[:, :1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", COMPARED)
def test_compared_heads_work_with_one_row_per_class_and_with_classes_without_rows(name):
    x, y = np.array([[0.0, 1.0], [5.0, 1.0], [0.0, 7.0]], dtype=np.float32), np.arange(3)
    data = Dataset(x, y, x, y, ("a", "b", "c", "nobody's"))
    total = simulate(data, [np.arange(3)], recipe_for(data, [HeadSpec("lda")], bits=12), {}).total
    head = Classifier.fit(total, COMPARED[name], warn=lambda _: None)
    assert np.array_equal(head.predict_numbers(x), y)
    assert (head.scores(x)[:, 3] == -np.inf).all()


def test_afl_is_the_least_squares_of_all_rows_and_fed3r_ridge_with_weights_of_length_one():
    linear_model = pytest.importorskip("sklearn.linear_model")
    x, y = blobs()
    hot = np.eye(3)[y]
    plain = np.linalg.lstsq(x.astype(np.float64), hot, rcond=None)[0]
    np.testing.assert_allclose(afl(in_parts(x, y), 3).weights, plain, rtol=1e-3, atol=1e-4)
    ridge = linear_model.Ridge(alpha=0.01, fit_intercept=False).fit(x.astype(np.float64), hot).coef_.T
    np.testing.assert_allclose(fed3r(in_parts(x, y), 3).weights, ridge / np.linalg.norm(ridge, axis=0), atol=1e-4)


def test_fedncm_takes_the_mean_with_the_smallest_angle_and_never_a_class_nobody_has():
    x, y = blobs(classes=2)
    means = np.stack([x[y == c].mean(axis=0) for c in range(2)])
    cosine = x @ means.T / np.linalg.norm(means, axis=1)
    np.testing.assert_array_equal(fedncm(in_parts(x, y), 3).scores(x).argmax(axis=1), cosine.argmax(axis=1))


def test_bytes_are_those_of_the_papers_formulas():
    assert bytes_of("FedCGS", 10, 512) == 4 * (10 + 10 * 512 + 512 * 513 // 2)
    assert bytes_of("FedNCM", 10, 512) == 4 * (10 + 10 * 512)


def test_a_mixture_of_one_full_component_has_the_mean_and_the_covariance_of_the_rows():
    x, _ = blobs(200)
    mixture = fit_mixture(x, "full", 1, np.random.default_rng(0))
    np.testing.assert_allclose(mixture.means[0], x.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(mixture.covariances[0], np.cov(x.T, bias=True), rtol=0.02, atol=0.01)


@pytest.mark.parametrize("kind", ["spherical", "diagonal", "full"])
def test_a_mixture_finds_two_clouds_and_draws_rows_like_them(kind):
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(-5, 1, size=(150, 3)), rng.normal(5, 1, size=(50, 3))])
    mixture = fit_mixture(x, kind, 2, rng)
    order = np.argsort(mixture.means[:, 0])
    np.testing.assert_allclose(mixture.means[order], [[-5] * 3, [5] * 3], atol=0.5)
    np.testing.assert_allclose(mixture.weights[order], [0.75, 0.25], atol=0.02)
    drawn = mixture.sample(4000, rng)
    np.testing.assert_allclose(drawn.mean(axis=0), x.mean(axis=0), atol=0.4)
    np.testing.assert_allclose(drawn.std(axis=0), x.std(axis=0), rtol=0.1)


def test_a_mixture_says_how_many_numbers_it_has():
    shapes = {"spherical": (2,), "diagonal": (2, 3), "full": (2, 3, 3)}
    sizes = {k: Mixture(k, np.ones(2) / 2, np.zeros((2, 3)), np.ones(s)).entries for k, s in shapes.items()}
    assert sizes == {"spherical": 2 * 5, "diagonal": 2 * 7, "full": 2 * 10}


@pytest.mark.parametrize("kind", ["spherical", "diagonal", "full"])
def test_a_head_trained_on_samples_of_mixtures_is_nearly_that_of_the_rows(kind):
    x, y = blobs(600)
    rng = np.random.default_rng(0)
    head, size = fedpft(in_parts(x, y), 3, rng, kind, 2, Fit(epochs=10))
    assert head.accuracy(x, y) > train_head(x, y, 3, rng, Fit(epochs=10)).accuracy(x, y) - 0.05
    assert size > 0


def test_a_trained_head_is_as_accurate_as_scikit_learns():
    linear_model = pytest.importorskip("sklearn.linear_model")
    x, y = blobs(600, apart=2.0)
    other = linear_model.LogisticRegression(max_iter=500).fit(x, y).score(x, y)
    rng, long = np.random.default_rng(0), Fit(rate=0.02, least_steps=1500)
    assert train_head(x, y, 3, rng, long).accuracy(x, y) > other - 0.02
    assert probe(x, y, 3, rng, long)[0].accuracy(x, y) > other - 0.03


def test_an_ensemble_averages_scores():
    heads = [LinearHead(np.full((2, 2), w, np.float32), np.zeros(2, np.float32)) for w in (1.0, 3.0)]
    np.testing.assert_allclose(ensemble_scores(heads, np.ones((1, 2), np.float32)), [[4.0, 4.0]])


def test_every_baseline_runs_on_a_skewed_split_with_an_empty_client():
    x, y = blobs()
    data = Dataset(x, y, x, y, ("a", "b", "c"))
    parts = [np.flatnonzero(y == 0), np.flatnonzero(y == 1), np.array([], dtype=np.int64), np.flatnonzero(y == 2)]
    for name, baseline in {**baselines(Fit(epochs=3)), "probe": pooled_probe(Fit(epochs=3))}.items():
        outcome = baseline(data, parts, 0)
        assert 0.0 <= outcome.accuracy <= 1.0, name
        assert outcome.bytes_up > 0, name
    assert pooled_probe(Fit(epochs=10))(data, parts, 0).accuracy > 0.8
