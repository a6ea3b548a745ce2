"""Under an epsilon no decision that others see is made by exact rows."""

import tomllib
from dataclasses import replace

import numpy as np
import pytest
import tomli_w
from test_cli import ghofl

from federations import blobs, moments_of, recipe_of
from ghofl import Message, Privacy, Recipe, Total
from ghofl.errors import PrivacyError, RecipeError
from ghofl.recipe import Limits
from ghofl.wire.roster import Aside

CENTRAL = Privacy(radius=5.0, epsilon=1.0, delta=1e-5)
LOCAL = replace(CENTRAL, noise="local")


def build_in_python(privacy):
    return recipe_of(privacy=privacy, limits=Limits(max_share=0.5))


def build_from_toml(privacy):
    values = tomllib.loads(recipe_of(privacy=privacy).to_toml())
    return Recipe.from_toml(tomli_w.dumps({**values, "limits": {"max_share": 0.5}}))


@pytest.mark.parametrize("privacy", [CENTRAL, LOCAL], ids=["central", "local"])
@pytest.mark.parametrize("build", [build_in_python, build_from_toml])
def test_a_recipe_with_an_epsilon_has_no_largest_share(build, privacy):
    """100 of 200 rows released, 101 refused: one row decided, without noise."""
    with pytest.raises(RecipeError, match="max_share = 0.5 decides by exact rows"):
        build(privacy)


def test_the_command_that_writes_recipes_refuses_a_largest_share_under_an_epsilon(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked = ("recipe", "r.toml", "--classes", "a,b", "--dim", "4", "--max-share", "0.5")
    ghofl(*asked, "--epsilon", "1", "--delta", "1e-5", "--radius", "5", code=2)
    assert "max_share = 0.5 decides by exact rows" in capsys.readouterr().err
    ghofl(*asked)


@pytest.fixture
def central(tmp_path, monkeypatch):
    """Files of two sites under a recipe with central noise."""
    monkeypatch.chdir(tmp_path)
    recipe = recipe_of(privacy=CENTRAL)
    recipe.save("recipe.toml")
    for seed, name in enumerate(("north", "south")):
        Message.of(moments_of(recipe, *blobs(np.random.default_rng(seed), rows=80)), recipe, name).save(f"{name}.ghofl")
    return recipe


@pytest.mark.parametrize("option", [("--quarantine",), ("--max-share", "0.9"), ("--quarantine", "--max-share", "0.9")])
def test_sum_leaves_nobody_out_by_exact_rows_under_an_epsilon(central, option, capsys):
    ghofl("sum", "north.ghofl", "south.ghofl", "-r", "recipe.toml", "-o", "total.ghofl", *option, code=2)
    assert f"{option[0]} decides by exact rows" in capsys.readouterr().err
    ghofl("sum", "north.ghofl", "south.ghofl", "-r", "recipe.toml", "-o", "total.ghofl")


def test_a_total_that_left_somebody_out_is_not_released_under_an_epsilon(central):
    total = Total.of([Message.load("north.ghofl", central)], central)
    told = Total.from_bytes(replace(total, quarantined=(Aside("0" * 32, "south", "swapped"),)).to_bytes())
    with pytest.raises(PrivacyError, match="leaves out the message of 'south' by its exact rows"):
        told.release()
    assert total.release().guarantee is not None
