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
from ghofl.cli.options import EncoderOptions, Reading, RecipesEncoder, SampleOptions, encoding_of, takes_groups
from ghofl.cli.use import load_head
from ghofl.errors import RosterError
from ghofl.flower.server.report import load_used_total
from ghofl.wire.message import Message
from ghofl.wire.total import Total


@takes_groups
def report(
    run: Annotated[Path, typer.Argument(help="A total, or the folder of a run on Flower.")],
    messages: Annotated[
        list[Path] | None, typer.Argument(help="Messages in the total: they show who holds which classes.")
    ] = None,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")],
    heads: Annotated[
        list[Path] | None, typer.Option("--head", help="A head to judge on --data; repeat it for several.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="What to judge the heads on, with labels: all that 'ghofl evaluate' takes.")
    ] = None,
    split: Annotated[str, typer.Option(help="Read x_SPLIT and y_SPLIT of those rows, or this split.")] = "",
    labels_are_numbers: LabelsAreNumbers = False,
    encoder: RecipesEncoder = "",
    model: EncoderOptions,
    samples: SampleOptions,
    force: Force = False,
    json: Json = None,
) -> None:
    """Write one self-contained page about a total: who took part, what it holds, how good its heads are.

    Example: ghofl report total.ghofl north.ghofl --head rda.safetensors --data test.npz -o report.html
    """
    console.check_outputs(json, force, output)
    from ghofl.report.findings import Findings
    from ghofl.report.page import page

    if bool(heads) != (data is not None):
        raise typer.BadParameter("heads are judged on labelled rows; give both --head and --data, or neither.")
    with console.errors_about(run):
        total, promise = load_used_total(run) if run.is_dir() else (Total.load(run), "")
    is_private = not total.is_released  # exact figures, as in the exact total
    sent = [Message.load(path, total.recipe) for path in messages or ()]
    findings = Findings.of_total(total, f"The federation in {run.name}", sent)
    findings = replace(findings, guarantee=promise or findings.guarantee)
    if data is not None:
        reading = Reading(split, samples, encoding_of(encoder, model, samples), labels_are_numbers)
        x, y, _ = reading.load(total.recipe, data)
        judged = [_load(path, total) for path in heads or ()]
        is_private = is_private or any(one.personal for one in judged)
        findings = findings.judge_heads(judged, x, y)
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


def _load(path: Path, total: Total) -> Classifier:
    """The head in a file, which is for rows of the total's recipe."""
    classifier = load_head(path)
    if classifier.recipe.fingerprint != total.recipe.fingerprint:
        raise RosterError(f"{path} is a head of another recipe than the total's; give heads that were built from it.")
    return classifier


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
