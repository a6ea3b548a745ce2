"""What the server does with a total, and what prediction costs: every head's fit and scores."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from ratios import Measure
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid
from timing import against

from ghofl import HEADS, Classifier, Encoder, Features, Gaussians, Grid, Layout, Moments, Recipe, Sketch, Total
from ghofl.features import fit_grid
from ghofl.heads import Head, Rule
from ghofl.heads.lda import LDAOptions, fit_lda
from ghofl.heads.qda import fit_qda
from speed import described, made
from speed.made import CLASSES, DIM

TRAINED = ("fisher_mix", "proto_hyper")
LINEAR = ("nearest_mean", "nb", "lda", "ridge", "blend", "fisher_mix", "proto_hyper")
BARE = "one float64 product of 512 × 512 matrices per class"
PROMISED = {"lda": 1.5, "qda": 1.5, "rda": 1.5}  # of scoring against bare products
CLASSIFIERS = ("lda", "qda", "fisher_mix")
EPOCHS = 4  # of the released forty: one is as long as the next


def measures(rng: np.random.Generator) -> Iterator[Measure]:
    """Heads of CIFAR-100's size, every head of a smaller one, and the paper's as loops."""
    yield from _large(rng)
    yield from _all(rng)
    yield from _closed(rng)
    yield from _trained(rng)


def missing() -> str:
    """Why the training loops are left out, or nothing."""
    return "" if find_spec("torch") else "no torch here (pip install torch)"


def _large(rng: np.random.Generator) -> Iterator[Measure]:
    """A hundred classes of 1,280-dimensional rows, without the sums, which sites add up."""
    x, y = rng.random((20_000, 1280), np.float32), rng.integers(100, size=20_000)
    recipe = Recipe(tuple(map(str, range(100))), Encoder(dim=1280), ("S",), grid=Grid(bits=8))
    features = Features.of(fit_grid(recipe, x))
    gaussians = Gaussians.estimate(Moments.of(features.rows(x)[0], y, Layout.of(recipe)), features.unit)
    values, test = features.values(x), features.values(x[:10_000])
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.05)
    yield against(
        "lda",
        "LDA fit and 10,000 predictions from moments, 100 classes, 1280-d",
        lambda: fit_lda(gaussians, LDAOptions(0.05)).predict(test),
        "scikit-learn's LDA on 20,000 rows",
        lambda: model.fit(values, y).predict(test),
        repeats=3,
    )
    del x, values
    head, some = fit_qda(gaussians), test[:256]
    # A whitener's transpose is triangular like a Cholesky factor, in the order of rows that numpy gives one in.
    factors = [np.ascontiguousarray(w.T) for w in head.whiteners]
    yield against(
        "qda_scoring",
        "QDA scores of a row, 256 at a time, 100 classes, 1280-d",
        lambda: head.scores(some),
        "the paper's rule as a loop: a Cholesky solve per class and row",
        lambda: described.quadratic_scores(some[:1], head.means, factors, head.offsets),
        repeats=3,
        rows=len(some),
    )


def _all(rng: np.random.Generator) -> Iterator[Measure]:
    x, y = made.rows(rng)
    values, totals = x[:1000].astype(np.float64), {}
    square, columns = rng.random((DIM, DIM)), rng.random((DIM, CLASSES))
    for name, head in HEADS.items():
        need = head.needs[0]
        if need not in totals:
            recipe = made.recipe(tuple(s for s in need if s != "Z"), Sketch(dim=64) if "Z" in need else None)
            totals[need] = made.total(recipe, x, y)
        fit = _fitting(head, totals[need])
        size = f"{CLASSES} classes, {DIM}-d"
        yield against(
            f"fit_{name}", f"{name} from a total, {size}", fit, *_fit_reference(name, need, x, y, square), repeats=3
        )
        if name in CLASSIFIERS:
            yield against(
                f"classifier_{name}",
                f"classifier of {name} from a total, {size}: calibrated",
                lambda name=name, total=totals[need]: Classifier.fit(total, name),
                "the fit of its head alone",
                fit,
                repeats=3,
            )
        fitted = fit()
        reference = (
            ("one bare float64 product with the class means", lambda: values @ columns)
            if name in LINEAR
            else ("one bare float64 product per class", lambda: [values @ square for _ in range(CLASSES)])
        )
        yield against(
            f"score_{name}",
            f"{name} scores of 1,000 rows",
            lambda fitted=fitted: fitted.scores(values),
            *reference,
            at_most=PROMISED.get(name),
        )


def _fitting(head: Head, total: Total) -> Callable[[], Rule]:
    """A head's fit to a total, from sums to weights, without the calibration of a classifier."""
    features = Features.of(total.recipe)
    return lambda: head.fit(Gaussians.of_total(total, features))


def _fit_reference(
    name: str, need: tuple[str, ...], x: np.ndarray, y: np.ndarray, square: np.ndarray
) -> tuple[str, Callable[[], object]]:
    """What a head's fit is timed against: scikit-learn's on rows where it has one like it, otherwise bare products."""
    if name in TRAINED:
        return "300 steps of two float32 products with 2,048 × 80 rows, and " + BARE, lambda: _steps(square)
    if name == "qda":
        return "scikit-learn's QDA on 12,000 rows", lambda: QuadraticDiscriminantAnalysis(reg_param=0.1).fit(x, y)
    if need == ("B",):
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.05)
        return "scikit-learn's LDA on 12,000 rows", lambda: model.fit(x, y)
    if need == ():
        return "scikit-learn's NearestCentroid on 12,000 rows", lambda: NearestCentroid().fit(x, y)
    if "D" in need:
        return "scikit-learn's GaussianNB on 12,000 rows", lambda: GaussianNB().fit(x, y)
    return BARE, lambda: [square @ square for _ in range(CLASSES)]


def _steps(square: np.ndarray) -> None:
    for _ in range(CLASSES):
        square @ square
    z, w = np.ones((2048, 80), np.float32), np.zeros((80, CLASSES), np.float32)
    for _ in range(300):
        w -= 1e-6 * (z.T @ (z @ w))


def _closed(rng: np.random.Generator) -> Iterator[Measure]:
    """The paper's closed forms, fitted and scored, beside loops over classes (and, for QDA, over rows)."""
    x, y = made.rows(rng)
    sums, values = _described(x, y), rng.normal(size=(1000, DIM))
    for name, statistic, loop, fewer in (
        ("nb", "D", described.naive_bayes, 1),
        ("lda", "B", described.lda, 1),
        ("qda", "S", described.qda, 250),
    ):
        fit = _by_the_paper(HEADS[name], statistic, x, y)
        size = f"{CLASSES} classes, {DIM}-d"
        yield against(
            f"described_fit_{name}",
            f"{name} of the paper from sums, {size}",
            fit,
            "the paper's rule as a loop over classes",
            lambda loop=loop: loop(sums),
            repeats=3,
        )
        fitted, scores, some = fit(), loop(sums), values[: len(values) // fewer]
        over = "classes" if fewer == 1 else "rows and classes"
        yield against(
            f"described_score_{name}",
            f"{name} scores of {len(some):,} rows, 1,000 at a time",
            lambda fitted=fitted: fitted.scores(values),
            f"{len(some):,} rows by the paper's rule, a loop over {over}",
            lambda scores=scores, some=some: scores(some),
            repeats=3,
            rows=fewer,
        )


def _trained(rng: np.random.Generator) -> Iterator[Measure]:
    """The paper's trained heads with its settings, from sums to weights, beside the usual training loop."""
    if why := missing():
        print(f"The paper's training loops: left out, {why}.")
        return
    x, y = made.rows(rng)
    sums = _described(x, y)
    for name, loop in (("fisher_mix", described.train_fisher_mix), ("proto_hyper", described.train_proto_hyper)):
        fit = _by_the_paper(HEADS[name], "S", x, y, epochs=EPOCHS)
        yield against(
            f"described_fit_{name}",
            f"{name} of the paper, {CLASSES} × 4,000 draws, {EPOCHS} of its 40 epochs",
            fit,
            "the same in torch: a DataLoader, a loss, AdamW",
            lambda loop=loop: loop(sums, EPOCHS),
            repeats=3,
            peaks=(fit, None),
        )


def _by_the_paper(head: Head, statistic: str, x: np.ndarray, y: np.ndarray, **more: Any) -> Callable[[], Rule]:
    """A head's fit to exact sums of rows with the paper's settings."""
    recipe = made.recipe((statistic,))
    moments, unit = made.moments(recipe, x, y), Features.of(recipe).unit
    options = head.Options(**{**head.Options.preset("paper"), **more})
    return lambda: head.fit(Gaussians.estimate(moments, unit), options)


def _described(x: np.ndarray, y: np.ndarray) -> described.Sums:
    """The sums of the same rows as the paper's loop adds them up."""
    values = Features.of(made.recipe(("S",))).values(x).astype(np.float32)
    return described.client_statistics(values, y, CLASSES)
