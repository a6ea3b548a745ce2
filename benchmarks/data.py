"""Real embeddings where they are at hand."""

from collections.abc import Iterable
from functools import cache

import numpy as np
from ghofl_benchmarks.data import data_folder

CLASSES = {"cifar10": 10, "cifar100": 100}
FOLDER = data_folder()


def is_there() -> bool:
    return all((FOLDER / "embeddings" / f"{name}-mobilenetv2.npz").is_file() for name in CLASSES)


@cache
def embeddings(name: str) -> dict[str, np.ndarray]:
    """Training and test embeddings of CIFAR by MobileNetV2; the file stores 100 times their square roots as bytes."""
    with np.load(FOLDER / "embeddings" / f"{name}-mobilenetv2.npz") as stored:
        arrays = {key: stored[key] for key in stored.files}
    for key in ("x_train", "x_test"):
        arrays[key] = (arrays[key] / np.float32(100)) ** 2
    for key in ("y_train", "y_test"):
        arrays[key] = arrays[key].astype(np.int64)
    return arrays


def paper_bytes(statistic: str, classes: int, dim: int) -> int:
    """What the paper's float32 message has: counts, sums and D, triangular B, or triangular S."""
    second = {"": 0, "D": classes * dim, "B": dim * (dim + 1) // 2, "S": classes * dim * (dim + 1) // 2}
    return 4 * (classes + classes * dim + second[statistic])


def collected(rows: Iterable[dict]) -> list[dict]:
    """Rows of results, printed as they come."""
    found = []
    for row in rows:
        print(row, flush=True)
        found.append(row)
    return found
