"""The group of options for the views of an image, for commands that load an encoder."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ghofl.encoders import Wanted

PANEL = "Views of images"
QUALITY = (
    "paper: one view; quick: also its mirror image, half as fast; default: also three sizes, a sixth as fast; best: also "
    "deviations and earlier stages, rows 2.5 times as long."
)


def _option(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=PANEL)


@dataclass(frozen=True)
class ViewOptions:
    """Which views are averaged: a quality, and options that override it."""

    quality: Annotated[
        str | None, _option(QUALITY + " Unless given, 'default' for torchvision: and timm:, 'paper' for others.")
    ] = None
    views: Annotated[str | None, _option("'flip' averages an image with its mirror image, 'none' does not.")] = None
    scales: Annotated[
        str | None, _option("Input sizes to average over, e.g. 160,224,288, or 'none': the network's own.")
    ] = None
    pool: Annotated[str | None, _option("'mean+std' appends deviations over the last map, 'mean' does not.")] = None
    stages: Annotated[bool | None, _option("Append the means of up to five earlier maps.", "--stages/--no-stages")] = (
        None
    )
    kernel: Annotated[
        str | None, _option("How images are resized: 'bilinear' or 'bicubic'; the encoder's own if not given.")
    ] = None

    @property
    def wanted(self) -> Wanted:
        """The views that these options ask for."""
        if self.views not in (None, "flip", "none"):
            raise typer.BadParameter(f"--views is {self.views!r}; write 'flip' or 'none', and sizes with --scales.")
        flip = None if self.views is None else self.views == "flip"
        return Wanted(self.quality or "", flip, _sizes(self.scales), self.pool, self.stages, self.kernel or "")


def _sizes(text: str | None) -> tuple[int, ...] | None:
    if text is None or text.strip() == "none":
        return None if text is None else ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"--scales is {text!r}; write sizes as in 160,224,288, or 'none'.") from None
