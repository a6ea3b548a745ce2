"""CIFAR-10-C in miniature: statistics of clean training rows, test images corrupted in 19 ways, by family.

The corruptions are generated from real test images by `ghofl.datasets`; the published arrays are not needed.
"""

import tempfile
from pathlib import Path

import data
import numpy as np
from encoders import IMAGES, WEIGHTS

from ghofl import Classifier, Message, Total, datasets, encoders
from ghofl.classifier import HeadSpec
from ghofl.embeddings import class_numbers
from ghofl.features import Features
from ghofl.simulate import Dataset, recipe_for, site_moments

HEADS = ("lda", "rda(blend=0.95, shrinkage=0.05)", "nb")
SEVERITIES = (1, 3, 5)
A_CLASS = 10


def run() -> dict:
    """Accuracy on clean and corrupted images, for every corruption, severity and head."""
    from ghofl.encoders.export import export

    samples = datasets.load(str(IMAGES))
    keep = np.sort(np.concatenate([np.flatnonzero(samples.labels == c)[:A_CLASS] for c in samples.classes()]))
    samples = samples.only(keep)
    with tempfile.TemporaryDirectory() as folder:
        export(encoders.load("torchvision:mobilenet_v2", weights=WEIGHTS), Path(folder) / "m.onnx")
        encoder = encoders.load(f"onnx:{folder}/m.onnx")
    heads = _heads(samples.classes())
    y = class_numbers(samples.labels, samples.classes())
    result = {"images": len(samples), "heads": list(HEADS), "clean": _accuracies(heads, _rows(samples, encoder), y)}
    for family, names in datasets.FAMILIES.items():
        result[family] = {}
        for name in names:
            for severity in SEVERITIES:
                damaged = datasets.corrupted(samples, datasets.Corruption(name, severity))
                result[family][f"{name} {severity}"] = _accuracies(heads, _rows(damaged, encoder), y)
            print(family, name, result[family][f"{name} {SEVERITIES[-1]}"], flush=True)
    return result


def table(result: dict) -> str:
    """Means of each family by severity as Markdown."""
    lines = [
        f"CIFAR-10, MobileNetV2: clean statistics of 50,000 training rows, {result['images']} real test images.\n",
        "| family | severity | " + " | ".join(f"{head} %" for head in result["heads"]) + " |",
        "|---|---:|" + "---:|" * len(result["heads"]),
        "| clean | – | " + " | ".join(f"{100 * a:.1f}" for a in result["clean"]) + " |",
    ]
    for family in datasets.FAMILIES:
        for severity in SEVERITIES:
            found = [a for key, a in result[family].items() if key.endswith(f" {severity}")]
            mean = np.mean(found, axis=0)
            lines.append(f"| {family} | {severity} | " + " | ".join(f"{100 * a:.1f}" for a in mean) + " |")
    return "\n".join([*lines, *([f"\n{result['note']}"] if "note" in result else [])])


def _heads(classes: tuple[str, ...]) -> list[Classifier]:
    """Heads from the clean training set; its classes are numbered in the order of their names."""
    rows = data.embeddings("cifar10")
    whole = Dataset(rows["x_train"], rows["y_train"], rows["x_test"], rows["y_test"], classes)
    specs = {text: HeadSpec.parse(text) for text in HEADS}
    recipe = recipe_for(whole, specs.values(), power=0.5)
    sums, _ = site_moments(Features.of(recipe), whole.x_train, whole.y_train)
    total = Total.of([Message.of(sums, recipe, "all")], recipe)
    return [Classifier.fit(total, spec) for spec in specs.values()]


def _rows(samples: datasets.Samples, encoder: encoders.SampleEncoder) -> np.ndarray:
    blocks = (range(i, min(i + 32, len(samples))) for i in range(0, len(samples), 32))
    return np.concatenate(list(encoder.encode([samples.read(j) for j in block] for block in blocks)))


def _accuracies(heads: list[Classifier], x: np.ndarray, y: np.ndarray) -> list[float]:
    return [float((head.predict(x) == y).mean()) for head in heads]


if __name__ == "__main__":
    print(table(run()))
