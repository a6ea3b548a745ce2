"""Probabilities against scikit-learn's: balanced data, 1.5 % positives, few rows per class.

    python benchmarks/run.py probabilities

Log loss, Brier score (of two classes, the squared error of one, as in scikit-learn), expected calibration error and
accuracy on test rows, by the same code for everybody. Ours see one total; `softmax of scores` is the same LDA without
calibration. scikit-learn sees the rows: LDA shrunk by Ledoit and Wolf, QDA likewise (up to 64 dimensions, with more
than two rows per class), and logistic regression on standardised rows. Nothing is chosen on test rows.
"""

import warnings
from collections.abc import Callable, Iterator

import data
import few_shots
import numpy as np
import scipy.special

from ghofl import Classifier, HeadSpec, Recipe
from ghofl.evaluation import Metrics
from ghofl.simulation.simulate import Dataset, recipe_for, simulate

SHARE = 0.015
TEST_ROWS = 2000
NARROW = 64
OURS = ("lda", "rda", "best")
MEASURES = ("accuracy", "log_loss", "brier", "ece")


def run() -> list[dict]:
    """Every case and every method."""
    return data.collected(results())


def results() -> Iterator[dict]:
    """One row per case and method."""
    for (kind, name), make in cases().items():
        try:
            rows = make()
        except FileNotFoundError as error:
            print(f"{kind}, {name}: left out, {error}")
            continue
        yield from of_ours(kind, name, rows)
        for method, found in theirs(rows):
            yield {**_told(kind, name, rows), "method": method, **measured(found, rows)}


def of_ours(kind: str, name: str, rows: Dataset) -> Iterator[dict]:
    """The rows of our own methods."""
    recipe = recipe_of(rows)
    for method, found in ours(rows, recipe):
        yield {**_told(kind, name, rows), "method": method, **measured(found, rows), "recipe": recipe.fingerprint}


def _told(kind: str, name: str, rows: Dataset) -> dict:
    return {"kind": kind, "data": name, "train_rows": len(rows.y_train), "test_rows": len(rows.y_test)}


def measured(probabilities: np.ndarray, rows: Dataset) -> dict[str, float]:
    """How good probabilities of the test rows are."""
    found = Metrics.of(probabilities, rows.y_test).to_dict()
    return {m: round(float(found[m]), 5) for m in MEASURES}


def recipe_of(rows: Dataset) -> Recipe:
    """The recipe that these rows are counted by."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return recipe_for(rows, [HeadSpec("rda")], bits=10)


def cases() -> dict[tuple[str, str], Callable[[], Dataset]]:
    """Data by kind and name, made when it is asked for."""

    def of(name: str, per_class: int | None) -> Callable[[], Dataset]:
        return lambda: few_shots.some_of(few_shots.arrays_of(name), per_class, TEST_ROWS, 0)

    return {
        ("balanced", "digits"): of("digits", None),
        ("balanced", "CIFAR-10, 500 per class"): of("cifar10", 500),
        ("balanced", "BANKING77"): of("banking77", None),
        ("1.5 % positives", "two Gaussians, 8-d"): two_gaussians,
        ("1.5 % positives", "CIFAR-10, cats among others"): rare_cats,
        ("few rows", "digits, 2 per class"): of("digits", 2),
        ("few rows", "digits, 8 per class"): of("digits", 8),
        ("few rows", "CIFAR-10, 8 per class"): of("cifar10", 8),
        ("few rows", "BANKING77, 8 per class"): of("banking77", 8),
    }


def two_gaussians() -> Dataset:
    """Rows of two Gaussians with one covariance, few of them of the second class."""
    rng, dim = np.random.default_rng(0), 8
    mixing = rng.normal(size=(dim, dim)) / 4 + np.eye(dim)
    y = (rng.uniform(size=24_000) < SHARE).astype(np.int64)
    x = rng.normal(size=(len(y), dim)) @ mixing + y[:, None] * np.linspace(-1, 1, dim)
    return Dataset(x[:4000], y[:4000], x[4000:], y[4000:], ("often", "rare"))


def rare_cats() -> Dataset:
    """CIFAR-10's cats as 1.5 % of rows, among rows of all other classes, in training and in test rows."""
    whole, rng = few_shots.arrays_of("cifar10"), np.random.default_rng(0)

    def some(y: np.ndarray, count: int) -> np.ndarray:
        cats, others = (rng.permutation(np.flatnonzero(is_one)) for is_one in (y == 3, y != 3))
        rare = round(SHARE * count)
        return np.concatenate([cats[:rare], others[: count - rare]])

    train, test = some(whole.y_train, 10_000), some(whole.y_test, 6000)
    labels = [(y == 3).astype(np.int64) for y in (whole.y_train[train], whole.y_test[test])]
    return Dataset(whole.x_train[train], labels[0], whole.x_test[test], labels[1], ("other", "cat"))


def ours(rows: Dataset, recipe: Recipe) -> Iterator[tuple[str, np.ndarray]]:
    """Our heads of one total with class covariances."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        total = simulate(rows, [np.arange(len(rows.y_train))], recipe, {}).total
        for name in OURS:
            classifier = Classifier.fit(total, name)
            if name == "lda":
                yield "ghofl lda, softmax of scores", scipy.special.softmax(classifier.scores(rows.x_test), axis=1)
            yield f"ghofl {name}", classifier.predict_proba(rows.x_test)


def theirs(rows: Dataset) -> Iterator[tuple[str, np.ndarray]]:
    """scikit-learn's classifiers of the rows."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    methods = {"scikit-learn LDA": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")}
    if rows.x_train.shape[1] <= NARROW and np.bincount(rows.y_train).min() > 2:
        methods["scikit-learn QDA"] = QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto")
    methods["scikit-learn LogisticRegression"] = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    for name, model in methods.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model.fit(rows.x_train, rows.y_train)
            except np.linalg.LinAlgError as error:
                print(f"{name}: left out, {error}")
                continue
        yield name, np.asarray(model.predict_proba(rows.x_test), dtype=np.float64)


def table(result: list[dict]) -> str:
    """One table per kind of data."""
    parts = []
    for kind in dict.fromkeys(row["kind"] for row in result):
        lines = [
            f"### {kind}\n",
            "| data | training rows | method | accuracy % | log loss | Brier | ECE % |",
            "|---|---:|---|---:|---:|---:|---:|",
        ]
        lines += [
            f"| {r['data']} | {r['train_rows']:,} | {r['method']} | {100 * r['accuracy']:.2f} | {r['log_loss']:.4f} | "
            f"{r['brier']:.4f} | {100 * r['ece']:.1f} |"
            for r in result
            if r["kind"] == kind
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
