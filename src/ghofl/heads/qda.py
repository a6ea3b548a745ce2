"""The quadratic head: one covariance per class."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ghofl.compute import arrays
from ghofl.compute.threads import parallel_for
from ghofl.gaussians import Gaussians, linalg
from ghofl.heads.head import Head
from ghofl.heads.options import HeadOptions, option
from ghofl.heads.rules import Quadratic
from ghofl.shapes import Float

OWN = 0.1  # the usual shrinkage of class covariances


@dataclass(frozen=True)
class QDAOptions(HeadOptions, head="qda"):
    """How far class covariances are shrunk."""

    shrinkage: float | None = option(
        None, "a, the pull towards a sphere", between=(0, 1), auto="0.1, less when there are many rows", paper=0.1
    )


def fit_qda(gaussians: Gaussians, options: QDAOptions = QDAOptions()) -> Quadratic:
    """Quadratic discriminant analysis: every class has its own covariance.

    ::

        s_c(x) = log π_c − ½ log|Σ̃_c| − ½ (x − μ_c)ᵀ Σ̃_c⁻¹ (x − μ_c)      Σ̃_c = shrink(Σ_c, a)

    (Hastie, Tibshirani & Friedman 2009, eq. 4.12.)

    Guarantees
    ----------
    A class with one row takes the shared covariance. With a > 0, classes with fewer rows than dimensions work.
    """
    a = gaussians.ease_shrinkage(OWN) if options.shrinkage is None else options.shrinkage
    return fit_quadratic(gaussians, lambda c: linalg.shrink(gaussians.by_class(c), a))


def fit_quadratic(
    gaussians: Gaussians, covariance: Callable[[int], Float[np.ndarray, "dim dim"]], dof: float | None = None
) -> Quadratic:
    """The rule of a covariance per class, b_c = log π_c − ½ log|Σ_c|; a class without rows gets W = 0 and −∞."""
    classes, dim = gaussians.means.shape
    whiteners, offsets = arrays.zeros((classes, dim, dim), np.float64), gaussians.log_priors.copy()

    def fill(c: int) -> None:
        whiteners[c], log_determinant = linalg.whitener(covariance(c), f"the covariance of class {c}")
        offsets[c] -= 0.5 * log_determinant
        arrays.evict(whiteners[c])

    parallel_for(fill, np.flatnonzero(gaussians.counts).tolist())
    return Quadratic(gaussians.means, whiteners, offsets, None if dof is None else np.asarray(float(dof)))


HEAD = Head(QDAOptions, fit_qda, needs=(("S",),))
