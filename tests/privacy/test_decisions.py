"""Under an epsilon no decision that others see is made by exact rows."""

import csv
import os
import re
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_cli import ghofl

import ghofl as package
from federations import blobs, moments_of, recipe_of, total_of
from ghofl import Classifier, Message, Privacy, Total, files
from ghofl.evaluation.predictions import open_table

CENTRAL = Privacy(radius=5.0, epsilon=1.0, delta=1e-5)
LOCAL = replace(CENTRAL, noise="local")


@pytest.fixture
def central(tmp_path, monkeypatch):
    """Files of three sites under a recipe with central noise."""
    monkeypatch.chdir(tmp_path)
    recipe = recipe_of(privacy=CENTRAL)
    recipe.save("recipe.toml")
    x, y = blobs(np.random.default_rng(0), rows=240)
    for i, name in enumerate(("north", "south", "west")):
        Message.of(moments_of(recipe, x[i::3], y[i::3]), recipe, name).save(f"{name}.ghofl")
    return recipe


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture
def open_umask():
    """Everything that a file's mode allows, as on many servers."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_files_with_exact_figures_are_for_their_owner_alone_and_released_ones_are_not(central):
    pytest.importorskip("matplotlib")
    ghofl("sum", "north.ghofl", "south.ghofl", "-r", "recipe.toml", "-o", "total.ghofl", "--json", "sum.json")
    ghofl("subtract", "total.ghofl", "south.ghofl", "-o", "less.ghofl", "--json", "subtract.json")
    ghofl("inspect", "total.ghofl", "--json", "inspect.json")
    ghofl("inspect", "north.ghofl", "-r", "recipe.toml", "--json", "message.json")
    ghofl("audit", "total.ghofl", "--json", "audit.json")
    ghofl("diagnose", "north.ghofl", "south.ghofl", "west.ghofl", "-r", "recipe.toml", "--json", "diagnose.json")
    ghofl("report", "total.ghofl", "-o", "report.html", "--json", "report.json")
    names = ["sum", "subtract", "inspect", "message", "audit", "diagnose", "report"]
    for name in [*(f"{name}.json" for name in names), "report.html", "total.ghofl", "less.ghofl"]:
        assert mode_of(name) == 0o600, name
    ghofl("release", "total.ghofl", "-o", "released.ghofl", "--json", "release.json")
    ghofl("inspect", "released.ghofl", "--json", "shown.json")
    ghofl("report", "released.ghofl", "-o", "open.html")
    for name in ("released.ghofl", "release.json", "shown.json", "open.html"):
        assert mode_of(name) == 0o644, name


@pytest.mark.usefixtures("open_umask")
def test_reports_of_exact_counts_and_the_lines_of_a_ledger_are_for_their_owner_alone(central):
    plain = recipe_of()
    x, y = blobs(np.random.default_rng(0), rows=240)
    np.savez("rows.npz", x=x, y=np.array(plain.classes)[y])
    Classifier.fit(Total.of([Message.of(moments_of(plain, x, y), plain, "north")], plain), "lda").save("lda.ghofl")
    ghofl("evaluate", "lda.ghofl", "rows.npz", "--site", "north", "--json", "north.json")
    ghofl("select", "north.json", "--json", "select.json")
    plain.save("plain.toml")
    lines = ['name = "north"', 'embeddings = "rows.npz"', 'folder = "keep"']
    Path("site.toml").write_text("\n".join(lines))
    ghofl("flower", "check", "site.toml", "-r", "plain.toml", "--json", "check.json")
    ghofl("ledger", "site.toml", "--json", "ledger.json")
    for name in ("north", "select", "check", "ledger"):
        assert mode_of(f"{name}.json") == 0o600, name


def test_no_two_texts_become_the_same_cell():
    """A class called '=x would else be read as the class =x."""
    texts = [quotes + text for quotes in ("", "'", "''") for text in ("=x", "-0.5", "-2+3", "x", "\tx")]
    cells = list(map(files.escape_formula, texts))
    assert len(set(cells)) == len(texts)


FORMULAS = ("=1+1", "+cmd", "-2+3", "@SUM(A1)", "\tx", "\rx")


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_class_names_and_ids_that_begin_like_formulas_are_written_as_texts(tmp_path, suffix):
    columns = {"row": [0], "=id": ["@id"], "label": ["=1+1"], "probability": [0.5], "novelty": [-0.25]}
    with open_table(tmp_path / f"t{suffix}") as write:
        write(columns)
    with open(tmp_path / f"t{suffix}", newline="") as file:
        header, row = csv.reader(file, delimiter="\t" if suffix == ".tsv" else ",")
    assert header == ["row", "'=id", "label", "probability", "novelty"]
    assert row == ["0", "'@id", "'=1+1", "0.500000", "-0.250000"], "numbers stay numbers"


@pytest.mark.parametrize("text", [t for t in FORMULAS if t.isprintable()])
def test_predictions_of_classes_that_begin_like_formulas_run_nowhere(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    x, y = blobs(np.random.default_rng(0), classes=2)
    recipe = replace(recipe_of(classes=2), classes=(text, "other"))
    Classifier.fit(total_of(recipe, x, y), "lda").save("head.safetensors")
    np.savez("new.npz", x=x[y == 0][:5])
    ghofl("predict", "head.safetensors", "new.npz", "-o", "p.csv", "--top", "2")
    with open("p.csv", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert f"'{text}" in cells
    assert not any(cell.startswith(FORMULAS) for cell in cells)


def test_every_csv_is_written_by_one_function():
    source = Path(package.__file__).parent
    writes = re.compile(r"csv\.(writer|DictWriter)|\.to_csv\(|write_csv\(\w+\.path")
    assert [p.name for p in source.rglob("*.py") if writes.search(p.read_text("utf-8"))] == ["files.py"]
