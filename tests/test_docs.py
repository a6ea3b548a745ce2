"""The documentation says what the code does: it is generated from it, run against it, and its links lead somewhere."""

import importlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import deadlines
import ghofl
from ghofl import HEADS, Layout
from ghofl.features import rademacher
from ghofl.simulation.demo import digits
from pages import README, ROOT, blocks, lines_of, run, run_lines, unrolled

PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
CLASSES = np.array(["cat", "dog", "bird"])
FIVE = "Five commands from a clone to an evaluated head"


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ghofl_docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if not (ROOT / "docs" / "generate.py").exists():
    pytest.skip("the pages are not beside the tests", allow_module_level=True)
GENERATOR = _generator()
COMMANDS = GENERATOR.commands()


def _site(folder: Path, name: str, rows: int, dim: int, rng: np.random.Generator, classes: int = 3) -> None:
    y = rng.integers(classes, size=rows)
    x = rng.normal(size=(rows, dim)) + 2.0 * np.eye(3, dim)[y]
    np.savez(folder / f"{name}.npz", x=x, y=CLASSES[y])


def test_the_command_line_page_is_what_the_commands_say_now() -> None:
    assert GENERATOR.CLI.read_text(encoding="utf-8") == GENERATOR.cli(), "docs/cli.md is out of date: run make docs"


def test_the_table_of_heads_is_what_the_heads_say_now() -> None:
    text = GENERATOR.HEADS_PAGE.read_text(encoding="utf-8")
    assert text == GENERATOR.with_heads(text), "the table of heads in docs/heads.md is out of date: run make docs"


def test_the_pages_count_the_heads_that_there_are() -> None:
    """A head that is trained takes a seed; the others are closed forms."""
    trained = [name for name, head in HEADS.items() if "seed" in head.Options.known()]
    words = {2: "two", 10: "ten", 11: "eleven", 12: "twelve", 13: "thirteen", 14: "fourteen"}
    closed, others = words[len(HEADS) - len(trained)], words[len(trained)]
    readme, story = (
        " ".join(page.read_text(encoding="utf-8").split()) for page in (README, ROOT / "docs" / "story.md")
    )
    assert f"{closed} in closed form, and {others} that are trained" in readme
    assert f"{closed.capitalize()} of them are closed forms, and {others} are trained" in story


@pytest.mark.parametrize(("need", "text"), GENERATOR.SIZES.items())
def test_the_size_the_table_gives_is_the_size_of_the_layout(need: tuple[str, ...], text: str) -> None:
    c, d, k = 7, 33, 5
    layout = Layout(c, d, tuple(s for s in need if s != "Z"), sketch=k if "Z" in need else 0)
    assert eval(text.replace("·", "*"), {"C": c, "d": d, "k": k}) == layout.entries


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_whose_options_exist(name: str) -> None:
    words = shlex.split(GENERATOR.example(COMMANDS[name]))
    said = words[: 1 + len(name.split())]
    assert said == ["ghofl", *name.split()], f"ghofl {name} --help has no line 'Example: ghofl {name} ...'"
    known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known


def test_the_python_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks(README, "python")
    exec(compile(example, "README.md", "exec"), {})
    accuracy, sha256 = capsys.readouterr().out.split()
    assert float(accuracy) > 0.9
    assert re.fullmatch("[0-9a-f]{64}", sha256)


@pytest.mark.slow
def test_the_shell_example_of_the_readme_runs_in_a_real_shell(tmp_path: Path, rng: np.random.Generator) -> None:
    (script,) = (block for block in blocks(README, "sh") if "ghofl moments" in block)
    for name, rows in (("north", 120), ("south", 60), ("test", 50)):
        _site(tmp_path, name, rows, 64, rng)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    deadlines.run("sh", "-e", "-c", script, cwd=tmp_path, env=environment)
    assert (tmp_path / "without-south.ghofl").exists()


def test_the_walk_through_with_files_runs_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """A line that ends in `# refused: TEXT` must fail, and say TEXT."""
    for name, rows in (("north", 120), ("south", 60), ("east", 30), ("west", 40), ("new", 20), ("test", 50)):
        _site(tmp_path, name, rows, 64, rng)
    monkeypatch.chdir(tmp_path)
    lines = lines_of(ROOT / "docs" / "how-to-files.md", "Three sites and a server")
    assert len(lines) > 10
    run_lines(lines)
    assert Path("total.ghofl").read_bytes() == Path("back.ghofl").read_bytes()


def test_the_walk_through_of_probabilities_runs_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    for name, rows in (("north", 120), ("south", 60), ("new", 20), ("test", 50)):
        _site(tmp_path, name, rows, 64, rng)
    monkeypatch.chdir(tmp_path)
    lines = lines_of(ROOT / "docs" / "how-to-probabilities.md")
    assert len(lines) > 10
    run_lines(lines)


@pytest.mark.slow
def test_the_walk_through_of_simulations_runs_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = digits()
    np.savez(
        tmp_path / "digits.npz", x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test
    )
    monkeypatch.chdir(tmp_path)
    lines = lines_of(ROOT / "docs" / "how-to-simulate.md", "Experiments")
    said = {line: run(line) for line in [*lines, *lines_of(ROOT / "docs" / "index.md")]}
    totals = [json.loads(text)["total_sha256"] for line, text in said.items() if line.endswith("--json -")]
    assert len(totals) == 2
    assert len(set(totals)) == 1


@pytest.mark.filterwarnings("ignore::ghofl.errors.EmptyClassWarning")  # the noise decides whether a class is left empty
@pytest.mark.slow
def test_the_walk_through_of_private_runs_runs_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    data = digits()
    arrays = {name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(tmp_path / "digits.npz", **arrays)
    np.savez(tmp_path / "public.npz", x=data.x_test)
    for name, rows in (("north", slice(0, 700)), ("south", slice(700, None))):
        np.savez(tmp_path / f"{name}.npz", x=data.x_train[rows], y=data.y_train[rows])
    monkeypatch.chdir(tmp_path)
    lines = lines_of(ROOT / "docs" / "how-to-private-runs.md", "Make a promise and keep it")
    assert len(lines) > 15
    run_lines(lines)


@pytest.mark.filterwarnings("ignore::ghofl.errors.EmptyClassWarning")  # the noise decides whether a class is left empty
@pytest.mark.slow
def test_the_walk_through_of_public_rows_runs_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = digits()
    arrays = {name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(tmp_path / "digits.npz", **arrays)
    np.savez(tmp_path / "public.npz", x=data.x_test, y=data.y_test)
    monkeypatch.chdir(tmp_path)
    lines = lines_of(ROOT / "docs" / "how-to-private-runs.md", "Public rows")
    assert len(lines) == 5
    run_lines(lines)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ghofl.errors.ClippingWarning")  # test rows beyond a draft of the training rows
def test_the_walk_through_of_tables_runs_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """The data dictionary is the page's own, and the rows follow it."""
    page = ROOT / "docs" / "how-to-tables.md"
    (dictionary,) = blocks(page, "text")
    (tmp_path / "dictionary.csv").write_text(dictionary, encoding="utf-8")
    _patients(tmp_path, rng, north=200, south=90, test=60, new=20)
    monkeypatch.chdir(tmp_path)
    short = lines_of(page, FIVE)
    lines = [line for line in lines_of(page) if line not in short]
    assert len(lines) > 10
    run_lines(lines)


def _patients(folder: Path, rng: np.random.Generator, **sizes: int) -> None:
    """Tables as the page on tables describes them."""
    for name, rows in sizes.items():
        lines = ["age,creatinine,ward,diagnosis"]
        for i in range(rows):
            sick = int(rng.random() < 0.4)
            value = f"{np.exp(rng.normal(4.5 + sick, 0.5)):.1f}" if i % 9 else ""
            ward = "surgery" if rng.random() < 0.3 + 0.3 * sick else "medicine"
            diagnosis = "malignant" if sick else "benign"
            lines.append(f"{rng.normal(50 + 10 * sick, 9):.0f},{value},{ward},{diagnosis}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.filterwarnings("ignore::ghofl.errors.ClippingWarning")  # rows of others beyond a draft of the first site's
def test_five_commands_lead_from_a_clone_to_a_head_that_was_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """The first installs."""
    _patients(tmp_path, rng, north=120, south=90, east=60, test=60)
    monkeypatch.chdir(tmp_path)
    install, *walk = blocks(ROOT / "docs" / "how-to-tables.md", "sh", FIVE)[0].splitlines()
    assert install == "pip install ."
    assert len(walk) == 4
    *made, evaluated = [line for each in walk for line in unrolled(each)]
    run_lines(made)
    assert "Recall and precision" in run(evaluated)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("how-to-simulate.md", marks=pytest.mark.slow), "how-to-private-runs.md",
        "how-to-tables.md", "how-to-probabilities.md", "how-to-own-rows.md", "math.md", "message-format.md",
    ],
)  # fmt: skip
def test_the_python_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as somebody who reads the page would run them."""
    monkeypatch.chdir(tmp_path)
    examples = blocks(ROOT / "docs" / page, "python")
    assert examples
    names = {"__name__": page}
    for example in examples:
        exec(compile(example, page, "exec"), names)


@pytest.mark.slow
def test_the_story_says_what_its_lines_print(capsys: pytest.CaptureFixture[str]) -> None:
    """Every block of the front page's story is followed by what it shows."""
    text, names = (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), {}
    told = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(told) == text.count("```python") == 7
    for example, shown in told:
        exec(compile(example, "index.md", "exec"), names)
        assert capsys.readouterr().out == shown


def test_the_signs_in_the_mathematics_page_are_the_library_s() -> None:
    """The page's own few lines of Rademacher signs, written without numpy, give the library's matrices."""
    (code,) = (block for block in blocks(ROOT / "docs" / "math.md", "python") if "def signs" in block)
    names: dict = {}
    exec(compile(code, "math.md", "exec"), names)
    for rows, columns, purpose in ((2, 4, "projection"), (33, 7, "lift"), (5, 1, "sketch")):
        assert names["signs"](3, rows, columns, purpose) == rademacher(3, rows, columns, purpose).tolist()


def _links(page: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", prose) if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in _links(page):
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        if ROOT / "benchmarks" in file.parents and not (ROOT / "benchmarks").exists():
            continue  # a source archive has no measurements
        assert file.exists(), f"{page.name} links to {link}, which is not there"
        if anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{page.name} links to {link}, and that page has no such heading"


def test_the_readme_leads_to_the_front_page_and_that_to_every_page_of_the_docs() -> None:
    front = ROOT / "docs" / "index.md"
    assert "docs/index.md" in _links(README)
    listed = {line for block in blocks(front, "{toctree}") for line in block.split()}
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"} <= listed


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_has_every_page(tmp_path: Path) -> None:
    # A copy, because sphinx-gallery warns of spaces in the path of a checkout. tests/test_gallery.py runs the examples.
    copy = shutil.copytree(ROOT, tmp_path / "checkout", ignore=shutil.ignore_patterns(".*", "build", "__pycache__"))
    words = ("-m", "sphinx", "-W", "-q", "-b", "html", "-D", "plot_gallery=0", "-d", tmp_path / "trees")
    deadlines.run(sys.executable, *words, copy / "docs", tmp_path / "site", seconds=240)
    for page in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / "site" / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    front, commands = ((tmp_path / "site" / name).read_text() for name in ("index.html", "cli.html"))
    assert f"ghofl {ghofl.__version__}" in front
    assert re.findall(r"[\s>(]–\w+", commands) == [], "the hyphens of an option became a dash"


def test_the_python_interface_lists_every_module_that_users_import() -> None:
    listed = {
        name
        for page in (ROOT / "docs" / "api").glob("*.md")
        for name in re.findall(r"automodule:: (\S+)", page.read_text())
    }
    for name in listed:
        importlib.import_module(name)
    public = {value.__module__ for value in map(ghofl.__getattr__, ghofl.__all__) if hasattr(value, "__module__")}
    assert public <= listed
