from dataclasses import replace

import numpy as np
import pytest

from federations import blobs, gaussians_of, moments_of, recipe_of, total_of
from ghofl import Features, Gaussians, Layout, Moments, Sketch
from ghofl.errors import EmbeddingsError, MissingStatisticError
from ghofl.gaussians.linalg import shrink


@pytest.fixture
def data(rng):
    x, y = blobs(rng)
    return Features.of(recipe_of()).values(x), x, y


def test_means_and_priors_are_those_of_the_rows(data):
    values, x, y = data
    gaussians = gaussians_of(recipe_of(), x, y)
    for c in range(4):
        assert gaussians.means[c] == pytest.approx(values[y == c].mean(axis=0), abs=1e-12)
        assert np.exp(gaussians.log_priors[c]) == pytest.approx(np.mean(y == c))


def test_covariances_are_those_of_the_rows(data):
    values, x, y = data
    gaussians = gaussians_of(recipe_of(), x, y)
    centred = values - gaussians.means[y]
    assert gaussians.pooled() == pytest.approx(centred.T @ centred / (len(y) - 4), abs=1e-10)
    assert gaussians.total_covariance() == pytest.approx(np.cov(values.T, bias=True), abs=1e-10)
    for c in range(4):
        assert gaussians.by_class(c) == pytest.approx(np.cov(values[y == c].T), abs=1e-10)
        assert gaussians.variances()[c] == pytest.approx(values[y == c].var(axis=0), abs=1e-10)


@pytest.mark.parametrize("statistics", [("D",), ("B",)])
def test_shared_variances_follow_from_squares_or_from_the_matrix(data, statistics):
    _, x, y = data
    some = gaussians_of(recipe_of(statistics=statistics), x, y)
    assert some.pooled_variances() == pytest.approx(gaussians_of(recipe_of(), x, y).pooled().diagonal(), rel=1e-9)


def test_a_class_nobody_has_has_no_prior_and_the_mean_of_all(data):
    """Class seen by no client: prior −inf, never NaN."""
    _, x, y = data
    gaussians = gaussians_of(recipe_of(classes=6), x, y)
    assert gaussians.log_priors[4] == gaussians.log_priors[5] == -np.inf
    assert gaussians.present == 4
    assert gaussians.means[5] == pytest.approx(gaussians.centre)
    assert gaussians.by_class(5) == pytest.approx(gaussians.pooled())
    assert gaussians.pooled() == pytest.approx(gaussians_of(recipe_of(), x, y).pooled())


def test_a_class_with_one_row_takes_the_shared_covariance(data):
    values, x, y = data
    keep = (y != 3) | (np.arange(len(y)) == np.flatnonzero(y == 3)[0])
    gaussians = gaussians_of(recipe_of(), x[keep], y[keep])
    assert gaussians.means[3] == pytest.approx(values[y == 3][0])
    assert gaussians.by_class(3) is gaussians.pooled()
    diagonal = gaussians_of(recipe_of(statistics=("D",)), x[keep], y[keep])
    assert diagonal.variances()[3] == pytest.approx(diagonal.pooled_variances(), rel=1e-9)


def test_a_total_without_rows_is_refused():
    with pytest.raises(EmbeddingsError, match="at least one site with data"):
        Gaussians.estimate(Moments.zeros(Layout(2, 3)))


def test_mapped_gaussians_are_those_of_mapped_rows(data, rng):
    values, x, y = data
    basis = rng.normal(size=(6, 2))
    mapped = gaussians_of(recipe_of(), x, y).mapped(basis)
    z = values @ basis
    assert mapped.means[1] == pytest.approx(z[y == 1].mean(axis=0))
    assert mapped.by_class(1) == pytest.approx(np.cov(z[y == 1].T))


def test_large_sums_lose_nothing_to_cancellation(rng):
    """A mean far from zero at 16 bits: the covariance is still that of the rows."""
    recipe = recipe_of(bits=16, scale=100.0)
    x = 300.0 + rng.normal(size=(2000, 6))
    y = np.zeros(2000, dtype=int)
    values = Features.of(recipe).values(x)
    estimated = Gaussians.estimate(moments_of(recipe, x, y), Features.of(recipe).unit)
    assert estimated.by_class(0) == pytest.approx(np.cov(values.T), rel=1e-6, abs=1e-6)
    single = estimated.along(0, np.eye(6, dtype=np.float32))
    assert single == pytest.approx(np.cov(values.T), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("change", ["as measured", "diagonal", "shrunk", "one row"])
def test_a_class_covariance_along_columns_is_its_product(data, rng, change):
    _, x, y = data
    keep = (y != 3) | (np.arange(len(y)) == np.flatnonzero(y == 3)[0])
    x, y = (x[keep], y[keep]) if change == "one row" else (x, y)
    gaussians = gaussians_of(recipe_of(), x, y)
    gaussians = {"diagonal": gaussians.diagonal, "shrunk": lambda: gaussians.shrunk(0.3)}.get(
        change, lambda: gaussians
    )()
    columns = rng.normal(size=(x.shape[1], 2))
    for c in range(4):
        expected = gaussians.by_class(c) @ columns
        assert gaussians.along(c, columns) == pytest.approx(expected, abs=1e-10)
        single = gaussians.along(c, columns.astype(np.float32))
        assert single.dtype == np.float32
        assert single == pytest.approx(expected, rel=1e-4, abs=1e-4 * np.abs(expected).max())
        assert gaussians.level(c) == pytest.approx(np.trace(gaussians.by_class(c)) / x.shape[1])


def test_shrunk_gaussians_have_every_covariance_shrunk(data):
    _, x, y = data
    gaussians = gaussians_of(recipe_of(), x, y)
    found = gaussians.shrunk(0.2)
    assert found.pooled() == pytest.approx(shrink(gaussians.pooled(), 0.2))
    assert found.by_class(1) == pytest.approx(shrink(gaussians.by_class(1), 0.2))
    assert np.array_equal(found.means, gaussians.means)
    pooled_only = gaussians_of(recipe_of(statistics=("B",)), x, y).shrunk(0.2)
    assert pooled_only.pooled() == pytest.approx(found.pooled())
    assert not pooled_only.has_class_covariances


@pytest.mark.parametrize("statistics", [("B",), ("S",)])
def test_a_sketch_is_a_view_of_the_same_rows(rng, statistics):
    x, y = blobs(rng)
    recipe = recipe_of(statistics=statistics, sketch=Sketch(dim=3))
    features = Features.of(recipe)
    gaussians = Gaussians.of_total(total_of(recipe, x, y), features)
    inside, z = gaussians.sketched(), features.values(x) @ features.sketch
    assert np.array_equal(inside.matrix, features.sketch)
    assert inside.gaussians is gaussians.sketched().gaussians
    for c in range(4):
        assert inside.gaussians.means[c] == pytest.approx(z[y == c].mean(axis=0))
        assert inside.gaussians.by_class(c) == pytest.approx(np.cov(z[y == c].T))
    again = Gaussians.estimate(total_of(recipe, x, y).moments, features.unit, features.sketch)
    assert np.array_equal(again.sketched().gaussians.by_class(1), inside.gaussians.by_class(1))


def test_gaussians_without_a_sketch_say_which_recipe_has_one(data):
    _, x, y = data
    with pytest.raises(MissingStatisticError, match=r"a \[sketch\] section"):
        gaussians_of(recipe_of(), x, y).sketched()


def test_a_changed_space_has_no_sketch_of_the_old_one(data):
    _, x, y = data
    recipe = recipe_of(sketch=Sketch(dim=3))
    gaussians = Gaussians.of_total(total_of(recipe, x, y), Features.of(recipe))
    changes = (gaussians.shifted(np.ones(6)), gaussians.shrunk(0.1), gaussians.diagonal(), gaussians.mapped(np.eye(6)))
    assert gaussians.sketch is not None
    assert [changed.sketch for changed in changes] == [None] * 4


def test_a_changed_space_knows_what_the_old_one_knew_of_rows_and_columns(data):
    _, x, y = data
    smooth = np.arange(6) % 2 == 0
    gaussians = replace(gaussians_of(recipe_of(), x, y), rows_differ=False, smooth=smooth)
    columns = np.array([4, 1, 2])
    changes = {
        "shifted": gaussians.shifted(np.ones(6)), "shrunk": gaussians.shrunk(0.1), "diagonal": gaussians.diagonal(),
        "select": gaussians.select(columns), "mapped": gaussians.mapped(np.eye(6)),
    }  # fmt: skip
    assert not any(changed.rows_differ for changed in changes.values())
    known = {name: None if changed.smooth is None else changed.smooth.tolist() for name, changed in changes.items()}
    same = dict.fromkeys(("shifted", "shrunk", "diagonal"), smooth.tolist())
    assert known == {**same, "select": smooth[columns].tolist(), "mapped": None}  # whose columns are others


@pytest.mark.parametrize("statistics", [("D",), ("B",), ("S",)])
def test_classes_of_one_row_again_and_again_have_a_sphere_for_a_covariance(statistics):
    x, y = np.repeat(np.array([[0.0, 1.0], [3.0, 4.0], [1.0, 9.0]]), 5, axis=0), np.repeat(np.arange(3), 5)
    recipe = recipe_of(2, 3, statistics)
    repeated, once = (gaussians_of(recipe, x[keep], y[keep]) for keep in (np.arange(15), np.arange(0, 15, 5)))
    assert not repeated.has_spread
    assert not once.has_spread
    level = x.var(axis=0).sum() * 15 / 14 / 2
    if statistics == ("D",):
        assert repeated.variances() == pytest.approx(np.full((3, 2), level))
        return
    assert repeated.pooled() == pytest.approx(level * np.eye(2))
    if statistics == ("S",):
        assert repeated.by_class(1) == pytest.approx(repeated.pooled())
    assert gaussians_of(recipe, x + np.eye(15, 2), y).has_spread
