"""The page of defaults: what the library does unless told otherwise, with the measurement behind each, from stored JSON."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ghofl.heads import best, dispersion, novelty
from ghofl.heads.naive_bayes import SHARED_ROWS
from ghofl.planning import assembly, public
from ghofl.recipe import DEFAULT_BUDGET, Grid
from ghofl.recipe.options import DELTA
from ghofl_benchmarks import report
from ghofl_benchmarks.data import ROOT

PAGE = ROOT.parent / "docs" / "defaults.md"
HEAD = """# Defaults

Written by `python -m ghofl_benchmarks page` from the files in `benchmarks/results`; the number in a line is of the file
that the line names. Choices were made on held-out training rows; the accuracies below are on test rows, which chose
nothing. MobileNetV2 is the encoder of the CIFAR sets, all-MiniLM-L6-v2 that of texts.

| what | default | another way to have it | measured | file |
|---|---|---|---|---|
"""
Line = tuple[str, str, str, Callable[[Any], str], str]


def lines() -> list[Line]:
    """What is chosen, its value in the code, the option beside it, the sentence of a measurement, and its file."""
    few = f"blend with angles below {best.FEW:g} rows per direction that rows vary in"
    return [
        ("views of photos", "flip and three sizes", "`--views paper`, `quick`, `best`", _views, "views"),
        ("grid", f"{Grid().bits} bits, scale fitted", "`--bits`, `--scale`", _grid, "grid"),
        ("grid of tables", f"{assembly.TABLE_BITS} bits, the schema's ranges", "`--bits`", lambda _: "", "grid"),
        ("statistics and head", f"`best` within {DEFAULT_BUDGET // 10**6} MB", "`--budget`, `--heads`", _best, "best"),
        ("shrinkage of LDA, RDA, Student", "from rows and dimensions", "`--preset paper`", _shrinkage, "accuracy"),
        ("`best` of few rows", few, "`--heads`", _few, "few_shots"),
        (
            "shrinkage of naive Bayes", f"shared variances count as {SHARED_ROWS:g} rows", "`nb(shrinkage=0)`", _naive_bayes,
            "naive_bayes",
        ),
        ("texts", "the same defaults, here within 256 MB", "`--preset paper`", _texts, "defaults"),
        (
            "probabilities", f"calibrated on draws, τ² = log₂ C from {dispersion.WIDE} dimensions, τ ≤ "
            f"{dispersion.DISPERSION:g} unless linear",
            "`ghofl calibrate`, `--priors`", _probabilities, "probabilities",
        ),
        ("novelty", "relative Mahalanobis distance", "`--reject`", _novelty, "novelty"),
        (
            "share of rows rejected", f"of draws of a Student with {novelty.DOF:g} degrees of freedom, scored by redrawn "
            "totals", "`ghofl calibrate`", _false_alarms, "false_alarms",
        ),
        ("trained heads", "τ = 1.3, steps instead of epochs", "`--preset paper`", _trained, "trained"),
        ("public metric", f"shrunk by {public.SHRINKAGE:g}", "`--public`", _public, "public_rows"),
        ("δ beside ε", f"{DELTA:g}", "`--delta`", _privacy, "privacy"),
    ]  # fmt: skip


def page(folder: Path = report.RESULTS) -> str:
    """The page as Markdown."""
    rows = []
    for what, value, other, sentence, name in lines():
        stored = report.read(name, folder)
        told = "" if stored is None else sentence(stored)
        rows.append(f"| {what} | {value} | {other} | {told or 'not measured'} | {f'`{name}.json`' if told else '–'} |")
    return HEAD + "\n".join(rows) + "\n"


def write_defaults() -> Path:
    """Write docs/defaults.md; the path."""
    PAGE.write_text(page(), encoding="utf-8")
    return PAGE


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _views(stored: dict) -> str:
    told = []
    for one in stored["sets"]:
        before, after = (one["candidates"][name] for name in ("one view", "flip 160,224,288"))
        told.append(f"{one['set']} LDA {_percent(before['lda'])} → {_percent(after['lda'])}")
    return "; ".join(told) + ", for a sixth of the images per second"


def _grid(stored: list[dict]) -> str:
    def of(name: str, bits: int) -> str:
        row = next(r for r in stored if r["dataset"] == name and r["power"] == 1 and r["bits"] == bits)
        return _percent(row["lda_accuracy"])

    return "; ".join(
        f"{name} LDA {of(name, 4)} / {of(name, 8)} / {of(name, 12)}" for name in ("cifar10", "cifar100")
    ) + (" with 4 / 8 / 12 bits")


def _best(stored: list[dict]) -> str:
    def of(name: str) -> str:
        return ", ".join(f"{_percent(r['accuracy'])} ({r['budget']})" for r in stored if r["dataset"] == name)

    return f"cifar10 {of('cifar10')}; cifar100 {of('cifar100')}"


def _shrinkage(stored: list[dict]) -> str:
    def of(name: str, config: str, head: str) -> str:
        found = next(r for r in stored if (r["dataset"], r["run"]) == (name, config))
        return _percent(found["heads"][head]["accuracy"])

    return "; ".join(
        f"{name} LDA {of(name, 'as the paper', 'lda')} → {of(name, 'defaults', 'lda')}, QDA "
        f"{of(name, 'as the paper', 'qda')} → RDA {of(name, 'defaults', 'rda')}"
        for name in ("cifar10", "cifar100")
    )


def _few(stored: list[dict]) -> str:
    sets = list(dict.fromkeys(r["dataset"] for r in stored))
    worst = max(stored, key=lambda r: r["gap"])
    return (
        f"over {len(stored)} cells of {', '.join(sets)}, `best` is at most {worst['gap']:.2f} points under the best single "
        f"head of the message ({worst['dataset']}, {worst['rows_per_class']} rows per class)"
    )


def _naive_bayes(stored: list[dict]) -> str:
    at = f"{SHARED_ROWS:g}"
    return "on held-out training rows: " + "; ".join(
        f"{r['dataset']}, {r['rows_per_class']} rows per class {r['weights']['0']:.1f} → {r['weights'][at]:.1f}"
        for r in stored
        if r["rows_per_class"] in (2, 8, "all")
    )


def _texts(stored: list[dict]) -> str:
    def of(name: str, defaults: bool) -> str:
        found = [r for r in stored if r["dataset"] == name and r["defaults"] == defaults]
        top = next((r for r in found if r["head"] == "best"), max(found, key=lambda r: r["accuracy"]))
        return f"{_percent(top['accuracy'])} (log loss {top['log_loss']:.2f})"

    sets = list(dict.fromkeys(r["dataset"] for r in stored))
    return "; ".join(f"{name} {of(name, False)} → {of(name, True)}" for name in sets) + (
        ": the paper's best of three heads on the test rows → `best`"
    )


def _probabilities(stored: list[dict]) -> str:
    told = []
    for data in dict.fromkeys(r["data"] for r in stored):
        by = {r["method"]: r for r in stored if r["data"] == data}
        own, plain, theirs = (
            by[name]["log_loss"] for name in ("ghofl lda", "ghofl lda, softmax of scores", "scikit-learn LDA")
        )
        told.append(f"{data}: {own:.3f} ({plain:.3f}, {theirs:.3f})")
    return "log loss of LDA (uncalibrated, scikit-learn's): " + "; ".join(told)


def _false_alarms(stored: list[dict]) -> str:
    def of(statistic: str) -> str:
        found = [r for r in stored if r["rows_per_class"] == "all" and r["statistic"] == statistic]
        return ", ".join(f"{r['dataset']} {_percent(r['turned_away']['0.05'])}" for r in found)

    return f"% of held-out training rows at 0.05, all rows: with S {of('S')}; with B {of('B')}"


def _novelty(stored: list[dict]) -> str:
    return "AUROC " + "; ".join(
        f"{r['inside']} against {r['outside']} {r['relative_mahalanobis']:.3f} (plain Mahalanobis {r['mahalanobis']:.3f})"
        for r in stored
    )


def _trained(stored: dict) -> str:
    def of(name: str, preset: str) -> str:
        row = next(
            r for r in stored["accuracy"] if (r["dataset"], r["head"], r["preset"]) == (name, "fisher_mix", preset)
        )
        return _percent(row["mean"])

    return "; ".join(f"{n} FisherMix {of(n, 'paper')} → {of(n, 'default')}" for n in ("cifar10", "cifar100"))


def _public(stored: dict) -> str:
    def of(name: str, is_public: bool) -> str:
        rows = [r for r in stored["accuracy"] if r["set"] == name and r["epsilon"] == 1 and r["head"] == "nearest_mean"]
        found = [sum(r["accuracies"]) / len(r["accuracies"]) for r in rows if (r["public"] != "none") == is_public]
        return _percent(max(found))

    sets = list(dict.fromkeys(r["set"] for r in stored["accuracy"]))
    return "means alone at ε = 1: " + "; ".join(f"{n} {of(n, False)} → {of(n, True)}" for n in sets)


def _privacy(stored: dict) -> str:
    rows = [r for r in stored["accuracy"] if r["noise"] == "central" and r["head"] == "lda" and r["projection"] is None]
    return "cifar10, LDA, central noise: " + ", ".join(
        f"ε = {r['epsilon']:g}: {_percent(sum(r['accuracies']) / len(r['accuracies']))}" for r in rows if r["epsilon"]
    )
