"""What a recipe takes from public rows: a centre, a projection, a metric, a grid and a radius.

Public rows are another data set through the same encoder, labelled or not. Everything taken from them is in the recipe
and its fingerprint: sites need no public rows, and follow it like any other recipe.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ghofl.errors import RecipeError
from ghofl.features import Features, transform
from ghofl.features.features import check_rows
from ghofl.recipe import Projection, Recipe, Transform
from ghofl.shapes import Float64, Int64, Num, Shaped

# The largest entry of the integer matrix: whitened directions differ a hundredfold in size, so the smallest keep two digits.
LARGEST = 8191
SHRINKAGE = 0.1  # of the public covariance; 0.02 to 0.4 differ by a quarter of a point on held-out training rows
DIGITS = 5  # of the centre, so that it takes little room in a recipe
MOST_ROWS = 20_000  # more gain next to nothing: 2,000 already give most of it
FEWEST_PER_DIMENSION = 2  # rows per direction
FLAT = 1e-9  # share of the largest variance below which a direction counts as constant
BLOCK = 4096


@dataclass(frozen=True, slots=True, eq=False)
class PublicRows:
    """Embeddings that nobody needs to protect, with labels if there are any; their classes need not be the recipe's."""

    x: Num[np.ndarray, "n dim"] = field(repr=False)
    y: Shaped[np.ndarray, " n"] | None = field(default=None, repr=False)
    _known: dict[Transform, tuple] = field(default_factory=dict, init=False, repr=False)  # covariances computed before

    def __post_init__(self) -> None:
        if len(self.x) > MOST_ROWS:
            keep = np.linspace(0, len(self.x) - 1, MOST_ROWS).astype(np.int64)  # evenly: files may be sorted by class
            object.__setattr__(self, "x", self.x[keep])
            object.__setattr__(self, "y", None if self.y is None else self.y[keep])

    @property
    def has_metric(self) -> bool:
        """Whether labels show how rows of one class vary: on average a class has two rows or more."""
        if self.y is None:
            return False
        counts = np.unique(self.y, return_counts=True)[1]
        return len(counts) >= 2 and len(self.x) >= 2 * len(counts)


def centre_on(recipe: Recipe, rows: PublicRows) -> Recipe:
    """The recipe with the mean of public rows, after anchor and power, as the centre of its transform."""
    if not len(rows.x):
        raise RecipeError("the public file holds no rows; give at least two.")
    before = replace(recipe, transform=replace(recipe.transform, centre=(), unit_length=False))
    sums = sum((part.sum(axis=0) for part in _parts(before, rows)), start=np.zeros(recipe.encoder.dim))
    centre = tuple(float(f"{value:.{DIGITS}g}") for value in sums / len(rows.x))
    return replace(recipe, transform=replace(recipe.transform, centre=centre))


def public_projection(recipe: Recipe, rows: PublicRows, dim: int) -> Projection:
    """The projection onto the `dim` principal directions of public rows, scaled by how rows vary along them.

    ::

        R = V (Vᵀ Σ V)^(−½)        V the leading eigenvectors of the covariance of all public rows

    Σ is the covariance within the classes of labelled rows, or else that of all rows, shrunk by 0.1. In this
    space a nearest-mean rule measures distances by the public metric, and LDA is the same as along V. R is rounded to
    integers, with one factor for all columns.

    Guarantees
    ----------
    The matrix follows from the recipe's transform and the rows; the sign of every direction is fixed.

    Examples
    --------
    >>> from ghofl.recipe import Encoder
    >>> rng = np.random.default_rng(0)
    >>> rows = PublicRows(rng.normal(size=(500, 3)) * [9.0, 1.0, 0.1])
    >>> projection = public_projection(Recipe(("a", "b"), Encoder(dim=3)), rows, 2)
    >>> np.abs(projection.given_matrix(3)).argmax(axis=0)
    array([0, 1])
    """
    _check_enough(rows, dim)
    total, within = covariances(recipe, rows)
    variances, vectors = np.linalg.eigh(total)
    vectors = vectors[:, ::-1][:, :dim]
    if _directions(variances) < dim:
        raise RecipeError(
            f"public rows vary in {_directions(variances)} directions, and {dim} are needed; give more varied rows, or "
            "project to fewer dimensions (`project`)."
        )
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(dim)])
    matrix = vectors @ _inverse_root(_shrink(vectors.T @ (total if within is None else within) @ vectors))
    return Projection.of_matrix(np.rint(LARGEST / np.abs(matrix).max() * matrix).astype(np.int64))


def with_public_space(recipe: Recipe, rows: PublicRows) -> Recipe:
    """The recipe centred on public rows, with its random projection replaced by theirs.

    A recipe that asks only for counts and sums, without a projection, gets one that keeps every direction in which
    the rows vary, for the metric. A projection by a given matrix is kept, and so is a lift.
    """
    recipe = centre_on(recipe, rows)
    if recipe.projection is not None and not recipe.projection.matrix:
        return replace(recipe, projection=public_projection(recipe, rows, recipe.projection.dim))
    if recipe.projection is None and recipe.lift is None and recipe.statistics == ("N", "A"):
        total, _ = covariances(recipe, rows)
        most = min(_directions(np.linalg.eigvalsh(total)), max(1, len(rows.x) // FEWEST_PER_DIMENSION))
        return replace(recipe, projection=public_projection(recipe, rows, most))
    return recipe


def usual_public_length(recipe: Recipe, rows: PublicRows) -> float:
    """The median length of public rows as features of a recipe, in its units, to be used as a radius."""
    features = Features.of(replace(recipe, privacy=replace(recipe.privacy, radius=None, epsilon=None, delta=None)))
    lengths = [np.linalg.norm(features.values(rows.x[i : i + BLOCK]), axis=1) for i in range(0, len(rows.x), BLOCK)]
    return float(f"{np.median(np.concatenate(lengths)):.3g}")


def covariances(
    recipe: Recipe, rows: PublicRows
) -> tuple[Float64[np.ndarray, "dim dim"], Float64[np.ndarray, "dim dim"] | None]:
    """The covariance of all public rows after the recipe's transform, and that within their classes, if they have any."""
    known = rows._known
    if recipe.transform not in known:
        known[recipe.transform] = _covariances(recipe, rows)
    return known[recipe.transform]


def _covariances(
    recipe: Recipe, rows: PublicRows
) -> tuple[Float64[np.ndarray, "dim dim"], Float64[np.ndarray, "dim dim"] | None]:
    dim, n = recipe.encoder.dim, len(rows.x)
    y, counts = _numbers(rows)
    sums, squares = np.zeros((len(counts), dim)), np.zeros((dim, dim))
    for start, part in zip(range(0, n, BLOCK), _parts(recipe, rows), strict=True):
        np.add.at(sums, y[start : start + BLOCK], part)
        squares += part.T @ part
    mean = sums.sum(axis=0) / n
    total = squares / n - np.outer(mean, mean)
    if not rows.has_metric:
        return total, None
    return total, (squares - (sums / counts[:, None]).T @ sums) / max(1, n - len(counts))


def _parts(recipe: Recipe, rows: PublicRows) -> Iterator[Float64[np.ndarray, "part dim"]]:
    check_rows(rows.x, recipe.encoder.dim)
    for start in range(0, len(rows.x), BLOCK):
        yield transform(rows.x[start : start + BLOCK], recipe)


def _numbers(rows: PublicRows) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " classes"]]:
    if rows.y is None or not rows.has_metric:
        return np.zeros(len(rows.x), dtype=np.int64), np.array([len(rows.x)])
    _, y, counts = np.unique(rows.y, return_inverse=True, return_counts=True)
    return y.astype(np.int64), counts


def _check_enough(rows: PublicRows, dim: int) -> None:
    if len(rows.x) < FEWEST_PER_DIMENSION * dim:
        raise RecipeError(
            f"{len(rows.x)} public rows are too few for {dim} directions; give at least "
            f"{FEWEST_PER_DIMENSION * dim}, or project to fewer dimensions (`project`)."
        )


def _directions(variances: Float64[np.ndarray, " dim"]) -> int:
    """In how many directions rows vary, given the variances along all of them."""
    return int(np.count_nonzero(variances > FLAT * max(float(variances.max()), 0.0)))


def _shrink(sigma: Float64[np.ndarray, "k k"]) -> Float64[np.ndarray, "k k"]:
    return (1 - SHRINKAGE) * sigma + SHRINKAGE * np.trace(sigma) / len(sigma) * np.eye(len(sigma))


def _inverse_root(sigma: Float64[np.ndarray, "k k"]) -> Float64[np.ndarray, "k k"]:
    values, vectors = np.linalg.eigh(sigma)
    return (vectors / np.sqrt(values)) @ vectors.T
