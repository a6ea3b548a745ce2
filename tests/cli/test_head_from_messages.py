"""One command from messages to a head: everything that `sum` and `release` check holds, and nothing exact is left behind."""

import json
import os
from pathlib import Path

import pytest
from test_cli import federation, folder, ghofl

from ghofl.recipe import Recipe
from ghofl.wire.envelope import peek

assert folder  # the fixture
MESSAGES = ("north.ghofl", "south.ghofl", "--recipe", "recipe.toml")


def _private(*options: str) -> None:
    """Two sites whose recipe promises epsilon by noise on the total."""
    ghofl("recipe", "recipe.toml", "--classes", "4", "--dim", "6", "--epsilon", "20", "--radius", "30", *options)
    for site in ("north", "south"):
        ghofl("moments", f"{site}.npz", "-r", "recipe.toml", "--site", site, "-o", f"{site}.ghofl")


def _kinds() -> set[str]:
    """What kinds of files with sums are in the folder."""
    headers = (peek(path) for path in Path().iterdir() if path.suffix in (".ghofl", ".safetensors"))
    return {header["kind"] for header in headers if header is not None}


def test_a_head_of_messages_is_byte_for_byte_the_head_of_their_total(folder):
    federation()
    (folder / "inbox").mkdir()
    ghofl("head", "total.ghofl", "-o", "of-total.safetensors")
    ghofl("head", *MESSAGES, "-o", "of-messages.safetensors")
    for name in ("north.ghofl", "south.ghofl"):
        os.rename(name, f"inbox/{name}")
    ghofl("head", "inbox", "-r", "recipe.toml", "-o", "of-folder.safetensors")
    found = {Path(f"of-{what}.safetensors").read_bytes() for what in ("total", "messages", "folder")}
    assert len(found) == 1


def test_messages_become_a_head_and_no_total_is_left(folder):
    federation()
    os.remove("total.ghofl")
    before = set(os.listdir())
    ghofl("head", *MESSAGES, "-o", "head.safetensors")
    assert set(os.listdir()) - before == {"head.safetensors"}


@pytest.mark.parametrize("command", ["sum", "head"])
def test_what_sum_refuses_head_refuses_too_and_writes_nothing(folder, capsys, command):
    federation("--min-cohort", "3")
    before = set(os.listdir())
    refusals = {
        ("north.ghofl", "north.ghofl", "-r", "recipe.toml"): "already in the total",
        ("total.ghofl", "-r", "recipe.toml"): "a 'message' was expected",
        ("nowhere.ghofl", "-r", "recipe.toml"): "No such file",
    }
    for words, says in refusals.items():
        ghofl(command, *words, "-o", "x", code=2)
        assert says in " ".join(capsys.readouterr().err.split())
    assert set(os.listdir()) == before


def test_a_head_waits_for_the_cohort_that_the_recipe_asks_for(folder, capsys):
    federation("--min-cohort", "3")
    ghofl("head", *MESSAGES, "-o", "head.safetensors", code=2)
    assert "privacy.min_cohort is 3" in " ".join(capsys.readouterr().err.split())
    assert not Path("head.safetensors").exists()


@pytest.mark.filterwarnings("ignore::ghofl.errors.EmptyClassWarning")
def test_under_central_epsilon_one_release_is_counted_and_no_exact_total_is_on_disk(folder):
    _private()
    said = ghofl("head", *MESSAGES, "-o", "head.safetensors")
    assert "differential privacy of one record" in said
    assert _kinds() == {"message", "head"}
    (line,) = Path("head.safetensors.releases.jsonl").read_text().splitlines()
    assert json.loads(line)["sites"] == ["north", "south"]
    head = json.loads(ghofl("inspect", "head.safetensors", "--json", "-"))
    assert head["guarantee"]["epsilon"] == pytest.approx(20.0)
    assert "released 2 times" in " ".join(ghofl("head", *MESSAGES, "-o", "again.safetensors").split())
    again = json.loads(ghofl("inspect", "again.safetensors", "--json", "-"))
    assert again["guarantee"]["epsilon"] > 25.0
    ghofl("sum", *MESSAGES, "-o", "total.ghofl")
    third = json.loads(ghofl("release", "total.ghofl", "-o", "released.ghofl", "--json", "-"))
    assert third["composed"]["releases"] == 3, "the release of a total knows of those of its messages"


def test_a_head_that_cannot_be_built_spends_no_epsilon(folder):
    _private("--statistics", "D")
    wrong = {"rda": "head.safetensors", "nothing": "head.safetensors", "nb": "no/such/head.safetensors"}
    for head, output in wrong.items():
        ghofl("head", *MESSAGES, "--head", head, "-o", output, code=2)
    assert not list(Path().glob("**/*.releases.jsonl"))
    assert _kinds() == {"message"}


def test_messages_of_a_secure_recipe_are_refused_with_the_commands_that_take_it(folder, capsys):
    federation()
    ghofl("recipe", "secure.toml", "--classes", "4", "--dim", "6", "--secure")
    assert Recipe.load("secure.toml").privacy.secure
    ghofl("head", "north.ghofl", "south.ghofl", "-r", "secure.toml", "-o", "head.safetensors", code=2)
    said = " ".join(capsys.readouterr().err.split())
    assert "asks for secure aggregation" in said
    assert "'ghofl secure'" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("north.ghofl", "south.ghofl"), "came without --recipe"),
        (("inbox",), "came without --recipe"),
        (("inbox", "-r", "recipe.toml"), "holds no messages"),
    ],
)
def test_a_head_says_what_it_takes(folder, words, says):
    federation()
    (folder / "inbox").mkdir()
    text = " ".join(ghofl("head", *words, "-o", "x.safetensors", code=2).replace("│", " ").split())
    assert says in text


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("train", "Did you mean 'ghofl head'?"),
        ("trian", "Did you mean 'ghofl head'?"),
        ("xyzzy", "'ghofl --help' lists all commands."),
    ],
)
def test_an_unknown_command_is_answered_with_a_known_one(typed, advice):
    assert advice in " ".join(ghofl(typed, code=2).replace("│", " ").split())


@pytest.mark.parametrize("words", [["--help"], ["-h"]])
def test_help_begins_with_where_to_start(words):
    assert ghofl(*words).startswith("Start here: ghofl demo")
