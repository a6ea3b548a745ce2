"""Writes what the code knows into the docs: docs/cli.md and the table of heads in docs/heads.md.

Run it with `make docs`. `tests/test_docs.py` fails when the two texts are not what this gives.
"""

import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer

from ghofl.cli import PLACES, app, console, load
from ghofl.heads import HEADS
from ghofl.recipe import OPTIONS

ROOT = Path(__file__).parents[1]
CLI = ROOT / "docs" / "cli.md"
HEADS_PAGE = ROOT / "docs" / "heads.md"

# ---------------------------------------------------------------------------------------------------- docs/cli.md

SEVERAL = 2  # commands that have an option with the same meaning
EVERYWHERE = ("--force", "--json")  # described once, at the top
VALUES = {int: "INTEGER", float: "NUMBER", Path: "FILE", str: "TEXT"}


def cli() -> str:
    """The command line as Markdown, from the commands themselves."""
    group = typer.main.get_command(app)
    parts = [
        "<!-- Written by docs/generate.py: run `make docs`, do not edit. -->",
        "# The command line",
        str(group.help),
        "Commands have `-h` and `--help`; `--force` replaces files that exist, and `--json FILE` also writes the result as JSON "
        "(`-` prints it instead of the table). "
        f"A command ends with 0 when it did its work, {console.BAD_INPUT} for input it refuses (the text says why), "
        f"and {console.INTERRUPTED} after Ctrl-C. Files are written whole or not at all.",
    ]
    options = [p for p in group.params if p.name != "help"]
    if options:
        parts.append(_options(options, {}))
    parts += [_command(name, command) for name, command in commands().items()]
    parts += [shared_options(), recipe_options()]
    return "\n\n".join(parts) + "\n"


@cache
def shared() -> dict[str, str]:
    """Options that are the same in several commands, in words, by their first name."""
    found: dict[str, list[str]] = {}
    for command in commands().values():
        for p in _options_of(command):
            if p.opts[0] not in EVERYWHERE and not _is_of_recipe(p):
                found.setdefault(p.opts[0], []).append(_options([p], _hints(command)))
    return {name: same[0] for name, same in found.items() if len(same) >= SEVERAL and len({*same}) == 1}


def shared_options() -> str:
    """Those options as a Markdown list."""
    return "## Options that several commands share\n\n" + "\n".join(shared().values())


def _options_of(command: Any) -> list[Any]:
    return [p for p in command.params if p.param_type_name == "option" and p.name != "help"]


def _hints(command: Any) -> dict[str, Any]:
    return get_type_hints(inspect.unwrap(command.callback))


def _is_of_recipe(option: Any) -> bool:
    """Whether a command has this option from the record of a recipe's options, and not in its own way."""
    known = OPTIONS.get(option.name)
    return known is not None and option.help.startswith(known.about) and option.name != "anchor"


def recipe_options() -> str:
    """Every option of a recipe as a Markdown table, from the record that declares it."""
    rows = "\n".join(
        f"| `{o.name}` | {f'`{o.key}`' if o.key else 'not in it'} | {' | '.join(_values(o))} | {_cell(o.about)} |"
        for o in OPTIONS.values()
    )
    return (
        "## The options of a recipe\n\nThese are parameters of `ghofl.recipe_for` and `ghofl.recipe.RecipeOptions`, and "
        "options of `ghofl recipe` and `ghofl simulate`, where a name is written with dashes; simulations take lists of them.\n\n"
        f"| option | in the recipe file | what it can be | default | meaning |\n|---|---|---|---|---|\n{rows}"
    )


def _values(option: Any) -> tuple[str, str]:
    """What an option of a recipe can be, and its default."""
    allowed, _, unless = _cell(option.allowed).partition(", or left out (")
    allowed = re.sub(r"a whole number between (\d+) and [\d,]{13,}", r"\1 or more", allowed)
    shown = "" if option.default in (None, "", False, ()) else f"`{option.default}`"
    return allowed.removeprefix("a ").removeprefix("one of "), unless.removesuffix(")") or shown


def commands() -> dict[str, Any]:
    """Every command by its words: those of a group follow its name."""
    out: dict[str, Any] = {}
    for name in PLACES:
        command = load(name)
        below = getattr(command, "commands", None)
        out |= {name: command} if below is None else {f"{name} {word}": c for word, c in below.items()}
    return out


def example(command: Any) -> str:
    """The example in a command's help, without the word."""
    found = re.search(r"^Example: (.+)$", command.help or "", re.MULTILINE)
    return found[1] if found else ""


def _command(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = _options_of(command)
    usage = " ".join(["ghofl", name, *(["[OPTIONS]"] if options else []), *map(_placeholder, arguments)])
    text = (command.help or "").split("Example:")[0].strip()
    parts = [f"## ghofl {name}", "\n\n".join(map(_line, text.split("\n\n"))), f"```text\n{usage}\n```"]
    if arguments:
        parts.append("\n".join(f"- `{_placeholder(p)}`: {_line(p.help)}" for p in arguments))
    own = [p for p in options if p.opts[0] not in (*EVERYWHERE, *shared()) and not _is_of_recipe(p)]
    if own:
        parts.append(_options(own, _hints(command)))
    also = [f"`{p.opts[0]}`" for p in options if p.opts[0] in shared()]
    if any(map(_is_of_recipe, options)):
        also.append("[those of a recipe](#the-options-of-a-recipe)")
    if also:
        parts.append(f"[Shared](#options-that-several-commands-share): {', '.join(also)}.")
    parts.append(f"```sh\n{example(command)}\n```")
    return "\n\n".join(parts)


def _options(options: list[Any], hints: dict[str, Any]) -> str:
    return "\n".join(f"- {_written(p, hints)}: {_line(p.help)}{_default(p)}" for p in options)


def _written(option: Any, hints: dict[str, Any]) -> str:
    value = _value(option, hints)
    return ", ".join(f"`{name} {value}`" if value else f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _placeholder(argument: Any) -> str:
    return argument.name.upper() + ("..." if argument.nargs == -1 else "")


def _value(option: Any, hints: dict[str, Any]) -> str:
    if option.is_flag:
        return ""
    hint = hints.get(option.name, str)
    kind = next((a for a in (hint, *get_args(hint)) if a in VALUES), str)
    return option.metavar or VALUES[kind]


def _default(option: Any) -> str:
    if option.required:
        return " Required."
    return "" if option.default in (None, "", False) else f" Default: `{option.default}`."


def _line(text: str | None) -> str:
    """A text of help as Markdown: options are code, so that no line breaks inside one."""
    return re.sub(r"(?<![\w`-])--[a-z][\w-]*", r"`\g<0>`", (text or "").replace("\n", " "))


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")


# ------------------------------------------------------------------------------------- the table of heads in docs/heads.md

SIZES = {
    (): "C + C·d",
    ("D",): "C + 2·C·d",
    ("B",): "C + C·d + d·(d+1)/2",
    ("B", "Z"): "C + C·d + d·(d+1)/2 + C·k·(k+1)/2",
    ("S",): "C + C·d + C·d·(d+1)/2",
}
START, END = "<!-- heads: written by docs/generate.py -->", "<!-- end of heads -->"


def heads() -> str:
    """The heads as a Markdown table: what each is, needs, costs and can be told."""
    rows = [
        f"| `{name}` | {_cell((inspect.getdoc(head.fit) or '').splitlines()[0])} "
        f"| {' or '.join(' and '.join(need) or 'nothing more' for need in head.needs)} "
        f"| {SIZES[head.needs[0]]} | {_head_options(name)} |"
        for name, head in HEADS.items()
    ]
    return "| head | rule | needs | integers in a message | options |\n|---|---|---|---|---|\n" + "\n".join(rows)


def with_heads(page: str) -> str:
    """A page's text with the table of heads between its two marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{heads()}\n{END}{after}"


def _head_options(name: str) -> str:
    shown = []
    for o in HEADS[name].Options.known().values():
        differs = o.paper not in (None, o.default)
        shown.append(f"`{o.name}`: {_shown(o.default)}" + (f" (paper: {_shown(o.paper)})" if differs else ""))
    more = f" and {len(shown) - 5} more" if len(shown) > 6 else ""
    return ", ".join(shown[:5] if more else shown) + more or "none"


def _shown(value: object) -> str:
    if value is None:
        return "chosen from the total"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def main() -> None:
    """Write both."""
    CLI.write_text(cli())
    HEADS_PAGE.write_text(with_heads(HEADS_PAGE.read_text()))
    for path in (CLI, HEADS_PAGE):
        print(f"Wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
