"""A diagnosis with the sites' own reports: how good a head is on each one's own rows."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ghofl.errors import RosterError
from ghofl.evaluation.confusion import Confusion
from ghofl.evaluation.diagnosis import Diagnosis, SiteDiagnosis
from ghofl.evaluation.selection import Report

MARGIN, ERRORS = 0.15, 4.0  # below the others' recalls by this much and so many standard errors is too far


def with_reports(found: Diagnosis, reports: Iterable[Report]) -> Diagnosis:
    """The diagnosis with each site's accuracy and what the others' recalls of its classes predict, and flags from both.

    Each report is of one site, all are on the same head file, and sites without one stay as they are. Wrong labels at a
    site show here even where its message was made from other rows.
    """
    own = _by_site(found, reports)
    total = sum((report.confusion for report in own.values()), start=_no_rows(own))
    return replace(found, sites=tuple(_judge(site, own.get(site.name), total) for site in found.sites))


def _by_site(found: Diagnosis, reports: Iterable[Report]) -> dict[str, Report]:
    own: dict[str, Report] = {}
    names, heads, in_force = {site.name for site in found.sites}, set[str](), []
    for report in reports:
        name = ", ".join(report.sites)
        if name not in names:
            raise RosterError(
                f"there is a report of {name!r} but no message; the sites are {', '.join(sorted(names))}."
            )
        if name in own:
            raise RosterError(f"site {name!r} reported twice; give one report per site.")
        own[name] = report
        heads.add(report.sha256)
        in_force.append(report.in_force)
    if len(heads) > 1:
        raise RosterError(
            f"the reports are on different head files ({', '.join(s[:8] for s in sorted(heads))}); send every site the same file."
        )
    if any(each != in_force[0] for each in in_force):
        raise RosterError(
            f"the reports were made with different priors or thresholds, {in_force[0]} and others; every site evaluates with the "
            "same."
        )
    return own


def _no_rows(own: dict[str, Report]) -> Confusion:
    classes = next((len(report.confusion.counts) for report in own.values()), 0)
    return Confusion(np.zeros((classes, classes), dtype=np.int64))


def _judge(site: SiteDiagnosis, report: Report | None, total: Confusion) -> SiteDiagnosis:
    if report is None or not report.confusion.rows:
        return site
    counts = report.confusion.counts
    others = Confusion(total.counts - counts).recalls
    rows = np.where(np.isnan(others), 0, counts.sum(axis=1))  # of classes that others were judged on too
    site = replace(site, accuracy=report.confusion.accuracy)
    if not rows.any():
        return site
    expected = float(rows @ np.nan_to_num(others) / rows.sum())
    right = float(np.diag(counts)[rows > 0].sum() / rows.sum())
    error = float(np.sqrt(max(expected * (1 - expected), 0.01) / rows.sum()))
    if right >= expected - MARGIN - ERRORS * error:
        return replace(site, expected=expected)
    flag = f"the head is right on {right:.0%} of its rows, and on {expected:.0%} of such rows elsewhere"
    return replace(site, expected=expected, flags=(*site.flags, flag))
