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
from ghofl.cli.options import Force, Json, LabelsAreNumbers
from ghofl.evaluation import scores as scoring
from ghofl.evaluation.selection import Report, best_of
from ghofl.samples import load_rows

HeadFile = Annotated[Path, typer.Argument(help="A head written by 'ghofl head'.")]
EmbeddingsFile = Annotated[Path, typer.Argument(help="A file of embeddings: .npz, .npy, .safetensors or .parquet.")]


def evaluate(
    head: HeadFile,
    embeddings: EmbeddingsFile,
    split: Annotated[str, typer.Option(help="Read x_SPLIT and y_SPLIT.")] = "",
    site: Annotated[str, typer.Option(help="This site's name in the report, for 'ghofl select'.")] = "",
    labels_are_numbers: LabelsAreNumbers = False,
    force: Force = False,
    json: Json = None,
) -> None:
    """Compare a head's predictions with labels.

    Example: ghofl evaluate lda.safetensors test.npz
    """
    console.check_outputs(json, force)
    classifier, rows = _load_head(head), load_rows(embeddings, split)
    y = rows.numbers(classifier.recipe.classes, labels_are_numbers)
    with console.progress() as report, console.errors_about(embeddings):
        scores = scoring.evaluate(classifier, rows.x, y, report)
    confusion, recalls = scores.confusion, scores.recalls(classifier.recipe.classes)
    measures = {
        "accuracy": confusion.accuracy,
        "balanced accuracy": confusion.balanced_accuracy,
        "expected calibration error": scores.calibration_error,
    }
    lowest = sorted(recalls.items(), key=lambda item: item[1])[:3]
    table = Table(title=f"{classifier.head.name} on {confusion.rows:,} rows")
    table.add_column("measure")
    table.add_column("%", justify="right")
    for name, value in (measures | {f"recall of {name} (among the lowest)": recall for name, recall in lowest}).items():
        table.add_row(name, f"{100 * value:.2f}")
    result = {name.replace(" ", "_"): value for name, value in measures.items()}
    about = Report.of(head, site, classifier, confusion).to_dict()
    console.show({**about, **result, "recalls": recalls}, table, json)


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
        rows, accuracy = f"{found.confusion.rows:,}", f"{100 * found.confusion.accuracy:.2f}"
        table.add_row(found.head, found.sha256[:12], str(len(found.sites)), rows, accuracy)
    console.show({"heads": [found.to_dict() for found in totals]}, table, json)


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
    rows = load_rows(embeddings, split, labelled=False)
    with console.progress() as report:
        probabilities = scoring.probabilities(classifier, rows.x, report)
    text = _predictions(probabilities, classifier.recipe.classes)
    result = {"file": str(output), "rows": len(rows.x), "head": classifier.head.name}
    if to_standard_output:
        sys.stdout.write(text)
        console.show(result, None, json)
        return
    files.write(output, text)
    console.say(result, f"Wrote {output}: {len(rows.x):,} predictions of {classifier.head.name}.", json)


def _predictions(probabilities: np.ndarray, classes: tuple[str, ...]) -> str:
    """A CSV of the best class of each row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "label", "probability"])
    best = probabilities.argmax(axis=1)
    writer.writerows([i, classes[c], f"{probabilities[i, c]:.6f}"] for i, c in enumerate(best))
    return text.getvalue()


def _load_head(path: Path) -> Classifier:
    with console.errors_about(path):
        return Classifier.load(path)
