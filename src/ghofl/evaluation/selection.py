"""Choosing a head by its accuracy at the sites: an optional second, tiny message of additive counts.

A site scores a candidate head on its own rows and reports how often class i was predicted as class j. The counts of
sites add up, so the server learns each head's accuracy on everybody's rows, and sees no row. A report is on a head file, or
by leave-out on a head of a total that the site's rows are in: then the sum over sites is federated cross-validation.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.classifier import Classifier
from ghofl.errors import MessageError, PrivacyError, RosterError
from ghofl.evaluation.confusion import Confusion
from ghofl.evaluation.leave_out import LeftOut
from ghofl.evaluation.tally import Tally
from ghofl.heads.spec import written
from ghofl.names import SITE_LENGTH, is_hex, is_name, shorten

MAX_REPORT_BYTES = 256 * 2**20
LONGEST = 1024  # characters of a class name in a report, or of a head with its options
MOST_HEADS, MOST_FOLDS, MOST_ROWS = 256, 2**31, 2**40
KINDS = ("evaluation", "leave-out")


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
    """How often one head was right at one or more sites, with the priors and thresholds that were in force there.

    `sha256` is that of the head's file. By leave-out there are `folds`, and `sha256` is that of the total's sums, `head` the
    head with its options that was asked for, and `built` the one that this is for the whole total.
    """

    head: str
    sha256: str
    recipe: str
    sites: tuple[str, ...]
    confusion: Confusion
    tally: Tally | None = None
    in_force: DecisionSettings = field(default_factory=DecisionSettings)
    folds: int = 0
    built: str = ""

    @classmethod
    def of(
        cls, path: Path, site: str, classifier: Classifier, confusion: Confusion, tally: Tally | None = None
    ) -> "Report":
        """The report of a site on a head file; with a tally, the head can be calibrated on it."""
        digest = _digest(path)
        about = (classifier.head, digest, classifier.recipe.fingerprint, (site,))
        return cls(*about, confusion, tally, DecisionSettings.of(classifier))

    @classmethod
    def of_left_out(cls, found: LeftOut) -> "Report":
        """The report of a site on its own rows, each predicted without its fold."""
        about = (found.spec, found.total, found.recipe.fingerprint, (found.site,))
        return cls(*about, found.metrics.confusion, found.tally, folds=found.folds, built=found.head)

    def __add__(self, other: "Report") -> "Report":
        self.check_comparable(other)
        if not self.folds and self.sha256 != other.sha256:
            raise RosterError(
                f"reports on different head files ({self.sha256[:8]}…, {other.sha256[:8]}…) do not add up; send every site the "
                "same file."
            )
        if (self.head, self.built) != (other.head, other.built) and self.folds:
            raise RosterError(
                f"reports on {self.head!r} ({self.built}) and {other.head!r} ({other.built}) do not add up; every site "
                "evaluates the same heads, with the same version of ghofl."
            )
        if self.confusion.counts.shape != other.confusion.counts.shape:
            raise RosterError(
                f"reports with {len(self.confusion.counts)} and {len(other.confusion.counts)} classes do not add up; one of "
                "them is damaged."
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

    def check_comparable(self, other: "Report") -> None:
        """Raise `RosterError` unless two reports, whatever their heads, may be compared."""
        if (bool(self.folds), self.recipe) != (bool(other.folds), other.recipe):
            raise RosterError(
                "reports on head files and by leave-out, or under two recipes, do not compare "
                f"({self.recipe[:8]}…, {other.recipe[:8]}…); give reports of one kind."
            )
        if self.folds and self.sha256 != other.sha256:
            raise RosterError(
                f"reports on different totals ({self.sha256[:8]}…, {other.sha256[:8]}…) do not add up; every site evaluates "
                "the same total."
            )
        if self.folds != other.folds:
            raise RosterError(
                f"reports by {self.folds} and by {other.folds} folds do not add up; every site gives the same --leave-out."
            )

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        by_leave_out = {"built": self.built, "total_sha256": self.sha256, "folds": self.folds}
        return {
            "kind": KINDS[bool(self.folds)],
            "head": self.head,
            **(by_leave_out if self.folds else {"head_sha256": self.sha256}),
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
    def of_values(cls, values: Any, source: object) -> "Report":
        """The report in plain values from outside, treated as hostile: types and counts are checked."""
        if not isinstance(values, dict) or values.get("kind") not in KINDS:
            raise MessageError(f"{source} is not a report; a site writes one with 'ghofl evaluate --json FILE'.")
        is_left_out = values["kind"] == KINDS[1]
        names = ("head", "total_sha256", "recipe", "built") if is_left_out else ("head", "head_sha256", "recipe")
        (head, sha256, recipe, *built), sites = map(values.get, names), values.get("sites")
        folds, most = (values.get("folds"), LONGEST) if is_left_out else (0, 64)
        is_whole = all(isinstance(t, str) and len(t) <= most for t in (head, sha256, recipe, *built))
        is_whole &= _are_sites(sites, have_names=is_left_out)
        if is_left_out:
            is_whole &= is_hex(sha256, 64) and type(folds) is int and 2 <= folds <= MOST_FOLDS
        if not is_whole or not all(str(text).isprintable() for text in (head, *built)):
            raise MessageError(f"{source} is a damaged report; ask the site to evaluate again.")
        confusion = Confusion(_counts(values.get("confusion"), source))
        tally = Tally.of_values(values.get("tally"), confusion.rows, source)
        in_force = DecisionSettings.of_values(values, len(confusion.counts), source)
        return cls(head, sha256, recipe, tuple(sites), confusion, tally, in_force, folds, *built)  # type: ignore[arg-type]


def load_reports(path: str | Path) -> list[Report]:
    """The reports of a site in a file, one for each head that it judged; the file may be anything."""
    path = Path(path)
    if path.stat().st_size > MAX_REPORT_BYTES:
        raise MessageError(f"{path} has over {MAX_REPORT_BYTES:,} bytes, and a report is smaller; give the right file.")
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        values = None
    heads = values.get("heads", [values]) if isinstance(values, dict) else [values]
    if not isinstance(heads, list) or not 1 <= len(heads) <= MOST_HEADS:
        raise MessageError(f"{path} is not a report on 1 to {MOST_HEADS} heads; ask the site to evaluate again.")
    return [Report.of_values(each, path) for each in heads]


def best_of(reports: Iterable[Report]) -> list[Report]:
    """One report per head, over all its sites, the most accurate first; every site reports on every head."""
    totals: dict[str, Report] = {}
    for report in reports:
        if (found := next(iter(totals.values()), None)) is not None:
            found.check_comparable(report)
        key = report.head if report.folds else report.sha256
        totals[key] = totals[key] + report if key in totals else report
    for one, other in combinations(totals.values(), 2):
        if missing := sorted(set(one.sites) ^ set(other.sites)):
            raise RosterError(
                f"{missing[0]!r} reported on one of {one.head!r} and {other.head!r} and not on the other; every site reports "
                "on every head, so that they are compared on the same rows."
            )
    return sorted(totals.values(), key=lambda report: -report.confusion.accuracy)


def calibrate_head(path: Path, classifier: Classifier, reports: Iterable[Report]) -> tuple[Classifier, Report]:
    """The head of a file, calibrated on the rows that sites reported on, and the sum of their reports.

    Of reports by leave-out those count that are on this head of the total that it was made from. Its novelty stays as it
    is: heads without a fold measure it on scales of their own.
    """
    (first, *others) = _on_this_head(path, classifier, list(reports))
    total = sum(others, start=first)
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


def _on_this_head(path: Path, classifier: Classifier, reports: list[Report]) -> list[Report]:
    """The reports on the head in a file; raises unless every site that reported has one."""
    for report in reports[1:]:
        reports[0].check_comparable(report)
    if not reports[0].folds:
        if reports[0].sha256 != _digest(path):
            raise RosterError(
                f"the reports are on another head file than {path}; sites evaluate the file to be calibrated."
            )
        return reports
    if classifier.recipe.privacy.epsilon is not None:
        raise PrivacyError(
            f"the recipe of the head in {path} has an epsilon, and no rows are left out of its totals; so these reports are not "
            "on this head."
        )
    name = written(classifier.head, classifier.options)
    if reports[0].sha256 != classifier.total:
        raise RosterError(
            f"the reports are on heads of the total {reports[0].sha256[:8]}…, and the head in {path} was not made from it alone; "
            "calibrate a head that 'ghofl head' made from that total."
        )
    built = [report for report in reports if report.built == name]
    found = [report for report in built if report.head == name] or built  # 'best' may be the same head
    if missing := {site for each in reports for site in each.sites} - {site for each in found for site in each.sites}:
        raise RosterError(
            f"{min(missing)!r} did not report on {name}, the head in {path}; every site gives it with --heads."
        )
    return found


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _are_sites(sites: Any, have_names: bool) -> bool:
    """Whether these can be the sites of a report; no name is there twice, but several may have none."""
    if not isinstance(sites, list) or not sites or not all(is_name(s) and len(s) <= SITE_LENGTH for s in sites):
        return False
    named = [site for site in sites if site]
    return len(set(named)) == len(named) and (named == sites or not have_names)


def _counts(rows: Any, path: object) -> np.ndarray:
    square = isinstance(rows, list) and all(isinstance(r, list) and len(r) == len(rows) for r in rows)
    is_whole = square and all(type(v) is int and v >= 0 for row in rows for v in row)
    if not is_whole or not 0 <= sum(map(sum, rows)) <= MOST_ROWS:
        raise MessageError(
            f"{path}: the confusion counts are not a square of whole numbers from 0, up to {MOST_ROWS} together; ask the site to "
            "evaluate again."
        )
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(rows))
