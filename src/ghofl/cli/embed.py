"""Commands from samples to embeddings: `embed` and `export-encoder`."""

from pathlib import Path
from typing import Annotated

import typer

from ghofl import encoders
from ghofl.cli import console
from ghofl.cli.options import EncoderName, EncoderOptions, Force, Json, SampleOptions, takes_groups
from ghofl.encoders.base import doorway
from ghofl.samples import embed as embedding


@takes_groups
def embed(
    encoder: EncoderName,
    data: Annotated[
        str, typer.Option(help="A folder, a file, or hf:OWNER/NAME for a data set of the Hugging Face hub.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .npz file to write.")],
    *,
    split: Annotated[
        str, typer.Option(help="A split; several, as in train,test, are written as x_train, y_train, x_test, y_test.")
    ] = "",
    model: EncoderOptions,
    samples: SampleOptions,
    cache: Annotated[
        Path | None, typer.Option(help="Where finished batches are kept (default: ~/.cache/ghofl).")
    ] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site: turn samples into a file of embeddings. Killed and started again, it goes on where it stopped.

    Example: ghofl embed --encoder torchvision:mobilenet_v2 --data photos --split train,test -o photos.npz
    """
    console.check_outputs(json, force, output)
    console.check_folder(str(output))
    with console.progress(rate=True) as report:
        found = embedding.embed_file(
            encoder, data, output, [part.strip() for part in split.split(",")], cache, columns=samples.columns,
            runtime=samples.runtime, batch_size=samples.batch_size, skip_bad=samples.skip_bad, progress=report, **vars(model),
        )  # fmt: skip
    console.list_bad(found.bad)
    console.say(
        {"file": str(output), **found.to_dict()},
        f"Wrote {output}: {sum(found.rows.values()):,} rows of {found.encoder.dim} numbers by {found.encoder.name}"
        + (f", {found.resumed:,} of the samples from the cache" if found.resumed else "")
        + (f", {console.count(len(found.bad), 'sample')} left out" if found.bad else "")
        + ".",
        json,
    )


@takes_groups
def export_encoder(
    encoder: EncoderName,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")],
    *,
    model: EncoderOptions,
    force: Force = False,
    json: Json = None,
) -> None:
    """Write an encoder as one ONNX file that sites run without torch, checked against the original.

    The file carries preprocessing or tokenizer, and the original's fingerprint: messages of both add up.

    Example: ghofl export-encoder --encoder torchvision:mobilenet_v2 -o mobilenet_v2.onnx
    """
    console.check_outputs(json, force, output)
    console.check_folder(str(output))
    loaded = encoders.load(encoder, **vars(model))
    difference = doorway("ghofl.encoders.export", "export-encoder", "export").export(loaded, output)
    result = {
        "file": str(output),
        "encoder": loaded.name,
        "fingerprint": loaded.fingerprint,
        "dim": loaded.dim,
        "bytes": output.stat().st_size,
        "largest_difference": difference,
    }
    console.say(
        result,
        f"Wrote {output}: {loaded.name}, {loaded.dim} numbers per row, {console.size(result['bytes'])}, "
        f"within {difference:.1e} of the original. Sites run it with --encoder onnx:{output}.",
        json,
    )
