"""Breaks of a number for a drafted schema: quantiles of one site's rows, rounded."""

import math
from collections.abc import Sequence

import numpy as np

MOST = 15  # with both ends, 16 segments
NEAR = 2.0**-18  # of the range: breaks nearer than this to each other are one


def draft_breaks(
    numbers: Sequence[float], low: float, high: float, *, rare: int, is_log: bool = False
) -> tuple[float, ...]:
    """Up to 15 quantiles between the ends of a range, in equal steps of probability.

    Each has at least `rare` rows on both sides before the next, so few rows give few breaks. They are rounded to two digits
    of the span that they cover, those of a logarithm to two digits each. They are quantiles of somebody's rows all the same.

    >>> draft_breaks(range(17, 78), 10, 80, rare=10)
    (27.0, 37.0, 47.0, 57.0, 67.0)
    """
    count = min(MOST, len(numbers) // rare - 1)
    if count < 1:
        return ()
    shares = np.arange(1, count + 1) / (count + 1)
    found = np.quantile(
        np.asarray(numbers, dtype=np.float64), shares, method="inverted_cdf"
    )  # 0 and 1 have none between
    span = float(found[-1] - found[0])
    if is_log:
        found = np.array([float(f"{value:.2g}") for value in found])
    elif span > 0:
        step = 10.0 ** (math.floor(math.log10(span)) - 1)
        found = np.array([float(f"{np.rint(value / step) * step:.12g}") for value in found])
    scale = np.log if is_log else np.asarray
    start, end = float(scale(low)), float(scale(high))
    kept, last = [], start
    for value in found.tolist():
        place = float(scale(value)) if value > 0 or not is_log else start
        if place - last > NEAR * (end - start) and end - place > NEAR * (end - start):
            kept.append(value)
            last = place
    return tuple(kept)
