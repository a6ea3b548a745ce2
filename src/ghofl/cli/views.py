"""Options that say which views of an image are averaged, shared by the commands that load an encoder."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from ghofl.cli.records import takes
from ghofl.encoders import Wanted

PANEL = "Views of images"
QUALITY = (
    "paper: one view; quick: and its flip, half as fast; default: and three sizes, a sixth as fast; best: and deviations "
    "and earlier stages, rows 2.5 times as long."
)


def _option(kind: Any, help_text: str, *names: str) -> Any:
    return Annotated[kind, typer.Option(*names, help=help_text, rich_help_panel=PANEL)]


OPTIONS = {
    "quality": (
        _option(str | None, QUALITY + " Default of torchvision: and timm: is 'default', else 'paper'."),
        None,
    ),
    "views": (_option(str | None, "'flip' averages an image with its mirror image, 'none' does not."), None),
    "scales": (
        _option(str | None, "Input sizes to average over, e.g. 160,224,288, or 'none': the network's own."),
        None,
    ),
    "pool": (_option(str | None, "'mean+std' appends deviations over the last map, 'mean' does not."), None),
    "stages": (
        _option(bool | None, "Append the means of up to five earlier maps.", "--stages/--no-stages"),
        None,
    ),
    "kernel": (
        _option(str | None, "How images are resized: 'bilinear' or 'bicubic'; the encoder's own if not given."),
        None,
    ),
}


def takes_views(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of views in the place of its parameter `wanted`, which gets them as one value."""
    return takes(command, "wanted", OPTIONS, wanted_of)


def wanted_of(
    quality: str | None,
    views: str | None,
    scales: str | None,
    pool: str | None,
    stages: bool | None,
    kernel: str | None,
) -> Wanted:
    """The views that options ask for."""
    if views not in (None, "flip", "none"):
        raise typer.BadParameter(f"--views is {views!r}; write 'flip' or 'none', and sizes with --scales.")
    return Wanted(quality or "", None if views is None else views == "flip", _sizes(scales), pool, stages, kernel or "")


def _sizes(text: str | None) -> tuple[int, ...] | None:
    if text is None or text.strip() == "none":
        return None if text is None else ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"--scales is {text!r}; write sizes as in 160,224,288, or 'none'.") from None
