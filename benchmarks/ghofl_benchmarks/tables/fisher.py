"""LDA in the k strongest Fisher directions against LDA in all dimensions, and the share of Fisher energy they hold."""

from pathlib import Path

import numpy as np

from ghofl.classifier import HeadSpec
from ghofl.features import Features
from ghofl.gaussians import Fisher, Gaussians
from ghofl.heads.lda import LDAOptions, fit_lda
from ghofl.simulation.simulate import Dataset, recipe_for
from ghofl.wire.message import Message
from ghofl.wire.total import Total
from ghofl_benchmarks import data, ours, paper, pictures
from ghofl_benchmarks.tables import Settings, add_row, leave_out, start

STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def run(settings: Settings) -> dict:
    """Every set at hand."""
    result = start("fisher", settings)
    result["notes"].append(
        "Shared covariance shrunk by 0.05, as the paper's. There are classes − 1 directions; LDA in all of them is LDA "
        "in all dimensions. The paper's encoders are ResNet-18 and DistilBERT, ours MobileNetV2 and MiniLM."
    )
    names, missing = data.at_hand(settings.sets or (*data.IMAGES, *data.TEXTS))
    for m in missing:
        leave_out(result, m, set=m.what)
    for name in names:
        _rows_of(result, name, data.load(name, rows=settings.rows), settings)
    return result


def _rows_of(result: dict, name: str, rows: Dataset, settings: Settings) -> None:
    recipe = recipe_for(rows, [HeadSpec.parse("lda")])
    features = Features.of(recipe)
    moments = ours.total_of(rows, ours.parts_of(rows, settings.clients, settings.seed, 0.1), recipe)
    total = Total.of([Message.of(moments, recipe, "all")], recipe)
    gaussians = Gaussians.of_total(total, features)
    x = features.values(rows.x_test)
    options = LDAOptions(shrinkage=0.05)
    whole = float((fit_lda(gaussians, options).predict(x) == rows.y_test).mean())
    theirs = paper.FISHER.get(name)
    add_row(
        result,
        "ours",
        whole,
        theirs and theirs[0],
        set=name,
        k="all dimensions",
        energy=1.0,
        space=f"{x.shape[1]} dimensions",
    )
    everything = Fisher.of_dim(gaussians, len(rows.classes) - 1)
    most = len(everything.ratios)
    for k in [*(s for s in STEPS if s < most), most]:
        fisher = Fisher.of_dim(gaussians, k)
        right = fisher_accuracy(fisher, gaussians, x, rows.y_test)
        known = paper.FISHER_STEPS.get(name, {}).get(k)
        if k == most and theirs:
            known = (theirs[1], 1.0)
        add_row(
            result, "ours", right, known and known[0], set=name, k=k, energy=round(fisher.energy, 4),
            paper_energy=known and known[1], space=f"{x.shape[1]} dimensions",
        )  # fmt: skip


def fisher_accuracy(fisher: Fisher, gaussians: Gaussians, x: np.ndarray, y: np.ndarray) -> float:
    """Accuracy of the nearest mean, with priors, in Fisher directions, where the shared covariance is the identity."""
    z, means = x @ fisher.basis, gaussians.means @ fisher.basis
    scores = z @ means.T - 0.5 * np.square(means).sum(axis=1) + gaussians.log_priors
    return float((scores.argmax(axis=1) == y).mean())


def draw(result: dict, path: Path) -> bool:
    """Accuracy relative to all dimensions, and energy, against k."""
    if not pictures.can_draw():
        return False
    names = list(dict.fromkeys(row["set"] for row in result["rows"]))
    with pictures.canvas(path, 2, (4.2, 3.6)) as (left, right):
        for name in names:
            rows = [r for r in result["rows"] if r["set"] == name and isinstance(r["k"], int)]
            whole = next(r["accuracy"] for r in result["rows"] if r["set"] == name and not isinstance(r["k"], int))
            left.semilogx(
                [r["k"] for r in rows],
                [r["accuracy"] - whole for r in rows],
                "o-",
                markersize=3,
                label=data.TITLES[name],
            )
            right.semilogx(
                [r["k"] for r in rows], [100 * r["energy"] for r in rows], "o-", markersize=3, label=data.TITLES[name]
            )
        left.set_ylabel("accuracy, points below LDA in all dimensions")
        right.set_ylabel("Fisher energy %")
        for ax in (left, right):
            ax.set_xlabel("Fisher directions")
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        pictures.legend([left])
    return True
