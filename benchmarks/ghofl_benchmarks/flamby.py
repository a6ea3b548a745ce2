"""Four hospitals of FLamby's Fed-Heart-Disease (Ogier du Terrail et al. 2022): one message each, beside its 100 rounds.

As FLamby prepares them: the columns slope, ca and thal are left out, and so are incomplete rows; `cp` and `restecg` are
indicators without their first level; in each hospital two thirds are for training. FLamby scales columns with each
hospital's own mean and deviation. Here numbers are scaled by ranges that anybody could name beforehand, the same everywhere.
"""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ghofl import Encoder, Grid, Recipe
from ghofl.evaluation.leave_out import FOLDS, OwnRows, assign_folds, leave_out
from ghofl_benchmarks import report
from ghofl_benchmarks.data import DataMissingError, Missing, data_folder
from ghofl_benchmarks.sites import HEAD, LOCAL, Federation, Rows, spread

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
LEFT_OUT = ("slope", "ca", "thal")
RANGES = {"age": (20, 80), "trestbps": (80, 200), "chol": (0, 600), "thalach": (60, 200), "oldpeak": (-3, 6)}
LEVELS = {"cp": (2, 3, 4), "restecg": (1, 2)}
SEED = 43  # of FLamby's own split
FINE_FOLDS = 10  # for the estimate of a head's accuracy
# The results in FLamby's repository, accuracy on test rows, mean of five seeds: pooled, then by hospital. The model has 14
# numbers of 4 bytes, which every hospital sends in each of 100 rounds.
PUBLISHED = {
    "pooled training": (0.795, 0.783, 0.764, 0.750, 0.644),
    "FedAvg, FedProx, Scaffold": (0.748, 0.731, 0.719, 0.650, 0.640),
    "FedAdam": (0.779, 0.752, 0.746, 0.738, 0.667),
    "FedAdagrad, FedYogi": (0.779, 0.760, 0.753, 0.738, 0.676),
    "Cyclic": (0.785, 0.758, 0.762, 0.712, 0.640),
}
ROUNDS, SENT = 100, 100 * 14 * 4


def load(folder: Path | None = None) -> dict[str, Rows]:
    """The complete rows of every hospital, and whether each is ill, in the order of its file."""
    folder = folder or data_folder() / "hospitals" / "heart"
    if not all((folder / f"{name}.data").is_file() for name in HOSPITALS):
        how = "Put cleveland, hungarian, switzerland and va.data of UCI's Heart Disease there, with a header, or give --folder."
        raise DataMissingError(Missing(f"{folder}", how))
    return {name: _load(folder / f"{name}.data") for name in HOSPITALS}


def _load(path: Path) -> Rows:
    with path.open(newline="", encoding="utf-8") as file:
        lines = [{k: v.strip() for k, v in line.items() if k not in LEFT_OUT} for line in csv.DictReader(file)]
    complete = [{k: float(v) for k, v in line.items()} for line in lines if not _is_incomplete(line.values())]
    x = [[value for name, v in line.items() if name != "target" for value in _numbers(name, v)] for line in complete]
    return np.array(x), np.array([int(line["target"] > 0) for line in complete])


def _is_incomplete(values: Iterable[str]) -> bool:
    return any(value in ("", "?") or float(value) == -9 for value in values)


def _numbers(name: str, value: float) -> list[float]:
    if name in LEVELS:
        return [float(value == level) for level in LEVELS[name]]
    low, high = RANGES.get(name, (0, 1))
    return [2.0 * (value - low) / (high - low) - 1.0]


def split(y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows of a hospital, as FLamby draws them."""
    from sklearn.model_selection import train_test_split

    by = y if np.bincount(y, minlength=2).min() > 2 else None
    return tuple(train_test_split(np.arange(len(y)), train_size=0.66, random_state=seed, shuffle=True, stratify=by))


def recipe_of(data: dict[str, Rows]) -> Recipe:
    """What the hospitals agree on."""
    dim = next(iter(data.values()))[0].shape[1]
    return Recipe(("healthy", "ill"), Encoder(dim, "heart"), ("B",), grid=Grid(bits=12, scale=800.0))


class Hospitals:
    """The hospitals' messages and total of one split, and their test rows."""

    def __init__(self, data: dict[str, Rows], seed: int) -> None:
        self.parts = {name: split(y, seed) for name, (_, y) in data.items()}
        train, self.test = (
            {name: (x[self.parts[name][i]], y[self.parts[name][i]]) for name, (x, y) in data.items()} for i in (0, 1)
        )
        self.federation = Federation(recipe_of(data), train)

    def right(self) -> dict[str, np.ndarray]:
        """By method, correct test predictions by hospital."""
        heads = [self.federation.heads(name) for name in HOSPITALS]
        rows = self.test.values()
        return {
            method: np.array([np.sum(h[method].predict_numbers(x) == y) for h, (x, y) in zip(heads, rows, strict=True)])
            for method in heads[0]
        }

    def hits(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Which rows of a hospital the head of the total predicts: training rows by leave-out, and test rows."""
        own = OwnRows.of(self.federation.total, *self.federation.rows[name])
        judged = leave_out(own, {"lda": HEAD}, assign_folds(own.y, FINE_FOLDS))["lda"]
        x, y = self.test[name]
        return judged.predicted == own.y, self.federation.shared.predict_numbers(x) == y


def run(
    folder: Path | None = None, splits: int = 50, fine_splits: int = 500, arguments: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The result: FLamby's figures, ours on its split and over as many others, and what leave-out said of them."""
    data = load(folder)
    result = report.new_result("flamby", "Four hospitals: FLamby's Fed-Heart-Disease", 0, arguments)
    for method, (pooled, *own) in PUBLISHED.items():
        sends = {} if method == "pooled training" else {"rounds": ROUNDS, "bytes": SENT}
        _add(result, method, "FLamby's", pooled, own, kind="ceiling" if not sends else "baseline", **sends)
    for name, seeds in (("FLamby's", [SEED]), (f"{splits} others", list(range(splits)))):
        _measure(result, name, [Hospitals(data, seed) for seed in seeds])
    for count in dict.fromkeys((splits, fine_splits)):
        _compare(result, data, count)
    result["notes"] = notes()
    return result


def notes() -> list[str]:
    """What the figures are."""
    return [
        "Accuracy in %. Bytes are what one hospital sends in all; in rounds it also receives as much. Splits: two thirds of each "
        f"hospital for training, by scikit-learn's `train_test_split` with random_state {SEED} (FLamby's) or 0, 1, 2 …. Heads of "
        f"hospitals are chosen by {FOLDS} folds, and leave-out's estimate takes {FINE_FOLDS}. A Swiss test set has 16 rows, so "
        "the mean over 50 splits has a standard error of two points there. Row by row, the share of splits in which a row is "
        "predicted as a left-out training row is compared with that in which it is predicted as a test row: which rows a split "
        "draws for its test does not matter then. Candidates of the choice were compared on training rows.",
    ]


def _measure(result: dict[str, Any], name: str, drawn: list[Hospitals]) -> None:
    """Add accuracies of every method over some splits."""
    rows = np.array([len(y) for _, y in drawn[0].test.values()])
    size = max(len(message.to_bytes()) for message in drawn[0].federation.messages.values())
    right = spread(lambda i: drawn[i].right(), len(drawn))
    for method in right[0]:
        found = np.array([one[method] for one in right])
        sends = {"rounds": 0, "bytes": 0} if method == LOCAL else {"rounds": 1, "bytes": size}
        pooled = float(np.mean(found.sum(axis=1) / rows.sum()))
        _add(result, method, name, pooled, (found / rows).mean(axis=0).tolist(), kind="ours", **sends)


def _compare(result: dict[str, Any], data: dict[str, Rows], count: int) -> None:
    """Add what leave-out and test rows say of the head of the total, by split and by row."""
    drawn = [Hospitals(data, seed) for seed in range(count)]
    means, by_row = np.zeros((len(HOSPITALS), count, 2)), []
    for i, name in enumerate(HOSPITALS):
        seen, right = np.zeros((2, 2, len(data[name][1])))
        found = spread(lambda seed, name=name: drawn[seed].hits(name), count)
        for seed, both in enumerate(found):
            for k, (at, hits) in enumerate(zip(drawn[seed].parts[name], both, strict=True)):
                seen[k, at] += 1
                right[k, at] += hits
                means[i, seed, k] = hits.mean()
        twice = (seen > 0).all(axis=0)
        apart = right[0, twice] / seen[0, twice] - right[1, twice] / seen[1, twice]
        by_row.append(float(apart.mean()) if twice.any() else np.nan)
    apart = means[:, :, 0] - means[:, :, 1]
    error = apart.std(axis=1) / np.sqrt(count)
    found = {
        "one head for all: leave-out says": means[:, :, 0].mean(axis=1),
        "one head for all: the test rows say": means[:, :, 1].mean(axis=1),
        "standard error of their difference": error,
        "their difference in standard errors": apart.mean(axis=1) / np.maximum(error, 1e-9) / 100,
        "their difference row by row": np.array(by_row),
    }
    for i, (what, own) in enumerate(found.items()):
        _add(result, what, f"{count} others", None, own.tolist(), mean=i < 2, kind="ours")


def _add(
    result: dict[str, Any],
    method: str,
    name: str,
    pooled: float | None,
    own: list[float],
    mean: bool = True,
    **more: Any,
) -> None:
    hospitals = {
        hospital: None if np.isnan(value) else round(100 * value, 2)
        for hospital, value in zip(HOSPITALS, own, strict=True)
    }
    row = {
        "method": method, "split": name, **{k: more[k] for k in ("kind", "rounds", "bytes") if k in more},
        "pooled": None if pooled is None else round(100 * pooled, 2),
        "mean of hospitals": round(100 * float(np.mean(own)), 2) if mean else None, **hospitals,
    }  # fmt: skip
    result["rows"].append(row)
    print("  ", {k: v for k, v in row.items() if v is not None}, flush=True)
