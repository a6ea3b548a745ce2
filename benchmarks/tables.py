"""Tables with the features of a [basis]: LDA and ridge of one message per client beside pooled gradient boosting.

    python benchmarks/tables.py FOLDER_OR_FILES… --seeds 5 --clients 3 --alpha 0.3 --json tables.json

Every .csv has a column `label`. Of each seed 70 % of the rows are for training, spread over the clients by a Dirichlet
distribution; the schema is drafted from the training rows, and `site_rows` is their number over the clients. `features` is
the default of every door: `lda_ridge` where these rows carry a [basis], `best` of the plain columns where not (`added` is 0).
Beside it are `lda` on the plain columns, and scikit-learn's LDA and HistGradientBoosting on the pooled training rows.
Accuracy in percent and log loss on the test rows, means over seeds.
"""

import argparse
import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from ghofl_benchmarks import made
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier

from ghofl import HeadSpec
from ghofl.recipe import RecipeOptions
from ghofl.simulation.partition import dirichlet_by_class
from ghofl.simulation.simulate import Dataset, assembly_for, simulate
from ghofl.simulation.dataset import table_dataset

BEST, HEAD, SMALLEST = "best", "lda_ridge", 0.01  # the log loss below which ratios say nothing
POOLED = {"boosting": HistGradientBoostingClassifier, "sklearn_lda": LinearDiscriminantAnalysis}


def measure(path: Path, seed: int, clients: int, alpha: float) -> dict:
    """One table and one seed: accuracy and log loss of everything."""
    data, table = table_dataset(path, "label", seed=seed)
    table = replace(table, site_rows=len(data.y_train) // clients)
    parts = dirichlet_by_class(data.y_train, clients, alpha, np.random.default_rng(seed))
    found: dict = {"rows": len(data.y_train), "columns": len(table.columns)}
    for name, options in (("lda", RecipeOptions(statistics=("B",))), ("features", RecipeOptions(seed=seed))):
        recipe = assembly_for(data, [HeadSpec(BEST)], options, table=table).recipe
        spec = name if name == "lda" else BEST if recipe.basis is None else HEAD
        metrics = simulate(data, parts, made.note(recipe), {spec: HeadSpec(spec)}).heads[spec].metrics
        found[name] = [100 * metrics.confusion.accuracy, metrics.log_loss]
    found["added"] = 0 if recipe.basis is None else recipe.dim - recipe.encoder.dim
    return found | {name: _pooled(kind, data) for name, kind in POOLED.items()}


def _pooled(kind: type, data: Dataset) -> list[float]:
    model = (kind(random_state=0) if kind is HistGradientBoostingClassifier else kind()).fit(data.x_train, data.y_train)
    p = np.zeros((len(data.y_test), len(data.classes)))
    p[:, model.classes_] = model.predict_proba(data.x_test)
    of_label = np.maximum(p[np.arange(len(p)), data.y_test], 1e-15)
    return [100 * float(np.mean(p.argmax(axis=1) == data.y_test)), float(-np.log(of_label).mean())]


def summary(results: dict[str, dict]) -> dict[str, float]:
    """Means over tables, and how log losses compare with those of LDA."""
    of = {name: np.array([row[name] for row in results.values()]) for name in ("lda", "features", *POOLED)}
    ratio = of["features"][:, 1] / np.maximum(of["lda"][:, 1], SMALLEST)
    return {
        "tables": len(results),
        "gain over lda": float(np.mean(of["features"][:, 0] - of["lda"][:, 0])),
        "worst gain": float(np.min(of["features"][:, 0] - of["lda"][:, 0])),
        "above boosting": float(np.mean(of["features"][:, 0] - of["boosting"][:, 0])),
        "log loss / lda, median": float(np.median(ratio)),
        "log loss / lda, 90 %": float(np.quantile(ratio, 0.9)),
        "log loss / lda, max": float(np.max(ratio)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    paths = [p for each in given.tables for p in (sorted(each.glob("*.csv")) if each.is_dir() else [each])]
    results = {}
    for path in paths:
        runs = [measure(path, seed, given.clients, given.alpha) for seed in range(given.seeds)]
        results[path.stem] = {key: np.mean([run[key] for run in runs], axis=0).round(4).tolist() for key in runs[0]}
        print(path.stem, results[path.stem], flush=True)
    found = {"summary": {key: round(value, 3) for key, value in summary(results).items()}, "tables": results}
    print(json.dumps(found["summary"], indent=1))
    if given.json is not None:
        made.store(given.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
