"""Embeddings become integers here, each row on its own.

::

    x  →  x − anchor  →  sign(x)|x|^p  →  x/‖x‖₂  →  q = clip(rint(x·scale), ±bound)      the grid
    q  →  clip(round(q R / 2^shift), ±bound)                                             projection
    q  →  clip(relu(round((q − q̄) R / 2^shift)), 0..bound)                               lift, q̄ the row's mean
    q  →  q · min(1, radius/‖q‖₂), rounded so that it is no longer                        privacy.radius

The radius comes last, because what it bounds is what is added up: lengths after a projection or lift are not those
before it, and a clipped row must not be moved again. The grid comes before every matrix product, and the products of
small integers are exact, so that the features of a row never depend on the rows computed with it, on the BLAS or on
the number of threads.

The public signs of R come from `rademacher`, a bit stream anyone can write again in a few lines.
"""

import hashlib
import warnings
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float, Int, Int16, Num

from ghofl.clipping import clip_rows, grid_radius
from ghofl.errors import ClippingWarning, EmbeddingsError
from ghofl.recipe import Grid, Lift, Projection, Recipe
from ghofl.statistics.triangles import EXACT_IN_FLOAT32, EXACT_IN_FLOAT64

BLOCK = 4096
HEADROOM = 0.75
TOLERATED_CLIPPING = 1e-3
SPACES = ("grid", "projection", "lift")  # each has a grid of its own


def rademacher(seed: int, rows: int, columns: int, purpose: str) -> Int[np.ndarray, "rows columns"]:
    """A public matrix of signs ±1 that every platform computes alike.

    The bits are the output of SHAKE-256 over the ASCII text ``ghofl rademacher 1|{purpose}|{seed}|{rows}|{columns}``,
    read byte by byte, lowest bit first, and laid out row by row; bit 0 is +1 and bit 1 is −1.

    >>> rademacher(0, 2, 4, "projection").tolist()
    [[1, 1, 1, 1], [1, 1, 1, -1]]
    """
    text = f"ghofl rademacher 1|{purpose}|{seed}|{rows}|{columns}".encode("ascii")
    count = rows * columns
    stream = hashlib.shake_256(text).digest(-(-count // 8))
    bits = np.unpackbits(np.frombuffer(stream, dtype=np.uint8), count=count, bitorder="little")
    return (1 - 2 * bits.astype(np.int8)).reshape(rows, columns)


def exact_product(q: Int[np.ndarray, "n dim"], matrix: Int[np.ndarray, "dim k"], bound: int) -> Num[np.ndarray, "n k"]:
    """`q @ matrix` as whole floats, exact: `bound` limits Σ|q_i R_ij| and chooses float32, float64 or a refusal."""
    if bound <= EXACT_IN_FLOAT32:
        return q.astype(np.float32) @ matrix.astype(np.float32)
    if bound <= EXACT_IN_FLOAT64:
        return q.astype(np.float64) @ matrix.astype(np.float64)
    raise EmbeddingsError(
        f"a projected entry could reach {bound}, and exact products stop at 2^53; use fewer grid bits."
    )


@dataclass(frozen=True, slots=True)
class Clipped:
    """How many of some entries fell outside one grid, and how far the largest reached (1 = the edge of the grid)."""

    entries: int = 0
    clipped: int = 0
    reach: float = 0.0

    def __add__(self, other: "Clipped") -> "Clipped":
        return Clipped(self.entries + other.entries, self.clipped + other.clipped, max(self.reach, other.reach))

    @property
    def share(self) -> float:
        """The clipped part of all entries."""
        return self.clipped / self.entries if self.entries else 0.0


@dataclass(frozen=True, slots=True)
class Clipping:
    """What was clipped on the grid, and on the grid that a projection or lift has after it.

    `entries`, `clipped`, `share` and `reach` are those of `space`, the one that clips the larger share.

    Guarantees
    ----------
    ``+`` is associative and commutative, and ``Clipping()`` adds nothing: any order of blocks and sites gives the
    same counts.

    Examples
    --------
    >>> some = Clipping(grid=Clipped(1000, 2, 1.5)) + Clipping(grid=Clipped(1000, 0, 0.5), lift=Clipped(50, 0, 0.9))
    >>> some.space, some.entries, some.clipped, some.share
    ('grid', 2000, 2, 0.001)
    """

    grid: Clipped = Clipped()
    projection: Clipped = Clipped()
    lift: Clipped = Clipped()

    def __add__(self, other: "Clipping") -> "Clipping":
        return Clipping(*(getattr(self, name) + getattr(other, name) for name in SPACES))

    @property
    def space(self) -> str:
        """Where the larger share was clipped: ``grid``, ``projection`` or ``lift``."""

        def how_bad(name: str) -> tuple[float, bool]:
            of_space: Clipped = getattr(self, name)
            return of_space.share, of_space.entries > 0

        return max(SPACES, key=how_bad)

    @property
    def entries(self) -> int:
        """How many entries went through that space."""
        return self._worst.entries

    @property
    def clipped(self) -> int:
        """How many of them fell outside its grid."""
        return self._worst.clipped

    @property
    def reach(self) -> float:
        """How far the largest of them reached; 1 is the edge of the grid."""
        return self._worst.reach

    @property
    def share(self) -> float:
        """The clipped part of them."""
        return self._worst.share

    @property
    def _worst(self) -> Clipped:
        return getattr(self, self.space)

    def advice(self, recipe: Recipe) -> str:
        """What the recipe should say so that nothing is clipped."""
        if self.space == "grid":
            return f"grid.scale = {_round_down(recipe.grid.scale / max(self.reach, 1e-300)):g} clips none of these rows"
        space = recipe.projection or recipe.lift
        more = max(1, int(np.ceil(np.log2(max(self.reach, 1.0)))))
        assert space is not None, "only a projected space clips outside the grid"
        return f"{self.space}.shift = {shift_of(space, recipe.encoder.dim) + more} clips none of these rows"

    def warn(self, recipe: Recipe) -> None:
        """A `ClippingWarning` when more than one entry in a thousand was clipped."""
        if self.share > TOLERATED_CLIPPING:
            warnings.warn(
                f"{self.share:.2%} of the entries fell outside the {recipe.grid.bits}-bit {self.space} "
                f"(up to {TOLERATED_CLIPPING:.1%} is harmless); {self.advice(recipe)}.",
                ClippingWarning,
                stacklevel=2,
            )


def shift_of(space: Projection | Lift, dim: int) -> int:
    """The bits rounded away after a projection from `dim` dimensions: ⌊½ log₂ dim⌋ unless the recipe says."""
    return int(np.log2(dim) / 2) if space.shift is None else space.shift


def unit_of(recipe: Recipe) -> float:
    """What one integer step of a feature is worth in the units of the embedding."""
    space, step = recipe.projection or recipe.lift, 1.0 / recipe.grid.scale
    if space is None or (recipe.lift is not None and recipe.lift.keep):
        return step  # kept and lifted features share the grid's step
    # Signs divided by √dim keep the size of entries on average, as the paper's randn(d, k)/√d does.
    return step * 2.0 ** shift_of(space, recipe.encoder.dim) / float(np.sqrt(recipe.encoder.dim))


def radius_of(recipe: Recipe) -> int | None:
    """privacy.radius in steps of the grid, rounded down, or none where the recipe has none."""
    return None if recipe.privacy.radius is None else grid_radius(recipe.privacy.radius, unit_of(recipe))


def unit_scale(grid: Grid, dim: int) -> float:
    """A grid scale for rows of length 1, chosen without any: it ends at eight times the size of an average entry.

    >>> unit_scale(Grid(bits=8), 1280)
    560.0
    """
    return _round_down(grid.bound * float(np.sqrt(dim)) / 8.0, digits=2)


def usual_length(recipe: Recipe) -> float:
    """The length that a row of length 1 usually has as features: 1, or what the projection or lift makes of it.

    ‖R‖_F/d for a projection by R/√d of d dimensions, which is √(k/d) for signs; a lift keeps the positive half.

    >>> from ghofl.recipe import Encoder
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


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """The recipe's map from embeddings to integers, with its public matrices at hand.

    `Features.of(recipe).rows(x)` gives int16 rows and what was clipped; `values(x)` gives the same rows as floats
    in the units of the embedding (divided by √dim after a projection, so that lengths are kept).

    Guarantees
    ----------
    Each row's result depends on that row and the recipe alone. Every entry is within ±`recipe.grid.bound`, and no row
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

    @classmethod
    def of(cls, recipe: Recipe) -> "Features":
        """The features of a recipe; its random matrices are computed once, here."""
        dim, matrix = recipe.encoder.dim, None
        if recipe.projection is not None:
            given = recipe.projection.given_matrix(dim)
            matrix = rademacher(recipe.projection.seed, dim, recipe.dim, "projection") if given is None else given
        elif recipe.lift is not None:
            matrix = rademacher(recipe.lift.seed, dim, recipe.lift.dim, "lift")
        return cls(recipe, matrix, _sketch_matrix(recipe))

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
        """The longest row, in steps of the grid, or none where the recipe has no privacy.radius."""
        return radius_of(self.recipe)

    def rows(self, x: Num[np.ndarray, "n dim"]) -> tuple[Int16[np.ndarray, "n features"], Clipping]:
        """Integer features of embeddings, and how many entries were clipped on the way."""
        x = _checked(x, self.recipe.encoder.dim)
        out = np.empty((len(x), self.recipe.dim), dtype=np.int16)
        clipping, radius = Clipping(), self.radius
        for start in range(0, len(x), BLOCK):
            block = slice(start, start + BLOCK)
            q, clipped = self._on_grid(transformed(x[block], self.recipe))
            clipping += clipped
            if self.matrix is not None:
                projected, clipped = self._through_matrix(q)
                clipping += clipped
                is_kept = self.recipe.lift is not None and self.recipe.lift.keep
                q = np.hstack([q, projected]) if is_kept else projected
            out[block] = q if radius is None else clip_rows(q, radius)
        return out, clipping

    def values(self, x: Num[np.ndarray, "n dim"]) -> Float[np.ndarray, "n features"]:
        """Features of embeddings as floats, in the units of the embedding."""
        return self.rows(x)[0] * self.unit

    def _on_grid(self, x: Float[np.ndarray, "n dim"]) -> tuple[Int16[np.ndarray, "n dim"], Clipping]:
        return _clip(np.rint(x * self.recipe.grid.scale), self.recipe.grid.bound, "grid")

    def _product(self, q: Int16[np.ndarray, "n dim"], slack: int = 0) -> tuple[Num[np.ndarray, "n projected"], int]:
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
        y, divisor = self._product(q, slack=2**shift)
        if divisor > 1:
            # A quotient of whole numbers far below 2^53 is never rounded across a whole number: half up, exactly.
            y = np.floor((2.0 * y + divisor * 2**shift) / (divisor * 2 ** (shift + 1)))
        elif shift:
            # Whole numbers, and division by a power of two, are exact: this is integer rounding, half up.
            y = np.floor((y + y.dtype.type(2 ** (shift - 1))) * y.dtype.type(2.0**-shift))
        if self.recipe.lift is not None:
            np.maximum(y, 0, out=y)
        return _clip(y, self.recipe.grid.bound, "projection" if self.recipe.lift is None else "lift")


def transformed(x: Num[np.ndarray, "n dim"], recipe: Recipe) -> Float[np.ndarray, "n dim"]:
    """Rows after anchor, power and unit length, before the grid. A row of zeros keeps its length of zero."""
    # A C-contiguous float64 block makes numpy add each row in one fixed order, whatever the batch looked like.
    x = np.ascontiguousarray(x, dtype=np.float64)
    if recipe.transform.anchor:
        x = x - np.asarray(recipe.transform.anchor)
    if recipe.transform.power == 0.5:
        x = np.copysign(np.sqrt(np.abs(x)), x)  # IEEE square roots are exact on every platform; pow is not
    elif recipe.transform.power != 1.0:
        x = np.copysign(np.abs(x) ** recipe.transform.power, x)
    if recipe.transform.unit_length:
        length = np.sqrt(np.add.reduce(x * x, axis=1, keepdims=True))
        x = x / np.where(length > 0, length, 1.0)
    return x


def calibrated(recipe: Recipe, x: Num[np.ndarray, "n dim"], clipped: float = 1e-4, fit_scale: bool = True) -> Recipe:
    """The recipe with grid scale and shift such that all but `clipped` of these rows' entries fill 3/4 of the grid.

    The quarter left is headroom: the other sites' entries may be larger than these.
    Meant for rows that are public, or for a site that proposes a recipe: the scale is rounded to two digits, so it
    tells no more than the rough size of the entries. Without `fit_scale` only the shift is fitted. No rows: no change.
    """
    x = _checked(x[:BLOCK], recipe.encoder.dim)
    if len(x) == 0:
        return recipe
    size = float(np.quantile(np.abs(transformed(x, recipe)), 1.0 - clipped)) if fit_scale else 0.0
    if size > 0:
        recipe = replace(
            recipe, grid=replace(recipe.grid, scale=_round_down(HEADROOM * recipe.grid.bound / size, digits=2))
        )
    space = recipe.projection or recipe.lift
    if space is None:
        return recipe
    features = Features.of(recipe)
    q, _ = features._on_grid(transformed(x, recipe))
    y, divisor = features._product(q)
    size = float(np.quantile(np.abs(y), 1.0 - clipped)) / divisor
    shift = max(0, int(np.ceil(np.log2(max(size, 1.0) / recipe.grid.bound))))
    if recipe.projection is not None:
        return replace(recipe, projection=replace(recipe.projection, shift=shift))
    assert recipe.lift is not None
    return replace(recipe, lift=replace(recipe.lift, shift=shift))


def _are_same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)


def _sketch_matrix(recipe: Recipe) -> Int[np.ndarray, "features sketch"] | None:
    if recipe.sketch is None:
        return None
    if recipe.sketch.kept:
        return np.eye(recipe.dim, recipe.sketch.dim, dtype=np.int8)
    return rademacher(recipe.sketch.seed, recipe.dim, recipe.sketch.dim, "sketch")


def _checked(x: Num[np.ndarray, "n dim"], dim: int) -> Num[np.ndarray, "n dim"]:
    if x.ndim != 2 or x.shape[1] != dim:
        raise EmbeddingsError(
            f"embeddings have shape {x.shape} and the recipe expects rows of {dim} numbers; "
            "encode with the recipe's encoder, or make a recipe for this one with 'ghofl recipe'."
        )
    if np.issubdtype(x.dtype, np.floating):
        finite = np.isfinite(x).all(axis=1)
        if not finite.all():
            raise EmbeddingsError(
                f"row {int(np.argmin(finite))} holds a number that is not finite "
                f"({int(np.sum(~finite))} of {len(x)} rows do); repair or drop those rows."
            )
    return x


def _clip(values: Num[np.ndarray, "n k"], bound: int, space: str) -> tuple[Int16[np.ndarray, "n k"], Clipping]:
    reach = float(np.abs(values).max(initial=0.0)) / bound
    clipped = int(np.count_nonzero(np.abs(values) > bound)) if reach > 1 else 0
    counted = Clipping(**{space: Clipped(values.size, clipped, reach)})
    return np.clip(values, -bound, bound).astype(np.int16), counted


def _round_down(value: float, digits: int = 3) -> float:
    if value <= 0:
        return value
    power = 10.0 ** (digits - 1 - int(np.floor(np.log10(value))))
    return float(np.floor(value * power) / power)
