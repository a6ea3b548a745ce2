"""The command line: every command parses, calls one library function, and prints.

A command's module is imported only when the command is called or its help is asked for; the list of all is a table here.
"""

import difflib
import importlib
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperGroup

import ghofl
from ghofl.cli import console

START = "Start here: ghofl demo"
TRY = "Try it out, on this machine"
AGREE = "Agree on a recipe, once for all sites"
SEND = "Send one message, at each site"
BUILD = "Build a head, at the server"
USE = "Use a head, and say how good it is"
GUARD = "Look at what leaves, and guard a site"
CONNECT = "Hide each site's part, or use a network"

# Where each command is, and the first sentence of its help, by what people want to do.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    TRY: {
        "demo": (
            "experiment:demo",
            "Run the whole method on scikit-learn's digits: heads, the same total for any split, and exact unlearning.",
        ),
        "simulate": (
            "experiment:simulate",
            "Simulate a federation: split training rows over clients, add up their messages, and score heads of "
            "the total.",
        ),
    },
    AGREE: {
        "recipe": ("site:recipe", "Write the recipe that all sites of a federation share."),
        "schema": (
            "schema:schema",
            "Draft the schema of a table, for people to correct and for 'ghofl recipe --schema'.",
        ),
    },
    SEND: {
        "embed": (
            "embed:embed",
            "At a site: turn samples into a file of embeddings. A run that was stopped continues where it left off.",
        ),
        "moments": (
            "site:moments",
            "At a site: add up the moments of its embeddings and write the one message it sends.",
        ),
    },
    BUILD: {
        "head": (
            "head:head",
            "Build a head from messages or from a total. Its file includes the recipe, so it takes raw embeddings.",
        ),
        "sum": ("server:add_up", "At the server: add messages up, one at a time, each site once."),
        "subtract": (
            "server:subtract",
            "Take sites out of a total, exactly: the result is the total that never had them.",
        ),
        "release": (
            "server:release",
            "Make a total that others may see: with the noise the recipe promises, and without its small classes.",
        ),
        "diagnose": (
            "diagnose:diagnose",
            "At the server: say which site's message does not fit the others', and why. The exit code is 3 if "
            "one does not.",
        ),
        "select": (
            "use:select",
            "At the server: add up the sites' counts of right and wrong predictions and name the best head.",
        ),
        "calibrate": (
            "use:calibrate",
            "At the server: calibrate a head's probabilities and its novelty on the rows that sites reported on.",
        ),
    },
    USE: {
        "predict": (
            "predict:predict",
            "Predict labels of embeddings, tables, images or texts, a block at a time in bounded memory.",
        ),
        "evaluate": ("use:evaluate", "Compare a head's predictions with labels."),
        "personal": (
            "own:personal",
            "At a site: make a head for this site alone, from a total and the site's own rows. Nothing leaves the site.",
        ),
        "export": (
            "export:export",
            "Write a head, its encoder, or both as one ONNX file.",
        ),
        "report": (
            "report:report",
            "Write one self-contained page about a total: who took part, what it holds, how good its heads are.",
        ),
    },
    GUARD: {
        "inspect": ("inspect:inspect", "Say what is in a file: recipe, message, total or head."),
        "audit": (
            "audit:audit",
            "Say in words and numbers what a message or a total would reveal to someone who reads it.",
        ),
        "keeper": (
            "keeper:keeper",
            "At a site: guard its rows, keys, policy and ledger, and answer requests on a Unix socket.",
        ),
        "ledger": (
            "ledger:ledger",
            "Show what a site was asked, what left it, and what all of that promises together; or write it to a file.",
        ),
    },
    CONNECT: {
        "secure": (
            "secure:app",
            "Secure aggregation with files alone: the server learns the sum of the sites' moments and nothing else.",
        ),
        "flower": ("flower:app", "Run a federation on Flower: write its app, and check at a site what would leave."),
    },
}  # fmt: skip
# What people type for a command that has another name, and what to tell them.
SYNONYMS = {
    "aggregate": "sum", "check": "flower check", "encode": "embed", "fit": "head", "forget": "subtract", "help": "--help",
    "init": "recipe", "log": "ledger", "merge": "sum", "new": "recipe", "noise": "release", "run": "flower",
    "score": "evaluate", "send": "moments", "serve": "export", "show": "inspect", "start": "demo", "sweep": "simulate",
    "test": "evaluate", "train": "head", "unlearn": "subtract", "version": "--version",
}  # fmt: skip
PLACES = {name: place for commands in COMMANDS.values() for name, (place, _) in commands.items()}


def load(name: str) -> click.Command:
    """The command, or group of commands, of this name, from its module."""
    module, _, attribute = PLACES[name].partition(":")
    found = getattr(importlib.import_module(f"ghofl.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(rich_markup_mode="rich", add_completion=False)
        alone.command(name=name)(found)
        found = alone
    command = typer.main.get_command(found)
    command.name = name
    for each in (command, *getattr(command, "commands", {}).values()):
        each.help = _in_paragraphs(each.help or "")
    return command


def _in_paragraphs(text: str) -> str:
    """A docstring whose lines break where the terminal's do."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


class Story(TyperGroup):
    """The commands as a list of names and sentences; only the one that is called is loaded."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for panel, commands in COMMANDS.items():
            for name, (_, sentence) in commands.items():
                self.add_command(TyperCommand(name, help=sentence, rich_help_panel=panel))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name, loaded, and its own arguments."""
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(_unknown(args[0]), ctx) from error
        return name, None if command is None or name is None else load(name), rest

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, after a word to those who see it for the first time."""
        console.out.print(START)
        super().format_help(ctx, formatter)


def _unknown(word: str) -> str:
    """What to tell somebody who typed a command that does not exist."""
    meant = [SYNONYMS[word]] if word in SYNONYMS else difflib.get_close_matches(word, [*PLACES, *SYNONYMS], 3, 0.7)
    meant = list(dict.fromkeys(SYNONYMS.get(name, name) for name in meant))
    known = " or ".join(f"'ghofl {name}'" for name in meant)
    advice = f"Did you mean {known}?" if meant else "'ghofl --help' lists all commands."
    return f"ghofl has no command {console.printable(word[:40])!r}. {advice}"


app = typer.Typer(
    cls=Story,
    help="One-shot federated learning: every site sends one message, the server builds one classifier.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    console.print_anything()
    with console.report_errors():
        app()
