"""How large the house is: the lines of every room beside its budget, and how much there is to learn and to read.

Run it with `python tests/rooms.py`; it decides nothing.
"""

from pathlib import Path

import click

from ghofl.cli import PLACES, load

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ghofl"
# The rooms of the house from the bottom up, and the lines that each is meant to have.
BUDGETS = {
    "errors.py, util": 650, "statistics": 300, "recipe": 1900, "rows": 1050, "encoders": 1900, "features": 600,
    "moments": 450, "privacy": 1450, "wire": 900, "secure": 2000, "gaussians": 900, "heads, classifier.py": 2500,
    "planning": 650, "evaluation": 1300, "site": 2300, "keeper": 280, "server": 1800, "simulation": 800, "flower": 480,
    "export": 750, "report": 550, "cli, sklearn.py, short.py, __init__.py, __main__.py": 2300,
}  # fmt: skip
TOGETHER = {"src": 26_000, "tests": 20_000, "benchmarks": 7_000, "commands": 20, "option names": 60}


def lines(*paths: Path) -> int:
    """Lines of Python in files, and in folders with all below them."""
    found = (file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py")))
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in found)


def rooms() -> dict[str, tuple[int, int | None]]:
    """Lines and budget of every room; what is in the package and in no room has no budget."""
    found: dict[str, tuple[int, int | None]] = {}
    inside = {name for names in BUDGETS for name in names.split(", ")}
    for names, budget in BUDGETS.items():
        found[names] = (lines(*(SOURCE / name for name in names.split(", ") if (SOURCE / name).exists())), budget)
    for path in sorted(SOURCE.iterdir()):
        if path.name not in inside and (path.suffix == ".py" or path.is_dir()) and (count := lines(path)):
            found[path.name] = (count, None)
    return found


def commands() -> dict[str, click.Command]:
    """Every command by its words: those of a group follow its name."""
    found = {}
    for name in PLACES:
        below = getattr(load(name), "commands", None)
        found |= {name: load(name)} if below is None else {f"{name} {word}": each for word, each in below.items()}
    return found


def option_names() -> set[str]:
    """The long names of options in the help of all commands."""
    parameters = [parameter for command in commands().values() for parameter in command.params]
    names = {name for each in parameters for name in (*each.opts, *each.secondary_opts) if name.startswith("--")}
    return names | {"--help", "--version"}


def words() -> int:
    """Words of the README and of the pages in docs."""
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


if __name__ == "__main__":
    for room, (count, budget) in rooms().items():
        print(f"{count:>7,} {'of ' + format(budget, ',') if budget else 'not a room':>10}  {room}")
    size = {"src": lines(SOURCE), "tests": lines(ROOT / "tests"), "benchmarks": lines(ROOT / "benchmarks")}
    size |= {"commands": len(commands()), "option names": len(option_names()), "words of README and docs": words()}
    for what, count in size.items():
        print(f"{count:>7,} {'of ' + format(TOGETHER[what], ',') if what in TOGETHER else '':>10}  {what}")
