"""A record of many runs: a row per run and head, which a file keeps, so that a later call repeats none of them."""

import hashlib
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import hypot
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from ghofl import __version__, files
from ghofl.errors import DatasetError, MissingExtraError, RecipeError
from ghofl.names import size
from ghofl.notebook import Printable, abbreviate
from ghofl.recipe import OPTIONS
from ghofl.simulation.baselines import heads_of
from ghofl.simulation.federation import Federation, Progress
from ghofl.simulation.needs import recipe_for_head
from ghofl.simulation.results import remembering

Row = dict[str, Any]
SPLIT = ("clients", "alpha", "classes_per_client", "seed")
SETTINGS = (
    "data", *SPLIT[:3], *OPTIONS, "head", "split", "public", "fixed_recipe", "cohort", "versions"
)  # fmt: skip
VERSIONS = f"ghofl {__version__}, numpy {np.__version__}"
SAVE_SECONDS = 2.0  # between two saves of a file while runs go on


def is_several(name: str, value: Any) -> bool:
    """Whether this is a list of values of a setting, and not one value that is a list itself.

    >>> is_several("epsilon", [1.0, 2.0]), is_several("statistics", ["B"]), is_several("statistics", [("B",), ("S",)])
    (True, False, True)
    """
    if not isinstance(value, list | range):
        return False
    if name in ("statistics", "anchor"):
        return all(isinstance(each, tuple | None) for each in value)
    return not any(isinstance(each, list | np.ndarray) for each in value)  # the rows of each client


def combinations(given: Mapping[str, Any]) -> Iterator[Row]:
    """Every combination of the values of some settings; the first setting changes slowest."""
    lists = {name: list(value) if is_several(name, value) else [value] for name, value in given.items()}
    for name, values in lists.items():
        if not values:
            raise RecipeError(f"{name} is {given[name]}, a list without values; give one or more.")
    yield from (dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values()))


@dataclass(frozen=True, slots=True, repr=False)
class Runs(Printable):
    """A dictionary per run and head: how it was asked for, what came out, and the `id` that both follow from.

    It prints as a table of means over seeds.

    Examples
    --------
    >>> runs = Runs(({"id": "a", "head": "lda", "seed": 0, "accuracy": 0.75},
    ...              {"id": "b", "head": "lda", "seed": 1, "accuracy": 0.65}))
    >>> print(runs)
    head  seeds  accuracy %  ± 95 %
    lda       2       70.00   63.53
    """

    rows: tuple[Row, ...] = ()

    @classmethod
    def load(cls, path: str | Path) -> "Runs":
        """All runs in a file that `simulate` wrote."""
        try:
            rows = json.loads(Path(path).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as damage:
            raise DatasetError(f"{path} is not a file of runs ({damage}); give another one.") from None
        if not isinstance(rows, list) or not all(
            isinstance(r, dict) and {"id", "head", "accuracy"} <= {*r} for r in rows
        ):
            raise DatasetError(
                f"{path} is not a file of runs: it is no list of rows with id, head and accuracy; give another."
            )
        return cls(tuple(rows))

    def save(self, path: str | Path) -> None:
        """Write all runs to a file, whole or not at all."""
        files.write(path, json.dumps(self.rows, indent=1) + "\n")

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row per run and head; it has no column that no run used."""
        try:
            import pandas
        except ImportError:
            raise MissingExtraError("a DataFrame needs pandas: pip install pandas; `rows` has the same.") from None
        return pandas.DataFrame(self.rows)

    @property
    def varied(self) -> tuple[str, ...]:
        """The settings that have more than one value."""
        return tuple(name for name in SETTINGS if len({row.get(name) for row in self.rows}) > 1)

    def by_setting(self) -> dict[tuple, list[Row]]:
        """The rows of all seeds by the values of the other settings that vary."""
        names, groups = [name for name in self.varied if name != "seed"], dict[tuple, list[Row]]()
        for row in self.rows:
            groups.setdefault(tuple(row.get(name) for name in names), []).append(row)
        return groups

    def table(self) -> list[list[str]]:
        """Means over seeds as texts, the names of the columns first: what varied, the head and its measures."""
        varied = [name for name in self.varied if name not in ("seed", "head")]
        shown = [name for name in _SHOWN if any(row.get(name, 1) != 1 for row in self.rows)]
        names = [*varied, "head", "seeds", "accuracy %", "± 95 %", *(_SHOWN[name][0] for name in shown)]
        lines = [[name.replace("_", " ") for name in names]]
        for rows in self.by_setting().values():
            asked = [text_of(rows[0].get(name)) for name in varied]
            accuracy = [mean(rows, "accuracy"), reach(rows, "accuracy")]
            measures = [f"{100 * share:.2f}" for share in accuracy] + [_SHOWN[n][1](mean(rows, n)) for n in shown]
            lines.append([*asked, rows[0]["head"], str(len(rows)), *measures])
        return lines

    def __str__(self) -> str:
        lines = self.table()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        left = lines[0].index("head") + 1  # settings and heads; numbers follow
        sides = [str.ljust] * left + [str.rjust] * (len(widths) - left)
        padded = ((side(text, w) for side, text, w in zip(sides, line, widths, strict=True)) for line in lines)
        return "\n".join("  ".join(cells).rstrip() for cells in padded)

    def _facts(self) -> Mapping[str, object]:
        return {
            "rows": len(self.rows),
            "heads": abbreviate(list(dict.fromkeys(row["head"] for row in self.rows))),
            "varied": ", ".join(name for name in self.varied if name != "head"),
        }


_SHOWN: dict[str, tuple[str, Callable[[float], str]]] = {
    "log_loss": ("log loss", "{:.4f}".format), "rounds": ("rounds", "{:.0f}".format), "payload_bytes": ("sent per client", size)
}  # fmt: skip


def mean(rows: Sequence[Row], measure: str) -> float:
    """The mean of a measure over the rows of several seeds."""
    return statistics.fmean(row[measure] for row in rows)


def reach(rows: Sequence[Row], measure: str) -> float:
    """How far the 95 % confidence interval of that mean reaches to each side.

    It is the root of the sum of two squares: Student's t of the values over seeds, and, for a measure that comes with an
    interval of its own, half of that: where a fixed test set gives every seed the same accuracy, its own error remains.

    >>> round(reach([{"ece": 0.5}, {"ece": 0.7}], "ece"), 3), reach([{"ece": 0.5}], "ece")
    (1.271, 0.0)
    """
    values, of_seeds = [row[measure] for row in rows], 0.0
    if len(values) > 1:
        of_seeds = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / len(values) ** 0.5
    ends = [mean(rows, f"{measure}_{end}") if f"{measure}_{end}" in rows[0] else 0.0 for end in ("low", "high")]
    return hypot(of_seeds, (ends[1] - ends[0]) / 2)


def text_of(value: Any) -> str:
    """A setting as a text."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def run_all(
    federations: Sequence[Callable[[], Federation]],
    same: Row,
    output: str | Path | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Runs:
    """The runs of these federations, which are the `same` in some settings; each head that the file lacks is made."""
    report, path = progress or (lambda *_: None), Path(output or "runs.json")
    if path.suffix != ".json":
        raise DatasetError(f"{path} ends in {path.suffix!r}; runs are kept in a .json file, such as runs.json.")
    kept = Runs.load(path).rows if output and path.exists() and not fresh else ()
    digest = lru_cache(maxsize=1)(lambda data: mark(data.classes, data.x_train, data.y_train, data.x_test, data.y_test))
    known, ids, judge, saved = {row["id"]: row for row in kept}, list[str](), remembering(digest), time.monotonic()
    try:
        for i, prepare in enumerate(federations):
            report("runs", i, len(federations))
            one = prepare()
            about = {**same, **one.about, "versions": VERSIONS}
            recipe_of = {
                name: recipe_for_head(one.recipe, spec).fingerprint for name, spec in heads_of(one.methods).items()
            }
            id_of = {
                name: mark(about, digest(one.data), str(m), recipe_of.get(name, "")) for name, m in one.methods.items()
            }
            missing = {name: method for name, method in one.methods.items() if id_of[name] not in known}
            if missing:
                found = replace(one, methods=missing).run(report, judge=judge)
                found.clipping.warn(one.recipe)
                known |= {id_of[name]: {"id": id_of[name], **about, **row} for name, row in found.to_rows().items()}
            ids += id_of.values()
            if output and missing and time.monotonic() - saved > SAVE_SECONDS:
                Runs(tuple(known.values())).save(path)
                saved = time.monotonic()
        report("runs", len(federations), len(federations))
    finally:  # also where somebody stops it
        if output and len(known) > len(kept):
            Runs(tuple(known.values())).save(path)
    return Runs(tuple(known[each] for each in dict.fromkeys(ids)))


def mark(*values: Any) -> str:
    """A short digest of arrays and plain values."""
    digest = hashlib.sha256()
    for value in values:
        is_array = isinstance(value, np.ndarray)
        digest.update(json.dumps([value.shape, str(value.dtype)] if is_array else value, sort_keys=True).encode())
        digest.update(np.ascontiguousarray(value).data if is_array else b"")
    return digest.hexdigest()[:16]
