"""What a timed part measured, as ratios, and the comparison of two runs: `make bench BASELINE=old`.

A measure times ghofl against a reference that does comparable work on the same machine, in turns, so that a machine
that is slow today slows both. What counts is the ratio of the medians, ours / reference; its spread is that of the
ratios of single turns. A measure is slower beyond noise when::

    new ratio / old ratio − 1  >  max(15 %, 3 × √(old spread² + new spread²))

and its memory is larger beyond noise when its peak grew by more than 15 % and a megabyte. Every stored file of results
that has `measures` is a run. Two are compared, without running anything, by ``python benchmarks/ratios.py old new``,
two files or two folders of files: exit status 0 when nothing is slower or larger, 1 when something is or is no longer
measured, 2 when a file cannot be read. Runs of different machines say nothing about each other.
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
MEGABYTE = 1.0  # memory that grew by less is the same
SPREADS = 3.0
MAD_TO_DEVIATION = 1.4826  # of a normal distribution
# The median deviation of a few values is too small on average: Croux & Rousseeuw 1992, section 4.
OF_FEW = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}


class BaselineError(ValueError):
    """A file that is not a stored run of a timed part."""


@dataclass(frozen=True)
class Measure:
    """Seconds of some work of ours and of its reference, turn by turn.

    `peak_mb` is the peak memory of either, None where it was not measured; `at_most` is the ratio that was promised.
    """

    name: str
    what: str
    reference_is: str
    ours: tuple[float, ...]
    reference: tuple[float, ...]
    peak_mb: tuple[float | None, float | None] = (None, None)
    at_most: float | None = None

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

    @property
    def keeps_its_promise(self) -> bool:
        """Whether the ratio is at most what was promised; true where nothing was."""
        return self.at_most is None or self.ratio <= self.at_most


@dataclass(frozen=True)
class Change:
    """One measure in two runs, its ratio or its memory; a value is missing where a run does not have it."""

    name: str
    was: float | None
    now: float | None
    noise: float = TOLERANCE
    is_memory: bool = False

    @property
    def change(self) -> float | None:
        """How much slower or larger it is now, as a share; negative when it is less."""
        return None if self.was is None or self.now is None else self.now / self.was - 1.0

    @property
    def is_failure(self) -> bool:
        """Whether it is slower or larger beyond noise, or no longer measured."""
        return self.now is None or (self.change is not None and self.change > self.noise)

    @property
    def verdict(self) -> str:
        """What the change means, in words."""
        if self.now is None:
            return "MISSING"
        if self.change is None:
            return "new"
        if self.is_failure:
            return "LARGER" if self.is_memory else "SLOWER"
        if self.noise >= 1.0 and not self.is_memory:
            return "too noisy to tell"
        less = "smaller" if self.is_memory else "quicker"
        return less if self.change < -self.noise else "same"


def compare(old: Sequence[Measure], new: Sequence[Measure]) -> list[Change]:
    """Every measure of either run, those of the old one first; its memory after it, where the old run has it."""
    before, after = {m.name: m for m in old}, {m.name: m for m in new}
    return [change for name in {**before, **after} for change in _changes(name, before.get(name), after.get(name))]


def _changes(name: str, old: Measure | None, new: Measure | None) -> list[Change]:
    if old is None or new is None:
        return [Change(name, old and old.ratio, new and new.ratio)]
    noise = max(TOLERANCE, SPREADS * math.hypot(old.spread or 0.0, new.spread or 0.0))
    changes, was = [Change(name, old.ratio, new.ratio, noise)], old.peak_mb[0]
    if was is not None:
        changes.append(Change(f"{name}, MB", was, new.peak_mb[0], max(TOLERANCE, MEGABYTE / max(was, 1e-9)), True))
    return changes


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
    end = (
        f"Slower or larger beyond noise, or missing: {'; '.join(failures)}."
        if failures
        else "Nothing is slower or larger beyond noise."
    )
    return "\n".join([*(line.rstrip() for line in lines), "", end])


def table_of_measures(measures: Sequence[Measure]) -> str:
    """One run as Markdown."""
    lines = [
        "| what | against | ours | reference | ratio | spread | promised | peak MB, ours | reference |",
        "|---|---|---:|---:|---:|---:|---|---:|---:|",
    ]
    for m in measures:
        ours, reference = (_seconds(statistics.median(s)) for s in (m.ours, m.reference))
        cells = [m.what, m.reference_is, ours, reference, _in_words(m.ratio)]
        cells += ["" if m.spread is None else f"± {_percent(m.spread)}", _promise(m), *map(_megabytes, m.peak_mb)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _promise(m: Measure) -> str:
    if m.at_most is None:
        return ""
    promised = f"≤ {m.at_most:g} ×" if m.at_most > 0.5 else f"{1 / m.at_most:g} × faster"
    return f"{promised}: {'kept' if m.keeps_its_promise else '**missed**'}"


def _megabytes(peak: float | None) -> str:
    return "" if peak is None else f"{peak:,.0f}" if peak >= 10 else f"{peak:.1f}"


def as_stored(measures: Sequence[Measure]) -> list[dict[str, Any]]:
    """Measures as plain values for a JSON file; four digits of a time are more than it is repeatable to."""
    return [_as_stored(m) for m in measures]


def _as_stored(m: Measure) -> dict[str, Any]:
    rounded = {key: [float(f"{s:.4g}") for s in getattr(m, key)] for key in ("ours", "reference")}
    found = {**asdict(m), **rounded, "peak_mb": [peak and round(peak, 3) for peak in m.peak_mb]}
    unset = {"peak_mb": [None, None], "at_most": None}
    return {key: value for key, value in found.items() if key not in unset or value != unset[key]}


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
    if not isinstance(values, Mapping) or not {*texts, *times} <= set(values) <= {*texts, *times, "peak_mb", "at_most"}:
        raise BaselineError(f"a measure has not just {', '.join((*texts, *times))}, and perhaps peak_mb and at_most")
    name = values["name"]
    if not all(isinstance(values[key], str) for key in texts):
        raise BaselineError(f"the texts of measure {name!r} are damaged")
    if not all(isinstance(values[key], list) and values[key] and all(map(_is_positive, values[key])) for key in times):
        raise BaselineError(f"the times of measure {name!r} are not lists of positive seconds")
    if len(values["ours"]) != len(values["reference"]):
        raise BaselineError(
            f"measure {name!r} has {len(values['ours'])} times and {len(values['reference'])} references"
        )
    peaks, at_most = values.get("peak_mb", [None, None]), values.get("at_most")
    if not isinstance(peaks, list) or len(peaks) != 2 or not all(p is None or _is_number(p) for p in peaks):
        raise BaselineError(f"peak_mb of measure {name!r} is not two numbers of megabytes")
    if at_most is not None and not _is_positive(at_most):
        raise BaselineError(f"at_most of measure {name!r} is not a positive number")
    ours, reference = (tuple(values[key]) for key in times)
    return Measure(name, values["what"], values["reference_is"], ours, reference, (peaks[0], peaks[1]), at_most)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


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
        f"{path} could not be read as a timed run: {why}. 'make bench PARTS=speed' writes one, benchmarks/results/speed.json."
    )


def runs_in(path: str | Path, parts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The stored runs of a baseline by part: those of a folder of results, or one file, which is of the only part.

    Raises `BaselineError` where there is none of these parts, or one cannot be read.
    """
    if not Path(path).is_dir():
        if len(parts) != 1:
            raise BaselineError(
                f"{path} is one file, and {', '.join(parts)} are several timed parts; give the folder that it lies in, a "
                "copy of benchmarks/results."
            )
        return {parts[0]: read(path)}
    there = [part for part in parts if (Path(path) / f"{part}.json").is_file()]
    if not there:
        raise BaselineError(f"{path} has none of {', '.join(f'{part}.json' for part in parts) or 'the timed runs'}.")
    return {part: read(Path(path) / f"{part}.json") for part in there}


def report(old: Mapping[str, Any], new: Mapping[str, Any]) -> int:
    """Print how a new run compares with an old one; the exit status."""
    for key, unknown in (("threads", "an unknown number"), ("clock", "an unknown one")):
        then, now = (run.get(key, unknown) for run in (old, new))
        if then != now:
            print(f"Note: {key} then: {then}; now: {now}. Ratios may differ for that alone.\n")
    changes = compare(from_stored(old), from_stored(new))
    print(table_of_changes(changes))
    return int(any(c.is_failure for c in changes))


def report_all(old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]) -> int:
    """Print how every part of an old run compares; the exit status, 1 also where a part is not there any more."""
    status = 0
    for part, run in old.items():
        print(f"{part}:")
        status |= report(run, new[part]) if part in new else _missing(part)
        print()
    return status


def _missing(part: str) -> int:
    print(f"It was measured then and is not now: {part} is missing.")
    return 1


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
    """Compare two stored runs, or two folders of them; the exit status."""
    if len(arguments) != 2:
        print("Write two stored runs, or two folders: python benchmarks/ratios.py old.json new.json", file=sys.stderr)
        return 2
    try:
        if Path(arguments[0]).is_dir():
            parts = sorted(path.stem for path in Path(arguments[0]).glob("*.json") if _is_timed(path))
            old, new = (runs_in(path, parts) for path in arguments)
        else:
            old, new = ({"run": read(path)} for path in arguments)
    except BaselineError as error:
        print(error, file=sys.stderr)
        return 2
    return report_all(old, new)


def _is_timed(path: Path) -> bool:
    return '"measures":' in path.read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
