"""How-to pages are run as a reader would run them, and no page names a command or an option that is not there."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ghofl.cli import PLACES, app, load
from ghofl.simulation.demo import digits
from ghofl.simulation.runs import Runs
from pages import DOCS, README, ROOT, blocks, lines_of, run_lines, text_of

if not DOCS.exists():
    pytest.skip("the pages are not beside the tests", allow_module_level=True)

PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.glob("*.md"))]


def _rows(path: Path, rows: int, rng: np.random.Generator) -> None:
    y = rng.integers(3, size=rows)
    np.savez(path, x=rng.normal(size=(rows, 64)) + 2.0 * np.eye(3, 64)[y], y=np.array(["cat", "dog", "bird"])[y])


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> Path:
    """A folder with a recipe, two sites' rows and their messages."""
    monkeypatch.chdir(tmp_path)
    for name, rows in (("north", 120), ("south", 60), ("south-without-one", 59)):
        _rows(tmp_path / f"{name}.npz", rows, rng)
    run_lines(
        ["ghofl recipe recipe.toml --classes cat,dog,bird --dim 64 --statistics B --scale 20"]
        + [
            f"ghofl moments {name}.npz --recipe recipe.toml --site {name} -o {name}.ghofl"
            for name in ("north", "south")
        ]
    )
    return tmp_path


def test_the_walk_through_of_unlearning_runs_line_by_line(federation: Path) -> None:
    lines = lines_of(DOCS / "how-to-files.md", "Unlearn a site, or a person")
    assert len(lines) == 8
    run_lines(lines)
    assert Path("without-south.ghofl").read_bytes() == Path("never-had-south.ghofl").read_bytes()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ghofl.errors.EmptyClassWarning")  # the noise decides whether a class is left empty
def test_the_walk_through_of_choosing_epsilon_runs_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data, page = digits(), DOCS / "how-to-private-runs.md"
    arrays = {name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez("digits.npz", **arrays)
    np.savez("north.npz", x=data.x_train, y=data.y_train)
    lines = lines_of(page, "Choose epsilon for your own data")
    assert len(lines) == 7
    run_lines(lines)
    runs = Runs.load("epsilon.json").to_frame()
    assert len(runs) == 2 * (1 + 5 * 3)  # heads, and no noise or five budgets with three seeds
    told = _cells(page, "Choose epsilon for your own data")
    for head in ("lda", "nearest_mean"):
        (line,) = (cells for name, cells in told.items() if f"`{head}`" in name)
        for epsilon, percent in list(zip(told["measured at ε"], line, strict=True))[
            :4
        ]:  # the noise of the others is large
            at = runs["epsilon"].isna() if epsilon == "none" else runs["epsilon"] == float(epsilon)
            found = 100 * runs[at & (runs["head"] == head)]["accuracy"].mean()
            assert found == pytest.approx(float(percent), abs=0.1 if epsilon == "none" else 5.0), (head, epsilon)


def _cells(page: Path, under: str) -> dict[str, list[str]]:
    """The rows of the tables under a page's heading, by their first cell."""
    lines = [line.split("|") for line in text_of(page, under).splitlines() if line.startswith("|")]
    return {line[1].strip(): [cell.strip() for cell in line[2:-1]] for line in lines}


def test_the_table_of_odds_is_what_epsilon_says() -> None:
    cells = _cells(DOCS / "how-to-private-runs.md", "Choose epsilon for your own data")
    epsilons = np.array([float(cell) for cell in cells["ε"]])
    odds = [float(cell.removesuffix(": 1").replace(",", "")) for cell in cells["odds, at most"]]
    right = [float(cell.removesuffix("%")) for cell in cells["right, at most"]]
    assert np.exp(epsilons) == pytest.approx(odds, rel=0.04)
    assert 100 * np.exp(epsilons) / (1 + np.exp(epsilons)) == pytest.approx(right, abs=0.3)


CALLS = re.compile(r"^(?:sudo -u \w+ |ExecStart=\S*/|\s*command: )?ghofl ([^#|\n]+)", re.MULTILINE)


def _options(words: list[str]) -> set[str]:
    """All options of the command that words begin with."""
    assert words[0] in PLACES, f"there is no command {words[0]}"
    command = load(words[0])
    below = getattr(command, "commands", None)
    if below is not None:
        if words[1:] in ([], ["…"]):
            return set()
        assert words[1] in below, f"ghofl {words[0]} has no command {words[1]}"
        command = below[words[1]]
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_names_is_there_with_its_options(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    told = re.findall(r"`ghofl ([a-z][^`]*)`", prose)
    for language in ("sh", "text", "ini", "yaml"):
        told += [line for block in blocks(page, language) for line in CALLS.findall(block.replace("\\\n", " "))]
    for line in told:
        words = re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", line).split()
        strange = {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)} - _options(words) - {"--help"}
        assert not strange, f"{page.name}: ghofl {line} has no {strange}"


def test_the_command_of_diagnosis_names_a_swapped_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.chdir(tmp_path)
    run_lines(["ghofl recipe recipe.toml --classes cat,dog,bird --dim 64 --statistics B --scale 20"])
    for name in ("north", "south", "west", "east"):
        _rows(tmp_path / f"{name}.npz", 200, rng)
        if name == "east":
            with np.load("east.npz") as rows:
                swapped = {"cat": "dog", "dog": "bird", "bird": "cat"}
                np.savez("east.npz", x=rows["x"], y=np.array([swapped[label] for label in rows["y"]]))
        run_lines([f"ghofl moments {name}.npz --recipe recipe.toml --site {name} -o {name}.ghofl"])
    (line,) = lines_of(DOCS / "how-to-files.md", "Is one of the messages wrong?")
    done = CliRunner().invoke(app, shlex.split(line)[1:])
    assert done.exit_code == 3, done.output
    assert "east" in done.output
