"""Single options that several commands share, each declared once, and what a shell completes them to."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from ghofl.cli import console


def more(about: str) -> str:
    """The heading in a command's help for options that few people need: they come after the common ones."""
    return f"More options: {about}"


def names_in(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _completer(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A function that completes a word from the known ones; after a comma, the next word of a list."""

    def complete(incomplete: str) -> list[str]:
        before, comma, word = incomplete.rpartition(",")
        return [before + comma + name for name in known() if name.startswith(word)]

    return complete


def _heads() -> list[str]:
    from ghofl.heads import HEADS
    from ghofl.heads.spec import BEST

    return [*HEADS, BEST]


def _encoders() -> list[str]:
    from ghofl.encoders import ENCODERS

    named = [example for example in ENCODERS.values() if example.partition(":")[2].islower()]
    return [*(f"{family}:" for family in ENCODERS), *named]


def _statistics() -> list[str]:
    from ghofl.statistics import STATISTICS

    return [name for name, record in STATISTICS.items() if name not in ("N", "A") and not record.is_sketched]


complete_heads, complete_encoders, complete_statistics = map(_completer, (_heads, _encoders, _statistics))
_complete_presets = _completer(lambda: ("default", "paper"))

Force = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", help=console.JSON_HELP)]
RecipeFile = Annotated[Path, typer.Option("--recipe", "-r", help="The recipe all sites share.")]
TotalFile = Annotated[Path, typer.Argument(help="A total written by 'ghofl sum'.")]
TotalOutput = Annotated[Path, typer.Option("--output", "-o", help="The total file to write.")]
SiteFile = Annotated[Path, typer.Argument(help="The site's configuration, a TOML file.")]
Preset = Annotated[
    str,
    typer.Option(
        help="Preset for options of heads that you do not set: 'default' or 'paper'.",
        autocompletion=_complete_presets,
        rich_help_panel=more("heads"),
    ),
]
PageFile = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", help="Also write a report about it, one HTML file (needs the report extra)."
    ),
]
Without = Annotated[
    str,
    typer.Option(
        "--without",
        metavar="COLUMNS",
        help="For a schema drafted from rows: columns to leave out, separated by commas.",
        rich_help_panel=more("tables"),
    ),
]
LabelColumn = Annotated[str, typer.Option(help="For a table: the column of labels.", rich_help_panel=more("tables"))]
LabelsAreNumbers = Annotated[
    bool,
    typer.Option(
        "--labels-are-numbers", help="Whole-number labels are positions in the recipe's list of classes, from 0."
    ),
]
ViewsText = Annotated[
    str | None,
    typer.Option(
        "--views",
        rich_help_panel=more("encoder"),
        help="paper: one view; quick: also its mirror image; default: also three sizes, a sixth as fast; best: also deviations "
        "and earlier stages, rows 2.5 times as long. Or in words: 'flip 160,224,288 mean+std stages bicubic'. Unless given, "
        "'default' for torchvision: and timm:, 'paper' for others.",
        autocompletion=_completer(lambda: ("paper", "quick", "default", "best")),
    ),
]
EncoderName = Annotated[
    str,
    typer.Option(
        "--encoder",
        help="torchvision:NAME, timm:NAME, hf:NAME_OR_FOLDER, onnx:FILE or precomputed:NAME.",
        autocompletion=complete_encoders,
    ),
]


def refuse_unused(where: str, **given: object) -> None:
    """Raise for options that were given and would have no effect; `where` says why."""
    names = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if names:
        raise typer.BadParameter(f"{where}; leave out {', '.join(names)}.")
