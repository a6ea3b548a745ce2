"""Probabilities of heads that draws cannot judge: those of class covariances, and standardised ones of many classes."""

import numpy as np

import ghofl
from federations import recipe_of, total_of
from ghofl import Classifier, Features, Gaussians
from ghofl.heads.dispersion import wideness
from ghofl.heads.doubt import DOUBT, LEAST, doubt, least_temperature
from ghofl.heads.lda import fit_lda
from ghofl.heads.student import fit_student
from ghofl.recipe import Sketch

DIM, CLASSES = 192, 4


def rows_of(rng, rows, tilt):
    """Rows of four classes; `tilt` is how differently they vary."""
    y = rng.integers(0, CLASSES, rows)
    spread = np.exp(tilt * np.random.default_rng(1).standard_normal((CLASSES, DIM)))
    means = 0.25 * np.random.default_rng(2).standard_normal((CLASSES, DIM))
    return means[y] + spread[y] * rng.standard_normal((rows, DIM)), y


def gaussians_of(rng, tilt, sketch=None):
    recipe = recipe_of(dim=DIM, classes=CLASSES, statistics=("S",) if sketch is None else ("B",), sketch=sketch)
    return Gaussians.of_total(total_of(recipe, *rows_of(rng, 6000, tilt)), Features.of(recipe))


def test_where_classes_share_a_covariance_there_is_little_doubt():
    found = gaussians_of(np.random.default_rng(0), 0.0)
    assert DOUBT ** wideness(DIM) <= doubt(fit_student(found), fit_lda(found), found) < 1.3


def test_doubt_grows_with_how_differently_classes_vary():
    found = [gaussians_of(np.random.default_rng(0), tilt) for tilt in (0.1, 0.3, 0.6)]
    ratios = [doubt(fit_student(one), fit_lda(one), one) for one in found]
    assert ratios == sorted(ratios)
    assert ratios[-1] > 1.5 * ratios[0]


def test_a_sketch_shows_it_too():
    sketch = Sketch(dim=96)
    found = [gaussians_of(np.random.default_rng(0), tilt, sketch) for tilt in (0.0, 0.6)]
    even, uneven = (doubt(ghofl.HEADS["hedge"].fit(one), fit_lda(one), one) for one in found)
    assert even < DOUBT < uneven


def test_rows_of_uneven_length_leave_probabilities_of_class_covariances_as_good_as_those_of_lda():
    """Such rows are what networks give; quadratic scores of them are far apart, right or wrong."""
    rng, means = np.random.default_rng(0), 0.05 * np.random.default_rng(2).standard_normal((2, 384))

    def rows(count):
        y = rng.integers(0, 2, count)
        length = np.exp(0.8 * rng.standard_normal((count, 1)))
        return means[y] + length * spread[y] * rng.standard_normal((count, 384)), y

    spread = np.exp(0.05 * np.random.default_rng(1).standard_normal((2, 384)))
    total, (x, y) = total_of(recipe_of(dim=384, classes=2, statistics=("S",)), *rows(4000)), rows(2000)
    losses = {}
    for head in ("lda", "best", "student"):
        found = Classifier.fit(total, head).predict_proba(x)
        losses[head] = -np.log(np.maximum(found[np.arange(len(y)), y], 1e-12)).mean()
    assert max(losses["best"], losses["student"]) < 1.1 * losses["lda"], losses


def test_standardised_scores_of_classes_that_draws_all_tell_apart_keep_a_temperature():
    """Seventy classes in 512 dimensions: on draws every prediction is right, which says nothing about real rows."""
    rng = np.random.default_rng(0)
    means = rng.standard_normal((70, 512))
    y = np.repeat(np.arange(70), 12)
    total = total_of(recipe_of(dim=512, classes=70, statistics=("B",)), means[y] + rng.standard_normal((840, 512)), y)
    found = Classifier.fit(total, "blend")
    assert found.calibration.temperature >= LEAST
    x = means[y] + 3.0 * rng.standard_normal((840, 512))
    assert (found.predict_numbers(x) == found.scores(x).argmax(axis=1)).mean() > 0.99


def test_up_to_128_dimensions_no_temperature_is_raised():
    assert least_temperature(Gaussians(np.full(3, 100.0), np.zeros((3, 128)))) == 0
