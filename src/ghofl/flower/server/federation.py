"""A federation's run at the server: who is asked, what is accepted and kept, and what is built from it.

::

    plain    wait ─▶ ask for messages ─▶ keep and add each ─▶ total ─▶ heads, report
    secure   wait ─▶ join ─▶ advertise ─▶ share ─▶ mask ─▶ endorse ─▶ reveal ─▶ total ─▶ heads, report

Whatever carries the letters is an `Engine`. A site that fails in any way is reported by name and left out; the recipe
and the settings say whether the others are enough.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ghofl import files
from ghofl.classifier import Classifier, HeadSpec
from ghofl.errors import FederationError, GhoflError
from ghofl.flower.server import report
from ghofl.flower.server.asking import Engine
from ghofl.flower.server.folder import TOTAL, RunFolder
from ghofl.flower.server.plain_total import plain_total
from ghofl.flower.server.removal import check_removal, remove
from ghofl.flower.server.secure_total import secure_total
from ghofl.flower.server.settings import Settings
from ghofl.heads.novelty import check_novelty
from ghofl.moments import Layout
from ghofl.recipe import Recipe
from ghofl.wire.total import Total

log = logging.getLogger("flwr")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run: the total that heads were built from, the heads, and what happened to every site."""

    total: Total
    heads: dict[str, Path]
    sites: dict[str, str]


def run(engine: Engine, recipe: Recipe, settings: Settings) -> Outcome:
    """One run of a federation: collect what is missing, and build heads from the total.

    Guarantees
    ----------
    Every site is in the total at most once, however often runs were killed and repeated. A site that is left out
    is named in the report with the reason. With fewer sites than the recipe or the settings ask for,
    `FederationError` is raised and no head is written. Heads in the folder are those of its total: heads of an older
    one are set aside, and the report says so. A run that is refused before it begins, such as one that
    removes an unknown site, changes nothing but the file that says why.
    """
    specs = HeadSpec.parse_list(settings.heads)
    if settings.novelty:
        check_novelty(Layout.of(recipe))
    with RunFolder(settings.folder, recipe) as folder:
        sites: dict[str, str] = {}
        try:
            check_removal(folder, recipe, settings)
        except GhoflError as error:
            report.write_refusal(folder, str(error))
            raise
        try:
            notes = remove(folder, settings.remove, settings.forget)
            gather = secure_total if recipe.privacy.secure else plain_total
            total = gather(engine, recipe, settings, folder, sites)
            _check_enough(total, recipe, settings)
            notes += _set_aside(total, specs, folder)
            total.save(folder.path / TOTAL)
            folder.end_round()
            released = folder.release(total).for_heads()
            heads = _heads(released, specs, settings.novelty, folder)
        except GhoflError as error:
            report.write_failure(folder, recipe, sites, str(error))
            raise
        report.write(folder, total, released, heads, sites, notes)
        log.info("Done: %d sites, head %s, everything in %s", len(total.roster), ", ".join(heads), folder.path)
        return Outcome(released, heads, sites)


def _check_enough(total: Total, recipe: Recipe, settings: Settings) -> None:
    needed = max(settings.min_sites, recipe.privacy.min_cohort)
    if len(total.roster) < needed:
        raise FederationError(
            f"{len(total.roster)} sites are in the total and {needed} are needed; no head is built. What came is kept: "
            "run again when more sites are connected."
        )


def _heads(total: Total, specs: Mapping[str, HeadSpec], novelty: bool, folder: RunFolder) -> dict[str, Path]:
    paths = {}
    for name, spec in specs.items():
        paths[name] = folder.path / "heads" / _file(name)
        made = Classifier.fit(total, spec, warn=lambda warning: log.warning("%s", warning), novelty=novelty)
        made.save(paths[name])
        files.close_to_others(paths[name])
        log.info("Built head %s", name)
    return paths


def _set_aside(total: Total, specs: Mapping[str, HeadSpec], folder: RunFolder) -> list[str]:
    """Move away the heads that were built from another total and are not built again now."""
    if folder.counted_ids() == {entry.id for entry in total.roster}:
        return []
    moved = folder.set_aside({_file(name) for name in specs})
    if not moved:
        return []
    note = f"Heads of an older total, with other sites, are in {', '.join(moved)}; this run did not build them again."
    log.info("%s", note)
    return [note]


def _file(name: str) -> str:
    """The name of a head's file."""
    return f"{''.join(c if c.isalnum() else '-' for c in name).strip('-')}.ghofl"
