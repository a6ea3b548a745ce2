"""How `evaluate` shows its result: a table of measures, and the confusion matrix as a table and as a picture."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ghofl import files
from ghofl.errors import MissingExtraError
from ghofl.evaluation import Metrics
from ghofl.evaluation.confusion import interval_text

MOST_CLASSES = 20  # whose confusion matrix fits a terminal
LOWEST = 3
WORST = 10


def per_class(found: Metrics, classes: tuple[str, ...]) -> dict[str, Any]:
    """Precision and recall by class, for the classes that have one."""
    return {
        name: {c: float(v) for c, v in zip(classes, values, strict=True) if np.isfinite(v)}
        for name, values in (("precisions", found.confusion.precisions), ("recalls", found.confusion.recalls))
    }


def measures_table(found: Metrics, head: str, classes: tuple[str, ...]) -> Table:
    """The measures, and the classes with the lowest recall."""
    table = Table(title=f"{head} on {found.confusion.rows:,} rows")
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    counts = found.confusion
    for name, value, interval in (
        ("accuracy %", counts.accuracy, counts.accuracy_interval),
        ("balanced accuracy %", counts.balanced_accuracy, counts.balanced_interval),
        ("macro F1 %", counts.macro_f1, None),
        ("expected calibration error %", found.ece, None),
    ):
        table.add_row(name, f"{100 * value:.2f}", "" if interval is None else interval_text(interval, 2))
    table.add_row("log loss", f"{found.log_loss:.4f}")
    table.add_row("Brier score", f"{found.brier:.4f}")
    if found.auc is not None:
        table.add_row(f"area under the ROC curve of {classes[1]}", f"{found.auc:.4f}")
    both = per_class(found, classes)
    for name, recall in sorted(both["recalls"].items(), key=lambda item: item[1])[:LOWEST]:
        precision = f"{100 * both['precisions'][name]:.2f}" if name in both["precisions"] else "–"
        table.add_row(f"recall, precision of {name} (among the lowest) %", f"{100 * recall:.2f}, {precision}")
    return table


def confusion_table(found: Metrics, classes: tuple[str, ...]) -> Table:
    """How often each class was predicted as each other; with too many for a terminal, the most frequent mistakes."""
    if len(classes) > MOST_CLASSES:
        return _mistakes(found, classes)
    table = Table(title="rows of a class, by the class that was predicted")
    table.add_column("class")
    for name in classes:
        table.add_column(name, justify="right")
    for name, row in zip(classes, found.confusion.counts, strict=True):
        table.add_row(name, *(f"{count:,}" if count else "·" for count in row))
    return table


def _mistakes(found: Metrics, classes: tuple[str, ...]) -> Table:
    """The pairs of classes that were mistaken most often."""
    counts = found.confusion.counts.copy()
    np.fill_diagonal(counts, 0)
    worst = np.argsort(-counts, axis=None, kind="stable")[:WORST]
    title = f"most frequent mistakes; --json has the whole matrix of {len(classes):,} classes, --plot draws it"
    table = Table(title=title)
    for name in ("rows of", "predicted as"):
        table.add_column(name, overflow="fold")
    table.add_column("rows", justify="right")
    for i, j in zip(*np.unravel_index(worst, counts.shape), strict=True):
        if counts[i, j]:
            table.add_row(classes[i], classes[j], f"{counts[i, j]:,}")
    return table


def plot_confusion(found: Metrics, classes: tuple[str, ...], path: Path) -> None:
    """Write the confusion matrix as a picture, each row as shares of its class."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(
            "a picture of the confusion matrix needs matplotlib: pip install 'ghofl[report]'"
        ) from None
    counts = found.confusion.counts
    size = min(14.0, 3.0 + 0.35 * len(classes))
    figure = Figure(figsize=(size, size), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1)
    axes.set_xlabel("predicted")
    axes.set_ylabel("class")
    if len(classes) <= MOST_CLASSES:
        axes.set_xticks(range(len(classes)), classes, rotation=60, ha="right")
        axes.set_yticks(range(len(classes)), classes)
        for i, row in enumerate(counts):
            for j, count in enumerate(row):
                if count:
                    dark = count > 0.5 * row.sum()
                    axes.text(j, i, f"{count:,}", ha="center", va="center", color="white" if dark else "black", size=7)
    figure.colorbar(image, label="share of the class", shrink=0.7)
    with files.open_to_replace(path) as file:
        figure.savefig(file, format=path.suffix.lstrip(".") or "png")
