"""The command that writes a head as an ONNX file: `export`."""

from pathlib import Path
from typing import Annotated

import typer

from ghofl import files
from ghofl.classifier import Classifier
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json
from ghofl.cli.use import HeadFile
from ghofl.rows import load_rows


def export(
    head: HeadFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The ONNX file to write.")],
    encoder: Annotated[
        Path | None, typer.Option(help="A file of 'ghofl export-encoder': the model then takes the encoder's inputs.")
    ] = None,
    card: Annotated[Path | None, typer.Option(help="Also write a model card, in Markdown.")] = None,
    embeddings: Annotated[
        Path | None, typer.Option(help="Embeddings on which to compare the file, in ONNX Runtime, with the head.")
    ] = None,
    split: Annotated[str, typer.Option(help="Read x_SPLIT of those rows.")] = "",
    force: Force = False,
    json: Json = None,
) -> None:
    """Write a head, alone or with its encoder, as one ONNX file that returns label, probabilities and scores.

    Example: ghofl export rda.safetensors -o rda.onnx --embeddings test.npz --card README.md
    """
    console.check_outputs(json, force, output, card)
    from ghofl.export.card import model_card
    from ghofl.export.model import export_head, export_with_encoder, largest_difference

    with console.errors_about(head):
        classifier = Classifier.load(head)
    alone = export_head(classifier)
    compared = {}
    if embeddings is not None:
        same, apart = largest_difference(alone, classifier, load_rows(embeddings, split, labelled=None).x)
        compared = {"same_labels": same, "largest_probability_difference": apart}
    model = alone if encoder is None else export_with_encoder(classifier, encoder)
    data = model.SerializeToString()
    mode = [files.PRIVATE] if classifier.personal else []
    files.write(output, data, *mode)
    if card is not None:
        files.write(card, model_card(classifier, name=output.stem), *mode)
    inputs, outputs = ([given.name for given in side] for side in (model.graph.input, model.graph.output))
    sentence = f"Wrote {output}: {console.size(len(data))}, from {' and '.join(inputs)} to {', '.join(outputs)}."
    if classifier.personal:
        console.tell("Warning", classifier.warning)
    if compared:
        sentence += (
            f" On {embeddings}, {compared['same_labels']:.2%} of labels are the head's, and no probability differs by more than "
            f"{compared['largest_probability_difference']:.1e}."
        )
    console.say(
        {"file": str(output), "bytes": len(data), "inputs": inputs, "card": str(card or ""), **compared}, sentence, json
    )
