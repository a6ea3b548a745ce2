"""Choosing a head by its accuracy at the sites: an optional second, tiny message of additive counts.

A site scores a candidate head on its own rows and reports how often class i was predicted as class j. The counts of
sites add up, so the server learns each head's accuracy on everybody's rows, and sees no row.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.classifier import Classifier
from ghofl.errors import MessageError, RosterError
from ghofl.evaluation.confusion import Confusion
from ghofl.evaluation.tally import Tally

MAX_REPORT_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """How often one head was right at one or more sites."""

    head: str
    sha256: str
    recipe: str
    sites: tuple[str, ...]
    confusion: Confusion
    tally: Tally | None = None

    @classmethod
    def of(
        cls, path: Path, site: str, classifier: Classifier, confusion: Confusion, tally: Tally | None = None
    ) -> "Report":
        """The report of a site on a head file; with a tally, the head can be calibrated on it."""
        digest = _digest(path)
        return cls(classifier.head.name, digest, classifier.recipe.fingerprint, (site,), confusion, tally)

    def __add__(self, other: "Report") -> "Report":
        if (self.sha256, self.recipe) != (other.sha256, other.recipe):
            raise RosterError("reports on different head files do not add up; send every site the same file.")
        twice = set(self.sites) & set(other.sites) - {""}
        if twice:
            raise RosterError(
                f"site {min(twice)!r} reported twice on {self.head!r}; give one report per site and head."
            )
        tally = None if self.tally is None or other.tally is None else self.tally + other.tally
        confusion = self.confusion + other.confusion
        return Report(self.head, self.sha256, self.recipe, self.sites + other.sites, confusion, tally)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "kind": "evaluation",
            "head": self.head,
            "head_sha256": self.sha256,
            "recipe": self.recipe,
            "sites": list(self.sites),
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
        return cls(*texts, tuple(sites), Confusion(counts), tally)  # type: ignore[arg-type]


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
    if total.tally is None:
        raise MessageError("a report has no tally; ask the sites for 'ghofl evaluate --tally --json FILE'.")
    return total.tally.calibrate(classifier, total.confusion.rows), total


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
