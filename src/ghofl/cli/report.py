"""The command that writes a page about a federation: `report`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ghofl import files
from ghofl.classifier import Classifier
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, LabelsAreNumbers
from ghofl.errors import EmbeddingsError
from ghofl.flower.server.report import load_used_total
from ghofl.samples import class_numbers, load_rows
from ghofl.wire.message import Message
from ghofl.wire.total import Total


def report(
    run: Annotated[Path, typer.Argument(help="A total, or the folder of a run on Flower.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")],
    messages: Annotated[
        list[Path] | None, typer.Option("--message", help="A message in the total; repeat it for each.")
    ] = None,
    heads: Annotated[
        list[Path] | None, typer.Option("--head", help="A head to judge on --embeddings; repeat it for several.")
    ] = None,
    embeddings: Annotated[Path | None, typer.Option(help="Labelled embeddings to judge the heads on.")] = None,
    split: Annotated[str, typer.Option(help="Read x_SPLIT and y_SPLIT of those rows.")] = "",
    labels_are_numbers: LabelsAreNumbers = False,
    force: Force = False,
    json: Json = None,
) -> None:
    """Write one self-contained page about a total: who took part, what it holds, how good its heads are.

    Example: ghofl report total.ghofl --message north.ghofl --head rda.safetensors --embeddings test.npz -o report.html
    """
    console.check_outputs(json, force, output)
    from ghofl.report.findings import Findings
    from ghofl.report.page import page

    if heads and embeddings is None:
        raise typer.BadParameter("--head is judged on labelled rows; give --embeddings too.")
    with console.errors_about(run):
        total, promise = load_used_total(run) if run.is_dir() else (Total.load(run), "")
    is_private = not total.is_released  # exact figures, as in the exact total
    sent = [Message.load(path, total.recipe) for path in messages or ()]
    findings = Findings.of_total(total, f"The federation in {run.name}", sent)
    findings = replace(findings, guarantee=promise or findings.guarantee)
    if embeddings is not None:
        loaded = load_rows(embeddings, split)
        assert loaded.y is not None
        if not len(loaded.x):
            raise EmbeddingsError(
                f"{embeddings} has no rows, and a head is judged on at least one; give rows with labels."
            )
        y = class_numbers(loaded.y, total.recipe.classes, labels_are_numbers)
        judged = [Classifier.load(path) for path in heads or ()]
        is_private = is_private or any(one.personal for one in judged)
        findings = findings.judge_heads(judged, loaded.x, y)
    text = page(findings)
    files.write(output, text, *([files.PRIVATE] if is_private else []))
    console.say(
        {
            "file": str(output),
            "bytes": len(text),
            "sites": len(findings.sites),
            "heads": [h.name for h in findings.heads],
        },
        f"Wrote {output}: open it in a browser; it needs no network.",
        json,
        is_private=is_private,
    )


def page_writer(output: Path | None, force: bool, json: str | None = None) -> Callable[..., None]:
    """A function that writes the page of a simulation; it does nothing where no file was asked for."""
    console.check_outputs(json, force, output)
    if output is None:
        return lambda *_: None
    from ghofl.report.findings import Findings
    from ghofl.report.page import page

    def write(*simulated: Any) -> None:
        files.write(output, page(Findings.of_simulation(*simulated)))
        console.tell("Wrote", f"{output}: open it in a browser; it needs no network.", "green", mark="")

    return write
