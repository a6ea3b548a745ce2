"""The command that writes a head as an ONNX file: `export`."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from ghofl import encoders, files
from ghofl.classifier import Classifier
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, complete_encoders
from ghofl.cli.options import EncoderOptions, takes_groups
from ghofl.cli.use import HeadFile
from ghofl.encoders.base import doorway
from ghofl.rows import load_rows


@takes_groups
def export(
    head: HeadFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The ONNX file to write.")],
    *,
    encoder: Annotated[
        str,
        typer.Option(
            help="The recipe's encoder, as in 'ghofl embed': the file then takes photos as they are, or tokens of texts.",
            autocompletion=complete_encoders,
        ),
    ] = "",
    model: EncoderOptions,
    embeddings: Annotated[
        Path | None, typer.Option(help="Embeddings on which to compare the file, in ONNX Runtime, with the head.")
    ] = None,
    split: Annotated[str, typer.Option(help="Read x_SPLIT of those rows.")] = "",
    force: Force = False,
    json: Json = None,
) -> None:
    """Write a head, alone or with its encoder, as one ONNX file that returns label, probabilities and scores.

    With its encoder, the file resizes photos and averages over views by itself.

    Example: ghofl export head.safetensors --encoder onnx:mobilenet_v2.onnx -o photos.onnx
    """
    console.check_outputs(json, force, output)
    from ghofl.export.model import export_head, largest_difference

    with console.errors_about(head):
        classifier = Classifier.load(head)
    alone = export_head(classifier)
    compared = {}
    if embeddings is not None:
        same, apart = largest_difference(alone, classifier, load_rows(embeddings, split, labelled=None).x)
        compared = {"same_labels": same, "largest_probability_difference": apart}
    written = _with_encoder(classifier, encoder, model) if encoder else alone
    data = written.SerializeToString()
    files.write(output, data, *([files.PRIVATE] if classifier.personal else []))
    inputs, outputs = ([given.name for given in side] for side in (written.graph.input, written.graph.output))
    sentence = f"Wrote {output}: {console.size(len(data))}, from {' and '.join(inputs)} to {', '.join(outputs)}."
    if classifier.personal:
        console.tell("Warning", classifier.warning)
    if compared:
        sentence += (
            f" On {embeddings}, {compared['same_labels']:.2%} of labels are the head's, and no probability differs by more than "
            f"{compared['largest_probability_difference']:.1e}."
        )
    console.say({"file": str(output), "bytes": len(data), "inputs": inputs, **compared}, sentence, json)


def _with_encoder(classifier: Classifier, spec: str, options: EncoderOptions) -> Any:
    """The model of a head with the encoder of this name, which is exported first unless it is an ONNX file."""
    from ghofl.export.model import export_with_encoder

    if spec.startswith("onnx:"):
        return export_with_encoder(classifier, spec.removeprefix("onnx:"))
    loaded = encoders.load(spec, views=encoders.agreed_views(spec, classifier.recipe.encoder), **vars(options))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "encoder.onnx"
        doorway("ghofl.encoders.export", "export --encoder", "export").export(loaded, file)
        return export_with_encoder(classifier, file)
