"""How far classes are from Gaussian: |skewness| and |excess kurtosis| of every feature in every class.

They follow from sums of powers up to the fourth (N, A, D, D3, D4), which add up over clients like everything else; from
the paper's second moments they cannot be computed.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.classifier import HeadSpec
from ghofl.recipe import Recipe
from ghofl.simulation.partition import Parts
from ghofl.simulation.simulate import Dataset, recipe_for
from ghofl_benchmarks import data, ours, paper, pictures, powers
from ghofl_benchmarks.tables import Settings, leave_out, start

MEASURES = ("mean", "median", "90th percentile")
SPACES = {"as they are": {}, "square root": {"power": 0.5}}


def run(settings: Settings) -> dict:
    """Every set at hand, as it is and square-rooted."""
    result = start("gaussianity", settings)
    result["notes"].append(
        "Ten clients at α = 0.1. Images: the paper's encoder is ResNet-18, ours MobileNetV2; texts: DistilBERT there, "
        "MiniLM here. A normal distribution has 0 and 0. Features without any spread in a class are left out."
    )
    names, missing = data.at_hand(settings.sets or (*data.IMAGES, *data.TEXTS))
    for m in missing:
        leave_out(result, m, set=m.what)
    for name in names:
        rows = data.load(name, rows=settings.rows)
        parts = ours.parts_of(rows, settings.clients, settings.seed, 0.1)
        for space, options in SPACES.items():
            for measure, values in measures(rows, parts, **options).items():
                theirs = _paper(name, measure) if space == "as they are" else (None, None, None)
                row = {"set": name, "space": space, "measure": measure, "kind": "ours"}
                for title, value, other in zip(MEASURES, summary(values), theirs, strict=True):
                    row |= {title: round(value, 3), f"paper's {title}": other}
                    row |= {f"{title}: difference": None if other is None else round(value - other, 2)}
                result["rows"].append(row)
                print("  ", row, flush=True)
    return result


def measures(rows: Dataset, parts: Parts, **options: Any) -> dict[str, np.ndarray]:
    """Skewness and excess kurtosis of every feature in every class, from the total of all clients."""
    with powers.registered():
        moments = ours.total_of(rows, parts, recipe_of(rows, **options))
        return {"skewness": powers.skewness(moments), "excess kurtosis": powers.excess_kurtosis(moments)}


def recipe_of(rows: Dataset, **options: Any) -> Recipe:
    """A recipe that asks for powers up to the fourth, which `powers.registered` makes known."""
    return replace(recipe_for(rows, [HeadSpec.parse("nb")], **options), statistics=("N", "A", "D", "D3", "D4"))


def summary(values: np.ndarray) -> tuple[float, float, float]:
    """Mean, median and 90th percentile of absolute values, over classes and features."""
    sizes = np.abs(values[np.isfinite(values)])
    return float(sizes.mean()), float(np.median(sizes)), float(np.percentile(sizes, 90))


def _paper(name: str, measure: str) -> tuple[float | None, ...]:
    if name not in paper.GAUSSIANITY:
        return None, None, None
    mean, most = paper.GAUSSIANITY[name][:2] if measure == "skewness" else paper.GAUSSIANITY[name][2:]
    median = {"cifar10": (1.64, 3.41), "cifar100": (1.83, 4.57), "svhn": (2.06, 5.97)}.get(name)
    return mean, None if median is None else median[measure != "skewness"], most


def draw(result: dict, path: Path) -> bool:
    """Means by set, ours and the paper's."""
    if not pictures.can_draw():
        return False
    with pictures.canvas(path, 2, (4.2, 3.4)) as axes:
        for ax, measure in zip(axes, ("skewness", "excess kurtosis"), strict=True):
            rows = [r for r in result["rows"] if r["measure"] == measure]
            names = list(dict.fromkeys(r["set"] for r in rows))
            for shift, space, colour in ((-0.2, "as they are", "#1f6f8b"), (0.2, "square root", "#7fb3c4")):
                of = {r["set"]: r["mean"] for r in rows if r["space"] == space}
                ax.bar(
                    [i + shift for i in range(len(names))],
                    [of.get(n, 0) for n in names],
                    0.4,
                    color=colour,
                    label=space,
                )
            known = [
                (i, paper.GAUSSIANITY[n][0 if measure == "skewness" else 2])
                for i, n in enumerate(names)
                if n in paper.GAUSSIANITY
            ]
            ax.plot(
                [i for i, _ in known], [v for _, v in known], "k_", markersize=14, label="the paper's (other encoders)"
            )
            ax.set_xticks(range(len(names)), [data.TITLES[n] for n in names], rotation=40, ha="right", fontsize=7)
            ax.set_title(f"mean |{measure}| of features within classes")
        pictures.legend(axes)
    return True
