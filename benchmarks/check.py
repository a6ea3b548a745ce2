"""Measure the cheap stored cells again and fail where today's code gives other figures: `make bench-check`.

    python benchmarks/check.py [PART ...]

The cells are those of digits, wine, breast cancer and the synthetic Gaussians. All their randomness has fixed seeds, so a
figure may differ from the stored one by half a unit of the last digit that the page prints, and by nothing else; recipes
have the fingerprint that is stored. scikit-learn's figures are not measured again: they follow its version. After a
change that is meant to move them, `--store` puts what was measured into the files, and the pages are written again.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diagnosis
import false_alarms
import few_shots
import naive_bayes
import probabilities
from ghofl_benchmarks import defaults, made

RESULTS = Path(__file__).parent / "results"
SMALL = ("digits", "breast cancer", "wine")
CASES = ("digits", "two Gaussians, 8-d", "digits, 2 per class", "digits, 8 per class")
TEST_ROWS, SEEDS = 2000, 10
TIMES = {"seconds"}  # that no two runs share
Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A stored file: what names its rows, which of them are cheap, how they are measured, its last printed digit."""

    names: tuple[str, ...]
    is_cheap: Callable[[Row], bool]
    again: Callable[[], Iterable[Row]]
    unit: float

    def name_of(self, row: Row) -> str:
        """A row's name, such as `digits, 8, B`."""
        return ", ".join(str(row[name]) for name in self.names)


@dataclass(frozen=True)
class Drift:
    """A figure that is not what is stored; None where there is none."""

    part: str
    cell: str
    field: str
    stored: object
    now: object

    def __str__(self) -> str:
        return f"{self.part}: {self.cell}: {self.field} is {self.now}, stored is {self.stored}"


def few(counts: Iterable[str] = ("2", "4", "8", "16", "64", "all")) -> Iterator[Row]:
    """Cells of digits with so many rows per class."""
    for found in few_shots.results([few_shots.Cell("digits", count, TEST_ROWS) for count in counts], SEEDS):
        yield {**found, "gap": few_shots.gap(found)}


def calibrated() -> Iterator[Row]:
    """Our methods on the small cases."""
    for (kind, name), make in probabilities.cases().items():
        if name in CASES:
            yield from probabilities.of_ours(kind, name, make())


PARTS = {
    "few_shots": Part(
        ("dataset", "rows_per_class", "statistic"), lambda row: row["dataset"] in SMALL, few, 0.01
    ),
    "diagnosis": Part(
        ("set", "alpha", "kind"), lambda row: row["set"] in SMALL, lambda: diagnosis.results(("digits",)), 0.01
    ),
    "naive_bayes": Part(
        ("dataset", "rows_per_class"), lambda row: row["dataset"] in SMALL, lambda: naive_bayes.run(("digits",)), 0.1
    ),
    "false_alarms": Part(
        ("dataset", "rows_per_class", "statistic"), lambda row: row["dataset"] in SMALL,
        lambda: false_alarms.results(SMALL), 0.001,
    ),
    "probabilities": Part(
        ("data", "method"), lambda row: row["data"] in CASES and row["method"].startswith("ghofl"), calibrated, 0.0001
    ),
}  # fmt: skip


def drifts(name: str, stored: Iterable[Row], now: Iterable[Row]) -> Iterator[Drift]:
    """Where rows that were measured now are not those that are stored."""
    part = PARTS[name]
    old, new = ({part.name_of(row): _flat(row) for row in rows} for rows in (stored, now))
    for cell in {**old, **new}:
        before, after = old.get(cell, {}), new.get(cell, {})
        for field in sorted({*before, *after} - TIMES):
            pair = before.get(field), after.get(field)
            if not _is_same(*pair, part.unit / 2):
                yield Drift(name, cell, field, *pair)


def _flat(row: Row, before: str = "") -> Row:
    out: Row = {}
    for key, value in row.items():
        out |= _flat(value, f"{before}{key} ") if isinstance(value, dict) else {before + key: value}
    return out


def _is_same(stored: object, now: object, tolerance: float) -> bool:
    if isinstance(stored, int | float) and isinstance(now, int | float):
        return abs(stored - now) <= tolerance * (1 + 1e-9)
    return stored == now


def read(name: str) -> list[Row]:
    """A stored file."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def store(name: str, now: list[Row]) -> None:
    """Put measured rows in the places of those of the same name."""
    part, stored = PARTS[name], read(name)
    new = {part.name_of(row): row for row in now}
    rows = [new.pop(part.name_of(row), row) for row in stored]
    made.store(RESULTS / f"{name}.json", _text([*rows, *new.values()]), has_older_rows=len(stored) > len(now))


def _text(rows: list[Row]) -> str:
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def main(names: list[str], is_stored: bool = False) -> int:
    """Measure the named parts, or all, and say what drifted; the exit status."""
    if unknown := [name for name in names if name not in PARTS]:
        print(f"{unknown[0]!r} has no cheap cells; known are {', '.join(PARTS)}.", file=sys.stderr)
        return 2
    made.code()
    found: list[Drift] = []
    for name in names or PARTS:
        now, part = list(PARTS[name].again()), PARTS[name]
        found += (own := list(drifts(name, filter(part.is_cheap, read(name)), now)))
        print(f"{name}: {len(now)} rows measured again, {len(own)} figures drifted", flush=True)
        if is_stored:
            store(name, now)
    for drift in found:
        print(drift)
    return _stored(found) if is_stored else bool(found)


def _stored(found: list[Drift]) -> int:
    import run

    run.write_page()
    defaults.write_defaults()
    print(f"Stored, and the pages are written again; {len(found)} figures are other than before.")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all without any")
    parser.add_argument("--store", action="store_true", help="put what was measured into the stored files")
    given = parser.parse_args()
    sys.exit(main(given.parts, given.store))
