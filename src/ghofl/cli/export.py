"""The command that writes heads and encoders as ONNX files: `export`."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from ghofl import encoders, files
from ghofl.classifier import Classifier
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, ViewsText, complete_encoders, refuse_unused
from ghofl.cli.options import EncoderOptions, takes_groups
from ghofl.cli.use import load_head
from ghofl.encoders.base import doorway
from ghofl.rows import load_rows


@takes_groups
def export(
    head: Annotated[
        Path | None, typer.Argument(help="A head written by 'ghofl head'; without it, the encoder alone is written.")
    ] = None,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The ONNX file to write.")],
    encoder: Annotated[
        str,
        typer.Option(
            help="The encoder, as in 'ghofl embed', which for a head is its recipe's: with both, the file takes photos as they "
            "are, or tokens of texts.",
            autocompletion=complete_encoders,
        ),
    ] = "",
    model: EncoderOptions,
    views: ViewsText = None,
    embeddings: Annotated[
        Path | None, typer.Option(help="Embeddings on which to compare the file, in ONNX Runtime, with the head.")
    ] = None,
    split: Annotated[str, typer.Option(help="Read x_SPLIT of those rows.")] = "",
    force: Force = False,
    json: Json = None,
) -> None:
    """Write a head, its encoder, or both as one ONNX file.

    A head returns label, probabilities and scores; with its encoder, the file resizes photos and averages over views by itself.
    Sites run an encoder's file without torch. It is checked against the original, whose fingerprint it has, so messages made with
    either can be added.

    Example: ghofl export head.safetensors --encoder onnx:mobilenet_v2.onnx -o photos.onnx
    """
    console.check_outputs(json, force, output)
    console.check_folder(str(output))
    if head is None:
        refuse_unused("without a head, an encoder is written", embeddings=embeddings, split=split)
        return _export_encoder(encoder, model, views, output, json)
    refuse_unused("the head's recipe says which views its encoder takes", views=views)
    return _export_head(head, encoder, model, embeddings, split, output, json)


def _export_head(
    head: Path, encoder: str, model: EncoderOptions, embeddings: Path | None, split: str, output: Path, json: str | None
) -> None:
    from ghofl.export.model import export_head, largest_difference

    classifier = load_head(head)
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


def _export_encoder(spec: str, model: EncoderOptions, views: str | None, output: Path, json: str | None) -> None:
    if not spec:
        raise typer.BadParameter("give a head, or an encoder with --encoder, or both.")
    loaded = encoders.load(spec, views=encoders.ViewsRequest.parse(views), **vars(model))
    difference = doorway("ghofl.encoders.export", "export --encoder", "export").export(loaded, output)
    seen, size = encoders.identity(loaded).views, output.stat().st_size
    result = {"file": str(output), "encoder": loaded.name, "fingerprint": loaded.fingerprint, "views": seen}
    console.say(
        {**result, "dim": loaded.dim, "bytes": size, "largest_difference": difference},
        f"Wrote {output}: {loaded.name}, {loaded.dim} numbers per row, "
        + (f"views {seen}, " if seen else "")
        + f"{console.size(size)}, within {difference:.1e} of the original. Sites run it with --encoder onnx:{output}.",
        json,
    )


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
