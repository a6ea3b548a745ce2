"""The rows of a site from its files: embeddings, or samples with the encoder that has yet to run."""

from pathlib import Path

from ghofl import encoders
from ghofl.encoders import Runtime, check_encoder
from ghofl.encoders.embed import load_encoder
from ghofl.encoders.from_schema import rows_for
from ghofl.recipe import Recipe
from ghofl.rows import Columns, drop_bad, load_samples
from ghofl.site.outgoing import Embedded, Encodable


def load_embedded(
    recipe: Recipe,
    path: str | Path,
    split: str = "",
    *,
    column: str = "",
    label: str = "",
    skip_bad: bool = False,
    labels_are_numbers: bool = False,
) -> Embedded:
    """Rows of a file of embeddings that the recipe's encoder made, with class numbers; `skip_bad` leaves some out.

    Under a recipe with a table, the file may be one that follows its schema. Under an epsilon no row is refused: those that
    do not fit are left out when the others are counted (see `count`).
    """
    if recipe.privacy.epsilon is not None:
        rows = rows_for(recipe, path, split, column=column, label=label, row_by_row=True)
        check_encoder(rows.encoder, recipe, path)
        return Embedded(rows.x, rows.numbers(recipe.classes, labels_are_numbers, row_by_row=True))
    rows = rows_for(recipe, path, split, column=column, label=label, skip_bad=skip_bad)
    check_encoder(rows.encoder, recipe, path)
    rows, bad = drop_bad(rows) if skip_bad else (rows, [])
    return Embedded(rows.x, rows.numbers(recipe.classes, labels_are_numbers), tuple(bad))


def load_encodable(
    recipe: Recipe,
    data: str,
    encoder: str,
    split: str = "",
    *,
    columns: Columns | None = None,
    runtime: Runtime | None = None,
    weights: str | Path | None = None,
    pooling: str | None = None,
    fit: str | None = None,
    batch_size: int = 0,
    skip_bad: bool = False,
    labels_are_numbers: bool = False,
) -> Encodable:
    """Samples and the encoder of a spec, checked to be the recipe's, with its views; options as in `encoders.load`.

    Under an epsilon no sample is refused: those that do not fit are left out when the others are counted.
    """
    is_private = recipe.privacy.epsilon is not None
    dim = recipe.encoder.dim if is_private else None
    samples = load_samples(data, split, columns, dim)
    views = encoders.agreed_views(encoder, recipe.encoder)
    loaded = load_encoder(
        encoder, data, samples, runtime, weights=weights, pooling=pooling, fit=fit, views=views, dim=dim
    )
    check_encoder(encoders.identity(loaded), recipe, data)
    return Encodable(samples, loaded, runtime, batch_size, skip_bad or is_private, labels_are_numbers)
