"""Few rows per class: every head that one message allows, and `best`, over 2 … 500 rows per class and all of them.

Accuracy on test rows, mean over seeds; `gap` is how far `best` is under the best single head of the same message, and
`best_sd` the standard deviation of `best` over seeds. The rules behind `best` were chosen on held-out training rows of
CIFAR-10, BANKING77 and digits; CIFAR-100 and CLINC150 judge them.

    python few_shots.py --sets digits,cifar10 --seeds 10 --rows 2,4,8,16,64,500,all --test-rows 2000

`--held-out` scores on training rows that are left out instead, which is what rules may be chosen on. Classes have as many
rows each (but for `all`, and for classes that have fewer), so heads are scored without calibration, which then changes no
prediction. Cells of earlier runs stay in the file unless they are measured again. `--statistics S` sends class
covariances however large, `--jobs` spreads seeds over processes, `--device cuda` lends them a GPU.
"""

import argparse
import json
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import data
import numpy as np
from ghofl_benchmarks import made
from ghofl_benchmarks.baselines.compared import specs_of

from ghofl import Classifier, Features, Gaussians, HeadSpec
from ghofl.simulation.simulate import Dataset, recipe_for, simulate

SETS = ("digits", "cifar10", "cifar100", "banking77", "clinc150")
HEADS = {
    "B": "nearest_mean,spherical,fedcgs,lda,ridge,best",
    "S": "nearest_mean,spherical,nb,lda,qda,rda,student,ridge,best",
}
LARGEST_S = 60_000_000  # entries of class covariances, beyond which messages carry the shared one only


def arrays_of(name: str) -> Dataset:
    """One of the sets, with class numbers; out-of-scope rows of CLINC150 are left out."""
    if name == "digits":
        from ghofl.simulation.demo import digits

        return digits()
    if name in data.CLASSES:
        found = data.embeddings(name)
        roots = {key: np.sqrt(found[key]) for key in ("x_train", "x_test")}
        classes = tuple(map(str, range(data.CLASSES[name])))
        return Dataset(roots["x_train"], found["y_train"], roots["x_test"], found["y_test"], classes)
    import text

    found = text._arrays("clinc150 in scope" if name == "clinc150" else name)
    classes = tuple(np.unique(found["y_train"]).tolist())
    numbers = {split: np.searchsorted(classes, found[f"y_{split}"]).astype(np.int64) for split in ("train", "test")}
    return Dataset(found["x_train"], numbers["train"], found["x_test"], numbers["test"], classes)


def held_out(whole: Dataset, test_rows: int) -> Dataset:
    """The training rows alone, some of them as test rows."""
    order = np.random.default_rng(99).permutation(len(whole.y_train))
    out, kept = order[: min(test_rows, len(order) // 3)], order[min(test_rows, len(order) // 3) :]
    return Dataset(whole.x_train[kept], whole.y_train[kept], whole.x_train[out], whole.y_train[out], whole.classes)


def some_of(whole: Dataset, per_class: int | None, test_rows: int, seed: int) -> Dataset:
    """So many training rows of each class, drawn by the seed, and some test rows, the same for every seed."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(whole.y_train))
    kept = [order[whole.y_train[order] == c][:per_class] for c in range(len(whole.classes))]
    rows, test = np.concatenate(kept), np.random.default_rng(0).permutation(len(whole.y_test))[:test_rows]
    return Dataset(whole.x_train[rows], whole.y_train[rows], whole.x_test[test], whole.y_test[test], whole.classes)


@dataclass(frozen=True)
class Cell:
    """A set and a number of rows per class, as they are measured."""

    name: str
    count: str
    test_rows: int
    is_held_out: bool = False
    heads: str = ""
    statistics: str = ""
    device: str = ""

    @property
    def per_class(self) -> int | None:
        return None if self.count == "all" else int(self.count)

    @property
    def is_drawn(self) -> bool:
        """Whether seeds differ: not where all rows are taken."""
        return self.per_class is not None and self.per_class < np.bincount(self.whole.y_train).max()

    @property
    def whole(self) -> Dataset:
        return _whole(self.name, self.test_rows if self.is_held_out else 0)

    @property
    def statistic(self) -> str:
        entries = len(self.whole.classes) * self.whole.x_train.shape[1] ** 2
        return self.statistics or ("S" if entries < LARGEST_S else "B")

    def accuracies(self, seed: int) -> tuple[str, dict[str, float]]:
        """The fingerprint of the recipe and the accuracy of every head, from rows drawn by this seed."""
        few = some_of(self.whole, self.per_class, self.test_rows, seed)
        with _device(self.device):
            return _accuracies(few, self.heads or HEADS[self.statistic], self.statistic, self.per_class is not None)


@cache
def _whole(name: str, held_out_rows: int) -> Dataset:
    return held_out(arrays_of(name), held_out_rows) if held_out_rows else arrays_of(name)


def _device(name: str):
    if not name:
        return nullcontext()
    import on_gpu

    return on_gpu.faster(name)


def results(cells: list[Cell], seeds: int, jobs: int = 1) -> Iterator[dict]:
    """One result per cell that the set has rows for."""
    possible = [c for c in cells if c.per_class is None or c.per_class <= np.bincount(c.whole.y_train).max()]
    runs = [(cell, seed) for cell in possible for seed in range(seeds if cell.is_drawn else 1)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) if jobs > 1 else nullcontext() as pool:
        found = (pool.map if pool else map)(Cell.accuracies, *zip(*runs, strict=True))
        for cell in possible:
            recipes, own = zip(*(next(found) for run in runs if run[0] == cell), strict=True)
            yield {
                "dataset": cell.name,
                "rows_per_class": cell.count,
                "statistic": cell.statistic,
                "seeds": len(own),
                "test_rows": min(cell.test_rows, len(cell.whole.y_test)),
                **{head: round(100 * float(np.mean([a[head] for a in own])), 2) for head in own[0]},
                **(
                    {"best_sd": round(100 * float(np.std([a["best"] for a in own], ddof=1)), 2)} if len(own) > 1 else {}
                ),
                "recipe": made.joint(recipes),
            }


def gap(result: dict) -> float:
    """How far `best` is under the best single head."""
    singles = [result[head] for head in HEADS[result["statistic"]].split(",") if head != "best"]
    return round(max(singles) - result["best"], 2)


def _accuracies(few: Dataset, heads: str, statistic: str, is_even: bool) -> tuple[str, dict[str, float]]:
    specs = specs_of(heads)
    needing = {"qda" if statistic == "S" else "lda": HeadSpec("qda" if statistic == "S" else "lda")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recipe = recipe_for(few, needing.values(), bits=10)
        total = simulate(few, [np.arange(len(few.y_train))], recipe, {}).total
        if not is_even:
            return recipe.fingerprint, {
                name: _share(Classifier.fit(total, spec).predict_numbers(few.x_test), few)
                for name, spec in specs.items()
            }
        features = Features.of(recipe)
        gaussians, x = Gaussians.of_total(total, features), features.values(few.x_test)
        found: dict[str, float] = {}
        for name, spec in specs.items():
            own = spec.choose(total.moments.layout, recipe, gaussians)
            same = not own.options and own.name != name and own.name in found
            head = None if same else own.head.fit(gaussians, own.record)
            found[name] = found[own.name] if head is None else _share(head.predict(x), few)
        return recipe.fingerprint, found


def _share(predicted: np.ndarray, few: Dataset) -> float:
    return float(np.mean(predicted == few.y_test))


def table(result: list[dict]) -> str:
    """One table per set: accuracy by rows per class and head."""
    parts = []
    for name, statistic in dict.fromkeys((row["dataset"], row["statistic"]) for row in result):
        rows = [row for row in result if (row["dataset"], row["statistic"]) == (name, statistic)]
        heads = HEADS[statistic].split(",")
        lines = [
            f"### {name}, statistic {statistic}\n",
            f"| rows per class | seeds | {' | '.join(heads)} | best single − best |",
            "|---|---:|" + "---:|" * (len(heads) + 1),
        ]
        for row in rows:
            cells = " | ".join(f"{row[head]:.2f}" + _spread(row, head) for head in heads)
            lines.append(f"| {row['rows_per_class']} | {row['seeds']} | {cells} | {row['gap']:.2f} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _spread(row: dict, head: str) -> str:
    return f" ± {row['best_sd']:.2f}" if head == "best" and "best_sd" in row else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--rows", default="2,4,8,16,64,500,all")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--test-rows", type=int, default=2000)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "few_shots.json")
    parser.add_argument("--held-out", action="store_true", help="score on training rows that are left out")
    parser.add_argument("--heads", default="", help="measure these again and keep the others of the stored cell")
    parser.add_argument("--statistics", default="", help="B or S, instead of S where it has at most 60 million entries")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--device", default="", help="a torch device that makes the products of quadratic heads")
    given = parser.parse_args()
    options = (given.test_rows, given.held_out, given.heads, given.statistics, given.device)
    cells = [Cell(name, count, *options) for name in given.sets.split(",") for count in given.rows.split(",")]
    for result in results(cells, given.seeds, given.jobs):
        stored = json.loads(given.json.read_text()) if given.json.is_file() else []  # another run may have written it
        found = {(r["dataset"], r["rows_per_class"], r["statistic"]): r for r in stored}
        cell = (result["dataset"], result["rows_per_class"], result["statistic"])
        old = found.get(cell, {}) if given.heads else {}
        if any(old.get(key, result[key]) != result[key] for key in ("seeds", "test_rows")):
            raise SystemExit(f"the stored cell {cell} is of other seeds or rows; measure all its heads.")
        result = {**old, **result}
        found[cell] = {**result, "gap": gap(result)}
        print(result, flush=True)
        made.store(given.json, json.dumps(list(found.values()), indent=1) + "\n", has_older_rows=True)


if __name__ == "__main__":
    main()
