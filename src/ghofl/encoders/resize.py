"""Images become planes of numbers: resize and crop as two matrix products, then mean and deviation.

Every pixel of the result is a weighted mean of the image's pixels, so resizing an image X is R X Cᵀ for a matrix R of
row weights and C of column weights. The two matrices are the whole definition: numpy and torch, and so ONNX Runtime
and a GPU, resize alike. Where an image shrinks the weights widen with it (no aliasing).
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from ghofl.errors import EncoderError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
FITS = ("squash", "crop")


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How an image becomes the encoder's input; all of it enters the encoder's fingerprint.

    ``squash`` resizes to (size, size) whatever the shape. ``crop`` resizes the shorter side to size / `share` and
    cuts the middle (size, size) out. `kernel` is ``bilinear`` or ``bicubic``.
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
        if self.kernel not in _KERNELS:
            raise EncoderError(f"the resize kernel is {self.kernel!r}; known are {', '.join(_KERNELS)}.")
        if not (1 <= self.size <= 4096 and 0 < self.share <= 1 and len(self.mean) == len(self.std) == 3):
            raise EncoderError(
                f"size {self.size}, share {self.share}, mean {self.mean}, std {self.std}: expected a size from 1 to "
                "4096, a share above 0 and at most 1, and three numbers each."
            )

    def settings(self) -> dict[str, Any]:
        """The fields as plain values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def of(cls, settings: dict[str, Any]) -> "Preprocessing":
        """The inverse of `settings`."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
        return cls(**fields)

    def weights(self, height: int, width: int) -> tuple[Float32[np.ndarray, "size h"], Float32[np.ndarray, "w size"]]:
        """The matrices that resize (and crop) rows and columns: `rows @ plane @ columns`."""
        if self.fit == "squash":
            resized = (self.size, self.size)
        else:
            short = round(self.size / self.share) / min(height, width)
            resized = (max(self.size, round(height * short)), max(self.size, round(width * short)))
        rows, columns = (
            _weights(n, to, self.size, self.kernel) for n, to in zip((height, width), resized, strict=True)
        )
        return rows, columns.T

    def planes(self, pixels: Any, array: Callable[[np.ndarray], Any]) -> Any:
        """Normalised planes (n, 3, size, size) of float images (n, 3, h, w); `array` moves constants to their library.

        The weights of a pixel sum to 1, so normalising before resizing is normalising after it, on fewer pixels.
        """
        mean = array(255 * np.array(self.mean, dtype=np.float32).reshape(3, 1, 1))
        std = array(255 * np.array(self.std, dtype=np.float32).reshape(3, 1, 1))
        n, _, height, width = pixels.shape
        rows, columns = self.weights(height, width)
        # Two large products instead of a pair an image: a small one costs more to hand to threads than to compute.
        wide = ((pixels - mean) / std).reshape(-1, width) @ array(columns)
        turned = wide.reshape(3 * n, height, self.size).swapaxes(1, 2).reshape(-1, height) @ array(rows.T)
        return turned.reshape(n, 3, self.size, self.size).swapaxes(2, 3)

    def numpy_planes(self, images: UInt8[np.ndarray, "n h w 3"]) -> Float32[np.ndarray, "n 3 size size"]:
        """`planes` of byte images, on the CPU."""
        pixels = np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32)
        return np.ascontiguousarray(self.planes(pixels, lambda a: a))


def _triangle(t: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, 1.0 - np.abs(t))


def _cubic(t: np.ndarray, a: float = -0.5) -> np.ndarray:
    """Keys 1981, eq. 15; a = −½ is what Pillow takes."""
    t = np.abs(t)
    near = (a + 2) * t**3 - (a + 3) * t**2 + 1
    far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


_KERNELS = {"bilinear": _triangle, "bicubic": _cubic}


@lru_cache(maxsize=64)
def _weights(size: int, to: int, crop: int, kernel: str) -> Float32[np.ndarray, "crop size"]:
    """Weights of `size` pixels for the middle `crop` of `to` pixels; each row sums to 1."""
    scale = size / to
    first = math.floor((to - crop) / 2 + 0.5)
    centres = (np.arange(first, first + crop) + 0.5) * scale
    weights = _KERNELS[kernel]((np.arange(size) + 0.5 - centres[:, None]) / max(scale, 1.0))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
