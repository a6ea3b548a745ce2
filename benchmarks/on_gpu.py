"""The library's moments and quadratic heads with their matrix products on a GPU, for sets of which a CPU takes minutes.

Moments are sums of products of small integers, which float64 holds exactly below 2^53: these are the library's own to
the bit. Heads are the library's; `faster` only lends them a GPU for their triangular products and Cholesky factors.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from unittest import mock

import numpy as np
import torch

from ghofl.features import Features
from ghofl.gaussians import linalg
from ghofl.heads.rules import quadratic
from ghofl.moments import Layout, Moments

BLOCK = 2048


def features_of(features: Features, x: np.ndarray) -> np.ndarray:
    """`Features.rows`, a block per thread."""
    with ThreadPoolExecutor(16) as pool:
        return np.concatenate(list(pool.map(lambda i: features.rows(x[i : i + BLOCK])[0], range(0, len(x), BLOCK))))


def moments_of(q: np.ndarray, y: np.ndarray, layout: Layout, device: str) -> Moments:
    """The moments of integer rows; layouts of N, A, B, S and a kept Z."""
    blocks = {name: np.zeros(shape, dtype=np.int64) for name, shape in layout.shapes.items()}
    unknown = set(blocks) - {"N", "A", "B", "S", "Z"}
    assert not unknown, f"{unknown} are not made here"
    assert float(np.abs(q).max()) ** 2 * len(q) < 2**53
    order = np.argsort(y, kind="stable")
    rows, starts = torch.from_numpy(q[order]).to(device), np.searchsorted(y[order], np.arange(layout.classes + 1))
    blocks["N"] += np.diff(starts)
    for c in range(layout.classes):
        own = rows[starts[c] : starts[c + 1]].double()
        blocks["A"][c] = own.sum(0).long().cpu().numpy()
        for name, width in (("S", layout.dim), ("Z", layout.sketch)):
            if name in blocks and len(own):
                blocks[name][c] = _triangle(own[:, :width].T @ own[:, :width])
    if "B" in blocks:
        total = torch.zeros(layout.dim, layout.dim, dtype=torch.float64, device=device)
        for part in rows.split(8192):
            total += part.double().T @ part.double()
        blocks["B"] += _triangle(total)
    return Moments(layout, blocks)


def _triangle(full: torch.Tensor) -> np.ndarray:
    i, j = torch.triu_indices(len(full), len(full), device=full.device)
    return full[i, j].long().cpu().numpy()


@contextmanager
def faster(device: str) -> Iterator[None]:
    """Within it quadratic heads use the device; their formulas and precision stay."""

    def whitener(sigma: np.ndarray, what: str) -> tuple[np.ndarray, float]:
        lower = torch.linalg.cholesky(torch.from_numpy(sigma).to(device))
        eye = torch.eye(len(lower), dtype=lower.dtype, device=device)
        inverse = torch.linalg.solve_triangular(lower, eye, upper=False)
        return inverse.T.cpu().numpy().copy(), 2.0 * float(lower.diagonal().log().sum())

    def squared_lengths(x: np.ndarray, upper: np.ndarray) -> np.ndarray:
        z = torch.from_numpy(x).to(device) @ torch.from_numpy(upper).to(device)
        return (z * z).sum(1).cpu().numpy()

    with (
        mock.patch.object(linalg, "whitener", whitener),
        mock.patch.object(quadratic, "_squared_lengths", squared_lengths),
        mock.patch.object(quadratic, "ROWS", 1 << 20),
    ):
        yield
