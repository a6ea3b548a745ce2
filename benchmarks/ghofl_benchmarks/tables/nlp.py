"""Text: the five sets, two label skews, projection to 256. The paper's encoder is DistilBERT, ours MiniLM."""

import warnings
from pathlib import Path

from ghofl.classifier import HeadSpec
from ghofl.errors import TrainingWarning
from ghofl.features import Features
from ghofl.simulation.simulate import Dataset, recipe_for
from ghofl_benchmarks import data, made, ours, paper, pictures
from ghofl_benchmarks.baselines.linear import Fit
from ghofl_benchmarks.baselines.one_shot import ensemble, pooled_probe
from ghofl_benchmarks.tables import TORCH, Settings, add_row, has_torch, leave_out, start

ALPHAS = (0.5, 0.01)
HEADS = {"NB": "nb", "LDA": "lda", "QDA": "qda", "FisherMix": "fisher_mix", "Proto-Hyper": "proto_hyper"}
GAUSSIAN = ("NB", "LDA", "QDA")
NEAR_START = "near its random start"


def run(settings: Settings) -> dict:
    """Every set at hand."""
    result = start("nlp", settings)
    result["notes"].append(
        "Baselines get the same projected features as our heads. Heads with the paper's presets, and RDA with the "
        "library's defaults; the best Gaussian head is the best of NB, LDA and QDA on the test rows, as in the paper."
    )
    result["notes"].append(
        f"FisherMix '{NEAR_START}': 40 epochs over 4,000 draws per class in batches of 2,048 are 160 steps with two classes and "
        "320 with four, which at the released rate of 0.0008 move a weight by 0.13 and 0.26; it starts at random up to 1 and "
        "0.58. So the seed decides: from 3,000 training rows seeds 0, 1 and 2 have 16.0, 84.5 and 45.1 % (LDA 86.7) on "
        "1,500 test rows of AG News, and 67.0, 50.9 and 74.2 (LDA 77.9) on the 872 of SST-2. The paper names no settings for "
        "texts; with those that the released code falls back on where a configuration is silent (10,000 draws, τ = 0.75, no "
        "shrinkage, 80 epochs) they have 86.8, 87.3 and 86.7, and 77.3, 77.1 and 77.2. The library's own defaults start from "
        "LDA (86.7 and 77.8)."
    )
    names, missing = data.at_hand(settings.sets or tuple(data.TEXTS))
    for m in missing:
        leave_out(result, m, set=m.what)
    if not has_torch():
        leave_out(result, TORCH)
    for name in names:
        rows = data.load(name, rows=settings.rows)
        _ours(result, name, rows, settings)
        for alpha in settings.alphas or ALPHAS:
            _baselines(result, name, projected(rows), alpha, settings)
    return result


def projected(rows: Dataset, dim: int = 256) -> Dataset:
    """The rows as the server sees them: on the grid, projected."""
    features = Features.of(made.note(recipe_for(rows, [HeadSpec.parse("lda")], project=dim)))
    return Dataset(
        features.values(rows.x_train).astype("float32"),
        rows.y_train,
        features.values(rows.x_test).astype("float32"),
        rows.y_test,
        rows.classes,
    )


def _ours(result: dict, name: str, rows: Dataset, settings: Settings) -> None:
    wanted = {title: spec for title, spec in HEADS.items() if settings.wants(title)}
    if not wanted:
        return
    alphas = settings.alphas or ALPHAS
    parts = ours.parts_of(rows, settings.clients, settings.seed, alphas[0])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = ours.run(rows, parts, wanted, "paper", project=256).heads
    is_near = any(isinstance(each.message, TrainingWarning) for each in told)
    found |= ours.run(rows, parts, {"RDA": "rda"}, project=256).heads
    best = max((t for t in GAUSSIAN if t in found), key=lambda t: found[t].accuracy, default=None)
    for alpha in alphas:
        for title, head in [*found.items(), *([("best Gaussian head", found[best])] if best else [])]:
            fields = {"set": name, "method": title, "alpha": alpha, "bytes_up": head.payload_bytes}
            note = best if title == "best Gaussian head" else NEAR_START if title == "FisherMix" and is_near else None
            add_row(result, "ours", head.accuracy, _paper(name, alpha, title), **fields, note=note)


def _baselines(result: dict, name: str, rows: Dataset, alpha: float, settings: Settings) -> None:
    parts = ours.parts_of(rows, settings.clients, settings.seed, alpha)
    fit = Fit(epochs=10)
    found = {}
    if settings.wants("Client ensemble"):
        found["Client ensemble"] = ensemble(fit)(rows, parts, settings.seed)
    if has_torch():
        from ghofl_benchmarks.baselines import heads

        wanted = [m for m in heads.DISTILLED if settings.wants(m)]
        found |= heads.distil(wanted, rows, parts, settings.seed, settings.device)
    for method, outcome in found.items():
        fields = {"set": name, "method": method, "alpha": alpha, "bytes_up": outcome.bytes_up}
        add_row(result, "baseline", outcome.accuracy, _paper(name, alpha, method), **fields)
    if alpha == (settings.alphas or ALPHAS)[0] and settings.wants("Linear probe"):
        outcome = pooled_probe(fit)(rows, parts, settings.seed)
        add_row(result, "ceiling", outcome.accuracy, None, set=name, method="Linear probe on all rows", alpha=alpha)


def _paper(name: str, alpha: float, method: str) -> float | None:
    values = paper.NLP.get((name, alpha))
    return None if values is None or method not in paper.NLP_METHODS else values[paper.NLP_METHODS.index(method)]


def draw(result: dict, path: Path) -> bool:
    """Bars at the stronger skew, a panel per set."""
    if not pictures.can_draw():
        return False
    names, alpha = list(dict.fromkeys(r["set"] for r in result["rows"])), min(r["alpha"] for r in result["rows"])
    with pictures.canvas(path, len(names), (4.2, 3.2)) as axes:
        for ax, name in zip(axes, names, strict=True):
            rows = [r for r in result["rows"] if r["set"] == name and (r["alpha"] == alpha or r["kind"] == "ceiling")]
            rows.sort(key=lambda r: list(pictures.COLOURS).index(r["kind"]))
            pictures.bars(ax, rows, f"{data.TITLES[name]}, α = {alpha}")
        pictures.legend(axes)
    return True
