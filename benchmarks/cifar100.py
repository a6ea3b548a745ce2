"""QDA of CIFAR-100's size beside scikit-learn's on the same rows: 50,000 × 1,280 rows of 100 classes, 10,000 to score.

Real embeddings where they are at hand, random rows of that size otherwise. scikit-learn refuses classes with fewer rows
than dimensions unless its covariances are shrunk, so it runs with solver='eigen' and shrinkage=0.1, which is our rule
but for its division by n instead of n − 1; its covariances are float64 whatever the rows are. Each system runs in a
process of its own on one thread. Ours is timed in three steps: sums of the rows (features, moments), which sites do; the
head from the sums; and the scores.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import data
import numpy as np
import ratios
from timing import LAUNCHER, MB, cpu_seconds

from ghofl import Encoder, Features, Gaussians, Grid, Layout, Moments, Recipe
from ghofl.features import fit_grid
from ghofl.heads.qda import QDAOptions, fit_qda

SHRINKAGE = 0.1
FASTER = 5.0  # promised
THREADS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
Rows = dict[str, np.ndarray]
SYSTEMS = {"ghofl": "ghofl", "sklearn": "scikit-learn"}


def run(turns: int = 1) -> dict:
    """Seconds of every step and peak memory of every system, in turns, and how often they agree."""
    found: dict[str, list[dict]] = {system: [] for system in SYSTEMS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(turns):
            for system in SYSTEMS:
                found[system].append(_alone(system, Path(folder)))
                print(system, found[system][-1], flush=True)
        predicted = {system: np.load(Path(folder, f"{system}.npy")) for system in SYSTEMS}
    y = rows()["y_test"]
    result = {
        "rows": "CIFAR-100 under MobileNetV2" if data.is_there() else "random rows of the size of CIFAR-100",
        "threads": 1,
        "clock": "CPU",
        "agreement": round(float(np.mean(predicted["sklearn"] == predicted["ghofl"])), 5),
        "accuracy": {s: round(float(np.mean(predicted[s] == y)), 4) for s in SYSTEMS},
        "systems": found,
    }
    return result | {"measures": ratios.as_stored(measures(found))}


def measures(found: dict[str, list[dict]]) -> list[ratios.Measure]:
    """Our fit and scores against scikit-learn's, with the sums of rows and without them."""
    ways = {
        "qda_cifar100": (("statistics", "fit", "score"), "sums of the 50,000 rows, head and 10,000 scores"),
        "qda_cifar100_from_sums": (("fit", "score"), "head from sums and 10,000 scores"),
    }
    theirs = tuple(r["fit"] + r["score"] for r in found["sklearn"])
    peaks = (max(r["peak_mb"] for r in found["ghofl"]), max(r["peak_mb"] for r in found["sklearn"]))
    return [
        ratios.Measure(
            name,
            f"QDA of 100 classes, 1280-d: {what}",
            "scikit-learn's QDA fitted to the 50,000 rows, and its 10,000 scores",
            tuple(sum(r[step] for step in steps) for r in found["ghofl"]),
            theirs,
            peaks,
            1 / FASTER,
        )
        for name, (steps, what) in ways.items()
    ]


def table(run: dict) -> str:
    """The results as Markdown."""
    lines = [
        f"Rows: {run['rows']}. CPU seconds on one thread, and the peak memory of the whole process, rows included. Predictions "
        f"are the same in {100 * run['agreement']:.2f} % of rows.",
        "",
        "| system | sums of rows | fit | score | peak MB | accuracy % |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for system, title in SYSTEMS.items():
        turns = run["systems"][system]
        steps = [
            f"{np.median([r[k] for r in turns]):.1f}" if k in turns[0] else "" for k in ("statistics", "fit", "score")
        ]
        peak = np.median([r["peak_mb"] for r in turns])
        lines.append(f"| {title} | {' | '.join(steps)} | {peak:,.0f} | {100 * run['accuracy'][system]:.2f} |")
    return "\n".join(lines) + "\n\n" + ratios.table_of_measures(ratios.from_stored(run))


def rows() -> Rows:
    """CIFAR-100's embeddings, or random rows of their size."""
    if data.is_there():
        return data.embeddings("cifar100")
    rng = np.random.default_rng(0)
    y = {name: np.arange(count) % 100 for name, count in (("y_train", 50_000), ("y_test", 10_000))}
    means = rng.random((100, 1280), np.float32)
    x = {f"x{name[1:]}": rng.random((len(labels), 1280), np.float32) + means[labels] for name, labels in y.items()}
    return {**x, **y}


def ours(found: Rows, classes: int = 100) -> tuple[dict[str, float], np.ndarray]:
    """CPU seconds of sums, head and scores, and the predictions."""
    recipe = _recipe(found, classes)
    features, layout, steps = Features.of(recipe), Layout.of(recipe), {}
    moments = _step(
        steps, "statistics", lambda: Moments.of(features.rows(found["x_train"])[0], found["y_train"], layout)
    )
    options = QDAOptions(shrinkage=SHRINKAGE)
    head = _step(steps, "fit", lambda: fit_qda(Gaussians.estimate(moments, features.unit), options))
    values = features.values(found["x_test"])
    return steps, _step(steps, "score", lambda: head.scores(values)).argmax(axis=1)


def theirs(found: Rows, classes: int = 100) -> tuple[dict[str, float], np.ndarray]:
    """CPU seconds of scikit-learn's fit and scores on the rows that ours were added up from, and the predictions."""
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

    features, steps = Features.of(_recipe(found, classes)), {}
    x, test = (features.values(found[name]) for name in ("x_train", "x_test"))
    model = QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=SHRINKAGE)
    _step(steps, "fit", lambda: model.fit(x, found["y_train"]))
    return steps, _step(steps, "score", lambda: model.decision_function(test)).argmax(axis=1)


def _recipe(found: Rows, classes: int) -> Recipe:
    dim = found["x_train"].shape[1]
    recipe = Recipe(tuple(map(str, range(classes))), Encoder(dim=dim), ("S",), grid=Grid(bits=8))
    return fit_grid(recipe, found["x_train"])


def _step(steps: dict[str, float], name: str, work: Callable[[], Any]) -> Any:
    started = cpu_seconds()
    result = work()
    steps[name] = round(cpu_seconds() - started, 2)
    return result


def _alone(system: str, folder: Path) -> dict:
    """One system in a process of its own."""
    words = [sys.executable, __file__, system, "--folder", str(folder)]
    command = [sys.executable, "-S", "-c", LAUNCHER, *words]
    done = subprocess.run(command, env={**os.environ, **THREADS}, check=True, stdout=subprocess.PIPE)
    return {**json.loads((folder / f"{system}.json").read_text()), "peak_mb": round(int(done.stdout) * 1024 / MB)}


def main() -> None:
    """Run one system once, for `run`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--folder", type=Path, required=True, help="where its seconds and predictions are written")
    given = parser.parse_args()
    steps, predicted = {"ghofl": ours, "sklearn": theirs}[given.system](rows())
    np.save(given.folder / f"{given.system}.npy", predicted)
    (given.folder / f"{given.system}.json").write_text(json.dumps(steps))


if __name__ == "__main__":
    main()
