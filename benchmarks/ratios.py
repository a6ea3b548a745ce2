"""What a speed run measured, as ratios, and the comparison of two runs: `make bench BASELINE=old.json`.

A measure times ghofl against a reference that does comparable work on the same machine, in turns, so that a machine
that is slow today slows both. What counts is the ratio of the medians, ours / reference; its spread is that of the
ratios of single turns. A measure is slower beyond noise when::

    new ratio / old ratio − 1  >  max(15 %, 3 × √(old spread² + new spread²))

Two stored runs are compared, without running anything, by ``python benchmarks/ratios.py old.json new.json``: exit
status 0 when nothing is slower, 1 when something is slower or no longer measured, 2 when a file cannot be read.
Runs of different machines say nothing about each other.
"""

import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TOLERANCE = 0.15
SPREADS = 3.0
MAD_TO_DEVIATION = 1.4826  # of a normal distribution
# The median deviation of a few values is too small on average: Croux & Rousseeuw 1992, section 4.
OF_FEW = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}


class BaselineError(ValueError):
    """A file that is not a stored speed run."""


@dataclass(frozen=True)
class Measure:
    """Seconds of some work of ours and of its reference, turn by turn."""

    name: str
    what: str
    reference_is: str
    ours: tuple[float, ...]
    reference: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Our median over the reference's: below 1 is quicker than it."""
        return statistics.median(self.ours) / statistics.median(self.reference)

    @property
    def spread(self) -> float | None:
        """The relative standard deviation of the ratio of one turn, from the median deviation; none with one turn."""
        ratios = [a / b for a, b in zip(self.ours, self.reference, strict=True)]
        turns = len(ratios)
        if turns < 2:
            return None
        middle = statistics.median(ratios)
        deviation = MAD_TO_DEVIATION * statistics.median(abs(r - middle) for r in ratios) / middle
        return OF_FEW.get(turns, turns / (turns - 0.8)) * deviation


@dataclass(frozen=True)
class Change:
    """One measure in two runs; a ratio is missing where a run does not have it."""

    name: str
    was: float | None
    now: float | None
    noise: float = TOLERANCE

    @property
    def change(self) -> float | None:
        """How much slower it is now, as a share; negative when it is quicker."""
        return None if self.was is None or self.now is None else self.now / self.was - 1.0

    @property
    def is_failure(self) -> bool:
        """Whether it is slower beyond noise, or no longer measured."""
        return self.now is None or (self.change is not None and self.change > self.noise)

    @property
    def verdict(self) -> str:
        """What the change means, in words."""
        if self.now is None:
            return "MISSING"
        if self.change is None:
            return "new"
        if self.is_failure:
            return "SLOWER"
        if self.noise >= 1.0:
            return "too noisy to tell"
        return "quicker" if self.change < -self.noise else "same"


def compare(old: Sequence[Measure], new: Sequence[Measure]) -> list[Change]:
    """Every measure of either run, those of the old one first."""
    before, after = {m.name: m for m in old}, {m.name: m for m in new}
    return [_change(name, before.get(name), after.get(name)) for name in {**before, **after}]


def _change(name: str, old: Measure | None, new: Measure | None) -> Change:
    if old is None or new is None:
        return Change(name, old and old.ratio, new and new.ratio)
    noise = max(TOLERANCE, SPREADS * math.hypot(old.spread or 0.0, new.spread or 0.0))
    return Change(name, old.ratio, new.ratio, noise)


def table_of_changes(changes: Sequence[Change]) -> str:
    """The comparison as aligned text, and what it comes to."""
    rows = [("measure", "was", "is", "change", "noise", "")]
    rows += [
        (c.name, _ratio(c.was), _ratio(c.now), _percent(c.change, "+"), _percent(c.noise), c.verdict) for c in changes
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:5], widths[1:5], strict=True)), row[5]]
        )
        for row in rows
    ]
    failures = [c.name for c in changes if c.is_failure]
    end = f"Slower beyond noise, or missing: {', '.join(failures)}." if failures else "Nothing is slower beyond noise."
    return "\n".join([*(line.rstrip() for line in lines), "", end])


def table_of_measures(measures: Sequence[Measure]) -> str:
    """One run as Markdown."""
    lines = ["| what | against | ours | reference | ratio | spread |", "|---|---|---:|---:|---:|---:|"]
    for m in measures:
        ours, reference = (_seconds(statistics.median(s)) for s in (m.ours, m.reference))
        spread = "" if m.spread is None else f"± {_percent(m.spread)}"
        lines.append(f"| {m.what} | {m.reference_is} | {ours} | {reference} | {_in_words(m.ratio)} | {spread} |")
    return "\n".join(lines)


def as_stored(measures: Sequence[Measure]) -> list[dict[str, Any]]:
    """Measures as plain values for a JSON file; four digits of a time are more than it is repeatable to."""
    rounded = lambda seconds: [float(f"{s:.4g}") for s in seconds]  # noqa: E731
    return [{**asdict(m), "ours": rounded(m.ours), "reference": rounded(m.reference)} for m in measures]


def from_stored(run: Any) -> list[Measure]:
    """The measures of a stored run, or `BaselineError`."""
    stored = run.get("measures") if isinstance(run, Mapping) else None
    if not isinstance(stored, list) or not stored:
        raise BaselineError("it has no list of measures")
    measures = [_measure(values) for values in stored]
    if len({m.name for m in measures}) < len(measures):
        raise BaselineError("it has two measures of one name")
    return measures


def _measure(values: Any) -> Measure:
    texts, times = ("name", "what", "reference_is"), ("ours", "reference")
    if not isinstance(values, Mapping) or set(values) != {*texts, *times}:
        raise BaselineError(f"a measure has not just {', '.join((*texts, *times))}")
    name = values["name"]
    if not all(isinstance(values[key], str) for key in texts):
        raise BaselineError(f"the texts of measure {name!r} are damaged")
    if not all(isinstance(values[key], list) and values[key] and all(map(_is_time, values[key])) for key in times):
        raise BaselineError(f"the times of measure {name!r} are not lists of positive seconds")
    if len(values["ours"]) != len(values["reference"]):
        raise BaselineError(
            f"measure {name!r} has {len(values['ours'])} times and {len(values['reference'])} references"
        )
    return Measure(name, values["what"], values["reference_is"], tuple(values["ours"]), tuple(values["reference"]))


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def read(path: str | Path) -> dict[str, Any]:
    """A stored run, checked, or `BaselineError` with the path, what is wrong with it and what to do."""
    try:
        run = json.loads(Path(path).read_text(encoding="utf-8"))
        from_stored(run)
    except OSError as error:
        why = error.strerror or str(error)
    except ValueError as error:  # BaselineError, damaged JSON, bytes that are not text
        why = str(error)
    else:
        return run
    raise BaselineError(
        f"{path} could not be read as a speed run: {why}. 'make bench PARTS=speed' writes one, benchmarks/results/speed.json."
    )


def report(old: Mapping[str, Any], new: Mapping[str, Any]) -> int:
    """Print how a new run compares with an old one; the exit status."""
    then, now = (run.get("threads", "an unknown number") for run in (old, new))
    if then != now:
        print(f"Note: threads then: {then}; now: {now}. Ratios may differ for that alone.\n")
    changes = compare(from_stored(old), from_stored(new))
    print(table_of_changes(changes))
    return int(any(c.is_failure for c in changes))


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.4g}"


def _percent(share: float | None, sign: str = "") -> str:
    return "-" if share is None else f"{100 * share:{sign}.0f} %"


def _in_words(ratio: float) -> str:
    return f"{ratio:.2f} × its time" if ratio > 0.5 else f"{1 / ratio:.3g} × faster"


def _seconds(seconds: float) -> str:
    return (
        f"{seconds:.2f} s"
        if seconds >= 0.1
        else f"{1e3 * seconds:.3g} ms"
        if seconds >= 1e-4
        else f"{1e6 * seconds:.3g} µs"
    )


def main(arguments: Sequence[str]) -> int:
    """Compare two stored runs; the exit status."""
    if len(arguments) != 2:
        print("Write two stored runs: python benchmarks/ratios.py old.json new.json", file=sys.stderr)
        return 2
    try:
        old, new = map(read, arguments)
    except BaselineError as error:
        print(error, file=sys.stderr)
        return 2
    return report(old, new)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
