"""Fitting a recipe's grid to rows, and the lengths to expect after a projection or lift."""

from dataclasses import replace

import numpy as np

from ghofl.features.features import Features, check_rows, transform
from ghofl.features.grid import Clipping, round_down, unit_of
from ghofl.recipe import Recipe
from ghofl.shapes import Num

HEADROOM = 0.75
FITTED_ROWS = 4096  # of all rows: enough for the size of entries


def fit_grid(recipe: Recipe, x: Num[np.ndarray, "n dim"], clipped: float = 1e-4, fit_scale: bool = True) -> Recipe:
    """The recipe with grid scale and shift such that all but `clipped` of these rows' entries fill 3/4 of the grid.

    The remaining quarter is headroom for other sites, whose entries may be larger. This is meant for public rows, or for
    a site that proposes a recipe: the scale is rounded to two digits, so it reveals only the rough size of the entries.
    Without `fit_scale` only the shift is fitted. Without rows nothing changes. Of more than 4,096 rows so many are used,
    spread over all of them, since files may be sorted by class.
    """
    x = check_rows(_spread(x), recipe.encoder.dim)
    if len(x) == 0:
        return recipe
    size = float(np.quantile(np.abs(transform(x, recipe)), 1.0 - clipped)) if fit_scale else 0.0
    if size > 0:
        recipe = replace(
            recipe, grid=replace(recipe.grid, scale=round_down(HEADROOM * recipe.grid.bound / size, digits=2))
        )
    space = recipe.projection or recipe.lift
    if space is None:
        return recipe
    features = Features.of(recipe)
    q, _ = features.on_grid(transform(x, recipe))
    y, divisor = features.product(q)
    size = float(np.quantile(np.abs(y), 1.0 - clipped)) / divisor
    shift = max(0, int(np.ceil(np.log2(max(size, 1.0) / recipe.grid.bound))))
    if recipe.projection is not None:
        return replace(recipe, projection=replace(recipe.projection, shift=shift))
    assert recipe.lift is not None
    return replace(recipe, lift=replace(recipe.lift, shift=shift))


def clipping_of(recipe: Recipe, x: Num[np.ndarray, "n dim"]) -> Clipping:
    """How many entries of rows like these fall outside the recipe's grid."""
    return Features.of(recipe).rows(_spread(x))[1]


def flat_features(recipe: Recipe, x: Num[np.ndarray, "n dim"]) -> float:
    """The share of columns that differ between these rows although the grid rounds them to one value.

    >>> from ghofl.recipe import Encoder, Grid
    >>> recipe = Recipe(("a", "b"), Encoder(dim=2), grid=Grid(scale=1.0))
    >>> flat_features(recipe, np.array([[0.01, 50.0], [0.02, 60.0]]))
    0.5
    """
    x = check_rows(_spread(x), recipe.encoder.dim)
    if len(x) < 2:
        return 0.0
    q, _ = Features.of(replace(recipe, projection=None, lift=None, sketch=None)).on_grid(transform(x, recipe))
    varies = np.ptp(x, axis=0) > 0
    return float(np.mean(np.ptp(q, axis=0)[varies] == 0)) if varies.any() else 0.0


def usual_length(recipe: Recipe) -> float:
    """The usual length of the features of a row of length 1: it is 1 without a projection or lift.

    ‖R‖_F/d for a projection by R/√d of d dimensions, which is √(k/d) for signs; a lift keeps the positive half.

    >>> from ghofl.recipe import Encoder, Projection
    >>> usual_length(Recipe(("a", "b"), Encoder(dim=64), projection=Projection(dim=16)))
    0.5
    """
    matrix = Features.of(recipe).matrix
    if matrix is None:
        return 1.0
    size = float(np.sqrt(np.square(matrix.astype(np.float64)).sum())) / recipe.encoder.dim
    if recipe.lift is None:
        return size
    kept = unit_of(recipe) * recipe.grid.scale if recipe.lift.keep else 0.0
    return float(np.hypot(size / np.sqrt(2.0), kept))


def _spread(x: Num[np.ndarray, "n dim"]) -> Num[np.ndarray, "m dim"]:
    """At most `FITTED_ROWS` rows: one out of each of as many equal slices, at a place drawn by a fixed seed.

    Equal steps would see one class only where the classes of a file take turns.
    """
    if len(x) <= FITTED_ROWS:
        return x
    places = np.arange(FITTED_ROWS) + np.random.default_rng(0).random(FITTED_ROWS)
    return x[(places * (len(x) / FITTED_ROWS)).astype(np.int64)]
