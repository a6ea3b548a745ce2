"""The command from samples to embeddings: `embed`."""

from pathlib import Path
from typing import Annotated

import typer

from ghofl import encoders
from ghofl.cli import console
from ghofl.cli.arguments import EncoderName, Force, Json, ViewsText
from ghofl.cli.options import EncoderOptions, SampleOptions, takes_groups
from ghofl.encoders import embed as embedding


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
    views: ViewsText = None,
    samples: SampleOptions,
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site: turn samples into a file of embeddings. A run that was stopped continues where it left off.

    The embedding of a photo is the mean over several views of it, about six times the work of one view, which is
    --views paper.

    Example: ghofl embed --encoder torchvision:mobilenet_v2 --data photos --split train,test -o photos.npz
    """
    console.check_outputs(json, force, output)
    console.check_folder(str(output))
    names = [part.strip() for part in split.split(",")]
    try:
        with console.progress(rate=True) as report:
            found = embedding.embed_file(
                encoder, data, output, names, columns=samples.columns, runtime=samples.runtime,
                skip_bad=samples.skip_bad, progress=report, views=encoders.ViewsRequest.parse(views), **vars(model),
            )  # fmt: skip
    except KeyboardInterrupt:
        console.err.print("Finished batches are kept: the same command continues where this one stopped.")
        raise
    _show_rows(found, output, json)


def _show_rows(found: embedding.EmbeddedFile, output: Path, json: str | None) -> None:
    console.list_bad(found.bad)
    seen = encoders.identity(found.encoder).views
    console.say(
        {"file": str(output), **found.to_dict()},
        f"Wrote {output}: {sum(found.rows.values()):,} rows of {found.encoder.dim} numbers by {found.encoder.name}"
        + (f", each the mean over views ({seen})" if seen else "")
        + (f", {found.resumed:,} of them from the cache" if found.resumed else "")
        + (f", {console.count(len(found.bad), 'sample')} left out" if found.bad else "")
        + ".",
        json,
    )
