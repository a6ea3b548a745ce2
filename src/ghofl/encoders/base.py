"""What every encoder has: a name, a row length, a fingerprint, and a function from samples to embeddings."""

import hashlib
import importlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from ghofl import recipe
from ghofl.errors import EncoderError, MissingExtraError
from ghofl.shapes import Float, Num

# An image as (height, width, 3) bytes, a text, or a row that is already an embedding.
Sample: TypeAlias = np.ndarray | str


@runtime_checkable
class SampleEncoder(Protocol):
    """Samples in, embeddings out.

    Guarantees
    ----------
    `fingerprint` is the sha256 of weights, preprocessing and pooling: embeddings of encoders with the same fingerprint
    may be added up, whatever they run on. `encode` gives one array per batch, one row per sample, in order.
    The same batches on the same machine give the same bytes.
    """

    @property
    def name(self) -> str:
        """The name by which the encoder is loaded, e.g. ``torchvision:mobilenet_v2``."""
        ...

    @property
    def kind(self) -> str:
        """What it takes: ``image``, ``text`` or ``row``."""
        ...

    @property
    def dim(self) -> int:
        """Numbers in one embedding."""
        ...

    @property
    def fingerprint(self) -> str:
        """The sha256 of weights, preprocessing and pooling."""
        ...

    @property
    def sample_bytes(self) -> int:
        """Roughly the memory that one sample of a batch takes while it is encoded."""
        ...

    def encode(self, batches: Iterable[Sequence[Sample]]) -> Iterator[Float[np.ndarray, "n dim"]]:
        """The embeddings of each batch."""
        ...


HALF_PRECISION_COSINE = 0.9995
PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True, slots=True)
class Runtime:
    """Where and how an encoder computes, which is not part of the fingerprint.

    `precision` is ``fp32``, ``bf16`` or ``fp16``; half precision is compared with full precision on the first batch and
    refused where the embeddings' median cosine falls below `HALF_PRECISION_COSINE`.
    """

    device: str = "cpu"
    precision: str = "fp32"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise EncoderError(f"precision is {self.precision!r}; write one of {', '.join(PRECISIONS)}.")


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def identity(encoder: SampleEncoder) -> recipe.Encoder:
    """The encoder section of a recipe for this encoder."""
    views = str(getattr(encoder, "views", ""))  # only encoders of images have them
    return recipe.Encoder(dim=encoder.dim, name=encoder.name, fingerprint=encoder.fingerprint, views=views)


def example_rows(encoder: SampleEncoder) -> Float[np.ndarray, "n dim"] | None:
    """What an encoder gives for noise or a word, which shows whether its numbers are ever negative; None for rows."""
    if encoder.kind == "row":
        return None
    noise = np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8)
    return next(iter(encoder.encode([[noise if encoder.kind == "image" else "word"]])))


def fingerprint(arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> str:
    """The sha256 of weights by name and of everything else that affects an embedding.

    It covers the line ``ghofl encoder 1``, the settings as JSON with sorted keys, and for every array in the order
    of names a line ``name dtype shape`` and its little-endian bytes.

    >>> fingerprint({"w": np.zeros(2, np.float32)}, {"pooling": "mean"})[:12]
    '3dd6e7cec0a3'
    """
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    sha = hashlib.sha256(f"ghofl encoder 1\n{text}\n".encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        sha.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def cosines(a: Num[np.ndarray, "n dim"], b: Num[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
    """The cosine of the angle between each row of one array and the same row of the other."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.where(lengths > 0, (a * b).sum(axis=1) / np.where(lengths > 0, lengths, 1.0), 1.0)


def doorway(module: str, needs: str, extra: str) -> ModuleType:
    """A module that needs an optional dependency; without it, the error has the line that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{needs} needs {error.name}, which is not installed: pip install 'ghofl[{extra}]'."
        ) from None


def check_kind(encoder: SampleEncoder, kind: str) -> None:
    """Raise `EncoderError` unless the encoder takes samples of this kind."""
    if encoder.kind != kind:
        raise EncoderError(
            f"{encoder.name} takes {_PLURALS[encoder.kind]} and the data holds {_PLURALS[kind]}; "
            f"choose an encoder for {_PLURALS[kind]}, or name the column to read."
        )


_PLURALS = {"image": "images", "text": "texts", "row": "rows of embeddings"}
