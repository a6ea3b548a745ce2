"""Commands of the agreement and of a site: `recipe` and `moments`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ghofl import datasets, files
from ghofl.best import propose
from ghofl.cli import console, private
from ghofl.cli import samples as options
from ghofl.embeddings import Rows, class_numbers, load_rows, refuse_encoder
from ghofl.encoders import Runtime
from ghofl.errors import RecipeError
from ghofl.features import Features, calibrated, unit_scale
from ghofl.message import Message
from ghofl.moments import Layout
from ghofl.privacy import site_warning
from ghofl.recipe import MAX_CLASSES, Encoder, Grid, Lift, Projection, Recipe, Sketch, Transform
from ghofl.simulate import site_moments

Force = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", help=console.JSON_HELP)]


def recipe(
    output: Annotated[Path, typer.Argument(help="The recipe file to write (TOML).")],
    classes: Annotated[
        str | None, typer.Option(help="Class names separated by commas, or how many classes there are.")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Numbers in one embedding.")] = None,
    encoder: Annotated[str, typer.Option(help="The encoder's name, e.g. torchvision:mobilenet_v2.")] = "unnamed",
    statistics: Annotated[str, typer.Option(help="What sites send beside counts and sums: any of D,B,S.")] = "B",
    power: Annotated[float, typer.Option(help="Signed power transform; 0.5 is the square root, 1 none.")] = 1.0,
    unit_length: Annotated[bool, typer.Option("--unit-length", help="Scale every row to length 1.")] = False,
    bits: Annotated[int, typer.Option(help="Bits of the grid, 2 to 16.")] = Grid().bits,
    scale: Annotated[float | None, typer.Option(help="Grid steps in one unit of the embedding.")] = None,
    project: Annotated[int | None, typer.Option(help="Project to this many dimensions.")] = None,
    lift: Annotated[int | None, typer.Option(help="Lift to this many random features.")] = None,
    sketch: Annotated[int | None, typer.Option(help="Class covariances of a sketch of this size.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the public random matrices.")] = 0,
    budget: Annotated[
        str | None,
        typer.Option(help="Propose the recipe with the best expected accuracy for messages of this size, e.g. 5MB."),
    ] = None,
    site_rows: Annotated[int, typer.Option(help="Rows of a site, for --budget.")] = 5000,
    from_embeddings: Annotated[
        Path | None,
        typer.Option(help="An .npz of public or own rows: sets dim, classes and a grid that fits them."),
    ] = None,
    from_encoder: Annotated[
        bool,
        typer.Option(
            "--from-encoder",
            help="Load --encoder: sets dim and its fingerprint; --project takes its own classifier's directions.",
        ),
    ] = False,
    weights: options.Weights = None,
    pooling: options.Pooling = None,
    fit: options.Fit = None,
    anchor: private.Anchor = None,
    epsilon: private.Epsilon = None,
    delta: private.Delta = None,
    radius: private.Radius = None,
    unit: private.Unit = private.DEFAULTS.unit,
    neighbours: private.Neighbours = private.DEFAULTS.neighbours,
    noise: private.Noise = private.DEFAULTS.noise,
    secure: private.Secure = False,
    min_count: private.MinCount = 0,
    merge_into: private.MergeInto = "",
    min_cohort: private.MinCohort = None,
    client_rows: private.ClientRows = None,
    rounding: private.Rounding = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """Write the recipe that all sites of a federation share.

    Example: ghofl recipe recipe.toml --classes cat,dog,bird --dim 512 --power 0.5 --statistics S --scale 16
    """
    console.refuse_overwriting(output, force)
    rows = None if from_embeddings is None else load_rows(from_embeddings)
    own = options.identified(encoder, weights, pooling, fit, project) if from_encoder else None
    made = Recipe(
        classes=_classes(classes, rows),
        encoder=own.encoder if own else _encoder(encoder, dim, rows),
        statistics=tuple(s.strip() for s in statistics.split(",") if s.strip()),
        transform=Transform(power=power, unit_length=unit_length, anchor=private.load_anchor(anchor)[0]),
        grid=Grid(bits=bits, scale=Grid().scale if scale is None else scale),
        projection=own.projection if own else None if project is None else Projection(dim=project, seed=seed),
        lift=None if lift is None else Lift(dim=lift, seed=seed),
        sketch=None if sketch is None else Sketch(dim=sketch, seed=seed),
    )
    why = ""
    if budget is not None:
        name = made.encoder.name
        proposal = propose(console.bytes_of(budget), made.classes, made.encoder.dim, site_rows, name)
        kept = {"encoder": made.encoder, "grid": replace(proposal.recipe.grid, scale=made.grid.scale)}
        made, why = replace(proposal.recipe, **kept), f" Chosen for {budget}: {proposal.why}."
    if rows is not None:
        made = calibrated(made, rows.x, fit_scale=scale is None)
    elif unit_length and scale is None:
        made = replace(made, grid=replace(made.grid, scale=unit_scale(made.grid, made.encoder.dim)))
    promise = {"epsilon": epsilon, "delta": delta, "radius": radius, "unit": unit, "neighbours": neighbours}
    promise |= {"noise": noise, "secure": secure, "min_count": min_count, "merge_into": merge_into}
    promise |= {"min_cohort": min_cohort, "client_rows": client_rows, "rounding": rounding}
    made = private.with_privacy(made, promise)
    made.save(output)
    result = {"recipe": str(output), "fingerprint": made.fingerprint, "entries": Layout.of(made).entries, "why": why}
    console.said(
        result,
        f"Wrote [bold]{output}[/bold]: {len(made.classes)} classes, {made.dim} features, grid of {made.grid.bits} bits "
        f"at scale {made.grid.scale:g}, fingerprint {made.fingerprint[:12]}…. Give this file to every site.{why}",
        json,
    )


def moments(
    recipe: Annotated[Path, typer.Option("--recipe", "-r", help="The recipe all sites share.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The message file to write.")],
    embeddings: Annotated[
        Path | None, typer.Argument(help="An .npz with arrays x and y (or x_train and y_train); not with --data.")
    ] = None,
    site: Annotated[str, typer.Option(help="This site's name in the roster; a site is counted once.")] = "",
    split: Annotated[str, typer.Option(help="Read x_SPLIT and y_SPLIT, or this split of --data.")] = "",
    zstd: Annotated[bool, typer.Option("--zstd", help="Compress the message (needs the zstd extra).")] = False,
    data: options.MaybeData = None,
    encoder: options.MaybeEncoder = None,
    weights: options.Weights = None,
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
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site: add up the moments of its embeddings and write the one message it sends.

    With --encoder and --data it goes straight from samples to moments, and no embedding is written anywhere.

    Example: ghofl moments north.npz --recipe recipe.toml --site north -o north.ghofl
    """
    console.refuse_overwriting(output, force)
    agreed = Recipe.load(recipe)
    if embeddings is not None and data is None and encoder is None:
        rows = load_rows(embeddings, split)
        assert rows.y is not None
        refuse_encoder(rows.encoder, agreed, embeddings)
        y = class_numbers(rows.y, agreed.classes)
        with console.progress() as report:
            sums, clipping = site_moments(Features.of(agreed), rows.x, y, report)
    elif embeddings is None and data is not None and encoder is not None:
        columns = datasets.Columns(text_column, path_column, row_column, label_column)
        chosen = options.Chosen(encoder, weights, pooling, fit, Runtime(device, precision))
        sums, clipping = options.moments(Features.of(agreed), chosen, data, split, columns, batch_size, skip_bad)
    else:
        raise typer.BadParameter("give either a file of embeddings, or --encoder and --data.")
    clipping.warn(agreed)
    message = Message.of(sums, agreed, site, clipping=clipping)
    sent = message.to_bytes(zstd)
    files.write(output, sent, files.PRIVATE)
    few = int(np.count_nonzero((sums.counts > 0) & (sums.counts < 3)))
    below = site_warning(sums, agreed.privacy.min_count)
    has_noise = agreed.privacy.epsilon is not None and agreed.privacy.noise == "local"
    if below and not has_noise:
        console.err.print(f"[yellow]Warning:[/yellow] {below}", highlight=False, soft_wrap=True)
    result = {
        "message": str(output),
        "id": message.id,
        "site": site,
        "rows": sums.rows,
        "bytes": len(sent),
        "classes_present": int(np.count_nonzero(sums.counts)),
        "classes_under_three_rows": few,
        "classes_under_min_count": len(below.counts),
        "clipped_share": clipping.share,
    }
    console.said(
        result,
        f"Wrote [bold]{output}[/bold]: {sums.rows:,} rows of {result['classes_present']} classes in "
        f"{console.size(len(sent))}, {clipping.share:.3%} of entries clipped. Send this file to the server."
        + (" Noise for the recipe's epsilon is in it." if has_noise else "")
        + (
            f" [yellow]{few} classes have one or two rows, which the message reveals.[/yellow]"
            if few and not has_noise
            else ""
        ),
        json,
    )


def _classes(text: str | None, rows: Rows | None) -> tuple[str, ...]:
    if text is not None:
        is_count = text.isdecimal() and len(text) <= len(str(MAX_CLASSES))
        return tuple(map(str, range(int(text)))) if is_count else tuple(part.strip() for part in text.split(","))
    if rows is None or rows.y is None:
        raise RecipeError("no classes given; write --classes cat,dog or --from-embeddings FILE.")
    if rows.y.dtype.kind in "iu":
        return tuple(map(str, range(int(rows.y.max(initial=0)) + 1)))
    return tuple(sorted({str(label) for label in rows.y}))


def _encoder(name: str, dim: int | None, rows: Rows | None) -> Encoder:
    if rows is not None and rows.encoder is not None and dim is None and name == "unnamed":
        return rows.encoder
    if dim is None and rows is None:
        raise RecipeError("no dimension given; write --dim 512, --from-embeddings FILE or --from-encoder.")
    return Encoder(dim=dim if dim is not None else rows.x.shape[1], name=name)  # type: ignore[union-attr]
