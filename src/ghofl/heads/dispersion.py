"""How much wider than measured rows are drawn to calibrate a head: rows of networks stray further than Gaussian ones."""

import numpy as np

NARROW, WIDE = 128, 512  # dimensions up to which draws are as measured, and from which they are widest
DISPERSION = 1.7  # the largest τ of heads that are not linear
MOST = 7.0  # the largest τ² of all: that of 128 classes, and sets of not many more were measured


def wideness(dim: int) -> float:
    """0 up to 128 dimensions, 1 from 512 on, and by equal factors between.

    >>> [wideness(dim) for dim in (16, 256, 1280)]
    [0.0, 0.5, 1.0]
    """
    return float(np.clip(np.log(max(dim, 1) / NARROW) / np.log(WIDE / NARROW), 0.0, 1.0))


def dispersion_for(dim: int, classes: int) -> float:
    """τ, how much wider than measured rows are drawn: 1 up to 128 dimensions, √log₂ C from 512 on.

    >>> [round(dispersion_for(dim, 16), 2) for dim in (64, 256, 1280)], dispersion_for(1280, 2)
    ([1.0, 1.58, 2.0], 1.0)
    """
    return float(np.sqrt(1.0 + wideness(dim) * (min(np.log2(max(classes, 2)), MOST) - 1.0)))
