"""Two kinds of work timed in turns: ours, reference, ours, reference, …

Times are CPU seconds, those of commands included: other work on the machine lengthens them little. Products run on one
thread while speed is measured, so that on an idle machine they are the seconds on the clock, waiting for a disk left out.
"""

import math
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ratios import Measure

Work = Callable[[], object]
REPEATS = 5
SHORTEST = 0.04  # seconds: quicker work is called so often that one turn takes as long
MB = 1e6
# A process starts with the peak memory of the one that started it, so one that has little does.
LAUNCHER = """
import os, sys
silent = os.open(os.devnull, os.O_WRONLY)
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, silent, 1)])
_, status, used = os.wait4(pid, 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@dataclass(frozen=True)
class Command:
    """A process, run to its end when called; what it prints is not shown."""

    words: Sequence[str]
    environment: Mapping[str, str] | None = None

    def __call__(self) -> None:
        """Run it."""
        subprocess.run(self.words, check=True, stdout=subprocess.DEVNULL, env=self.environment)

    def peak_mb(self) -> float:
        """Run it; its peak memory in MB."""
        command = [sys.executable, "-S", "-c", LAUNCHER, *self.words]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=self.environment)
        return int(done.stdout) * 1024 / MB


def against(
    name: str,
    what: str,
    ours: Work,
    reference_is: str,
    reference: Work,
    repeats: int = REPEATS,
    rows: int = 1,
    at_most: float | None = None,
    peaks: Sequence[Work | None] | None = None,
) -> Measure:
    """A measure of `ours`, which does `rows` times the work of `reference`; it is printed as soon as it is known.

    `peaks` are the works whose memory is measured, where that is not those two; None for one whose memory Python does
    not see.
    """
    mine, theirs = _calls(ours), _calls(reference)
    turns = [(_timed(ours, mine) / rows, _timed(reference, theirs)) for _ in range(repeats)]
    seconds = map(tuple, zip(*turns, strict=True))
    first, second = (None if work is None else peak_mb(work) for work in peaks or (ours, reference))
    measure = Measure(name, what, reference_is, *seconds, peak_mb=(first, second), at_most=at_most)
    print(f"{name}: {measure.ratio:.3g} ± {100 * (measure.spread or 0):.0f} %", flush=True)
    return measure


def best(work: Work, repeats: int = 5) -> float:
    """The shortest of a few timings."""
    return min(_timed(work) for _ in range(repeats))


def peak_mb(work: Work) -> float:
    """The most memory at a time, in MB: of a command all of it, otherwise what Python and NumPy allocate meanwhile."""
    if isinstance(work, Command):
        return work.peak_mb()
    tracemalloc.start()
    try:
        kept = work()
        del kept
        return tracemalloc.get_traced_memory()[1] / MB
    finally:
        tracemalloc.stop()


def cpu_seconds() -> float:
    """The CPU time of this process and of those that it started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _calls(work: Work) -> int:
    """How often work is called in a turn; what it does only the first time is over afterwards."""
    first = _timed(work)
    again = first if first > SHORTEST else _timed(work)
    return max(1, math.ceil(SHORTEST / max(again, 1e-7)))


def _timed(work: Work, calls: int = 1) -> float:
    started = cpu_seconds()
    for _ in range(calls):
        work()
    return max(cpu_seconds() - started, 1e-9) / calls
