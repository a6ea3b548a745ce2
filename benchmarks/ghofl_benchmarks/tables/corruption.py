"""Corrupted test images with statistics of clean training images only.

The paper's CIFAR-100-C statistics come from severities 1 to 4 of the very test images whose severity 5 is tested, which
leaks them; its figures stand here for what they are. Embeddings of corrupted test rows are read from
`embeddings/SET-c-ENCODER.npz` with `x_test` (rows of all corruptions at severity 5, in the order of the test rows) and
`corruptions` (their names); `corruptions.py` beside this package makes the images.
"""

from pathlib import Path

import numpy as np

from ghofl.classifier import Classifier
from ghofl.simulation.simulate import recipe_for, simulate
from ghofl_benchmarks import data, made, ours, paper, pictures, report
from ghofl_benchmarks.baselines.compared import spec_of
from ghofl_benchmarks.data import Missing
from ghofl_benchmarks.tables import Settings, add_row, leave_out, start


def run(settings: Settings) -> dict:
    """The paper's heads on corrupted test rows, where those are at hand; and the stored run on 1,000 CIFAR-10 images."""
    result = start("corruption", settings)
    result["notes"].append(
        "Statistics of clean training rows only. The paper's figures (CIFAR-100-C, ResNet-18) come from statistics of "
        "the test images themselves at severities 1 to 4."
    )
    for name in settings.sets or ("cifar100",):
        path = data.data_folder() / "embeddings" / f"{name}-c-{data.ENCODER[name]}.npz"
        if missing := data.missing_of(name):
            leave_out(result, missing, set=name)
        elif not path.is_file():
            how = (
                f"Corrupt the test images with benchmarks/corruptions.py at severity 5, embed them with `ghofl embed`, and "
                f"store x_test and corruptions in {data.named(path)}; or see `make bench PARTS=corrupted`."
            )
            leave_out(result, Missing(f"corrupted test rows of {data.TITLES[name]}", how), set=f"{name}-c")
        else:
            _rows_of(result, name, path, settings)
    _stored(result)
    return result


def _rows_of(result: dict, name: str, path: Path, settings: Settings) -> None:
    rows = data.load(name, rows=settings.rows)
    with np.load(path) as stored:
        x, names = stored["x_test"], [str(n) for n in stored["corruptions"]]
    x = np.square(x / np.float32(100)) if x.dtype == np.uint8 else x
    specs = {h: spec_of(h, "paper") for h in paper.CORRUPTION}
    parts = ours.parts_of(rows, settings.clients, settings.seed, 0.1)
    total = simulate(rows, parts, made.note(recipe_for(rows, specs.values())), {}).total
    for title, spec in specs.items():
        classifier = Classifier.fit(total, spec)
        blocks = np.split(x, len(names))
        found = [float((classifier.predict_numbers(b) == rows.y_test[: len(b)]).mean()) for b in blocks]
        known = paper.CORRUPTION[title] if name == "cifar100" else None
        add_row(result, "ours", float(np.mean(found)), known, set=f"{name}-c", method=title, alpha=0.1)


def _stored(result: dict) -> None:
    """The run that `make bench PARTS=corrupted` stored: CIFAR-10 images, severity 5."""
    stored = report.read("corrupted")
    if stored is None:
        return
    families = [k for k, v in stored.items() if isinstance(v, dict)]
    for at, head in enumerate(stored["heads"]):
        cells = [v[at] for f in families for k, v in stored[f].items() if k.endswith(" 5")]
        if cells:
            fields = {"set": "cifar10-c", "method": head, "note": f"{stored['images']} test images, MobileNetV2"}
            add_row(result, "ours", float(np.mean(cells)), None, **fields)


def draw(result: dict, path: Path) -> bool:
    """Bars."""
    if not pictures.can_draw():
        return False
    names = list(dict.fromkeys(r["set"] for r in result["rows"]))
    with pictures.canvas(path, len(names), (6.0, 1.9)) as axes:
        for ax, name in zip(axes, names, strict=True):
            pictures.bars(
                ax,
                [r for r in result["rows"] if r["set"] == name],
                f"{name.upper().replace('CIFAR', 'CIFAR-')}, severity 5",
            )
    return True
