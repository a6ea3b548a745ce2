"""Choosing a head by its accuracy at the sites: an optional second, tiny message of additive counts.

A site scores a candidate head on its own rows and reports how often class i was predicted as class j. The counts of
sites add up, so the server learns each head's accuracy on everybody's rows, and sees no row.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.classifier import Classifier
from ghofl.errors import MessageError, RosterError
from ghofl.evaluation.confusion import Confusion
from ghofl.evaluation.tally import Tally
from ghofl.names import shorten

MAX_REPORT_BYTES = 256 * 2**20
LONGEST = 1024  # characters of a class name in a report


@dataclass(frozen=True, slots=True)
class DecisionSettings:
    """What a head was used with: priors in the order of its classes (None: its own), and thresholds by class.

    >>> print(DecisionSettings((0.5, 0.5), {"ill": 0.2}))
    the priors 0.5, 0.5 and the thresholds ill=0.2
    """

    priors: tuple[float, ...] | None = None
    thresholds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, classifier: Classifier) -> "DecisionSettings":
        """The priors and thresholds in force in a classifier."""
        own = classifier.calibration.in_force
        return cls(None if own is None else tuple(own.tolist()), dict(classifier.thresholds))

    def __str__(self) -> str:
        some = "its own priors" if self.priors is None else f"the priors {', '.join(f'{p:g}' for p in self.priors[:5])}"
        listed = ", ".join(f"{shorten(name, 40)}={value:g}" for name, value in list(self.thresholds.items())[:5])
        return f"{some} and {f'the thresholds {listed}' if listed else 'no thresholds'}"

    @classmethod
    def of_values(cls, values: Mapping[str, Any], classes: int, source: object) -> "DecisionSettings":
        """Those in a report from outside; raises `MessageError` for values that cannot be in force."""
        priors, thresholds = values.get("priors", ()), values.get("thresholds")
        is_list = isinstance(priors, list) and len(priors) == classes and all(_is_share(p) for p in priors)
        if not (priors is None or is_list) or not isinstance(thresholds, dict) or len(thresholds) > classes:
            raise MessageError(
                f"{source} does not say which priors and thresholds were in force, or is damaged; ask the site to "
                "evaluate again."
            )
        if not all(len(name) <= LONGEST and _is_share(value) for name, value in thresholds.items()):
            raise MessageError(f"{source}: the thresholds are damaged; ask the site to evaluate again.")
        return cls(None if priors is None else tuple(map(float, priors)), {k: float(v) for k, v in thresholds.items()})


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """How often one head was right at one or more sites, with the priors and thresholds that were in force there."""

    head: str
    sha256: str
    recipe: str
    sites: tuple[str, ...]
    confusion: Confusion
    tally: Tally | None = None
    in_force: DecisionSettings = field(default_factory=DecisionSettings)

    @classmethod
    def of(
        cls, path: Path, site: str, classifier: Classifier, confusion: Confusion, tally: Tally | None = None
    ) -> "Report":
        """The report of a site on a head file; with a tally, the head can be calibrated on it."""
        digest = _digest(path)
        about = (classifier.head.name, digest, classifier.recipe.fingerprint, (site,))
        return cls(*about, confusion, tally, DecisionSettings.of(classifier))

    def __add__(self, other: "Report") -> "Report":
        if (self.sha256, self.recipe) != (other.sha256, other.recipe):
            raise RosterError(
                f"reports on different head files ({self.sha256[:8]}…, {other.sha256[:8]}…) do not add up; send "
                "every site the same "
                "file."
            )
        if self.in_force != other.in_force:
            raise RosterError(
                f"reports on {self.head!r} with {self.in_force} and with {other.in_force} do not add up; every site evaluates "
                "with the same --priors and --threshold, or without."
            )
        twice = set(self.sites) & set(other.sites) - {""}
        if twice:
            raise RosterError(
                f"site {min(twice)!r} reported twice on {self.head!r}; give one report per site and head."
            )
        tally = None if self.tally is None or other.tally is None else self.tally + other.tally
        confusion = self.confusion + other.confusion
        return replace(self, sites=self.sites + other.sites, confusion=confusion, tally=tally)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "kind": "evaluation",
            "head": self.head,
            "head_sha256": self.sha256,
            "recipe": self.recipe,
            "sites": list(self.sites),
            "priors": None if self.in_force.priors is None else list(self.in_force.priors),
            "thresholds": self.in_force.thresholds,
            "rows": self.confusion.rows,
            "accuracy": self.confusion.accuracy,
            "accuracy_interval": list(self.confusion.accuracy_interval),
            "confusion": self.confusion.counts.tolist(),
            **({} if self.tally is None else {"tally": self.tally.to_dict()}),
        }

    @classmethod
    def load(cls, path: str | Path) -> "Report":
        """Read a report, treating it as hostile: its size, types and counts are checked."""
        path = Path(path)
        if path.stat().st_size > MAX_REPORT_BYTES:
            raise MessageError(
                f"{path} has over {MAX_REPORT_BYTES:,} bytes, and a report is smaller; give the right file."
            )
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict) or values.get("kind") != "evaluation":
            raise MessageError(f"{path} is not a report; a site writes one with 'ghofl evaluate --json FILE'.")
        texts = [values.get(name) for name in ("head", "head_sha256", "recipe")]
        sites = values.get("sites")
        if not all(isinstance(t, str) and len(t) <= 64 for t in texts) or not _are_names(sites):
            raise MessageError(f"{path} is a damaged report; ask the site to evaluate again.")
        counts, tally = _counts(values.get("confusion"), path), Tally.of_values(values.get("tally"), path)
        in_force = DecisionSettings.of_values(values, len(counts), path)
        return cls(*texts, tuple(sites), Confusion(counts), tally, in_force)  # type: ignore[arg-type]


def best_of(reports: Iterable[Report]) -> list[Report]:
    """One report per head, over all its sites, the most accurate first."""
    totals: dict[str, Report] = {}
    for report in reports:
        totals[report.sha256] = totals[report.sha256] + report if report.sha256 in totals else report
    return sorted(totals.values(), key=lambda report: -report.confusion.accuracy)


def calibrate_head(path: Path, classifier: Classifier, reports: Iterable[Report]) -> tuple[Classifier, Report]:
    """The head of a file, calibrated on the rows that sites reported on, and the sum of their reports."""
    digest = _digest(path)
    (first, *others) = reports
    total = sum(others, start=first)
    if total.sha256 != digest:
        raise RosterError(
            f"the reports are on another head file than {path}; sites evaluate the file to be calibrated."
        )
    if total.in_force != DecisionSettings.of(classifier):
        raise RosterError(
            f"the reports were made with {total.in_force}, and the head in {path} has {DecisionSettings.of(classifier)}: "
            "what is fitted to them would be wrong for it. Ask the sites for reports without --priors and --threshold."
        )
    if total.tally is None:
        raise MessageError(
            f"a report on {total.head!r} has no tally; ask the sites for 'ghofl evaluate --tally --json FILE'."
        )
    return total.tally.calibrate(classifier, total.confusion.rows), total


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _are_names(sites: Any) -> bool:
    return isinstance(sites, list) and all(isinstance(s, str) and len(s) <= 64 for s in sites)


def _counts(rows: Any, path: Path) -> np.ndarray:
    square = isinstance(rows, list) and all(isinstance(r, list) and len(r) == len(rows) for r in rows)
    if not square or not all(type(v) is int and 0 <= v < 2**53 for row in rows for v in row):
        raise MessageError(
            f"{path}: the confusion counts are not a square of whole numbers from 0; ask the site to evaluate again."
        )
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(rows))
