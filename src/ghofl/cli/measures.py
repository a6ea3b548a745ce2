"""How `evaluate` shows its result: tables of measures, classes, thresholds and mistakes."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.measure import Measurement
from rich.table import Table

from ghofl.cli import console
from ghofl.evaluation import Metrics
from ghofl.evaluation.confusion import interval_text

MOST_CLASSES = 20  # whose confusion matrix may fit a terminal
LONGEST_NAME = 18  # of a class beside a matrix of numbered columns; longer ones take two lines
WORST = 10


def per_class(found: Metrics, classes: tuple[str, ...]) -> dict[str, Any]:
    """Precision, recall and average precision by class, for the classes that have one."""
    counts = found.confusion
    return {
        name: {c: float(v) for c, v in zip(classes, values, strict=True) if np.isfinite(v)}
        for name, values in (
            ("precisions", counts.precisions),
            ("recalls", counts.recalls),
            ("average_precisions", found.average_precisions),
        )
    }


def measures_table(found: Metrics, head: str, classes: tuple[str, ...]) -> Table:
    """The measures of all classes together."""
    table = console.titled(f"{head} on {found.confusion.rows:,} rows")
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
        table.add_row("area under the ROC curve", f"{found.auc:.4f}")
    if found.average_precision is not None and counts.is_rarest_alone:
        rarest = classes[counts.rarest]
        table.add_row(f"average precision % of {rarest}, the rarest class", f"{100 * found.average_precision:.2f}")
    return table


def tables_of(found: Metrics, head: str, classes: tuple[str, ...]) -> Iterator[Table]:
    """What is shown beside the measures: the classes, the thresholds of two classes, and the confusion matrix."""
    yield classes_table(found, classes)
    if found.thresholds:
        yield thresholds_table(found, head, classes)
    yield confusion_table(found, classes)


def classes_table(found: Metrics, classes: tuple[str, ...]) -> Table:
    """Recall and precision of each class; with too many for a terminal, of those with the lowest recall."""
    recalls = np.nan_to_num(found.confusion.recalls, nan=2.0)  # classes without rows come last
    shown = np.argsort(recalls, kind="stable")[: MOST_CLASSES if len(classes) <= MOST_CLASSES else WORST]
    some = "" if len(shown) == len(classes) else f"; the {WORST} classes of {len(classes):,} with the lowest recall"
    table = console.titled(
        f"Recall and precision{some}",
        "Recall: the share of a class's rows that were found. Precision: the share of rows predicted as a class that "
        "belong to it. The balanced accuracy is the mean recall.",
    )
    table.add_column("class", overflow="fold")
    for name in ("rows", "recall %", "precision %", "average precision %"):
        table.add_column(name, justify="right")
    rows = found.confusion.counts.sum(axis=1)
    for c in shown:
        shares = (found.confusion.recalls[c], found.confusion.precisions[c], found.average_precisions[c])
        table.add_row(classes[c], f"{rows[c]:,}", *(f"{100 * s:.2f}" if np.isfinite(s) else "–" for s in shares))
    return table


def thresholds_table(found: Metrics, head: str, classes: tuple[str, ...]) -> Table:
    """What becomes of the rarer of two classes at several thresholds."""
    rarer = classes[found.confusion.rarest]
    table = console.titled(
        f"{head}: rows predicted as {rarer}, by threshold",
        f"--threshold '{rarer}=P' predicts {rarer} wherever its probability is at least P.",
    )
    for name in ("threshold", "recall %", "precision %", "rows flagged %"):
        table.add_column(name, justify="right")
    for line in found.thresholds:
        shares = (line.recall, line.precision if line.flagged else np.nan, line.flagged)
        table.add_row(f"{line.probability:.3g}", *(f"{100 * s:.2f}" if np.isfinite(s) else "–" for s in shares))
    return table


def confusion_table(found: Metrics, classes: tuple[str, ...]) -> Table:
    """How often each class was predicted as each other; if it does not fit the terminal, the most frequent mistakes."""
    if len(classes) <= MOST_CLASSES:
        for table in (_matrix(found, classes), _numbered_matrix(found, classes)):
            if (
                Measurement.get(console.out, console.out.options.update(max_width=10_000), table).maximum
                <= console.out.width
            ):
                return table
    return _mistakes(found, classes)


def _matrix(found: Metrics, classes: tuple[str, ...]) -> Table:
    table = console.titled("Confusion matrix", "One line per true class, one column per predicted class.")
    table.add_column("true class")
    return _filled(table, found, classes, classes)


def _numbered_matrix(found: Metrics, classes: tuple[str, ...]) -> Table:
    """With the classes' places for their names, and little space between columns."""
    table = console.titled(
        "Confusion matrix", "One line per true class, one column per predicted class, by its number.",
        box=box.SIMPLE_HEAD, padding=0, show_edge=False,
    )  # fmt: skip
    table.add_column("true class", overflow="fold", max_width=LONGEST_NAME)
    numbers = [str(i) for i in range(1, len(classes) + 1)]
    return _filled(table, found, [f"{i:>2} {name}" for i, name in enumerate(classes, 1)], numbers)


def _filled(table: Table, found: Metrics, lines: Sequence[str], columns: Sequence[str]) -> Table:
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for name, row in zip(lines, found.confusion.counts, strict=True):
        table.add_row(name, *(f"{count:,}" if count else "·" for count in row))
    return table


def _mistakes(found: Metrics, classes: tuple[str, ...]) -> Table:
    """The pairs of classes that were mistaken most often."""
    counts = found.confusion.counts.copy()
    np.fill_diagonal(counts, 0)
    worst = np.argsort(-counts, axis=None, kind="stable")[:WORST]
    table = console.titled(f"Most frequent mistakes; --json has the whole confusion matrix of {len(classes):,} classes")
    for name in ("true class", "predicted as"):
        table.add_column(name, overflow="fold")
    table.add_column("rows", justify="right")
    for i, j in zip(*np.unravel_index(worst, counts.shape), strict=True):
        if counts[i, j]:
            table.add_row(classes[i], classes[j], f"{counts[i, j]:,}")
    return table
