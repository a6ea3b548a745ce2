"""Speed as ratios within one run on one machine; the machine's float rates stand beside them."""

import time

import data
import numpy as np
import scipy.linalg
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from ghofl import Encoder, Features, Gaussians, Grid, Layout, Moments, Recipe
from ghofl.features import calibrated
from ghofl.heads import LDA, QDA


def run() -> dict:
    """All ratios, on CIFAR-100 where it is at hand, otherwise on random rows of the same shape."""
    x, y, x_test = _rows()
    recipe = Recipe(tuple(map(str, range(100))), Encoder(dim=1280), ("S",), grid=Grid(bits=8))
    features = Features.of(calibrated(recipe, x))
    q, _ = features.rows(x)
    layout = Layout.of(recipe)
    results = {"float32_gflops": _rate(np.float32), "float64_gflops": _rate(np.float64)}
    ours = min(_timed(lambda: Moments.of(q, y, layout)) for _ in range(3))
    bare = min(_timed(lambda: _bare_products(q, y)) for _ in range(3))
    results["statistics"] = {"ours_s": ours, "bare_float64_products_s": bare, "ratio": ours / bare}
    gaussians = Gaussians.estimate(Moments.of(q, y, layout), features.unit)
    values = features.values(x_test)
    results["qda_scoring"] = _scoring(QDA.fit(gaussians), values)
    results["lda"] = _lda(gaussians, features.values(x), y, values)
    return results


def _rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if data.is_there():
        arrays = data.embeddings("cifar100")
        return arrays["x_train"], arrays["y_train"], arrays["x_test"]
    rng = np.random.default_rng(0)
    return (
        rng.random((50_000, 1280), np.float32),
        rng.integers(100, size=50_000),
        rng.random((10_000, 1280), np.float32),
    )


def _bare_products(q: np.ndarray, y: np.ndarray) -> None:
    """The least that float64 statistics cost: rows sorted by class, one product a class, nothing kept."""
    order = np.argsort(y, kind="stable")
    for part in np.split(q[order].astype(np.float64), np.searchsorted(y[order], np.arange(1, 100))):
        part.T @ part


def _scoring(head: QDA, x: np.ndarray) -> dict:
    ours = _timed(lambda: head.scores(x)) / len(x)
    factors = [np.linalg.inv(w.T) for w in head.whiteners]  # the Cholesky factors, computed beforehand

    def one_sample(row: np.ndarray) -> None:
        for mean, factor in zip(head.means, factors, strict=True):
            shifted = row - mean
            shifted @ scipy.linalg.cho_solve((factor, True), shifted, check_finite=False)

    theirs = np.median([_timed(lambda row=row: one_sample(row)) for row in x[:5]])
    return {"ours_ms": 1000 * ours, "solve_a_class_and_sample_ms": 1000 * float(theirs), "ratio": float(theirs) / ours}


def _lda(gaussians: Gaussians, train: np.ndarray, y: np.ndarray, test: np.ndarray) -> dict:
    ours = min(_timed(lambda: LDA.fit(gaussians, LDA.Options(0.05)).predict(test)) for _ in range(3))
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.05)
    theirs = _timed(lambda: model.fit(train, y).predict(test))
    return {"ours_from_moments_s": ours, "scikit_learn_from_rows_s": theirs, "ratio": theirs / ours}


def _rate(dtype: type) -> float:
    a = np.ones((2048, 2048), dtype)
    return 2 * 2048**3 / min(_timed(lambda: a @ a) for _ in range(5)) / 1e9


def _timed(call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def table(r: dict) -> str:
    """The results as Markdown."""
    s, q, lda = r["statistics"], r["qda_scoring"], r["lda"]
    return "\n".join(
        [
            f"Products on this machine: {r['float32_gflops']:.0f} GFLOP/s float32, {r['float64_gflops']:.0f} float64.\n",
            "| what | ours | the other | ratio |",
            "|---|---:|---:|---:|",
            f"| S of 50,000 × 1280 rows, 100 classes, against bare float64 products | {s['ours_s']:.2f} s "
            f"| {s['bare_float64_products_s']:.2f} s | {s['ratio']:.2f} × its time |",
            f"| QDA scores of a row, 100 classes, against a Cholesky solve a class and row | {q['ours_ms']:.2f} ms "
            f"| {q['solve_a_class_and_sample_ms']:.0f} ms | {q['ratio']:.0f} × faster |",
            f"| LDA fit and predict from moments, against scikit-learn on rows | {lda['ours_from_moments_s']:.2f} s "
            f"| {lda['scikit_learn_from_rows_s']:.2f} s | {lda['ratio']:.0f} × faster |",
        ]
    )
