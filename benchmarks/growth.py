"""How CPU time grows with rows, classes, dimension and clients: fitted exponents beside the expected ones.

A stage is run at four sizes, each twice as large as the one before it; the exponent is the slope of log time over log
size. What does not grow pulls it below the expected one, and a needless pass over the data above it. CPU time, because
a busy machine does not lengthen it much. Peak memory is that of Python's and NumPy's allocations at the largest size.
"""

import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ghofl import Aggregator, Encoder, Features, Gaussians, Layout, Message, Moments, Recipe
from ghofl.heads import LDA, QDA
from ghofl.wire.packing import pack, unpack

REPEATS = 3
Work = Callable[[], object]


class Curve(NamedTuple):
    """A stage, what grows in it, the exponent that its formula has, its sizes, and the work of a size."""

    stage: str
    over: str
    expected: float
    sizes: Sequence[int]
    work: Callable[[int], Work]


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of log seconds over log size.

    >>> round(exponent([1, 2, 4], [3.0, 12.0, 48.0]), 6)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def run() -> list[dict]:
    """Every curve with its seconds, exponents and peak memory."""
    with threadpool_limits(limits=1):
        return [_measured(curve) for curve in curves(np.random.default_rng(0))]


def _measured(curve: Curve) -> dict:
    seconds = []
    for size in curve.sizes:
        work = curve.work(size)
        work()
        seconds.append(min(_cpu(work) for _ in range(REPEATS)))
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    found = {
        "stage": curve.stage,
        "over": curve.over,
        "sizes": list(curve.sizes),
        "seconds": [float(f"{s:.3g}") for s in seconds],
        "exponent": round(exponent(curve.sizes, seconds), 2),
        "expected": curve.expected,
        "peak_mb": round(peak / 1e6, 1),
    }
    print(found, flush=True)
    return found


def _cpu(work: Work) -> float:
    started, calls = time.process_time(), 0
    while calls == 0 or time.process_time() - started < 0.02:
        work()
        calls += 1
    return (time.process_time() - started) / calls


def curves(rng: np.random.Generator) -> Iterator[Curve]:
    """What is measured."""

    def rows(n: int, dim: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.integers(-60, 61, size=(n, dim)).astype(np.int16), np.arange(n) % classes

    def moments(n: int, dim: int, classes: int, statistic: str) -> Work:
        (x, y), layout = rows(n, dim, classes), Layout(classes, dim, (statistic,))
        return lambda: Moments.of(x, y, layout)

    def features(n: int) -> Work:
        known, x = Features.of(Recipe(("a", "b"), Encoder(dim=512))), rng.random((n, 512), np.float32)
        return lambda: known.rows(x)

    def sums(dim: int, classes: int, statistic: str) -> Moments:
        return Moments.of(*rows(max(2 * dim, 8 * classes), dim, classes), Layout(classes, dim, (statistic,)))

    def fit(head: type, dim: int, classes: int, statistic: str) -> Work:
        found = sums(dim, classes, statistic)
        return lambda: head.fit(Gaussians.estimate(found))  # new ones: they keep what they computed

    def score(head: type, dim: int, classes: int, statistic: str) -> Work:
        fitted, x = head.fit(Gaussians.estimate(sums(dim, classes, statistic))), rng.normal(size=(256, dim))
        return lambda: fitted.scores(x)

    def total(clients: int) -> Work:
        recipe = Recipe(tuple("abcd"), Encoder(dim=64))
        moments_of_site = Moments.of(*rows(50, 64, 4), Layout.of(recipe))
        sent = [Message.of(moments_of_site, recipe, f"site-{i}").to_bytes() for i in range(clients)]

        def add() -> None:
            aggregator = Aggregator(recipe)
            for data in sent:
                aggregator.add(Message.from_bytes(data, recipe))

        return add

    def packing(entries: int) -> Work:
        values = rng.integers(-(2**12), 2**20, size=entries)
        return lambda: unpack(*pack(values), len(values))

    yield Curve("features", "rows", 1.0, (4096, 8192, 16384, 32768), features)
    yield Curve("moments of B", "rows", 1.0, (4096, 8192, 16384, 32768), lambda n: moments(n, 256, 10, "B"))
    yield Curve("moments of B", "dimension", 2.0, (256, 512, 1024, 2048), lambda d: moments(2048, d, 10, "B"))
    yield Curve("moments of S", "classes", 1.0, (8, 16, 32, 64), lambda c: moments(128 * c, 256, c, "S"))
    yield Curve("pack and unpack", "entries", 1.0, (2**18, 2**19, 2**20, 2**21), packing)
    yield Curve("total", "clients", 1.0, (50, 100, 200, 400), total)
    yield Curve("LDA fit", "dimension", 3.0, (256, 512, 1024, 2048), lambda d: fit(LDA, d, 10, "B"))
    yield Curve("LDA score", "classes", 1.0, (64, 128, 256, 512), lambda c: score(LDA, 256, c, "B"))
    yield Curve("QDA fit", "dimension", 3.0, (64, 128, 256, 512), lambda d: fit(QDA, d, 8, "S"))
    yield Curve("QDA fit", "classes", 1.0, (8, 16, 32, 64), lambda c: fit(QDA, 128, c, "S"))
    yield Curve("QDA score", "dimension", 2.0, (128, 256, 512, 1024), lambda d: score(QDA, d, 4, "S"))
    yield Curve("QDA score", "classes", 1.0, (8, 16, 32, 64), lambda c: score(QDA, 128, c, "S"))


def table(found: list[dict]) -> str:
    """The results as Markdown."""
    lines = [
        "| stage | grows with | sizes | CPU seconds | exponent | expected | peak MB |",
        "|---|---|---|---|---:|---:|---:|",
    ]
    for c in found:
        sizes, seconds = " ".join(f"{s:,}" for s in c["sizes"]), " ".join(f"{s:.3g}" for s in c["seconds"])
        lines.append(
            f"| {c['stage']} | {c['over']} | {sizes} | {seconds} | {c['exponent']:.2f} | {c['expected']:g} | {c['peak_mb']:,} |"
        )
    return "\n".join(lines)
