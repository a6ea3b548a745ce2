"""Heads that compare a row with the class means and little else."""

from dataclasses import dataclass

import numpy as np

from ghofl.gaussians import Gaussians
from ghofl.heads.base import Head, linear_scores
from ghofl.heads.options import HeadOptions
from ghofl.shapes import Float

SMALLEST = 1e-12  # the least σ², relative to the variance between classes


@dataclass(frozen=True)
class NearestMeanOptions(HeadOptions, head="nearest_mean"):
    """No options: the head consists of the class means."""


@dataclass(frozen=True)
class SphericalOptions(HeadOptions, head="spherical"):
    """No options: the variance follows from the total."""


@dataclass(frozen=True, eq=False, repr=False)
class NearestMean(Head):
    """The class whose mean points the same way: cosine of the angle between row and mean.

    ::

        s_c(x) = x·μ_c / (‖x‖ ‖μ_c‖)

    Guarantees
    ----------
    Needs counts and sums only, the smallest message there is. Scores lie in [−1, 1]; a row of zeros scores 0.

    Examples
    --------
    >>> head = NearestMean(directions=np.eye(2), offsets=np.zeros(2))
    >>> head.predict(np.array([[3.0, 1.0], [0.0, 2.0]]))
    array([0, 1])
    """

    name = "nearest_mean"
    needs = ((),)
    Options = NearestMeanOptions
    scores_are_log_posteriors = False
    directions: Float[np.ndarray, "classes dim"]
    offsets: Float[np.ndarray, " classes"]

    @classmethod
    def fit(cls, gaussians: Gaussians, options: NearestMeanOptions = NearestMeanOptions()) -> "NearestMean":
        """The directions of the class means."""
        return cls(_unit(gaussians.means), np.where(gaussians.counts > 0, 0.0, -np.inf))

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """The cosine with every class mean."""
        return linear_scores(_unit(x), self.directions, self.offsets)


@dataclass(frozen=True, eq=False, repr=False)
class Spherical(Head):
    """The nearest mean under one variance for all classes and features, with priors.

    ::

        s_c(x) = log π_c − ‖x − μ_c‖² / 2σ²  (up to a term common to all classes)      σ² = tr Σ_pool / d

    The paper's tables after the first call this rule FedCGS; `FedCGS` here is the published one.

    Guarantees
    ----------
    `LDA` has these scores in the limit of shrinkage 1.

    Examples
    --------
    >>> head = Spherical(weights=np.eye(2), bias=np.array([-0.5, -0.5]))
    >>> head.predict(np.array([[0.9, 0.2]]))
    array([0])
    """

    name = "spherical"
    needs = (("D",), ("B",))
    Options = SphericalOptions
    weights: Float[np.ndarray, "classes dim"]
    bias: Float[np.ndarray, " classes"]

    @classmethod
    def fit(cls, gaussians: Gaussians, options: SphericalOptions = SphericalOptions()) -> "Spherical":
        """Means over the mean within-class variance."""
        variance = float(gaussians.pooled_variances().mean())
        apart = float(gaussians.counts @ np.square(gaussians.means - gaussians.centre).mean(axis=1)) / gaussians.rows
        # Where no class has two rows that differ, the nearest mean alone decides: σ² → 0, within what floats hold.
        variance = max(variance, SMALLEST * apart) or 1.0
        weights = gaussians.means / variance
        return cls(weights, gaussians.log_priors - 0.5 * np.einsum("cd,cd->c", gaussians.means, weights))

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """Log posteriors up to a term common to all classes."""
        return linear_scores(x, self.weights, self.bias)


def _unit(rows: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1.0)
