"""Messages on a coarser grid: fewer bits to mask and send, at a stated cost in accuracy and sensitivity.

A block with shift s travels as v / 2^s, rounded::

    ⌊v/2^s + ½⌋        half up: off by at most half a step; the same for everybody

Rounding comes before noise, and lets one record move an entry by one more step: pass the same shifts to `sensitivity`
or `noise_plan`. Rounding a message that already has all of its (local) noise costs no privacy, nor does rounding a noisy
total.
"""

from collections.abc import Mapping

import numpy as np

from ghofl.compute import arrays
from ghofl.errors import MomentsOverflowError
from ghofl.moments import INT64_MAX, Layout, Moments
from ghofl.privacy.errors import PrivacyError
from ghofl.shapes import Int64

LARGEST_SHIFT = 40


def round_moments(moments: Moments, shifts: Mapping[str, int]) -> Moments:
    """The moments in steps of 2^shift by block, half up.

    Guarantees
    ----------
    They add like any moments, and `restore` returns a total to its units: off by at most half a step per
    message.

    Examples
    --------
    >>> layout = Layout(classes=2, dim=2, statistics=("A",))
    >>> moments = Moments.of(np.array([[100, -70]]), np.array([0]), layout)
    >>> coarse = round_moments(moments, {"A": 3})
    >>> coarse.sums[0], restore(coarse, {"A": 3}).sums[0]
    (array([13, -9]), array([104, -72]))
    """
    _check_shifts(moments.layout, shifts)
    return Moments(moments.layout, {name: _round(block, shifts.get(name, 0)) for name, block in moments.blocks.items()})


def restore(moments: Moments, shifts: Mapping[str, int]) -> Moments:
    """Rounded moments, or a total of them, in their original units."""
    _check_shifts(moments.layout, shifts)
    for name, shift in shifts.items():
        largest = max(int(np.abs(a).max(initial=0)) for (a,) in arrays.pieces(moments.blocks[name])) << shift
        if largest > INT64_MAX:
            raise MomentsOverflowError(
                f"block {name} times 2^{shift} reaches {largest}, beyond the 64-bit integers; were these rounded?"
            )
    blocks = dict(moments.blocks)
    for name, shift in shifts.items():
        blocks[name] = arrays.map_entries(lambda block, by=shift: block << by, blocks[name])
    return Moments(moments.layout, blocks)


def _round(block: Int64[np.ndarray, "..."], shift: int) -> Int64[np.ndarray, "..."]:
    return arrays.map_entries(lambda some: _half_up(some, shift), block) if shift else block


def _half_up(block: np.ndarray, shift: int) -> np.ndarray:
    # The part below a step is split off first, so that nothing near the edge of int64 overflows.
    step = np.int64(2**shift)
    return (block >> shift) + (((block & (step - 1)) + step // 2) >> shift)


def _check_shifts(layout: Layout, shifts: Mapping[str, int]) -> None:
    for name, shift in shifts.items():
        if name not in layout.shapes:
            raise PrivacyError(f"shifts has the block {name!r}, and these moments hold {', '.join(layout.shapes)}.")
        if not 0 <= shift <= LARGEST_SHIFT:
            raise PrivacyError(f"the shift of {name} is {shift}; write a number from 0 to {LARGEST_SHIFT}.")
