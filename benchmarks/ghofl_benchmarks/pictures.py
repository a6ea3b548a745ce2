"""Pictures of results, with matplotlib where it is there."""

from collections.abc import Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

SERIES = ("#1f6f8b", "#b8500c", "#4f7f2f", "#7d5ba6", "#a3862a", "#b03a5b", "#52606d")
COLOURS = {"ours": "#1f6f8b", "baseline": "#b8500c", "ceiling": "#777777", "paper": "#c9b27c"}
STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "ghofl", "font.size": 9, "axes.titlelocation": "left", "axes.titlesize": 10,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.25,
    "legend.frameon": False, "legend.fontsize": 8, "lines.markersize": 4, "axes.prop_cycle": f"cycler('color', {SERIES})",
}  # fmt: skip
BYTES = {10**4: "10 kB", 10**5: "100 kB", 10**6: "1 MB", 10**7: "10 MB", 10**8: "100 MB", 10**9: "1 GB"}
SMALL = 7.5  # size of labels beside points


@contextmanager
def canvas(path: Path, panels: int = 1, size: tuple[float, float] = (4.2, 3.2), across: int = 2):
    """Axes to draw on, so many across that a page shows their letters in the size of its own, saved at the end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context(STYLE):
        across, down = min(across, panels), -(-panels // across)
        size = (size[0] * across, size[1] * down)
        figure, axes = plt.subplots(down, across, figsize=size, facecolor="white", squeeze=False)
        for spare in axes.flat[panels:]:
            spare.remove()
        for ax in axes.flat[:panels]:
            ax.set(title=" ", xlabel=" ", ylabel=" ")  # names beside points are placed before all panels are drawn
        yield list(axes.flat[:panels])
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)


def can_draw() -> bool:
    """Whether there is matplotlib; says so where there is not."""
    if find_spec("matplotlib") is None:
        print("  no picture: matplotlib is not installed (pip install matplotlib).")
        return False
    return True


def legend(axes: Sequence[Any], across: int = 4) -> None:
    """One legend below all panels, of what any of them shows."""
    found = {text: mark for ax in axes for mark, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    axes[0].figure.legend(found.values(), found.keys(), loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=across)


def bytes_axis(ax: Any) -> None:
    """Bytes in words, on a logarithmic axis whose limits are set."""
    low, high = ax.get_xlim()
    shown = {value: text for value, text in BYTES.items() if low <= value <= high}
    ax.set_xticks(list(shown), list(shown.values()))


def name_points(
    ax: Any,
    named: Sequence[tuple[float, float, str, str]],
    drawn: Sequence[tuple[float, float]] = (),
    left: bool = True,
) -> None:
    """Names beside points (x, y, name, colour) that cover no other name and nothing `drawn`, at the right or also left.

    Limits of the axes must be set. A name that had to move far gets a line to its point.
    """
    ax.figure.tight_layout()
    place, back = ax.transData.transform, ax.transData.inverted().transform
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in (place(point[:2]) for point in (*named, *drawn))]
    for x, y, text, colour in sorted(named, key=lambda point: -point[1]):
        trial = ax.text(x, y, text, fontsize=SMALL)
        extent = trial.get_window_extent(ax.figure.canvas.get_renderer())
        trial.remove()
        # A browser's letters may be a little wider than those measured here.
        box = _free(*place((x, y)), 1.08 * extent.width, extent.height, taken, ax.bbox, left)
        taken.append(box)
        middle, is_left = (box[1] + box[3]) / 2, box[0] < place((x, y))[0]
        is_far = abs(middle - place((x, y))[1]) > extent.height
        ax.annotate(
            text, (x, y), back((box[2] if is_left else box[0], middle)), fontsize=SMALL, color=colour, va="center",
            ha="right" if is_left else "left", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6} if is_far else None,
        )  # fmt: skip


Box = tuple[float, float, float, float]


def _free(x: float, y: float, width: float, height: float, taken: list[Box], frame: Any, left: bool) -> Box:
    """The nearest place for a name beside a point that covers nothing."""
    gap = 7.0
    for step in sorted(range(-40, 41), key=abs):
        for start in (x + gap, x - gap - width)[: 1 + left]:
            middle = y + step * height / 2
            box = (start, middle - height / 2, start + width, middle + height / 2)
            is_inside = box[0] >= frame.x0 and box[2] <= frame.x1 + gap and box[1] >= frame.y0 and box[3] <= frame.y1
            if is_inside and not any(_overlap(box, other) for other in taken):
                return box
    return (x + gap, y - height / 2, x + gap + width, y + height / 2)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def along(points: Sequence[tuple[float, float]], steps: int = 12) -> list[tuple[float, float]]:
    """Points on the line that joins points, on a logarithmic first axis."""
    found = []
    for (a, y), (b, z) in pairwise(points):
        found += [(a * (b / a) ** (i / steps), y + (z - y) * i / steps) for i in range(steps + 1)]
    return found


def bars(ax: Any, rows: Sequence[dict], title: str, label: str = "method", places: int = 3) -> None:
    """Accuracy of rows as horizontal bars with their numbers, the paper's as marks, with room for so many bars."""
    rows = [row for row in rows if row["accuracy"] is not None]
    at, places = range(len(rows)), max(places, len(rows))
    ax.barh(at, [row["accuracy"] for row in rows], color=[COLOURS[row["kind"]] for row in rows], height=0.7)
    for i, row in zip(at, rows, strict=True):
        mark = row.get("paper") or 0.0
        end = mark if row["accuracy"] < mark < row["accuracy"] + 15 else row["accuracy"]  # no mark crosses a number
        beside = {"textcoords": "offset points", "va": "center", "fontsize": SMALL}
        ax.annotate(f"{row['accuracy']:.1f}", (end, i), (4, 0), **beside)
    marks = [(i, row["paper"]) for i, row in zip(at, rows, strict=True) if row.get("paper") is not None]
    if marks:
        ax.plot([p for _, p in marks], [i for i, _ in marks], "|", color="black", markersize=9, label="the paper's")
    ax.set_yticks(list(at), [str(row[label]) for row in rows], fontsize=SMALL)
    ax.set_ylim(places - 0.4, -0.6)  # a few bars are no thicker than many
    ax.set_xlim(0, 112)
    ax.set_xticks(range(0, 101, 20))
    ax.set_xlabel("test accuracy %")
    ax.set_title(title)
    ax.grid(visible=False, axis="y")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
