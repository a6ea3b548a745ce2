"""Options and steps that commands on samples share: `embed`, `moments`, `recipe` and `export-encoder`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from ghofl import encoders
from ghofl.cli import console
from ghofl.encoders import Runtime, SampleEncoder, Views, Wanted
from ghofl.recipe import Encoder, Projection, Recipe
from ghofl.samples import (
    Columns,
    Rows,
    Samples,
    check_encoder,
    class_numbers,
    load_rows,
    load_samples,
    without_bad,
)
from ghofl.site.outgoing import Embedded, Encodable

EncoderName = Annotated[
    str,
    typer.Option("--encoder", help="torchvision:NAME, timm:NAME, hf:NAME_OR_FOLDER, onnx:FILE or precomputed:NAME."),
]
MaybeEncoder = Annotated[
    str | None, typer.Option("--encoder", help="With --data: encode with this encoder, as in 'ghofl embed'.")
]
Weights = Annotated[
    Path | None, typer.Option(help="A local checkpoint for torchvision: and timm:, .safetensors or a plain .pth.")
]
Pooling = Annotated[str | None, typer.Option(help="For texts: 'mean' or 'cls'; the model's own if not given.")]
Fit = Annotated[
    str | None,
    typer.Option(
        help="For torchvision: and timm:, 'squash' to a square or 'crop' its middle; with 'pillow-' rounded as there."
    ),
]
Data = Annotated[
    str, typer.Option("--data", help="A folder, a file, or hf:OWNER/NAME for a data set of the Hugging Face hub.")
]
MaybeData = Annotated[str | None, typer.Option("--data", help="With --encoder: samples, as in 'ghofl embed'.")]
TextColumn = Annotated[str, typer.Option(help="The column of texts.")]
PathColumn = Annotated[str, typer.Option(help="The column of image files, relative to the table.")]
RowColumn = Annotated[str, typer.Option(help="The parquet column of embeddings.")]
LabelColumn = Annotated[str, typer.Option(help="The column of labels.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 or mps.")]
Precision = Annotated[str, typer.Option(help="fp32; bf16 or fp16 are refused where they turn embeddings.")]
BatchSize = Annotated[int, typer.Option(min=0, help="Samples at once; 0 chooses from the memory there is.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="List and leave out samples that cannot be read.")]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The encoder that a command's options name."""

    spec: str
    weights: Path | None = None
    pooling: str | None = None
    fit: str | None = None
    runtime: Runtime = field(default_factory=Runtime)
    views: Views | Wanted | None = None

    def load(self, data: str = "", samples: Samples | None = None) -> SampleEncoder:
        """The encoder; a file of embeddings that says who made them keeps saying so."""
        if samples is None or samples.kind != "row" or not self.spec.startswith("precomputed:"):
            return encoders.load(
                self.spec, self.runtime, weights=self.weights, pooling=self.pooling, fit=self.fit, views=self.views
            )
        made_by = load_rows(data, labelled=None).encoder if Path(data).suffix == ".npz" else None
        if made_by is not None and self.spec == "precomputed:":
            return encoders.Precomputed(made_by.name, made_by.dim, made_by.fingerprint)
        return encoders.load(self.spec, self.runtime, dim=len(samples.read(0)))


@dataclass(frozen=True, slots=True)
class LoadedIdentity:
    """What a recipe takes from a loaded encoder."""

    encoder: Encoder
    projection: Projection | None


def load_identity(
    spec: str,
    weights: Path | None,
    pooling: str | None,
    fit: str | None,
    project: int | None,
    views: Views | Wanted | None = None,
) -> LoadedIdentity:
    """The encoder's name, length of row and fingerprint, and a projection from its own classifier if one is asked for."""
    encoder = Chosen(spec, weights, pooling, fit, views=views).load()
    projection = None if project is None else encoders.projection_from(encoder, project)
    return LoadedIdentity(encoders.identity(encoder), projection)


def encodable(
    chosen: Chosen,
    recipe: Recipe,
    data: str,
    split: str,
    columns: Columns,
    batch_size: int,
    skip_bad: bool,
    labels_are_numbers: bool = False,
) -> Encodable:
    """A command's samples and its encoder, which is the recipe's and has the recipe's views."""
    samples = load_samples(data, split, columns)
    chosen = replace(chosen, views=encoders.agreed_views(chosen.spec, recipe.encoder))
    encoder = chosen.load(data, samples)
    check_encoder(encoders.identity(encoder), recipe, data)
    return Encodable(samples, encoder, chosen.runtime, batch_size, skip_bad, labels_are_numbers)


def embedded(rows: Rows, recipe: Recipe, path: Path, skip_bad: bool, labels_are_numbers: bool) -> Embedded:
    """A command's rows with class numbers, made by the recipe's encoder; rows left out are listed."""
    check_encoder(rows.encoder, recipe, path)
    if skip_bad:
        rows, bad = without_bad(rows)
        list_bad(bad)
    assert rows.y is not None
    return Embedded(rows.x, class_numbers(rows.y, recipe.classes, labels_are_numbers))


def list_bad(bad: Sequence[tuple[int, str]]) -> None:
    """List the samples that were left out, on standard error."""
    for _, why in bad[:20]:
        console.told("Left out", why)
    if len(bad) > 20:
        console.told("Left out", f"{len(bad) - 20} more.")
