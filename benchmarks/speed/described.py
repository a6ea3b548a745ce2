"""The algorithms of the paper as loops, rewritten from its equations and from the settings that were released with it.

They are references for speed, so they do what such a description leads to first: one batch after another, one class
after another, one row after another, in floats. Tests hold them against ours on small rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

BATCH = 256  # rows of one pass of the encoder
EPSILON = 1e-6


class Sums(NamedTuple):
    """N, A, B, S and D of the paper's first equation."""

    n: np.ndarray
    a: np.ndarray
    b: np.ndarray
    s: np.ndarray
    d: np.ndarray


def client_statistics(x: np.ndarray, y: np.ndarray, classes: int) -> Sums:
    """What a client sends: every batch is added to B, and its rows of each class to N, A, S and D of that class."""
    dim = x.shape[1]
    n, a, d = np.zeros(classes), np.zeros((classes, dim), np.float32), np.zeros((classes, dim), np.float32)
    b, s = np.zeros((dim, dim), np.float32), np.zeros((classes, dim, dim), np.float32)
    for start in range(0, len(x), BATCH):
        rows, labels = x[start : start + BATCH], y[start : start + BATCH]
        b += rows.T @ rows
        for c in np.unique(labels):
            own = rows[labels == c]
            n[c] += len(own)
            a[c] += own.sum(axis=0)
            d[c] += (own * own).sum(axis=0)
            s[c] += own.T @ own
    return Sums(n, a, b, s, d)


def shrink(sigma: np.ndarray, amount: float) -> np.ndarray:
    """(1 − α) Σ + α (tr Σ / d) I."""
    return (1 - amount) * sigma + amount * np.trace(sigma) / len(sigma) * np.eye(len(sigma))


def pooled_covariance(sums: Sums) -> np.ndarray:
    """(B − Σ_c N_c μ_c μ_cᵀ) / (N − C)."""
    scatter = sums.b.astype(np.float64)
    for n, a in zip(sums.n, sums.a, strict=True):
        scatter = scatter - np.outer(a, a) / n
    return scatter / (sums.n.sum() - len(sums.n))


def class_covariance(sums: Sums, c: int) -> np.ndarray:
    """(S_c − N_c μ_c μ_cᵀ) / (N_c − 1)."""
    return (sums.s[c] - np.outer(sums.a[c], sums.a[c]) / sums.n[c]).astype(np.float64) / (sums.n[c] - 1)


def naive_bayes(sums: Sums) -> Callable[[np.ndarray], np.ndarray]:
    """Scores of one variance per class and feature, D_c / N_c − μ_c²."""
    means, priors = sums.a / sums.n[:, None], np.log(sums.n / sums.n.sum())
    variances = np.maximum(sums.d / sums.n[:, None] - means**2, EPSILON)

    def scores(x: np.ndarray) -> np.ndarray:
        columns = []
        for mean, variance, prior in zip(means, variances, priors, strict=True):
            columns.append(prior - 0.5 * (np.log(variance) + (x - mean) ** 2 / variance).sum(axis=1))
        return np.stack(columns, axis=1)

    return scores


def lda(sums: Sums, shrinkage: float = 0.05) -> Callable[[np.ndarray], np.ndarray]:
    """Scores with w_c = Σ⁻¹ μ_c of the shrunk shared covariance, class by class."""
    inverse = np.linalg.inv(shrink(pooled_covariance(sums), shrinkage))
    means, priors = sums.a / sums.n[:, None], np.log(sums.n / sums.n.sum())
    weights = [inverse @ mean for mean in means]

    def scores(x: np.ndarray) -> np.ndarray:
        columns = [x @ w - 0.5 * mean @ w + prior for mean, w, prior in zip(means, weights, priors, strict=True)]
        return np.stack(columns, axis=1)

    return scores


def qda(sums: Sums, shrinkage: float = 0.1) -> Callable[[np.ndarray], np.ndarray]:
    """Scores of a shrunk covariance per class: a solve per class and row."""
    means, priors = (sums.a / sums.n[:, None]).astype(np.float64), np.log(sums.n / sums.n.sum())
    factors = [np.linalg.cholesky(shrink(class_covariance(sums, c), shrinkage)) for c in range(len(means))]
    return lambda x: quadratic_scores(x, means, factors, priors)


def quadratic_scores(x: np.ndarray, means: np.ndarray, factors: list[np.ndarray], priors: np.ndarray) -> np.ndarray:
    """log π_c − ½ log|Σ_c| − ½ (x − μ_c)ᵀ Σ_c⁻¹ (x − μ_c), one row and class at a time, from Cholesky factors."""
    out = np.empty((len(x), len(means)))
    for i, row in enumerate(x):
        for c, (mean, factor) in enumerate(zip(means, factors, strict=True)):
            shifted = row - mean
            distance = shifted @ scipy.linalg.cho_solve((factor, True), shifted, check_finite=False)
            out[i, c] = priors[c] - np.log(factor.diagonal()).sum() - 0.5 * distance
    return out


@dataclass(frozen=True)
class Inside:
    """The Fisher space: its basis, and class means and covariances in it."""

    basis: np.ndarray
    means: np.ndarray
    covariances: list[np.ndarray]


def fisher(sums: Sums, energy: float = 0.995) -> Inside:
    """S_B v = λ S_W v, solved through S_W^(−1/2); the directions that hold `energy` of the λ."""
    means, within = sums.a / sums.n[:, None], shrink(pooled_covariance(sums), 0.05)
    apart = (means - sums.a.sum(axis=0) / sums.n.sum()) * np.sqrt(sums.n / sums.n.sum())[:, None]
    values, vectors = np.linalg.eigh(within + EPSILON * np.eye(len(within)))
    half = vectors / np.sqrt(values) @ vectors.T
    ratios, directions = np.linalg.eigh(half @ (apart.T @ apart) @ half)
    ratios, directions = np.maximum(ratios[::-1], 0), directions[:, ::-1]
    kept = min(int(np.searchsorted(np.cumsum(ratios) / ratios.sum(), energy)) + 1, len(means) - 1)
    basis = half @ directions[:, :kept]
    covariances = [basis.T @ shrink(class_covariance(sums, c), 0.05) @ basis for c in range(len(means))]
    return Inside(basis, means @ basis, covariances)


def synthesise(inside: Inside, per_class: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """z ~ N(μ_c, τ² Σ_c) with τ = 0.9, as many rows of every class."""
    rows = []
    for mean, covariance in zip(inside.means, inside.covariances, strict=True):
        factor = 0.9 * np.linalg.cholesky(covariance)
        rows.append(mean + rng.normal(size=(per_class, len(mean))) @ factor.T)
    return np.concatenate(rows).astype(np.float32), np.repeat(np.arange(len(rows)), per_class)


def train_fisher_mix(sums: Sums, epochs: int, per_class: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """FisherMix with the released settings; weights and bias in the space of x."""
    import torch

    torch.manual_seed(seed)
    inside = fisher(sums, 1.0)
    layer = torch.nn.Linear(inside.means.shape[1], len(inside.means))
    loss = torch.nn.CrossEntropyLoss()
    optimiser = torch.optim.AdamW(layer.parameters(), lr=8e-4, weight_decay=3e-4)
    _train(
        synthesise(inside, per_class, np.random.default_rng(seed)),
        2048,
        epochs,
        optimiser,
        lambda z, y: loss(layer(z), y),
    )
    return layer.weight.detach().numpy() @ inside.basis.T, layer.bias.detach().numpy()


def train_proto_hyper(sums: Sums, epochs: int, per_class: int = 4000, rank: int = 16, seed: int = 0) -> Any:
    """Proto-Hyper as the paper's text has it: a diagonal base, a teacher of LDA and QDA, a residual of low rank.

    Gives the scores of torch rows in the Fisher space, and its basis.
    """
    import torch
    from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

    torch.manual_seed(seed)
    inside = fisher(sums, 1.0)
    classes, k = inside.means.shape
    base, linear, quadratic = (_torch_scores(inside, sums.n, kind) for kind in ("nb", "lda", "qda"))
    inward, outward = torch.nn.Linear(k, rank, bias=False), torch.nn.Linear(rank, classes, bias=False)
    torch.nn.init.zeros_(outward.weight)
    optimiser = torch.optim.AdamW([*inward.parameters(), *outward.parameters()], lr=1e-3, weight_decay=5e-4)

    def student(z: Any) -> Any:
        return base(z) + outward(inward(z))

    def loss(z: Any, y: Any, temperature: float = 4.0, alpha: float = 0.4) -> Any:
        with torch.no_grad():
            taught = softmax((0.7 * linear(z) + 0.3 * quadratic(z)) / temperature, dim=1)
        scores = student(z)
        distance = kl_div(log_softmax(scores / temperature, dim=1), taught, reduction="batchmean")
        return alpha * temperature**2 * distance + (1 - alpha) * cross_entropy(scores, y)

    _train(synthesise(inside, per_class, np.random.default_rng(seed)), 1024, epochs, optimiser, loss)
    return student, inside.basis


def _torch_scores(inside: Inside, counts: np.ndarray, kind: str) -> Callable[[Any], Any]:
    """The scores of a Gaussian head in the Fisher space, class by class."""
    import torch

    shared = np.einsum("c,cij->ij", counts / counts.sum(), np.stack(inside.covariances))
    own = {"nb": lambda s: np.diag(s.diagonal()), "lda": lambda _: shared, "qda": lambda s: s}[kind]
    parts = []
    for mean, covariance, n in zip(inside.means, inside.covariances, counts, strict=True):
        used = own(covariance)
        offset = float(np.log(n / counts.sum()) - 0.5 * np.linalg.slogdet(used)[1])
        parts.append((*(torch.from_numpy(m.astype(np.float32)) for m in (mean, np.linalg.inv(used))), offset))

    def scores(z: Any) -> Any:
        columns = []
        for mean, inverse, offset in parts:
            shifted = z - mean
            columns.append(offset - 0.5 * ((shifted @ inverse) * shifted).sum(dim=1))
        return torch.stack(columns, dim=1)

    return scores


def _train(drawn: tuple[np.ndarray, np.ndarray], batch: int, epochs: int, optimiser: Any, loss: Callable) -> None:
    """The usual loop: shuffled batches of a DataLoader, a loss, its gradient, a step."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(*map(torch.from_numpy, drawn)), batch, shuffle=True)
    for _ in range(epochs):
        for z, y in loader:
            optimiser.zero_grad()
            loss(z, y).backward()
            optimiser.step()
