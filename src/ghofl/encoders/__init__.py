"""From samples to embeddings: `load` gives every encoder.

::

    torchvision:NAME      images, torch        pip install 'ghofl[images]'
    timm:NAME             images, torch        pip install 'ghofl[images]'
    hf:NAME_OR_FOLDER     texts, torch         pip install 'ghofl[text]'
    onnx:FILE             either, no torch     pip install 'ghofl[onnx]'
    precomputed:NAME      rows as they are     no extra
"""

from dataclasses import replace
from pathlib import Path

from ghofl.encoders.base import (
    Runtime,
    Sample,
    SampleEncoder,
    check_kind,
    cores,
    cosines,
    doorway,
    example_rows,
    identity,
)
from ghofl.encoders.images import ImageEncoder
from ghofl.encoders.precomputed import Precomputed
from ghofl.encoders.projection import projection_from
from ghofl.encoders.resize import Preprocessing
from ghofl.encoders.text import TextEncoder
from ghofl.encoders.views import Views, ViewsRequest
from ghofl.errors import EncoderError
from ghofl.recipe import Encoder

__all__ = [
    "ENCODERS",
    "ImageEncoder",
    "Precomputed",
    "Preprocessing",
    "Runtime",
    "Sample",
    "SampleEncoder",
    "TextEncoder",
    "Views",
    "ViewsRequest",
    "agreed_views",
    "check_kind",
    "cores",
    "cosines",
    "example_rows",
    "identity",
    "is_loadable",
    "load",
    "projection_from",
    "spec_for",
]

ENCODERS = {
    "torchvision": "torchvision:mobilenet_v2",
    "timm": "timm:resnet18",
    "hf": "hf:FOLDER",
    "onnx": "onnx:FILE",
    "precomputed": "precomputed:NAME",
}


def load(
    spec: str,
    runtime: Runtime | None = None,
    *,
    weights: str | Path | None = None,
    pooling: str | None = None,
    fit: str | None = None,
    dim: int | None = None,
    views: Views | ViewsRequest | str | None = None,
) -> SampleEncoder:
    """The encoder of a spec such as ``torchvision:mobilenet_v2``, ``hf:FOLDER`` or ``onnx:FILE``.

    `weights` is a local checkpoint for torchvision and timm; `pooling` is for texts (``mean`` or ``cls``), `fit` for
    images of torchvision and timm (``squash`` or ``crop``), `dim` the length of precomputed rows. The embedding of an
    image is the mean over `views` (``flip 160,224,288``, or a quality: ``paper``, ``quick``, ``default``, ``best``); by
    default there is one view.

    >>> load("precomputed:clip", dim=512).name
    'precomputed:clip'
    """
    runtime = runtime or Runtime()
    family, found, rest = spec.partition(":")
    if not found or family not in ENCODERS or (not rest and family != "precomputed"):
        raise EncoderError(f"encoder {spec!r} is unknown; write one of {', '.join(ENCODERS.values())}.")
    asked = _views(views, family)
    _check_options(spec, family, weights=weights, pooling=pooling, fit=fit, views=asked)
    if family in PHOTOS:
        return doorway(f"ghofl.encoders.from_{family}", spec, "images").load(rest, runtime, weights, fit, asked)
    if family == "hf":
        return doorway("ghofl.encoders.from_transformers", spec, "text").load(rest, runtime, pooling)
    if family == "onnx":
        return doorway("ghofl.encoders.from_onnx", spec, "onnx").load(Path(rest), runtime)
    if dim is None:
        raise EncoderError(f"{spec!r} takes rows as they are; give their length, e.g. dim=512.")
    return Precomputed.of(rest or "unnamed", dim)


def spec_for(encoder: Encoder, asked: str, where: str | Path) -> str:
    """The spec that was asked for, or the name of a recipe's encoder; raises where samples cannot be encoded by that.

    >>> spec_for(Encoder(dim=512, name="timm:resnet18"), "", "photos")
    'timm:resnet18'
    """
    if asked or is_loadable(encoder.name):
        return asked or encoder.name
    raise EncoderError(
        f"{where} holds samples, and the recipe calls its encoder {encoder.name!r}, which cannot be loaded by that name; "
        "give it with `encoder`, e.g. onnx:FILE."
    )


def agreed_views(spec: str, encoder: Encoder) -> Views | None:
    """The views of a recipe's encoder, for a site that loads it; None for kinds that include them, or have none.

    >>> str(agreed_views("torchvision:resnet18", Encoder(dim=512, views="flip")))
    'flip'
    """
    return Views.parse(encoder.views) if spec.partition(":")[0] in _TAKES["views"] and encoder.views else None


def is_loadable(spec: str) -> bool:
    """Whether a name says where an encoder comes from, so that it can be loaded by it."""
    return spec.partition(":")[0] in {*ENCODERS} - {"precomputed"}


PHOTOS = ("torchvision", "timm")  # the encoders that have views by default
_TAKES = {"weights": PHOTOS, "pooling": ("hf",), "fit": PHOTOS, "views": PHOTOS}


def _views(views: Views | ViewsRequest | str | None, family: str) -> Views | ViewsRequest | None:
    """The views to load, or None for one view; filled in with the default of the family where it has one."""
    asked = ViewsRequest.parse(views) if isinstance(views, str) else views
    if isinstance(asked, ViewsRequest) and not asked.quality and family in PHOTOS:
        return replace(asked, quality="default")
    return None if asked in (None, Views(), ViewsRequest(), ViewsRequest("paper")) else asked


def _check_options(spec: str, family: str, **options: object) -> None:
    for name, value in options.items():
        if value is not None and family not in _TAKES[name]:
            raise EncoderError(
                f"--{name} {value} has no meaning for {spec!r}; only {' and '.join(_TAKES[name])} take it. Leave it out."
            )
