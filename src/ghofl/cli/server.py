"""Commands of the server that make totals, `sum`, `subtract` and `release`, and what `head` shares with them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from ghofl import files
from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, TotalFile, TotalOutput
from ghofl.moments import Moments
from ghofl.privacy import Guarantee
from ghofl.recipe import Recipe
from ghofl.wire.envelope import peek
from ghofl.wire.message import Message
from ghofl.wire.releases import WAIT, Releases
from ghofl.wire.total import Aggregator, Total

CLIPPED = "agree on a recipe with a smaller grid.scale, and let sites send again."


def add_up(
    output: TotalOutput,
    messages: Annotated[
        list[Path],
        typer.Argument(
            help="Messages of sites, or folders of them (NAME.ghofl); without --recipe, also earlier totals to add them to."
        ),
    ],
    *,
    recipe: Annotated[Path | None, typer.Option("--recipe", "-r", help="The recipe all sites share.")] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: add messages up, one at a time, each site once.

    An earlier total brings its recipe. Several totals together are, to the bit, the total of all their messages.

    Example: ghofl sum north.ghofl south.ghofl --recipe recipe.toml -o total.ghofl
    """
    console.check_outputs(json, force, output)
    totals = [path for path in messages if recipe is None and path.is_file() and _is_total(path)]
    if recipe is None and (not totals or len(messages) < 2):
        raise typer.BadParameter(
            f"{', '.join(map(str, messages[:5]))} came without --recipe; give --recipe recipe.toml for a new total, or an "
            "earlier total and what to add to it."
        )
    start = _join(totals)
    agreed = start.recipe if start is not None else Recipe.load(recipe)  # type: ignore[arg-type]
    total = sum_files([path for path in messages if path not in totals], agreed, start)
    total.save(output)
    console.show(total_result(total, output), _roster_table(total), json, is_private=not total.is_released)


def _is_total(path: Path) -> bool:
    return (peek(path) or {}).get("kind") == "total"


def sum_files(messages: Sequence[Path], recipe: Recipe, start: Total | None = None) -> Total:
    """The total of files and folders of messages; warns of what its owner should know."""
    paths, aggregator = files_in(messages), Aggregator(recipe, start)
    holders = _add(paths, aggregator)
    total = aggregator.finish()
    if start is None and len(paths) > 1 and recipe.privacy.epsilon is None:
        _warn_of_sole_holders(holders, recipe)
    warn_of_clipping(total)
    return total


def files_in(paths: Sequence[Path]) -> list[Path]:
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
        more = load_total(path)
        with console.errors_about(path):
            total = more if total is None else total.join(more)
    return total


def _add(messages: Sequence[Path], aggregator: Aggregator) -> Mapping[int, str | None]:
    """Add messages; by class, the only site that has it, or None where two have."""
    holders: dict[int, str | None] = {}
    with console.progress() as report:
        for done, path in enumerate(messages):
            report("messages", done, len(messages))
            with console.errors_about(path):
                message = Message.load(path, aggregator.recipe)
                aggregator.add(message, is_given=True)
            for c in np.flatnonzero(message.moments.counts > 0).tolist():
                holders[c] = None if c in holders else message.name
    return holders


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
    rest = load_total(total)
    for path in messages:
        with console.errors_about(path):
            rest = rest - Message.load(path, rest.recipe)
    rest.save(output)
    console.show(total_result(rest, output), _roster_table(rest), json, is_private=not rest.is_released)


def release(
    total: TotalFile,
    messages: Annotated[
        list[Path] | None,
        typer.Argument(help="With --to: all messages in the total, or folders of them; none of a secure total."),
    ] = None,
    *,
    output: TotalOutput,
    to: Annotated[
        str, typer.Option(metavar="SITE", help="Under hand_out: which site in it gets the exact total.")
    ] = "",
    force: Force = False,
    json: Json = None,
) -> None:
    """Make a total that others may see: with the noise the recipe promises, and without its small classes.

    Each release of one total, or of a copy of it, spends its epsilon again and is counted in TOTAL.releases.jsonl beside it. No
    message can be added to a released total: keep the exact one for that. With --to, one
    site gets the exact one, if enough others are in it, and no class of theirs has few rows.

    Example: ghofl release total.ghofl -o released.ghofl
    """
    console.check_outputs(json, force, output)
    exact = load_total(total)
    if to:
        handed = _hand_out(exact, to, messages or [])
        handed.save(output)
        told = f"Wrote {output}: the exact total, for {to} alone."
        console.say({**total_result(handed, output), "to": to}, told, json, is_private=True)
        return
    if messages:
        raise typer.BadParameter(
            "a total is released from its own file; leave the messages out, or say --to whom it goes."
        )
    own, released = release_counted(exact, total)
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


def _hand_out(exact: Total, to: str, messages: Sequence[Path]) -> Total:
    """The exact total as one of its sites gets it."""
    from ghofl.custody.handing_out import HandOuts, counts_in

    if exact.is_released:
        raise typer.BadParameter(f"this total is released, so it is for others than {to} too; leave out --to.")
    journal, counts = HandOuts.of_user(exact.recipe), None
    if not exact.recipe.privacy.secure:
        counts = counts_in(exact, files_in(messages))
    elif messages:
        raise typer.BadParameter("a total of a secure round has no messages that anybody sees; give its file alone.")
    with files.lock(journal.folder, WAIT):
        return journal.hand_out(exact, to, counts)


def release_counted(exact: Total, beside: Path) -> tuple[Total, Total]:
    """The released total by itself, and as it is written: with the guarantee of all releases of these sums so far."""
    own = exact.release()
    with files.lock(beside.parent, WAIT):  # two at once would count as one
        return own, Releases(beside.with_name(f"{beside.name}.releases.jsonl")).count(own, exact)


def _roster_table(total: Total) -> Table:
    table = console.titled(
        f"{console.count(len(total.roster), 'site')}, {total.moments.rows:,} rows, total {total.moments.sha256[:16]}…"
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


def moments_result(moments: Moments, recipe: Recipe) -> dict[str, Any]:
    """What moments hold, as plain values."""
    counts = {name: int(n) for name, n in zip(recipe.classes, moments.counts, strict=True)}
    return {
        "recipe": recipe.fingerprint,
        "layout": str(moments.layout),
        "rows": moments.rows,
        "moments_sha256": moments.sha256,
        "counts": counts,
        "classes without rows": int(np.count_nonzero(moments.counts == 0)),
    }


def total_result(total: Total, path: Path) -> dict[str, Any]:
    """What a total holds, as plain values."""
    return {
        "file": str(path),
        "sites": len(total.roster),
        "total_sha256": (found := moments_result(total.moments, total.recipe))["moments_sha256"],
        **found,
        **promise_result(total.guarantee),
        **({"small classes": total.small_classes.revealed} if total.small_classes is not None else {}),
        "is released": total.is_released,
        "roster": [{"site": e.name, "id": e.id, "rows": e.rows, "clipped": e.clipped} for e in total.roster],
    }


def promise_result(guarantee: Guarantee | None) -> dict[str, Any]:
    """What noise promises, as plain values; nothing without noise."""
    if guarantee is None:
        return {}
    return {"promise": console.promise(guarantee), "guarantee": guarantee.to_dict()}


def warn_of_clipping(total: Total) -> None:
    """Warn on standard error about sites with more clipped entries than is harmless."""
    over = total.clipped()
    if over:
        names = ", ".join(f"{e.name!r} ({e.clipped:.1%})" for e in over[:5]) + (", …" if len(over) > 5 else "")
        console.tell("Warning", f"entries of {names} fell outside the grid; {CLIPPED}")


def load_total(path: Path) -> Total:
    """The total in a file; errors name the file."""
    with console.errors_about(path):
        return Total.load(path)
