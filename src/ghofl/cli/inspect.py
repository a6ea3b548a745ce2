"""The command that says what is in a file, for people and as JSON: `inspect`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ghofl.cli import console
from ghofl.cli.arguments import Force, Json
from ghofl.cli.server import CLIPPED, moments_result, promise_result, total_result, warn_of_clipping
from ghofl.errors import MessageError, RecipeError
from ghofl.features import TOLERATED_CLIPPING
from ghofl.moments import Layout
from ghofl.names import shorten
from ghofl.recipe import Recipe
from ghofl.wire.envelope import peek
from ghofl.wire.message import Message
from ghofl.wire.total import Total

LISTED = 20  # how many names, numbers or rows of a table are written out
LONG = 300


def inspect(
    file: Annotated[Path, typer.Argument(help="A recipe, message, total or head.")],
    recipe: Annotated[Path | None, typer.Option("--recipe", "-r", help="Check a message against this recipe.")] = None,
    force: Force = False,
    json: Json = None,
) -> None:
    """Say what is in a file: recipe, message, total or head.

    Example: ghofl inspect total.ghofl
    """
    console.check_outputs(json, force)
    with console.errors_about(file):
        result = _describe(file, None if recipe is None else Recipe.load(recipe))
    first, *others = tables_of(result, f"{file.name}: a {result['kind']}")
    is_exact = (
        result["kind"] == "message" or "personal" in result or (result["kind"] == "total" and not result["is released"])
    )
    console.show(result, first, json, is_private=is_exact)
    for table in others if json != "-" else ():
        console.out.print(table)


def tables_of(result: Mapping[str, Any], title: str) -> Iterator[Table]:
    """Plain values as tables for people: one of facts, and one for each list of records or counts per class."""
    table = console.titled(title, show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")  # long values continue in the next line, whole
    lists: dict[str, Any] = {}
    for name, value in _facts(result, "", lists):
        table.add_row(name, value)
    yield table
    for name, value in lists.items():
        yield _counts(value) if isinstance(value, Mapping) else _records(name, value)


def _facts(values: Mapping[str, Any], prefix: str, lists: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and texts of plain values; values that need their own table go to `lists`."""
    for key, value in values.items():
        name = f"{prefix} {shorten(key, 40).replace('_', ' ')}".strip()
        if name == "layout" and isinstance(value, str):  # the other lines say the same in words
            continue
        if name == "guarantee":  # the line "promise" has the rest
            value = {key: value[key] for key in ("sigmas", "assumptions")}
        if (
            key == "privacy" and isinstance(value, Mapping) and "epsilon" not in value
        ):  # so there is no noise of any kind
            yield name, console.promise(None)
            value = {key: each for key, each in value.items() if key not in ("unit", "noise")}
        if name == "counts" or (isinstance(value, list | tuple) and value and isinstance(value[0], Mapping)):
            lists[name] = value
        elif name == "arrays" and isinstance(value, Mapping):
            shapes = ((each, " × ".join(map(str, shape)) or "one number") for each, shape in value.items())
            yield from ((f"array {shorten(each, 40)}", shape) for each, shape in shapes)
        elif isinstance(value, Mapping) and value:
            yield from _facts(value, name, lists)
        elif name.endswith("assumptions"):
            yield name, "\n".join(shorten(text, LONG) for text in value)
        else:
            yield name, _text(value, name)


def _text(value: Any, name: str) -> str:
    """A plain value as people write it."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "not known"}[value]
    if isinstance(value, list | tuple | Mapping) and not value:
        return "none"
    if isinstance(value, list | tuple):
        listed = ", ".join(_text(each, "") for each in value[:LISTED])
        return listed + (f", … {len(value):,} in all" if len(value) > LISTED else "")
    if isinstance(value, float):
        return f"{value:.3%}" if name.split(" ")[-1] in ("clipped", "share") else f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else shorten(value, LONG)


def _counts(counts: Mapping[str, int]) -> Table:
    """Rows per class, of all classes or the largest."""
    most = sorted(counts, key=lambda each: -counts[each])[:LISTED] if len(counts) > LISTED else list(counts)
    left = f", the {LISTED} largest of {len(counts):,} classes" if len(counts) > LISTED else ""
    table = console.titled(f"Rows per class{left}")
    table.add_column("class", overflow="fold")
    table.add_column("rows", justify="right")
    for each in most:
        table.add_row(shorten(each, LONG), f"{counts[each]:,}")
    return table


def _records(name: str, records: Sequence[Mapping[str, Any]]) -> Table:
    """Records of one kind, such as the sites of a roster: one line each."""
    columns = list(dict.fromkeys(key for record in records for key in record))
    table = console.titled(name.capitalize(), f"and {len(records) - LISTED:,} more" if len(records) > LISTED else None)
    for key in columns:
        is_number = all(isinstance(record.get(key), int | float | None) for record in records)
        table.add_column(key.replace("_", " "), overflow="fold", justify="right" if is_number else "left")
    for record in records[:LISTED]:
        table.add_row(*(_text(record[key], key) if key in record else "" for key in columns))
    return table


def _describe(file: Path, recipe: Recipe | None) -> dict[str, Any]:
    header = peek(file)
    if header is None:
        try:
            return recipe_result(Recipe.load(file))
        except RecipeError as error:
            raise MessageError(f"it is not a file of ghofl; read as a recipe, it fails: {error}") from None
    if header.get("kind") == "message":
        if recipe is None:
            return {shorten(key, 40): value for key, value in header.items()} | {
                "checked": "no: give --recipe to check it"
            }
        message = Message.load(file, recipe)
        about = {"kind": "message", "id": message.id, "site": message.site, "clipped": message.clipped}
        if message.clipped is not None and message.clipped > TOLERATED_CLIPPING:
            console.tell("Warning", f"{message.clipped:.2%} of its entries fell outside the grid; {CLIPPED}")
        return {**about, **moments_result(message.moments, recipe)}
    if header.get("kind") == "total":
        total = Total.load(file)
        warn_of_clipping(total)
        return {"kind": "total", **total_result(total, file)}
    from ghofl.classifier import Classifier  # it imports every head, which the other kinds do not need

    classifier = Classifier.load(file)
    return {
        "kind": "head",
        "head": classifier.head,
        "options": classifier.options,
        "sites": classifier.sites,
        "rows": classifier.rows,
        "arrays": {name: list(a.shape) for name, a in classifier.rule.arrays().items()},
        **promise_result(classifier.guarantee),
        **({"revealed": classifier.revealed} if classifier.revealed else {}),
        **({"personal": classifier.warning} if classifier.personal else {}),
        **{f"recipe {key}": value for key, value in recipe_result(classifier.recipe).items() if key != "kind"},
    }


def recipe_result(recipe: Recipe) -> dict[str, Any]:
    layout = Layout.of(recipe)
    return {"kind": "recipe", "fingerprint": recipe.fingerprint, **recipe.to_dict(), "entries": layout.entries}
