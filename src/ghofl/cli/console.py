"""What all commands share: where text goes, how bad input ends, progress, results as JSON."""

import codecs
import json
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from ghofl.errors import GhoflError
from ghofl.errors import errors_about as errors_about
from ghofl.names import size as size

# Printed names come from others, so nothing in them is read as markup or an emoji.
out = Console(markup=False, emoji=False, highlight=False)
err = Console(stderr=True, markup=False, emoji=False, highlight=False)

BAD_INPUT = 2
FLAGGED = 3  # a site does not fit the others
HELD = 4  # what a command made or showed does not leave the site, or should not be sent
INTERRUPTED = 130

JSON_HELP = "Also write the result as JSON to this file; '-' prints the JSON instead of the table."


# What our sentences are written with, for terminals and pipes whose encoding has no such characters.
IN_ASCII = {"–": "-", "−": "-", "—": "-", "…": "...", "×": "x", "·": "*", "±": "+-", "≤": "<=", "≥": ">=", "√": "sqrt",
            "ε": "epsilon", "δ": "delta", "λ": "lambda", "α": "alpha", "σ": "sigma", "Σ": "sum of ", "→": "->", "“": '"',
            "”": '"', "’": "'"}  # fmt: skip


def print_anything() -> None:
    """Let every text be printed whatever the encoding of standard output, and every line at once, also through a pipe.

    What the encoding lacks is spelt out, and nothing raises.
    """
    codecs.register_error("ghofl", _spelt_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="ghofl", line_buffering=True)


def _spelt_out(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(IN_ASCII.get(c, c.encode("ascii", "backslashreplace").decode()) for c in lacking), error.end


@contextmanager
def report_errors() -> Iterator[None]:
    """Ends the program with one error text and a meaningful code: 2 for bad input, 130 for Ctrl-C.

    Commands have codes of their own: 3 where a site does not fit the others, 4 where something should not be sent.

    An exception that ghofl did not raise on purpose is a defect: it passes through, with its traceback and code 1.
    """
    previous, last_resort = warnings.showwarning, logging.lastResort
    warnings.showwarning, logging.lastResort = _show_warning, _LoggedWarnings(logging.WARNING)
    try:
        yield
    except GhoflError as error:
        _fail(str(error))
    except IsADirectoryError as error:
        _fail(f"{error.filename} is a folder, and a file was expected. Check the path and try again.")
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        _fail(f"{error.filename}: {error.strerror}. Check the path and try again.")
    except (KeyboardInterrupt, SystemExit) as error:  # typer turns Ctrl-C inside a command into SystemExit(130)
        if isinstance(error, SystemExit) and error.code != INTERRUPTED:
            raise
        tell("Stopped", "Nothing was left half-written.", mark=".")
        raise SystemExit(INTERRUPTED) from None
    finally:
        warnings.showwarning, logging.lastResort = previous, last_resort


@contextmanager
def progress(rate: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on standard error, fed (what, done, of) with 0 for an unknown total; `rate` adds items per second."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *([_Rate()] if rate else []),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=of or None)
            bar.update(tasks[what], completed=done)

        yield report


class _Rate(ProgressColumn):
    """The recent number of items per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


def titled(title: str, caption: str | None = None, **more: Any) -> Table:
    """An empty table as wide as its title at least, which begins, as its caption does, above the first column."""
    width = min(cell_len(title), out.width)
    more |= {"title_justify": "left", "caption_justify": "left"}
    return Table(title=title, caption=caption, min_width=width, **more)


def show(result: dict[str, Any], table: Table | None, json_path: str | None, is_private: bool = False) -> None:
    """Print the table, or the result as JSON where that was asked for; in a file that only its owner reads if `is_private`."""
    if json_path == "-":
        print(json.dumps(result, indent=2))
        return
    if table is not None:
        out.print(table)
    if json_path is not None:
        from ghofl import files  # it imports numpy, which `ghofl --help` does not need

        files.write(json_path, json.dumps(result, indent=2) + "\n", *([files.PRIVATE] if is_private else []))


def say(result: dict[str, Any], sentence: str, json_path: str | None, is_private: bool = False) -> None:
    """Print what was done in one sentence, or the result as JSON, as `show` does."""
    if json_path != "-":
        out.print(printable(sentence), soft_wrap=True)
    show(result, None, json_path, is_private)


def list_bad(bad: Sequence[tuple[object, str]]) -> None:
    """List the samples that were left out, on standard error."""
    for _, why in bad[:20]:
        tell("Left out", why)
    if len(bad) > 20:
        tell("Left out", f"{len(bad) - 20} more.")


def promise(guarantee: object) -> str:
    """A guarantee in one line."""
    return "no noise, so no differential privacy" if guarantee is None else str(guarantee).splitlines()[0]


def count(number: int, noun: str) -> str:
    """A number with its noun: 1 site, 2 sites."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def check_folder(json_path: str | None) -> None:
    """A usage error before the work, not after it, when the file could not be written."""
    if json_path not in (None, "-") and not Path(json_path).parent.is_dir():
        raise typer.BadParameter(f"the folder of {json_path} does not exist; create it first.")


def check_seed(seed: int) -> None:
    """A usage error for a negative seed."""
    if seed < 0:
        raise typer.BadParameter(f"the seed is {seed}; write 0 or a larger whole number.")


def bytes_of(text: str) -> int:
    """The number of bytes in a text such as 5MB, 800kB or 1.5GB."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([kKMG]?)B?\s*", text)
    try:
        return round(float(match[1]) * {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}[match[2]])  # type: ignore[index]
    except (TypeError, ValueError):
        raise typer.BadParameter(f"{text!r} is not a size; write e.g. 5MB, 800kB or 1GB.") from None


def check_outputs(json_path: str | None, force: bool, *outputs: Path | None) -> None:
    """A usage error before the work when a file would be lost, or the JSON could not be written."""
    for path in outputs:
        if path is not None:
            check_free(path, force)
    check_folder(json_path)
    if json_path not in (None, "-"):
        check_free(Path(json_path), force)


def check_free(path: Path, force: bool) -> None:
    """A usage error when a file would be lost, or when '-' is given for a result that only a file can hold."""
    if str(path) == "-":
        raise typer.BadParameter("this result is a file and cannot go to standard output; name the file to write.")
    if path.exists() and not force:
        raise typer.BadParameter(f"{path} exists already; give another name, or --force to replace it.")


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int,
    file: TextIO | None = None, line: str | None = None,
) -> None:  # fmt: skip
    tell("Warning", in_options(str(message)))


class _LoggedWarnings(logging.Handler):
    """Shows what the library logs, in a command that does not keep a log of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        tell("Error" if record.levelno >= logging.ERROR else "Warning", in_options(self.format(record)))


def tell(what: str, text: str, style: str = "yellow", mark: str = ":") -> None:
    """Print a line on standard error that begins with what it is, in colour."""
    err.print(what + mark, style=style, end=" ")
    err.print(printable(text), soft_wrap=True)


def printable(text: str) -> str:
    """A text for a terminal: control characters other than line breaks are written out."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def in_options(text: str) -> str:
    """A sentence of the library as the command line says it: a parameter such as `unit_length` is --unit-length here."""
    return re.sub("`([a-z][a-z_]*)`", lambda found: f"--{found[1].replace('_', '-')}", text)


def _fail(text: str) -> None:
    tell("Error", in_options(text), "bold red")
    sys.exit(BAD_INPUT)
