"""Commands from samples to embeddings: `embed` and `export-encoder`."""

from pathlib import Path
from typing import Annotated

import typer

from ghofl import encoders
from ghofl.cli import console
from ghofl.cli import samples as options
from ghofl.cli.site import Force, Json
from ghofl.encoders import Runtime, SampleEncoder
from ghofl.encoders.base import doorway
from ghofl.samples import Columns, Samples, load_samples, save_rows
from ghofl.samples import embed as embedding


def embed(
    encoder: options.EncoderName,
    data: options.Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .npz file to write.")],
    weights: options.Weights = None,
    split: Annotated[
        str, typer.Option(help="A split; several, as in train,test, are written as x_train, y_train, x_test, y_test.")
    ] = "",
    pooling: options.Pooling = None,
    fit: options.Fit = None,
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

    Example: ghofl embed --encoder torchvision:mobilenet_v2 --data photos --split train,test -o photos.npz
    """
    console.check_outputs(json, force, output)
    console.check_folder(str(output))
    columns = Columns(text_column, path_column, row_column, label_column)
    splits = {
        name: load_samples(data, name, columns) for name in dict.fromkeys(part.strip() for part in split.split(","))
    }
    runtime = Runtime(device, precision)
    loaded = options.Chosen(encoder, weights, pooling, fit, runtime).load(data, next(iter(splits.values())))
    found = {}
    with console.progress(rate=True) as report:
        for name, samples in splits.items():
            found[name] = embedding.embed(
                samples, loaded, cache or embedding.default_cache(),
                runtime=runtime, batch_size=batch_size, skip_bad=skip_bad, progress=_told(report, name),
            )  # fmt: skip
    written = found if len(found) > 1 else {"": next(iter(found.values()))}
    save_rows(output, {name: part.rows for name, part in written.items()}, encoders.identity(loaded))
    _tell(output, loaded, found, splits, json)


def export_encoder(
    encoder: options.EncoderName,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")],
    weights: options.Weights = None,
    pooling: options.Pooling = None,
    fit: options.Fit = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """Write an encoder as one ONNX file that sites run without torch, checked against the original.

    The file carries preprocessing or tokenizer, and the original's fingerprint: messages of both add up.

    Example: ghofl export-encoder --encoder torchvision:mobilenet_v2 -o mobilenet_v2.onnx
    """
    console.check_outputs(json, force, output)
    console.check_folder(str(output))
    loaded = options.Chosen(encoder, weights, pooling, fit).load()
    difference = doorway("ghofl.encoders.export", "export-encoder", "export").export(loaded, output)
    result = {
        "file": str(output),
        "encoder": loaded.name,
        "fingerprint": loaded.fingerprint,
        "dim": loaded.dim,
        "bytes": output.stat().st_size,
        "largest_difference": difference,
    }
    console.said(
        result,
        f"Wrote {output}: {loaded.name}, {loaded.dim} numbers a row, {console.size(result['bytes'])}, "
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
        + (f", {resumed:,} of the samples from the cache" if resumed else "")
        + (f", {console.count(len(bad), 'sample')} left out" if bad else "")
        + ".",
        json,
    )
