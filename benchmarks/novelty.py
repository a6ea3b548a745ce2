"""Rows that are none of the classes: area under the ROC curve of three scores, of rows of the classes against others.

    python benchmarks/run.py novelty

The total is that of a set's training rows (square roots of CIFAR features); the score is the library's relative
Mahalanobis distance, beside the plain one and one minus the largest probability, all of the same total. CLINC150's
own out-of-scope test rows are the text benchmark. `Turned away` is what `--reject 0.05` does before any calibration.
"""

import warnings
from collections.abc import Iterator

import data
import few_shots
import numpy as np
import scipy.linalg
import text
from scipy.stats import rankdata

from ghofl import Classifier, Gaussians, HeadSpec
from ghofl.simulation.simulate import Dataset, recipe_for, simulate

PAIRS = (
    ("clinc150", "out of scope"), ("banking77", "clinc150"), ("clinc150", "banking77"), ("cifar10", "cifar100"),
    ("cifar100", "cifar10"),
)  # fmt: skip
RATE = 0.05


def run() -> list[dict]:
    """Every pair of sets."""
    return data.collected(results())


def results() -> Iterator[dict]:
    """One row per pair."""
    for inside, outside in PAIRS:
        try:
            rows, others = few_shots.arrays_of(inside), outside_rows(outside)
        except FileNotFoundError as error:
            print(f"{inside} against {outside}: left out, {error}")
            continue
        yield {"inside": inside, "outside": outside, **measured(rows, others)}


def outside_rows(name: str) -> np.ndarray:
    """Test rows of another set, or CLINC150's rows of no intent."""
    if name != "out of scope":
        return few_shots.arrays_of(name).x_test
    found = text._arrays("clinc150")
    return found["x_test"][found["y_test"] == "oos"]


def measured(rows: Dataset, others: np.ndarray) -> dict:
    """The areas of the three scores, and how many rows `--reject` turns away."""
    specs = HeadSpec.parse_list("lda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        total = simulate(rows, [np.arange(len(rows.y_train))], recipe_for(rows, specs.values()), {}).total
        classifier = Classifier.fit(total, "lda", novelty=True)
    gaussians = Gaussians.of_total(total.for_heads(), classifier.features)
    inner, outer = (classifier.features.values(x) for x in (rows.x_test, others))
    both = {
        "relative_mahalanobis": [classifier.novelty(x) for x in (rows.x_test, others)],
        "mahalanobis": [mahalanobis(gaussians, x) for x in (inner, outer)],
        "largest_probability": [1.0 - classifier.predict_proba(x).max(axis=1) for x in (rows.x_test, others)],
    }
    turned = {
        f"rejected_{name}_at_5_percent": round(float(classifier.is_novel(x, RATE).mean()), 4)
        for name, x in (("inside", rows.x_test), ("outside", others))
    }
    return {
        "inside_rows": len(inner),
        "outside_rows": len(outer),
        **{k: auroc(*v) for k, v in both.items()},
        **turned,
        "recipe": total.recipe.fingerprint,
    }


def mahalanobis(gaussians: Gaussians, x: np.ndarray) -> np.ndarray:
    """The distance to the nearest class mean in the metric of the shrunk shared covariance."""
    root = np.linalg.cholesky(_shrunk(gaussians))
    z, means = (scipy.linalg.solve_triangular(root, v.T, lower=True).T for v in (x, gaussians.means))
    return (z**2).sum(axis=1) + ((means**2).sum(axis=1)[None] - 2.0 * z @ means.T).min(axis=1)


def _shrunk(gaussians: Gaussians) -> np.ndarray:
    shared = gaussians.shrunk(gaussians.shared_shrinkage()).shared
    assert shared is not None
    return shared


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    """The chance that an outside row scores above an inside one."""
    ranks = rankdata(np.concatenate([inside, outside]))[len(inside) :]
    count = len(outside)
    return round(float((ranks.sum() - count * (count + 1) / 2) / (count * len(inside))), 4)


def table(result: list[dict]) -> str:
    """One line per pair."""
    lines = [
        "| classes of | other rows | relative Mahalanobis | Mahalanobis | largest probability | own turned away | others |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r['inside']} | {r['outside']} | {r['relative_mahalanobis']:.3f} | {r['mahalanobis']:.3f} | "
        f"{r['largest_probability']:.3f} | {100 * r['rejected_inside_at_5_percent']:.1f} % | "
        f"{100 * r['rejected_outside_at_5_percent']:.1f} % |"
        for r in result
    ]
    return "\n".join(lines)
