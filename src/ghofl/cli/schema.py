"""The command that drafts the schema of a table: `schema`."""

from pathlib import Path
from typing import Annotated

import typer

from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, Without, names_in
from ghofl.encoders.from_schema import columns_of
from ghofl.planning.drafting import draft_schema
from ghofl.recipe import Schema

FROM_ROWS = "Correct ranges, breaks, units and levels before others see it: they come from rows."


def schema(
    file: Annotated[Path, typer.Argument(help="A data dictionary, or rows of one site: .csv, .tsv, .jsonl, .parquet.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The schema file to write (TOML).")],
    label: Annotated[
        str, typer.Option("--label-column", help="For rows: the column of labels, which is not a feature.")
    ] = "",
    without: Without = "",
    force: Force = False,
    json: Json = None,
) -> None:
    """Draft the schema of a table, for people to correct and for 'ghofl recipe --schema'.

    A data dictionary has one row per column: name, kind, unit, min, max, levels, missing. A recipe with an epsilon refuses a
    draft from rows, because a minimum, maximum or quantile is somebody's value.

    Example: ghofl schema dictionary.csv -o schema.toml
    """
    console.check_outputs(json, force, output)
    made, of_dictionary = draft(file, label, without)
    made.save(output)
    result = {
        "file": str(output),
        "source": "dictionary" if of_dictionary else "rows",
        "columns": len(made.table.columns),
        "dim": made.table.dim,
        "label": made.table.label,
        "classes": list(made.classes),
        "left_out": dict(made.left_out),
    }
    advice = "" if of_dictionary else f" {FROM_ROWS}"
    if not made.table.label:
        advice += " No column is the label: --label-column names it."
    console.say(
        result,
        f"Wrote {output}: {console.count(len(made.table.columns), 'column')} of {result['source']}, "
        f"{console.count(made.table.dim, 'number')} per row.{advice}",
        json,
    )


def draft(file: Path, label: str, without: str = "") -> tuple[Schema, bool]:
    """The schema of a data dictionary, or a draft from rows, and whether it was a dictionary; says what is left out."""
    made, of_dictionary = draft_schema(columns_of(file), label, names_in(without), str(file))
    for name, why in made.left_out:
        console.tell("Left out", f"column {name!r}: {why}")
    return made, of_dictionary


def schema_of(file: Path | None, table: Path | None, label: str) -> Schema | None:
    """The schema in a file, or a draft of one from a table's rows."""
    if not label:
        return None if file is None else Schema.load(file)
    if table is None or file is not None:
        raise typer.BadParameter(
            f"--label-column {label} is about a table whose schema is drafted; give it with --embeddings TABLE, without --schema."
        )
    return draft(table, label)[0]
