import copy
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
from ghofl.recipe import Column, Table

VISIBLE = st.characters(exclude_categories=("C", "Z"))  # or most texts would be filtered out
TEXTS = st.text(VISIBLE, min_size=1, max_size=8).map(lambda text: unicodedata.normalize("NFC", text)).filter(is_name)
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
        limits=Limits(max_rows=draw(st.none() | st.integers(1, 2**20))),
    )


@given(recipes())
def test_a_recipe_survives_toml_with_its_fingerprint(recipe):
    again = Recipe.from_toml(recipe.to_toml())
    assert again == recipe
    assert again.fingerprint == recipe.fingerprint


@pytest.mark.slow
@given(recipes(), recipes())
def test_different_recipes_have_different_fingerprints(one, other):
    assert (one == other) == (one.fingerprint == other.fingerprint)


def test_the_fingerprint_is_the_documented_one():
    """A fixed value: a change here means that sites of two releases can no longer work together."""
    recipe = Recipe(classes=("cat", "dog"), encoder=Encoder(dim=4), grid=Grid(bits=8, scale=16.0))
    assert recipe.fingerprint == "51c890e18979218a65e70b46316abc336d78b61dd861cb210ddfad5db9aeb5bd"


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
    ('classes = ["a", "b"]\nstatistic = ["B"]\n[encoder]\ndim = 2', "unknown key statistic; did you mean statistics?"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 2\n[grid]\nbit = 8', "unknown key grid.bit; did you mean grid.bits?"),
    ('classes = ["a", "b"]\nstatistics = ["Q"]\n[encoder]\ndim = 2', "known are N, A, D, B, S"),
    ('classes = ["a", "b"]\nstatistics = ["Z"]\n[encoder]\ndim = 2', "[sketch] section"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 2\n[grid]\nbits = 17', "between 2 and 16"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 2\n[grid]\nscale = -1.0', "a finite number above 0"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 2\n[transform]\npower = 0.0', "above 0 and up to 4"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 2\n[transform]\nanchor = [1.0]', "write one number per dimension"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 2\n[projection]\ndim = 3', "For more, write [lift]"),
    (
        'classes = ["a", "b"]\n[encoder]\ndim = 9\n[projection]\ndim = 3\n[lift]\ndim = 20',
        "both [projection] and [lift]",
    ),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[projection]\ndim = 3\nmatrix = "AAAA"', "9 × 3 int16 entries are 54"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[projection]\ndim = 3\nmatrix = "*"', "not base64"),
    ('classes = ["a", "b"]\nstatistics = ["D"]\n[encoder]\ndim = 9\n[sketch]\ndim = 3', "together with the full B"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[sketch]\ndim = 9', "write statistics = ['S']"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[lift]\ndim = 20\nseed = -1', "lift.seed is -1"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[lift]\ndim = 20\n[sketch]\ndim = 9\nkept = true', "keep = true"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[privacy]\nepsilon = 1.0', "belong together"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[privacy]\nepsilon = 1.0\ndelta = 1e-5', "needs privacy.radius"),
    ('classes = ["a", "b"]\n[encoder]\ndim = 9\n[privacy]\nunit = "row"', "one of record, client, person"),
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


def of_numpy(bits, classes=("a", "b"), statistics=("B",), anchor=(0.5, 1.0, 2.0)):
    return Recipe(
        classes=np.array(classes),
        encoder=Encoder(dim=np.int64(3), name=np.str_("mine")),
        statistics=list(statistics),
        transform=Transform(power=np.float64(0.5), unit_length=np.bool_(True), anchor=np.array(anchor)),
        grid=Grid(bits=bits, scale=np.float32(16.0)),
        projection=Projection(dim=np.uint8(2), seed=np.array(7), shift=np.int32(1)),
        privacy=Privacy(radius=1, min_count=np.int16(5)),
    )


@pytest.mark.usefixtures("as_users_run_it")
def test_a_recipe_of_numpy_values_is_the_recipe_of_the_same_plain_values():
    """What came in as NumPy scalars, arrays or lists used to raise when it was hashed, written or named."""
    plain = Recipe(
        classes=("a", "b"),
        encoder=Encoder(dim=3, name="mine"),
        statistics=("B",),
        transform=Transform(power=0.5, unit_length=True, anchor=(0.5, 1.0, 2.0)),
        grid=Grid(bits=8, scale=16.0),
        projection=Projection(dim=2, seed=7, shift=1),
        privacy=Privacy(radius=1.0, min_count=5),
    )
    found = of_numpy(np.int64(8))
    assert found == plain
    assert hash(found) == hash(plain)
    assert found.fingerprint == plain.fingerprint
    assert found.to_toml() == plain.to_toml()
    assert Recipe.from_toml(found.to_toml()) == found
    assert type(found.transform.unit_length) is bool
    assert type(found.privacy.radius) is float


def test_a_whole_number_where_a_float_is_meant_has_the_fingerprint_of_the_float():
    """So that a recipe written in Python and the same recipe read from its file are one federation."""
    recipe = Recipe(classes=("a", "b"), encoder=Encoder(dim=2), grid=Grid(scale=16))
    assert recipe.fingerprint == Recipe.from_toml(recipe.to_toml()).fingerprint


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Grid(bits=True), "grid.bits is True; it must be a whole number"),
        (lambda: Grid(bits=8.0), "grid.bits is 8.0; it must be a whole number"),
        (lambda: Grid(scale=np.array([1.0])), "grid.scale is [1.0]; it must be a number"),
        (lambda: Transform(unit_length=1), "transform.unit_length is 1; it must be true or false"),
        (lambda: Transform(anchor=np.zeros((2, 2))), "transform.anchor is [0.0, 0.0]; it must be a number"),
        (lambda: Privacy(secure="yes"), "privacy.secure is 'yes'; it must be true or false"),
        (lambda: Recipe("ab", Encoder(dim=2)), "classes is 'ab'; write a list"),
        (lambda: Recipe((1, 2), Encoder(dim=2)), "classes is 1; it must be a text in quotes"),
        (lambda: Recipe(("a", "b"), 3), "encoder is 3; write it as a section [encoder]"),
    ],
)
def test_a_value_of_another_type_is_refused_where_it_is_given(make, says):
    with pytest.raises(RecipeError, match=re.escape(says)):
        make()


def test_a_recipe_file_that_is_not_text_is_named(tmp_path):
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="x.toml is not a text file"):
        Recipe.load(tmp_path / "x.toml")


def test_a_given_projection_matrix_comes_back_as_it_went_in(rng):
    matrix = rng.integers(-500, 500, size=(6, 3))
    projection = Projection.of_matrix(matrix)
    recipe = Recipe.from_toml(recipe_of(projection=projection).to_toml())
    assert np.array_equal(recipe.projection.given_matrix(6), matrix)


def test_a_fingerprint_is_worked_out_once_and_never_carried_to_another_recipe(monkeypatch):
    recipe = Recipe(("cat", "dog"), Encoder(dim=4))
    before = recipe.fingerprint
    monkeypatch.setattr("ghofl.recipe.recipe.to_canonical", lambda _: pytest.fail("worked out again"))
    assert recipe.fingerprint == before
    monkeypatch.undo()
    changed = dataclasses.replace(recipe, classes=("cat", "cow"))
    assert changed.fingerprint == Recipe(("cat", "cow"), Encoder(dim=4)).fingerprint != before
    assert copy.deepcopy(recipe) == recipe
    assert copy.deepcopy(recipe).fingerprint == before
    assert "_fingerprint" not in recipe.to_dict()


@pytest.mark.parametrize(("bits", "rows"), [(16, None), (16, 10_000), (12, 2_000_000)])
def test_sums_that_could_overflow_are_refused_before_anybody_encodes(bits, rows):
    """The squares of a sketch at 16 bits overflow at 5,242 rows of 1,280 dimensions, which sites learned after encoding."""
    sums = {"encoder": Encoder(dim=1280), "sketch": Sketch(dim=64), "statistics": ("B",), "grid": Grid(bits=bits)}
    with pytest.raises(RecipeError, match=r"overflow 64-bit integers beyond [0-9,]+ rows.*limits.max_rows of at most"):
        Recipe(("a", "b"), **sums, limits=Limits(max_rows=rows))
    assert Recipe(("a", "b"), **sums, limits=Limits(max_rows=5000)).max_rows == 5000
    kept = {**sums, "lift": Lift(dim=2000, keep=True), "sketch": Sketch(dim=1280, kept=True)}  # columns as they are
    assert Recipe(("a", "b"), **kept, limits=Limits(max_rows=rows)).sketch.kept


def test_there_is_one_zero():
    one, other = (Table((Column("x", "number", low=low, high=1.0),), "y") for low in (0.0, -0.0))
    assert one == other
    assert one.fingerprint == other.fingerprint
    assert (
        dataclasses.replace(recipe_of(), table=one, encoder=one.encoder).fingerprint
        == dataclasses.replace(recipe_of(), table=other, encoder=other.encoder).fingerprint
    )
