"""A picture of runs for one column of a paper: means over seeds with their intervals, and one colour per method."""

import io
import statistics
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.special import stdtrit

from ghofl import files
from ghofl.errors import MissingExtraError
from ghofl.notebook import PALETTE

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import EngFormatter, NullFormatter
except ImportError:
    raise MissingExtraError("a picture of runs needs matplotlib: pip install 'ghofl[report]'") from None

Line = tuple[str, str]  # the method, and what else varied
Points = Mapping[Any, Sequence[float]]  # the values of all seeds by the place on the axis
SIZE = (3.4, 2.6)  # inches: one column
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "ghofl", "pdf.fonttype": 42, "text.parse_math": False, "font.size": 8,
    "axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.25, "axes.spines.top": False, "axes.spines.right": False,
    "legend.frameon": False, "legend.fontsize": 7, "lines.linewidth": 1.2, "lines.markersize": 3.5,
    "axes.formatter.useoffset": False,
}  # fmt: skip
DASHES, MARKS = ("-", "--", ":", "-."), "os^Dv*"
SPREAD = 0.3  # of the way to the next place, over which lines stand beside each other
NARROW = 34  # letters that fit below each other in one line of a legend
LOGARITHMIC = 20.0  # times that the largest of some bytes is the smallest, from which on the axis is logarithmic
SHARES = ("accuracy", "balanced_accuracy", "macro_f1", "ece", "average_precision", "auc")
TITLES = {"payload_bytes": "sent per client", "fit_seconds": "seconds to fit", "ece": "calibration error"}


class Picture(Figure):
    """A figure that a notebook shows without being told to."""

    def _repr_html_(self) -> str:
        out = io.StringIO()
        write(self, out, "svg")
        return out.getvalue()[out.getvalue().index("<svg") :]


def interval_of(values: Sequence[float]) -> float:
    """How far the 95 % confidence interval of a mean reaches to each side: Student's t, for few values of unknown spread.

    >>> round(interval_of([0.5, 0.7]), 3), interval_of([0.5])
    (1.271, 0.0)
    """
    if len(values) < 2:
        return 0.0
    return float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / len(values) ** 0.5


def draw(lines: Mapping[Line, Points], x: str, y: str, labels: Mapping[Any, str]) -> Figure:
    """Lines of a measure over the places in `labels`; `x` and `y` are the names of both.

    Where the methods themselves are the places, there is a point for each and nothing joins them.
    """
    methods = list(dict.fromkeys(method for method, _ in lines))
    others = list(dict.fromkeys(other for _, other in lines))
    places, seeds = list(labels), max((len(v) for points in lines.values() for v in points.values()), default=0)
    factor = 100.0 if y in SHARES else 1.0
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = Picture(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        for i, ((method, other), points) in enumerate(lines.items()):
            number, many = (others.index(other), len(others)) if x == "head" else (i, len(lines))
            beside = SPREAD * ((number + 0.5) / many - 0.5)
            axes.errorbar(
                [places.index(place) + beside for place in points],
                [factor * statistics.fmean(values) for values in points.values()],
                [factor * interval_of(values) for values in points.values()],
                color=PALETTE[methods.index(method) % len(PALETTE)], capsize=2, elinewidth=0.8, **_style(others.index(other)),
            )  # fmt: skip
        is_long = sum(map(len, labels.values())) > NARROW // 2
        axes.set_xticks(
            range(len(places)), list(labels.values()), **({"rotation": 20, "ha": "right"} if is_long else {})
        )
        axes.set_xlim(-0.5, len(places) - 0.5)
        axes.set_xlabel("" if x == "head" else x.replace("_", " "))
        title = TITLES.get(y, y.replace("_", " ")) + (" %" if y in SHARES else "")
        axes.set_ylabel(title + (f"\n(95 % interval over {seeds} seeds)" if seeds > 1 else ""))
        if y in SHARES:  # an interval of few seeds reaches beyond what a share can be
            low, high = axes.get_ylim()
            axes.set_ylim(max(low, -1.0), min(high, 101.0))
        if y == "payload_bytes":
            _show_bytes(axes, [value for points in lines.values() for values in points.values() for value in values])
        _add_legend(figure, [] if x == "head" else methods, others)
    return figure


def _style(number: int) -> dict[str, Any]:
    return {"linestyle": DASHES[number % len(DASHES)], "marker": MARKS[number % len(MARKS)]}


def _show_bytes(axes: Axes, values: Sequence[float]) -> None:
    if min(values) > 0 and max(values) / min(values) > LOGARITHMIC:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(EngFormatter("B"))


def _add_legend(figure: Figure, methods: Sequence[str], others: Sequence[str]) -> None:
    """A colour for each of several methods, a line for each of several other settings, and nothing that all have."""
    entries = []
    if len(methods) > 1:
        entries += [Line2D([], [], color=PALETTE[i % len(PALETTE)], label=name) for i, name in enumerate(methods)]
    if len(others) > 1:
        entries += [Line2D([], [], color="#555555", label=name, **_style(i)) for i, name in enumerate(others)]
    if entries:
        longest = max(len(str(entry.get_label())) for entry in entries)
        columns = max(1, min(len(entries), 4, 2 * NARROW // (longest + 8)))
        figure.legend(handles=entries, loc="outside lower center", ncols=columns, columnspacing=1.2, handlelength=2.2)


def write(figure: Figure, target: Any, kind: str) -> None:
    """Write a figure as pdf, svg or png; the same figure gives the same bytes."""
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(target, format=kind, metadata=dates[kind], dpi=300)


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file, whole or not at all."""
    with files.open_to_replace(path) as file:
        write(figure, file, path.suffix[1:])
