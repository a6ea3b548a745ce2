"""The features of a recipe's [basis], each row on its own and the same bits on every platform.

::

    hinge     rint(max(0, x_j − t) · min(1, 1/(1 − t)) · scale)
    rank      r_j = ⌊254 p/(64 s) + ½⌋ − 127      p = Σ_k ⌊64 clip((x_j − t_k)/(t_{k+1} − t_k), 0, 1) + ½⌋ over s segments
    cosine    C[(⌊(r·w) m / 2¹⁶⌋ + b) mod 4096]   C[k] = rint(cos(2πk/4096) · scale)      m = rint(2¹⁶ · 4096/(2032 √d))

Ranks are those of a column of kind ``quantiles`` on the column's breaks, as whole numbers within ±127; a column without
breaks has rank ⌊127 x_j⌉. A weight is the sum of 16 public signs, which is nearly normal with deviation 4, so that
w/(4√d) is the W of random Fourier features with N(0, 1/d) (Rahimi & Recht 2007). r·w is a sum of small integers and exact;
sums, products, quotients and roundings of IEEE doubles are the same everywhere, and so are the entries of C.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from ghofl.features.signs import exact_product, rademacher
from ghofl.recipe import Recipe
from ghofl.recipe.basis import SIGNS
from ghofl.shapes import Float64, Int, Int16, Int64

TURN = 4096  # entries of the table of cosines
RANK, PART = 127, 64  # the largest rank, and the parts of a segment between two breaks
SHIFT = 16  # bits of the factor from r·w to a phase
AT_ONCE = 2**18  # segments of columns that rows are looked up in together


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """The public numbers behind the features of a [basis]: knots, segments, weights, phases and the table of cosines."""

    scale: float
    bound: int
    hinges: Int64[np.ndarray, " h"] = field(repr=False)  # the entry of each hinge, and its knot
    knots: Float64[np.ndarray, " h"] = field(repr=False)
    ranked: Int64[np.ndarray, " r"] = field(
        repr=False
    )  # the entries with breaks, and where their segments start and how wide
    starts: Float64[np.ndarray, "r s"] = field(repr=False)
    widths: Float64[np.ndarray, "r s"] = field(repr=False)
    segments: Float64[np.ndarray, " r"] = field(repr=False)
    weights: Int[np.ndarray, "dim m"] = field(repr=False)
    phases: Int64[np.ndarray, " m"] = field(repr=False)
    factor: int
    cosines: Int16[np.ndarray, " turn"] = field(repr=False)

    @classmethod
    def of(cls, recipe: Recipe) -> "Expansion":
        """The expansion of a recipe with a basis."""
        basis, table, grid, dim = recipe.basis, recipe.table, recipe.grid, recipe.encoder.dim
        assert basis is not None
        assert table is not None
        at = np.cumsum([0, *(column.width for column in table.columns)])
        found = [(int(i), column.knots) for i, column in zip(at, table.columns, strict=False) if column.knots]
        longest = max((len(knots) for _, knots in found), default=2) - 1
        # A segment beyond the last knot starts at 1, where no entry goes on.
        ends = np.ones((len(found), longest + 1))
        for row, (_, knots) in zip(ends, found, strict=True):
            row[: len(knots)] = knots
        widths = np.diff(ends, axis=1)
        hinges = basis.knots(table)
        return cls(
            grid.scale,
            grid.bound,
            np.array([entry for entry, _ in hinges], dtype=np.int64),
            np.array([knot for _, knot in hinges], dtype=np.float64),
            np.array([entry for entry, _ in found], dtype=np.int64),
            ends[:, :-1],
            np.where(widths > 0, widths, 1.0),
            np.array([len(knots) - 1.0 for _, knots in found]),
            public_weights(basis.seed, dim, basis.cosines),
            public_phases(basis.seed, basis.cosines),
            int(np.rint(2.0**SHIFT * TURN / (4 * SIGNS**0.5 * RANK * np.sqrt(float(dim))))),
            cosine_table(grid.scale, grid.bound),
        )

    @property
    def slopes(self) -> Float64[np.ndarray, " h"]:
        """What keeps each hinge within 1."""
        return np.minimum(1.0, 1.0 / (1.0 - self.knots))

    def rows(self, x: Float64[np.ndarray, "n dim"]) -> Int16[np.ndarray, "n features"]:
        """The features of embeddings, as integers on the recipe's grid: hinges, then cosines."""
        x = np.clip(x, -1.0, 1.0)
        bent = np.rint(np.maximum(x[:, self.hinges] - self.knots, 0.0) * self.slopes * self.scale)
        out = np.empty((len(x), len(self.knots) + len(self.phases)), dtype=np.int16)
        out[:, : len(self.knots)] = np.minimum(bent, self.bound)
        out[:, len(self.knots) :] = self.cosines[self.turns(x)]
        return out

    def ranks(self, x: Float64[np.ndarray, "n dim"]) -> Int16[np.ndarray, "n dim"]:
        """The ranks of entries between −1 and 1."""
        out, step = np.rint(RANK * x), max(1, AT_ONCE // max(1, self.starts.size))
        for start in range(0, len(x), step):
            rows = slice(start, start + step)
            share = np.clip((x[rows, self.ranked, None] - self.starts) / self.widths, 0.0, 1.0)
            parts = np.floor(PART * share + 0.5).sum(axis=2)
            out[rows, self.ranked] = np.floor(2.0 * RANK * parts / (PART * self.segments) + 0.5) - RANK
        return out.astype(np.int16)

    def turns(self, x: Float64[np.ndarray, "n dim"]) -> Int64[np.ndarray, "n m"]:
        """The place of each cosine in the table."""
        product = exact_product(self.ranks(x), self.weights, RANK * SIGNS * len(self.weights))
        return np.mod((product.astype(np.int64) * self.factor >> SHIFT) + self.phases, TURN)


def public_weights(seed: int, dim: int, count: int) -> Int[np.ndarray, "dim count"]:
    """Public whole numbers of mean 0 and deviation 4, each the sum of 16 of the signs of `rademacher`.

    >>> public_weights(0, 2, 3).tolist()
    [[0, -4, 0], [-2, -6, -4]]
    """
    signs = rademacher(seed, SIGNS * dim, count, "basis")
    return signs.reshape(SIGNS, dim, count).sum(axis=0, dtype=np.int8)


def public_phases(seed: int, count: int) -> Int64[np.ndarray, " count"]:
    """Public whole numbers below 4096: SHAKE-256 over ``ghofl phases 1|{seed}|{count}``, two bytes each, low byte first."""
    stream = hashlib.shake_256(f"ghofl phases 1|{seed}|{count}".encode("ascii")).digest(2 * count)
    return np.frombuffer(stream, dtype="<u2").astype(np.int64) % TURN


def cosine_table(scale: float, bound: int) -> Int16[np.ndarray, " turn"]:
    """One turn of the cosine in steps of a grid."""
    wave = np.rint(np.cos(2.0 * np.pi * np.arange(TURN) / TURN) * scale)
    return np.clip(wave, -bound, bound).astype(np.int16)
