"""Samples from nothing: labelled draws from the Gaussians that the moments describe.

::

    z = μ_c + τ L_c e      L_c L_cᵀ = shrink(Σ_c, a)      e ~ N(0, I)

Σ_c is the class covariance when S is there, the shared one when only B is, and diagonal when only D is.
"""

from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
import scipy.stats
from jaxtyping import Float, Float32, Int64

from ghofl import linalg
from ghofl.gaussians import Gaussians

METHODS = ("plain", "matched", "quasi")


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Synthetic rows and their class numbers, in random order."""

    z: Float32[np.ndarray, "n dim"] = field(repr=False)
    y: Int64[np.ndarray, " n"] = field(repr=False)


def draw(
    gaussians: Gaussians,
    per_class: int,
    rng: np.random.Generator,
    dispersion: float = 0.9,
    shrinkage: float = 0.05,
    method: str = "plain",
    clip: float | None = None,
    by_prior: bool = False,
) -> Draws:
    """Labelled rows from every class that has rows: `per_class` of each, or as many on average in the priors' shares.

    `method` is how e is drawn: ``plain``; ``matched``, shifted and mixed so that mean and covariance of each class's
    draws are exactly those asked for; ``quasi``, a scrambled Sobol sequence. `clip` limits |e|.

    Guarantees
    ----------
    A function of the Gaussians and the generator alone. A class nobody has gets no rows.

    Examples
    --------
    >>> gaussians = Gaussians(np.array([5.0, 5.0]), np.array([[0.0], [9.0]]), np.array([[1.0]]))
    >>> drawn = draw(gaussians, 4, np.random.default_rng(0))
    >>> np.bincount(drawn.y), bool(drawn.z[drawn.y == 1].min() > 4)
    (array([4, 4]), True)
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; write one of {', '.join(METHODS)}.")
    if per_class < 1 or not dispersion > 0:
        raise ValueError(f"{per_class} draws a class at dispersion {dispersion}; both must be positive.")
    present = np.flatnonzero(gaussians.counts)
    shares = gaussians.counts[present] / gaussians.rows * len(present) if by_prior else np.ones(len(present))
    counts = np.maximum(1, np.rint(per_class * shares).astype(int))
    dim = gaussians.means.shape[1]
    z, start, factor = np.empty((counts.sum(), dim), dtype=np.float32), 0, None
    for c, count in zip(present.tolist(), counts.tolist(), strict=True):
        e = _normal(count, dim, rng, method)
        if clip is not None:
            e = np.clip(e, -clip, clip)
        if factor is None or gaussians.has_class_covariances:  # a shared covariance is factored once
            covariance = linalg.shrink(covariance_of(gaussians, c), shrinkage)
            factor = linalg.cholesky(covariance, f"the covariance of class {c}")
        z[start : start + count] = gaussians.means[c] + dispersion * (e @ factor.T)
        start += count
    order = rng.permutation(len(z))
    return Draws(z[order], np.repeat(present, counts)[order].astype(np.int64))


def covariance_of(gaussians: Gaussians, c: int) -> Float[np.ndarray, "dim dim"]:
    """The finest covariance of a class that the moments tell."""
    if gaussians.has_class_covariances:
        return gaussians.by_class(c)
    return gaussians.pooled()


def _normal(count: int, dim: int, rng: np.random.Generator, method: str) -> Float[np.ndarray, "count dim"]:
    if method == "quasi":
        engine = scipy.stats.qmc.Sobol(dim, rng=rng)
        # Powers of two keep the sequence balanced; the rest of the last one is left out.
        points = engine.random_base2(max(0, int(np.ceil(np.log2(count)))))[:count]
        return scipy.stats.norm.ppf(np.clip(points, 1e-9, 1 - 1e-9))
    e = rng.standard_normal((count, dim))
    if method == "matched" and count > dim:
        e -= e.mean(axis=0)
        lower = np.linalg.cholesky(e.T @ e / count)
        e = scipy.linalg.solve_triangular(lower, e.T, lower=True, check_finite=False).T
    return e
