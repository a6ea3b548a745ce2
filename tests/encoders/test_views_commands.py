"""Views from the command line: what is written, what a recipe keeps, and what sites then do without being told."""

import json
import shlex

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from test_cli import ghofl
from torchvision import models

from ghofl import cli, encoders
from ghofl.custody.site import Site
from ghofl.encoders import Views
from ghofl.recipe import Recipe
from ghofl.rows import load_rows, load_samples

NETWORK = "torchvision:shufflenet_v2_x0_5"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_file(models.shufflenet_v2_x0_5(weights=None).state_dict(), path)
    return path


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two classes that differ in brightness, eight photos."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for i in range(8):
        path = folder / ("dark", "light")[i % 2] / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray((rng.integers(128, size=(16, 24, 3)) + 127 * (i % 2)).astype(np.uint8)).save(path)
    return folder


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.console.err, "width", 1000, raising=False)


def embedded(photos, weights, *options, output="rows.npz"):
    said = ghofl(
        "embed", "--encoder", NETWORK, "--weights", weights, "--data", photos, "-o", output, *options, "--json", "-"
    )
    return json.loads(said)


def test_flip_and_three_sizes_are_the_default_for_photos(weights, photos):
    result = embedded(photos, weights)
    assert result["views"] == "flip 160,224,288"
    made_by = load_rows("rows.npz").encoder
    assert made_by is not None
    assert (made_by.views, made_by.fingerprint) == (result["views"], result["fingerprint"])
    expected = encoders.load(NETWORK, weights=weights, views="flip 160,224,288")
    samples = load_samples(str(photos))
    x = next(iter(expected.encode([[samples.read(i) for i in range(len(samples))]])))
    assert np.allclose(load_rows("rows.npz").x, x, atol=1e-5 * np.abs(x).max())


@pytest.mark.parametrize(
    ("options", "views"),
    [
        (("--views", "flip 64,96"), "flip 64,96"),
        (("--views", "quick"), "flip"),
        (("--views", "flip 64 mean+std bicubic"), "flip 64 mean+std bicubic"),
    ],
)
def test_options_are_what_the_file_says(weights, photos, options, views):
    result = embedded(photos, weights, *options)
    assert result["views"] == views
    again = embedded(photos, weights, *shlex.split(Views.parse(views).options), output="again.npz")
    assert again["fingerprint"] == result["fingerprint"]


def test_a_site_takes_the_views_from_the_recipe(weights, photos):
    embedded(photos, weights, "--views", "flip 64")
    ghofl("recipe", "recipe.toml", "--embeddings", "rows.npz")
    recipe = Recipe.load("recipe.toml")
    assert recipe.encoder.views == "flip 64"
    ghofl("moments", "rows.npz", "--recipe", "recipe.toml", "-o", "rows.ghofl", "--site", "a")
    ghofl(
        "moments", "--encoder", NETWORK, "--weights", weights, "--data", photos, "--recipe", "recipe.toml",
        "-o", "samples.ghofl", "--site", "b",
    )  # fmt: skip
    site = Site("north", data=str(photos), encoder=NETWORK, weights=str(weights), folder="state")
    assert site.count(recipe).moments.rows == 8
    from ghofl.wire.message import Message

    rows, samples = (Message.load(f"{name}.ghofl", recipe).moments for name in ("rows", "samples"))
    assert rows == samples == site.count(recipe).moments


def test_rows_of_other_views_are_refused_with_the_options_that_give_the_recipe_s(weights, photos, capsys):
    embedded(photos, weights, "--views", "paper")
    ghofl("recipe", "old.toml", "--embeddings", "rows.npz")
    assert "views" not in Recipe.load("old.toml").to_toml()
    embedded(photos, weights, "--views", "flip 64", output="flip.npz")
    said = ghofl("moments", "flip.npz", "--recipe", "old.toml", "-o", "m.ghofl", code=2) + capsys.readouterr().err
    assert "the recipe's has one view and this has the views 'flip 64'" in " ".join(said.split())
    assert "ghofl embed --views paper" in " ".join(said.split())
    ghofl("recipe", "new.toml", "--embeddings", "flip.npz")
    said = ghofl("moments", "rows.npz", "--recipe", "new.toml", "-o", "m.ghofl", code=2) + capsys.readouterr().err
    assert "ghofl embed --views 'flip 64'" in " ".join(said.split())


def test_an_encoder_that_is_loaded_writes_its_views_into_the_recipe(weights):
    arguments = ("--classes", "a,b", "--encoder", NETWORK, "--weights", weights)
    ghofl("recipe", "default.toml", *arguments)
    ghofl("recipe", "best.toml", *arguments, "--views", "best")
    ghofl("recipe", "paper.toml", *arguments, "--views", "paper")
    found = {name: Recipe.load(f"{name}.toml").encoder for name in ("default", "best", "paper")}
    assert [one.views for one in found.values()] == ["flip 160,224,288", "flip 160,224,288 mean+std stages", ""]
    assert found["best"].dim > found["default"].dim == found["paper"].dim
    said = ghofl("recipe", "x.toml", "--classes", "a,b", "--dim", "3", "--views", "best", code=2)
    assert "views are for an encoder that is loaded" in said
