"""A tidy table of runs: one row per run and head with every setting, version and measure, as a file and a picture."""

import csv
import html
import io
import itertools
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ghofl import files
from ghofl.errors import DatasetError, MissingExtraError
from ghofl.names import size
from ghofl.notebook import Printable, abbreviate
from ghofl.recipe import OPTIONS
from ghofl.rows.tables import read_table

Row = dict[str, Any]
# The columns of a run: how its rows were split, the options of its recipe that are one value, and its heads.
RECIPE_SETTINGS = tuple(name for name in OPTIONS if name not in ("anchor", "seed"))
SETTINGS = ("data", "clients", "alpha", "classes_per_client", "seed", "preset", *RECIPE_SETTINGS, "head")
MEASURES = (
    "accuracy", "balanced_accuracy", "macro_f1", "log_loss", "brier", "ece", "average_precision", "auc", "payload_bytes",
    "rounds", "fit_seconds", "ms_per_sample",
)  # fmt: skip
FORMATS = (".csv", ".parquet", ".json")
PICTURES = (".pdf", ".svg", ".png")
_TEXTS = {
    "run", "data", "data_sha256", "preset", "head", "heads", "recipe", "total_sha256", "date", "ghofl", "numpy", "python",
    "statistics", "asked", *(name for name, option in OPTIONS.items() if option.kind is str),
}  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Runs(Printable):
    """Rows of runs, each a dictionary with the same keys; `run` identifies a run.

    It prints as a table of means over seeds, and is one in a notebook; ``pandas.DataFrame(runs.rows)`` has everything.

    Examples
    --------
    >>> runs = Runs(({"run": "a", "head": "lda", "clients": 10, "seed": 0, "accuracy": 0.75},
    ...              {"run": "b", "head": "lda", "clients": 10, "seed": 1, "accuracy": 0.25}))
    >>> runs.summary()[0]["accuracy"], runs.summary()[0]["seeds"]
    (0.5, 2)
    >>> runs
    <Runs: runs 2; heads 1 (lda); varied seed; best lda, accuracy 50.00 %>
    >>> print(runs)
    head  seeds  accuracy %  ± sd
    lda       2       50.00  35.36
    """

    rows: tuple[Row, ...] = ()

    @classmethod
    def load(cls, path: str | Path) -> "Runs":
        """The rows of a file that `save` wrote."""
        path = Path(path)
        check_format(path)
        rows = _READ[path.suffix](path)
        if not all(isinstance(row, dict) and {"run", "head", "accuracy"} <= set(row) for row in rows):
            raise DatasetError(
                f"{path} is not a table of runs: it lacks the columns run, head or accuracy. Give another file."
            )
        return cls(tuple(rows))

    def save(self, path: str | Path) -> None:
        """Write all rows to a .csv, .parquet or .json file, whole or not at all."""
        path = Path(path)
        check_format(path)
        files.write(path, _WRITE[path.suffix](self.rows))

    def with_rows(self, rows: Iterable[Row]) -> "Runs":
        """The table with more rows."""
        return Runs((*self.rows, *rows))

    @property
    def ids(self) -> frozenset[str]:
        """The runs that are in the table."""
        return frozenset(row["run"] for row in self.rows)

    @property
    def varied(self) -> tuple[str, ...]:
        """The settings that were given more than one value; what follows from the rows, such as a fitted grid, is none."""
        asked = [setting_values(row) for row in self.rows]
        return tuple(name for name in SETTINGS if len({values.get(name) for values in asked}) > 1)

    def summary(self) -> list[Row]:
        """Means over seeds: a row per combination of the other settings, with the spread of the accuracy."""
        groups: dict[tuple, list[Row]] = {}
        for row in self.rows:
            values = setting_values(row)
            groups.setdefault(tuple(values.get(name) for name in SETTINGS if name != "seed"), []).append(row)
        return [
            {
                **dict(zip((name for name in SETTINGS if name != "seed"), values, strict=True)),
                "seeds": len(group),
                **{name: _mean([row.get(name) for row in group]) for name in MEASURES},
                "accuracy_sd": statistics.stdev([row["accuracy"] for row in group]) if len(group) > 1 else 0.0,
            }
            for values, group in groups.items()
        ]

    def table(self) -> list[list[str]]:
        """Means over seeds as texts, the names of the columns first: what varied, the head and its measures."""
        means, settings = self.summary(), [name for name in self.varied if name not in ("seed", "head")]
        shown = [column for column in _SHOWN if any(line.get(column.measure) not in column.usual for line in means)]
        names = [*(name.replace("_", " ") for name in settings), "head", "seeds", *(column.title for column in shown)]
        return [names] + [
            [*(_text(line[name]) for name in settings), line["head"], str(line["seeds"])]
            + ["" if line[each.measure] is None else each.write(line[each.measure]) for each in shown]
            for line in means
        ]

    def __str__(self) -> str:
        lines = self.table() if self.rows else []
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        left = lines[0].index("head") + 1 if lines else 0  # settings and heads; numbers follow
        sides = [str.ljust] * left + [str.rjust] * (len(widths) - left)
        padded = (
            "  ".join(side(text, width) for side, text, width in zip(sides, line, widths, strict=True))
            for line in lines
        )
        return "\n".join(line.rstrip() for line in padded) or repr(self)

    def _facts(self) -> Mapping[str, object]:
        best = max(self.summary(), key=lambda line: line["accuracy"], default=None)
        return {
            "runs": len(self.ids),
            "heads": abbreviate(self._heads),
            **({"varied": ", ".join(name for name in self.varied if name != "head")} if len(self.ids) > 1 else {}),
            **({} if best is None else {"best": f"{best['head']}, accuracy {100 * best['accuracy']:.2f} %"}),
        }

    def _repr_html_(self) -> str:
        lines = [
            "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in line)
            for tag, line in zip(itertools.chain(("th",), itertools.repeat("td")), self.table(), strict=False)
        ]
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"

    def plot(self, path: str | Path | None = None, x: str | None = None, y: str = "accuracy") -> Any:
        """A matplotlib `Figure` of a measure against a setting, for one column of a paper; at `path` as .pdf, .svg or .png.

        Means over seeds with their 95 % intervals, a colour per head; what else varied has lines of its own, and the legend
        has nothing that is the same for all. Without `x` it is the numeric setting with the most values, or the head.
        """
        if path is not None:
            check_picture(Path(path))
        x = x or self._most_varied()
        if not self.rows or x not in SETTINGS or y not in MEASURES:
            raise DatasetError(
                f"cannot draw {y!r} against {x!r} for {len(self.rows)} rows; settings are {', '.join(SETTINGS)}, and "
                f"measures {', '.join(MEASURES)}."
            )
        from ghofl.simulation import picture

        places = sorted({row.get(x) for row in self.rows}, key=_by_value) if x != "head" else self._heads
        figure = picture.draw(self._lines(x, y), x, y, {place: _text(place) for place in places})
        if path is not None:
            picture.save(figure, Path(path))
        return figure

    @property
    def _heads(self) -> list[str]:
        return list(dict.fromkeys(row["head"] for row in self.rows))

    def _most_varied(self) -> str:
        numbers = [name for name in self.varied if name not in _TEXTS and name != "seed"]
        return max(numbers, key=lambda name: len({row.get(name) for row in self.rows}), default="head")

    def _lines(self, x: str, y: str) -> dict[tuple[str, str], dict[Any, list[float]]]:
        """The values of a measure by line (the head, and what else varied) and by position on the axis."""
        others = [name for name in self.varied if name not in (x, "seed", "head")]
        out: dict[tuple[str, str], dict[Any, list[float]]] = {}
        for row in sorted(self.rows, key=lambda row: _by_value(row.get(x))) if x != "head" else self.rows:
            name = ", ".join(f"{n.replace('_', ' ')} {_text(row.get(n))}" for n in others)
            if row.get(y) is not None:
                out.setdefault((row["head"], name), {}).setdefault(row.get(x), []).append(row[y])
        return out


def setting_values(row: Row) -> Row:
    """The settings of a run as they were asked for: a recipe may have more, which follow from the rows."""
    if not row.get("asked"):
        return row
    return {**row, **dict.fromkeys(RECIPE_SETTINGS), **json.loads(row["asked"])}


class _Shown(NamedTuple):
    """A measure in a table for people."""

    measure: str
    title: str
    write: Callable[[float], str]
    usual: tuple[float | None, ...] = (None,)  # a column of nothing else is not shown


_SHOWN = (
    _Shown("accuracy", "accuracy %", lambda share: f"{100 * share:.2f}"),
    _Shown("accuracy_sd", "± sd", lambda share: f"{100 * share:.2f}"),
    _Shown("log_loss", "log loss", lambda value: f"{value:.4f}"),
    _Shown("rounds", "rounds", lambda count: f"{count:.0f}", (None, 1)),
    _Shown("payload_bytes", "sent per client", size),
)


def check_format(path: Path) -> None:
    """Raise unless a table of runs can be written under this suffix."""
    if path.suffix not in FORMATS:
        raise DatasetError(f"{path} ends in {path.suffix!r}; a table of runs ends in {', '.join(FORMATS)}.")


def check_picture(path: Path) -> None:
    """Raise unless a picture of runs can be written under this suffix."""
    if path.suffix not in PICTURES:
        raise DatasetError(f"{path} ends in {path.suffix!r}; a picture of runs ends in {', '.join(PICTURES)}.")


def _by_value(value: Any) -> tuple:
    return (value is None, str(type(value)), value or 0)


def _text(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _to_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    keys = list(dict.fromkeys(key for row in rows for key in row))
    files.write_csv(text, [keys, *([row.get(key, "") for key in keys] for row in rows)])
    return text.getvalue()


def _from_csv(path: Path) -> list[Row]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [{key: _value(key, text) for key, text in row.items()} for row in csv.DictReader(file, strict=True)]
    except (csv.Error, UnicodeDecodeError, ValueError) as damage:
        raise DatasetError(f"{path} is not a table of runs ({damage}).") from None


def _value(key: str | None, text: Any) -> Any:
    if key is None or not isinstance(text, str):
        raise DatasetError(f"a row has more or fewer columns than the first line: {text!r}")
    if key in _TEXTS or text == "":
        return files.unescape_formula(text) if key in _TEXTS else None
    if text in ("True", "False"):
        return text == "True"
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _to_parquet(rows: Sequence[Row]) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("parquet files need pyarrow: pip install pyarrow; or write a .csv.") from None
    keys = list(dict.fromkeys(key for row in rows for key in row))
    table = pyarrow.table({key: [row.get(key) for row in rows] for key in keys})
    target = pyarrow.BufferOutputStream()
    parquet.write_table(table, target)
    return target.getvalue().to_pybytes()


def _from_parquet(path: Path) -> list[Row]:
    columns = read_table(path)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _from_json(path: Path) -> list[Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as damage:
        raise DatasetError(f"{path} is not a table of runs ({damage}).") from None
    if not isinstance(found, list):
        raise DatasetError(f"{path} is not a table of runs: it is not a list of rows.")
    return found


_READ: Mapping[str, Any] = {".csv": _from_csv, ".parquet": _from_parquet, ".json": _from_json}
_WRITE: Mapping[str, Any] = {
    ".csv": _to_csv, ".parquet": _to_parquet, ".json": lambda rows: json.dumps(rows, indent=1) + "\n"
}  # fmt: skip
