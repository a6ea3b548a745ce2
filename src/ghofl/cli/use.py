"""Commands for a finished head: `evaluate` and `predict`."""

import csv
import io
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from ghofl import files
from ghofl.classifier import Classifier
from ghofl.cli import console
from ghofl.cli.site import Force, Json, LabelsAreNumbers
from ghofl.errors import EmbeddingsError
from ghofl.evaluation import Confusion, expected_calibration_error
from ghofl.evaluation.selection import Report, best_of
from ghofl.samples import class_numbers, rows_for

BLOCK = 2048
HeadFile = Annotated[Path, typer.Argument(help="A head written by 'ghofl head'.")]
EmbeddingsFile = Annotated[
    Path, typer.Argument(help="Embeddings (.npz, .npy, .safetensors, .parquet), or a table by a schema.")
]


def evaluate(
    head: HeadFile,
    embeddings: EmbeddingsFile,
    split: Annotated[str, typer.Option(help="Read x_SPLIT and y_SPLIT.")] = "",
    site: Annotated[str, typer.Option(help="This site's name in the report, for 'ghofl select'.")] = "",
    labels_are_numbers: LabelsAreNumbers = False,
    label_column: Annotated[str, typer.Option(help="Of a table by a schema: the column of labels.")] = "",
    force: Force = False,
    json: Json = None,
) -> None:
    """Compare a head's predictions with labels.

    Example: ghofl evaluate lda.safetensors test.npz
    """
    console.check_outputs(json, force)
    classifier = _load_head(head)
    rows = rows_for(classifier.recipe, embeddings, split, label=label_column)
    assert rows.y is not None
    if not len(rows.y):
        raise EmbeddingsError(f"{embeddings} holds no rows, and nothing can be said about none; give rows with labels.")
    y = class_numbers(rows.y, classifier.recipe.classes, labels_are_numbers)
    probabilities = _probabilities(classifier, rows.x)
    result = Confusion.of(y, probabilities.argmax(axis=1), len(classifier.recipe.classes))
    calibration = expected_calibration_error(probabilities, y)
    table = Table(title=f"{classifier.head.name} on {result.rows:,} rows")
    table.add_column("measure")
    table.add_column("%", justify="right")
    table.add_row("accuracy", f"{100 * result.accuracy:.2f}")
    table.add_row("balanced accuracy", f"{100 * result.balanced_accuracy:.2f}")
    table.add_row("expected calibration error", f"{100 * calibration:.2f}")
    recalls = {
        name: float(recall)
        for name, recall in zip(classifier.recipe.classes, result.recalls, strict=True)
        if np.isfinite(recall)
    }
    for name, recall in sorted(recalls.items(), key=lambda item: item[1])[:3]:
        table.add_row(f"recall of {name} (among the lowest)", f"{100 * recall:.2f}")
    console.present(
        {
            **Report.of(head, site, classifier, result).to_dict(),
            "expected_calibration_error": calibration,
            "accuracy": result.accuracy,
            "balanced_accuracy": result.balanced_accuracy,
            "recalls": recalls,
        },
        table,
        json,
    )


def select(
    reports: Annotated[list[Path], typer.Argument(help="Reports that sites wrote with 'ghofl evaluate --json'.")],
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: add up the sites' counts of right and wrong predictions and name the best head.

    Example: ghofl select north-lda.json south-lda.json north-rda.json south-rda.json
    """
    console.check_outputs(json, force)
    totals = best_of(Report.load(path) for path in reports)
    table = Table(title=f"{console.count(len(totals), 'head')}, best first")
    for name in ("head", "file's sha256", "sites", "rows", "accuracy %"):
        table.add_column(name)
    for found in totals:
        counts = found.confusion
        cells = (
            found.head,
            found.sha256[:12],
            str(len(found.sites)),
            f"{counts.rows:,}",
            f"{100 * counts.accuracy:.2f}",
        )
        table.add_row(*cells)
    console.present({"heads": [found.to_dict() for found in totals]}, table, json)


def predict(
    head: HeadFile,
    embeddings: EmbeddingsFile,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The CSV to write: row, label, probability; '-' for standard output."),
    ],
    split: Annotated[str, typer.Option(help="Read x_SPLIT.")] = "",
    force: Force = False,
    json: Json = None,
) -> None:
    """Predict labels of embeddings.

    Example: ghofl predict lda.safetensors new.npz -o predictions.csv
    """
    to_standard_output = str(output) == "-"
    if to_standard_output and json == "-":
        raise typer.BadParameter("both --output and --json are '-'; give one of them a file.")
    console.check_outputs(json, force, *([] if to_standard_output else [output]))
    classifier = _load_head(head)
    rows = rows_for(classifier.recipe, embeddings, split, labelled=False)
    probabilities = _probabilities(classifier, rows.x)
    best = probabilities.argmax(axis=1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "label", "probability"])
    for i, c in enumerate(best):
        writer.writerow([i, classifier.recipe.classes[c], f"{probabilities[i, c]:.6f}"])
    result = {"file": str(output), "rows": len(best), "head": classifier.head.name}
    if to_standard_output:
        sys.stdout.write(text.getvalue())
        console.present(result, None, json)
        return
    files.write(output, text.getvalue())
    console.said(
        result,
        f"Wrote {output}: {len(best):,} predictions of {classifier.head.name}.",
        json,
    )


def _load_head(path: Path) -> Classifier:
    with console.naming(path):
        return Classifier.load(path)


def _probabilities(classifier: Classifier, x: np.ndarray) -> np.ndarray:
    parts = [np.zeros((0, len(classifier.recipe.classes)))]
    with console.progress() as report:
        for start in range(0, len(x), BLOCK):
            parts.append(classifier.predict_proba(x[start : start + BLOCK]))
            report("rows", min(start + BLOCK, len(x)), len(x))
    return np.concatenate(parts)
