"""From files of images to pixels; whatever Pillow only warns about raises, in the thread that reads.

The filters of Python's `warnings` belong to the whole process: a thread that changes them changes them for all, and
threads that restore them in another order leave them changed. So they are not touched. Instead, Pillow's modules get
their own `warnings`, which raises where the calling thread is decoding a sample.
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

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")  # none that starts a program, as EPS does


def decode(data: bytes, name: str) -> UInt8[np.ndarray, "h w 3"]:
    """The pixels of an image of one of the `FORMATS` as bytes, in RGB; what Pillow cannot read to its end is a bad sample."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise MissingExtraError("images need Pillow, which is not installed: pip install 'ghofl[images]'.") from None
    try:
        # Pillow only warns about a decompression bomb or damaged EXIF data; neither should pass silently.
        with _strictly(), Image.open(io.BytesIO(data), formats=FORMATS) as image:
            return np.asarray(image.convert("RGB"))
    # Pillow's readers raise many kinds of errors, SyntaxError and struct.error among them.
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) and len(data) else "it is empty"
        if reason.startswith("cannot identify"):  # the rest of Pillow's sentence is an address in memory
            reason = "it is of no known format"
        raise SampleError(f"{name} is not an image that can be read ({reason.replace(repr(data[:0]), '')}).") from None


class _OfThread(threading.local):
    is_strict = False


_of_thread = _OfThread()
_one_at_a_time = threading.Lock()


class _PillowsWarnings:
    """The module `warnings` for Pillow's modules."""

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
    """Inside the block, in this thread, Pillow's warnings raise."""
    with (
        _one_at_a_time
    ):  # two threads that load Pillow's readers at once disturb each other, and an image seemed damaged
        _watch_pillow()
    before, _of_thread.is_strict = _of_thread.is_strict, True
    try:
        yield
    finally:
        _of_thread.is_strict = before


@cache
def _watch_pillow() -> None:
    from PIL import Image

    Image.init()  # loads the readers of all formats, which may warn
    own = _PillowsWarnings()
    for name, module in sys.modules.copy().items():  # another thread may import something just now
        if name.startswith("PIL.") and getattr(module, "warnings", None) is warnings:
            module.warnings = own  # type: ignore[attr-defined]
