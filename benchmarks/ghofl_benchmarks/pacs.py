"""PACS: seven kinds of things as art paintings, cartoons, photos and sketches, every domain a site (Li et al. 2017).

FOLDER holds `art_painting.npz`, `cartoon.npz`, `photo.npz` and `sketch.npz`, made from a domain's images by::

    ghofl embed --encoder torchvision:mobilenet_v2 --weights FILE --views 160 --data PACS/photo -o FOLDER/photo.npz
"""

from pathlib import Path
from typing import Any

import numpy as np

from ghofl.simulation.simulate import Dataset, recipe_for
from ghofl.wire.total import Total
from ghofl_benchmarks import report
from ghofl_benchmarks.alignment import aligned_head
from ghofl_benchmarks.data import DataMissingError, Missing
from ghofl_benchmarks.sites import ALL, HEAD, LOCAL, OWN, Federation, Rows, accuracy, fit, spread

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
SIZES, SPLITS, TRAIN = (700, None), 3, 0.7
OTHERS, ALIGNED = "the three other domains only", "the three others, aligned by unlabelled rows and the mix"
METHODS = (ALL, LOCAL, OWN, OTHERS, ALIGNED)


def load(folder: Path) -> tuple[dict[str, Rows], tuple[str, ...]]:
    """Rows and class numbers of every domain, and the names of the classes."""
    if missing := [name for name in DOMAINS if not (folder / f"{name}.npz").is_file()]:
        how = f"ghofl embed --encoder torchvision:mobilenet_v2 --weights FILE --views 160 --data PACS/{missing[0]} -o … makes it."
        raise DataMissingError(Missing(f"{missing[0]}.npz", how))
    found = {}
    for name in DOMAINS:
        with np.load(folder / f"{name}.npz") as stored:
            found[name] = stored["x"], stored["y"]
    classes = np.unique(np.concatenate([y for _, y in found.values()]))
    return {name: (x, np.searchsorted(classes, y)) for name, (x, y) in found.items()}, tuple(map(str, classes))


def split(data: dict[str, Rows], size: int | None, seed: int) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """Training and test rows of every domain, of all its rows or of so many."""
    rng, train, test = np.random.default_rng(seed), {}, {}
    for name, (x, y) in data.items():
        rows = rng.permutation(len(y))[:size]
        cut = round(TRAIN * len(rows))
        train[name], test[name] = ((x[part], y[part]) for part in (rows[:cut], rows[cut:]))
    return train, test


def federation_of(train: dict[str, Rows], classes: tuple[str, ...]) -> Federation:
    """The domains as sites, square roots of their rows."""
    x, y = (np.concatenate(parts) for parts in zip(*train.values(), strict=True))
    return Federation(recipe_for(Dataset(x, y, x[:1], y[:1], classes), [HEAD], power=0.5), train)


def run(folder: Path, splits: int = SPLITS, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """The result: by images per domain and method, accuracy on each domain's test rows."""
    data, classes = load(folder)
    result = report.new_result("pacs", "PACS: four domains as sites", 0, arguments)
    for size in SIZES:
        drawn = [split(data, size, seed) for seed in range(splits)]
        sites = [(federation_of(train, classes), test) for train, test in drawn]

        def measure(i: int, sites: list = sites) -> list[float]:
            return _measure(*sites[i // len(DOMAINS)], DOMAINS[i % len(DOMAINS)])

        found = np.array(spread(measure, splits * len(DOMAINS))).reshape(splits, len(DOMAINS), len(METHODS))
        for k, method in enumerate(METHODS):
            _add(result, method, size, 100 * found[:, :, k])
        better = np.maximum(*(found[:, :, METHODS.index(name)].mean() for name in (ALL, LOCAL)))
        print(f"  gain over the better of both: {100 * (found[:, :, METHODS.index(OWN)].mean() - better):.2f}")
    result["notes"] = [
        f"Accuracy in %, MobileNetV2 at 160 pixels, LDA of square roots; {splits} splits, {TRAIN:.0%} of a domain's images for "
        "training. `error` is the standard error of the mean over splits. The head of each domain is chosen by leave-out on its "
        "training rows. Rows of the three others only: the domain is new to the total, and its training rows are unlabelled.",
    ]
    return result


def _measure(federation: Federation, test: dict[str, Rows], name: str) -> list[float]:
    heads = federation.heads(name)
    others = Total.of([m for key, m in federation.messages.items() if key != name], federation.recipe)
    x, y = federation.rows[name]
    mix = np.bincount(y, minlength=len(federation.recipe.classes)) / len(y)
    heads |= {OTHERS: fit(others), ALIGNED: aligned_head(others, HEAD, x, mix)}
    return [accuracy(heads[method], test[name]) for method in METHODS]


def _add(result: dict[str, Any], method: str, size: int | None, found: np.ndarray) -> None:
    means = found.mean(axis=1)
    row = {
        "method": method, "images per domain": size or "all", "accuracy": round(float(means.mean()), 2),
        "error": round(float(means.std() / np.sqrt(len(means))), 2),
        **{name: round(float(value), 2) for name, value in zip(DOMAINS, found.mean(axis=0), strict=True)},
    }  # fmt: skip
    result["rows"].append(row)
    print("  ", row, flush=True)
