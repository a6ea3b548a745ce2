"""The command from samples to embeddings: `embed`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ghofl import encoders
from ghofl.cli import console
from ghofl.cli.arguments import EncoderName, Force, Json, ViewsText, more
from ghofl.cli.options import EncoderOptions, SampleOptions, takes_groups
from ghofl.encoders import embed as embedding
from ghofl.planning import trial as trials
from ghofl.rows import load_samples


@takes_groups
def embed(
    encoder: EncoderName,
    data: Annotated[
        str, typer.Option(help="A folder, a file, or hf:OWNER/NAME for a data set of the Hugging Face hub.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The .npz file to write; not with --try-views.")
    ] = None,
    *,
    split: Annotated[
        str, typer.Option(help="A split; several, as in train,test, are written as x_train, y_train, x_test, y_test.")
    ] = "",
    model: EncoderOptions,
    views: ViewsText = None,
    try_views: Annotated[
        bool,
        typer.Option(
            "--try-views",
            help="Write nothing: measure views on labelled images (LDA on held-out rows) and recommend one.",
            rich_help_panel=more("encoder"),
        ),
    ] = False,
    samples: SampleOptions,
    cache: Annotated[
        Path | None, typer.Option(help="Where finished batches are kept (default: ~/.cache/ghofl).")
    ] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site: turn samples into a file of embeddings. A run that was stopped continues where it left off.

    The embedding of a photo is the mean over several views of it, about six times the work of one view, which is
    --views paper.

    Example: ghofl embed --encoder torchvision:mobilenet_v2 --data photos --split train,test -o photos.npz
    """
    cache = cache or embedding.default_cache()
    if try_views:
        if output is not None or views is not None:
            raise typer.BadParameter(
                "--try-views writes no rows and tries its own list of views; leave out -o and options about views."
            )
        console.check_outputs(json, force)
        _show_trial(_try(encoder, model, data, split, samples, cache), json)
        return
    if output is None:
        raise typer.BadParameter("name the file to write: -o photos.npz.")
    console.check_outputs(json, force, output)
    console.check_folder(str(output))
    with console.progress(rate=True) as report:
        found = embedding.embed_file(
            encoder, data, output, [part.strip() for part in split.split(",")], cache, columns=samples.columns,
            runtime=samples.runtime, batch_size=samples.batch_size, skip_bad=samples.skip_bad, progress=report,
            views=encoders.ViewsRequest.parse(views), **vars(model),
        )  # fmt: skip
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


def _try(
    encoder: str, model: EncoderOptions, data: str, split: str, samples: SampleOptions, cache: Path
) -> trials.Trial:
    """Measure candidates of views on labelled images."""
    if not encoders.takes_views(encoder):
        raise typer.BadParameter(f"{encoder} has the views it was made with; try a torchvision: or timm: encoder.")
    with console.progress(rate=True) as report:
        return trials.try_views(
            load_samples(data, split, samples.columns),
            lambda views: encoders.load(encoder, samples.runtime, views=views, **vars(model)), cache,
            runtime=samples.runtime, skip_bad=samples.skip_bad, progress=report,
        )  # fmt: skip


def _show_trial(trial: trials.Trial, json: str | None) -> None:
    table = Table(title=f"LDA on held-out rows, {trial.rows:,} images")
    for name in ("views", "accuracy %", "±", "numbers per row", "images/s"):
        table.add_column(name, justify="left" if name == "views" else "right")
    for one in trial.tried:
        rate = "" if one.images_per_second is None else f"{one.images_per_second:,.0f}"
        accuracy, error = f"{100 * one.accuracy:.1f}", f"{100 * one.standard_error:.1f}"
        table.add_row(str(one.views) or "one view", accuracy, error, str(one.dim), rate)
    best, tried = trial.chosen, [one.to_dict() for one in trial.tried]
    console.show({"rows": trial.rows, "tried": tried, "chosen": best.to_dict()}, table, json)
    console.tell(
        "Take",
        f"{best.views.options} for 'ghofl embed' and 'ghofl recipe --from-encoder': the cheapest within one standard "
        "error of the most accurate. Sites that compute moments from samples take the views from the recipe.",
        "green",
    )
