"""Files of images become pixels; whatever Pillow only warns of is an error, in the thread that reads.

The filters of Python's `warnings` belong to the whole process: a thread that changes them changes them for all, and
threads that put them back in another order leave them changed. So they are not touched. Pillow's modules are given a
`warnings` of their own, which asks whether the thread that calls it is decoding a sample.
"""

import io
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from ghofl.errors import MissingExtraError, SampleError
from ghofl.shapes import UInt8


def decode(data: bytes, name: str, most_pixels: int | None = None) -> UInt8[np.ndarray, "h w 3"]:
    """The pixels of an image as bytes, in RGB; anything that Pillow cannot read to its end is a bad sample.

    So is an image of more than `most_pixels`, where a limit is given; Pillow's own is always there.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise MissingExtraError("images need Pillow, which is not installed: pip install 'ghofl[images]'.") from None
    try:
        # A decompression bomb, a damaged EXIF: nothing that should pass in silence.
        with _strictly(), Image.open(io.BytesIO(data)) as image:
            pixels = image.width * image.height
            if most_pixels is not None and pixels > most_pixels:
                raise SampleError(f"it has {pixels:,} pixels, and {most_pixels:,} are allowed")
            return np.asarray(image.convert("RGB"))
    # Pillow's readers raise whatever their format's parser does, SyntaxError and struct.error among them.
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) and len(data) else "it is empty"
        raise SampleError(f"{name} is not an image that can be read ({reason.replace(repr(data[:0]), '')}).") from None


class _OfThread(threading.local):
    is_strict = False


_of_thread = _OfThread()


class _PillowsWarnings:
    """The module `warnings` as Pillow's modules see it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(warnings, name)

    def warn(
        self, message: Warning | str, category: type[Warning] | None = None, stacklevel: int = 1, **options: Any
    ) -> None:
        if _of_thread.is_strict:
            raise message if isinstance(message, Warning) else (category or UserWarning)(message)
        warnings.warn(message, category, stacklevel + 1, **options)


@contextmanager
def _strictly() -> Iterator[None]:
    """What Pillow warns of inside, in this thread, it raises."""
    _watch_pillow()
    before, _of_thread.is_strict = _of_thread.is_strict, True
    try:
        yield
    finally:
        _of_thread.is_strict = before


@cache
def _watch_pillow() -> None:
    from PIL import Image

    Image.init()  # loads the readers of all formats, which have warnings to give
    own = _PillowsWarnings()
    for name, module in list(sys.modules.items()):
        if name.startswith("PIL.") and getattr(module, "warnings", None) is warnings:
            module.warnings = own  # type: ignore[attr-defined]
