import dataclasses
import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federations import recipe_of
from ghofl import Encoder, Grid, Lift, Limits, Privacy, Projection, Recipe, Sketch, Transform
from ghofl.errors import GhoflError, RecipeError
from ghofl.names import is_name

TEXTS = st.text(min_size=1, max_size=8).map(lambda text: unicodedata.normalize("NFC", text)).filter(is_name)
NAMES = st.lists(TEXTS, min_size=2, max_size=5, unique=True).map(tuple)


@st.composite
def recipes(draw):
    dim = draw(st.integers(3, 40))
    statistics = tuple(draw(st.sets(st.sampled_from("NADBS"))))
    space = draw(st.sampled_from(["", "projection", "lift"]))
    return Recipe(
        classes=draw(NAMES),
        encoder=Encoder(dim=dim, name=draw(TEXTS), fingerprint=draw(TEXTS)),
        statistics=statistics,
        transform=Transform(
            power=draw(st.floats(0.1, 4)),
            unit_length=draw(st.booleans()),
            anchor=tuple(draw(st.lists(st.floats(-9, 9), min_size=dim, max_size=dim))) if draw(st.booleans()) else (),
        ),
        grid=Grid(bits=draw(st.integers(2, 16)), scale=draw(st.floats(1e-3, 1e6))),
        projection=Projection(dim=draw(st.integers(1, dim)), seed=draw(st.integers(0, 2**63 - 1)))
        if space == "projection"
        else None,
        lift=Lift(dim=draw(st.integers(1, 99)), shift=draw(st.integers(0, 9))) if space == "lift" else None,
        privacy=Privacy(radius=draw(st.floats(0.1, 9)), min_count=draw(st.integers(0, 9))),
        limits=Limits(draw(st.none() | st.integers(1, 2**40)), draw(st.none() | st.floats(0.01, 1))),
    )


@given(recipes())
def test_a_recipe_survives_toml_with_its_fingerprint(recipe):
    again = Recipe.from_toml(recipe.to_toml())
    assert again == recipe
    assert again.fingerprint == recipe.fingerprint


@given(recipes(), recipes())
def test_different_recipes_have_different_fingerprints(one, other):
    assert (one == other) == (one.fingerprint == other.fingerprint)


def test_the_fingerprint_is_the_documented_one():
    """A fixed value: a change here means that sites of two releases can no longer work together."""
    recipe = Recipe(classes=("cat", "dog"), encoder=Encoder(dim=4), grid=Grid(bits=8, scale=16.0))
    assert recipe.fingerprint == "635f39dd90d96398c7a02517f8ed7e286037506b66d350db0f2ff6f00a4bf03f"


def test_a_recipe_file_can_be_saved_and_loaded(tmp_path):
    recipe = recipe_of()
    recipe.save(tmp_path / "recipe.toml")
    assert Recipe.load(tmp_path / "recipe.toml") == recipe
    assert [p.name for p in tmp_path.iterdir()] == ["recipe.toml"]


def test_statistics_are_stored_in_their_finest_form():
    assert recipe_of(statistics=("D", "S", "B")).statistics == ("N", "A", "S")
    assert recipe_of(statistics=("B", "D", "A")).statistics == ("N", "A", "D", "B")


BAD = [
    ('classes = ["a"]\n[encoder]\ndim = 2', "at least two"),
    ('classes = ["a", "a"]\n[encoder]\ndim = 2', "more than once"),
    ('classes = ["a", ""]\n[encoder]\ndim = 2', "empty name"),
    ('classes = ["a", "b"]', "encoder is missing; write a section [encoder]"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 0', "encoder.dim is 0"),
    ('classes = ["a", "b"]\n[encoder]\ndim = "2"', "encoder.dim is '2'; it must be a whole number"),
    ('classes = ["a", "b"]\nencoder = 3', "it is a section, written [encoder]"),
    ('classes = "ab"\n[encoder]\ndim = 2', "it is a list"),
    ('classes = ["a", "b"]\nstatistic = ["B"]\n[encoder]\ndim = 2', "unknown key statistic; did you mean statistics?"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 2\n[grid]\nbit = 8', "unknown key grid.bit; did you mean grid.bits?"),
    ('classes = ["a", "b"]\nstatistics = ["Q"]\n[encoder]\ndim = 2', "known are N, A, D, B, S"),
    ('classes = ["a", "b"]\nstatistics = ["Z"]\n[encoder]\ndim = 2', "[sketch] section"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 2\n[grid]\nbits = 17', "from 2 to 16"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 2\n[grid]\nscale = -1.0', "must be positive"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 2\n[transform]\npower = 0.0', "above 0 and at most 4"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 2\n[transform]\nanchor = [1.0]', "they must agree"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 2\n[projection]\ndim = 3', "For more, write [lift]"),
    (
        'classes = ["a", "b"]\n[encoder]\ndim = 9\n[projection]\ndim = 3\n[lift]\ndim = 20',
        "both [projection] and [lift]",
    ),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[projection]\ndim = 3\nmatrix = "AAAA"', "9 × 3 int16 entries are 54"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[projection]\ndim = 3\nmatrix = "*"', "not base64"),
    ('classes = ["a", "b"]\nstatistics = ["D"]\n[encoder]\ndim = 9\n[sketch]\ndim = 3', "beside the full B"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[sketch]\ndim = 9', "statistics = ['S'] instead"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[lift]\ndim = 20\nseed = -1', "lift.seed is -1"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[lift]\ndim = 20\n[sketch]\ndim = 9\nkept = true', "keep = true"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[privacy]\nepsilon = 1.0', "come together"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[privacy]\nepsilon = 1.0\ndelta = 1e-5', "needs privacy.radius"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[privacy]\nunit = "row"', "write one of 'record', 'client'"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[privacy]\nnoise = "distributed"', "secure = true"),
    ("schema = 2\n", "schema 2"),
    ("classes = [", "not TOML"),
]


@pytest.mark.parametrize(("text", "says"), BAD, ids=[says[:30] for _, says in BAD])
def test_a_bad_recipe_is_refused_with_what_to_write_instead(text, says):
    with pytest.raises(RecipeError, match=re.escape(says)) as caught:
        Recipe.from_toml(text)
    assert isinstance(caught.value, GhoflError)
    assert isinstance(caught.value, ValueError)


def test_a_recipe_file_that_is_not_text_is_named(tmp_path):
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="x.toml is not a text file"):
        Recipe.load(tmp_path / "x.toml")


def test_a_given_projection_matrix_comes_back_as_it_went_in(rng):
    matrix = rng.integers(-500, 500, size=(6, 3))
    projection = Projection.of_matrix(matrix)
    recipe = Recipe.from_toml(recipe_of(projection=projection).to_toml())
    assert np.array_equal(recipe.projection.given_matrix(6), matrix)


def test_a_recipe_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe_of().classes = ("x", "y")


def test_the_feature_dimension_follows_projection_and_lift():
    assert recipe_of(dim=6).dim == 6
    assert recipe_of(dim=6, projection=Projection(dim=2)).dim == 2
    assert recipe_of(dim=6, statistics=("B",), lift=Lift(dim=20)).dim == 20
    assert recipe_of(dim=6, statistics=("S",), sketch=Sketch(dim=2)).dim == 6
