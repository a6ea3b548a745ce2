"""One plot of many runs: a measure against a setting, with a line for every head."""

from typing import Any

from ghofl.errors import DatasetError
from ghofl.notebook import PALETTE
from ghofl.simulation.runs import SETTINGS, Runs, mean, reach, text_of

DASHES, MARKS = ("-", "--", ":", "-."), "os^Dv"
SHARES = ("accuracy", "balanced_accuracy", "macro_f1", "ece", "average_precision", "auc")  # which are shown in per cent
SPREAD = 0.3  # of the way to the next place, over which lines stand beside each other


def draw_runs(axes: Any, runs: Runs, x: str = "", y: str = "accuracy") -> None:
    """Draw means over seeds, with their 95 % intervals (see `reach`), onto matplotlib's `axes`.

    `x` is a setting, by default the one with the most values, or the head where nothing else varied; `y` is a measure. A
    head has one colour, and what else varied has one dash.
    """
    varied = [name for name in runs.varied if name not in ("seed", "head")]
    x = x or max(varied, key=lambda name: len({row.get(name) for row in runs.rows}), default="head")
    if x not in SETTINGS or not runs.rows or any(not isinstance(row.get(y), int | float) for row in runs.rows):
        raise DatasetError(
            f"cannot draw {y!r} against {x!r} for {len(runs.rows)} rows; give a measure and a setting of theirs."
        )
    places = list(dict.fromkeys(row.get(x) for row in runs.rows))
    if x != "head":
        places.sort(key=lambda value: (value is None, value or 0))
    factor, lines = 100.0 if y in SHARES else 1.0, dict[tuple[str, str], list[tuple[int, float, float]]]()
    for rows in runs.by_setting().values():
        others = ", ".join(f"{name.replace('_', ' ')} {text_of(rows[0].get(name))}" for name in varied if name != x)
        head = "" if x == "head" else rows[0]["head"]
        points = lines.setdefault((head, others), [])
        points.append((places.index(rows[0].get(x)), factor * mean(rows, y), factor * reach(rows, y)))
    colours, dashes = ({each: i for i, each in enumerate(dict.fromkeys(part))} for part in zip(*lines, strict=True))
    for i, ((head, others), points) in enumerate(lines.items()):
        at, means, reaches = zip(*sorted(points), strict=True)
        beside, dash = SPREAD * ((i + 0.5) / len(lines) - 0.5), dashes[others]
        axes.errorbar(
            [place + beside for place in at], means, reaches, label=", ".join(filter(None, (head, others))), capsize=2,
            color=PALETTE[colours[head] % len(PALETTE)], marker=MARKS[dash % len(MARKS)],
            linestyle="none" if x == "head" else DASHES[dash % len(DASHES)],
        )  # fmt: skip
    axes.set_xticks(range(len(places)), list(map(text_of, places)))
    axes.set(
        xlabel=x.replace("_", " "), ylabel=y.replace("_", " ") + (" %" if y in SHARES else "") + ", and 95 % interval"
    )
    if len(lines) > 1:
        axes.legend(frameon=False)
