"""The charts of a report as inline SVG; colours of text and lines are the page's, in light and in dark mode."""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ghofl.errors import MissingExtraError
from ghofl.names import shorten
from ghofl.notebook import PALETTE
from ghofl.report.findings import Findings, HeadLine

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, StrMethodFormatter
except ImportError:
    raise MissingExtraError("reports are drawn with matplotlib: pip install 'ghofl[report]'") from None

BLUE, ORANGE, GREY = *PALETTE[:2], "#808890"
INK, LINE = "#010203", "#040506"  # stand for the page's own colours, which replace them
WIDTH = 6.0  # inches, whose letters are then as large as the page's, and can still be read on a phone
MOST_CELLS = 300  # classes of a confusion matrix that can still be drawn
MOST_NUMBERS = 30  # classes of one whose cells have room for numbers
WITH_DECIMALS = 12  # classes of one whose numbers have room for a decimal
FEWEST_JOINED = 3  # points; a line between two would show a course that nobody measured
MOST_NAMES = 40  # names along an axis
NEAR = 0.06  # of the range of accuracies: labels of nearer points would cover each other
MOST_BARS = 60  # clients in the chart of labels
MOST_LAYERS = 60  # classes in it; the rest is one layer
MOST_IN_LEGEND = 20
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "text.parse_math": False, "axes.formatter.useoffset": False, "font.size": 10,
    "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": LINE,
    "grid.color": LINE, "axes.grid": True, "axes.axisbelow": True, "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip
TITLES = {
    "payload": (
        "Accuracy against what a site sends",
        "One point per head, on a logarithmic axis of bytes; bars are 95 % intervals.",
    ),
    "accuracy": ("Accuracy of each head", "All heads need the same message; bars are 95 % intervals."),
    "view": (
        "The classes in two dimensions",
        "The two directions in which classes differ most. Each outline holds 68 % of a class, as the sums describe it; "
        "no row is drawn, because no row left a site.",
    ),
    "confusion": (
        "Which classes are confused",
        "The share of each true class that is predicted as each class, in per cent: the stronger the colour, the more.",
    ),
    "calibration": (
        "Confidence and accuracy",
        "On the dotted line, a head is right as often as it is confident. Larger points stand for more rows.",
    ),
    "labels": ("Who holds which classes", "Rows per class at each site, as plain messages show them."),
}


def charts_of(findings: Findings) -> dict[str, str]:
    """Every chart that there is data for, by the id of its place on the page; the same findings give the same bytes."""
    found = {
        "payload": _payload(findings),
        "accuracy": _accuracy(findings),
        "confusion": _confusion(findings),
        "calibration": _calibration(findings),
        "labels": _labels(findings),
        "view": _view(findings),
    }
    heights = {
        "accuracy": min(1.2 + 0.24 * len(findings.heads), 7.0),
        "confusion": min(2.6 + 0.3 * len(findings.classes), 5.4),
        "view": 4.8,
    }
    return {name: _svg(name, draw, heights.get(name, 3.6)) for name, draw in found.items() if draw is not None}


Drawing = Callable[[Axes], None]


def _svg(name: str, draw: Drawing, height: float) -> str:
    """A drawing as an SVG element with a title, in the page's colours, that shares no id with another one."""
    out = io.StringIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the browser has it, or shows its own sign
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        matplotlib.rcParams["svg.hashsalt"] = f"ghofl {name}"
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure.add_subplot())
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    return _in_page(name, out.getvalue())


def _in_page(name: str, file: str) -> str:
    body = file[file.index("<svg") :]
    body = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", body, count=1, flags=re.DOTALL)
    body = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", body)
    body = body.replace(INK, "currentColor").replace(LINE, "var(--line)")
    start = re.sub(r' (?:width|height|version)="[^"]*"', "", body[: body.index(">")])
    title = f'<title id="{name}-title">{". ".join(TITLES[name])}</title>'
    return f'{start} role="img" aria-labelledby="{name}-title">{title}{body[body.index(">") + 1 :].strip()}'


def _payload(findings: Findings) -> Drawing | None:
    heads = [h for h in findings.heads if h.accuracy is not None and h.payload_bytes]
    if len({h.payload_bytes for h in heads}) < 2:  # one size compares nothing
        return None
    sizes = np.array([h.payload_bytes or 1 for h in heads], dtype=np.float64)
    accuracies = np.array([100 * (h.accuracy or 0.0) for h in heads])
    reach = np.array([[_reach(h, end) for h in heads] for end in (0, 1)])
    is_left = 2 * np.log(sizes) < np.log(sizes).min() + np.log(sizes).max()

    def draw(axes: Axes) -> None:
        axes.errorbar(sizes, accuracies, yerr=reach, fmt="o", color=BLUE, elinewidth=1, markersize=7)
        for label, x, y, at_left in zip(point_labels(heads), sizes, accuracies, is_left, strict=True):
            side, shift = ("left", 8) if at_left else ("right", -8)
            axes.annotate(label, (x, y), (shift, 0), textcoords="offset points", ha=side, va="center")
        axes.set_xscale("log")
        if sizes.max() < 3 * sizes.min():  # a logarithmic axis needs about a decade for three ticks
            axes.set_xlim(sizes.min() / 3, sizes.max() * 3)
        has_decades = sizes.max() >= 1000 * sizes.min()
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if has_decades else (1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(EngFormatter(unit="B"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set(xlabel="what one site sends", ylabel="accuracy, %", xmargin=0.1)

    return draw


def _accuracy(findings: Findings) -> Drawing | None:
    heads = [h for h in findings.heads if h.accuracy is not None]
    if len(heads) < 2 or _payload(findings) is not None:
        return None
    accuracies = [100 * (h.accuracy or 0.0) for h in heads]
    reach = np.array([[_reach(h, end) for h in heads] for end in (0, 1)])

    def draw(axes: Axes) -> None:
        axes.errorbar(accuracies, range(len(heads)), xerr=reach, fmt="o", color=BLUE, elinewidth=1, markersize=7)
        axes.set_yticks(range(len(heads)), [_name(h.name) for h in heads])
        axes.set(xlabel="accuracy, %", ylim=(len(heads) - 0.4, -0.6))

    return draw


def _reach(head: HeadLine, end: int) -> float:
    """The distance from the accuracy to the lower (0) or upper end (1) of its 95 % interval, in per cent."""
    return 0.0 if head.interval is None else 100 * abs(head.interval[end] - (head.accuracy or 0.0))


def point_labels(heads: Sequence[HeadLine]) -> list[str]:
    """Labels that do not overlap: heads of one size that are almost equally good share one label, at the best of them."""
    accuracies = [h.accuracy or 0.0 for h in heads]
    near = NEAR * max(max(accuracies) - min(accuracies), 0.01)
    labels, groups = [""] * len(heads), list[list[int]]()
    for i in sorted(range(len(heads)), key=lambda i: (heads[i].payload_bytes or 0, -accuracies[i])):
        last = groups[-1] if groups else []
        is_near = bool(last) and heads[last[0]].payload_bytes == heads[i].payload_bytes
        if is_near and accuracies[last[0]] - accuracies[i] < near:
            last.append(i)
        else:
            groups.append([i])
    for group in groups:
        names = [_name(heads[i].name) for i in group]
        labels[group[0]] = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return labels


def _name(name: str) -> str:
    return shorten(name, 30)


def _confusion(findings: Findings) -> Drawing | None:
    if findings.judged is None or len(findings.classes) > MOST_CELLS:
        return None
    counts = np.array(findings.judged.counts)
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    colours = LinearSegmentedColormap.from_list("", ["#2f6fb000", BLUE])

    def draw(axes: Axes) -> None:
        axes.imshow(shares, cmap=colours, vmin=0.0, vmax=100.0, interpolation="none")
        axes.grid(visible=False)
        for i, j in np.argwhere(counts) if len(counts) <= MOST_NUMBERS else ():
            colour = "#ffffff" if shares[i, j] > 55.0 else INK
            few = len(counts) <= WITH_DECIMALS
            share = shares[i, j]
            number = f"{share:.1f}" if few else f"{share:.0f}" if share >= 0.5 else "<1"
            axes.text(j, i, number, ha="center", va="center", color=colour, fontsize=8 if few else 6)
        axes.set(xlabel="predicted", ylabel="true")
        _name_ticks(axes, findings.classes, "xy")

    return draw


def _name_ticks(axes: Axes, names: Sequence[str], which: str) -> None:
    """Names along axes: every name, or as many as there is room for."""
    places = range(0, len(names), -(-len(names) // MOST_NAMES))
    labels, size = [_name(names[i]) for i in places], 9 if len(names) <= WITH_DECIMALS else 7
    if "x" in which:
        is_wide = sum(map(len, labels)) > 60
        axes.set_xticks(
            places, labels, fontsize=size, rotation=40 if is_wide else 0, ha="right" if is_wide else "center"
        )
    if "y" in which:
        axes.set_yticks(places, labels, fontsize=size)


def _calibration(findings: Findings) -> Drawing | None:
    if findings.judged is None or not findings.judged.calibration:
        return None
    mean, right, rows = (np.array(part) for part in zip(*findings.judged.calibration, strict=True))

    def draw(axes: Axes) -> None:
        axes.plot([0, 100], [0, 100], ":", color=ORANGE, label="perfectly calibrated")
        if len(rows) >= FEWEST_JOINED:
            axes.plot(100 * mean, 100 * right, color=BLUE)
        axes.scatter(100 * mean, 100 * right, (5 + 12 * np.sqrt(rows / rows.max())) ** 2, color=BLUE, label="this head")
        axes.set(xlabel="confidence, %", ylabel="how often it was right, %")
        axes.legend(loc="upper left")

    return draw


def _labels(findings: Findings) -> Drawing | None:
    sites = [s for s in findings.sites if s.counts][:MOST_BARS]
    if not sites:
        return None
    counts = np.array([s.counts for s in sites]).T
    held = [c for c in np.argsort(-counts.sum(axis=1), kind="stable") if counts[c].any()]
    alone = sorted(held[:MOST_LAYERS])
    layers = [(_name(findings.classes[c]), PALETTE[c % len(PALETTE)], counts[c]) for c in alone]
    if rest := held[MOST_LAYERS:]:
        layers.append((f"{len(rest):,} other classes", GREY, counts[rest].sum(axis=0)))
    ends = np.cumsum([np.zeros(len(sites), dtype=np.int64), *(layer[2] for layer in layers)], axis=0)

    def draw(axes: Axes) -> None:
        for (name, colour, _), (low, high) in zip(layers, pairwise(ends), strict=True):
            axes.add_patch(PathPatch(_bars(low, high), facecolor=colour, linewidth=0, label=name))
        axes.set(xlabel="site", ylabel="rows", xlim=(-0.6, len(sites) - 0.4), ylim=(0, 1.05 * max(1, ends[-1].max())))
        axes.grid(visible=False, axis="x")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        _name_ticks(axes, [s.name for s in sites], "x")
        marks, named = axes.get_legend_handles_labels()
        shown = slice(None) if len(layers) <= MOST_IN_LEGEND else slice(-1, None) if rest else slice(0)
        if named[shown]:
            axes.legend(marks[shown], named[shown], loc="upper left", bbox_to_anchor=(1.0, 1.0), reverse=True)

    return draw


def _bars(low: np.ndarray, high: np.ndarray) -> Path:
    """One path of all bars of a class, which takes far fewer bytes than a shape for each."""
    boxes = [
        [(i - 0.4, a), (i + 0.4, a), (i + 0.4, b), (i - 0.4, b)] for i, (a, b) in enumerate(zip(low, high, strict=True))
    ]
    drawn = [Path([*box, box[0]], closed=True) for box, a, b in zip(boxes, low, high, strict=True) if b > a]
    return Path.make_compound_path(*drawn)


def _view(findings: Findings) -> Drawing | None:
    view = findings.view
    if view is None:
        return None

    def draw(axes: Axes) -> None:
        for i, (name, mean, outline) in enumerate(zip(view.names, view.means, view.outlines, strict=True)):
            colour = PALETTE[i % len(PALETTE)]
            axes.plot(*zip(*outline, strict=True), color=colour)
            axes.plot(*mean, "o", color=colour, markersize=5)
            above = (mean[0], max(y for _, y in outline))
            axes.annotate(_name(name), above, (0, 3), textcoords="offset points", ha="center", va="bottom")
        axes.set(xlabel="first direction", ylabel="second direction")
        axes.set_aspect("equal", adjustable="datalim")

    return draw
