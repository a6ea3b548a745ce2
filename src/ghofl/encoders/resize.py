"""From images to planes of numbers: resize and crop, then mean and deviation.

Pillow resizes on a CPU, for torch and ONNX Runtime alike, and torch resizes on a GPU. Where an image shrinks, both widen
their kernels (no aliasing). ``squash`` and ``crop`` resize one float plane per colour and keep fractions of a byte, so
that both give the same numbers to 1e-5. ``pillow-squash`` and ``pillow-crop`` are Pillow's resize of a byte image,
wherever the network runs, because the order in which Pillow rounds depends on the image's shape and on its release.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ghofl.encoders.base import doorway
from ghofl.errors import EncoderError
from ghofl.shapes import Float32, UInt8

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
FITS = ("squash", "crop", "pillow-squash", "pillow-crop")
KERNELS = ("bilinear", "bicubic")


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How an image becomes the encoder's input; all of it is part of the encoder's fingerprint.

    ``squash`` resizes to (size, size) whatever the shape. ``crop`` resizes the shorter side to size / `share` and
    cuts out the middle (size, size). With ``pillow-`` before it, a fit gives Pillow's bytes, and the crop's position is
    torchvision's. `kernel` is ``bilinear`` or ``bicubic``.
    """

    size: int = 224
    fit: str = "squash"
    share: float = 0.875
    kernel: str = "bilinear"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        if self.fit not in FITS:
            raise EncoderError(f"fit is {self.fit!r}; write one of {', '.join(FITS)}.")
        if self.kernel not in KERNELS:
            raise EncoderError(f"the resize kernel is {self.kernel!r}; write one of {', '.join(KERNELS)}.")
        if not (1 <= self.size <= 4096 and 0 < self.share <= 1 and len(self.mean) == len(self.std) == 3):
            raise EncoderError(
                f"size {self.size}, share {self.share}, mean {self.mean}, std {self.std}: expected a size from 1 to "
                "4096, a share above 0 and at most 1, and three numbers each."
            )

    def settings(self) -> dict[str, Any]:
        """The fields as plain values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @property
    def is_of_bytes(self) -> bool:
        """Whether pixels are rounded to bytes, as Pillow does."""
        return self.fit.startswith("pillow-")

    def planes(self, images: UInt8[np.ndarray, "n h w 3"]) -> Float32[np.ndarray, "n 3 size size"]:
        """Normalised planes of byte images, on the CPU."""
        planes = np.empty((len(images), 3, self.size, self.size), dtype=np.float32)
        for out, image in zip(planes, images, strict=True):  # one at a time stays in the cache
            if self.is_of_bytes:
                out[:] = self.resize(image).transpose(2, 0, 1)
            else:
                for c in range(3):
                    out[c] = self.resize(image[:, :, c].astype(np.float32))
            self.normalise(out)
        return planes

    def resize(self, pixels: UInt8[np.ndarray, "h w 3"] | Float32[np.ndarray, "h w"]) -> np.ndarray:
        """The pixels of the encoder's input, resized and cropped by Pillow: a byte image, or a float plane."""
        pillow = doorway("PIL.Image", "an image encoder", "images")
        height, width = self.sides(*pixels.shape[:2])
        top, left = self.corner(height, width)
        whole = pillow.fromarray(pixels).resize((width, height), pillow.Resampling[self.kernel.upper()])
        return np.asarray(whole.crop((left, top, left + self.size, top + self.size)))

    def normalise(self, planes: Any) -> None:
        """Subtract the mean from planes (…, 3, size, size) of numpy or torch and divide by the deviation, in place."""
        for c in range(3):
            planes[..., c, :, :] -= np.float32(self.mean[c]) * np.float32(255)
            planes[..., c, :, :] /= np.float32(self.std[c]) * np.float32(255)

    def sides(self, height: int, width: int) -> tuple[int, int]:
        """The height and width after resizing, before the crop."""
        if self.fit.endswith("squash"):
            return self.size, self.size
        target, shorter = round(self.size / self.share), min(height, width)
        if self.is_of_bytes:
            tall, wide = target * height // shorter, target * width // shorter
        else:
            tall, wide = round(height * (target / shorter)), round(width * (target / shorter))
        return max(self.size, tall), max(self.size, wide)

    def corner(self, height: int, width: int) -> tuple[int, int]:
        """Where the crop of a resized image starts; torchvision halves an odd margin to the even number, timm up."""
        half = round if self.is_of_bytes else lambda margin: math.floor(margin + 0.5)
        return half((height - self.size) / 2), half((width - self.size) / 2)
