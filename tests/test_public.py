"""What public rows teach a recipe, and that it is all in the recipe."""

from dataclasses import replace

import numpy as np
import pytest

from ghofl import Features, HeadSpec, Recipe
from ghofl.errors import EmbeddingsError, RecipeError
from ghofl.planning.assembly import assemble
from ghofl.planning.propose import propose
from ghofl.planning.public import (
    LARGEST,
    PublicRows,
    centre_on,
    covariances,
    public_projection,
    usual_public_length,
)
from ghofl.recipe import Column, Encoder, Projection, RecipeOptions, Table, Transform
from ghofl.simulation import partition
from ghofl.simulation.needs import assembly_for
from ghofl.simulation.simulate import Dataset, simulate

DIM = 24


def rows_of(rng: np.random.Generator, classes: int, n: int, loud: float = 6.0) -> tuple[np.ndarray, np.ndarray]:
    """Classes that differ in the first twelve entries; the next ones vary much and say nothing, the last hardly at all."""
    y = rng.integers(0, classes, n)
    means = np.zeros((classes, DIM))
    means[:, :12] = rng.normal(size=(classes, 12))
    spread = np.repeat([0.8, loud, 0.05], [12, 6, 6])
    return 5.0 + means[y] + spread * rng.normal(size=(n, DIM)), y


@pytest.fixture
def public(rng: np.random.Generator) -> PublicRows:
    return PublicRows(*rows_of(rng, 7, 1500))


@pytest.fixture
def data(rng: np.random.Generator) -> Dataset:
    x, y = rows_of(np.random.default_rng(11), 4, 1600)
    return Dataset(x[:800], y[:800], x[800:], y[800:], tuple("abcd"))


def accuracy(data: Dataset, head: str, options: RecipeOptions, public: PublicRows | None) -> float:
    specs = HeadSpec.parse_list(head)
    recipe = assembly_for(data, specs.values(), options, public).recipe
    parts = partition.iid(data.y_train, 2, np.random.default_rng(0))
    return simulate(data, parts, recipe, specs).heads[head].accuracy


def test_the_centre_is_the_mean_of_public_rows_after_the_power(public):
    recipe = centre_on(Recipe(("a", "b"), Encoder(dim=DIM), transform=Transform(power=0.5)), public)
    roots = np.copysign(np.sqrt(np.abs(public.x)), public.x)
    assert np.allclose(recipe.transform.centre, roots.mean(axis=0), rtol=1e-4)
    values = Features.of(replace(recipe, grid=replace(recipe.grid, bits=16, scale=1000.0))).values(public.x)
    assert np.abs(values.mean(axis=0)).max() < 2e-3


def test_rows_are_centred_before_they_get_unit_length():
    transform = Transform(centre=(3.0, 4.0), unit_length=True)
    recipe = Recipe(("a", "b"), Encoder(dim=2), transform=transform)
    assert Features.of(recipe).rows(np.array([[3.0, 9.0]]))[0].tolist() == [[0, 16]]


def test_a_centre_of_another_length_than_rows_is_refused():
    with pytest.raises(RecipeError, match=r"transform.centre has 3 numbers and encoder.dim is 2"):
        Recipe(("a", "b"), Encoder(dim=2), transform=Transform(centre=(1.0, 2.0, 3.0)))


def test_covariances_are_those_of_numpy(public):
    recipe = Recipe(("a", "b"), Encoder(dim=DIM))
    total, within = covariances(recipe, public)
    assert np.allclose(total, np.cov(public.x.T, bias=True))
    assert public.y is not None
    rest = np.concatenate([public.x[public.y == c] - public.x[public.y == c].mean(axis=0) for c in range(7)])
    assert within is not None
    assert np.allclose(within, rest.T @ rest / (len(rest) - 7))


def test_public_rows_of_one_class_have_unit_variance_in_the_projected_space(public):
    """Up to shrinkage, and along the directions in which they vary."""
    recipe = centre_on(Recipe(("a", "b"), Encoder(dim=DIM)), public)
    projection = public_projection(recipe, public, 12)
    matrix = projection.given_matrix(DIM)
    assert matrix is not None
    assert np.abs(matrix).max() == LARGEST
    _, within = covariances(recipe, public)
    assert within is not None
    inside = matrix.T @ within @ matrix
    inside /= np.trace(inside) / len(inside)
    assert np.abs(inside - np.diag(np.diag(inside))).max() < 0.05
    loud = np.sort(np.diag(inside))[-6:]
    assert loud.max() / loud.min() < 1.1
    assert np.abs(matrix[18:]).max() < 0.02 * LARGEST  # what hardly varies is not among the principal directions


def test_unlabelled_rows_teach_directions_and_the_size_of_rows_along_them(public):
    recipe = Recipe(("a", "b"), Encoder(dim=DIM))
    matrix = public_projection(recipe, PublicRows(public.x), 18).given_matrix(DIM)
    total, _ = covariances(recipe, PublicRows(public.x))
    assert matrix is not None
    inside = matrix.T @ total @ matrix
    off = inside - np.diag(np.diag(inside))
    assert np.abs(off).max() < 0.01 * np.abs(inside).max()


def test_labels_that_tell_nothing_about_classes_are_no_metric(public):
    assert public.has_metric
    assert not PublicRows(public.x).has_metric
    assert not PublicRows(public.x, np.arange(len(public.x))).has_metric
    assert not PublicRows(public.x, np.zeros(len(public.x))).has_metric


@pytest.mark.filterwarnings("ignore::ghofl.errors.CalibrationWarning")  # of means alone
def test_means_with_a_public_metric_beat_means_alone(data, public):
    plain = accuracy(data, "nearest_mean", RecipeOptions(), None)
    taught = accuracy(data, "nearest_mean", RecipeOptions(), public)
    assert taught > plain + 0.05
    assert taught > accuracy(data, "lda", RecipeOptions(), None) - 0.03


def test_public_directions_beat_random_ones(rng):
    """Where classes differ along what varies most, as in embeddings."""
    x, y = rows_of(np.random.default_rng(11), 6, 1600, loud=0.4)
    data = Dataset(x[:800], y[:800], x[800:], y[800:], tuple("abcdef"))
    public, options = PublicRows(*rows_of(rng, 7, 1500, loud=0.4)), RecipeOptions(project=6)
    assert accuracy(data, "lda", options, public) > accuracy(data, "lda", options, None) + 0.05


def test_everything_taught_is_in_the_recipe_and_its_fingerprint(public, rng):
    def made(rows: PublicRows) -> Recipe:
        return assemble(RecipeOptions(project=8), ("a", "b"), Encoder(dim=DIM), public=rows).recipe

    recipe = made(public)
    again = Recipe.from_toml(recipe.to_toml())
    assert again == recipe
    assert again.fingerprint == recipe.fingerprint
    assert np.array_equal(Features.of(again).rows(public.x)[0], Features.of(recipe).rows(public.x)[0])
    assert made(PublicRows(*rows_of(rng, 7, 1500))).fingerprint != recipe.fingerprint


def test_under_epsilon_the_radius_is_the_usual_length_of_public_rows(public, data):
    options = RecipeOptions(statistics=(), project=12, epsilon=1.0)
    recipe = assemble(options, data.classes, Encoder(dim=DIM), public=public, protected=data.x_train).recipe
    assert recipe.privacy.radius == usual_public_length(recipe, public)
    other = assemble(options, data.classes, Encoder(dim=DIM), public=public, protected=99 * data.x_train).recipe
    assert other == recipe
    exact = Features.of(replace(recipe, privacy=replace(recipe.privacy, epsilon=None, delta=None, radius=None)))
    lengths = np.linalg.norm(exact.values(public.x), axis=1)
    assert np.mean(lengths > recipe.privacy.radius) == pytest.approx(0.5, abs=0.02)


def test_a_given_projection_stays(public):
    given = Projection.of_matrix(np.eye(DIM, 5, dtype=np.int64))
    recipe = assemble(RecipeOptions(), ("a", "b"), Encoder(dim=DIM), public=public, projection=given).recipe
    assert recipe.projection is not None
    assert recipe.projection.matrix == given.matrix
    assert recipe.transform.centre


def test_too_few_public_rows_for_a_projection_are_refused(public):
    with pytest.raises(RecipeError, match="10 public rows are too few for 8 directions; give at least 16"):
        public_projection(Recipe(("a", "b"), Encoder(dim=DIM)), PublicRows(public.x[:10]), 8)
    flat = PublicRows(np.outer(np.arange(100.0), np.ones(DIM)))
    with pytest.raises(RecipeError, match="vary in 1 directions, and 2 are needed"):
        public_projection(Recipe(("a", "b"), Encoder(dim=DIM)), flat, 2)
    with pytest.raises(RecipeError, match="holds no rows"):
        centre_on(Recipe(("a", "b"), Encoder(dim=DIM)), PublicRows(np.zeros((0, DIM))))


def test_public_rows_of_another_length_or_with_holes_are_refused(public):
    recipe = Recipe(("a", "b"), Encoder(dim=DIM))
    with pytest.raises(EmbeddingsError, match="expects rows of 24 numbers"):
        centre_on(recipe, PublicRows(public.x[:, :3]))
    broken = public.x.copy()
    broken[3, 4] = np.nan
    with pytest.raises(EmbeddingsError, match="row 3 holds a number that is not finite"):
        centre_on(recipe, PublicRows(broken))


def test_many_public_rows_are_taken_evenly_from_the_file():
    rows = PublicRows(np.arange(50_000.0)[:, None], np.arange(50_000) // 500)
    assert len(rows.x) == 20_000
    assert rows.y is not None
    assert len(np.unique(rows.y)) == 100


def test_means_alone_get_every_direction_in_which_public_rows_vary(public):
    constant = public.x.copy()
    constant[:, :3] = 1.0
    options = RecipeOptions(statistics=())
    recipe = assemble(options, ("a", "b"), Encoder(dim=DIM), public=PublicRows(constant, public.y)).recipe
    assert recipe.dim == DIM - 3


def test_a_table_can_have_public_rows_too(rng):
    table = Table(tuple(Column(f"c{j}", "number", low=-10, high=10) for j in range(4)))
    rows = PublicRows(rng.uniform(0.2, 0.9, size=(200, 4)))
    recipe = assemble(RecipeOptions(project=2), ("a", "b"), table.encoder, public=rows, table=table).recipe
    clipping = Features.of(recipe).rows(np.array([[-1.0, -1.0, 1.0, 1.0]]))[1]
    assert clipping.grid.clipped == 0


CLASSES = tuple(map(str, range(60)))


def test_a_budget_takes_public_directions_where_there_are_some():
    """In few bytes, means in a public space; without public rows nothing as small is worth proposing."""
    small = propose(12_000, CLASSES, 256, public=True).recipe
    assert small.projection is not None
    assert small.statistics == ("N", "A")
    with pytest.raises(RecipeError, match="too small"):
        propose(12_000, CLASSES, 256)


@pytest.mark.parametrize(
    ("epsilon", "statistics", "dim"),
    [(1.0, ("N", "A"), 128), (2.0, ("N", "A"), 256), (8.0, ("N", "A", "B"), 256)],
)
def test_under_noise_a_budget_sends_from_a_public_space_what_outlives_the_noise(epsilon, statistics, dim):
    recipe = propose(10**7, CLASSES, 512, noisy=True, public=True, epsilon=epsilon).recipe
    assert (recipe.statistics, recipe.dim) == (statistics, dim)


def test_a_budget_with_public_rows_and_noise_makes_a_recipe_with_their_radius(public):
    options = RecipeOptions(budget=10**5, epsilon=1.0)
    found = assemble(options, ("a", "b"), Encoder(dim=DIM), public=public)
    assert found.recipe.projection is not None
    assert found.recipe.projection.matrix
    assert found.recipe.privacy.radius == usual_public_length(found.recipe, public)
    assert not found.recipe.transform.unit_length
