"""Records of options, each of which a command takes as one value; those that several commands share are here."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import typer

from ghofl.cli import console
from ghofl.cli.arguments import complete_encoders, complete_statistics, more, names_in
from ghofl.encoders import Runtime
from ghofl.encoders.streaming import Encoding, load_whole
from ghofl.recipe import OPTIONS, Recipe, RecipeOptions
from ghofl.recipe.option import Option
from ghofl.rows import Columns, Rows
from ghofl.rows.loading import default_split


def _option(help_text: str, *names: str, **rest: Any) -> Any:
    return typer.Option(*names, help=help_text, **rest)


@dataclass(frozen=True)
class EncoderOptions:
    """How an encoder is loaded; the names are those of `encoders.load`."""

    weights: Annotated[
        Path | None,
        _option(
            "A local checkpoint for torchvision: and timm:, .safetensors or a .pth of weights only.",
            rich_help_panel=more("encoder"),
        ),
    ] = None
    pooling: Annotated[
        str | None,
        _option("For texts: 'mean' or 'cls'; the model's own if not given.", rich_help_panel=more("encoder")),
    ] = None
    fit: Annotated[
        str | None,
        _option(
            "For torchvision: and timm:, 'squash' images to a square or 'crop' their middle; 'pillow-squash' and "
            "'pillow-crop' round to bytes as Pillow does.",
            rich_help_panel=more("encoder"),
        ),
    ] = None


@dataclass(frozen=True)
class SampleOptions:
    """How samples are read and encoded."""

    text_column: Annotated[str, _option("The column of texts.")] = ""
    path_column: Annotated[str, _option("The column of image files, relative to the table.")] = ""
    label_column: Annotated[str, _option("The column of labels.")] = ""
    device: Annotated[str, _option("cpu, cuda, cuda:1 or mps.")] = "cpu"
    precision: Annotated[
        str, _option("fp32, bf16 or fp16; the last two are refused where they change embeddings too much.")
    ] = "fp32"
    skip_bad: Annotated[bool, _option("List and leave out samples that cannot be read.", "--skip-bad")] = False

    @property
    def columns(self) -> Columns:
        """Which columns hold what."""
        return Columns(self.text_column, self.path_column, self.label_column)

    @property
    def runtime(self) -> Runtime:
        """Where and how exactly the encoder runs."""
        return Runtime(self.device, self.precision)


DATA_HELP = (
    "Embeddings (.npz, .npy, .safetensors, .parquet, .arrow, .feather), a table with the recipe's schema, a folder of images, a "
    "table with a column of texts or of image files, or hf:OWNER/NAME"
)
RecipesEncoder = Annotated[
    str,
    _option(
        "For samples: the recipe's encoder, as in 'ghofl embed'; loaded by its name unless given.",
        autocompletion=complete_encoders,
    ),
]


def judged_split(data: str, split: str) -> str:
    """The split of rows that a head is used on: the one asked for, or a chosen one, which is said."""
    chosen = split or default_split(data)
    if chosen != split:
        console.tell("Reading", f"the part {chosen!r} of {data}; --split names another.")
    return chosen


def encoding_of(encoder: str, model: EncoderOptions, samples: SampleOptions) -> Encoding:
    """How the samples that a head is used on are encoded."""
    return Encoding(encoder, vars(model), samples.runtime)


@dataclass(frozen=True)
class Reading:
    """How the rows that a head is judged on or changed towards are read."""

    split: str
    samples: SampleOptions
    encoding: Encoding
    labels_are_numbers: bool = False
    person: str = ""

    def load(self, recipe: Recipe, data: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Rows with class numbers, and who they are about where a column says so; samples that were left out are listed."""
        rows = self._load(recipe, data)
        x, y = rows.x, rows.numbers(recipe.classes, self.labels_are_numbers)
        if not self.person:
            return x, y, None
        from ghofl.outbox.site_rows import first_rows, load_persons

        persons = load_persons(data, self.person, self.split, len(x))
        kept = first_rows(persons, recipe.privacy.person_rows or len(persons))
        return x[kept], y[kept], persons[kept]

    def _load(self, recipe: Recipe, data: str) -> Rows:
        columns, skip_bad = self.samples.columns, self.samples.skip_bad
        with console.err.status("reading the rows …"):
            rows, bad = load_whole(recipe, data, self.split, columns=columns, encoding=self.encoding, skip_bad=skip_bad)
        console.list_bad(bad)
        return rows


def _recipe_option(option: Option, is_repeated: bool = False) -> Any:
    """An option of a recipe as one of a command, which may take it several times."""
    kind = option.kind if option.kind in (bool, int, float) and option.name not in READERS else str
    among = f" ({', '.join(option.choices)})" if option.choices else ""
    text = f"{option.about}{among}." + (f" Unless given: {option.auto}." if option.auto else "")
    section = option.key.partition(".")[0]
    about = section if section in ("privacy", "limits") else "space"
    rest: dict[str, Any] = {} if option.is_common else {"rich_help_panel": more(about)}
    rest |= {"metavar": "SIZE"} if option.name == "budget" else {}
    rest |= {"autocompletion": complete_statistics} if option.name == "statistics" else {}
    name = f"--{option.name.replace('_', '-')}"
    takes = kind if kind is bool else list[kind] | None if is_repeated else kind | None
    return Annotated[takes, _option(text, name, **rest)]


# Options that a command line writes in another way than Python.
READERS: dict[str, Callable[[str], Any]] = {
    "budget": console.bytes_of,
    "statistics": lambda text: tuple(names_in(text)),
}
AnchorFile = Annotated[
    str | None,
    _option(
        f"{OPTIONS['anchor'].about}: an .npz with an array 'anchor', or the mean of public rows.",
        metavar="FILE|mean-of:FILE", rich_help_panel=more("space"),
    ),
]  # fmt: skip
PublicFile = Annotated[
    Path | None,
    _option(
        "Rows that nobody needs to protect, from the same encoder: they set a centre, the grid, the directions of a "
        "projection and, if labelled, a metric; under --epsilon also the radius.",
        metavar="FILE", rich_help_panel=more("space"),
    ),
]  # fmt: skip


# The options of a recipe but the seed, each with all values that were given, or None; true and false are given once.
_UNSET = [(o.name, Any, o.default if o.kind is bool else None) for o in OPTIONS.values() if o.name != "seed"]
RepeatedOptions = make_dataclass("RepeatedOptions", _UNSET, frozen=True)


@cache
def _group(kind: type) -> dict[str, Any]:
    """The options of a record by name, as parameters of a command."""
    if kind in (RecipeOptions, RepeatedOptions):
        return {f.name: _recipe_option(OPTIONS[f.name], kind is RepeatedOptions) for f in fields(kind)}
    return get_type_hints(kind, include_extras=True)


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each parameter whose type is a record of options replaced by the options themselves.

    An option that the command declares itself, in its own way, is left out of the record.
    """
    parameters, groups = [], {}
    own = inspect.signature(command, eval_str=True).parameters
    for parameter in own.values():
        kind = parameter.annotation
        if not isinstance(kind, type) or not is_dataclass(kind):
            parameters.append(parameter)
            continue
        groups[parameter.name], defaults = kind, kind()
        parameters += [
            parameter.replace(name=name, annotation=annotation, default=getattr(defaults, name))
            for name, annotation in _group(kind).items()
            if name not in own
        ]

    def run(**values: Any) -> None:
        made = {
            name: kind(**{field: _read(field, values.pop(field)) for field in _group(kind) if field not in own})
            for name, kind in groups.items()
        }
        command(**values, **made)

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    vars(run).pop("__wrapped__", None)  # a type checker may have wrapped it; unwrapping must stop here
    return run


def _read(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_read(name, each) for each in value]
    return READERS[name](value) if name in READERS and value is not None else value
