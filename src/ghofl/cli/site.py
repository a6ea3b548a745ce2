"""Commands of the agreement and of a site: `recipe` and `moments`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ghofl import encoders
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, LabelColumn, LabelsAreNumbers, RecipeFile, ViewsText, complete_encoders
from ghofl.cli.options import AnchorFile, EncoderOptions, PublicFile, RecipesEncoder, SampleOptions, takes_groups
from ghofl.cli.schema import FROM_ROWS, schema_of
from ghofl.encoders.from_schema import check_encoder
from ghofl.errors import RecipeError
from ghofl.features import TOLERATED_CLIPPING
from ghofl.moments import Layout
from ghofl.outbox import Outgoing, outgoing
from ghofl.outbox.site_rows import limit_persons, load_embedded, load_encodable
from ghofl.planning.assembly import Assembly, assemble
from ghofl.planning.public_files import load_anchor, load_public
from ghofl.privacy import site_warning
from ghofl.recipe import MAX_CLASSES, Encoder, Projection, Recipe, RecipeOptions, Schema
from ghofl.rows import Rows, classes_of, load_rows, load_samples
from ghofl.wire.message import check_not_secure

ClassNames = Annotated[
    str | None,
    typer.Option(
        help="Class names separated by commas, how many classes there are, or labelled samples: a folder with one folder per "
        "class, or a table."
    ),
]


@takes_groups
def recipe(
    output: Annotated[Path, typer.Argument(help="The recipe file to write (TOML).")],
    *,
    classes: ClassNames = None,
    dim: Annotated[int | None, typer.Option(help="Numbers in one embedding.")] = None,
    encoder: Annotated[
        str,
        typer.Option(
            help="The encoder's name. One such as torchvision:mobilenet_v2 or onnx:FILE is loaded unless --dim is given: it sets "
            "dim and fingerprint, and --project then uses directions of its classifier.",
            autocompletion=complete_encoders,
        ),
    ] = "unnamed",
    anchor: AnchorFile = None,
    public: PublicFile = None,
    options: RecipeOptions,
    embeddings: Annotated[
        Path | None,
        typer.Option(help="Public rows or your own, an .npz or with --label-column a table: sets dim, classes, grid."),
    ] = None,
    label_column: LabelColumn = "",
    schema: Annotated[
        Path | None, typer.Option(help="Rows come from tables with this schema ('ghofl schema'): sets dim and classes.")
    ] = None,
    model: EncoderOptions,
    views: ViewsText = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """Write the recipe that all sites of a federation share.

    Where no option says what sites send, it is the best that fits messages of 5 MB.

    Example: ghofl recipe recipe.toml --classes cat,dog,bird --dim 512 --scale 16
    """
    console.check_outputs(json, force, output)
    is_loaded = dim is None and encoders.is_loadable(encoder)
    if not is_loaded and (given := _given(model) or views):
        raise typer.BadParameter(
            f"{given}: options and views are for an encoder that is loaded; give --encoder, and no --dim."
        )
    rows = None if embeddings is None or label_column else load_rows(embeddings)
    network = _load_encoder(encoder, model, views, options) if is_loaded else (None, None, None)
    loaded, projection, example = network
    drafted = schema_of(schema, embeddings, label_column)
    if drafted is not None and (rows, loaded, dim, encoder) != (None, None, None, "unnamed"):
        raise typer.BadParameter(f"the schema of {schema or embeddings} replaces an encoder; leave out its options.")
    table = None if drafted is None else drafted.table
    vector, around = load_anchor(anchor)
    taught, taught_by = load_public(public, around if rows is None else rows.x, table)
    made_by = loaded or (_encoder(encoder, dim, rows, taught_by) if table is None else table.encoder)
    found = assemble(
        replace(options, anchor=vector), _classes(classes, rows, drafted), made_by, public=taught, projection=projection,
        table=table, example=example,
    )  # fmt: skip
    check_encoder(taught_by, found.recipe, public or "")
    found.recipe.save(output)
    _show_recipe(found, output, json)


@takes_groups
def moments(
    recipe: RecipeFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The message file to write.")],
    embeddings: Annotated[
        Path | None,
        typer.Argument(
            help="An .npz with arrays x and y (or x_train and y_train), a table with the recipe's schema, or a folder of images; "
            "other samples go with --data."
        ),
    ] = None,
    *,
    site: Annotated[str, typer.Option(help="This site's name in the roster; a site is counted once.")] = "",
    split: Annotated[str, typer.Option(help="Read x_SPLIT and y_SPLIT, or this split of --data.")] = "",
    data: Annotated[str | None, typer.Option(help="Samples instead of a file of rows, as in 'ghofl embed'.")] = None,
    encoder: RecipesEncoder = "",
    model: EncoderOptions,
    samples: SampleOptions,
    labels_are_numbers: LabelsAreNumbers = False,
    person: Annotated[str, typer.Option(help="The column or array that says who a row is about.")] = "",
    person_rows: Annotated[
        int | None, typer.Option(help="Maximum rows per person that count; as the recipe says unless given.")
    ] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """At a site: add up the moments of its embeddings and write the one message it sends.

    With --data it goes straight from samples to moments, and no embedding is written anywhere.
    The exit code is 4 if the message should not be sent, because the recipe's grid does not fit the rows.

    Example: ghofl moments north.npz --recipe recipe.toml --site north -o north.ghofl
    """
    console.check_outputs(json, force, output)
    agreed = Recipe.load(recipe)
    check_not_secure(agreed)
    if embeddings is not None and embeddings.is_dir() and data is None:
        embeddings, data = None, str(embeddings)
    _check_source(embeddings, data, encoder)
    if embeddings is not None:
        _check_no_samples(model, samples)
        rows = load_embedded(
            agreed, embeddings, split, label=samples.label_column, skip_bad=samples.skip_bad,
            labels_are_numbers=labels_are_numbers,
        )  # fmt: skip
    else:
        with console.err.status("loading the encoder …"):
            rows = load_encodable(
                agreed, data or "", encoder, split, columns=samples.columns, runtime=samples.runtime, **vars(model),
                skip_bad=samples.skip_bad, labels_are_numbers=labels_are_numbers,
            )  # fmt: skip
    rows = limit_persons(rows, agreed, str(embeddings or data), split, person, person_rows)
    with console.progress(rate=data is not None) as report:
        left = outgoing(agreed, rows, site, progress=report)
    console.list_bad(left.counted.bad)
    assert left.message is not None
    left.counted.clipping.warn(left.recipe)
    left.message.save(output)
    _show_message(left, output, output.stat().st_size, json)


def _given(*records: Any) -> str:
    """The options in records that were set, as a command line writes them."""
    changed = [(k, v) for record in records for k, v in vars(record).items() if v != getattr(type(record)(), k)]
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in changed)


def _check_source(embeddings: Path | None, data: str | None, encoder: str) -> None:
    """A usage error unless there is either a file of rows or samples."""
    if (embeddings is None) == (data is None) or (data is None and encoder):
        given = "neither" if embeddings is None else f"{embeddings} and {data or encoder}"
        raise typer.BadParameter(f"give a file of rows, or samples with --data; this has {given}.")


def _check_no_samples(model: EncoderOptions, samples: SampleOptions) -> None:
    given = _given(model, replace(samples, label_column="", skip_bad=False))
    if given:
        raise typer.BadParameter(
            f"{given}: these options are about samples; give --data instead of a file of embeddings, or leave them out."
        )


def _show_recipe(found: Assembly, output: Path, json: str | None) -> None:
    made, chosen = found.recipe, () if found.proposal is None else (f"Chosen: {found.proposal.why}.",)
    drafted = f" {FROM_ROWS}" if made.table is not None and made.table.from_rows else ""
    why = "".join(f" {console.in_options(text)}" for text in (*chosen, *found.notes))
    result = {"recipe": str(output), "fingerprint": made.fingerprint, "entries": Layout.of(made).entries, "why": why}
    console.say(
        result,
        f"Wrote {output}: {len(made.classes)} classes, {made.dim} features, grid of {made.grid.bits} bits "
        f"at scale {made.grid.scale:g}, fingerprint {made.fingerprint[:12]}….{drafted} Give this file to every site.{why}",
        json,
    )


def _show_message(left: Outgoing, output: Path, size: int, json: str | None) -> None:
    counts, clipping, recipe = left.counted.moments.counts, left.counted.clipping, left.recipe
    few, present = int(np.count_nonzero((counts > 0) & (counts < 3))), int(np.count_nonzero(counts))
    below = site_warning(left.counted.moments, recipe.privacy.min_count)
    has_noise = recipe.privacy.epsilon is not None and recipe.privacy.noise == "local"
    if below and not has_noise:
        console.tell("Warning", str(below))
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
    if left.counted.left_out:
        console.tell("Left out", f"{console.count(left.counted.left_out, 'row')} that do not fit the recipe.")
    advice, is_exact = "Send this file to the server.", recipe.privacy.epsilon is None
    if is_held := is_exact and clipping.share > TOLERATED_CLIPPING:
        advice = f"Do not send it: first agree on a recipe whose grid fits these rows; {clipping.advice(recipe)}."
    elif is_exact and not left.counted.moments.rows:
        advice = "It has no rows: check the file that it was made from."
    console.say(
        result,
        f"Wrote {output}: {left.counted.moments.rows:,} rows of {present} classes in {console.size(size)}, "
        f"{clipping.share:.3%} of entries clipped. {advice}"
        + (" Noise for the recipe's epsilon is in it." if has_noise else "")
        + (
            f" {few} {'class has' if few == 1 else 'classes have'} one or two rows, which the message reveals."
            if few and not has_noise
            else ""
        ),
        json,
        is_private=True,
    )
    if is_held:
        raise typer.Exit(console.HELD)


def _classes(text: str | None, rows: Rows | None, schema: Schema | None) -> tuple[str, ...]:
    if text is not None:
        is_count = text.isdecimal() and len(text) <= len(str(MAX_CLASSES))
        if is_count:
            return tuple(map(str, range(int(text))))
        is_file = "," not in text and Path(text).exists()
        return load_samples(text).classes() if is_file else tuple(part.strip() for part in text.split(","))
    if schema is not None and schema.classes:
        return schema.classes
    if rows is None or rows.y is None:
        raise RecipeError("no classes given; write --classes cat,dog or --embeddings FILE.")
    return classes_of(rows.y)


def _encoder(name: str, dim: int | None, rows: Rows | None, public: Encoder | None) -> Encoder:
    if rows is None and public is not None and dim is None and name == "unnamed":
        return public
    if rows is not None and rows.encoder is not None and dim is None and name == "unnamed":
        return rows.encoder
    known = public.dim if rows is None and public is not None else None if rows is None else rows.x.shape[1]
    if dim is None and known is None:
        raise RecipeError(
            "no dimension given; write --dim 512, --embeddings FILE or --encoder torchvision:mobilenet_v2."
        )
    return Encoder(dim=dim if dim is not None else known, name=name)  # type: ignore[arg-type]


def _load_encoder(
    spec: str, model: EncoderOptions, views: str | None, options: RecipeOptions
) -> tuple[Encoder, Projection | None, np.ndarray | None]:
    """The identity of a loaded encoder, a projection from its own classifier if asked for, and an example of its rows."""
    with console.err.status("loading the encoder …"):
        loaded = encoders.load(spec, views=encoders.ViewsRequest.parse(views), **vars(model))
    projection = None if options.project is None else encoders.projection_from(loaded, options.project)
    is_needed = options.power is None and not options.chosen_space
    return encoders.identity(loaded), projection, encoders.example_rows(loaded) if is_needed else None
