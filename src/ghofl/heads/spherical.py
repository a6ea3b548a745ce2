"""The nearest mean under one variance for all classes and features."""

from dataclasses import dataclass

import numpy as np

from ghofl.gaussians import Gaussians
from ghofl.heads.head import Head
from ghofl.heads.options import HeadOptions
from ghofl.heads.rules import Linear

SMALLEST = 1e-12  # the least σ², relative to the variance between classes


@dataclass(frozen=True)
class SphericalOptions(HeadOptions, head="spherical"):
    """No options: the variance follows from the total."""


def fit_spherical(gaussians: Gaussians, options: SphericalOptions = SphericalOptions()) -> Linear:
    """The nearest mean under one variance for all classes and features, with priors.

    ::

        s_c(x) = log π_c − ‖x − μ_c‖² / 2σ²  (up to a term common to all classes)      σ² = tr Σ_pool / d

    The paper's tables after the first call this rule FedCGS; `fedcgs` here is the published one.

    Guarantees
    ----------
    `lda` has these scores in the limit of shrinkage 1.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("D",))))
    >>> fit_spherical(gaussians).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """
    variance = float(gaussians.pooled_variances().mean())
    apart = float(gaussians.counts @ np.square(gaussians.means - gaussians.centre).mean(axis=1)) / gaussians.rows
    # Where no class has two rows that differ, the nearest mean alone decides: σ² → 0, within what floats hold.
    variance = max(variance, SMALLEST * apart) or 1.0
    return Linear.of_means(gaussians.means / variance, gaussians.means, gaussians.log_priors)


HEAD = Head(SphericalOptions, fit_spherical, needs=(("D",), ("B",)))
