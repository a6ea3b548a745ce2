"""Commands of the agreement and of a site: `recipe` and `moments`."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ghofl import files
from ghofl.cli import console, private
from ghofl.cli import samples as options
from ghofl.encoders import Runtime
from ghofl.errors import RecipeError
from ghofl.features import TOLERATED_CLIPPING
from ghofl.moments import Layout
from ghofl.planning.assembly import SITE_ROWS, PrivacyOptions, RecipeOptions, assemble
from ghofl.privacy import site_warning
from ghofl.recipe import MAX_CLASSES, Encoder, Grid, Limits, Recipe, Schema
from ghofl.samples import Columns, Rows, check_encoder, classes_of, load_rows, rows_for
from ghofl.site.outgoing import Outgoing, outgoing

Force = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", help=console.JSON_HELP)]
LabelsAreNumbers = Annotated[
    bool,
    typer.Option(
        "--labels-are-numbers", help="Whole-number labels are places in the recipe's list of classes, from 0."
    ),
]
Power = Annotated[
    float | None,
    typer.Option(help="Signed power transform: 0.5 is the square root, 1 none. 1 unless given, 0.5 with --budget."),
]
UnitLength = Annotated[bool, typer.Option("--unit-length", help="Scale every row to length 1.")]
Bits = Annotated[
    int | None, typer.Option(help=f"Bits of the grid, 2 to 16; {Grid().bits} unless given, or --budget chooses 6.")
]
Project = Annotated[int | None, typer.Option(help="Project to this many dimensions.")]
LiftTo = Annotated[int | None, typer.Option("--lift", help="Lift to this many random features.")]
SketchTo = Annotated[int | None, typer.Option("--sketch", help="Class covariances of a sketch of this size.")]


@private.takes_privacy
def recipe(
    output: Annotated[Path, typer.Argument(help="The recipe file to write (TOML).")],
    classes: Annotated[
        str | None, typer.Option(help="Class names separated by commas, or how many classes there are.")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Numbers in one embedding.")] = None,
    encoder: Annotated[str, typer.Option(help="The encoder's name, e.g. torchvision:mobilenet_v2.")] = "unnamed",
    statistics: Annotated[
        str | None, typer.Option(help="What sites send beside counts and sums: any of D,B,S,D3,D4; B unless given.")
    ] = None,
    power: Power = None,
    unit_length: UnitLength = False,
    bits: Bits = None,
    scale: Annotated[float | None, typer.Option(help="Grid steps in one unit of the embedding.")] = None,
    project: Project = None,
    lift: LiftTo = None,
    sketch: SketchTo = None,
    seed: Annotated[int, typer.Option(help="Seed of the public random matrices.")] = 0,
    max_rows: private.MaxRows = None,
    max_share: private.MaxShare = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Propose the statistics and the space with the best expected accuracy for messages of this size, e.g. 5MB."
        ),
    ] = None,
    site_rows: Annotated[
        int | None, typer.Option(help=f"Rows of a site, for --budget; {SITE_ROWS} unless given.")
    ] = None,
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
    schema: Annotated[
        Path | None, typer.Option(help="Rows are a table's, with this schema ('ghofl schema'): sets dim and classes.")
    ] = None,
    weights: options.Weights = None,
    pooling: options.Pooling = None,
    fit: options.Fit = None,
    anchor: private.Anchor = None,
    public: private.Public = None,
    privacy: PrivacyOptions = PrivacyOptions(),  # noqa: B008 (frozen)
    force: Force = False,
    json: Json = None,
) -> None:
    """Write the recipe that all sites of a federation share.

    Example: ghofl recipe recipe.toml --classes cat,dog,bird --dim 512 --power 0.5 --statistics S --scale 16
    """
    console.check_outputs(json, force, output)
    if site_rows is not None and budget is None:
        raise typer.BadParameter("--site-rows is about the size of messages; give --budget too.")
    if not from_encoder and (weights, pooling, fit) != (None, None, None):
        raise typer.BadParameter("--weights, --pooling and --fit are for --from-encoder; give that too.")
    rows = None if from_embeddings is None else load_rows(from_embeddings)
    own = options.load_identity(encoder, weights, pooling, fit, project) if from_encoder else None
    if own is not None and dim not in (None, own.encoder.dim):
        raise typer.BadParameter(f"--dim is {dim} and the encoder gives {own.encoder.dim} numbers; leave --dim out.")
    drafted = None if schema is None else Schema.load(schema)
    if drafted is not None and (rows, own, dim, encoder) != (None, None, None, "unnamed"):
        raise typer.BadParameter("--schema says what rows are; leave out --encoder, --dim and the --from options.")
    public_anchor, around = private.load_anchor(anchor)
    taught, made_by = private.load_public(public, around if rows is None else rows.x, drafted and drafted.table)
    wanted = RecipeOptions(
        statistics=None if statistics is None else tuple(s.strip() for s in statistics.split(",") if s.strip()),
        power=power, unit_length=unit_length, anchor=public_anchor, bits=bits, scale=scale,
        project=own.projection if own else project, lift=lift, sketch=sketch, seed=seed,
        budget=None if budget is None else console.bytes_of(budget), site_rows=site_rows or SITE_ROWS,
        privacy=privacy, limits=Limits(max_rows, max_share), table=None if drafted is None else drafted.table,
    )  # fmt: skip
    found = assemble(
        wanted,
        drafted.classes if drafted is not None and drafted.classes and classes is None else _classes(classes, rows),
        own.encoder if own else _encoder(encoder, dim, rows, made_by) if drafted is None else drafted.table.encoder,
        public=taught,
    )
    check_encoder(made_by, found.recipe, public or "")
    made, why = found.recipe, "" if found.proposal is None else f" Chosen for {budget}: {found.proposal.why}."
    made.save(output)
    why = "".join((why, *(f" {note}" for note in found.notes)))
    result = {"recipe": str(output), "fingerprint": made.fingerprint, "entries": Layout.of(made).entries, "why": why}
    console.said(
        result,
        f"Wrote {output}: {len(made.classes)} classes, {made.dim} features, grid of {made.grid.bits} bits "
        f"at scale {made.grid.scale:g}, fingerprint {made.fingerprint[:12]}…. Give this file to every site.{why}",
        json,
    )


def moments(
    recipe: Annotated[Path, typer.Option("--recipe", "-r", help="The recipe all sites share.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The message file to write.")],
    embeddings: Annotated[
        Path | None,
        typer.Argument(
            help="An .npz with arrays x and y (or x_train and y_train), or a table by the recipe's schema; not with --data."
        ),
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
    labels_are_numbers: LabelsAreNumbers = False,
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site: add up the moments of its embeddings and write the one message it sends.

    With --encoder and --data it goes straight from samples to moments, and no embedding is written anywhere.

    Example: ghofl moments north.npz --recipe recipe.toml --site north -o north.ghofl
    """
    console.check_outputs(json, force, output)
    agreed = Recipe.load(recipe)
    if embeddings is not None and data is None and encoder is None:
        about_samples = (weights, pooling, fit, text_column, path_column, device, precision, batch_size)
        if about_samples != (None, None, None, "", "", "cpu", "fp32", 0):
            raise typer.BadParameter(
                "--weights, --pooling, --fit, --text-column, --path-column, --device, --precision and --batch-size are "
                "about samples; give --encoder and --data instead of a file of embeddings, or leave them out."
            )
        found = rows_for(agreed, embeddings, split, column=row_column, label=label_column, skip_bad=skip_bad)
        rows = options.embedded(found, agreed, embeddings, skip_bad, labels_are_numbers)
    elif embeddings is None and data is not None and encoder is not None:
        columns = Columns(text_column, path_column, row_column, label_column)
        chosen = options.Chosen(encoder, weights, pooling, fit, Runtime(device, precision))
        rows = options.encodable(chosen, agreed, data, split, columns, batch_size, skip_bad, labels_are_numbers)
    else:
        raise typer.BadParameter("give either a file of embeddings, or --encoder and --data.")
    with console.progress(rate=data is not None) as report:
        left = outgoing(agreed, rows, site, progress=report)
    options.list_bad(left.counted.bad)
    assert left.message is not None, "a recipe for secure rounds gives no message, and was refused"
    sent = left.message.to_bytes(zstd)
    left.counted.clipping.warn(agreed)
    files.write(output, sent, files.PRIVATE)
    _tell_of_message(left, output, len(sent), json)


def _tell_of_message(left: Outgoing, output: Path, size: int, json: str | None) -> None:
    counts, clipping, recipe = left.counted.moments.counts, left.counted.clipping, left.recipe
    few, present = int(np.count_nonzero((counts > 0) & (counts < 3))), int(np.count_nonzero(counts))
    below = site_warning(left.counted.moments, recipe.privacy.min_count)
    has_noise = recipe.privacy.epsilon is not None and recipe.privacy.noise == "local"
    if below and not has_noise:
        console.told("Warning", str(below))
    assert left.message is not None
    result = {
        "message": str(output),
        "id": left.message.id,
        "site": left.message.site,
        "rows": left.counted.moments.rows,
        "bytes": size,
        "classes_present": present,
        "classes_under_three_rows": few,
        "classes_under_min_count": len(below.counts),
        "clipped_share": clipping.share,
    }
    advice = "Send this file to the server."
    if clipping.share > TOLERATED_CLIPPING:
        advice = f"Do not send it: agree on a recipe first that keeps these rows; {clipping.advice(recipe)}."
    console.said(
        result,
        f"Wrote {output}: {left.counted.moments.rows:,} rows of {present} classes in {console.size(size)}, "
        f"{clipping.share:.3%} of entries clipped. {advice}"
        + (" Noise for the recipe's epsilon is in it." if has_noise else "")
        + (f" {few} classes have one or two rows, which the message reveals." if few and not has_noise else ""),
        json,
    )


def _classes(text: str | None, rows: Rows | None) -> tuple[str, ...]:
    if text is not None:
        is_count = text.isdecimal() and len(text) <= len(str(MAX_CLASSES))
        return tuple(map(str, range(int(text)))) if is_count else tuple(part.strip() for part in text.split(","))
    if rows is None or rows.y is None:
        raise RecipeError("no classes given; write --classes cat,dog or --from-embeddings FILE.")
    return classes_of(rows.y)


def _encoder(name: str, dim: int | None, rows: Rows | None, public: Encoder | None) -> Encoder:
    if rows is None and public is not None and dim is None and name == "unnamed":
        return public
    if rows is not None and rows.encoder is not None and dim is None and name == "unnamed":
        return rows.encoder
    known = public.dim if rows is None and public is not None else None if rows is None else rows.x.shape[1]
    if dim is None and known is None:
        raise RecipeError("no dimension given; write --dim 512, --from-embeddings FILE or --from-encoder.")
    return Encoder(dim=dim if dim is not None else known, name=name)  # type: ignore[arg-type]
