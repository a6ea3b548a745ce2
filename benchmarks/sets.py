"""The default on tables and sets of vectors: `best` beside single heads, and every door's default beside pooled boosting.

    python benchmarks/sets.py FOLDER_OR_FILES… --seeds 5 --clients 3 --alpha 0.3 --jobs 2 --json results/sets.json
    python benchmarks/sets.py --page      # results/sets.md from the stored file

A .csv has a column `label`; of each seed 70 % of the rows are for training, and the schema is drafted from them. An .npz has
x_train, y_train, x_test and y_test. Training rows are spread over the clients by a Dirichlet distribution. Measured are

- heads of one total with S of the plain columns: `best`, and the six single heads it is compared with;
- `default`, what every door does where nothing is said: `lda_ridge` of a [basis] where a site's rows carry one (`added`
  features), otherwise `best` of what fits the budget;
- scikit-learn's LDA and HistGradientBoosting on the pooled training rows.

Accuracy in percent and log loss on the test rows, means over seeds. The regret of a head is how far it is below the best of the
six single heads, chosen on the test rows, so nothing could reach 0 on all sets.
"""

import argparse
import json
import multiprocessing
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from ghofl_benchmarks import made, report
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier

from ghofl import HeadSpec
from ghofl.recipe import RecipeOptions, Table
from ghofl.simulation.dataset import table_dataset
from ghofl.simulation.needs import assembly_for
from ghofl.simulation.partition import dirichlet_by_class
from ghofl.simulation.simulate import Dataset, simulate

RESULTS = Path(__file__).parent / "results"
BEST, SMALLEST = "best", 0.01  # the log loss below which ratios say nothing
SINGLE = ("lda", "rda", "student", "ridge", "blend", "fisher_mix")
POOLED = {"boosting": HistGradientBoostingClassifier, "sklearn_lda": LinearDiscriminantAnalysis}


def measure(path: Path, seed: int, clients: int, alpha: float) -> dict:
    """One set and one seed: accuracy and log loss of everything."""
    data, table = load(path, seed)
    table = None if table is None else replace(table, site_rows=len(data.y_train) // clients)
    parts = dirichlet_by_class(data.y_train, clients, alpha, np.random.default_rng(seed))
    best, plain = HeadSpec(BEST), RecipeOptions(statistics=("S",))
    recipe = made.note(assembly_for(data, [best], plain, table=table).recipe)
    heads = simulate(data, parts, recipe, {name: HeadSpec(name) for name in (BEST, *SINGLE)}).heads
    options = RecipeOptions(seed=seed, site_rows=None if table is not None else len(data.y_train) // clients)
    usual = made.note(assembly_for(data, [best], options, table=table).recipe)
    heads["default"] = simulate(data, parts, usual, {BEST: best}).heads[BEST]
    found: dict = {"rows": len(data.y_train), "columns": recipe.dim, "classes": len(data.classes)}
    found["added"] = 0 if usual.basis is None else usual.dim - usual.encoder.dim
    found |= {name: [100 * h.accuracy, h.metrics.log_loss] for name, h in heads.items()}
    return found | {name: _pooled(kind, data) for name, kind in POOLED.items()}


def load(path: Path, seed: int) -> tuple[Dataset, Table | None]:
    """The rows of a set, and the schema of a table."""
    return table_dataset(path, "label", seed=seed) if path.suffix == ".csv" else (Dataset.load(path), None)


def _pooled(kind: type, data: Dataset) -> list[float]:
    model = (kind(random_state=0) if kind is HistGradientBoostingClassifier else kind()).fit(data.x_train, data.y_train)
    p = np.zeros((len(data.y_test), len(data.classes)))
    p[:, model.classes_] = model.predict_proba(data.x_test)
    of_label = np.maximum(p[np.arange(len(p)), data.y_test], 1e-15)
    return [100 * float(np.mean(p.argmax(axis=1) == data.y_test)), float(-np.log(of_label).mean())]


def summary(results: dict[str, dict]) -> dict[str, dict[str, float]]:
    """The regret of `best`, of every single head and of the default, and what the default gains on tables."""
    found = {name: _regret(results, name) for name in (BEST, "default", *SINGLE)}
    tables = [row for row in results.values() if row["is_table"]]
    if tables:
        gain, above = (np.array([row["default"][0] - row[other][0] for row in tables]) for other in ("lda", "boosting"))
        found["tables"] = {"sets": len(tables), "gain over lda": float(gain.mean()), "worst gain": float(gain.min())}
        found["tables"]["above boosting"] = float(above.mean())
    return {name: {key: round(value, 3) for key, value in row.items()} for name, row in found.items()}


def _regret(results: dict[str, dict], name: str) -> dict[str, float]:
    rows = list(results.values())
    regret = np.array([max(row[head][0] for head in SINGLE) - row[name][0] for row in rows])
    ratio = np.array([row[name][1] / max(row["lda"][1], SMALLEST) for row in rows])
    return {
        "sets": len(rows), "mean regret": regret.mean(), "worst regret": regret.max(), "within a point": np.mean(regret <= 1),
        "log loss / lda, median": np.median(ratio), "log loss / lda, 90 %": np.quantile(ratio, 0.9),
        "log loss / lda, max": ratio.max(),
    }  # fmt: skip


def page(stored: dict) -> str:
    """The stored figures as Markdown."""
    names = {BEST: "`best`", "default": "default of every door"} | {name: f"`{name}`" for name in SINGLE}
    lines = [
        "# Tables and sets of vectors",
        "",
        f"{stored['summary'][BEST]['sets']} sets, three clients, Dirichlet α = 0.3, five seeds, made by `benchmarks/sets.py`. "
        "The constants of `best` and of the features for tables were chosen on these sets, so the figures say what was chosen, "
        "not how it does elsewhere. Points of accuracy below the best of the six single heads of a set, which is chosen on its "
        "test rows; negative is above.",
        "",
        "| head | mean | worst | within a point | log loss ÷ LDA's, median / 90 % / max |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, title in names.items():
        row = stored["summary"][name]
        ratios = " / ".join(f"{row[f'log loss / lda, {which}']:.2f}" for which in ("median", "90 %", "max"))
        shares = f"{row['mean regret']:.2f} | {row['worst regret']:.1f} | {row['within a point']:.0%}".replace(
            "%", " %"
        )
        lines.append(f"| {title} | {shares} | {ratios} |")
    gain = stored["summary"]["tables"]
    lines += [
        "",
        f"On the {gain['sets']} tables among them the default is {gain['gain over lda']:+.1f} points above `lda` of the plain "
        f"columns and {gain['above boosting']:+.1f} above scikit-learn's HistGradientBoosting on the pooled rows.",
        "",
    ]
    table = [
        "| set | rows | columns | classes | added | `best` | default | `lda` | best single | boosting |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in stored["sets"].items():
        heads = [row[BEST], row["default"], row["lda"], max(row[head] for head in SINGLE), row["boosting"]]
        sizes = " | ".join(f"{row[key]:.0f}" for key in ("rows", "columns", "classes", "added"))
        table.append(f"| {Path(name).stem} | {sizes} | " + " | ".join(f"{head[0]:.1f}" for head in heads) + " |")
    return "\n".join([*lines, report.folded("\n".join(table))]) + "\n"


def write_page() -> None:
    """Write results/sets.md."""
    made.store(RESULTS / "sets.md", page(json.loads((RESULTS / "sets.json").read_text(encoding="utf-8"))))


def _measured(job: tuple[Path, int, int, float]) -> tuple[str, dict, list[str]]:
    warnings.simplefilter("ignore")
    found = measure(*job)
    return job[0].name, found, sorted(made.noted())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", type=Path)
    parser.add_argument(
        "--page", action="store_true", help="write results/sets.md from the stored file, and nothing else"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.page:
        write_page()
        return
    paths = [p for each in given.sets for p in (sorted(each.iterdir()) if each.is_dir() else [each])]
    paths = [p for p in paths if p.suffix in (".csv", ".npz")]
    jobs = [(p, seed, given.clients, given.alpha) for p in paths for seed in range(given.seeds)]
    runs: dict[str, list[dict]] = {}
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for name, found, recipes in pool.imap(_measured, jobs):
            runs.setdefault(name, []).append(found)
            made.note_all(recipes)
            print(name, len(runs[name]), flush=True)
    results = {
        name: {key: np.mean([run[key] for run in rows], axis=0).round(4).tolist() for key in rows[0]}
        | {"is_table": name.endswith(".csv")}
        for name, rows in runs.items()
    }
    found = {"summary": summary(results), "sets": results}
    print(json.dumps(found["summary"], indent=1))
    if given.json is not None:
        made.store(given.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
