"""Groups of options that several commands share, each of which a command takes as one value."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ghofl.cli import console
from ghofl.cli.views import ViewOptions
from ghofl.encoders import Runtime
from ghofl.planning.assembly import DELTA, SITE_ROWS, PrivacyOptions, RecipeOptions
from ghofl.recipe import Grid, Limits, Projection, Table
from ghofl.samples import Columns


def _option(help_text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help_text, **more)


@dataclass(frozen=True)
class EncoderOptions:
    """How an encoder is loaded; the names are those of `encoders.load`."""

    weights: Annotated[
        Path | None, _option("A local checkpoint for torchvision: and timm:, .safetensors or a .pth of weights only.")
    ] = None
    pooling: Annotated[str | None, _option("For texts: 'mean' or 'cls'; the model's own if not given.")] = None
    fit: Annotated[
        str | None,
        _option(
            "For torchvision: and timm:, 'squash' images to a square or 'crop' their middle; 'pillow-squash' and "
            "'pillow-crop' round to bytes as Pillow does."
        ),
    ] = None


@dataclass(frozen=True)
class SampleOptions:
    """How samples are read and encoded."""

    text_column: Annotated[str, _option("The column of texts.")] = ""
    path_column: Annotated[str, _option("The column of image files, relative to the table.")] = ""
    row_column: Annotated[str, _option("The parquet column of embeddings.")] = ""
    label_column: Annotated[str, _option("The column of labels.")] = ""
    device: Annotated[str, _option("cpu, cuda, cuda:1 or mps.")] = "cpu"
    precision: Annotated[
        str, _option("fp32, bf16 or fp16; the last two are refused where they change embeddings too much.")
    ] = "fp32"
    batch_size: Annotated[int, _option("Samples per batch; 0 chooses by the available memory.", min=0)] = 0
    skip_bad: Annotated[bool, _option("List and leave out samples that cannot be read.", "--skip-bad")] = False

    @property
    def columns(self) -> Columns:
        """Which columns hold what."""
        return Columns(self.text_column, self.path_column, self.row_column, self.label_column)

    @property
    def runtime(self) -> Runtime:
        """Where and how exactly the encoder runs."""
        return Runtime(self.device, self.precision)


@dataclass(frozen=True)
class SpaceOptions:
    """What sites send and in which space."""

    power: Annotated[
        float | None,
        _option("Signed power transform: 0.5 is the square root, 1 none. 1 unless given, 0.5 with --budget."),
    ] = None
    unit_length: Annotated[bool, _option("Scale every row to length 1.", "--unit-length")] = False
    bits: Annotated[
        int | None, _option(f"Bits of the grid, 2 to 16; {Grid().bits} unless given, or --budget chooses 6.")
    ] = None
    scale: Annotated[
        float | None,
        _option(
            "Grid steps per unit of the embedding; fitted to the given rows unless given, but not under --epsilon."
        ),
    ] = None
    project: Annotated[int | None, _option("Project to this many dimensions.")] = None
    lift: Annotated[int | None, _option("Lift to this many random features.", "--lift")] = None
    sketch: Annotated[
        int | None, _option("Send class covariances of a sketch of this many dimensions.", "--sketch")
    ] = None
    budget: Annotated[
        str | None,
        _option(
            "Choose the statistics and the space with the best expected accuracy for messages of this size, e.g. 5MB."
        ),
    ] = None
    anchor: Annotated[
        str | None,
        _option(
            "A public vector to subtract from rows: an .npz with an array 'anchor', or the mean of public rows.",
            metavar="FILE|mean-of:FILE",
        ),
    ] = None
    public: Annotated[
        Path | None,
        _option(
            "Rows that nobody needs to protect, from the same encoder: they set a centre, the grid, the directions of a "
            "projection and, if labelled, a metric; under --epsilon also the radius.",
            "--public",
            metavar="FILE",
        ),
    ] = None
    max_rows: Annotated[
        int | None,
        _option("The most rows a site may have; one million unless given. A lower limit makes secure rounds smaller."),
    ] = None
    max_share: Annotated[
        float | None, _option("The largest share of all rows that one site may have in a total that is used.")
    ] = None

    def for_recipe(
        self,
        anchor: tuple[float, ...],
        privacy: PrivacyOptions,
        seed: int,
        *,
        statistics: tuple[str, ...] | None = None,
        site_rows: int = SITE_ROWS,
        projection: Projection | None = None,
        table: Table | None = None,
    ) -> RecipeOptions:
        """These options as `assemble` takes them; `anchor` is the vector that the option names."""
        return RecipeOptions(
            statistics=statistics, power=self.power, unit_length=self.unit_length, anchor=anchor, bits=self.bits,
            scale=self.scale, project=projection or self.project, lift=self.lift, sketch=self.sketch, seed=seed,
            budget=None if self.budget is None else console.bytes_of(self.budget), site_rows=site_rows,
            privacy=privacy, limits=Limits(self.max_rows, self.max_share), table=table,
        )  # fmt: skip


def _privacy(kind: Any, help_text: str, *names: str) -> Any:
    return Annotated[kind, _option(help_text, *names, rich_help_panel="Privacy")]


# The options of privacy, under the names of `PrivacyOptions`.
PRIVACY = {
    "epsilon": _privacy(float | None, "Promise this ε by noise; smaller is more private."),
    "delta": _privacy(float | None, f"The δ that goes with ε; {DELTA:g} unless given."),
    "radius": _privacy(
        float | None,
        "Shorten feature rows to this length. With --epsilon and --unit-length, their usual one unless given.",
    ),
    "unit": _privacy(str, "What ε protects: 'record', 'client' or 'person'."),
    "neighbours": _privacy(str, "'add-remove' a record or client, or 'replace-one'."),
    "noise": _privacy(
        str, "Who adds noise: 'central' (the server), 'distributed' (clients, inside secure aggregation) or 'local'."
    ),
    "secure": _privacy(bool, "Secure aggregation: the server sees the total only.", "--secure"),
    "min_count": _privacy(int, "Drop classes with fewer rows than this from the total."),
    "merge_into": _privacy(str, "Put the rows of dropped classes into this class."),
    "min_cohort": _privacy(int | None, "The fewest sites whose total is used."),
    "client_rows": _privacy(
        int | None, "For --unit client: cut a client's moments to the length of this many full rows."
    ),
    "rounding": _privacy(int | None, "Low bits to leave out of second moments."),
    "person_rows": _privacy(int | None, "For --unit person: the most rows of one person that count at a site."),
}
GROUPS: dict[type, dict[str, Any]] = {
    PrivacyOptions: PRIVACY,
    **{
        kind: get_type_hints(kind, include_extras=True)
        for kind in (EncoderOptions, SampleOptions, SpaceOptions, ViewOptions)
    },
}


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each parameter that takes a group of options replaced by the options themselves."""
    parameters, groups = [], {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if kind not in GROUPS:
            parameters.append(parameter)
            continue
        groups[parameter.name], defaults = kind, kind()
        parameters += [
            parameter.replace(name=name, annotation=annotation, default=getattr(defaults, name))
            for name, annotation in GROUPS[kind].items()
        ]

    def run(**values: Any) -> None:
        made = {name: kind(**{field: values.pop(field) for field in GROUPS[kind]}) for name, kind in groups.items()}
        command(**values, **made)

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    vars(run).pop("__wrapped__", None)  # a type checker may have wrapped it; unwrapping must stop here
    return run
