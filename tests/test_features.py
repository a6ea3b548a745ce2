import hashlib
import itertools
import math
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federations import recipe_of
from ghofl import Features, Lift, Projection, Sketch, Transform
from ghofl.errors import ClippingWarning, EmbeddingsError
from ghofl.features import ClipCount, Clipping, exact_product, fit_grid, rademacher, shift_of, transform

SPACES = [
    {},
    {"projection": Projection(dim=3)},
    {"projection": Projection.of_matrix(np.arange(18).reshape(6, 3) - 9, shift=3)},
    {"statistics": ("B",), "lift": Lift(dim=15, seed=3)},
]
TRANSFORMS = [
    Transform(),
    Transform(power=0.5),
    Transform(power=0.7, unit_length=True),
    Transform(unit_length=True, anchor=(0.1,) * 6),
]


@pytest.mark.parametrize("space", SPACES, ids=["none", "rademacher", "matrix", "lift"])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=["none", "root", "unit", "anchor"])
def test_a_row_does_not_depend_on_its_batch(space, transform, rng):
    features = Features.of(recipe_of(transform=transform, **space))
    x = rng.normal(size=(97, 6)) * 5
    whole, _ = features.rows(x)
    alone = np.concatenate([features.rows(x[i : i + 1])[0] for i in range(len(x))])
    assert np.array_equal(whole, alone)
    assert np.array_equal(whole, features.rows(np.asfortranarray(x))[0])
    assert np.array_equal(whole[::-1], features.rows(x[::-1])[0])


@given(st.integers(0, 2**63 - 1), st.integers(1, 20), st.integers(1, 20))
def test_the_signs_are_the_documented_bit_stream(seed, rows, columns):
    text = f"ghofl rademacher 1|lift|{seed}|{rows}|{columns}".encode()
    stream = hashlib.shake_256(text).digest(rows * columns // 8 + 1)
    expected = [1 - 2 * (stream[i // 8] >> (i % 8) & 1) for i in range(rows * columns)]
    assert rademacher(seed, rows, columns, "lift").ravel().tolist() == expected


@pytest.mark.parametrize("bits", [2, 8, 16])
def test_a_projection_is_integer_arithmetic(bits, rng):
    recipe = recipe_of(dim=50, bits=bits, scale=3.0, projection=Projection(dim=7, shift=2))
    x = rng.normal(size=(40, 50)) * 2.0**bits / 30
    grid, _ = Features.of(recipe_of(dim=50, bits=bits, scale=3.0)).rows(x)
    signs = rademacher(0, 50, 7, "projection").astype(np.int64)
    expected = np.clip((grid.astype(np.int64) @ signs + 2) >> 2, -recipe.grid.bound, recipe.grid.bound)
    assert np.array_equal(Features.of(recipe).rows(x)[0], expected)


def test_a_lift_is_the_positive_part_of_a_projection(rng):
    lift = Features.of(recipe_of(statistics=("B",), lift=Lift(dim=12, shift=1, centred=False)))
    signs = rademacher(0, 6, 12, "lift").astype(np.int64)
    x = rng.normal(size=(30, 6))
    grid, _ = Features.of(recipe_of()).rows(x)
    assert np.array_equal(lift.rows(x)[0], np.clip((grid @ signs + 1) >> 1, 0, recipe_of().grid.bound))


@pytest.mark.parametrize("shift", [0, 2])
def test_a_centred_lift_takes_each_rows_mean_out_in_integer_arithmetic(shift, rng):
    """Against Python fractions: floor(((q − mean q) R) / 2^shift + 1/2), cut at zero."""
    lift = Features.of(recipe_of(statistics=("B",), lift=Lift(dim=12, shift=shift)))
    signs = rademacher(0, 6, 12, "lift").astype(object)
    x = rng.normal(size=(30, 6))
    grid = Features.of(recipe_of()).rows(x)[0].astype(object)
    for row, found in zip(grid, lift.rows(x)[0], strict=True):
        centred = [Fraction(int(v)) - Fraction(int(sum(row)), 6) for v in row]
        exact = [sum(c * int(r) for c, r in zip(centred, column, strict=True)) for column in signs.T]
        assert found.tolist() == [min(511, max(0, math.floor(e / 2**shift + Fraction(1, 2)))) for e in exact]


def test_a_lift_can_keep_the_features_before_it(rng):
    recipe = recipe_of(statistics=("B",), lift=Lift(dim=12, keep=True), sketch=Sketch(dim=6, kept=True))
    x = rng.normal(size=(30, 6))
    rows, _ = Features.of(recipe).rows(x)
    assert recipe.dim == rows.shape[1] == 18
    assert np.array_equal(rows[:, :6], Features.of(recipe_of()).rows(x)[0])
    assert np.array_equal(Features.of(recipe).sketch, np.eye(18, 6))


def test_products_beyond_float_precision_are_refused():
    q, matrix = np.ones((1, 2), dtype=np.int16), np.ones((2, 1), dtype=np.int16)
    assert exact_product(q, matrix, 2**24).dtype == np.float32
    assert exact_product(q, matrix, 2**25).dtype == np.float64
    with pytest.raises(EmbeddingsError, match="2\\^53"):
        exact_product(q, matrix, 2**54)


def test_values_are_the_embedding_up_to_half_a_step(rng):
    x = rng.normal(size=(50, 6))
    features = Features.of(recipe_of(scale=32.0))
    assert np.abs(features.values(x) - x).max() <= 0.5 / 32 + 1e-12


def test_a_projection_keeps_lengths_on_average(rng):
    x = rng.normal(size=(50, 400))
    features = Features.of(recipe_of(dim=400, bits=14, scale=256.0, projection=Projection(dim=300)))
    ratio = np.linalg.norm(features.values(x), axis=1) ** 2 / (np.linalg.norm(x, axis=1) ** 2 * 300 / 400)
    assert ratio.mean() == pytest.approx(1.0, abs=0.1)


def test_the_order_is_anchor_then_power_then_length():
    recipe = recipe_of(dim=2, transform=Transform(power=0.5, unit_length=True, anchor=(1.0, 0.0)))
    assert transform(np.array([[10.0, -16.0]]), recipe) == pytest.approx(np.array([[0.6, -0.8]]))


def test_a_row_of_zeros_stays_zero_at_unit_length():
    recipe = recipe_of(transform=Transform(unit_length=True))
    assert not transform(np.zeros((1, 6)), recipe).any()


def test_clipped_entries_are_counted_and_the_warning_says_the_scale_to_use(rng):
    recipe = recipe_of(bits=8, scale=100.0)
    x = rng.uniform(-1, 1, size=(200, 6))
    x[0, 0], x[1, 1] = 2.0, -2.54
    clipped_before = np.count_nonzero(np.abs(np.rint(x * 100)) > 127)
    _, clipping = Features.of(recipe).rows(x)
    assert clipping.clipped == clipped_before == 2
    assert clipping.reach == pytest.approx(2.0)
    with pytest.warns(ClippingWarning, match=r"grid.scale = 50 clips none"):
        clipping.warn(recipe)
    assert Features.of(recipe_of(bits=8, scale=50.0)).rows(x)[1].clipped == 0


def test_a_little_clipping_is_quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Clipping(grid=ClipCount(entries=10_000, clipped=10, reach=1.5)).warn(recipe_of())


CLIPPED = st.integers(0, 2**40).flatmap(
    lambda n: st.builds(ClipCount, st.just(n), st.integers(0, n), st.floats(0, 1e6, allow_nan=False))
)
CLIPPINGS = st.builds(Clipping, grid=CLIPPED, projection=CLIPPED, lift=CLIPPED)


@given(CLIPPINGS, CLIPPINGS, CLIPPINGS)
def test_clipping_adds_in_any_order_and_nothing_is_its_zero(a, b, c):
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Clipping() == Clipping() + a == a


def test_clipping_of_blocks_that_differ_in_their_worst_space_is_the_clipping_of_all_rows(rng):
    """The first rows clip on the grid only and the others in the projection only; neither is forgotten in a sum."""
    recipe = recipe_of(dim=6, bits=6, scale=10.0, projection=Projection(dim=3, shift=0))
    features = Features.of(recipe)
    spikes, slopes = np.zeros((4, 6)), np.full((8, 6), 2.0) * np.sign(features.matrix[:, 0])
    spikes[:, 0] = 5.0
    whole = features.rows(np.vstack([spikes, slopes]))[1]
    parts = [features.rows(rows)[1] for rows in (spikes, slopes, slopes[:0])]
    assert [part.space for part in parts[:2]] == ["grid", "projection"]
    for order in itertools.permutations(parts):
        assert sum(order, start=Clipping()) == whole
    assert (whole.grid.clipped, whole.grid.entries, whole.projection.entries) == (4, 72, 36)
    assert all(type(n) is int for n in (whole.grid.clipped, whole.projection.clipped, whole.entries, whole.clipped))


def test_the_worse_of_two_spaces_is_the_one_that_is_told():
    both = Clipping(grid=ClipCount(100, 1, 1.1), projection=ClipCount(10, 1, 3.0))
    assert (both.space, both.entries, both.clipped, both.reach, both.share) == ("projection", 10, 1, 3.0, 0.1)
    assert Clipping(grid=ClipCount(100, 10, 1.1), projection=ClipCount(10, 1, 3.0)).space == "grid"
    assert Clipping(lift=ClipCount(10, 0, 0.3)).space == "lift"
    assert (Clipping().space, Clipping().share) == ("grid", 0.0)


def test_features_are_compared_by_their_values():
    recipe, other = recipe_of(projection=Projection(dim=3)), recipe_of(projection=Projection(dim=3, seed=1))
    assert Features.of(recipe) == Features.of(recipe)
    assert hash(Features.of(recipe)) == hash(Features.of(recipe))
    assert Features.of(recipe) != Features.of(other)
    assert Features.of(recipe) != Features.of(recipe_of())
    assert Features.of(recipe) != replace(Features.of(recipe), matrix=Features.of(other).matrix)
    assert Features.of(recipe) != recipe


@pytest.mark.parametrize("kind", ["projection", "lift"])
def test_clipping_in_a_projected_space_names_the_shift_that_clips_none(kind, rng):
    space = (
        {"projection": Projection(dim=3, shift=0)}
        if kind == "projection"
        else {"lift": Lift(dim=9, shift=0, centred=False)}
    )
    recipe = recipe_of(dim=6, bits=6, scale=10.0, statistics=("B",), **space)
    x = rng.uniform(2, 3, size=(50, 6))
    _, clipping = Features.of(recipe).rows(x)
    with pytest.warns(ClippingWarning, match=rf"{kind}.shift = 2 clips none"):
        clipping.warn(recipe)
    better = (
        {"projection": Projection(dim=3, shift=2)}
        if kind == "projection"
        else {"lift": Lift(dim=9, shift=2, centred=False)}
    )
    assert Features.of(recipe_of(dim=6, bits=6, scale=10.0, statistics=("B",), **better)).rows(x)[1].clipped == 0


@pytest.mark.parametrize("space", SPACES[:2] + SPACES[3:], ids=["none", "rademacher", "lift"])
def test_a_calibrated_recipe_clips_almost_nothing_and_uses_most_of_the_grid(space, rng):
    x = np.abs(rng.normal(size=(3000, 6))) * 77
    recipe = fit_grid(recipe_of(bits=9, **space), x)
    q, clipping = Features.of(recipe).rows(x)
    assert clipping.share < 1e-3
    assert np.abs(q).max() > recipe.grid.bound / 3


def test_calibration_without_rows_or_with_zeros_changes_nothing():
    assert fit_grid(recipe_of(), np.zeros((0, 6))) == recipe_of()
    assert fit_grid(recipe_of(), np.zeros((5, 6))) == recipe_of()


def test_the_default_shift_is_half_the_bits_of_the_dimension():
    assert shift_of(Projection(dim=8), 1280) == 5
    assert shift_of(Projection(dim=8, shift=0), 1280) == 0


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.zeros((3, 5)), r"shape \(3, 5\) and the recipe expects rows of 6"),
        (np.full((3, 6), np.nan), "row 0 holds a number that is not finite"),
        (np.array([[0.0] * 6, [np.inf] * 6]), r"row 1 .*\(1 of 2 rows do\)"),
    ],
)
def test_rows_that_do_not_fit_are_refused(x, says):
    with pytest.raises(EmbeddingsError, match=says):
        Features.of(recipe_of()).rows(x)


def test_integer_and_half_precision_embeddings_are_taken(rng):
    x = rng.integers(-9, 9, size=(10, 6))
    features = Features.of(recipe_of())
    assert np.array_equal(features.rows(x)[0], features.rows(x.astype(np.float16))[0])
    assert features.rows(x[:0])[0].shape == (0, 6)


@pytest.mark.parametrize("order", ["sorted by class", "classes in turns"])
@pytest.mark.parametrize("space", SPACES[:2] + SPACES[3:], ids=["none", "rademacher", "lift"])
def test_the_grid_is_fitted_to_rows_of_the_whole_file_whatever_their_order(order, space, rng):
    """Only the first 4,096 rows were looked at: where the class of large entries came last, 8 % were clipped."""
    size = np.repeat([1.0, 40.0], 4096) if order == "sorted by class" else np.tile([1.0, 40.0], 4096)
    x = size[:, None] * rng.normal(size=(8192, 6))
    assert Features.of(fit_grid(recipe_of(bits=9, **space), x)).rows(x)[1].share < 1e-3
