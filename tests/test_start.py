"""A command starts quickly because it imports what it needs and no more; a shell completes what can be listed."""

import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ghofl
from deadlines import run
from ghofl import HEADS
from ghofl.cli import COMMANDS, app, load

GOLDEN = Path(__file__).parent / "golden"
# Each takes longer to import than a plain command may take to start, or comes with an extra.
HEAVY = {
    "asyncio", "datasets", "fastapi", "flwr", "jaxtyping", "matplotlib", "onnx", "onnxruntime", "pandas", "polars", "ray",
    "scipy.linalg", "scipy.optimize", "scipy.special", "scipy.stats", "sklearn", "timm", "torch", "torchvision",
    "transformers", "unittest.mock",
}  # fmt: skip
LISTED = """
import json, sys
sys.argv = ["ghofl", *json.loads(sys.argv[1])]
from ghofl.cli import main
try:
    main()
except SystemExit as stopped:
    assert not stopped.code, stopped.code
print("IMPORTED", json.dumps(sorted(sys.modules)))
"""


def imported_by(*arguments: object) -> set[str]:
    """The modules that a process has imported when this command ends."""
    words = json.dumps(list(map(str, arguments)))
    return set(json.loads(run(sys.executable, "-c", LISTED, words).stdout.rpartition("IMPORTED ")[2]))


@pytest.mark.parametrize("command", [["--version"], ["--help"]])
def test_the_program_tells_its_version_and_its_commands_without_numbers(command: list[str]) -> None:
    modules = imported_by(*command)
    assert not modules & {*HEAVY, "numpy", "scipy", "cryptography"}
    assert not {name for name in modules if name.startswith("ghofl.")} - {
        "ghofl.cli",
        "ghofl.cli.console",
        "ghofl.errors",
        "ghofl.names",
    }


def test_inspecting_a_file_imports_nothing_heavy() -> None:
    seen = imported_by("inspect", GOLDEN / "total-B.safetensors")
    rooms = ("ghofl.heads", "ghofl.evaluation", "ghofl.encoders", "ghofl.secure", "ghofl.planning")
    assert not {name for name in seen if name in HEAVY or name.startswith(rooms)}
    assert not imported_by("inspect", GOLDEN / "head-lda.safetensors") & {*HEAVY, "importlib.metadata"}
    assert not imported_by("inspect", "--help") & HEAVY


def test_importing_ghofl_imports_none_of_its_rooms_until_a_name_is_used() -> None:
    code = (
        "import sys, ghofl; before = 'numpy' in sys.modules or 'ghofl.recipe' in sys.modules;"
        "ghofl.Recipe; print(before, 'ghofl.recipe' in sys.modules, ghofl.wire.__name__, hasattr(ghofl, 'nothing'))"
    )
    assert run(sys.executable, "-c", code).stdout.split() == ["False", "True", "ghofl.wire", "False"]


def test_every_public_name_is_where_the_table_says_and_is_listed() -> None:
    assert set(ghofl.__all__) <= set(dir(ghofl))
    for name in ghofl.__all__:
        assert getattr(ghofl, name) is not None
    text = Path(ghofl.__file__).read_text(encoding="utf-8")
    seen_by_checkers = {line.split()[-1] for line in text.splitlines() if line.startswith("    from ghofl")}
    assert seen_by_checkers == set(ghofl.__all__)


@pytest.mark.parametrize(("panel", "name"), [(panel, name) for panel, names in COMMANDS.items() for name in names])
def test_the_list_of_commands_says_what_the_command_s_own_help_says(panel: str, name: str) -> None:
    assert COMMANDS[panel][name][1] == (load(name).help or "").split("\n")[0]


def completed(*words: str) -> list[str]:
    """What bash offers for the last word."""
    environment = {"_GHOFL_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(("ghofl", *words)).rstrip()}
    environment["COMP_CWORD"] = str(len(words))
    done = CliRunner().invoke(app, [], prog_name="ghofl", env=environment)
    return done.output.split()


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (["flower", "ch"], ["check"]),
        (["head", "--he"], ["--head", "--help"]),
        (["head", "--head", "ld"], ["lda", "lda_ridge"]),
        (["simulate", "--heads", "nb,qd"], ["nb,qda"]),
        (["recipe", "--statistics", "B,D"], ["B,D"]),
        (["embed", "--encoder", "torch"], ["torchvision:", "torchvision:mobilenet_v2"]),
    ],
)
def test_a_shell_completes_commands_options_heads_statistics_and_encoders(words: list[str], offers: list[str]) -> None:
    assert completed(*words) == offers


def test_all_heads_are_offered_and_none_that_is_not_there() -> None:
    assert completed("head", "--head", "") == [*HEADS, "best"]
    assert completed("head", "--head", "nothing_like_it") == []


@pytest.mark.slow
def test_the_script_of_a_shell_asks_the_program_itself() -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = run(sys.executable, "-m", "ghofl", "--show-completion", "bash", env=environment)
    assert "complete_bash" in done.stdout
