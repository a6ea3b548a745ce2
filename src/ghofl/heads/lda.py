"""Linear heads: one covariance for all classes."""

from dataclasses import dataclass

import numpy as np
import scipy

from ghofl.gaussians import Gaussians
from ghofl.heads.base import Head, linear_scores
from ghofl.heads.options import HeadOptions, option
from ghofl.shapes import Float


@dataclass(frozen=True)
class LDAOptions(HeadOptions, head="lda"):
    """How far the shared covariance is shrunk."""

    shrinkage: float | None = option(
        None, "a, the pull towards a sphere", between=(0, 1), auto="oracle approximating shrinkage", paper=0.05
    )


@dataclass(frozen=True)
class FedCGSOptions(HeadOptions, head="fedcgs"):
    """No options: the head is as published."""


@dataclass(frozen=True, eq=False, repr=False)
class LDA(Head):
    """Linear head: the covariance within classes is shared by all of them.

    Scores are log posteriors up to a term common to all classes::

        s_c(x) = w_c·x + b_c      w_c = Σ⁻¹ μ_c      b_c = log π_c − ½ μ_c·w_c      Σ = shrink(Σ_pool, a)

    (Hastie, Tibshirani & Friedman 2009, eq. 4.10.) Without a given shrinkage, `a` is the oracle approximating one,
    computed from the moments, or more where rows are few (`Gaussians.shared_shrinkage`).

    Guarantees
    ----------
    Built from the sum of sites' moments, it is the head built from the union of their data.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("B",))))
    >>> LDA.fit(gaussians, LDAOptions(shrinkage=0.1)).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """

    name = "lda"
    needs = (("B",),)
    Options = LDAOptions
    weights: Float[np.ndarray, "classes dim"]
    bias: Float[np.ndarray, " classes"]

    @classmethod
    def fit(cls, gaussians: Gaussians, options: LDAOptions = LDAOptions()) -> "LDA":
        """The head of the shared covariance."""
        amount = gaussians.shared_shrinkage() if options.shrinkage is None else options.shrinkage
        lower = gaussians.factor(amount)
        weights = scipy.linalg.cho_solve((lower, True), gaussians.means.T, check_finite=False).T
        return cls(*_linear_rule(gaussians, weights))

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """Log posteriors up to a term common to all classes."""
        return linear_scores(x, self.weights, self.bias)


@dataclass(frozen=True, eq=False, repr=False)
class FedCGS(Head):
    """FedCGS as published: a linear head whose covariance is that of all rows, classes ignored, without shrinkage.

    ::

        w_c = T⁺ μ_c      b_c = log π_c − ½ μ_c·w_c      T = (B − N m mᵀ) / N

    T⁺ is the pseudo-inverse, so constant features are ignored instead of making the fit fail.

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

    name = "fedcgs"
    needs = (("B",),)
    Options = FedCGSOptions
    weights: Float[np.ndarray, "classes dim"]
    bias: Float[np.ndarray, " classes"]

    @classmethod
    def fit(cls, gaussians: Gaussians, options: FedCGSOptions = FedCGSOptions()) -> "FedCGS":
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
