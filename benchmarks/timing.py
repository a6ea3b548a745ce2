"""Two kinds of work timed in turns: ours, reference, ours, reference, …"""

import math
import time
from collections.abc import Callable

from ratios import Measure

Work = Callable[[], object]
REPEATS = 5
SHORTEST = 0.04  # seconds: quicker work is called so often that one turn takes as long


def against(
    name: str, what: str, ours: Work, reference_is: str, reference: Work, repeats: int = REPEATS, rows: int = 1
) -> Measure:
    """A measure of `ours`, which does `rows` times the work of `reference`; it is printed as soon as it is known."""
    mine, theirs = _calls(ours), _calls(reference)
    turns = [(_timed(ours, mine) / rows, _timed(reference, theirs)) for _ in range(repeats)]
    measure = Measure(name, what, reference_is, *map(tuple, zip(*turns, strict=True)))
    print(f"{name}: {measure.ratio:.3g} ± {100 * (measure.spread or 0):.0f} %", flush=True)
    return measure


def best(work: Work, repeats: int = 5) -> float:
    """The shortest of a few timings."""
    return min(_timed(work) for _ in range(repeats))


def _calls(work: Work) -> int:
    """How often work is called in a turn; what it does only the first time is over afterwards."""
    first = _timed(work)
    again = first if first > SHORTEST else _timed(work)
    return max(1, math.ceil(SHORTEST / max(again, 1e-7)))


def _timed(work: Work, calls: int = 1) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - started) / calls
