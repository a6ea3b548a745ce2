"""How a head of few rows does on new rows: an estimate of the Gaussians behind a total, and totals redrawn from it.

Means of few rows lie too far apart: each carries noise Σ/N_c. With Σ = L Lᵀ and M = L⁻¹ [√N_c (μ_c − m)]_c = U s Qᵀ,
every squared singular value contains about t = tr(L⁻¹ Σ_pool L⁻ᵀ) from noise, the mean of pure noise, so s is reduced to
√max(s² − t, 0). A head fitted on rows redrawn from that estimate makes errors as the real one does.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy

from ghofl.gaussians import linalg
from ghofl.gaussians.covariances import ClassCovariances
from ghofl.gaussians.gaussians import Gaussians, Sketched
from ghofl.gaussians.sums import Sums
from ghofl.gaussians.synthesis import draw
from ghofl.shapes import Float, Float32, Int64


def denoise(gaussians: Gaussians, own: bool = False) -> Gaussians:
    """The Gaussians with one covariance for all classes, shrunk, and means without the noise of few rows.

    With `own`, every class has a blend: d/(d + N_c) of that covariance, and the rest of its own.
    """
    return gaussians.keep(f"denoised {own}", lambda: _denoise(gaussians, own))


def _denoise(gaussians: Gaussians, own: bool) -> Gaussians:
    amount = max(gaussians.oas, 0.01)
    sigma, lower = linalg.shrink(gaussians.pooled(), amount), gaussians.factor(amount)
    counts, centre = gaussians.counts, gaussians.centre
    apart = (gaussians.means - centre) * np.sqrt(counts)[:, None]
    u, s, q = np.linalg.svd(
        scipy.linalg.solve_triangular(lower, apart.T, lower=True, check_finite=False), full_matrices=False
    )
    # With Σ = (1−a) Σ_pool + a v I, tr(L⁻¹ Σ_pool L⁻ᵀ) = (d − a v tr Σ⁻¹)/(1−a).
    level = float(np.trace(sigma)) / len(sigma)
    if amount < 1:
        noise = (len(sigma) - amount * level * float(np.trace(linalg.inverse(lower)))) / (1.0 - amount)
    else:
        noise = float(len(sigma))
    kept = np.sqrt(np.maximum(s**2 - noise, 0.0))
    shifts = (lower @ (u * kept) @ q).T / np.sqrt(np.maximum(counts, 1.0))[:, None]
    return Gaussians(counts, centre + shifts, sigma, covariances=_blended(gaussians, sigma) if own else None)


def redraw(truth: Gaussians, like: Gaussians, rng: np.random.Generator) -> Gaussians:
    """The Gaussians of as many rows per class as `like` has, drawn from the truth, with the statistics `like` has."""
    counts = np.maximum(np.rint(like.counts), like.counts > 0).astype(np.int64)
    rows, y = _rows(truth, counts, rng)
    sketch = None
    if like.sketch is not None:
        matrix, of_z = like.sketch.matrix, rows @ like.sketch.matrix.astype(np.float32)
        inner = like.sketch.gaussians
        sketch = Sketched(matrix, lambda: _estimated(of_z, y, counts, inner, None))
    return _estimated(rows, y, counts, like, sketch)


def resample(truth: Gaussians, rng: np.random.Generator) -> Gaussians:
    """The Gaussians of as many rows per class drawn from the truth with its shared covariance, without the rows.

    Means are μ_c + L e/√N_c, and the shared covariance is L E Eᵀ Lᵀ/n with n = N − C₊ (a Wishart matrix): E has n columns
    of normal numbers or, from n = d on, Bartlett's triangle, which has the same distribution.
    """
    lower, counts = truth.factor(0.0), np.maximum(truth.counts, 1.0)
    dim, degrees = len(lower), max(1, round(truth.rows - truth.present))
    noise = rng.standard_normal((dim, min(dim, degrees)))
    if degrees >= dim:
        noise = np.tril(noise, -1)
        np.fill_diagonal(noise, np.sqrt(rng.chisquare(degrees - np.arange(dim))))
    root, shifts = lower @ noise, rng.standard_normal(truth.means.shape) @ lower.T
    return Gaussians(truth.counts, truth.means + shifts / np.sqrt(counts)[:, None], root @ root.T / degrees)


@dataclass(frozen=True, eq=False)
class Blended(ClassCovariances):
    """Class covariances, each with a share of another covariance."""

    source: ClassCovariances
    shares: Float[np.ndarray, " classes"]
    other: Float[np.ndarray, "dim dim"]

    def matrix(self, c: int) -> Float[np.ndarray, "dim dim"]:
        return (1.0 - self.shares[c]) * self.source.matrix(c) + self.shares[c] * self.other


def _blended(gaussians: Gaussians, sigma: Float[np.ndarray, "dim dim"]) -> Blended:
    assert gaussians.covariances is not None, "asked for where classes have covariances"
    return Blended(gaussians.covariances, len(sigma) / (len(sigma) + gaussians.counts), sigma)


@dataclass(frozen=True, eq=False)
class OfRows(ClassCovariances):
    """Class covariances of rows at hand; a class of fewer than two takes the shared one."""

    rows: Float32[np.ndarray, "n dim"]
    y: Int64[np.ndarray, " n"]
    shared: Float[np.ndarray, "dim dim"]

    def matrix(self, c: int) -> Float[np.ndarray, "dim dim"]:
        own = self.rows[self.y == c]
        return self.shared if len(own) < 2 else np.atleast_2d(np.cov(own.astype(np.float64), rowvar=False))


def _rows(truth: Gaussians, counts: Int64[np.ndarray, " classes"], rng: np.random.Generator) -> tuple:
    parts = Gaussians(counts.astype(np.float64), truth.means, truth.shared, covariances=truth.covariances)
    largest = draw(parts, int(counts.max()), rng, dispersion=1.0, shrinkage=0.0)
    kept = np.concatenate([np.flatnonzero(largest.y == c)[:n] for c, n in enumerate(counts)])
    return largest.z[kept], largest.y[kept]


def _estimated(
    rows: Float32[np.ndarray, "n dim"],
    y: Int64[np.ndarray, " n"],
    counts: Int64[np.ndarray, " classes"],
    like: Gaussians,
    sketch: Sketched | None,
) -> Gaussians:
    hot = np.zeros((len(counts), len(y)))
    hot[y, np.arange(len(y))] = 1.0
    x = rows.astype(np.float64)
    squares = hot @ x**2 if like.own_variances is not None else None
    found = Gaussians.of_sums(
        Sums(counts.astype(np.float64), hot @ x, squares, x.T @ x if like.has_shared_covariance else None),
        sketch,
        like.smooth,
    )
    return replace(found, covariances=OfRows(rows, y, found.pooled())) if like.has_class_covariances else found
