"""How CPU time grows with rows, classes, dimension and clients: fitted exponents beside the expected ones.

A stage is run at four sizes, each twice as large as the one before it, and so is a bare reference, in turns; an exponent
is the slope of log time over log size. What does not grow pulls it below the expected one, as do caches and products
that are quicker the larger they are, which the reference's exponent shows; a needless pass over the data pulls it above.
Peak memory is that of Python's and NumPy's allocations at the largest size.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ratios
from growth_curves import Curve, curves
from threadpoolctl import threadpool_limits
from timing import Work, cpu_seconds, peak_mb

REPEATS = 3
SHORTEST = 0.02  # seconds of one timing
STEEPER = 0.15  # above the expected exponent: more than fits make of noise
FIGURE = Path(__file__).parent / "results" / "growth.svg"
PANELS = {"rows, entries": ("rows", "entries"), "classes": ("classes",), "dimensions": ("dimension",)}
PANELS |= {"clients, neighbours": ("clients", "neighbours")}


class Timed(NamedTuple):
    """CPU seconds of both kinds of work at every size, turn by turn, and the peaks at the largest."""

    ours: list[list[float]]
    reference: list[list[float]]
    peaks: tuple[float, float]


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of log seconds over log size.

    >>> round(exponent([1, 2, 4], [3.0, 12.0, 48.0]), 6)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def run() -> dict:
    """Every curve with its seconds, exponents and peak memory; the largest size of each as a measure."""
    with threadpool_limits(limits=1):
        timed = [(curve, _timed(curve)) for curve in curves(np.random.default_rng(0))]
    found = [_described(curve, times) for curve, times in timed]
    measures = [_measure(curve, times) for curve, times in timed]
    return {"threads": 1, "clock": "CPU", "curves": found, "measures": ratios.as_stored(measures)}


def _timed(curve: Curve) -> Timed:
    ours, reference, peaks = [], [], (0.0, 0.0)
    for size in curve.sizes:
        both = curve.work(size), curve.reference(size)
        for work in both:
            work()
        turns = [[_cpu(work) for work in both] for _ in range(REPEATS)]
        mine, theirs = map(list, zip(*turns, strict=True))
        ours.append(mine)
        reference.append(theirs)
        if size == curve.sizes[-1]:
            peaks = peak_mb(both[0]), peak_mb(both[1])
    return Timed(ours, reference, peaks)


def _described(curve: Curve, timed: Timed) -> dict:
    mine, theirs = ([min(turns) for turns in times] for times in (timed.ours, timed.reference))
    found = {
        "stage": curve.stage,
        "over": curve.over,
        "reference_is": curve.reference_is,
        "sizes": list(curve.sizes),
        "seconds": [float(f"{s:.3g}") for s in mine],
        "reference_seconds": [float(f"{s:.3g}") for s in theirs],
        "exponent": round(exponent(curve.sizes, mine), 2),
        "reference_exponent": round(exponent(curve.sizes, theirs), 2),
        "expected": curve.expected,
        "peak_mb": round(timed.peaks[0], 1),
    }
    print(found, flush=True)
    return found


def _measure(curve: Curve, timed: Timed) -> ratios.Measure:
    """The largest size against its reference."""
    name = f"growth_{curve.stage}_{curve.over}".lower().replace(" ", "_").replace(",", "")
    what = f"{curve.stage} at {curve.sizes[-1]:,} {curve.over}"
    return ratios.Measure(
        name, what, curve.reference_is, tuple(timed.ours[-1]), tuple(timed.reference[-1]), timed.peaks
    )


def _cpu(work: Work) -> float:
    started, calls = cpu_seconds(), 0
    while calls == 0 or cpu_seconds() - started < SHORTEST:
        work()
        calls += 1
    return (cpu_seconds() - started) / calls


def is_steeper(curve: dict) -> bool:
    """Whether time grows faster than its formula says and than its reference does, beyond what fits make of noise."""
    return curve["exponent"] > max(curve["expected"], curve["reference_exponent"]) + STEEPER


def table(run: dict) -> str:
    """The results as Markdown."""
    lines = [
        "| stage | grows with | sizes | CPU seconds | exponent | expected | reference | its exponent | ratio at the largest "
        "| peak MB |",
        "|---|---|---|---|---:|---:|---|---:|---:|---:|",
    ]
    for c in run["curves"]:
        sizes, seconds = " ".join(f"{s:,}" for s in c["sizes"]), " ".join(f"{s:.3g}" for s in c["seconds"])
        found = f"**{c['exponent']:.2f}**" if is_steeper(c) else f"{c['exponent']:.2f}"
        ratio = c["seconds"][-1] / c["reference_seconds"][-1]
        lines.append(
            f"| {c['stage']} | {c['over']} | {sizes} | {seconds} | {found} | {c['expected']:g} | {c['reference_is']} "
            f"| {c['reference_exponent']:.2f} | {ratio:.2f} | {c['peak_mb']:,} |"
        )
    steeper = [f"{c['stage']} over {c['over']}" for c in run["curves"] if is_steeper(c)]
    end = f"Steeper than expected, and than the reference, by more than {STEEPER}: {', '.join(steeper) or 'none'}."
    picture = (
        "![Time against size, every stage from its smallest size on, beside lines of the expected slopes](growth.svg)"
    )
    return "\n".join([*lines, "", end, "", picture])


def figure(run: dict, path: Path = FIGURE) -> None:
    """Time against size, both as multiples of the smallest, one panel for each thing that grows."""
    from ghofl_benchmarks import pictures

    if not pictures.can_draw():
        return
    with pictures.canvas(path, len(PANELS), (4.2, 3.8)) as axes:
        for ax, (title, names) in zip(axes, PANELS.items(), strict=True):
            _panel(ax, title, [c for c in run["curves"] if c["over"] in names])
            ax.set_ylabel("CPU time, × that of the smallest size")


def _panel(ax: Any, title: str, found: Sequence[dict]) -> None:
    times = np.array([1, 2, 4, 8])
    for slope in sorted({c["expected"] for c in found}):
        ax.plot(times, times**slope, "--", color="#9aa5b1", linewidth=1)
        ax.text(8.3, 8.0**slope, f"{slope:g}", color="#52606d", fontsize=8, va="center")
    for c in found:
        x, y = (np.array(c[key]) / c[key][0] for key in ("sizes", "seconds"))
        label = f"{c['stage']}: {c['exponent']:.2f}, expected {c['expected']:g}"
        ax.plot(x, y, "o-", label=label)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xticks(times, [f"{t} ×" for t in times])
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g} ×")
    ax.set_title(f"more {title}")
    if found:
        ax.legend(loc="upper left", bbox_to_anchor=(0.0, -0.1))
