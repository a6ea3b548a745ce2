"""The linear head: one covariance for all classes."""

from dataclasses import dataclass

import scipy

from ghofl.gaussians import Gaussians
from ghofl.heads.head import Head
from ghofl.heads.options import HeadOptions, option
from ghofl.heads.rules import Linear


@dataclass(frozen=True)
class LDAOptions(HeadOptions, head="lda"):
    """How far the shared covariance is shrunk."""

    shrinkage: float | None = option(
        None, "a, the pull towards a sphere", between=(0, 1), auto="oracle approximating shrinkage", paper=0.05
    )


def fit_lda(gaussians: Gaussians, options: LDAOptions = LDAOptions()) -> Linear:
    """Linear discriminant analysis: the covariance within classes is shared by all of them.

    Scores are log posteriors up to a term common to all classes::

        s_c(x) = w_c·x + b_c      w_c = Σ⁻¹ μ_c      b_c = log π_c − ½ μ_c·w_c      Σ = shrink(Σ_pool, a)

    (Hastie, Tibshirani & Friedman 2009, eq. 4.10.) Without a given shrinkage, `a` is the oracle approximating one,
    computed from the moments, or more where rows are few (`Gaussians.shared_shrinkage`).
    """
    amount = gaussians.shared_shrinkage() if options.shrinkage is None else options.shrinkage
    weights = scipy.linalg.cho_solve((gaussians.factor(amount), True), gaussians.means.T, check_finite=False).T
    return Linear.of_means(weights, gaussians.means, gaussians.log_priors)


HEAD = Head(LDAOptions, fit_lda, needs=(("B",),))
