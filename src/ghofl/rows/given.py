"""Samples given in Python: texts, and images as files, bytes, Pillow images or arrays."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.errors import SampleError
from ghofl.rows import base
from ghofl.rows.base import Samples
from ghofl.rows.images import as_bytes, bad_sample, decode, pixels_of
from ghofl.rows.loading import load_samples


def samples_of(samples: Any, kind: str) -> Samples:
    """A list of samples of a kind (``image``, ``text`` or ``row``); a `Path` is read as `ghofl embed --data` reads it.

    >>> samples_of([[1.0, 2.0]], "row").read(0)
    array([1., 2.], dtype=float32)
    """
    if isinstance(samples, Path) or (isinstance(samples, str) and kind == "image"):
        return load_samples(str(samples))
    if isinstance(samples, str | bytes):
        raise SampleError(
            f"samples are a single {type(samples).__name__}; give a list of them, or a pathlib.Path for those of a file."
        )
    if kind == "row":
        return base.of_rows(np.asarray(samples), None, "samples")
    given = list(samples)
    names = [f"sample {i}" for i in range(len(given))]
    if kind == "text":
        return base.of_texts(given, None, names)
    return Samples("image", names, lambda i: _pixels(given, i), lambda: "")


def _pixels(given: Sequence[Any], i: int) -> np.ndarray:
    """Sample i as an image of bytes (height, width, 3)."""
    image = given[i]
    if isinstance(image, str | PathLike):
        return decode(base.bytes_of(Path(image)), str(image))
    if isinstance(image, bytes):
        return decode(image, f"sample {i}")
    with bad_sample(f"sample {i}"):
        return pixels_of(image) if hasattr(image, "convert") else as_bytes(np.asarray(image))
