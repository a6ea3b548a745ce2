"""Images as arrays of bytes on a device, from folders of .npy pieces or of image files; and label-skewed splits.

Only numpy and torch are needed here, for machines where `ghofl` is not installed.
"""

from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ghofl_benchmarks.baselines.local import Look


class PixelsError(ValueError):
    """Pixels or labels that are missing or do not fit together."""


def read_pixels(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 3, height, width) and labels of a split, from whichever of these a folder holds.

    Pieces `x_SPLIT*.npy` in the order of names with `y_SPLIT*.npy`; archives `*.npz` with `x_SPLIT` and `y_SPLIT`; or
    archives with compressed montages (`blob`, `lengths`, `labels`, `is_test`), read in the order of names.
    """
    if not folder.is_dir():
        raise PixelsError(
            f"{folder} is not a folder; it should hold x_train*.npy, y_train.npy, x_test*.npy, y_test.npy."
        )
    if packs := [path for path in sorted(folder.glob("*.npz")) if _has(path, "blob")]:
        return _unpacked(packs, split == "test")
    if whole := [path for path in sorted(folder.glob("*.npz")) if _has(path, f"x_{split}")]:
        with np.load(whole[0]) as stored:
            return as_planes(stored[f"x_{split}"], whole[0]), stored[f"y_{split}"].astype(np.int64)
    pieces = {axis: sorted(folder.glob(f"{axis}_{split}*.npy")) for axis in "xy"}
    for axis, found in pieces.items():
        if not found:
            raise PixelsError(f"{folder} has no {axis}_{split}*.npy; put the pieces of the {split} split there.")
    x = np.concatenate([as_planes(np.load(path, mmap_mode="r"), path) for path in pieces["x"]])
    y = np.concatenate([np.load(path) for path in pieces["y"]]).astype(np.int64)
    if len(x) != len(y):
        raise PixelsError(f"{folder} has {len(x)} images and {len(y)} labels of {split}; a piece is missing.")
    return x, y


def _has(path: Path, key: str) -> bool:
    with np.load(path) as stored:
        return key in stored.files


def _unpacked(packs: list[Path], is_test: bool, tile: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """The training or the test images of some archives, with their labels."""
    x, y = [], []
    for path in packs:
        images, labels, test = _pack(path, tile)
        x.append(images[test == is_test])
        y.append(labels[test == is_test].astype(np.int64))
    x, y = np.concatenate(x), np.concatenate(y)
    if not len(x):
        raise PixelsError(f"{', '.join(p.name for p in packs)} hold no {'test' if is_test else 'training'} images.")
    return x, y


@cache  # both splits come from the same archives, and decoding takes seconds
def _pack(path: Path, tile: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tiles of the montages of one archive, row by row; their labels, and whether each is a test image."""
    from PIL import Image

    with np.load(path) as stored:
        blob, lengths, labels, test = (stored[key] for key in ("blob", "lengths", "labels", "is_test"))
    tiles = []
    for montage in np.split(blob, np.cumsum(lengths)[:-1]):
        pixels = np.asarray(Image.open(BytesIO(montage.tobytes())).convert("RGB"))
        grid = pixels.reshape(pixels.shape[0] // tile, tile, pixels.shape[1] // tile, tile, 3)
        tiles.append(grid.transpose(0, 2, 4, 1, 3).reshape(-1, 3, tile, tile))
    images = np.concatenate(tiles)[: len(labels)]
    if len(images) < len(labels):
        raise PixelsError(f"{path} has {len(images)} tiles and {len(labels)} labels; it is damaged.")
    return images, labels, test


def as_planes(images: np.ndarray, path: Path) -> np.ndarray:
    """Images as (n, 3, height, width), from that, from (n, height, width, 3), or from rows of 3 × 32 × 32 planes."""
    if images.dtype != np.uint8:
        raise PixelsError(f"{path} holds {images.dtype}; pixels are uint8.")
    if images.ndim == 2 and images.shape[1] == 3072:
        return np.asarray(images).reshape(-1, 3, 32, 32)
    if images.ndim == 4 and images.shape[1] == 3:
        return np.asarray(images)
    if images.ndim == 4 and images.shape[3] == 3:
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    raise PixelsError(f"{path} has shape {images.shape}; expected (n, 3, h, w), (n, h, w, 3) or (n, 3072).")


def read_folder(folder: Path, size: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """The images under FOLDER/CLASS/*.png, all of one size, with the numbers of their classes in sorted order."""
    from PIL import Image

    if not folder.is_dir():
        raise PixelsError(f"{folder} is not a folder of images by class.")
    x, y = [], []
    for number, name in enumerate(sorted(path.name for path in folder.iterdir() if path.is_dir())):
        for path in sorted((folder / name).glob("*.png")):
            with Image.open(path) as image:
                x.append(np.asarray(image.convert("RGB").resize((size, size))).transpose(2, 0, 1))
            y.append(number)
    if not x:
        raise PixelsError(f"{folder} has no CLASS/*.png.")
    return np.stack(x), np.array(y)


def look_at(pixels: np.ndarray, labels: np.ndarray, device: torch.device) -> Look:
    """A `Look` at images that stay on the device as bytes."""
    x, y = torch.from_numpy(pixels).to(device), torch.from_numpy(labels).to(device)

    def look(rows: Tensor) -> tuple[Tensor, Tensor]:
        return x[rows].float().div_(255.0), y[rows]

    return look


def dirichlet_rows(labels: np.ndarray, clients: int, alpha: float, seed: int) -> list[np.ndarray]:
    """The split of `ghofl.simulation.partition.dirichlet_by_class`, row by row; a test holds both together."""
    rng = np.random.default_rng(seed)
    owner = np.empty(len(labels), dtype=np.int64)
    for c in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == c))
        shares = rng.dirichlet(np.full(clients, alpha))
        if not (np.isfinite(shares).all() and shares.sum() > 0):
            shares = np.eye(clients)[rng.integers(clients)]
        cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        owner[rows] = np.repeat(np.arange(clients), np.diff(cuts, prepend=0, append=len(rows)))
    return [np.flatnonzero(owner == client) for client in range(clients)]
