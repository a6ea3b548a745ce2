"""The head that compares a row with the directions of the class means and nothing else."""

from dataclasses import dataclass

import numpy as np

from ghofl.gaussians import Gaussians
from ghofl.heads.head import Head
from ghofl.heads.options import HeadOptions
from ghofl.heads.rules import Cosine
from ghofl.heads.rules.linear import unit_rows


@dataclass(frozen=True)
class NearestMeanOptions(HeadOptions, head="nearest_mean"):
    """No options: the head consists of the class means."""


def fit_nearest_mean(gaussians: Gaussians, options: NearestMeanOptions = NearestMeanOptions()) -> Cosine:
    """The class whose mean points the same way: cosine of the angle between row and mean.

    ::

        s_c(x) = x·μ_c / (‖x‖ ‖μ_c‖)

    Scores lie in [−1, 1]; a row of zeros scores 0.
    """
    return Cosine(unit_rows(gaussians.means), np.where(gaussians.counts > 0, 0.0, -np.inf))


HEAD = Head(NearestMeanOptions, fit_nearest_mean, needs=((),), log_posteriors=False)
