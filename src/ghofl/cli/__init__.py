"""The command line: every command parses, calls one library function, and prints."""

from typing import Annotated

import typer

import ghofl
from ghofl.cli import (
    audit,
    console,
    diagnose,
    embed,
    experiment,
    export,
    flower,
    inspect,
    keeper,
    ledger,
    predict,
    report,
    schema,
    secure,
    server,
    site,
    use,
)

app = typer.Typer(
    help="One-shot federated learning: every site sends one message, the server builds one classifier.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command(name="demo")(experiment.demo)
app.command(name="recipe")(site.recipe)
app.command(name="schema")(schema.schema)
app.command(name="export-encoder")(embed.export_encoder)
app.command(name="embed")(embed.embed)
app.command(name="moments")(site.moments)
app.command(name="sum")(server.add_up)
app.command(name="diagnose")(diagnose.diagnose)
app.command(name="subtract")(server.subtract)
app.command(name="release")(server.release)
app.command(name="head")(server.head)
app.command(name="evaluate")(use.evaluate)
app.command(name="select")(use.select)
app.command(name="calibrate")(use.calibrate)
app.command(name="predict")(predict.predict)
app.command(name="export")(export.export)
app.command(name="report")(report.report)
app.command(name="simulate")(experiment.simulate)
app.command(name="inspect")(inspect.inspect)
app.command(name="audit")(audit.audit)
app.add_typer(flower.app, name="flower")
app.command(name="keeper")(keeper.keeper)
app.add_typer(ledger.app, name="ledger")
app.add_typer(secure.app, name="secure")


def _version(asked: bool) -> bool:
    if asked:
        print(ghofl.__version__)
        raise typer.Exit
    return asked


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    with console.report_errors():
        app()
