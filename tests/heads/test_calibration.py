from dataclasses import replace

import numpy as np
import pytest
import scipy.special
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

from federations import blobs, gaussians_of, recipe_of, total_of
from ghofl import HEADS, Classifier, Features, HeadSpec
from ghofl.errors import HeadError, MessageError
from ghofl.evaluation import Metrics
from ghofl.gaussians import Gaussians, draw
from ghofl.gaussians.predictive import denoise, redraw
from ghofl.heads import calibration
from ghofl.heads.calibration import Calibration, calibrate, dispersion_for, log_loss
from ghofl.simulation.demo import digits
from ghofl.simulation.simulate import recipe_for, simulate

CLOSED = ["lda", "qda", "rda", "student", "hedge", "ridge", "low_rank_qda", "nb", "nearest_mean"]


def imbalanced(rng, rows=8000, share=0.015, dim=8):
    """Rows of two Gaussians with one covariance, few of them of the second class."""
    y = (rng.uniform(size=rows) < share).astype(np.int64)
    mixing = np.random.default_rng(5).normal(size=(dim, dim)) / 4 + np.eye(dim)
    return rng.normal(size=(rows, dim)) @ mixing + y[:, None] * np.linspace(-1, 1, dim), y


def recipe_of_two(**parts):
    return recipe_of(dim=8, classes=2, bits=14, scale=512.0, **parts)


@pytest.mark.parametrize("share", [0.5, 0.015])
@pytest.mark.parametrize("name", ["lda", "qda", "rda", "ridge"])
def test_on_rows_of_its_own_gaussians_the_log_loss_is_the_true_posterior_s(name, share, rng):
    """Within 1 %: the Gaussians that the total describes are taken for the truth, and rows are drawn from them."""
    x, y = imbalanced(rng, 20_000, share)
    gaussians = gaussians_of(recipe_of_two(statistics=("B",) if name in ("lda", "ridge") else ("S",)), x, y)
    if name == "rda":  # its covariances are blends, so that it is the posterior of those
        blended = HEADS["rda"].Options(blend=0.0, shrinkage=0.0)
        head = HEADS["rda"].fit(gaussians, blended)
    else:
        head = HEADS[name].fit(gaussians)
    found = calibrate(HEADS[name], head, gaussians)
    drawn = draw(gaussians, 20_000, np.random.default_rng(9), 1.0, 0.0)
    z, priors = drawn.z.astype(float), gaussians.counts / gaussians.rows
    truth = np.stack(
        [np.log(priors[c]) + _log_density(z, gaussians.means[c], gaussians.finest(c)) for c in range(2)],
        axis=1,
    )
    best = log_loss(scipy.special.softmax(truth, axis=1), drawn.y, priors)
    assert log_loss(found.probabilities(head.scores(z)), drawn.y, priors) < 1.01 * best


def _log_density(z, mean, sigma):
    away = z - mean
    return -0.5 * (np.einsum("nd,nd->n", away @ np.linalg.inv(sigma), away) + np.linalg.slogdet(sigma)[1])


@pytest.mark.parametrize("rows", [24, 60, 3000])
@pytest.mark.parametrize("name", CLOSED)
def test_calibration_never_makes_a_head_worse_on_its_own_synthetic_rows(name, rows, rng):
    x, y = blobs(rng, rows=rows, spread=0.7)
    gaussians = gaussians_of(recipe_of(), x, y)
    head = HEADS[name].fit(gaussians)
    found = calibrate(HEADS[name], head, gaussians)
    own = rows >= 10 * 6 * (4 if HEADS[name].needs[0] == ("S",) else 1)
    truth = gaussians if own else denoise(gaussians, own=True)
    judged = head if own else HEADS[name].fit(redraw(truth, gaussians, np.random.default_rng(2)))
    drawn = draw(truth, 4000, np.random.default_rng(77), 1.0, 0.0)
    scores, priors = judged.scores(drawn.z.astype(float)), gaussians.counts / gaussians.rows
    before, after = (log_loss(c.probabilities(scores), drawn.y, priors) for c in (Calibration(), found))
    assert after <= before * 1.005


@pytest.mark.parametrize("name", ["lda", "ridge", "rda", "qda", "student", "fisher_mix", "blend"])
def test_rare_positives_have_the_brier_score_of_scikit_learn(name, rng):
    """With 1.5 % positives every probability once lay near one half."""
    x, y = imbalanced(rng, 16_000)
    train, test = slice(0, 8000), slice(8000, None)
    classifier = Classifier.fit(total_of(recipe_of_two(), x[train], y[train]), name)
    oracle = QuadraticDiscriminantAnalysis() if name in ("qda", "rda", "student") else LinearDiscriminantAnalysis()
    theirs = Metrics.of(oracle.fit(x[train], y[train]).predict_proba(x[test]), y[test])
    ours = Metrics.of(classifier.predict_proba(x[test]), y[test])
    assert ours.brier < 1.1 * theirs.brier
    assert ours.ece < 0.01


def test_a_head_of_few_rows_is_not_surer_than_it_is_right(rng):
    """Four rows of each of ten classes in fifty dimensions: uncalibrated, the confidence is near 1."""
    centres = 0.5 * rng.normal(size=(10, 50))
    y = np.arange(2040) % 10
    x = centres[y] + rng.normal(size=(2040, 50))
    classifier = Classifier.fit(total_of(recipe_of(dim=50, classes=10), x[:40], y[:40]), "lda")
    scores = classifier.scores(x[40:])
    plain = Metrics.of(scipy.special.softmax(scores, axis=1), y[40:])
    found = Metrics.of(classifier.predict_proba(x[40:]), y[40:])
    assert classifier.calibration.source == "draws"
    assert found.ece < 0.5 * plain.ece
    assert found.log_loss < plain.log_loss


def test_priors_set_at_use_are_those_of_bayes_rule(rng):
    x, y = imbalanced(rng)
    classifier = Classifier.fit(total_of(recipe_of_two(), x, y), "lda")
    before = classifier.predict_proba(x[:50])
    even = classifier.with_priors("uniform").predict_proba(x[:50])
    share = np.mean(y)
    odds = before[:, 1] / before[:, 0] * (1 - share) / share
    assert even[:, 1] / even[:, 0] == pytest.approx(odds)
    assert classifier.with_priors({"class 0": 5, "class 1": 5}).predict_proba(x[:50]) == pytest.approx(even)
    assert classifier.with_priors([1 - share, share]).predict_proba(x[:50]) == pytest.approx(before)
    assert not classifier.with_priors({"class 0": 1}).predict_proba(x[:50])[:, 1].any()


@pytest.mark.parametrize(
    ("priors", "said"),
    [
        ("even", "'uniform'"),
        ({"cat": 1}, "no class 'cat'"),
        ([1.0], "2 in all"),
        ([1, -1], "none below 0"),
        ([0, 0], "are 0"),
    ],
)
def test_priors_that_are_none_are_refused(priors, said, rng):
    classifier = Classifier.fit(total_of(recipe_of_two(), *imbalanced(rng)), "lda")
    with pytest.raises(HeadError, match=said):
        classifier.with_priors(priors)


def test_a_threshold_decides_from_which_probability_on_a_class_is_predicted(rng):
    x, y = imbalanced(rng)
    classifier = Classifier.fit(total_of(recipe_of_two(), x, y), "lda")
    p = classifier.predict_proba(x)[:, 1]
    assert np.array_equal(classifier.with_thresholds({"class 1": 0.1}).predict_numbers(x), (p >= 0.1).astype(int))
    both = classifier.with_thresholds({"class 1": 0.9, "class 0": 0.9}).predict_numbers(x)
    assert np.array_equal(both, np.where(p >= 0.9, 1, np.where(1 - p >= 0.9, 0, -1)))
    with pytest.raises(HeadError, match="does not name a class"):
        classifier.with_thresholds({"class 7": 0.5})
    with pytest.raises(HeadError, match="above 0"):
        classifier.with_thresholds({"class 1": 0.0})


@pytest.mark.parametrize(
    "change",
    [
        {"calibration": 3}, {"calibration": {"source": "magic", "priors": [0.5, 0.5]}},
        {"calibration": {"source": "draws", "priors": [0.5]}}, {"calibration": {"source": "draws", "priors": [2.0, -1.0]}},
        {"calibration": {"source": "draws", "priors": [0.5, 0.5], "bias": [1.0, float("inf")]}}, {"temperature": 0.0},
        {"temperature": 1e-320},
        {"calibration": {"source": "draws", "priors": [0.5, 0.5], "in_force": [0.5, 0.6]}},
        {"calibration": {"source": "draws", "priors": [1.0, 0.0], "in_force": [0.5, 0.5]}},
        {"calibration": {"source": "draws", "priors": [0.5, 0.5], "in_force": "uniform"}},
        {"calibration": {"source": "draws", "priors": [0.5, 0.5], "unheard_of": 1}},
    ],
)  # fmt: skip
def test_a_hostile_calibration_is_refused(change):
    with pytest.raises(MessageError):
        Calibration.of_header({"temperature": 1.0, **change}, 2)


def test_a_head_without_known_priors_says_so():
    with pytest.raises(HeadError, match="does not say which priors"):
        Calibration(2.0).with_priors(np.array([0.5, 0.5]))


def test_draws_are_as_measured_in_few_dimensions_and_wider_in_many():
    assert dispersion_for(6, 100) == dispersion_for(128, 100) == dispersion_for(8192, 2) == 1.0
    assert 1.0 < dispersion_for(384, 16) < dispersion_for(512, 16) == dispersion_for(8192, 16) == 2.0
    assert dispersion_for(512, 16) < dispersion_for(512, 100) < dispersion_for(512, 128) == dispersion_for(512, 1000)


@pytest.mark.parametrize(
    ("parts", "tau"), [("lda+ridge", 2.5), ("lda+nearest_mean", 2.5), ("lda+student", 1.7), ("nearest_mean+qda", 1.7)]
)
def test_a_blend_is_judged_on_draws_as_wide_as_its_least_linear_part_allows(parts, tau, rng, monkeypatch):
    """Every blend once counted as linear."""
    monkeypatch.setattr(calibration, "dispersion_for", lambda dim, classes: 2.5)
    gaussians, blend = gaussians_of(recipe_of(), *blobs(rng, spread=1.0)), HEADS["blend"]
    options = blend.Options(parts=parts)
    rule = blend.fit(gaussians, options)
    found = {t: calibrate(blend, rule, gaussians, options, t).temperature for t in (None, 1.7, 2.5)}
    assert found[None] == found[tau]
    assert found[1.7] != found[2.5]


def test_a_student_heads_temperature_does_not_depend_on_its_tails(rng):
    """Wide draws lie in heavy tails, where the head is never sure: T would come out too small, 2 instead of 9."""
    gaussians = gaussians_of(recipe_of(), *blobs(rng, spread=1.0))
    student = HEADS["student"]
    heavy = student.fit(gaussians, student.Options(dof=5.0))
    light = replace(heavy, dof=np.asarray(1e9))
    one, other = (calibrate(student, head, gaussians, dispersion=1.7) for head in (heavy, light))
    assert one.temperature == pytest.approx(other.temperature)


def test_naive_bayes_is_as_good_beside_a_shared_covariance_as_alone():
    """Judged on draws of one width for all classes, it lost 22 points where a class has constant features."""
    data = digits()
    for heads in ("nb", "nb,lda", "nb,qda"):
        specs = HeadSpec.parse_list(heads)
        total = simulate(data, [np.arange(len(data.y_train))], recipe_for(data, specs.values()), {}).total
        classifier = Classifier.fit(total, "nb")
        plain = float(np.mean(classifier.scores(data.x_test).argmax(axis=1) == data.y_test))
        assert np.mean(classifier.predict_numbers(data.x_test) == data.y_test) >= plain - 0.005
        assert plain > 0.85


def test_naive_bayes_of_few_rows_takes_the_shared_variances_for_ten_more(rng):
    """Variances of two rows each put it 20 points under the heads beside it."""
    data = digits()
    few = np.concatenate([np.flatnonzero(data.y_train == c)[:4] for c in range(10)])
    some = replace(data, x_train=data.x_train[few], y_train=data.y_train[few])
    total = simulate(some, [np.arange(40)], recipe_for(some, [HeadSpec("nb")]), {}).total
    found = {
        s: np.mean(Classifier.fit(total, s).predict_numbers(data.x_test) == data.y_test)
        for s in ("nb", "nb(shrinkage=0)")
    }
    assert found["nb"] > found["nb(shrinkage=0)"] + 0.1
    gaussians = Gaussians.of_total(total, Features.of(total.recipe))
    made = HEADS["nb"].fit(gaussians)
    shares = 10 / (4 - 1 + 10)
    blended = (1 - shares) * gaussians.variances() + shares * gaussians.pooled_variances()
    assert np.allclose(-0.5 / made.squared, np.maximum(blended, 1e-6))


def test_a_head_of_class_covariances_is_not_taken_for_one_that_knows_nothing(rng):
    """Draws of one covariance for all classes made T 328 for QDA on SST-2's sentences, and priors outvoted the rows."""
    dim, rows = 160, 6000
    y = (rng.uniform(size=rows) < 0.44).astype(np.int64)
    widths = np.where(y[:, None] == 1, np.linspace(0.6, 1.4, dim), np.linspace(1.4, 0.6, dim))
    x = rng.normal(size=(rows, dim)) * widths + 0.12 * y[:, None]
    recipe = recipe_of(dim=dim, classes=2, bits=14, scale=512.0, statistics=("S",))
    gaussians = gaussians_of(recipe, x[:4000], y[:4000])
    head = HEADS["qda"].fit(gaussians)
    scores = head.scores(Features.of(recipe).values(x[4000:]))
    found = calibrate(HEADS["qda"], head, gaussians)
    linear = calibrate(HEADS["lda"], HEADS["lda"].fit(gaussians), gaussians)
    assert found.temperature <= 4.5 * max(linear.temperature, 1.0)
    right = [np.mean(p.argmax(axis=1) == y[4000:]) for p in (scores, found.probabilities(scores))]
    assert right[1] >= right[0] - 0.01
