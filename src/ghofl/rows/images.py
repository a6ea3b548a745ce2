"""From files of images, Pillow images and arrays to the bytes (height, width, 3) that encoders take.

===========================================  ==============================================================================
grey, palette, CMYK, colour of any depth      RGB, of sixteen bits per colour the higher eight
sixteen bits of grey                          0 … 65535 become 0 … 255, rounded
floating-point grey                           0 … 1 or 0 … 255, rounded; anything else is a bad sample
transparency                                  as on white paper
EXIF orientation                              upright; damaged EXIF says nothing, and the pixels are read
several pages, or an animation                a bad sample, except for the second pictures that cameras keep in an MPO
===========================================  ==============================================================================
"""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ghofl.errors import MissingExtraError, SampleError
from ghofl.shapes import UInt8

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")  # none that starts a program, as EPS does
DEEP = 2**16 - 1
# Of twelve bits, as most X-ray detectors have, sixteen levels would be left; and a file does not say how many bits it uses.
DIM = 2**12
ORIENTATION, PHOTOMETRIC = 0x0112, 0x0106  # tags of EXIF and TIFF
WHITE = 255
_loading = threading.Lock()


def decode(data: bytes, name: str) -> UInt8[np.ndarray, "h w 3"]:
    """The pixels of an image of one of the `FORMATS` as bytes, in RGB; what Pillow cannot read to its end is a bad sample."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise MissingExtraError("images need Pillow, which is not installed: pip install 'ghofl[images]'.") from None
    with _loading:  # two threads that load Pillow's readers at once disturb each other, and an image seemed damaged
        Image.init()
    with bad_sample(name):
        if not data:
            raise SampleError("it is empty")
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            return pixels_of(image)


@contextmanager
def bad_sample(name: str) -> Iterator[None]:
    """Inside the block, which makes pixels of one image, whatever goes wrong is a `SampleError` that names it."""
    try:
        yield
    # Pillow's readers raise many kinds of errors, SyntaxError and struct.error among them.
    except Exception as error:
        reason = str(error).partition("\n")[0].rstrip(".").replace("b''", "") or type(error).__name__
        if reason.startswith("cannot identify"):  # the rest of Pillow's sentence is an address in memory
            reason = "it is of no known format"
        raise SampleError(f"{name} is not an image that can be read ({reason}).") from None


def pixels_of(image: Any) -> UInt8[np.ndarray, "h w 3"]:
    """The pixels of a Pillow image as bytes, in RGB, upright and on white."""
    from PIL import Image

    most = Image.MAX_IMAGE_PIXELS
    if most is not None and image.width * image.height > most:  # Pillow itself only warns
        raise SampleError(f"it has {image.width * image.height:,} pixels, and {most:,} are allowed")
    pages = getattr(image, "n_frames", 1)
    if pages > 1 and image.format != "MPO":
        raise SampleError(f"it has {pages:,} pages or frames; save the one to read as a file of its own")
    image.load()
    if image.mode[0] in "IF":  # I, F and the kinds of I;16
        if getattr(image, "tag_v2", {}).get(PHOTOMETRIC) == 0:  # of eight bits, Pillow inverts them
            raise SampleError("it stores white as 0 and black as the largest number; save it the other way round")
        return _upright(as_bytes(np.asarray(image)), image)
    if image.getbands()[-1] in ("A", "a") or "transparency" in image.info:
        seen = image.convert("RGBA")
        paper = Image.new("RGBA", image.size, (WHITE,) * 4)
        paper.alpha_composite(seen)
        return _upright(np.asarray(paper.convert("RGB")), image)
    return _upright(np.asarray(image.convert("RGB")), image)


def as_bytes(pixels: np.ndarray) -> UInt8[np.ndarray, "h w 3"]:
    """Pixels (height, width), or (height, width, 3), as bytes in RGB, by the rules at the head of this file.

    >>> as_bytes(np.array([[0, 32767, 65535]], dtype=np.uint16))[0, :, 0]
    array([  0, 127, 255], dtype=uint8)
    """
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3) or not pixels.size:
        raise SampleError(f"it has the shape {pixels.shape}; expected (height, width) for grey, or (height, width, 3)")
    kind, low, high = pixels.dtype.newbyteorder("="), pixels.min(), pixels.max()
    if kind == np.uint8:
        levels = pixels
    elif kind.kind == "f":
        if not (low >= 0 and high <= WHITE):
            raise SampleError(
                f"its numbers go from {low:g} to {high:g}; floating-point pixels are read between 0 and 1, or 0 and 255, so "
                "scale them when saving"
            )
        levels = np.rint(pixels * (WHITE if high <= 1 else 1))
    elif kind in (np.uint16, np.int32):
        if low < 0 or high > DEEP or 0 < high < DIM:
            raise SampleError(
                f"its numbers go from {low:,} to {high:,}, and those of grey images of 16 bits are read from 0 to {DEEP:,}; "
                "stretch its range (12 bits by a factor of 16), or save it with 8 bits"
            )
        levels = (pixels.astype(np.uint32) * WHITE + DEEP // 2) // DEEP
    else:
        raise SampleError(f"its pixels are {kind}; expected uint8, uint16 or floating-point numbers")
    levels = levels.astype(np.uint8, copy=False)
    return levels if levels.ndim == 3 else np.repeat(levels[:, :, None], 3, axis=2)


def _upright(pixels: UInt8[np.ndarray, "h w 3"], image: Any) -> UInt8[np.ndarray, "height width 3"]:
    """Pixels turned and mirrored as the EXIF orientation of a loaded image says."""
    try:
        orientation = image.getexif().get(ORIENTATION, 1)
    except Exception:  # as above, many kinds; the pixels are whole
        orientation = 1
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)
