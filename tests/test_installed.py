"""What an index would give is what the tests try: a source archive, the wheel made from it, and its command line."""

import json
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from test_cli import COMMANDS

import deadlines
import ghofl

ROOT = Path(__file__).parents[1]
# Beside what a user gets: what the tests of the command line are written with, and nothing of the other extras.
BUILDING = ["build", "hatchling"]
TESTING = ["pytest", "hypothesis", "beartype", "jaxtyping"]
PIP = (sys.executable, "-m", "pip", "--python")
OFFLINE = ("No matching distribution", "Connection", "Temporary failure", "Could not fetch")
HELP = """
import json, sys
from typer.testing import CliRunner
from ghofl.cli import app
helps = {name: CliRunner().invoke(app, [*name.split(), "--help"]).output for name in json.loads(sys.argv[1])}
print(json.dumps({name: text.split() for name, text in helps.items()}))
"""

pytestmark = pytest.mark.slow


def run(*command, **options):
    """A process that finds no package of this checkout, and draws help of one width."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment |= {"COLUMNS": "160", "TERMINAL_WIDTH": "160", "NO_COLOR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return deadlines.run(*command, env=environment, seconds=280, **options)


def environment(folder, *packages):
    """The Python of a new environment with these packages, installed one after the other."""
    # The pip of this environment installs into the other one, which spares it a pip; most of scipy is never imported,
    # so it is not compiled either.
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    install(folder / "bin" / "python", *packages)
    return folder / "bin" / "python"


def install(python, *packages):
    for what in packages:
        done = run(*PIP, python, "install", "--quiet", "--no-compile", *what, code=None)
        if done.returncode and any(word in done.stderr for word in OFFLINE):
            pytest.skip(f"packages cannot be downloaded here: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source archive of this checkout, and the wheel that was built from it."""
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("the package is not beside the tests")
    folder = tmp_path_factory.mktemp("built")
    python = environment(folder / "tools", BUILDING)
    run(python, "-m", "build", "--no-isolation", "--outdir", folder / "dist", ROOT)
    (archive,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return archive, wheel


@pytest.fixture
def installed(built, tmp_path):
    """The Python of a new environment with the package as a user installs it."""
    # In this order: what tests need must not choose what users get.
    return environment(tmp_path / "venv", [built[1]], TESTING)


def test_the_archives_are_of_this_version_and_hold_what_they_should(built):
    archive, wheel = built
    assert archive.name == f"ghofl-{ghofl.__version__}.tar.gz"
    assert wheel.name == f"ghofl-{ghofl.__version__}-py3-none-any.whl"
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {"ghofl/py.typed", "ghofl/report/page.css", "ghofl/report/page.js", "ghofl/cli/__init__.py"} <= inside
    assert {name.split("/")[0] for name in inside} == {"ghofl", f"ghofl-{ghofl.__version__}.dist-info"}
    with tarfile.open(archive) as opened:
        top = {name.split("/")[1] for name in opened.getnames() if "/" in name}
    assert {"src", "tests", "docs", "examples", "README.md", "LICENSE", "SECURITY.md", "pyproject.toml"} <= top
    assert not top & {".git", ".venv", "build", "benchmarks"}


def test_an_installation_helps_with_the_words_of_the_tested_one_and_passes_its_tests_and_the_demo(
    built, installed, tmp_path
):
    """One test, because making the environment is most of the work."""
    where = run(installed, "-c", "import ghofl; print(ghofl.__file__)", cwd=tmp_path).stdout
    assert where.startswith(str(tmp_path)), where
    names = {line.split("==")[0].lower() for line in run(*PIP, installed, "freeze").stdout.splitlines()}
    assert {"typer", "rich", "numpy"} <= names
    said = run(installed, "-c", "import importlib.metadata as m; print(m.version('ghofl'))", cwd=tmp_path).stdout
    assert said.strip() == ghofl.__version__ == run(installed, "-m", "ghofl", "--version", cwd=tmp_path).stdout.strip()
    assert not names & {"torch", "flwr", "transformers", "scikit-learn"}

    commands = json.dumps([*COMMANDS, "flower new", "flower check"])
    there = run(installed, "-c", HELP, commands, cwd=tmp_path)
    wide = {**os.environ, "COLUMNS": "160", "TERMINAL_WIDTH": "160", "NO_COLOR": "1"}
    here = deadlines.run(sys.executable, "-c", HELP, commands, cwd=tmp_path, env=wide)
    assert json.loads(there.stdout) == json.loads(here.stdout)
    assert "--budget" in json.loads(there.stdout)["recipe"]

    run(
        installed, "-m", "pytest", ROOT / "tests" / "test_cli.py", "-q", "-p", "no:cacheprovider", "-k", "not demo",
        "-m", "not slow", "-o", "addopts=--import-mode=importlib", cwd=ROOT,  # as users run it: without type checks
    )  # fmt: skip

    install(installed, [f"{built[1]}[demo]"])
    shown = run(installed, "-m", "ghofl", "demo", cwd=tmp_path)
    assert "exact unlearning" in shown.stdout
    assert list(tmp_path.iterdir()) == [tmp_path / "venv"], "the demo leaves no file behind"
