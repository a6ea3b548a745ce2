"""What `pip install .` gives is what the tests try: its command line works, and helps with the same words."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import COMMANDS

ROOT = Path(__file__).parents[1]
# Beside what a user gets: what the tests of the command line are written with, and nothing of the other extras.
TESTING = ["pytest", "pytest-timeout", "hypothesis", "beartype", "jaxtyping"]
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
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, **options)


@pytest.fixture
def installed(tmp_path):
    """The Python of a new environment with the package as a user installs it."""
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("the package is not beside the tests")
    # The pip of this environment installs into the other one, which spares it a pip; most of scipy is never imported,
    # so it is not compiled either.
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", check=True)
    python = tmp_path / "venv" / "bin" / "python"
    for what in ([f"{ROOT}[zstd]"], TESTING):  # in this order: what tests need must not choose what users get
        done = run(*PIP, python, "install", "--quiet", "--no-compile", *what)
        if done.returncode and any(word in done.stderr for word in OFFLINE):
            pytest.skip(f"packages cannot be downloaded here: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
    return python


def test_an_installation_helps_with_the_words_of_the_tested_one_and_passes_its_tests(installed, tmp_path):
    """One test, because making the environment is most of the work. The demo, whose digits are an extra, is left out."""
    where = run(installed, "-c", "import ghofl; print(ghofl.__file__)", cwd=tmp_path).stdout
    assert where.startswith(str(tmp_path)), where
    names = {line.split("==")[0].lower() for line in run(*PIP, installed, "freeze").stdout.splitlines()}
    assert {"typer", "rich", "numpy"} <= names
    assert not names & {"torch", "flwr", "transformers", "scikit-learn"}

    commands = json.dumps([*COMMANDS, "flower new", "flower check"])
    there = run(installed, "-c", HELP, commands, cwd=tmp_path)
    here = subprocess.run(
        [sys.executable, "-c", HELP, commands], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "COLUMNS": "160", "TERMINAL_WIDTH": "160", "NO_COLOR": "1"},
    )  # fmt: skip
    assert there.returncode == here.returncode == 0, there.stderr + here.stderr
    assert json.loads(there.stdout) == json.loads(here.stdout)
    assert "--budget" in json.loads(there.stdout)["recipe"]

    done = run(
        installed, "-m", "pytest", ROOT / "tests" / "test_cli.py", "-q", "-p", "no:cacheprovider", "-k", "not demo",
        "-m", "not slow", "-o", "addopts=--import-mode=importlib", cwd=ROOT,  # as users run it: without type checks
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
