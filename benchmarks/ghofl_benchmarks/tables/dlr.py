"""QDA with covariances of a diagonal plus rank r, projected to 256: accuracy, and memory and time beside NB's."""

import time
from pathlib import Path

import numpy as np

from ghofl.classifier import Classifier
from ghofl.simulation.simulate import Dataset
from ghofl_benchmarks import data, ours, paper, pictures
from ghofl_benchmarks.tables import Settings, add_row, leave_out, start

SETS = ("cifar10", *paper.DLR_SETS, "sst2", "banking77", "clinc150")
TIMED = 2000


def run(settings: Settings) -> dict:
    """The paper's heads, and RDA beside them."""
    result = start("dlr", settings)
    result["notes"].append(
        "The paper's presets. Memory is the size of the head's arrays and time the seconds per row, both in units of "
        "NB's; all low-rank heads need S, not the statistics of NB. The paper's encoders are ResNet-18 and DistilBERT."
    )
    names, missing = data.at_hand(settings.sets or SETS)
    for m in missing:
        leave_out(result, m, set=m.what)
    for name in names:
        rows = data.load(name, rows=settings.rows)
        parts = ours.parts_of(rows, settings.clients, settings.seed, 0.1)
        project = {"project": 256} if rows.x_train.shape[1] > 256 else {}
        found = ours.run(rows, parts, {**{h: h for h in paper.DLR}, "rda": "rda"}, "paper", **project)
        costs = {title: _cost(Classifier.fit(found.total, title, lambda _: None), rows) for title in found.heads}
        for title, head in found.heads.items():
            theirs = paper.DLR.get(title)
            known = theirs and name in paper.DLR_SETS and theirs[0][paper.DLR_SETS.index(name)]
            memory, seconds = (costs[title][i] / costs["nb"][i] for i in (0, 1))
            add_row(
                result, "ours", head.accuracy, known or None, set=name, method=title, memory=round(memory, 1),
                paper_memory=theirs and theirs[1], time=round(seconds, 1), paper_time=theirs and theirs[2],
                bytes_up=head.payload_bytes,
            )  # fmt: skip
    return result


def _cost(classifier: Classifier, rows: Dataset) -> tuple[float, float]:
    """Bytes of a head's arrays, and its best seconds of three over some rows."""
    x = classifier.features.values(rows.x_test[:TIMED])
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        classifier.rule.scores(x)
        seconds.append(time.perf_counter() - started)
    return float(sum(np.asarray(a).nbytes for a in classifier.rule.arrays().values())), min(seconds)


def draw(result: dict, path: Path) -> bool:
    """Bars, a panel per set."""
    if not pictures.can_draw():
        return False
    names = list(dict.fromkeys(row["set"] for row in result["rows"]))
    with pictures.canvas(path, len(names), (4.2, 2.6)) as axes:
        for ax, name in zip(axes, names, strict=True):
            pictures.bars(ax, [r for r in result["rows"] if r["set"] == name], data.TITLES[name])
        pictures.legend(axes)
    return True
