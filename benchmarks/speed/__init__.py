"""Speed as ratios within one run on one machine: every figure is ours against a named reference, in turns.

Rows are random, of the sizes of real embeddings: what is timed does not depend on their values, and a run on another
day, or without the real data, measures the same work; only photos are embedded where weights are at hand. `ratios`
compares two runs.
"""

import hashlib
import statistics
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import ratios
from threadpoolctl import threadpool_limits
from timing import best

from speed import clients, heads, images, messages, starts

GROUPS = {
    "At a site: features and sums": clients,
    "Messages, totals, masks": messages,
    "Heads: fit and scores": heads,
    "Photos to embeddings": images,
    "Commands from start to end": starts,
}
NEEDS = {messages: "Flower's strategy", heads: "the paper's training loops", images: "embed"}
PACKED = {"pack": 0.25, "unpack": 0.5}  # GB/s promised
FIGURE = Path(__file__).parents[1] / "results" / "speed.svg"


def run() -> dict:
    """All measures, and what the machine is.

    Products run on one thread: two that wait for each other on a core that something else has too make times of
    nothing but luck (a spread of 26 % instead of 4 % beside other work), and ratios would depend on the number of cores.
    """
    with threadpool_limits(limits=1):
        limits = measured_limits()
        groups = {title: _measured(group) for title, group in GROUPS.items()}
    found = [measure for group in groups.values() for measure in group]
    return {
        **limits,
        "threads": 1,
        "clock": "CPU",
        "groups": {title: [m.name for m in group] for title, group in groups.items()},
        "left_out": {what: why for group, what in NEEDS.items() if (why := group.missing())},
        "measures": ratios.as_stored(found),
    }


def _measured(group: ModuleType) -> list[ratios.Measure]:
    return list(group.measures(np.random.default_rng(0)))


def measured_limits() -> dict[str, float]:
    """What this machine can do at most on one thread: products, copies and hashes."""
    values, out = np.ones(2**24), np.empty(2**24)
    gigabytes = values.nbytes / 1e9
    return {
        "float32_gflops": round(_gflops(np.float32), 1),
        "float64_gflops": round(_gflops(np.float64), 1),
        "copy_gb_per_s": round(gigabytes / best(lambda: np.copyto(out, values)), 1),
        "sha256_gb_per_s": round(gigabytes / best(lambda: hashlib.sha256(values.data).digest(), 3), 2),
    }


def _gflops(dtype: type) -> float:
    a = np.ones((2048, 2048), dtype)
    return 2 * 2048**3 / best(lambda: a @ a) / 1e9


def table(run: dict) -> str:
    """The results as Markdown."""
    found = {m.name: m for m in ratios.from_stored(run)}
    groups = run.get("groups", {"": list(found)})
    parts = [_introduction(run), *_promises(found)]
    for title, names in groups.items():
        rows = ratios.table_of_measures([found[name] for name in names])
        parts.append((f"### {title}\n\n" if title else "") + rows)
    if "groups" in run:
        parts.insert(1, "![Every ratio of our time to its reference's, on a logarithmic axis](speed.svg)")
    parts += [f"Left out: {what}, {why}." for what, why in run.get("left_out", {}).items()]
    return "\n\n".join(parts)


def _introduction(run: dict) -> str:
    threads = f", on {run['threads']} thread" if "threads" in run else ""
    more = (
        f"; copies in memory {run['copy_gb_per_s']:.1f} GB/s, sha256 {run['sha256_gb_per_s']:.1f}"
        if "copy_gb_per_s" in run
        else ""
    )
    return (
        f"Products on this machine: {run['float32_gflops']:.0f} GFLOP/s float32, {run['float64_gflops']:.0f} float64{more}"
        f"{threads}.\nMedians of {run.get('clock', 'clock')} seconds taken in turns (ours, reference, ours, …); the spread is "
        "that of the ratio of one turn, and empty\nwhere there is one time of each. Peak memory is what one call allocates, of "
        "commands and of `embed` that of the process.\nThe paper's sums, rules and training as loops were written from its "
        "text."
    )


def _promises(found: dict[str, ratios.Measure]) -> list[str]:
    """What was promised, and what became of it."""
    if "pack_copy" not in found:
        return []
    gigabytes = 8 * messages.ENTRIES / 1e9
    rates = {name: gigabytes / statistics.median(found[name].ours) for name in PACKED}
    told = ", ".join(f"{name} {rate:.1f} GB/s (promised: {PACKED[name]:g})" for name, rate in rates.items())
    missed = [m.what for m in found.values() if not m.keeps_its_promise]
    missed += [f"{name} at {PACKED[name]:g} GB/s" for name, rate in rates.items() if rate < PACKED[name]]
    return [
        f"4 million entries of 8 bytes: {told}.",
        "Promises missed: " + ("; ".join(missed) or "none") + ".",
    ]


def figure(run: dict, path: Path = FIGURE) -> None:
    """Every ratio on one logarithmic axis, what was promised beside it."""
    from ghofl_benchmarks import pictures

    if "groups" not in run or not pictures.can_draw():
        return
    found = {m.name: m for m in ratios.from_stored(run)}
    with pictures.canvas(path, 1, (8.4, 1.2 + 0.17 * (len(found) + 2 * len(run["groups"])))) as (ax,):
        place = 0
        for (title, names), colour in zip(run["groups"].items(), pictures.SERIES, strict=False):
            place = _rows(ax, title, [found[name] for name in names], colour, place)
        _finish(ax, place)


def _rows(ax: Any, title: str, found: list[ratios.Measure], colour: str, place: int) -> int:
    """One row per measure from a place on; the place after them."""
    ax.text(
        0.0, place, title, transform=ax.get_yaxis_transform(), fontsize=9, fontweight="bold", va="center", color=colour
    )
    for m in found:
        place += 1
        ax.plot([m.ratio, 1.0], [place, place], color=colour, linewidth=1, alpha=0.4)
        ax.plot(m.ratio, place, "o", color=colour, markersize=4.5)
        if m.at_most is not None:
            ax.plot(m.at_most, place, "|", color="#b91c1c", markersize=9, markeredgewidth=2)
        ax.text(-0.01, place, m.name, transform=ax.get_yaxis_transform(), fontsize=7, ha="right", va="center")
    return place + 2


def _finish(ax: Any, places: int) -> None:
    ax.axvline(1.0, color="#52606d", linewidth=1)
    ax.set_xscale("log")
    ax.set_ylim(places - 1, -1)
    ax.set_yticks([])
    ax.set_title("Time of every stage as a ratio to its reference in the same run")
    ax.set_xlabel("our time / the reference's (left of 1: quicker); red: what was promised")
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.grid(visible=False, axis="y")
    ax.spines["left"].set_visible(False)
