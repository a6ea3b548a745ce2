"""Nineteen ways an image goes wrong, in four families and five severities, for images of any size.

The list, the families and the idea are those of CIFAR-10-C and CIFAR-100-C (Hendrycks & Dietterich 2019); strengths
follow the published ones for 32-pixel images and grow with the image. The implementations are our own, so figures on
them are not comparable with figures on the published arrays. Frost is grown from noise, not taken from photographs.
"""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image as Pillow
from scipy import ndimage

from ghofl.errors import DatasetError
from ghofl.rows import Samples
from ghofl.rows.base import digest_of

Image = Float[np.ndarray, "h w 3"]

FAMILIES = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    "weather": ("snow", "frost", "fog", "brightness", "spatter"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate"),
}
SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class Corruption:
    """One of the 19 corruptions at a severity from 1 to 5."""

    name: str
    severity: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.name not in _APPLY:
            listed = "; ".join(f"{family}: {', '.join(names)}" for family, names in FAMILIES.items())
            raise DatasetError(f"corruption {self.name!r} is unknown; known are {listed}.")
        if self.severity not in SEVERITIES:
            raise DatasetError(f"severity is {self.severity}; write a number from 1 to 5.")


def corrupt(clean: Samples, corruption: Corruption) -> Samples:
    """Images with one corruption each, generated; image i is the same whatever is read before it."""
    if clean.kind != "image":
        raise DatasetError(f"{corruption.name} is for images and the data holds {clean.kind}s.")

    def change(image: np.ndarray, i: int) -> np.ndarray:
        return apply(corruption.name, image, corruption.severity, np.random.default_rng([corruption.seed, i]))

    return clean.map(change, repr(corruption))


def load_published(folder: Path, corruption: Corruption) -> Samples:
    """CIFAR-10-C and CIFAR-100-C as published: five severities of the same images, one after the other."""
    file = folder / f"{corruption.name}.npy"
    if not file.is_file():
        raise DatasetError(f"{folder} has no {file.name}; it is one file of the published archive.")
    try:
        images = np.load(file, mmap_mode="r", allow_pickle=False)
        labels = np.load(folder / "labels.npy", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DatasetError(f"{file} or labels.npy beside it is not an .npy of plain numbers: {error}") from None
    if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
        raise DatasetError(f"{file} has {images.dtype} {images.shape}; expected bytes (n, height, width, 3).")
    count = len(images) // 5
    rows = slice((corruption.severity - 1) * count, corruption.severity * count)
    if len(labels) not in (count, len(images)):
        raise DatasetError(f"{folder}/labels.npy has {len(labels)} labels for five times {count} images.")
    own = labels[rows] if len(labels) == len(images) else labels
    pixels = np.array(images[rows])
    names = [f"{file}[{i}]" for i in range(count)]

    def digest() -> str:
        return digest_of(["array", hashlib.sha256(pixels.tobytes()).hexdigest()])

    return Samples("image", names, lambda i: pixels[i], digest, own.astype(np.int64))


def apply(
    name: str, image: UInt8[np.ndarray, "h w 3"], severity: int, rng: np.random.Generator
) -> UInt8[np.ndarray, "h w 3"]:
    """The image after one corruption."""
    out = _APPLY[name](image.astype(np.float64) / 255.0, severity - 1, rng)
    return np.rint(255.0 * np.clip(out, 0.0, 1.0)).astype(np.uint8)


def _size(x: Image) -> float:
    """How many times larger than a CIFAR image it is; lengths grow with it."""
    return min(x.shape[:2]) / 32.0


# -------------------------------------------------------------------------------------------------------------- noise


def gaussian_noise(x: Image, s: int, rng: np.random.Generator) -> Image:
    return x + rng.normal(scale=(0.04, 0.06, 0.08, 0.09, 0.10)[s], size=x.shape)


def shot_noise(x: Image, s: int, rng: np.random.Generator) -> Image:
    photons = (500, 250, 100, 75, 50)[s]
    return rng.poisson(x * photons) / photons


def impulse_noise(x: Image, s: int, rng: np.random.Generator) -> Image:
    chance = rng.random(x.shape)
    share = (0.01, 0.02, 0.03, 0.05, 0.07)[s]
    return np.where(chance < share / 2, 0.0, np.where(chance < share, 1.0, x))


def speckle_noise(x: Image, s: int, rng: np.random.Generator) -> Image:
    return x + x * rng.normal(scale=(0.06, 0.1, 0.12, 0.16, 0.2)[s], size=x.shape)


# --------------------------------------------------------------------------------------------------------------- blur


def defocus_blur(x: Image, s: int, rng: np.random.Generator) -> Image:
    radius = (0.45, 0.7, 0.9, 1.1, 1.4)[s] * _size(x)
    return _filtered(x, _disk(radius, soft=0.4 * _size(x)))


def glass_blur(x: Image, s: int, rng: np.random.Generator) -> Image:
    sigma, reach = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 1.5), (0.4, 2))[s]
    height, width = x.shape[:2]
    reach = max(1.0, reach * _size(x))
    step = np.rint(rng.uniform(-reach, reach, size=(2, height, width))).astype(int)
    rows, columns = np.indices((height, width))
    moved = x[np.clip(rows + step[0], 0, height - 1), np.clip(columns + step[1], 0, width - 1)]
    return _gaussian(moved, sigma * 2 * _size(x))


def motion_blur(x: Image, s: int, rng: np.random.Generator) -> Image:
    length = (2, 3, 4, 5, 6)[s] * _size(x)
    angle = rng.uniform(-np.pi / 4, np.pi / 4)
    return _filtered(x, _line(length, angle))


def zoom_blur(x: Image, s: int, rng: np.random.Generator) -> Image:
    zooms = np.arange(1.0, (1.06, 1.11, 1.16, 1.21, 1.26)[s], 0.01)
    return np.mean([_zoomed(x, zoom) for zoom in zooms], axis=0)


def gaussian_blur(x: Image, s: int, rng: np.random.Generator) -> Image:
    return _gaussian(x, (0.4, 0.6, 0.7, 0.8, 1.0)[s] * _size(x))


# ------------------------------------------------------------------------------------------------------------ weather


def snow(x: Image, s: int, rng: np.random.Generator) -> Image:
    amount, length, keep = ((0.08, 2, 0.95), (0.14, 2, 0.9), (0.18, 3, 0.85), (0.22, 3, 0.8), (0.28, 4, 0.75))[s]
    flakes = (rng.random(x.shape[:2]) < amount / _size(x)) * rng.uniform(0.5, 1.0, size=x.shape[:2])
    streaks = _filtered(flakes[..., None], _line(length * _size(x), rng.uniform(np.pi / 4, 3 * np.pi / 4)))
    pale = np.maximum(x, x.mean(axis=2, keepdims=True) * 1.5 + 0.5)
    return keep * x + (1 - keep) * pale + 1.6 * streaks


def frost(x: Image, s: int, rng: np.random.Generator) -> Image:
    keep, ice = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))[s]
    ridges = 1.0 - np.abs(2.0 * _plasma(x.shape[:2], 1.2, rng) - 1.0)  # bright where the noise crosses its middle
    tint = np.array([0.92, 0.97, 1.0])
    return keep * x + ice * (ridges**3)[..., None] * tint


def fog(x: Image, s: int, rng: np.random.Generator) -> Image:
    amount, decay = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))[s]
    return (x + amount * _plasma(x.shape[:2], decay, rng)[..., None]) / (1.0 + amount * x.max())


def brightness(x: Image, s: int, rng: np.random.Generator) -> Image:
    hue, saturation, value = _to_hsv(x)
    return _from_hsv(hue, saturation, np.clip(value + (0.05, 0.1, 0.15, 0.2, 0.3)[s], 0, 1))


def spatter(x: Image, s: int, rng: np.random.Generator) -> Image:
    share, is_mud = ((0.06, False), (0.1, False), (0.15, False), (0.12, True), (0.18, True))[s]
    drops = _gaussian(rng.normal(size=(*x.shape[:2], 1)), 1.0 * _size(x))
    edge = np.quantile(drops, 1.0 - share)
    wet = np.clip((drops - edge) / (drops.std() * 0.5), 0.0, 1.0)
    colour = np.array([63, 42, 20]) / 255.0 if is_mud else np.array([175, 238, 238]) / 255.0
    return x * (1 - 0.8 * wet) + 0.8 * wet * colour


# ------------------------------------------------------------------------------------------------------------ digital


def contrast(x: Image, s: int, rng: np.random.Generator) -> Image:
    mean = x.mean(axis=(0, 1), keepdims=True)
    return (x - mean) * (0.75, 0.5, 0.4, 0.3, 0.15)[s] + mean


def elastic_transform(x: Image, s: int, rng: np.random.Generator) -> Image:
    reach, smooth = ((0.7, 4.0), (0.9, 3.0), (1.1, 2.6), (1.3, 2.2), (1.6, 2.0))[s]
    field = rng.uniform(-1, 1, size=(*x.shape[:2], 2))
    shift = _gaussian(field, smooth * _size(x))
    shift *= reach * _size(x) / max(float(np.abs(shift).std()), 1e-12)
    rows, columns = np.indices(x.shape[:2])
    return _sampled(x, rows + shift[..., 0], columns + shift[..., 1])


def pixelate(x: Image, s: int, rng: np.random.Generator) -> Image:
    share = (0.95, 0.9, 0.85, 0.75, 0.65)[s]
    height, width = (max(1, round(n * share)) for n in x.shape[:2])
    rows = _box(x.shape[0], height)
    columns = _box(x.shape[1], width)
    small = np.einsum("ri,ijc,kj->rkc", rows, x, columns)
    up = [np.minimum(np.arange(n) * m // n, m - 1) for n, m in zip(x.shape[:2], (height, width), strict=True)]
    return small[np.ix_(*up)]


def jpeg_compression(x: Image, s: int, rng: np.random.Generator) -> Image:
    buffer = io.BytesIO()
    pixels = Pillow.fromarray(np.rint(255 * x).astype(np.uint8))
    pixels.save(buffer, "JPEG", quality=(80, 65, 58, 50, 40)[s])
    return np.asarray(Pillow.open(buffer), dtype=np.float64) / 255.0


def saturate(x: Image, s: int, rng: np.random.Generator) -> Image:
    times, plus = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))[s]
    hue, saturation, value = _to_hsv(x)
    return _from_hsv(hue, np.clip(saturation * times + plus, 0, 1), value)


_APPLY: dict[str, Callable[[Image, int, np.random.Generator], Image]] = {
    name: globals()[name] for names in FAMILIES.values() for name in names
}

# -------------------------------------------------------------------------------------------------------------- tools


def _gaussian(x: np.ndarray, sigma: float) -> np.ndarray:
    return ndimage.gaussian_filter(x, sigma=(sigma, sigma, 0), mode="nearest")


def _filtered(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    return ndimage.convolve(x, kernel[..., None], mode="nearest")


def _disk(radius: float, soft: float) -> np.ndarray:
    half = int(np.ceil(radius + 2 * soft))
    rows, columns = np.indices((2 * half + 1, 2 * half + 1)) - half
    inside = 1.0 / (1.0 + np.exp((np.hypot(rows, columns) - radius) / (0.5 * soft)))
    return inside / inside.sum()


def _line(length: float, angle: float) -> np.ndarray:
    half = int(np.ceil(length / 2))
    kernel = np.zeros((2 * half + 1, 2 * half + 1))
    for t in np.linspace(-length / 2, length / 2, 8 * half + 1):
        kernel[round(half + t * np.sin(angle)), round(half + t * np.cos(angle))] += 1.0
    return kernel / kernel.sum()


def _zoomed(x: Image, zoom: float) -> Image:
    middle = [(n - 1) / 2 for n in x.shape[:2]]
    rows, columns = np.indices(x.shape[:2])
    return _sampled(x, middle[0] + (rows - middle[0]) / zoom, middle[1] + (columns - middle[1]) / zoom)


def _sampled(x: Image, rows: np.ndarray, columns: np.ndarray) -> Image:
    planes = [ndimage.map_coordinates(x[..., c], [rows, columns], order=1, mode="reflect") for c in range(3)]
    return np.stack(planes, axis=-1)


def _plasma(shape: tuple[int, int], decay: float, rng: np.random.Generator) -> np.ndarray:
    """Noise between 0 and 1 whose detail of half the size is `decay` times as weak."""
    total, weight, cells = np.zeros(shape), 1.0, 2
    while cells <= max(shape):
        coarse = rng.random((cells + 1, cells + 1))
        at = np.meshgrid(*(np.linspace(0, cells, n) for n in shape), indexing="ij")
        total += weight * ndimage.map_coordinates(coarse, at, order=1, mode="nearest")
        weight, cells = weight / decay, cells * 2
    return (total - total.min()) / max(float(np.ptp(total)), 1e-12)


def _box(size: int, to: int) -> np.ndarray:
    """Each of `to` cells is the mean of the pixels under it."""
    edges = np.arange(to + 1)[:, None] * size / to
    covered = np.clip(edges[1:] - np.arange(size), 0, 1) - np.clip(edges[:-1] - np.arange(size), 0, 1)
    return covered / covered.sum(axis=1, keepdims=True)


def _to_hsv(x: Image) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    value, low = x.max(axis=2), x.min(axis=2)
    span = value - low
    safe = np.where(span > 0, span, 1.0)
    r, g, b = (x[..., c] for c in range(3))
    sector = np.where(value == r, (g - b) / safe % 6, np.where(value == g, (b - r) / safe + 2, (r - g) / safe + 4))
    return sector, np.where(value > 0, span / np.where(value > 0, value, 1.0), 0.0), value


def _from_hsv(sector: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> Image:
    def channel(n: int) -> np.ndarray:
        k = (n + sector) % 6
        return value * (1 - saturation * np.clip(np.minimum(k, 4 - k), 0, 1))

    return np.stack([channel(5), channel(3), channel(1)], axis=-1)
