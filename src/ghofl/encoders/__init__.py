"""Sample → embedding: every encoder behind one doorway.

::

    torchvision:NAME      images, torch        pip install 'ghofl[images]'
    timm:NAME             images, torch        pip install 'ghofl[images]'
    hf:NAME_OR_FOLDER     texts or images      pip install 'ghofl[text]'
    onnx:FILE             either, no torch     pip install 'ghofl[onnx]'
    precomputed:NAME      rows as they are     nothing more
"""

from pathlib import Path

from ghofl.encoders.base import Runtime, Sample, SampleEncoder, check_kind, cores, cosines, doorway, identity
from ghofl.encoders.images import ImageEncoder
from ghofl.encoders.precomputed import Precomputed
from ghofl.encoders.projection import projection_from
from ghofl.encoders.resize import Preprocessing
from ghofl.encoders.text import TextEncoder
from ghofl.errors import EncoderError

__all__ = [
    "ENCODERS",
    "ImageEncoder",
    "Precomputed",
    "Preprocessing",
    "Runtime",
    "Sample",
    "SampleEncoder",
    "TextEncoder",
    "check_kind",
    "cores",
    "cosines",
    "identity",
    "load",
    "projection_from",
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
) -> SampleEncoder:
    """The encoder of a spec such as ``torchvision:mobilenet_v2``, ``hf:FOLDER`` or ``onnx:FILE``.

    `weights` is a local checkpoint for torchvision and timm; `pooling` is for texts (``mean`` or ``cls``), `fit` for
    images of torchvision and timm (``squash`` or ``crop``), `dim` the length of precomputed rows.

    >>> load("precomputed:clip", dim=512).name
    'precomputed:clip'
    """
    runtime = runtime or Runtime()
    family, found, rest = spec.partition(":")
    if not found or family not in ENCODERS or (not rest and family != "precomputed"):
        raise EncoderError(f"encoder {spec!r} is unknown; write one of {', '.join(ENCODERS.values())}.")
    _check_options(spec, family, weights=weights, pooling=pooling, fit=fit)
    if family == "torchvision":
        return doorway("ghofl.encoders.from_torchvision", spec, "images").load(rest, runtime, weights, fit)
    if family == "timm":
        return doorway("ghofl.encoders.from_timm", spec, "images").load(rest, runtime, weights, fit)
    if family == "hf":
        return doorway("ghofl.encoders.from_transformers", spec, "text").load(rest, runtime, pooling)
    if family == "onnx":
        return doorway("ghofl.encoders.from_onnx", spec, "onnx").load(Path(rest), runtime)
    if dim is None:
        raise EncoderError(f"{spec!r} takes rows as they are; say how long they are, e.g. dim=512.")
    return Precomputed.of(rest or "unnamed", dim)


_TAKES = {"weights": ("torchvision", "timm"), "pooling": ("hf",), "fit": ("torchvision", "timm")}


def _check_options(spec: str, family: str, **options: object) -> None:
    for name, value in options.items():
        if value is not None and family not in _TAKES[name]:
            raise EncoderError(
                f"--{name} {value} means nothing to {spec!r}; only {' and '.join(_TAKES[name])} take it."
            )
