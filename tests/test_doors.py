"""One option record, one default recipe and one default head: every door has the same, in its own way of writing."""

import inspect
import json
import tomllib
from dataclasses import fields

import numpy as np
import pytest
from typer.testing import CliRunner

import ghofl
from federations import blobs
from ghofl.classifier import Classifier
from ghofl.cli import app, load
from ghofl.flower.new import write_app
from ghofl.flower.server.settings import Settings
from ghofl.heads.spec import DEFAULT_HEAD, HeadSpec
from ghofl.planning.assembly import assemble
from ghofl.recipe import OPTIONS, Encoder, Recipe, RecipeOptions
from ghofl.simulation import simulate as simulation
from ghofl.simulation.runs import SETTINGS
from ghofl.simulation.simulate import Dataset
from ghofl.sklearn import GaussianHeadClassifier

CLASSES = tuple("abcd")


@pytest.fixture
def rows(rng, tmp_path, monkeypatch):
    """Rows and labels, also as the file all.npz in the folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    x, y = blobs(rng)
    labels = np.array(CLASSES)[y]
    np.savez("all.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
    return x, labels


def run(*words: object) -> dict:
    """What a command gives as JSON."""
    done = CliRunner().invoke(app, [*map(str, words), "--json", "out.json", "--force"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    with open("out.json", encoding="utf-8") as file:
        return json.load(file)


def words_of(options: dict) -> list[str]:
    """Options as a command line writes them."""
    words = []
    for name, value in options.items():
        words.append(f"--{name.replace('_', '-')}")
        words += [] if value is True else [",".join(value) if isinstance(value, tuple) else str(value)]
    return words


RECIPE_DOORS = {
    "assemble": lambda x, y, options: (
        assemble(RecipeOptions(**options), CLASSES, Encoder(dim=x.shape[1]), protected=x).recipe.fingerprint
    ),
    "Python": lambda x, y, options: ghofl.recipe_for(y, x, **options).fingerprint,
    "ghofl recipe": lambda x, y, options: (
        run(
            "recipe", "recipe.toml", *(["--dim", x.shape[1], "--classes", ",".join(CLASSES)] if "epsilon" in options else
            ["--embeddings", "all.npz"]), *words_of(options),
        )["fingerprint"]
    ),
    "ghofl simulate": lambda x, y, options: (
        run("simulate", "--embeddings", "all.npz", "--clients", 2, *words_of(options))["recipe"]
    ),
    "simulation in Python": lambda x, y, options: (
        simulation.recipe_for(Dataset.load("all.npz"), [HeadSpec.parse(DEFAULT_HEAD)], **options).fingerprint
    ),
    "many simulations": lambda x, y, options: (
        simulation.simulate(Dataset.load("all.npz"), [2], **options).rows[0]["recipe"]
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"power": 1.0, "bits": 6},
        {"budget": 3000, "site_rows": 200},
        {"statistics": ("S",)},
        {"sketch": 3, "seed": 5},
        {"min_count": 3, "max_rows": 5000},
        {"epsilon": 2.0},
        {"epsilon": 2.0, "radius": 9.0, "noise": "local"},
    ],
    ids=str,
)
def test_the_same_options_give_the_same_recipe_at_every_door(rows, options):
    """Once `ghofl.recipe_for` gave a lift and a kept sketch where `ghofl recipe` gave plain B."""
    found = {door: recipe(*rows, options) for door, recipe in RECIPE_DOORS.items()}
    assert len(set(found.values())) == 1, found


def head_of(classifier: Classifier) -> str:
    return f"{classifier.head} {classifier.options}"


@pytest.fixture
def total(rows):
    x, y = rows
    recipe = ghofl.recipe_for(y, x)
    total = ghofl.total(
        [ghofl.message(recipe, "north", x[::2], y[::2]), ghofl.message(recipe, "south", x[1::2], y[1::2])]
    )
    total.save("total.ghofl")
    return total


def flower_app(total) -> str:
    write_app("app", total.recipe)
    with open("app/pyproject.toml", "rb") as file:
        return tomllib.load(file)["tool"]["flwr"]["app"]["config"]["heads"]


def command_head(total) -> Classifier:
    run("head", "total.ghofl", "-o", "head.safetensors")
    return Classifier.load("head.safetensors")


HEAD_DOORS = {
    "Python": ghofl.fit,
    "ghofl head": command_head,
    "Flower app": lambda total: ghofl.fit(total, flower_app(total)),
    "Flower settings": lambda total: ghofl.fit(total, Settings("folder").heads),
    "scikit-learn": lambda total: ghofl.fit(total, GaussianHeadClassifier().head),
    "ghofl simulate": lambda total: ghofl.fit(
        total, *run("simulate", "--embeddings", "all.npz", "--clients", 2)["heads"]
    ),
    "simulation in Python": lambda total: ghofl.fit(
        total, inspect.signature(ghofl.simulate).parameters["heads"].default
    ),
}


@pytest.mark.parametrize("door", HEAD_DOORS)
def test_every_door_builds_the_head_that_the_recipe_announced(total, door):
    """Once `ghofl.fit` built `best` and `ghofl head` built `lda`."""
    announced = run("recipe", "recipe.toml", "--embeddings", "all.npz")
    assert announced["fingerprint"] == total.recipe.fingerprint
    built = HEAD_DOORS[door](total)
    assert f" head {built.head}" in announced["why"]
    assert head_of(built) == head_of(ghofl.fit(total, DEFAULT_HEAD))


@pytest.mark.parametrize("name", OPTIONS)
def test_every_door_knows_every_option_of_a_recipe_from_its_one_record(name):
    option = OPTIONS[name]
    for door in (ghofl.recipe_for, simulation.recipe_for):
        assert inspect.signature(door).parameters[name].default == option.default
    for command in ("recipe", "simulate"):
        found = {p.name: p for p in load(command).params}[name]
        assert option.about in str(found.help) or name == "seed"  # a simulation's seed is also that of the split
    assert name in SETTINGS
    assert option.key.partition(".")[0] in ("", *(f.name for f in fields(Recipe)))
