"""The short path: a recipe, a message per site, their total and a classifier, one line each.

::

    recipe = ghofl.recipe_for(["cat", "dog"], x)               # agreed on once
    north = ghofl.message(recipe, "north", x, y)               # at each site
    classifier = ghofl.fit(ghofl.total([north, south]))        # at the server
    classifier.predict(x)                                      # class names

Every function calls the same code as the command line; nothing is decided here.
"""

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ghofl import encoders
from ghofl.classifier import Classifier
from ghofl.encoders import Runtime, SampleEncoder, Views, ViewsRequest
from ghofl.encoders.embed import encode_samples
from ghofl.encoders.from_schema import columns_of as table_columns
from ghofl.encoders.given import Data, column_of, columns_of, embeddings_of
from ghofl.errors import ClippingWarning, EmbeddingsError, MessageError, RecipeError
from ghofl.heads.spec import DEFAULT_HEAD, AnyHead, HeadSpec
from ghofl.outbox import Counted, Embedded, outgoing
from ghofl.outbox.site_rows import first_embedded, rows_per_person
from ghofl.planning.assembly import assemble
from ghofl.planning.drafting import draft_schema
from ghofl.planning.public import PublicRows
from ghofl.privacy import NoiseStream
from ghofl.recipe import Encoder, Recipe, RecipeOptions, Schema
from ghofl.recipe.labels import class_numbers, classes_of, labels_of, numbers_row_by_row
from ghofl.recipe.option import takes
from ghofl.rows.given import samples_of
from ghofl.shapes import Float32, Num
from ghofl.wire.message import Message, check_not_secure
from ghofl.wire.total import Total


@dataclass(frozen=True, kw_only=True, eq=False)
class RecipeRequest(RecipeOptions):
    """What `recipe_for` takes: every option of a recipe, and what the recipe is for."""

    classes: Any = field(default=None, kw_only=False)
    x: Data | None = field(default=None, kw_only=False)
    encoder: str | Encoder | SampleEncoder | None = None
    schema: Schema | str | Path | None = None
    public: Num[np.ndarray, "p dim"] | PublicRows | None = None


@takes(RecipeRequest, RecipeError)
def recipe_for(asked: RecipeRequest) -> Recipe:
    """The recipe for rows like `x`: the classes, what sites send, the grid and the privacy.

    `classes` are names, or labels from which the names are taken. Every option of `ghofl.recipe.RecipeOptions` is a
    parameter, such as ``statistics=("S",)``, ``budget=800_000`` or ``epsilon=1.0, unit_length=True``; by default sites
    send the best that fits messages of 5 MB. `encoder` is a name such as ``onnx:model.onnx``, which is loaded, or an
    encoder that is already loaded; the recipe gets its fingerprint. A `schema` (or its file) is for rows of a table.

    Guarantees
    ----------
    Under an `epsilon` the recipe depends on `x` only by its width and, where you give labels, by the classes in
    them; otherwise it depends only on `public` rows. Every option is in the recipe, or an error says which cannot be.

    Examples
    --------
    >>> recipe_for(["cat", "dog"], [[0.5, 1.0], [2.0, 0.0]], statistics=("B",)).statistics
    ('N', 'A', 'B')
    """
    schema = Schema.load(asked.schema) if isinstance(asked.schema, str | Path) else asked.schema
    table = None if schema is None else schema.table
    rows = None if asked.x is None or table is not None else embeddings_of(asked.x)
    made_by, example = _identity(asked, rows) if table is None else (table.encoder, None)
    classes = _classes(asked.classes, schema)
    return assemble(asked, classes, made_by, public=asked.public, protected=rows, table=table, example=example).recipe


def schema_for(data: Data, label_column: str = "", without: Iterable[str] = ()) -> Schema:
    """The schema of a table: what a data dictionary says, or a first draft from the rows of one site.

    `data` is a DataFrame, columns by name or a file. A draft rounds ranges outwards and puts rare levels into one; columns
    `without`, and identifiers, are left out of it. Read it, correct it and `save` it: a recipe with an epsilon refuses
    a draft, because its ranges are somebody's values.

    Examples
    --------
    >>> schema = schema_for({"age": list(range(17, 78)), "sick": ["no", "yes"] * 30 + ["no"]}, "sick")
    >>> schema.classes, schema.table.columns[0].high
    (('no', 'yes'), 80.0)
    """
    where = str(data) if isinstance(data, str | Path) else "the table"
    return draft_schema(table_columns(data), label_column, without, where)[0]


def message(
    recipe: Recipe,
    site: str,
    x: Data | None = None,
    y: Any = None,
    *,
    moments: Counted | None = None,
    person: Any = None,
    rows_per_person: int | None = None,
    labels_are_numbers: bool = False,
    stream: NoiseStream | None = None,
) -> Message:
    """The one message of a site: its rows added up, after everything that the recipe asks of a site.

    `x` are embeddings (an array, a list of rows, a DataFrame of numbers), or under a recipe with a table a DataFrame
    with its columns. `y` has a class name per row, or a class number where the classes are called 0, 1, 2 … or
    `labels_are_numbers`; it may be the name of a column of the DataFrame. `person` says who each row is about, in the
    same two ways, for recipes that limit the rows per person.

    Instead of rows, `moments` are those of shards of them, each from `ghofl.outbox.count`, added up with `+` or `sum`.

    Guarantees
    ----------
    Under an epsilon no row raises: one that does not fit the recipe is left out. The message is what `ghofl moments` writes for
    the same rows. A recipe for secure aggregation raises, because nobody may see a single message.

    Examples
    --------
    >>> recipe = Recipe(classes=("cat", "dog"), encoder=Encoder(dim=2))
    >>> message(recipe, "north", [[0.5, 1.0], [2.0, 0.0]], ["cat", "dog"])
    <Message: site north; rows 2; classes 2; features 2; holds N A B; recipe cbfee816664e…>
    """
    if not isinstance(recipe, Recipe):
        raise RecipeError(
            f"recipe is a {type(recipe).__name__}; give the recipe first: ghofl.message(recipe, site, x, y)."
        )
    check_not_secure(recipe)
    if x is None or moments is not None:
        rows = _shards(moments, x, y, person, rows_per_person)
    else:
        rows = _rows(recipe, x, y, person, rows_per_person, labels_are_numbers)
    left = outgoing(recipe, rows, site, stream=stream)
    left.counted.clipping.warn(recipe)
    if left.counted.not_counted:
        many = f"{left.counted.not_counted:,} rows do not fit the recipe and are left out."
        warnings.warn(many, ClippingWarning, stacklevel=2)
    assert left.message is not None, "only secure recipes give none"
    return left.message


def _shards(moments: object, *rows: object) -> Counted:
    """The moments of shards, with nothing beside them that is about rows."""
    if any(each is not None for each in rows):
        raise EmbeddingsError("give rows x with what is said about them, or the moments of shards, and not both.")
    if not isinstance(moments, Counted):
        raise EmbeddingsError(
            f"moments are {type(moments).__name__}; give what ghofl.outbox.count made of shards, or "
            "ghofl.outbox.Counted(moments, clipping)."
        )
    return moments


def _rows(recipe: Recipe, x: Data, y: Any, person: Any, most: int | None, labels_are_numbers: bool) -> Embedded:
    x, labels, persons = _split_columns(x, recipe, y, person)
    if labels is None:
        raise EmbeddingsError("there are no labels; give one per row, or the name of the column that holds them.")
    is_private = recipe.privacy.epsilon is not None
    rows = embeddings_of(x, recipe.table, is_private)
    look_up = numbers_row_by_row if is_private else class_numbers
    numbers = look_up(labels_of(labels, row_by_row=is_private), recipe.classes, labels_are_numbers)
    if len(numbers) != len(rows):
        raise EmbeddingsError(f"{len(numbers)} labels for {len(rows)} rows; give one label per row.")
    return _limit_rows(rows, numbers, recipe, persons, most)


def total(messages: Iterable[Message | bytes | str | Path], recipe: Recipe | None = None) -> Total:
    """The sum of messages, given as values, bytes or files; each site counts once.

    The recipe is that of the first message. Bytes and files carry only its fingerprint, so give the recipe with them.

    Examples
    --------
    >>> recipe = Recipe(classes=("cat", "dog"), encoder=Encoder(dim=1))
    >>> total([message(recipe, "north", [[1.0]], ["cat"]), message(recipe, "south", [[2.0]], ["dog"])]).moments.rows
    2
    """
    if isinstance(messages, Message | bytes | str | Path):
        raise MessageError(f"messages are a single {type(messages).__name__}; give a list of them.")
    if not isinstance(messages, Iterable):
        raise MessageError(f"messages are not a list but {type(messages).__name__}; give a list of messages or files.")
    coming = iter(messages)
    first = next(coming, None)
    if recipe is None:
        recipe = first.recipe if isinstance(first, Message) else None
    if isinstance(first, Total):
        raise MessageError(
            "a Total came where a message belongs; totals are added with +, and so are messages to a total."
        )
    if recipe is None:
        raise MessageError(
            "no recipe is known: give it as total(messages, recipe)."
            if first is not None
            else "there are no messages to add up; give at least one, or a recipe for an empty total."
        )
    return Total.of((_read(each, recipe) for each in chain(() if first is None else (first,), coming)), recipe)


def fit(total: Total, head: AnyHead = DEFAULT_HEAD, *, preset: str = "default", novelty: bool = False) -> Classifier:
    """The classifier of a total: the strongest head that it allows, or the one that `head` names or is.

    A name may have options, ``"lda(shrinkage=0.1)"``, and so may a `Head` of your own, ``MY_HEAD(width=2.0)``; the `preset`
    "paper" has the paper's for those that are not given. With `novelty` the classifier also recognises rows of none of the
    classes, for ``predict(x, reject=0.05)``.

    Where the recipe promises central noise, `Total.release` adds it, and `fit` takes the released total.

    Examples
    --------
    >>> recipe = Recipe(classes=("low", "high"), encoder=Encoder(dim=1))
    >>> north = message(recipe, "north", [[0.0], [1.0], [3.0], [4.0]], ["low", "low", "high", "high"])
    >>> fit(total([north]), "lda(shrinkage=0.1)").predict([[0.5], [3.5]]).tolist()
    ['low', 'high']
    """
    if not isinstance(total, Total):
        raise MessageError(f"a head is fitted to a total, not to a {type(total).__name__}; give ghofl.total(messages).")
    spec = HeadSpec.of(head, preset)
    return Classifier.fit(total, spec, lambda warning: warnings.warn(warning, stacklevel=4), novelty=novelty)


def encode(
    samples: Any,
    encoder: str | SampleEncoder,
    *,
    weights: str | Path | None = None,
    pooling: str | None = None,
    fit: str | None = None,
    views: Views | ViewsRequest | str | None = None,
    device: str = "cpu",
    precision: str = "fp32",
    batch_size: int = 0,
) -> Float32[np.ndarray, "n dim"]:
    """The embeddings of images or texts, one row per sample.

    `samples` are a list of texts, or of images (files, Pillow images, arrays of bytes), or a `Path` that ``ghofl embed
    --data`` would take. `encoder` is a name as there (``torchvision:resnet18``, ``hf:FOLDER``, ``onnx:FILE``), with
    its `weights`, `pooling`, `fit` and `views`, or one that `ghofl.encoders.load` has loaded.

    Guarantees
    ----------
    The same rows as `ghofl embed` with the same options, in the order of the samples. A sample that cannot be read
    raises an error that names it.
    """
    runtime = Runtime(device, precision)
    loaded = _load_encoder(encoder, runtime, weights=weights, pooling=pooling, fit=fit, views=views)
    found = encode_samples(samples_of(samples, loaded.kind), loaded, runtime=runtime, batch_size=batch_size)
    return np.concatenate([np.zeros((0, loaded.dim), dtype=np.float32), *(x for x, _ in found)])


def _load_encoder(encoder: str | SampleEncoder, runtime: Runtime | None = None, **options: Any) -> SampleEncoder:
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(encoder, str):
        return encoders.load(encoder, runtime, **{"views": ViewsRequest(), **given})
    if given:
        raise RecipeError(f"{encoder.name} is already loaded; give {' and '.join(given)} when loading it.")
    return encoder


def _identity(asked: RecipeRequest, rows: np.ndarray | None) -> tuple[Encoder, np.ndarray | None]:
    """The encoder of a recipe and, where it is loaded and there are no rows, an example of what it gives."""
    encoder = asked.encoder
    if isinstance(encoder, Encoder):
        return encoder, None
    if encoder is None and rows is None:
        raise RecipeError("nothing says how long a row is; give x, encoder=Encoder(dim=512) or a schema.")
    if encoder is None:
        assert rows is not None
        return Encoder(dim=rows.shape[1]), None
    loaded = _load_encoder(encoder)
    return encoders.identity(loaded), encoders.example_rows(loaded) if rows is None else None


def _classes(classes: Any, schema: Schema | None) -> tuple[str, ...]:
    if classes is not None:
        return tuple(classes) if _are_names(classes) else classes_of(labels_of(classes))
    if schema is None or not schema.classes:
        raise RecipeError("no classes are given; name them, or give labels to take them from.")
    return schema.classes


def _are_names(classes: Any) -> bool:
    """Whether they are a list of different names, whose order matters; labels repeat, or are numbers."""
    is_listed = isinstance(classes, list | tuple) and all(isinstance(name, str) for name in classes)
    return is_listed and len(set(classes)) == len(classes)


def _split_columns(x: Data, recipe: Recipe, labels: Any, persons: Any) -> tuple[Data, Any, Any]:
    """Rows, labels and persons; where labels or persons name a column of the rows, it is taken out of them."""
    if labels is None and recipe.table is not None and columns_of(x) is not None:
        labels = recipe.table.label or None
    named = [each for each in (labels, persons) if isinstance(each, str)]
    labels, persons = (column_of(x, each) if isinstance(each, str) else each for each in (labels, persons))
    if named and recipe.table is None:
        x = {name: values for name, values in (columns_of(x, as_lists=False) or {}).items() if name not in named}
    return x, labels, persons


def _limit_rows(rows: np.ndarray, numbers: np.ndarray, recipe: Recipe, persons: Any, own: int | None) -> Embedded:
    if persons is None:
        if own is not None:
            raise EmbeddingsError(
                f"rows_per_person is {own}, which needs to know who each row is about; give person too."
            )
        return Embedded(rows, numbers)
    is_private = recipe.privacy.epsilon is not None
    who, most = labels_of(persons, "person", is_private), rows_per_person(recipe, own)
    who = who.astype(np.str_) if who.dtype.kind == "O" else who
    if not is_private and who.dtype.kind in "UT" and bool(np.any(who == "")):
        raise EmbeddingsError(
            f"there are {np.count_nonzero(who == ''):,} rows without a person; every row needs an id."
        )
    if len(who) != len(rows):
        raise EmbeddingsError(f"{len(who)} persons for {len(rows)} rows; give one id per row.")
    return first_embedded(Embedded(rows, numbers), who, most)


def _read(each: Message | bytes | str | Path, recipe: Recipe) -> Message:
    if isinstance(each, Message):
        return each
    if isinstance(each, bytes):
        return Message.from_bytes(each, recipe)
    if not isinstance(each, str | os.PathLike):
        raise MessageError(f"a message is a {type(each).__name__}; give Message, bytes or the path of a file.")
    try:
        return Message.load(each, recipe)
    except MessageError as error:
        raise MessageError(f"{each}: {error}") from None
