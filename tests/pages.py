"""Pages of the documentation, block by block, and their command lines, run."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from typer.testing import CliRunner

from ghofl.cli import app

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"


def text_of(page: Path, under: str = "") -> str:
    """A page, or what stands under one of its headings of the second level."""
    text = page.read_text(encoding="utf-8")
    if not under:
        return text
    parts = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    return parts[under]


def blocks(page: Path, language: str, under: str = "") -> list[str]:
    """What stands between ```LANGUAGE and ``` in a page, or under one of its headings."""
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page, under), re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    """The lines that call ghofl, continued ones joined."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.startswith("ghofl ")]


def lines_of(page: Path, under: str = "") -> list[str]:
    """All such lines of a page's shell blocks."""
    return [line for block in blocks(page, "sh", under) for line in commands(block)]


def unrolled(line: str) -> list[str]:
    """What a loop over names runs; any other line as it is."""
    loop = re.fullmatch(r"for (\w+) in (.+); do (.+); done", line)
    return [line] if loop is None else [loop[3].replace(f"${loop[1]}", name) for name in loop[2].split()]


def run_lines(lines: Iterable[str]) -> None:
    """Run lines one after the other. One that ends in `# refused: TEXT` must fail, and say TEXT."""
    for line in lines:
        command, _, refusal = line.partition("# refused: ")
        run(command, refusal)


def run(command: str, refusal: str = "") -> str:
    """What a command says, which must come out as it should."""
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    if refusal:
        # What a terminal draws around a usage error breaks lines; words are what counts.
        said = " ".join(re.sub(r"[^\w.,;:'/-]+", " ", f"{result.output} {result.exception}").split())
        assert result.exit_code != 0, f"{command} was not refused"
        assert refusal.strip() in said, f"{command} said {said}"
    else:
        assert result.exit_code == 0, f"{command} failed: {result.exception!r} {result.output}"
    return result.stdout
