"""CIFAR-10-C in miniature: statistics of clean training rows, test images corrupted in 19 ways, by family.

The corruptions are generated from real test images by `corruptions`; the published arrays are not needed. The
encoder is the cost, so a GPU elsewhere may run it, or a CPU some of the severities; the clean statistics travel as one total::

    python benchmarks/corrupted.py --write-total clean.ghofl
    python benchmarks/corrupted.py --total clean.ghofl --device cuda --weights FILE --images FOLDER --json out.json
    python benchmarks/corrupted.py --severities 5 --json out.json     # what out.json has of others stays

`aligned` are four accuracies on half of the images: of LDA and of LDA aligned with the other half without its labels, for all
images, and for as many as have a skewed mix of classes, Dirichlet(0.3), that is stated.
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import data
import numpy as np
from encoders import IMAGES, WEIGHTS, exported

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # a machine without pip runs it from the checkout

from corruptions import FAMILIES, SEVERITIES, Corruption, corrupt
from ghofl_benchmarks import made
from ghofl_benchmarks.alignment import aligned_head

from ghofl import Classifier, Message, Total, encoders
from ghofl.classifier import HeadSpec
from ghofl.encoders import Runtime
from ghofl.features import Features
from ghofl.outbox import Embedded, count
from ghofl.rows import class_numbers, load_samples
from ghofl.simulation.simulate import Dataset, recipe_for

HEADS = ("lda", "rda(blend=0.95, shrinkage=0.05)", "nb")
BATCH = {"cpu": 32, "cuda": 500}
CLEAN = ("clean", "", 0)
ALIGNED, SKEW = HeadSpec.parse(HEADS[0]), 0.3


def run(
    device: str = "cpu", weights: Path = WEIGHTS, images: Path = IMAGES, total: Total | None = None,
    severities: tuple[int, ...] = SEVERITIES,
) -> dict:  # fmt: skip
    """Accuracy on clean and corrupted images, for every corruption, severity and head, and of heads aligned with them."""
    samples = load_samples(str(images))
    total = total or clean_total()
    made.note(total.recipe)
    heads = [Classifier.fit(total, head) for head in HEADS]
    y = class_numbers(samples.labels, samples.classes())
    result: dict = {"images": len(samples), "training_rows": int(total.moments.counts.sum()), "heads": list(HEADS)}
    encode = None
    for (family, name, severity), pixels in _damaged(images, severities):
        # Processes that corrupt images are forked from this one before it touches the GPU.
        encode = encode or _encoder(device, weights).encode
        x = np.concatenate(list(encode(np.split(pixels, range(BATCH[device], len(pixels), BATCH[device])))))
        accuracies = [float((head.predict_numbers(x) == y).mean()) for head in heads]
        print(family, name, severity, accuracies, flush=True)
        if name:
            result.setdefault(family, {})[f"{name} {severity}"] = accuracies
            found = aligned(total, heads[0], (x, y), len(result.get("aligned", ())))
            result.setdefault("aligned", {})[f"{name} {severity}"] = found
        else:
            result["clean"] = accuracies
    return result


def aligned(total: Total, shared: Classifier, rows: tuple[np.ndarray, np.ndarray], seed: int) -> list[float]:
    """Accuracy on half of the rows, of the shared head and of one aligned with the others: all rows, then a skewed mix."""
    (x, y), rng, found = rows, np.random.default_rng([10, seed]), []
    halves = np.array_split(rng.permutation(len(y)), 2)
    for mix in (np.bincount(y) / len(y), rng.dirichlet(np.full(int(y.max()) + 1, SKEW))):
        own, judged = (half[draw(y[half], mix, rng)] for half in halves)
        head = aligned_head(total, ALIGNED, x[own], mix)
        found += [float((each.predict_numbers(x[judged]) == y[judged]).mean()) for each in (shared, head)]
    return found


def draw(y: np.ndarray, mix: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows whose classes have the shares of a mix, as many as there are."""
    by_class = [rng.permutation(np.flatnonzero(y == c)) for c in range(len(mix))]
    most = min(len(rows) / share for rows, share in zip(by_class, mix, strict=True) if share > 0)
    return np.concatenate([rows[: round(most * share)] for rows, share in zip(by_class, mix, strict=True)])


def table(result: dict) -> str:
    """Means of each family by severity as Markdown, then every corruption at its worst."""
    heads = " | ".join(f"{head} %" for head in result["heads"])
    lines = [
        f"CIFAR-10, MobileNetV2: clean statistics of {result['training_rows']:,} training rows, {result['images']:,} "
        f"real test images in each of {sum(len(result[family]) for family in FAMILIES)} corrupted copies.\n",
        f"| family | severity | {heads} |",
        "|---|---:|" + "---:|" * len(result["heads"]),
        f"| clean | – | {_percents(result['clean'])} |",
    ]
    for family in FAMILIES:
        for severity in SEVERITIES:
            found = [a for key, a in result[family].items() if key.endswith(f" {severity}")]
            lines.append(f"| {family} | {severity} | {_percents(np.mean(found, axis=0))} |")
    lines += [f"\n| corruption, mean of severities | {heads} |", "|---|" + "---:|" * len(result["heads"])]
    for family, names in FAMILIES.items():
        for name in names:
            found = [a for key, a in result[family].items() if key.startswith(f"{name} ")]
            lines.append(f"| {family}: {name} | {_percents(np.mean(found, axis=0))} |")
    if "aligned" in result:
        lines += _aligned_lines(result["aligned"])
    return "\n".join([*lines, *([f"\n{result['note']}"] if "note" in result else [])])


def _aligned_lines(found: dict[str, list[float]]) -> list[str]:
    """The means over corruptions of a severity, of `aligned`."""
    lines = [
        "\nHalf of the images without labels align the head, the other half judge it; the mix of classes is stated.\n",
        f"| severity | {ALIGNED} % | aligned % | {ALIGNED}, skewed mix % | aligned, skewed mix % |",
        "|---:|---:|---:|---:|---:|",
    ]
    by_severity = {s: [a for key, a in found.items() if key.endswith(f" {s}")] for s in SEVERITIES}
    return lines + [f"| {s} | {_percents(np.mean(rows, axis=0))} |" for s, rows in by_severity.items() if rows]


def clean_total() -> Total:
    """The total of all clean training rows; classes are numbered in the order of their names."""
    rows, classes = data.embeddings("cifar10"), load_samples(str(IMAGES)).classes()
    whole = Dataset(rows["x_train"], rows["y_train"], rows["x_test"], rows["y_test"], classes)
    recipe = recipe_for(whole, [HeadSpec.parse(head) for head in HEADS], power=0.5)
    sums = count(Features.of(recipe), Embedded(whole.x_train, whole.y_train)).moments
    return Total.of([Message.of(sums, recipe, "all")], recipe)


def _damaged(images: Path, severities: tuple[int, ...]) -> Iterator[tuple[tuple[str, str, int], np.ndarray]]:
    """Clean images, then every corruption at these severities, each made by a process of its own."""
    families = FAMILIES.items()
    kinds = [(family, name, severity) for family, names in families for name in names for severity in severities]
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("fork")) as pool:
        yield from zip([CLEAN, *kinds], pool.map(_pixels, [(images, *kind) for kind in [CLEAN, *kinds]]), strict=True)


def _pixels(kind: tuple[Path, str, str, int]) -> np.ndarray:
    images, _, name, severity = kind
    samples = load_samples(str(images))
    if name:
        samples = corrupt(samples, Corruption(name, severity))
    return np.stack([samples.read(i) for i in range(len(samples))])


def _encoder(device: str, weights: Path) -> encoders.SampleEncoder:
    if device == "cpu":
        return exported(weights, "squash")
    return encoders.load("torchvision:mobilenet_v2", Runtime(device), weights=weights)


def _percents(accuracies: list[float] | np.ndarray) -> str:
    return " | ".join(f"{100 * a:.1f}" for a in accuracies)


def main() -> None:
    """Run it by hand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=list(BATCH))
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--images", type=Path, default=IMAGES)
    parser.add_argument("--total", type=Path)
    parser.add_argument("--write-total", type=Path)
    parser.add_argument("--severities", type=int, nargs="+", default=SEVERITIES, choices=SEVERITIES)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.write_total:
        clean_total().save(options.write_total)
        return
    total = None if options.total is None else Total.load(options.total)
    result = run(options.device, options.weights, options.images, total, tuple(options.severities))
    is_part = len(options.severities) < len(SEVERITIES) and options.json is not None and options.json.exists()
    if is_part:
        result = merged(json.loads(options.json.read_text(encoding="utf-8")), result)
    print(table(result))
    if options.json:
        made.store(options.json, json.dumps(result, indent=1) + "\n", has_older_rows=is_part)


def merged(older: dict, newer: dict) -> dict:
    """A stored result, with some severities measured again."""
    return {
        key: older.get(key, {}) | value if isinstance(value, dict) else value for key, value in (older | newer).items()
    }


if __name__ == "__main__":
    main()
