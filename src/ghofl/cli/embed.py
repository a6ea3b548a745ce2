"""Commands from samples to embeddings: `embed` and `export-encoder`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ghofl import encoders
from ghofl.cli import console
from ghofl.cli import samples as options
from ghofl.cli.site import Force, Json
from ghofl.cli.views import PANEL, takes_views
from ghofl.encoders import Runtime, SampleEncoder, Wanted
from ghofl.encoders.base import doorway
from ghofl.samples import Columns, Samples, load_samples, save_rows
from ghofl.samples import embed as embedding
from ghofl.samples import trial as trials


@takes_views
def embed(
    encoder: options.EncoderName,
    data: options.Data,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The .npz file to write; not with --try-views.")
    ] = None,
    weights: options.Weights = None,
    split: Annotated[
        str, typer.Option(help="A split; several, as in train,test, are written as x_train, y_train, x_test, y_test.")
    ] = "",
    pooling: options.Pooling = None,
    fit: options.Fit = None,
    wanted: Wanted = Wanted(),  # noqa: B008 (frozen)
    try_views: Annotated[
        bool,
        typer.Option(
            "--try-views",
            help="Write nothing: measure views on labelled images (LDA on rows left out) and say which to take.",
            rich_help_panel=PANEL,
        ),
    ] = False,
    try_rows: Annotated[
        int, typer.Option(min=trials.FEWEST_ROWS, help="With --try-views: on how many images.", rich_help_panel=PANEL)
    ] = trials.TRIED_ROWS,
    text_column: options.TextColumn = "",
    path_column: options.PathColumn = "",
    row_column: options.RowColumn = "",
    label_column: options.LabelColumn = "",
    device: options.Device = "cpu",
    precision: options.Precision = "fp32",
    batch_size: options.BatchSize = 0,
    skip_bad: options.SkipBad = False,
    cache: Annotated[
        Path | None, typer.Option(help="Where finished batches are kept (default: ~/.cache/ghofl).")
    ] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site: turn samples into a file of embeddings. Killed and started again, it goes on where it stopped.

    Photos are embedded as the mean over several views of each, about six times the work of one: --quality paper is one.

    Example: ghofl embed --encoder torchvision:mobilenet_v2 --data photos --split train,test -o photos.npz
    """
    columns = Columns(text_column, path_column, row_column, label_column)
    chosen = options.Chosen(encoder, weights, pooling, fit, Runtime(device, precision), wanted)
    cache = cache or embedding.default_cache()
    if try_rows != trials.TRIED_ROWS and not try_views:
        raise typer.BadParameter("--try-rows is for --try-views; give that too.")
    if try_views:
        _try(chosen, data, split, columns, try_rows, cache, output, skip_bad, force, json)
        return
    if output is None:
        raise typer.BadParameter("name the file to write: -o photos.npz.")
    console.check_outputs(json, force, output)
    console.refuse_missing_folder(str(output))
    splits = {
        name: load_samples(data, name, columns) for name in dict.fromkeys(part.strip() for part in split.split(","))
    }
    loaded = chosen.load(data, next(iter(splits.values())))
    found = {}
    with console.progress(rate=True) as report:
        for name, samples in splits.items():
            found[name] = embedding.embed(
                samples, loaded, cache,
                runtime=chosen.runtime, batch_size=batch_size, skip_bad=skip_bad, progress=_told(report, name),
            )  # fmt: skip
    written = found if len(found) > 1 else {"": next(iter(found.values()))}
    save_rows(output, {name: part.rows for name, part in written.items()}, encoders.identity(loaded))
    _tell(output, loaded, found, splits, json)


def _try(
    chosen: options.Chosen, data: str, split: str, columns: Columns, rows: int, cache: Path, output: Path | None,
    skip_bad: bool, force: bool, json: str | None,
) -> None:  # fmt: skip
    """Measure candidates of views on labelled images."""
    if output is not None or chosen.views != Wanted():
        raise typer.BadParameter("--try-views writes no rows and tries views of its own; leave out -o and other views.")
    if not encoders.takes_views(chosen.spec):
        raise typer.BadParameter(f"{chosen.spec} has the views it was made with; try a torchvision: or timm: encoder.")
    console.check_outputs(json, force)
    with console.progress(rate=True) as report:
        trial = trials.try_views(
            load_samples(data, split, columns), lambda views: replace(chosen, views=views).load(), cache,
            runtime=chosen.runtime, rows=rows, skip_bad=skip_bad, progress=report,
        )  # fmt: skip
    table = Table(title=f"LDA on rows left out, {trial.rows:,} images")
    for name in ("views", "accuracy %", "±", "numbers per row", "images/s"):
        table.add_column(name, justify="left" if name == "views" else "right")
    for one in trial.tried:
        rate = "" if one.images_per_second is None else f"{one.images_per_second:,.0f}"
        accuracy, error = f"{100 * one.accuracy:.1f}", f"{100 * one.standard_error:.1f}"
        table.add_row(str(one.views) or "one view", accuracy, error, str(one.dim), rate)
    best, tried = trial.chosen, [one.to_dict() for one in trial.tried]
    console.present({"rows": trial.rows, "tried": tried, "chosen": best.to_dict()}, table, json)
    console.told(
        "Take",
        f"{best.views.options} for 'ghofl embed' and 'ghofl recipe --from-encoder': the cheapest within one standard "
        "error of the most accurate. Sites that compute moments from samples take the views from the recipe.",
        "green",
    )


@takes_views
def export_encoder(
    encoder: options.EncoderName,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")],
    weights: options.Weights = None,
    pooling: options.Pooling = None,
    fit: options.Fit = None,
    wanted: Wanted = Wanted(),  # noqa: B008 (frozen)
    force: Force = False,
    json: Json = None,
) -> None:
    """Write an encoder as one ONNX file that sites run without torch, checked against the original.

    The file carries preprocessing and views, or tokenizer, and the original's fingerprint: messages of both add up.

    Example: ghofl export-encoder --encoder torchvision:mobilenet_v2 -o mobilenet_v2.onnx
    """
    console.check_outputs(json, force, output)
    console.refuse_missing_folder(str(output))
    loaded = options.Chosen(encoder, weights, pooling, fit, views=wanted).load()
    difference = doorway("ghofl.encoders.export", "export-encoder", "export").export(loaded, output)
    result = {
        "file": str(output),
        "encoder": loaded.name,
        "fingerprint": loaded.fingerprint,
        "views": encoders.identity(loaded).views,
        "dim": loaded.dim,
        "bytes": output.stat().st_size,
        "largest_difference": difference,
    }
    console.said(
        result,
        f"Wrote {output}: {loaded.name}, {loaded.dim} numbers a row, "
        + (f"views {result['views']}, " if result["views"] else "")
        + f"{console.size(result['bytes'])}, "
        f"within {difference:.1e} of the original. Sites run it with --encoder onnx:{output}.",
        json,
    )


def _told(report: embedding.Progress, split: str) -> embedding.Progress:
    def told(what: str, done: int, of: int) -> None:
        report(f"{split} {what}".strip(), done, of)

    return told


def _tell(
    output: Path,
    encoder: SampleEncoder,
    found: dict[str, embedding.Embedded],
    splits: dict[str, Samples],
    json: str | None,
) -> None:
    bad = [pair for part in found.values() for pair in part.bad]
    options.list_bad(bad)
    rows = {name: len(part.rows.x) for name, part in found.items()}
    resumed = sum(part.resumed for part in found.values())
    result = {
        "file": str(output),
        "encoder": encoder.name,
        "fingerprint": encoder.fingerprint,
        "views": encoders.identity(encoder).views,
        "dim": encoder.dim,
        "rows": rows,
        "resumed": resumed,
        "bad": [
            {"sample": splits[name].names[i], "reason": why} for name, part in found.items() for i, why in part.bad
        ],
    }
    console.said(
        result,
        f"Wrote {output}: {sum(rows.values()):,} rows of {encoder.dim} numbers by {encoder.name}"
        + (f", each the mean over views ({views})" if (views := result["views"]) else "")
        + (f", {resumed:,} of the samples from the cache" if resumed else "")
        + (f", {console.count(len(bad), 'sample')} left out" if bad else "")
        + ".",
        json,
    )
