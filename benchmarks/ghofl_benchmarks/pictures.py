"""Pictures of results, with matplotlib where it is there."""

from collections.abc import Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

COLOURS = {"ours": "#1f6f8b", "baseline": "#b8500c", "ceiling": "#777777", "paper": "#c9b27c"}
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "ghofl", "font.size": 9}


@contextmanager
def canvas(path: Path, panels: int = 1, size: tuple[float, float] = (5.0, 3.8)):
    """Axes to draw on, saved at the end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context(STYLE):
        figure, axes = plt.subplots(1, panels, figsize=(size[0] * panels, size[1]), facecolor="white", squeeze=False)
        yield list(axes[0])
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def can_draw() -> bool:
    """Whether there is matplotlib; says so where there is not."""
    if find_spec("matplotlib") is None:
        print("  no picture: matplotlib is not installed (pip install matplotlib).")
        return False
    return True


def bars(ax: Any, rows: Sequence[dict], title: str, label: str = "method") -> None:
    """Accuracy of rows as horizontal bars, the paper's as marks beside."""
    rows = [row for row in rows if row["accuracy"] is not None]
    places = range(len(rows))
    ax.barh(places, [row["accuracy"] for row in rows], color=[COLOURS[row["kind"]] for row in rows])
    marks = [(i, row["paper"]) for i, row in zip(places, rows, strict=True) if row.get("paper") is not None]
    if marks:
        ax.plot([p for _, p in marks], [i for i, _ in marks], "|", color="black", markersize=11, label="the paper's")
        ax.legend(fontsize=7, loc="lower right")
    ax.set_yticks(list(places), [str(row[label]) for row in rows], fontsize=7)
    ax.invert_yaxis()
    ax.set_xlabel("test accuracy %")
    ax.set_title(title)
    ax.grid(alpha=0.3, axis="x")
