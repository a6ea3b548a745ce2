"""FedCGS as published: a linear head of the covariance of all rows."""

from dataclasses import dataclass

import scipy

from ghofl.gaussians import Gaussians
from ghofl.heads.head import Head
from ghofl.heads.options import HeadOptions
from ghofl.heads.rules import Linear


@dataclass(frozen=True)
class FedCGSOptions(HeadOptions, head="fedcgs"):
    """No options: the head is as published."""


def fit_fedcgs(gaussians: Gaussians, options: FedCGSOptions = FedCGSOptions()) -> Linear:
    """FedCGS as published: a linear head whose covariance is that of all rows, classes ignored, without shrinkage.

    ::

        w_c = T⁺ μ_c      b_c = log π_c − ½ μ_c·w_c      T = (B − N m mᵀ) / N

    T⁺ is the pseudo-inverse, so constant features are ignored instead of making the fit fail.

    Guarantees
    ----------
    Needs the same message as `lda`.

    Examples
    --------
    >>> import numpy as np
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("B",))))
    >>> fit_fedcgs(gaussians).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """
    inverse = scipy.linalg.pinvh(gaussians.total_covariance(), check_finite=False)
    return Linear.of_means(gaussians.means @ inverse, gaussians.means, gaussians.log_priors)


HEAD = Head(FedCGSOptions, fit_fedcgs, needs=(("B",),))
