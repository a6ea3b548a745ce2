"""The second phase of a run: sites that took part get the total and say how good heads of it are on their own rows.

Each report is kept in a file before it counts, so a server that was killed asks only the sites that have not reported. The
total goes to nodes that are registered under the name of a site in it, and to none that the checks of `handing_out` refuse.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ghofl import files
from ghofl.custody.handing_out import Counts, HandOuts, counts_in, hide_sites
from ghofl.errors import FederationError, GhoflError, MessageError
from ghofl.evaluation.confusion import interval_text
from ghofl.evaluation.leave_out import FOLDS, chosen_head
from ghofl.evaluation.selection import MAX_REPORT_BYTES, DecisionSettings, Report, best_of, reports_in
from ghofl.flower.server.asking import Engine, Node, Progress, ask, site_of
from ghofl.flower.server.folder import HANDED_OUT, SELECTION, RunFolder
from ghofl.flower.server.settings import Settings
from ghofl.heads.spec import HeadSpec
from ghofl.recipe import Recipe
from ghofl.shapes import Int64
from ghofl.wire.letter import Letter
from ghofl.wire.releases import WAIT
from ghofl.wire.roster import Entry
from ghofl.wire.total import Total

log = logging.getLogger("flwr")
MOST_NOTES = 20  # about sites that are not in a selection
COUNT_BYTES, ROOM = 24, 2**20  # of a report: per count, and for everything else


def check_select(recipe: Recipe, settings: Settings) -> None:
    """Raise where heads are to be selected and the recipe does not hand the total out."""
    if not settings.select:
        return
    HeadSpec.parse_list(settings.select)
    if not recipe.privacy.hand_out:
        raise FederationError(
            f"select={settings.select!r} needs the exact total at the sites, and the recipe does not hand it out: agree on one "
            "with hand_out = true under [privacy], or leave select out."
        )


def select_head(
    engine: Engine, total: Total, settings: Settings, folder: RunFolder
) -> tuple[dict[str, HeadSpec], list[str]]:
    """The best of some heads by all sites' reports, and what to say about it; no head where no site reports."""
    asked, most = _Question.of(total, settings.select), _counts(total, folder)
    left_out = {entry.name: "its node is not connected under the name of the site" for entry in total.roster}
    reports = _kept(asked, most, folder)
    nodes = _recipients(engine, total, settings, folder, most, set(reports), left_out)
    progress = Progress("judged heads", len(nodes) + len(reports), len(reports))

    def accept(node: Node, letter: Letter) -> None:
        name = site_of(node, letter)
        found, entry = reports_in(letter.content, f"the report of {name}"), asked.entries[name]
        asked.check(found, entry, most[entry.id])
        files.write(folder.judged(entry.id), letter.content, files.PRIVATE)
        reports[name] = found
        progress.add(name, "")

    if nodes:
        query = Letter(
            {"recipe": total.recipe.to_toml(), "heads": settings.select, "folds": FOLDS}, hide_sites(total).to_bytes()
        )
        size = min(MAX_REPORT_BYTES, ROOM + COUNT_BYTES * len(asked.built) * len(total.recipe.classes) ** 2)
        ask(engine, "judge", dict.fromkeys(nodes, query), settings, accept, left_out, size)
    left_out = {name: why.removeprefix("left out: ") for name, why in left_out.items() if name not in reports}
    return _conclude(reports, left_out, asked, folder)


@dataclass(frozen=True, slots=True)
class _Question:
    """What sites are asked: which heads of which total; `built` says what each is for the whole total."""

    recipe: Recipe
    sha256: str
    built: Mapping[str, str]
    entries: Mapping[str, Entry]

    @classmethod
    def of(cls, total: Total, heads: str) -> "_Question":
        built = {str(spec): chosen_head(spec, total) for spec in HeadSpec.parse_list(heads).values()}
        return cls(total.recipe, total.moments.sha256, built, {entry.name: entry for entry in total.roster})

    def check(self, reports: list[Report], entry: Entry, most: Int64[np.ndarray, " classes"]) -> None:
        """Raise unless these are a site's reports on these heads, about at most as many rows per class as it can have."""
        about = [(r.head, r.built, r.sha256, r.recipe, r.sites, r.folds) for r in reports]
        expected = [
            (head, built, self.sha256, self.recipe.fingerprint, (entry.name,), FOLDS)
            for head, built in self.built.items()
        ]
        if about != expected or any(report.in_force != DecisionSettings() for report in reports):
            raise MessageError(
                f"its reports are not on {', '.join(self.built)} of this total, by {FOLDS} folds; ask it again."
            )
        counts = [report.confusion.counts.sum(axis=1) for report in reports]
        if any(each.shape != most.shape or (each > most).any() or (each != counts[0]).any() for each in counts):
            raise MessageError(
                f"its reports do not count the rows that it has in the total: at most {most.sum():,} in all."
            )


def _kept(asked: _Question, most: Counts, folder: RunFolder) -> dict[str, list[Report]]:
    """The reports that came before, on the same heads of the same total; others are deleted."""
    found = {}
    for entry in asked.entries.values():
        path = folder.judged(entry.id)
        try:
            if path.exists():
                reports = reports_in(path.read_bytes(), path)
                asked.check(reports, entry, most[entry.id])
                found[entry.name] = reports
        except MessageError:
            path.unlink()
    return found


def _recipients(
    engine: Engine,
    total: Total,
    settings: Settings,
    folder: RunFolder,
    counts: Counts,
    done: set[str],
    left_out: dict[str, str],
) -> list[Node]:
    """The nodes that get the total, each after the checks for it and with a line in the journal."""
    journal, nodes = HandOuts.of_user(total.recipe, folder.path / HANDED_OUT), {}
    inside = {entry.name for entry in total.roster}
    for node in engine.nodes():
        if node.name not in inside or node.name in nodes or node.name in done:
            continue
        try:
            with files.lock(journal.folder, WAIT):
                journal.hand_out(total, node.name, counts, settings.corruption)
            nodes[node.name] = node
        except GhoflError as error:
            left_out[node.name] = str(error)
    return list(nodes.values())


def _counts(total: Total, folder: RunFolder) -> Counts:
    """How many rows of each class a site can have, by its id: those of its message, or in secure rounds the total's."""
    ids = [entry.id for entry in total.roster]
    if total.recipe.privacy.secure:
        return dict.fromkeys(ids, total.moments.counts)
    return counts_in(total, map(folder.message, ids))


def _conclude(
    reports: Mapping[str, list[Report]], left_out: Mapping[str, str], asked: _Question, folder: RunFolder
) -> tuple[dict[str, HeadSpec], list[str]]:
    """Write the selection, and say what was found."""
    heads = best_of(report for each in reports.values() for report in each)
    about = {"total_sha256": asked.sha256, "folds": FOLDS, "sites": sorted(reports), "left_out": dict(left_out)}
    folder.write(SELECTION, {**about, "heads": [report.to_dict() for report in heads]})
    notes = [f"{name} is not in the selection of a head: {why}" for name, why in sorted(left_out.items())[:MOST_NOTES]]
    if len(left_out) > MOST_NOTES:
        notes.append(f"{len(left_out) - MOST_NOTES} more sites are not in it; {SELECTION} says why.")
    if not heads:
        return {}, [*notes, "No site reported on the heads to select from, so none was selected."]
    best = heads[0].confusion
    notes.append(
        f"Selected by {FOLDS} folds at each of {len(reports)} sites: {heads[0].head}, right on {100 * best.accuracy:.1f} % of "
        f"{best.rows:,} rows (95 % interval {interval_text(best.accuracy_interval)})."
    )
    log.info("%s", notes[-1])
    return {heads[0].head: HeadSpec.parse(heads[0].head)}, notes
