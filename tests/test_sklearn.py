"""The scikit-learn face: its own checks, the laws of merging and forgetting, and LDA and QDA as oracles."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from ghofl.errors import GhoflError
from ghofl.sklearn import GaussianHeadClassifier

CHECKS = [
    pytest.param(estimator, check, id=f"{head}-{check.func.__name__}-{i}")
    for head in ("lda", "qda", "best")
    for i, (estimator, check) in enumerate(estimator_checks_generator(GaussianHeadClassifier(head)))
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS)
@pytest.mark.filterwarnings("ignore")  # the checks feed constant columns and single rows on purpose
def test_it_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)


def model(head="lda", **options):
    return GaussianHeadClassifier(head, center=5.0, scale=5.0, remember=True, **options)


@pytest.mark.parametrize("head", ["lda", "qda", "nb", "rda", "ridge", "best", "nearest_mean"])
def test_rows_in_any_batches_and_order_give_the_moments_of_one_fit(head, rng):
    x, y = load_iris(return_X_y=True)
    order = rng.permutation(len(y))
    whole, parts = model(head).fit(x, y), model(head)
    for rows in np.array_split(order, 7):
        parts.partial_fit(x[rows], y[rows], classes=[0, 1, 2])
    assert parts.moments_ == whole.moments_
    assert np.array_equal(parts.decision_function(x), whole.decision_function(x))


def test_merged_estimators_are_the_one_that_saw_all_rows(rng):
    x, y = load_wine(return_X_y=True)
    grid = {"center": x.mean(axis=0), "scale": x.std(axis=0)}
    sites = [GaussianHeadClassifier("qda", **grid).partial_fit(x[i::3], y[i::3], classes=[0, 1, 2]) for i in range(3)]
    assert sites[0].merge(sites[1]).merge(sites[2]).moments_ == GaussianHeadClassifier("qda", **grid).fit(x, y).moments_


def test_forgetting_rows_gives_the_estimator_that_never_saw_them():
    x, y = load_iris(return_X_y=True)
    kept = model("qda").fit(x[:130], y[:130])
    assert model("qda").fit(x, y).forget(x[130:], y[130:]).moments_ == kept.moments_


def test_rows_that_were_never_learned_cannot_be_forgotten():
    x, y = load_iris(return_X_y=True)
    with pytest.raises(GhoflError, match="never learned"):
        model().fit(x[:110], y[:110]).forget(x, y)


@pytest.mark.parametrize("door", ["fit", "partial_fit", "merge"])
def test_only_the_very_rows_that_were_learned_are_forgotten(door):
    """Rows of a class that had enough of them were taken out, although nobody had learned them."""
    x, y = load_iris(return_X_y=True)
    learned = (
        model().fit(x[::2], y[::2]) if door == "fit" else model().partial_fit(x[:50:2], y[:50:2], classes=[0, 1, 2])
    )
    if door == "partial_fit":
        learned.partial_fit(x[50::2], y[50::2])
    elif door == "merge":
        learned.merge(model().partial_fit(x[50::2], y[50::2], classes=[0, 1, 2]))
        with pytest.raises(GhoflError, match="never learned"):
            learned.forget(x[50:51], y[50:51])  # only the other one knows it
    before = learned.moments_
    for rows, labels in (
        (x[::2][:1] + 0.1, y[:1]),  # another row
        (x[:1], y[:1] + 1),  # another label
        (np.repeat(x[:1], 3, axis=0), np.repeat(y[:1], 3)),  # more often than it was learned
    ):
        with pytest.raises(GhoflError, match="never learned"):
            learned.forget(rows, labels)
        assert learned.moments_ == before
    assert learned.forget(x[:1], y[:1].astype(float)).moments_.rows == 74
    with pytest.raises(GhoflError, match="forgotten before"):
        learned.forget(x[:1], y[:1])


def test_a_pickle_does_not_tell_learned_rows_from_others():
    """It held an unsalted digest of every row and label, so that whoever had it could try rows."""
    x, y = load_iris(return_X_y=True)
    known, unknown = model().fit(x[:130], y[:130]), model(head="lda").fit(x[:130], y[:130])
    unknown._learned = None
    assert pickle.dumps(known) == pickle.dumps(unknown)
    with pytest.raises(GhoflError, match="remember=True"):
        copy.deepcopy(known).forget(x[:1], y[:1])
    with pytest.raises(GhoflError, match="remember=True"):
        GaussianHeadClassifier("lda").fit(x, y).forget(x[:1], y[:1])
    assert known.forget(x[:1], y[:1]).moments_.rows == 129  # pickling it has not made it forget


def test_more_than_a_million_rows_are_no_matter():
    x, y = np.array([[0.0], [0.5], [3.0], [4.0]] * 2), np.array([0, 0, 1, 1] * 2)
    learned = GaussianHeadClassifier("lda", center=2.0, scale=2.0).fit(x, y)
    for _ in range(18):
        learned.merge(learned)
    assert learned.moments_.rows == 8 * 2**18
    assert learned.predict(x).tolist() == y.tolist()


def test_what_does_not_fit_together_is_not_merged():
    x, y = load_iris(return_X_y=True)
    with pytest.raises(GhoflError, match="same center and scale"):
        model().fit(x, y).merge(GaussianHeadClassifier("lda").fit(x, y))
    with pytest.raises(GhoflError, match="head or bits"):
        model().fit(x, y).merge(model(bits=8).fit(x, y))
    with pytest.raises(GhoflError, match="give both estimators the same `classes`"):
        model().fit(x, y).merge(model().fit(x[:100], y[:100]))
    with pytest.raises(GhoflError, match="label 9 is not one of the classes"):
        model().fit(x, y).partial_fit(x[:1], [9])


@pytest.mark.parametrize(
    ("load", "head", "oracle"),
    [
        (load_iris, "lda(shrinkage=0)", LinearDiscriminantAnalysis()),
        (load_wine, "lda(shrinkage=0)", LinearDiscriminantAnalysis()),
        (load_breast_cancer, "lda(shrinkage=0)", LinearDiscriminantAnalysis()),
        (load_iris, "qda(shrinkage=0)", QuadraticDiscriminantAnalysis()),
        (load_wine, "qda(shrinkage=0)", QuadraticDiscriminantAnalysis()),  # breast cancer's columns are collinear
    ],
)
def test_it_scores_and_predicts_as_scikit_learn_does(load, head, oracle):
    """The grid of 16 bits moves a row by less than 2⁻¹² of a feature's size, which few margins are smaller than."""
    x, y = load(return_X_y=True)
    train, test, labels, _ = train_test_split(x, y, test_size=0.4, random_state=0, stratify=y)
    ours = make_pipeline(StandardScaler(), GaussianHeadClassifier(head)).fit(train, labels)
    theirs = make_pipeline(StandardScaler(), clone(oracle)).fit(train, labels)
    scores = ours[-1].classifier_.scores(
        ours[-1]._rows(ours[0].transform(test))
    )  # calibration moves rows at the margins
    assert (scores.argmax(axis=1) == theirs.predict(test)).mean() >= 0.99
    assert (ours.predict(test) == theirs.predict(test)).mean() >= 0.98


def test_options_of_heads_are_parameters_that_a_search_walks_over():
    x, y = load_iris(return_X_y=True)
    grid = {"blend": np.linspace(0.1, 0.9, 3), "shrinkage": [None, 0.05]}
    search = GridSearchCV(GaussianHeadClassifier("rda"), grid, cv=3).fit(x, y)
    assert len(search.cv_results_["params"]) == 6
    assert search.best_score_ > 0.95
    spelled = GaussianHeadClassifier("rda(blend=0.5)").fit(x, y)
    given = clone(GaussianHeadClassifier("rda", blend=0.5)).fit(x, y)
    assert np.array_equal(spelled.predict_proba(x), given.predict_proba(x))
    ranks = GaussianHeadClassifier("low_rank_qda").set_params(rank=np.int64(1)).fit(x, y)
    assert "low_rank_qda(rank=1)" in repr(ranks.classifier_)


def test_every_option_of_every_head_is_a_parameter():
    from ghofl.heads import HEADS

    names = set(GaussianHeadClassifier().get_params())
    assert names == {"head", "bits", "center", "scale", "novelty", "remember"} | {
        n for h in HEADS.values() for n in h.Options.known()
    }


def test_an_option_that_the_head_does_not_have_is_named():
    x, y = load_iris(return_X_y=True)
    with pytest.raises(GhoflError, match="head 'lda' has no option 'blend'"):
        GaussianHeadClassifier("lda", blend=0.5).fit(x, y)
    with pytest.raises(GhoflError, match="'best' takes no options, and blend came"):
        GaussianHeadClassifier(blend=0.5).fit(x, y)
    with pytest.raises(GhoflError, match="no head has an option 'blnd'"):
        GaussianHeadClassifier("rda", blnd=0.5)
