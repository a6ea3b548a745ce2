"""Synthetic rows: labelled draws from the Gaussians that the moments describe.

::

    z = μ_c + τ L_c e      L_c L_cᵀ = shrink(Σ_c, a)      e ~ N(0, I)

Σ_c is the class covariance where the total has S, the shared one where it has only B, and diagonal with only D.
"""

from dataclasses import dataclass, field

import numpy as np
import scipy

from ghofl.errors import HeadError
from ghofl.gaussians import linalg
from ghofl.gaussians.gaussians import Gaussians
from ghofl.shapes import Float, Float32, Int64

TOGETHER = 256  # rows of several classes that are mixed by one product, where all share a covariance
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
    by_prior: bool = False,
) -> Draws:
    """Labelled rows from every class that has rows: `per_class` each, or with `by_prior` that many on average.

    `method` is how e is drawn: ``plain``; ``matched``, shifted and mixed so that mean and covariance of each class's
    draws are exactly those asked for, which takes more draws than dimensions; ``quasi``, a scrambled Sobol sequence.

    Guarantees
    ----------
    A function of the Gaussians and the generator alone. A class without rows gets no rows.

    Examples
    --------
    >>> gaussians = Gaussians(np.array([5.0, 5.0]), np.array([[0.0], [9.0]]), np.array([[1.0]]))
    >>> drawn = draw(gaussians, 4, np.random.default_rng(0))
    >>> np.bincount(drawn.y), bool(drawn.z[drawn.y == 1].min() > 4)
    (array([4, 4]), True)
    """
    if method not in METHODS:
        raise HeadError(f"method is {method!r}; give one of {', '.join(METHODS)}.")
    if per_class < 1 or not dispersion > 0:
        raise HeadError(f"per_class is {per_class} and dispersion {dispersion}; both must be positive.")
    present = np.flatnonzero(gaussians.counts)
    shares = gaussians.counts[present] / gaussians.rows * len(present) if by_prior else np.ones(len(present))
    counts, dim = np.maximum(1, np.rint(per_class * shares).astype(int)), gaussians.means.shape[1]
    if method == "matched" and counts.min(initial=dim + 1) <= dim:
        raise HeadError(
            f"method 'matched' needs more draws per class than there are dimensions, and there are {counts.min():,} for {dim:,}; "
            "draw more (per_class), or write method=plain."
        )
    places = np.split(rng.permutation(counts.sum()), np.cumsum(counts)[:-1])
    z, y = np.empty((counts.sum(), dim), dtype=np.float32), np.empty(counts.sum(), dtype=np.int64)
    has_own = gaussians.has_class_covariances
    factor = None if has_own else dispersion * gaussians.factor(shrinkage)
    at_once = 1 if has_own or method != "plain" else max(1, TOGETHER // per_class)
    for start in range(0, len(present), at_once):
        c, place = int(present[start]), np.concatenate(places[start : start + at_once])
        if factor is None or has_own:
            factor = dispersion * _factor(linalg.shrink(gaussians.by_class(c), shrinkage), c)
        y[place] = np.repeat(present[start : start + at_once], counts[start : start + at_once])
        z[place] = _rows(len(place), factor, rng, method) + gaussians.means[y[place]].astype(np.float32)
    return Draws(z, y)


def _factor(covariance: Float[np.ndarray, "dim dim"], c: int) -> Float[np.ndarray, "dim dim"]:
    # numpy's, like the products around it: threads of scipy's BLAS and of numpy's would slow each other down.
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return linalg.cholesky(covariance, f"the covariance of class {c}")


def _rows(
    count: int, factor: Float[np.ndarray, "dim dim"], rng: np.random.Generator, method: str
) -> Float32[np.ndarray, "count dim"]:
    """Draws around zero: normal rows e times Lᵀ. Matching e to mean 0 and covariance I changes the factor Lᵀ."""
    e, mixing = _normal(count, len(factor), rng, method), factor.T
    if method == "matched":
        e -= e.mean(axis=0)
        lower = np.linalg.cholesky((e.T @ e / np.float32(count)).astype(np.float64))
        mixing = np.linalg.solve(lower.T, mixing)
    return e @ mixing.astype(np.float32)


def _normal(count: int, dim: int, rng: np.random.Generator, method: str) -> Float32[np.ndarray, "count dim"]:
    if method != "quasi":
        return rng.standard_normal((count, dim), dtype=np.float32)
    from scipy.stats import qmc  # takes 44 MB and a third of a second, so only when needed

    engine = qmc.Sobol(dim, rng=rng)
    # Powers of two keep the sequence balanced; points beyond `count` are dropped.
    points = engine.random_base2(max(0, int(np.ceil(np.log2(count)))))[:count]
    return scipy.special.ndtri(np.clip(points, 1e-9, 1 - 1e-9)).astype(np.float32)
