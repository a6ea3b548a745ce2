"""The diagonal head: every class has its own variance for every feature, and features are independent."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from ghofl.errors import HeadError
from ghofl.gaussians import Gaussians
from ghofl.heads.base import Head
from ghofl.linalg import check_share

FLOOR = 1e-6


@dataclass(frozen=True, eq=False)
class NaiveBayes(Head):
    """Gaussian naive Bayes: a mean and a variance a class and feature.

    ::

        s_c(x) = log π_c − ½ Σ_j [ log v_cj + (x_j − μ_cj)² / v_cj ]      v_c = (1 − a) var_c + a var_pool, at least ε

    Guarantees
    ----------
    Needs sums and sums of squares only: O(C d) numbers. With a = 0 it is the head of the paper.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("D",))))
    >>> NaiveBayes.fit(gaussians).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """

    name: ClassVar[str] = "nb"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("D",),)
    squared: Float[np.ndarray, "classes dim"]
    linear: Float[np.ndarray, "classes dim"]
    bias: Float[np.ndarray, " classes"]

    @classmethod
    def fit(cls, gaussians: Gaussians, shrinkage: float = 0.0, floor: float = FLOOR) -> "NaiveBayes":
        """The head of class variances pulled towards the shared ones by `shrinkage`, none below `floor`."""
        check_share("shrinkage", shrinkage, "class variances", "shared ones")
        if not floor > 0:
            raise HeadError(f"floor is {floor}; a variance must stay above 0.")
        own, shared = gaussians.variances(), gaussians.pooled_variances()
        v = np.maximum((1.0 - shrinkage) * own + shrinkage * shared, floor)
        mu = gaussians.means
        # Expanded into x², x and 1, so that scoring is two matrix products.
        return cls(-0.5 / v, mu / v, gaussians.log_priors - 0.5 * (np.log(v) + mu**2 / v).sum(axis=1))

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """Log posteriors up to a term common to all classes."""
        return (x * x) @ self.squared.T + x @ self.linear.T + self.bias
