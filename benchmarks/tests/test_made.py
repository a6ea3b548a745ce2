"""Every stored file says what made it, and a run keeps that true."""

import json
import re
import shutil
from datetime import UTC, datetime

import false_alarms
import naive_bayes
import numpy as np
import pytest
import run
from ghofl_benchmarks import made, ours, report

import deadlines
from ghofl import Encoder, Recipe
from ghofl.simulation.demo import digits

RECIPE = "ab" * 32
COMMIT = re.compile("[0-9a-f]{40}")
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty folder of results, and a part that is done at once."""
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    monkeypatch.setattr(run, "PARTS", {"speed": lambda: {"recipe": RECIPE}})
    monkeypatch.setattr(made, "_noted", set())
    monkeypatch.setattr(run, "FIGURES", {"speed": lambda result: (tmp_path / "speed.svg").write_text("<svg/>")})
    monkeypatch.setattr(run, "SECTIONS", ())
    monkeypatch.setattr(made, "code", lambda: {"made_by": "c" * 40, "dirty": False})
    return tmp_path


def test_every_stored_file_has_an_entry_of_its_content():
    """After files were put there by hand and committed: python -m ghofl_benchmarks.made."""
    index = made.read(report.RESULTS)
    assert {path.name: made.digest(path) for path in made.files(report.RESULTS)} == {
        name: entry["sha256"] for name, entry in index.items()
    }


@pytest.mark.parametrize(("name", "entry"), made.read(report.RESULTS).items())
def test_an_entry_names_the_commit_that_made_the_file_or_the_one_that_stored_it(name, entry):
    assert ("made_by" in entry) != ("stored_at" in entry)
    assert COMMIT.fullmatch(entry.get("made_by") or entry["stored_at"])
    assert isinstance(entry["dirty"], bool) if "made_by" in entry else "dirty" not in entry
    assert datetime.fromisoformat(entry["when"])
    found = json.loads((report.RESULTS / name).read_text()) if name.endswith(".json") else None
    assert set(made.recipes_in(found)) <= set(entry["recipes"] or ())


def test_a_run_writes_the_commit_the_recipes_and_the_day_of_all_its_files(folder):
    made.write(folder, {"speed.json": {"stored_at": "d" * 40, "recipes": None, "sha256": ""}})
    assert run.main(["speed"]) == 0
    index, today = made.read(folder), datetime.now(UTC).date().isoformat()
    assert set(index) == {"speed.json", "speed.svg", "README.md"} == {path.name for path in made.files(folder)}
    assert index["speed.json"] == {
        "made_by": "c" * 40, "dirty": False, "when": today, "recipes": [RECIPE],
        "sha256": made.digest(folder / "speed.json"),
    }  # fmt: skip


def test_a_page_that_came_out_the_same_keeps_its_entry_and_results_do_not(folder, monkeypatch):
    run.main(["speed"])
    monkeypatch.setattr(made, "code", lambda: {"made_by": "e" * 40, "dirty": True})
    run.main(["speed"])
    by = {name: entry["made_by"][0] for name, entry in made.read(folder).items()}
    assert by == {"speed.json": "e", "speed.svg": "c", "README.md": "c"}


def test_tables_and_pages_of_the_package_are_entered_too(folder):
    result = {**report.new_result("table-x", "X", 0), "rows": [{"set": "a", "recipe": RECIPE}]}
    report.write(result, folder, has_older_rows=True)
    index = made.read(folder)
    assert set(index) == {"table-x.json", "table-x.md"}
    assert index["table-x.json"]["has_older_rows"] is True
    assert "has_older_rows" not in index["table-x.md"]


@needs_git
def test_the_code_is_the_commit_that_is_checked_out_and_none_outside_of_a_repository(monkeypatch, tmp_path):
    made.code.cache_clear()
    head = deadlines.run("git", "rev-parse", "HEAD", cwd=made.HERE, code=None)
    assert made.code()["made_by"] == (head.stdout.strip() or None)
    made.code.cache_clear()
    monkeypatch.setattr(made, "HERE", tmp_path)
    assert made.code() == {"made_by": None, "dirty": None}
    made.code.cache_clear()


@needs_git
def test_sources_that_differ_from_the_commit_are_dirty_and_results_are_not(monkeypatch, tmp_path):
    for name in ("src/a.py", "benchmarks/b.py", "benchmarks/results/c.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        deadlines.run(*git, *words, cwd=tmp_path)
    monkeypatch.setattr(made, "HERE", tmp_path / "benchmarks")
    found = []
    for name in ("benchmarks/results/c.json", "src/a.py"):
        (tmp_path / name).write_text("2")
        made.code.cache_clear()
        found.append(made.code()["dirty"])
    made.code.cache_clear()
    assert found == [False, True]
    assert made.stored(tmp_path / "src" / "a.py")["stored_at"] == made._git("rev-parse", "HEAD")


def test_recipes_that_a_part_noted_are_its_own_and_those_of_kept_rows_stay(folder, monkeypatch):
    other, third = (Recipe(("a", "b"), Encoder(dim)) for dim in (2, 3))
    made.note(other)  # of an earlier part
    monkeypatch.setitem(run.PARTS, "speed", lambda: {"rows": made.note(third).encoder.dim})
    run.main(["speed"])
    assert made.read(folder)["speed.json"]["recipes"] == [third.fingerprint]
    made.forget()
    made.note(other)
    made.store(folder / "speed.json", "{}", has_older_rows=True)
    assert made.read(folder)["speed.json"]["recipes"] == sorted([other.fingerprint, third.fingerprint])


def test_a_table_notes_the_recipes_of_our_own_rows(monkeypatch):
    monkeypatch.setattr(made, "_noted", set())
    found = ours.run(digits(), [np.arange(500), np.arange(500, 1000)], {"nb": "nb"})
    assert made._noted == {found.total.recipe.fingerprint}


def test_recipes_are_found_at_any_depth_and_several_have_one_fingerprint():
    other = "cd" * 32
    found = [{"recipe": RECIPE, "rows": [{"recipe": other}, {"recipe": "the third"}, {"recipe": {"recipe": RECIPE}}]}]
    assert list(made.recipes_in(found)) == [RECIPE, other, RECIPE]
    assert made.joint([RECIPE, RECIPE]) == RECIPE
    assert made.joint([RECIPE, other]) not in (RECIPE, other, made.joint([other, RECIPE]))


def test_a_measured_row_has_the_fingerprint_of_the_recipe_that_counted_it(monkeypatch):
    monkeypatch.setattr(naive_bayes, "ROWS", (2,))
    (row,) = naive_bayes.run(("digits",))
    held = naive_bayes.few_shots.held_out(naive_bayes.few_shots.arrays_of("digits"), naive_bayes.HELD_OUT)
    few = [naive_bayes.few_shots.some_of(held, 2, naive_bayes.HELD_OUT, seed) for seed in range(3)]
    assert row["recipe"] == made.joint([naive_bayes.recipe_of(f).fingerprint for f in few])
    wine = next(iter(false_alarms.results(("wine",))))
    assert made.FINGERPRINT.fullmatch(wine["recipe"])
