"""From embeddings to integers, each row on its own.

::

    x  →  x − anchor  →  sign(x)|x|^p  →  x − centre  →  x/‖x‖₂                          transform
    x  →  q = clip(rint(x·scale), ±bound)                                                the grid
    q  →  clip(round(q R / 2^shift), ±bound)                                             projection
    q  →  clip(relu(round((q − q̄) R / 2^shift)), 0..bound)                               lift, q̄ the row's mean
    q  →  q, hinges and cosines of x                                                     basis (`ghofl.features.basis`)
    q  →  q · min(1, radius/‖q‖₂), rounded so that it is no longer than the radius        privacy.radius

The radius comes last, because it must bound what is added up: a projection or lift changes lengths, and a clipped row
must not be changed again. The grid comes before every matrix product, and the products of small integers are exact, so
the features of a row never depend on the rows computed with it, on the BLAS or on the number of threads.

The public signs of R come from `rademacher`, a bit stream that takes a few lines in any language.
"""

from dataclasses import dataclass, field

import numpy as np

from ghofl.compute.threads import parallel_for
from ghofl.errors import EmbeddingsError
from ghofl.features.basis import Expansion
from ghofl.features.grid import ClipCount, Clipping, radius_of, shift_of, unit_of
from ghofl.features.radius import clip_rows
from ghofl.features.signs import exact_product, rademacher
from ghofl.recipe import Recipe
from ghofl.shapes import Float, Int, Int16, Num

PIECE = 512  # rows that one thread takes at a time
IN_CACHE = 2**16  # entries that go to the grid at a time: half a megabyte of float64


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """The recipe's map from embeddings to integers, with its public matrices.

    `Features.of(recipe).rows(x)` gives int16 rows and the clipping; `values(x)` gives the same rows as floats
    in the units of the embedding (divided by √dim after a projection, so that lengths are kept).

    Guarantees
    ----------
    Each row's result depends only on that row and the recipe. Every entry is within ±`recipe.grid.bound`, and no row
    is longer than `radius`, in integers.

    Examples
    --------
    >>> from ghofl.recipe import Encoder, Grid
    >>> recipe = Recipe(classes=("a", "b"), encoder=Encoder(dim=3), grid=Grid(bits=8, scale=10.0))
    >>> Features.of(recipe).rows(np.array([[0.5, -1.26, 99.0]]))[0]
    array([[   5,  -13,  127]], dtype=int16)
    """

    recipe: Recipe
    matrix: Int[np.ndarray, "dim projected"] | None = field(repr=False)
    sketch: Int[np.ndarray, "features sketch"] | None = field(repr=False)
    expansion: Expansion | None = field(default=None, repr=False)

    @classmethod
    def of(cls, recipe: Recipe) -> "Features":
        """The features of a recipe; its random matrices are computed once, here."""
        dim, matrix = recipe.encoder.dim, None
        if recipe.projection is not None:
            given = recipe.projection.given_matrix(dim)
            matrix = rademacher(recipe.projection.seed, dim, recipe.dim, "projection") if given is None else given
        elif recipe.lift is not None:
            matrix = rademacher(recipe.lift.seed, dim, recipe.lift.dim, "lift")
        return cls(recipe, matrix, _sketch_matrix(recipe), None if recipe.basis is None else Expansion.of(recipe))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Features):
            return NotImplemented
        mine, theirs = (self.matrix, self.sketch), (other.matrix, other.sketch)
        return self.recipe == other.recipe and all(map(_are_same, mine, theirs))

    def __hash__(self) -> int:
        return hash(self.recipe)

    @property
    def unit(self) -> float:
        """What one integer step is worth in the units of the embedding."""
        return unit_of(self.recipe)

    @property
    def radius(self) -> int | None:
        """The greatest length of a row, in steps of the grid, or None where the recipe has no privacy.radius."""
        return radius_of(self.recipe)

    def rows(self, x: Num[np.ndarray, "n dim"]) -> tuple[Int16[np.ndarray, "n features"], Clipping]:
        """Integer features of embeddings, and how many entries were clipped."""
        check_width(x, self.recipe.encoder.dim)
        out = np.empty((len(x), self.recipe.dim), dtype=np.int16)
        clipped: list[Clipping] = []
        radius, is_kept = self.radius, self.recipe.lift is not None and self.recipe.lift.keep

        def fill(start: int) -> None:
            piece = slice(start, start + PIECE)
            q = self._from_rows(x, piece, clipped)
            if self.matrix is not None:
                projected, beyond = self._through_matrix(q)
                clipped.append(beyond)
                q = np.hstack([q, projected]) if is_kept else projected
            if self.expansion is not None:
                q = np.hstack([q, self.expansion.rows(x[piece].astype(np.float64))])
            out[piece] = q if radius is None else clip_rows(q, radius)

        parallel_for(fill, range(0, len(x), PIECE))
        return out, sum(clipped, start=Clipping())

    def _from_rows(self, x: np.ndarray, piece: slice, clipped: list[Clipping]) -> Int16[np.ndarray, "some dim"]:
        """A piece of the rows on the grid, in blocks that fit into the cache."""
        rows, step = x[piece], max(1, IN_CACHE // x.shape[1])
        q = np.empty(rows.shape, dtype=np.int16)
        for start in range(0, len(rows), step):
            block = np.ascontiguousarray(rows[start : start + step], dtype=np.float64)
            if not np.isfinite(block).all():
                check_rows(x, x.shape[1])  # says which of all rows they are
            q[start : start + step], beyond = self.on_grid(transform(block, self.recipe))
            clipped.append(beyond)
        return q

    def values(self, x: Num[np.ndarray, "n dim"]) -> Float[np.ndarray, "n features"]:
        """Features of embeddings as floats, in the units of the embedding."""
        return self.rows(x)[0] * self.unit

    def on_grid(self, x: Float[np.ndarray, "n dim"]) -> tuple[Int16[np.ndarray, "n dim"], Clipping]:
        """Transformed rows as integers, and how many entries were clipped."""
        steps = x * self.recipe.grid.scale
        return _clip(np.rint(steps, out=steps), self.recipe.grid.bound, "grid")

    def product(self, q: Int16[np.ndarray, "n dim"], slack: int = 0) -> tuple[Num[np.ndarray, "n projected"], int]:
        """Whole numbers and their common divisor: q R, or d q R − (Σ_j q_j)(Σ_j R_j) and d where rows are centred."""
        assert self.matrix is not None
        reach = int(np.abs(self.matrix.astype(np.int64)).sum(axis=0).max()) * self.recipe.grid.bound
        y = exact_product(q, self.matrix, reach + slack)
        if self.recipe.lift is None or not self.recipe.lift.centred:
            return y, 1
        rows, columns = q.sum(axis=1, dtype=np.float64), self.matrix.sum(axis=0, dtype=np.float64)
        return q.shape[1] * y.astype(np.float64) - np.outer(rows, columns), q.shape[1]

    def _through_matrix(self, q: Int16[np.ndarray, "n dim"]) -> tuple[Int16[np.ndarray, "n projected"], Clipping]:
        space = self.recipe.projection or self.recipe.lift
        assert space is not None
        shift = shift_of(space, q.shape[1])
        y, divisor = self.product(q, slack=2**shift)
        if divisor > 1:
            # A quotient of whole numbers far below 2^53 is never rounded across a whole number: half up, exactly.
            y = np.floor((2.0 * y + divisor * 2**shift) / (divisor * 2 ** (shift + 1)))
        elif shift:
            # Whole numbers, and division by a power of two, are exact: this is integer rounding, half up.
            y = np.floor((y + y.dtype.type(2 ** (shift - 1))) * y.dtype.type(2.0**-shift))
        if self.recipe.lift is not None:
            np.maximum(y, 0, out=y)
        return _clip(y, self.recipe.grid.bound, "projection" if self.recipe.lift is None else "lift")


def transform(x: Num[np.ndarray, "n dim"], recipe: Recipe) -> Float[np.ndarray, "n dim"]:
    """Rows after anchor, power, centre and unit length, before the grid. A row of zeros stays as it is."""
    # In a C-contiguous float64 block numpy adds each row in one fixed order, whatever the batch looks like.
    x = np.ascontiguousarray(x, dtype=np.float64)
    if recipe.transform.anchor:
        x = x - np.asarray(recipe.transform.anchor)
    if recipe.transform.power == 0.5:
        x = np.copysign(np.sqrt(np.abs(x)), x)  # IEEE square roots are exact on every platform; pow is not
    elif recipe.transform.power != 1.0:
        x = np.copysign(np.abs(x) ** recipe.transform.power, x)
    if recipe.transform.centre:
        x = x - np.asarray(recipe.transform.centre)
    if recipe.transform.unit_length:
        length = np.sqrt(np.add.reduce(x * x, axis=1, keepdims=True))
        x = x / np.where(length > 0, length, 1.0)
    return x


def _are_same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)


def _sketch_matrix(recipe: Recipe) -> Int[np.ndarray, "features sketch"] | None:
    if recipe.sketch is None:
        return None
    if recipe.sketch.kept:
        return np.eye(recipe.dim, recipe.sketch.dim, dtype=np.int8)
    return rademacher(recipe.sketch.seed, recipe.dim, recipe.sketch.dim, "sketch")


def check_width(x: Num[np.ndarray, "n dim"], dim: int) -> None:
    """Raise `EmbeddingsError` unless rows have the recipe's length."""
    if x.ndim != 2 or x.shape[1] != dim:
        raise EmbeddingsError(
            f"embeddings have shape {x.shape} and the recipe expects rows of {dim} numbers; "
            "encode with the recipe's encoder, or make a recipe for this one with 'ghofl recipe'."
        )


def check_rows(x: Num[np.ndarray, "n dim"], dim: int) -> Num[np.ndarray, "n dim"]:
    """The rows; raises `EmbeddingsError` where they have another length or an entry that is not finite."""
    check_width(x, dim)
    if np.issubdtype(x.dtype, np.floating):
        finite = np.isfinite(x).all(axis=1)
        if not finite.all():
            raise EmbeddingsError(
                f"row {int(np.argmin(finite))} holds a number that is not finite "
                f"({int(np.sum(~finite))} of {len(x)} rows do); repair or drop those rows."
            )
    return x


def _clip(values: Num[np.ndarray, "n k"], bound: int, space: str) -> tuple[Int16[np.ndarray, "n k"], Clipping]:
    reach, clipped = float(max(values.max(initial=0.0), -values.min(initial=0.0))) / bound, 0
    if reach > 1:
        clipped = int(np.count_nonzero(np.abs(values) > bound))
        values = np.clip(values, -bound, bound)
    return values.astype(np.int16), Clipping(**{space: ClipCount(values.size, clipped, reach)})
