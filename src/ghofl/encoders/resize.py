"""Images become planes of numbers: resize and crop along one side and then the other, then mean and deviation.

Every pixel of the result is a weighted mean of a few neighbours along its row of the image, then along its column. Which
neighbours, and their weights, is the whole definition: numpy and torch, and so ONNX Runtime and a GPU, resize alike.
Where an image shrinks the weights widen with it (no aliasing). ``squash`` and ``crop`` keep fractions of a byte;
``pillow-squash`` and ``pillow-crop`` round to bytes after each side with Pillow's whole-number weights, and give the
bytes that ``PIL.Image.resize`` gives.
"""

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int32, Int64, UInt8

from ghofl.errors import EncoderError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
FITS = ("squash", "crop", "pillow-squash", "pillow-crop")
BITS = 22  # of a weight in Pillow, src/libImaging/Resample.c: 32 less 8 of the pixel and 2 of room


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How an image becomes the encoder's input; all of it enters the encoder's fingerprint.

    ``squash`` resizes to (size, size) whatever the shape. ``crop`` resizes the shorter side to size / `share` and
    cuts the middle (size, size) out. With ``pillow-`` before it, a fit gives Pillow's bytes, and the crop's place is
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

    @property
    def is_of_bytes(self) -> bool:
        """Whether pixels are rounded to bytes on the way, as Pillow does."""
        return self.fit.startswith("pillow-")

    def planes(self, images: Any, xp: Any) -> Any:
        """Normalised planes (n, 3, size, size) of byte images (n, h, w, 3) of the library `xp`, channels last in memory."""
        n, height, width, _ = images.shape
        rows, columns = self._neighbours(height, width)
        # The side to resize stands second, so that whole stretches of memory are weighed, not one number at a time.
        tall = images.swapaxes(1, 2).reshape(n, width, 3 * height)
        wide = self._side(tall, columns, xp).reshape(n, self.size, height, 3).swapaxes(1, 2)
        full = xp.asarray(self._side(wide.reshape(n, height, 3 * self.size), rows, xp), dtype=xp.float32)
        mean, std = (np.tile(np.array(values, dtype=np.float32) * 255, self.size) for values in (self.mean, self.std))
        full -= xp.asarray(mean, device=full.device)
        full /= xp.asarray(std, device=full.device)
        return full.reshape(n, self.size, self.size, 3).swapaxes(1, 3).swapaxes(2, 3)

    def numpy_planes(self, images: UInt8[np.ndarray, "n h w 3"]) -> Float32[np.ndarray, "n 3 size size"]:
        """`planes` of byte images, on the CPU."""
        planes = np.empty((len(images), 3, self.size, self.size), dtype=np.float32)
        for i in range(len(images)):  # one at a time stays in the cache
            planes[i : i + 1] = self.planes(images[i : i + 1], np)
        return planes

    def _neighbours(self, height: int, width: int) -> tuple["_Neighbours", "_Neighbours"]:
        rows, columns = (
            _neighbours(n, self._resized(n, min(height, width)), self.size, self.kernel, self.is_of_bytes)
            for n in (height, width)
        )
        return rows, columns

    def _resized(self, side: int, shorter: int) -> int:
        """What a side is resized to, before the crop."""
        if self.fit.endswith("squash"):
            return self.size
        target = round(self.size / self.share)
        return max(self.size, target * side // shorter if self.is_of_bytes else round(side * (target / shorter)))

    def _side(self, pixels: Any, near: "_Neighbours", xp: Any) -> Any:
        """Weighted sums of neighbours along the second axis."""
        first, weights = (xp.asarray(part, device=pixels.device) for part in near)
        total = pixels[:, first] * weights[0]
        for step in range(1, len(weights)):
            total += pixels[:, first + step] * weights[step]
        if self.is_of_bytes:
            total += 1 << (BITS - 1)
            total >>= BITS
            total = total.clip(0, 255)
        return total


class _Neighbours(NamedTuple):
    """Pixel i of the result is the sum over t of weights[t, i] times pixel first[i] + t."""

    first: Int64[np.ndarray, " size"]
    weights: Float32[np.ndarray, "taps size 1"] | Int32[np.ndarray, "taps size 1"]


def _triangle(t: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, 1.0 - np.abs(t))


def _cubic(t: np.ndarray, a: float = -0.5) -> np.ndarray:
    """Keys 1981, eq. 15; a = −½ is what Pillow takes."""
    t = np.abs(t)
    near = (a + 2) * t**3 - (a + 3) * t**2 + 1
    far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


_KERNELS = {"bilinear": _triangle, "bicubic": _cubic}
_REACH = {"bilinear": 1.0, "bicubic": 2.0}


@lru_cache(maxsize=64)
def _neighbours(size: int, to: int, crop: int, kernel: str, is_of_bytes: bool) -> _Neighbours:
    """Neighbours among `size` pixels of the middle `crop` of `to` pixels; the weights of one sum to 1, or to 2²²."""
    scale = size / to
    reach = _REACH[kernel] * max(scale, 1.0)
    # torchvision halves an odd margin to the even number, timm up.
    start = round((to - crop) / 2) if is_of_bytes else math.floor((to - crop) / 2 + 0.5)
    centres = (np.arange(start, start + crop) + 0.5) * scale
    taps = min(size, math.ceil(2 * reach))
    first = np.clip(np.floor(centres - reach + 0.5).astype(np.int64), 0, size - taps)
    places = first + np.arange(taps)[:, None]
    weights = _KERNELS[kernel]((places + 0.5 - centres) / max(scale, 1.0))
    weights /= weights.sum(axis=0)
    return _Neighbours(first, (_whole(weights) if is_of_bytes else weights.astype(np.float32))[:, :, None])


def _whole(weights: Float64[np.ndarray, "taps size"]) -> Int32[np.ndarray, "taps size"]:
    """Weights in units of 2⁻²², halves away from zero as Pillow rounds them."""
    return (np.sign(weights) * np.floor(np.abs(weights) * 2**BITS + 0.5)).astype(np.int32)
