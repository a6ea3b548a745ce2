"""The Gaussians that a total describes: means, priors and covariances, in the units of the embedding.

With N = Σ N_c over the C₊ classes that have rows, and q = x/unit the integer features::

    μ_c = A_c / N_c       π_c = N_c / N       Σ_pool = (B − Σ N_c μ_c μ_cᵀ) / (N − C₊)
    Σ_c = (S_c − N_c μ_c μ_cᵀ) / (N_c − 1)    var_c = D_c / N_c − μ_c∘μ_c

Classes with few rows have a meaning, always the same one:

- a class nobody has: prior 0, so its score is −∞ and it is never predicted; its mean is the mean of all rows;
- a class with one row: its mean is that row, and the shared covariance (or variance) stands in for its own;
- fewer rows than dimensions: its covariance is singular as measured, and heads shrink it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float

from ghofl import linalg
from ghofl.errors import EmbeddingsError, MissingStatisticError
from ghofl.moments import Moments

ClassCovariance = Callable[[int], Float[np.ndarray, "dim dim"]]


@dataclass(frozen=True)
class Gaussians:
    """One Gaussian a class, as far as the moments tell; heads score with it and synthesis samples from it.

    A field that the moments do not determine is None, and asking for it through a method raises
    `MissingStatisticError` with the recipe that would have it.

    Guarantees
    ----------
    A function of the total alone: how rows were split over sites does not matter. Never NaN or infinite.

    Examples
    --------
    >>> from ghofl.moments import Layout
    >>> x, y = np.array([[0, 0], [2, 2], [4, 0], [6, 2]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("B",))))
    >>> gaussians.means
    array([[1., 1.], [5., 1.]])
    >>> gaussians.pooled()
    array([[2., 2.], [2., 2.]])
    """

    counts: Float[np.ndarray, " classes"]
    means: Float[np.ndarray, "classes dim"]
    _pooled: Float[np.ndarray, "dim dim"] | None = field(default=None, repr=False)
    _variances: Float[np.ndarray, "classes dim"] | None = field(default=None, repr=False)
    _by_class: ClassCovariance | None = field(default=None, repr=False)

    @classmethod
    def estimate(cls, moments: Moments, unit: float = 1.0) -> "Gaussians":
        """The Gaussians of a total whose integer features are worth `unit` each."""
        if moments.rows == 0:
            raise EmbeddingsError("the total holds no rows; a head needs at least one site with data.")
        counts = moments.counts.astype(np.float64)
        centre = moments.sums.sum(axis=0) / counts.sum()
        means = np.where(counts[:, None] > 0, moments.sums / np.maximum(counts, 1.0)[:, None], centre)
        pooled = _pooled(moments, counts, means) * unit**2 if moments.layout.has("B") else None
        variances = _variances(moments, counts, means) * unit**2 if moments.layout.has("D") else None
        by_class = _class_covariances(moments, counts, means, unit, pooled) if moments.layout.has("S") else None
        return cls(counts, means * unit, pooled, variances, by_class)

    def mapped(self, basis: Float[np.ndarray, "dim k"]) -> "Gaussians":
        """The Gaussians of z = basisᵀ x. Variances along new directions need S (or, with one for all, B)."""
        pooled = None if self._pooled is None else basis.T @ self._pooled @ basis
        by_class = None if self._by_class is None else (lambda c: basis.T @ self.by_class(c) @ basis)
        return Gaussians(self.counts, self.means @ basis, pooled, None, by_class)

    @property
    def rows(self) -> float:
        """N: how many rows there are in all."""
        return float(self.counts.sum())

    @property
    def present(self) -> int:
        """C₊: how many classes have rows."""
        return int(np.count_nonzero(self.counts))

    @cached_property
    def log_priors(self) -> Float[np.ndarray, " classes"]:
        """log π_c, −∞ for a class nobody has."""
        with np.errstate(divide="ignore"):
            return np.log(self.counts / self.rows)

    @cached_property
    def centre(self) -> Float[np.ndarray, " dim"]:
        """m: the mean of all rows."""
        return self.counts @ self.means / self.rows

    def pooled(self) -> Float[np.ndarray, "dim dim"]:
        """Σ_pool: the covariance within classes, shared by all of them."""
        return _there(self._pooled, "B", "the shared covariance")

    def between(self) -> Float[np.ndarray, "dim dim"]:
        """Σ π_c (μ_c − m)(μ_c − m)ᵀ: the covariance of the class means."""
        shifted = (self.means - self.centre) * np.sqrt(self.counts / self.rows)[:, None]
        return shifted.T @ shifted

    def total_covariance(self) -> Float[np.ndarray, "dim dim"]:
        """G / N: the covariance of all rows, whatever their class."""
        return self.pooled() * ((self.rows - self.present) / self.rows) + self.between()

    def oas(self) -> float:
        """The shrinkage of Σ_pool that is best for Gaussian rows (see `ghofl.linalg.oas`)."""
        within = self.pooled() * ((self.rows - self.present) / self.rows)
        return linalg.oas(within, self.rows)

    def by_class(self, c: int) -> Float[np.ndarray, "dim dim"]:
        """Σ_c: the covariance of one class."""
        return _there(self._by_class, "S", "class covariances")(c)

    def variances(self) -> Float[np.ndarray, "classes dim"]:
        """var_c: the variance of every feature in every class."""
        return _there(self._variances, "D", "class variances")

    def pooled_variances(self) -> Float[np.ndarray, " dim"]:
        """The diagonal of Σ_pool, from B or from D, whichever is there."""
        if self._pooled is not None:
            return self._pooled.diagonal().copy()
        own = np.where(self.counts[:, None] > 1, self.variances(), 0.0)
        return self.counts @ own / max(1.0, self.rows - self.present)


def _pooled(moments: Moments, counts: np.ndarray, means: np.ndarray) -> np.ndarray:
    weighted = means * np.sqrt(counts)[:, None]
    within = moments.pooled() - weighted.T @ weighted
    return within / max(1.0, counts.sum() - np.count_nonzero(counts))


def _variances(moments: Moments, counts: np.ndarray, means: np.ndarray) -> np.ndarray:
    own = np.maximum(moments.squares / np.maximum(counts, 1.0)[:, None] - means**2, 0.0)
    shared = counts @ np.where(counts[:, None] > 1, own, 0.0) / max(1.0, counts.sum() - np.count_nonzero(counts))
    return np.where(counts[:, None] > 1, own, shared)


def _class_covariances(
    moments: Moments, counts: np.ndarray, means: np.ndarray, unit: float, pooled: np.ndarray | None
) -> ClassCovariance:
    def covariance(c: int) -> Float[np.ndarray, "dim dim"]:
        if counts[c] < 2:
            assert pooled is not None, "B follows from S"
            return pooled
        scatter = moments.by_class(c) - counts[c] * np.outer(means[c], means[c])
        return scatter * (unit**2 / (counts[c] - 1.0))

    return covariance


def _there(value, statistic: str, what: str):  # type: ignore[no-untyped-def]
    if value is None:
        raise MissingStatisticError(
            f"{what} need statistic {statistic}, which these moments do not hold; a recipe with "
            f"statistics = ['{statistic}'] has it, and sites must send again."
        )
    return value
