"""Least squares from moments, with its penalty chosen without data."""

from dataclasses import dataclass
from math import inf

import numpy as np
import scipy.linalg
from jaxtyping import Float

from ghofl.gaussians import Gaussians
from ghofl.heads.base import Head, linear_scores
from ghofl.heads.options import HeadOptions, option

GRID = 10.0 ** np.linspace(-8, 3, 67)


@dataclass(frozen=True)
class RidgeOptions(HeadOptions, head="ridge"):
    """How far the weights are pulled towards zero."""

    penalty: float | None = option(
        None, "λ in units of the mean eigenvalue of G", between=(0, inf), auto="generalised cross-validation"
    )


@dataclass(frozen=True, eq=False)
class Ridge(Head):
    """Ridge regression on one-hot labels. Fed3R (before its normalisation) and AFL are this head.

    With G = B − N m mᵀ, Q = Aᵀ − m nᵀ and n the counts::

        w = (G + λ I)⁻¹ Q      b = n/N − wᵀ m

    Without a given penalty, λ minimises the generalised cross-validation error (Golub, Heath & Wahba 1979), which
    needs the moments only; one eigendecomposition serves every λ::

        GCV = (RSS/N) / (1 − df/N)²      RSS = tr(diag n − n nᵀ/N) − 2⟨w, Q⟩ + ⟨w, G w⟩      df = 1 + Σ g_i/(g_i + λ)

    Guarantees
    ----------
    The same weights as ridge regression with an intercept on the rows themselves.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("B",))))
    >>> Ridge.fit(gaussians).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """

    name = "ridge"
    needs = (("B",),)
    Options = RidgeOptions
    scores_are_log_posteriors = False
    weights: Float[np.ndarray, "classes dim"]
    bias: Float[np.ndarray, " classes"]

    @classmethod
    def fit(cls, gaussians: Gaussians, options: RidgeOptions = RidgeOptions()) -> "Ridge":
        """The head of the penalty that was given, or of the best by GCV."""
        n, m, rows = gaussians.counts, gaussians.centre, gaussians.rows
        values, vectors = scipy.linalg.eigh(gaussians.total_covariance() * rows, check_finite=False)
        values = np.maximum(values, 0.0)
        q = vectors.T @ ((gaussians.means - m).T * n)
        unit = max(float(values.mean()), np.finfo(float).tiny)
        if options.penalty is None:
            penalty = min(GRID * unit, key=lambda p: _gcv(p, values, q, n, rows))
        else:
            penalty = options.penalty * unit
        weights = (vectors @ (q / np.maximum(values + penalty, np.finfo(float).tiny)[:, None])).T
        return cls(np.ascontiguousarray(weights), np.where(n > 0, n / rows - weights @ m, -np.inf))

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """The regression's guess at each one-hot label."""
        return linear_scores(x, self.weights, self.bias)


def _gcv(penalty: float, values: np.ndarray, q: np.ndarray, n: np.ndarray, rows: float) -> float:
    """The generalised cross-validation error of one penalty, in the eigenbasis of G."""
    w = q / (values + penalty)[:, None]
    rss = n.sum() - n @ n / rows - 2.0 * np.sum(w * q) + np.sum(w * values[:, None] * w)
    df = 1.0 + np.sum(values / (values + penalty))
    return float(max(rss, 0.0) / rows / max(1.0 - df / rows, 1e-12) ** 2)
