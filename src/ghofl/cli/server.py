"""Commands of the server: `sum`, `subtract`, `release` and `head`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from ghofl import files
from ghofl.classifier import Classifier, HeadSpec
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, Preset, TotalOutput, complete_heads
from ghofl.cli.diagnose import check_no_promise, find_misfits, report_quarantine
from ghofl.cli.facts import promise_result, total_result, warn_of_clipping
from ghofl.heads.plugins import BEST
from ghofl.heads.spec import DEFAULT_HEAD
from ghofl.recipe import Recipe
from ghofl.wire.batch import Batch, batches
from ghofl.wire.message import Message
from ghofl.wire.releases import Releases
from ghofl.wire.total import Aggregator, Total

WAIT = 60.0  # seconds for another release of the same folder

TotalFile = Annotated[Path, typer.Argument(help="A total written by 'ghofl sum'.")]


def add_up(
    output: TotalOutput,
    messages: Annotated[
        list[Path] | None, typer.Argument(help="Message files of sites, or folders of them (NAME.ghofl).")
    ] = None,
    *,
    recipe: Annotated[Path | None, typer.Option("--recipe", "-r", help="The recipe all sites share.")] = None,
    to: Annotated[
        list[Path] | None, typer.Option(help="An earlier total to add messages to; several totals are joined into one.")
    ] = None,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Leave out messages that do not fit the others; exit code 3 if any.")
    ] = False,
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: add messages up, one at a time, each site once.

    Totals joined by several --to are, to the bit, the total of all their messages.

    Example: ghofl sum north.ghofl south.ghofl --recipe recipe.toml -o total.ghofl
    """
    console.check_outputs(json, force, output)
    if (recipe is None) == (not to):
        raise typer.BadParameter("give either --recipe for a new total, or --to to add messages to an earlier one.")
    paths = _files_in(messages or [])
    if not paths and len(to or []) < 2:
        raise typer.BadParameter("give messages to add up, or several totals to join with --to.")
    start = _join(to or [])
    agreed = start.recipe if start is not None else Recipe.load(recipe)  # type: ignore[arg-type]
    if quarantine:
        check_no_promise(agreed)
    aside = find_misfits(paths, agreed, start) if quarantine else {}
    total = _add([path for path in paths if path not in aside], agreed, start)
    total = replace(total, quarantined=(*total.quarantined, *aside.values()))
    total.save(output)
    warn_of_clipping(total)
    console.show(total_result(total, output), _roster_table(total), json, is_private=not total.is_released)
    report_quarantine(aside)


def _files_in(paths: Sequence[Path]) -> list[Path]:
    """The files named; a folder stands for its messages, in the order of their names."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.ghofl")) if path.is_dir() else [path]
        if not inside:
            raise typer.BadParameter(f"the folder {path} holds no messages; expected files called NAME.ghofl.")
        found += inside
    return found


def _join(paths: Sequence[Path]) -> Total | None:
    total = None
    for path in paths:
        more = _load_total(path)
        with console.errors_about(path):
            total = more if total is None else total.join(more)
    return total


def _add(messages: Sequence[Path], recipe: Recipe, start: Total | None) -> Total:
    aggregator = Aggregator(recipe, start)
    holders: dict[int, str | None] = {}  # by class: the only site that has it, or None where two have
    with console.progress() as report:
        done = 0
        for paths in batches(messages, recipe):
            report("messages", done, len(messages))
            names, counts = _add_some(aggregator, paths, recipe)
            done += len(paths)
            for i, c in np.argwhere(counts > 0).tolist():
                holders[c] = None if c in holders else names[i]
    if start is None and len(messages) > 1 and recipe.privacy.epsilon is None:
        _warn_of_sole_holders(holders, recipe)
    return aggregator.finish()


def _add_some(aggregator: Aggregator, paths: Sequence[Path], recipe: Recipe) -> tuple[list[str], np.ndarray]:
    """Add small messages together, or one alone; whose they are, and how many rows of each class each has."""
    if len(paths) > 1:
        batch = Batch.load(paths, recipe)
        aggregator.add_batch(batch)
        return [entry.name for entry in batch.roster], batch.counts
    with console.errors_about(paths[0]):
        message = Message.load(paths[0], recipe)
        aggregator.add(message, is_given=True)
    return [message.name], message.moments.counts[None]


def subtract(
    total: TotalFile,
    messages: Annotated[list[Path], typer.Argument(help="Messages of the sites to take out.")],
    output: TotalOutput,
    force: Force = False,
    json: Json = None,
) -> None:
    """Take sites out of a total, exactly: the result is the total that never had them.

    Example: ghofl subtract total.ghofl south.ghofl -o total-without-south.ghofl
    """
    console.check_outputs(json, force, output)
    rest = _load_total(total)
    for path in messages:
        with console.errors_about(path):
            rest = rest - Message.load(path, rest.recipe)
    rest.save(output)
    console.show(total_result(rest, output), _roster_table(rest), json, is_private=not rest.is_released)


def release(
    total: TotalFile,
    output: TotalOutput,
    force: Force = False,
    json: Json = None,
) -> None:
    """Make a total that others may see: with the noise the recipe promises, and without its small classes.

    Each release of one total spends its epsilon again; releases are counted in TOTAL.releases.jsonl beside it, and by the
    total's content in ~/.local/state/ghofl, so that a copy of it goes on counting. No message can be added to a released
    total: keep the exact one for that.

    Example: ghofl release total.ghofl -o released.ghofl
    """
    console.check_outputs(json, force, output)
    exact = _load_total(total)
    own = exact.release()
    with files.alone(total.parent, WAIT):  # two at once would count as one
        released = Releases(total.with_name(f"{total.name}.releases.jsonl")).count(own, exact)
    released.save(output)
    together = released.guarantee
    more = f" {released.small_classes}" if released.small_classes is not None else ""
    if together is not None and together.releases > 1:
        more += (
            f" All {together.releases} releases of this total together, as the file says: {console.promise(together)}"
        )
    console.say(
        {**total_result(released, output), "composed": None if together is None else together.to_dict()},
        f"Wrote {output}: {console.promise(own.guarantee)}{more}",
        json,
    )


def head(
    total: TotalFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The head file to write.")],
    head: Annotated[
        str,
        typer.Option(
            help="Which head, e.g. lda or 'rda(blend=0.9, shrinkage=0.05)'; best is the strongest that the total allows.",
            autocompletion=complete_heads,
        ),
    ] = DEFAULT_HEAD,
    preset: Preset = "default",
    site_effects: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="MESSAGES",
            help="Take out what each site adds to all of its rows, by all messages in the total: files, or a folder; may be "
            "repeated. 'best' is then lda, and 'ghofl personal HEAD ROWS' adds a site's own offset.",
        ),
    ] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """Build a head from a total. Its file includes the recipe, so it takes raw embeddings.

    Example: ghofl head total.ghofl -o head.safetensors
    """
    console.check_outputs(json, force, output)
    spec, found = HeadSpec.parse(head, preset), _load_total(total)
    classifier = _fit_mended(found, spec, site_effects) if site_effects else Classifier.fit(found, spec)
    classifier.save(output)
    result = {"head": classifier.head.name, "options": classifier.options, "file": str(output)}
    result |= {"bytes": output.stat().st_size, "rows": classifier.rows, "sites": classifier.sites}
    result |= {} if classifier.site_effects is None else {"site_effects_ratio": classifier.site_effects.ratio}
    console.say(
        {**result, **promise_result(classifier.guarantee), "revealed": classifier.revealed},
        f"Wrote {output}: {classifier.head.name} from {classifier.rows:,} rows of "
        f"{console.count(classifier.sites, 'site')}, {console.size(output.stat().st_size)}."
        + (f" Site effects: ratio {effects.ratio:.2g}." if (effects := classifier.site_effects) else "")
        + (f" {console.promise(classifier.guarantee)}" if classifier.guarantee else "")
        + (f" {classifier.revealed}" if classifier.revealed else ""),
        json,
    )


def _fit_mended(total: Total, spec: HeadSpec, paths: Sequence[Path]) -> Classifier:
    from ghofl.personal.offset import fit_without_site_effects

    messages = (Message.load(path, total.recipe) for path in _files_in(paths))
    return fit_without_site_effects(total, messages, None if spec.name == BEST else spec)


def _load_total(path: Path) -> Total:
    with console.errors_about(path):
        return Total.load(path)


def _roster_table(total: Total) -> Table:
    table = Table(
        title=f"{console.count(len(total.roster), 'site')}, {total.moments.rows:,} rows, total {total.moments.sha256[:16]}…"
    )
    table.add_column("site")
    table.add_column("id")
    for name in ("rows", "clipped"):
        table.add_column(name, justify="right")
    for entry in total.roster[:20]:
        rows = "not known" if entry.rows is None else f"{entry.rows:,}"
        table.add_row(entry.site or "–", entry.id[:8], rows, "" if entry.clipped is None else f"{entry.clipped:.3%}")
    if len(total.roster) > 20:
        table.add_row(f"and {len(total.roster) - 20} more", "", "", "")
    return table


def _warn_of_sole_holders(holders: Mapping[int, str | None], recipe: Recipe) -> None:
    """Warn on standard error about classes that only one site holds: the total shows that site's sums."""
    alone = [f"{recipe.classes[c]!r} ({name})" for c, name in sorted(holders.items()) if name is not None]
    if alone:
        listed = ", ".join(alone[:5]) + (f" and {len(alone) - 5} more" if len(alone) > 5 else "")
        console.tell("Warning", f"only one site holds class {listed}: the total shows that site's own sums.")
