"""LDA and ridge regression, averaged as probabilities."""

from dataclasses import dataclass

import numpy as np

from ghofl.gaussians import Gaussians
from ghofl.heads.head import Head
from ghofl.heads.lda import fit_lda
from ghofl.heads.options import HeadOptions
from ghofl.heads.ridge import fit_ridge
from ghofl.heads.rules import Averaged, Linear

# Chosen on 42 tables with features of a [basis], where 1 to 2, and 0.02 to 0.1, differ by a tenth of a point.
TEMPERATURE = 1.3
WIDTH = 0.05


@dataclass(frozen=True)
class LDARidgeOptions(HeadOptions, head="lda_ridge"):
    """No options."""


def fit_lda_ridge(gaussians: Gaussians, options: LDARidgeOptions = LDARidgeOptions()) -> Averaged:
    """The mean of the probabilities of `lda` and of `ridge`: the head for tables with a [basis].

    ::

        p(c|x) = ½ softmax_c(log π_c + (s_c − log π_c)/1.3) + ½ r_c(x)      τ_c = 0.05 √(π_c (1 − π_c))

    with s the scores of `lda` and r the shares of `ridge` (`Averaged`). Features such as hinges and cosines are far from
    normal within a class, and then LDA is too sure, above all about rare classes. What ridge regression says is a probability
    as far as a plane can be one: its errors are uncorrelated with every feature, whatever their distribution. The mean is
    more often right than either, and its log loss is at most log 2 above that of the better of the two.

    Guarantees
    ----------
    Scores are logarithms of probabilities that add up to 1, and need no further calibration.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("B",))))
    >>> fit_lda_ridge(gaussians).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """
    linear, prior = fit_lda(gaussians), gaussians.counts / gaussians.rows
    evidence = linear.bias - np.where(prior > 0, gaussians.log_priors, 0.0)
    posterior = Linear(linear.weights / TEMPERATURE, evidence / TEMPERATURE + gaussians.log_priors)
    widths = WIDTH * np.sqrt(np.maximum(prior * (1.0 - prior), np.finfo(float).eps))
    return Averaged(posterior, fit_ridge(gaussians), widths)


HEAD = Head(LDARidgeOptions, fit_lda_ridge, needs=(("B",),), is_calibrated=True)
