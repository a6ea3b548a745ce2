"""Messages on a coarser grid: fewer bits to mask and send, at a stated cost in accuracy and sensitivity.

A block with shift s travels as v / 2^s, rounded::

    half up        ⌊v/2^s + ½⌋               off by at most half a step; the same for everybody
    stochastic     ⌊v/2^s + u⌋, u ~ U[0,1)    off by less than a step, right on average: errors of n sites grow as √n

Rounding comes before noise, and lets one record move an entry by one more step: pass the same shifts to `sensitivity`
or `noise_plan`. Rounding a message that already has all of its (local) noise costs no privacy, nor does rounding a noisy
total.
"""

from collections.abc import Mapping

import numpy as np

from ghofl.errors import MomentsOverflowError
from ghofl.moments import INT64_MAX, Layout, Moments
from ghofl.privacy.errors import PrivacyError
from ghofl.privacy.noise import NoiseStream
from ghofl.shapes import Int64
from ghofl.statistics import arrays

LARGEST_SHIFT = 40


def round_moments(moments: Moments, shifts: Mapping[str, int], stream: NoiseStream | None = None) -> Moments:
    """The moments in steps of 2^shift by block: half up, or at random without bias when a `stream` is given.

    Guarantees
    ----------
    They add like any moments, and `restore` returns a total to its units: off by at most half a step per message
    (half up), or less than one step (stochastic), with mean zero.

    Examples
    --------
    >>> layout = Layout(classes=2, dim=2, statistics=("A",))
    >>> moments = Moments.of(np.array([[100, -70]]), np.array([0]), layout)
    >>> coarse = round_moments(moments, {"A": 3})
    >>> coarse.sums[0], restore(coarse, {"A": 3}).sums[0]
    (array([13, -9]), array([104, -72]))
    """
    _check_shifts(moments.layout, shifts)
    return Moments(
        moments.layout, {name: _round(block, shifts.get(name, 0), stream) for name, block in moments.blocks.items()}
    )


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
        blocks[name] = arrays.computed(lambda block, by=shift: block << by, blocks[name])
    return Moments(moments.layout, blocks)


def _round(block: Int64[np.ndarray, "..."], shift: int, stream: NoiseStream | None) -> Int64[np.ndarray, "..."]:
    if not shift:
        return block
    step = 2**shift
    if stream is None:
        return arrays.computed(lambda some: _carry(some, shift, np.int64(step // 2)), block)
    carry = (stream.words(block.size) >> np.uint64(64 - shift)).astype(np.int64).reshape(block.shape)
    return _carry(block, shift, carry)


def _carry(block: np.ndarray, shift: int, carry: np.ndarray | np.int64) -> np.ndarray:
    # The part below a step is split off first, so that nothing near the edge of int64 overflows.
    return (block >> shift) + (((block & (2**shift - 1)) + carry) >> shift)


def _check_shifts(layout: Layout, shifts: Mapping[str, int]) -> None:
    for name, shift in shifts.items():
        if name not in layout.shapes:
            raise PrivacyError(f"shifts has the block {name!r}, and these moments hold {', '.join(layout.shapes)}.")
        if not 0 <= shift <= LARGEST_SHIFT:
            raise PrivacyError(f"the shift of {name} is {shift}; write a number from 0 to {LARGEST_SHIFT}.")
