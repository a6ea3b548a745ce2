"""Linear heads: one covariance for all classes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg
from jaxtyping import Float

from ghofl import linalg
from ghofl.gaussians import Gaussians
from ghofl.heads.base import Head, linear_scores


@dataclass(frozen=True, eq=False)
class LDA(Head):
    """Linear head: the covariance within classes is shared by all of them.

    Scores are log posteriors up to a term common to all classes::

        s_c(x) = w_c·x + b_c      w_c = Σ⁻¹ μ_c      b_c = log π_c − ½ μ_c·w_c      Σ = shrink(Σ_pool, a)

    (Hastie, Tibshirani & Friedman 2009, eq. 4.10.) Without a given shrinkage, `a` is the oracle approximating one,
    computed from the moments.

    Guarantees
    ----------
    Built from the sum of sites' moments, it is the head built from the union of their data.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("B",))))
    >>> LDA.fit(gaussians, shrinkage=0.1).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """

    name: ClassVar[str] = "lda"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("B",),)
    weights: Float[np.ndarray, "classes dim"]
    bias: Float[np.ndarray, " classes"]

    @classmethod
    def fit(cls, gaussians: Gaussians, shrinkage: float | None = None) -> "LDA":
        """The head of the shared covariance, shrunk by `shrinkage` or by the oracle approximating amount."""
        sigma = linalg.shrink(gaussians.pooled(), gaussians.oas() if shrinkage is None else shrinkage)
        return cls(*_linear_rule(gaussians, linalg.solve(sigma, gaussians.means.T, "the shared covariance").T))

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """Log posteriors up to a term common to all classes."""
        return linear_scores(x, self.weights, self.bias)


@dataclass(frozen=True, eq=False)
class FedCGS(Head):
    """FedCGS as published: a linear head whose covariance is that of all rows, classes ignored, without shrinkage.

    ::

        w_c = T⁺ μ_c      b_c = log π_c − ½ μ_c·w_c      T = (B − N m mᵀ) / N

    T⁺ is the pseudo-inverse, so constant features are left out instead of stopping the fit.

    Guarantees
    ----------
    Needs the same message as `LDA`.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("B",))))
    >>> FedCGS.fit(gaussians).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """

    name: ClassVar[str] = "fedcgs"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("B",),)
    weights: Float[np.ndarray, "classes dim"]
    bias: Float[np.ndarray, " classes"]

    @classmethod
    def fit(cls, gaussians: Gaussians) -> "FedCGS":
        """The head of the covariance of all rows."""
        inverse = scipy.linalg.pinvh(gaussians.total_covariance(), check_finite=False)
        return cls(*_linear_rule(gaussians, gaussians.means @ inverse))

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """Log posteriors under the covariance of all rows."""
        return linear_scores(x, self.weights, self.bias)


def _linear_rule(
    gaussians: Gaussians, weights: Float[np.ndarray, "classes dim"]
) -> tuple[Float[np.ndarray, "classes dim"], Float[np.ndarray, " classes"]]:
    weights = np.ascontiguousarray(weights)
    return weights, gaussians.log_priors - 0.5 * np.einsum("cd,cd->c", gaussians.means, weights)
