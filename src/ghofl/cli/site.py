"""Commands of the agreement and of a site: `recipe` and `moments`."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ghofl import files
from ghofl.cli import console
from ghofl.embeddings import Rows, class_numbers, load_rows
from ghofl.errors import RecipeError
from ghofl.features import Features, calibrated
from ghofl.message import Message
from ghofl.moments import Layout
from ghofl.recipe import Encoder, Grid, Lift, Projection, Recipe, Sketch, Transform
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
    from_embeddings: Annotated[
        Path | None,
        typer.Option(help="An .npz of public or own rows: sets dim, classes and a grid that fits them."),
    ] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """Write the recipe that all sites of a federation share.

    Example: ghofl recipe recipe.toml --classes cat,dog,bird --dim 512 --power 0.5 --statistics S --scale 16
    """
    console.refuse_overwriting(output, force)
    rows = None if from_embeddings is None else load_rows(from_embeddings)
    made = Recipe(
        classes=_classes(classes, rows),
        encoder=Encoder(dim=_dim(dim, rows), name=encoder),
        statistics=tuple(s.strip() for s in statistics.split(",") if s.strip()),
        transform=Transform(power=power, unit_length=unit_length),
        grid=Grid(bits=bits, scale=Grid().scale if scale is None else scale),
        projection=None if project is None else Projection(dim=project, seed=seed),
        lift=None if lift is None else Lift(dim=lift, seed=seed),
        sketch=None if sketch is None else Sketch(dim=sketch, seed=seed),
    )
    if rows is not None:
        made = calibrated(made, rows.x, fit_scale=scale is None)
    made.save(output)
    result = {"recipe": str(output), "fingerprint": made.fingerprint, "entries": Layout.of(made).entries}
    console.said(
        result,
        f"Wrote [bold]{output}[/bold]: {len(made.classes)} classes, {made.dim} features, grid of {made.grid.bits} bits "
        f"at scale {made.grid.scale:g}, fingerprint {made.fingerprint[:12]}…. Give this file to every site.",
        json,
    )


def moments(
    embeddings: Annotated[Path, typer.Argument(help="An .npz with arrays x and y (or x_train and y_train).")],
    recipe: Annotated[Path, typer.Option("--recipe", "-r", help="The recipe all sites share.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The message file to write.")],
    site: Annotated[str, typer.Option(help="This site's name in the roster; a site is counted once.")] = "",
    split: Annotated[str, typer.Option(help="Read x_SPLIT and y_SPLIT.")] = "",
    zstd: Annotated[bool, typer.Option("--zstd", help="Compress the message (needs the zstd extra).")] = False,
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site: add up the moments of its embeddings and write the one message it sends.

    Example: ghofl moments north.npz --recipe recipe.toml --site north -o north.ghofl
    """
    console.refuse_overwriting(output, force)
    agreed = Recipe.load(recipe)
    rows = load_rows(embeddings, split)
    assert rows.y is not None
    y = class_numbers(rows.y, agreed.classes)
    with console.progress() as report:
        sums, clipping = site_moments(Features.of(agreed), rows.x, y, report)
    clipping.warn(agreed)
    message = Message.of(sums, agreed, site)
    data = message.to_bytes(zstd)
    files.write(output, data)
    few = int(np.count_nonzero((sums.counts > 0) & (sums.counts < 3)))
    result = {
        "message": str(output),
        "id": message.id,
        "site": site,
        "rows": sums.rows,
        "bytes": len(data),
        "classes_present": int(np.count_nonzero(sums.counts)),
        "classes_under_three_rows": few,
        "clipped_share": clipping.share,
    }
    console.said(
        result,
        f"Wrote [bold]{output}[/bold]: {sums.rows:,} rows of {result['classes_present']} classes in "
        f"{console.size(len(data))}, {clipping.share:.3%} of entries clipped. Send this file to the server."
        + (f" [yellow]{few} classes have one or two rows, which the message reveals.[/yellow]" if few else ""),
        json,
    )


def _classes(text: str | None, rows: Rows | None) -> tuple[str, ...]:
    if text is not None:
        return tuple(map(str, range(int(text)))) if text.isdigit() else tuple(part.strip() for part in text.split(","))
    if rows is None or rows.y is None:
        raise RecipeError("no classes given; write --classes cat,dog or --from-embeddings FILE.")
    if rows.y.dtype.kind in "iu":
        return tuple(map(str, range(int(rows.y.max(initial=0)) + 1)))
    return tuple(sorted({str(label) for label in rows.y}))


def _dim(dim: int | None, rows: Rows | None) -> int:
    if dim is None and rows is None:
        raise RecipeError("no dimension given; write --dim 512 or --from-embeddings FILE.")
    return dim if dim is not None else rows.x.shape[1]  # type: ignore[union-attr]
