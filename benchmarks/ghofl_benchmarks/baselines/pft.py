"""FedPFT (Beitollahi et al. 2024): clients send a Gaussian mixture per class; the server samples and trains a head.

Three kinds of covariance: one variance per component (spherical), one per feature (diagonal), or a matrix (full). A
mixture of k components in d dimensions has k(1 + d) numbers for weights and means and k, kd or kd(d + 1)/2 for
covariances. The server draws as many rows per client and class as the client had, which counts tell it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.special
from jaxtyping import Float64

from ghofl_benchmarks.baselines.closed import Client
from ghofl_benchmarks.baselines.linear import Fit, LinearHead, train_head

Kind = Literal["spherical", "diagonal", "full"]
FLOOR = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Weights, means and covariances: shape (k,), (k, dim) or (k, dim, dim) by kind."""

    kind: Kind
    weights: Float64[np.ndarray, " k"]
    means: Float64[np.ndarray, "k dim"]
    covariances: Float64[np.ndarray, "k *shape"]

    @property
    def entries(self) -> int:
        """How many numbers are sent; a matrix is sent as its triangle."""
        k, dim = self.means.shape
        shape = {"spherical": 1, "diagonal": dim, "full": dim * (dim + 1) // 2}[self.kind]
        return k * (1 + dim + shape)

    def sample(self, count: int, rng: np.random.Generator) -> Float64[np.ndarray, "count dim"]:
        """Rows drawn from the mixture."""
        which = rng.choice(len(self.weights), size=count, p=self.weights)
        noise = rng.standard_normal((count, self.means.shape[1]))
        if self.kind == "spherical":
            return self.means[which] + noise * np.sqrt(self.covariances[which])[:, None]
        if self.kind == "diagonal":
            return self.means[which] + noise * np.sqrt(self.covariances[which])
        out = np.empty_like(noise)
        for j in range(len(self.weights)):
            lower = np.linalg.cholesky(self.covariances[j])
            out[which == j] = self.means[j] + noise[which == j] @ lower.T
        return out


def fit_mixture(x: np.ndarray, kind: Kind, components: int, rng: np.random.Generator, iterations: int = 10) -> Mixture:
    """Expectation-maximisation from spread-out rows; no more components than a fourth of the rows."""
    x = np.asarray(x, np.float64)
    k = max(1, min(components, len(x) // 4))
    share = np.eye(k)[_nearest(x, x[_spread(x, k, rng)])]
    mixture = _maximised(x, share, kind)
    for _ in range(iterations if k > 1 else 0):
        mixture = _maximised(x, _expected(x, mixture), kind)
    return mixture


def fedpft(
    clients: Sequence[Client], classes: int, rng: np.random.Generator, kind: Kind = "diagonal", components: int = 10,
    fit: Fit = Fit(),  # noqa: B008
) -> tuple[LinearHead, int]:  # fmt: skip
    """The head that the server trains on samples, and the mean number of bytes that a client sends in float32."""
    rows, labels, entries = [], [], 0
    for x, y in clients:
        for c in np.unique(y):
            own = x[y == c]
            mixture = fit_mixture(own, kind, components, rng)
            entries += mixture.entries + 1
            rows.append(mixture.sample(len(own), rng).astype(np.float32))
            labels.append(np.full(len(own), c))
    head = train_head(np.concatenate(rows), np.concatenate(labels), classes, rng, fit)
    return head, 4 * entries // max(1, len(clients))


def _spread(x: np.ndarray, k: int, rng: np.random.Generator) -> list[int]:
    """Rows far from each other, each with a chance by its squared distance to those before (k-means++)."""
    chosen = [int(rng.integers(len(x)))]
    near = np.square(x - x[chosen[0]]).sum(axis=1)
    while len(chosen) < k:
        total = near.sum()
        chosen.append(int(rng.choice(len(x), p=near / total)) if total > 0 else int(rng.integers(len(x))))
        near = np.minimum(near, np.square(x - x[chosen[-1]]).sum(axis=1))
    return chosen


def _nearest(x: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return (np.square(centres).sum(axis=1) - 2.0 * x @ centres.T).argmin(axis=1)


def _maximised(x: np.ndarray, share: np.ndarray, kind: Kind) -> Mixture:
    n = share.sum(axis=0) + 1e-10
    means = share.T @ x / n[:, None]
    if kind == "full":
        covariances = np.empty((len(n), x.shape[1], x.shape[1]))
        for j, mean in enumerate(means):
            apart = x - mean
            covariances[j] = (share[:, j, None] * apart).T @ apart / n[j]
            covariances[j] += max(FLOOR, 1e-3 * np.trace(covariances[j]) / x.shape[1]) * np.eye(x.shape[1])
    else:
        covariances = np.maximum(share.T @ np.square(x) / n[:, None] - np.square(means), 0.0) + FLOOR
        covariances = covariances.mean(axis=1) if kind == "spherical" else covariances
    return Mixture(kind, n / n.sum(), means, covariances)


def _expected(x: np.ndarray, mixture: Mixture) -> np.ndarray:
    """The share that each component has in each row."""
    k, dim = mixture.means.shape
    if mixture.kind == "full":
        logs = np.empty((len(x), k))
        for j in range(k):
            lower = np.linalg.cholesky(mixture.covariances[j])
            white = np.linalg.solve(lower, (x - mixture.means[j]).T)
            logs[:, j] = -0.5 * np.square(white).sum(axis=0) - np.log(lower.diagonal()).sum()
    else:
        v = mixture.covariances if mixture.kind == "diagonal" else np.repeat(mixture.covariances[:, None], dim, axis=1)
        logs = -0.5 * (np.square(x) @ (1 / v).T - 2 * x @ (mixture.means / v).T)
        logs -= 0.5 * ((np.square(mixture.means) / v).sum(axis=1) + np.log(v).sum(axis=1))
    return scipy.special.softmax(logs + np.log(mixture.weights), axis=1)
