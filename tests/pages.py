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


def blocks(page: Path, language: str) -> list[str]:
    """What stands between ```LANGUAGE and ``` in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    """The lines that call ghofl, continued ones joined."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.startswith("ghofl ")]


def lines_of(page: Path) -> list[str]:
    """All such lines of a page's shell blocks."""
    return [line for block in blocks(page, "sh") for line in commands(block)]


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
