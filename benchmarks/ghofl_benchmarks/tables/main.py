"""Table 1: one-shot methods and methods in rounds on CIFAR-10, CIFAR-100 and SVHN at three label skews.

The paper's encoder is ResNet-18, trained whole by its methods in rounds, whose one-shot figures are quoted from
elsewhere; here every method has the same frozen MobileNetV2 embeddings, and methods in rounds train the head. Those
that train the whole network on images are `ghofl_benchmarks.gpu_multiround`.
"""

from functools import partial
from pathlib import Path

import numpy as np

from ghofl.classifier import HeadSpec
from ghofl.simulation.simulate import Dataset, recipe_for
from ghofl_benchmarks import data, ours, paper, pictures
from ghofl_benchmarks.baselines.linear import Fit, rounds
from ghofl_benchmarks.baselines.one_shot import Outcome, baselines, pooled_probe
from ghofl_benchmarks.tables import TORCH, Settings, add_row, has_torch, leave_out, start

OURS = {"LDA": "lda", "RDA": "rda", "Student": "student"}
ROUNDS = {"fedavg": "FedAvg", "fedprox": "FedProx", "scaffold": "SCAFFOLD"}
NOTES = (
    "The paper's encoder is ResNet-18, ours MobileNetV2 (frozen, 1280-d): differences are between encoders too. Its "
    "DENSE, Co-Boosting, FedPFT and FedCGS figures are quoted from the FedCGS paper; ours are those methods on heads "
    "over the same embeddings as everything else. Methods in rounds train the head only (SGD, rate 0.001, momentum 0.9, "
    "batch 256, one local epoch, 10 clients); the paper's train the whole network.",
    "Ours depend on the total only, which is the same for every split: `same_total` says that it was compared.",
)


def run(settings: Settings) -> dict:
    """Everything that can be run on the sets at hand."""
    result = start("main", settings)
    result["notes"] += NOTES
    names, missing = data.at_hand(settings.sets or tuple(data.IMAGES))
    for m in missing:
        leave_out(result, m, set=m.what)
    if not has_torch():
        leave_out(result, TORCH)
    for name in names:
        rows = data.load(name, rows=settings.rows)
        _ours(result, name, rows, settings)
        for alpha in settings.alphas or paper.ALPHAS:
            _one_shot(result, name, rows, alpha, settings)
            if has_torch():
                _trained(result, name, rows, alpha, settings)
    return result


def _ours(result: dict, name: str, rows: Dataset, settings: Settings) -> None:
    """Heads of one total, which every split has."""
    alphas = settings.alphas or paper.ALPHAS
    splits = {alpha: ours.parts_of(rows, settings.clients, settings.seed, alpha) for alpha in alphas}
    groups = (("as the paper", ours.PAPER_HEADS, "paper", {}), ("square root", OURS, "default", {"power": 0.5}))
    for space, heads, preset, options in groups:
        heads = {title: spec for title, spec in heads.items() if settings.wants(title)}
        if not heads:
            continue
        found = ours.run(rows, splits[alphas[0]], heads, preset, **options)
        same = _is_same(rows, splits, options)
        for title, head in found.heads.items():
            for alpha in alphas:
                add_row(
                    result, "ours", head.accuracy, _paper(title, name, alpha), set=name, method=title, space=space,
                    alpha=alpha, bytes_up=head.payload_bytes, seconds=round(head.fit_seconds, 2), same_total=same,
                )  # fmt: skip


def _is_same(rows: Dataset, splits: dict, options: dict) -> bool:
    """Whether all splits give one total, to the bit."""
    recipe = recipe_for(rows, [HeadSpec.parse("lda")], **options)
    return len({ours.total_of(rows, parts, recipe).sha256 for parts in splits.values()}) == 1


def _one_shot(result: dict, name: str, rows: Dataset, alpha: float, settings: Settings) -> None:
    parts = ours.parts_of(rows, settings.clients, settings.seed, alpha)
    fit = Fit(epochs=15 if len(rows.classes) < 50 else 10)
    known = baselines(fit, full=len(rows.classes) < 50)
    known = {n: b for n, b in known.items() if settings.wants(n)}
    for method, baseline in known.items():
        _row(result, name, alpha, method, baseline(rows, parts, settings.seed))
    if alpha == (settings.alphas or paper.ALPHAS)[0] and settings.wants("Linear probe"):
        _row(result, name, alpha, "Linear probe on all rows", pooled_probe(fit)(rows, parts, settings.seed), "ceiling")
        root = Dataset(
            np.sqrt(np.maximum(rows.x_train, 0)),
            rows.y_train,
            np.sqrt(np.maximum(rows.x_test, 0)),
            rows.y_test,
            rows.classes,
        )
        for method in [m for m in ("FedCGS", "FedNCM", "Fed3R", "AFL") if settings.wants(m)]:
            _row(result, name, alpha, method, known[method](root, parts, settings.seed), space="square root")


def _trained(result: dict, name: str, rows: Dataset, alpha: float, settings: Settings) -> None:
    from ghofl_benchmarks.baselines import heads

    parts = ours.parts_of(rows, settings.clients, settings.seed, alpha)
    for method, outcome in heads.distil(
        [m for m in heads.DISTILLED if settings.wants(m)], rows, parts, settings.seed, settings.device
    ).items():
        _row(result, name, alpha, method, outcome)
    for method, title in ROUNDS.items():
        if settings.wants(title):
            run = partial(heads.scaffold, device=settings.device) if method == "scaffold" else partial(rounds, method)
            accuracies, sent, seconds = run(rows, parts, settings.seed, settings.rounds)
            for number in sorted({1, settings.rounds}):
                outcome = Outcome(
                    accuracies[number - 1], sent * number, seconds * number / settings.rounds, "head only"
                )
                _row(result, name, alpha, f"{title}, {number} round{'s' * (number > 1)}", outcome)


def _row(
    result: dict, name: str, alpha: float, method: str, outcome: Outcome, kind: str = "baseline",
    space: str = "as they are",
) -> None:  # fmt: skip
    add_row(
        result, kind, outcome.accuracy, _paper(method, name, alpha) if space == "as they are" else None, set=name,
        method=method, space=space, alpha=alpha, bytes_up=outcome.bytes_up, seconds=round(outcome.seconds, 2),
        note=outcome.note or None,
    )  # fmt: skip


def _paper(method: str, name: str, alpha: float) -> float | None:
    values = paper.MAIN.get(method.split(", ")[0] if method.startswith("FedPFT") else method, {}).get(name)
    return None if values is None or alpha not in paper.ALPHAS else values[paper.ALPHAS.index(alpha)]


def draw(result: dict, path: Path) -> bool:
    """Accuracy at the strongest skew, a panel per set."""
    if not pictures.can_draw():
        return False
    alpha = min(row["alpha"] for row in result["rows"])
    names = list(dict.fromkeys(row["set"] for row in result["rows"]))
    found = [r for r in result["rows"] if r["alpha"] == alpha and r["accuracy"] is not None]
    found = [{**r, "label": f"{r['method']}{', √' if r['space'] == 'square root' else ''}"} for r in found]
    panels = {name: sorted((r for r in found if r["set"] == name), key=lambda r: -r["accuracy"]) for name in names}
    with pictures.canvas(path, len(names), (4.2, 5.4)) as axes:
        for ax, (name, rows) in zip(axes, panels.items(), strict=True):
            title = f"{data.TITLES[name]}, α = {alpha}"
            pictures.bars(ax, rows, title, "label", max(map(len, panels.values())))
        pictures.legend(axes)
    return True
