"""What every head promises, checked for every head, and for the new one of the how-to page."""

import inspect
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exported_heads import session_of
from federations import blobs, recipe_of, sketched_recipe, total_of
from ghofl import HEADS, Classifier, HeadSpec, Sketch
from ghofl.errors import (
    CalibrationWarning,
    EmptyClassWarning,
    HeadError,
    MissingStatisticError,
    NotPositiveDefiniteError,
)
from ghofl.moments import Layout

NAMES = sorted(HEADS)


def recipe_for(name, **overrides):
    need = HeadSpec.of(name).needs[0] or ("B",)  # means alone are enough for some, but probabilities need a spread
    if "Z" in need:
        return sketched_recipe(**overrides)
    return recipe_of(statistics=need, **overrides)


def fitted(name, x, y, sites=1, **overrides) -> Classifier:
    return Classifier.fit(total_of(recipe_for(name, **overrides), x, y, sites), name)


@pytest.mark.parametrize("name", NAMES)
def test_scores_of_a_row_do_not_depend_on_other_rows(name, rng):
    """To rounding: a BLAS may add in another order for another batch size."""
    x, y = blobs(rng)
    head = fitted(name, x, y)
    alone = np.concatenate([head.scores(x[i : i + 1]) for i in range(20)])
    assert alone == pytest.approx(head.scores(x)[:20], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_a_class_nobody_has_is_never_predicted_and_nothing_is_nan(name, rng):
    """Class seen by no client: score −inf, probability 0, never NaN."""
    x, y = blobs(rng)
    with pytest.warns(EmptyClassWarning, match="2 classes have no row .* never be predicted: 'class 4', 'class 5'"):
        head = fitted(name, x, y, classes=6)
    scores, probabilities = head.scores(x), head.predict_proba(x)
    assert np.all(scores[:, 4:] == -np.inf)
    assert np.isfinite(scores[:, :4]).all()
    assert not probabilities[:, 4:].any()
    assert head.predict_numbers(x).max() < 4


@pytest.mark.parametrize("name", NAMES)
def test_a_class_with_one_row_works(name, rng):
    x, y = blobs(rng)
    keep = (y != 3) | (np.arange(len(y)) == np.flatnonzero(y == 3)[0])
    scores = fitted(name, x[keep], y[keep]).scores(x)
    assert np.isfinite(scores).all()


TOTALS = [(), ("D",), ("B",), ("S",)]


def totals_of_one_row_per_class(name, dim, rng):
    """Such totals of all statistics that the head can be built from, with their rows."""
    x, y = rng.normal(size=(8, dim)), np.arange(8)
    for statistics in TOTALS:
        sketch = {"sketch": Sketch(dim=3)} if "B" in statistics else {}
        recipe = recipe_of(dim=dim, classes=8, statistics=statistics, **sketch)
        if HeadSpec.of(name).is_possible(Layout.of(recipe), recipe):
            yield total_of(recipe, x, y), x, y


@pytest.mark.parametrize("dim", [6, 200])
@pytest.mark.parametrize("name", NAMES)
def test_one_row_of_each_class_is_enough_for_every_head(name, dim, rng):
    """Nothing tells how rows of a class vary, so probabilities are not calibrated, and that is told."""
    for total, x, y in totals_of_one_row_per_class(name, dim, rng):
        told: list[Warning] = []
        head = Classifier.fit(total, name, told.append)
        assert np.isfinite(head.scores(x)).all()
        assert np.mean(head.predict_numbers(x) == y) > 0.8
        assert head.predict_proba(x).sum(axis=1) == pytest.approx(np.ones(8))
        assert head.temperature == 1.0
        assert [type(w) for w in told] == [CalibrationWarning]


@pytest.mark.parametrize("name", ["nearest_mean", "ridge"])
def test_a_head_that_cannot_be_calibrated_says_so(name, rng):
    """Of counts and sums alone it said nothing, and probabilities were the softmax of cosines, near 1/C."""
    with pytest.warns(CalibrationWarning, match=f"probabilities of head '{name}' are not calibrated"):
        Classifier.fit(total_of(recipe_of(), rng.normal(size=(4, 6)), np.arange(4)), name)
    if name == "nearest_mean":
        with pytest.warns(CalibrationWarning, match="holds none of the statistics D, B and S"):
            Classifier.fit(total_of(recipe_of(statistics=()), *blobs(rng)), name)


@pytest.mark.parametrize("name", NAMES)
def test_a_single_row_in_all_makes_a_head_or_an_error_of_ghofl(name, rng):
    x, y = rng.normal(size=(1, 6)), np.zeros(1, dtype=np.int64)
    told: list[Warning] = []
    try:
        head = Classifier.fit(total_of(recipe_for(name), x, y), name, told.append)
    except (HeadError, NotPositiveDefiniteError):
        return
    assert head.predict_numbers(x) == 0
    assert EmptyClassWarning in map(type, told)


@pytest.mark.parametrize("name", NAMES)
def test_heads_are_compared_by_their_values(name, rng):
    x, y = blobs(rng)
    one, same, other = fitted(name, x, y), fitted(name, x, y, 3), fitted(name, x[:-9], y[:-9])
    assert one.rule == same.rule
    assert replace(one, sites=3) == same
    assert one.rule != other.rule
    assert one != other
    assert one != replace(one, calibration=replace(one.calibration, temperature=2.0))
    for stranger in (None, 3, "lda", one.rule.arrays(), HeadSpec.of(name), one.recipe):
        assert (one.rule == stranger) is False
        assert (one == stranger) is False


@pytest.mark.parametrize("name", NAMES)
def test_fewer_rows_than_dimensions_work_with_default_options(name, rng):
    x, y = blobs(rng, rows=40, dim=30)
    head = fitted(name, x, y, dim=30)
    assert np.isfinite(head.scores(x)).all()
    assert np.mean(head.predict_numbers(x) == y) > 0.6


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_feature_is_harmless(name, rng):
    x, y = blobs(rng, spread=8.0)
    x[:, 2] = 1.0
    head = fitted(name, x, y)
    assert np.isfinite(head.scores(x)).all()
    assert np.mean(head.predict_numbers(x) == y) > 0.8


@pytest.mark.parametrize("name", NAMES)
def test_probabilities_are_probabilities_and_agree_with_the_prediction(name, rng):
    x, y = blobs(rng)
    head = fitted(name, x, y)
    probabilities = head.predict_proba(x)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(len(x)))
    assert np.all(probabilities >= 0)
    assert np.array_equal(probabilities.argmax(axis=1), head.predict_numbers(x))
    even = np.concatenate([np.flatnonzero(y == c)[:60] for c in range(4)])
    alike = fitted(name, x[even], y[even])  # where classes are equally common, the largest score decides
    assert np.array_equal(alike.scores(x).argmax(axis=1), alike.predict_numbers(x))


@pytest.mark.parametrize("name", NAMES)
def test_scaling_all_embeddings_and_the_grid_changes_no_prediction(name, rng):
    """Heads know no absolute size (naive Bayes' floor apart, which these rows do not reach)."""
    x, y = blobs(rng)
    small, large = fitted(name, x, y, scale=32.0), fitted(name, x * 16, y, scale=2.0)
    assert np.array_equal(small.predict_numbers(x), large.predict_numbers(x * 16))


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_give_no_predictions(name, rng):
    x, y = blobs(rng)
    assert fitted(name, x, y).predict_numbers(x[:0]).shape == (0,)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::ghofl.errors.CalibrationWarning")  # of means alone
def test_every_alternative_in_needs_is_enough(name, rng):
    x, y = blobs(rng, spread=8.0)
    predictions = []
    for need in HeadSpec.of(name).needs:
        recipe = sketched_recipe() if "Z" in need else recipe_of(statistics=need)
        assert HeadSpec.of(name).is_possible(Layout.of(recipe), recipe)
        predictions.append(Classifier.fit(total_of(recipe, x, y), name).predict_numbers(x))
    assert all(np.mean(p == y) > 0.8 for p in predictions)


@pytest.mark.parametrize("name", [name for name in NAMES if HEADS[name].needs != ((),)])
def test_a_missing_statistic_stops_the_fit_and_names_the_recipe(name, rng):
    x, y = blobs(rng)
    with pytest.raises(
        MissingStatisticError, match=rf"head '{HeadSpec.of(name).name}' needs .* Possible from it: nearest_mean"
    ):
        Classifier.fit(total_of(recipe_of(statistics=()), x, y), name)


SPECS = [
    *NAMES, "best", "blend(parts=nearest_mean+student)", "blend(parts=lda+z.student)", "blend(parts=z.lda+z.qda+ridge)",
    "sketched_qda(dof=0)", "proto_hyper(base=qda, steps=20)", "proto_hyper(base=nb, steps=20)",
]  # fmt: skip


def uneven(rng, present, rows=160, dim=6):
    """Rows of some classes, each half as common as the one before it, with twelve of the rarest at least."""
    y = np.repeat(np.arange(present), [max(12, rows >> c + 1) for c in range(present)])
    return rng.normal(size=(len(y), dim)) + 1.2 * rng.normal(size=(present, dim))[y], y


def classifiers_of(spec, present, rng):
    """The classifier of one site's rows, that of many sites', and with other priors and thresholds in force; two classes
    have no rows."""
    x, y = uneven(rng, present)
    recipe = recipe_of(classes=present + 2, statistics=("S",), sketch=Sketch(dim=3))
    order = rng.permutation(len(y))
    one, many = (
        Classifier.fit(total_of(recipe, x[rows], y[rows], sites), spec, lambda _: None)
        for rows, sites in ((slice(None), 1), (order, 5))
    )
    priors = one.with_priors([1.0 + c % 3 for c in range(present + 2)])
    some, every = ({f"class {c}": 0.6 for c in range(n)} for n in (1, present + 2))
    return x, one, many, [one, priors.with_thresholds(some), one.with_thresholds(every)]


@pytest.mark.parametrize("present", [1, 2, 3, 9])
@pytest.mark.parametrize("name", SPECS)
def test_a_head_of_any_number_of_classes_predicts_the_same_when_split_saved_and_exported(name, present, rng, tmp_path):
    """ONNX once standardised the scores of a blend of two classes, and a file forgot thresholds and priors in force."""
    pytest.importorskip("onnxruntime")
    model = pytest.importorskip("ghofl.export.model")
    x, one, many, in_use = classifiers_of(name, present, rng)
    assert one.scores(x).tobytes() == many.scores(x).tobytes()
    assert not np.isnan(one.scores(x)).any()
    assert one.predict_numbers(x).max() < present
    for classifier in in_use:
        classifier.save(tmp_path / "head")
        again = Classifier.load(tmp_path / "head")
        assert again == classifier
        assert np.array_equal(again.predict_proba(x), classifier.predict_proba(x))
        session = session_of(model.export_head(again))
        floats = x.astype(np.float32)
        label, probabilities, *_ = session.run(None, {"embeddings": floats})
        assert np.abs(probabilities - classifier.predict_proba(floats)).max() < 1e-7
        assert np.array_equal(label, classifier.predict(floats))
        assert np.array_equal(again.predict(x), classifier.predict(x))


@pytest.mark.parametrize("name", NAMES)
def test_the_prediction_is_the_most_probable_class_through_every_door(name, rng):
    """Where classes are uneven, calibration moves some rows to another class than that of the largest score."""
    from ghofl.sklearn import GaussianHeadClassifier

    x, y = uneven(rng, 4)
    statistics = {"sketch": Sketch(dim=3)} if "Z" in HeadSpec.of(name).needs[0] else {}
    head = Classifier.fit(total_of(recipe_of(statistics=("S",), **statistics), x, y), name)
    assert np.array_equal(head.predict_numbers(x), head.predict_proba(x).argmax(axis=1))
    if not statistics:
        model = GaussianHeadClassifier(name).fit(x, y)
        assert np.array_equal(model.predict(x), model.predict_proba(x).argmax(axis=1))
        assert np.array_equal(model.predict(x), model.decision_function(x).argmax(axis=1))


PAGE = Path(__file__).parents[2] / "docs" / "how-to-new-head.md"
OF_HEADS_WITHOUT_COVARIANCE = "test_a_head_that_cannot_be_calibrated_says_so"
PROMISES = [
    test
    for title, test in sorted(globals().items())
    if title.startswith("test_") and title != OF_HEADS_WITHOUT_COVARIANCE
    if "name" in inspect.signature(test).parameters
]


@pytest.fixture
def new_head():
    """The head of the page."""
    code, *_ = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict = {"__name__": "diagonal_lda"}
    exec(compile(code, PAGE.name, "exec"), names)
    return names["DIAGONAL_LDA"]


@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not beside the tests")
@pytest.mark.parametrize("promise", PROMISES, ids=lambda test: test.__name__)
def test_the_head_of_the_how_to_page_keeps_every_promise(promise, new_head, rng, tmp_path):
    at_hand = {"name": new_head, "rng": rng, "tmp_path": tmp_path, "dim": 6, "present": 2}
    promise(**{wanted: at_hand[wanted] for wanted in inspect.signature(promise).parameters})
