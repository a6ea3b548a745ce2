"""Sums over rows, exact or repaired, and the means, variances and covariances that follow from them.

With N = Σ N_c over the C₊ classes that have rows, and q = x/unit the integer features::

    μ_c = A_c / N_c       π_c = N_c / N       Σ_pool = (B − Σ N_c μ_c μ_cᵀ) / (N − C₊)
    Σ_c = (S_c − N_c μ_c μ_cᵀ) / (N_c − 1)    var_c = D_c / N_c − μ_c∘μ_c

Classes with few rows have a meaning, always the same one:

- a class without rows: prior 0, so its score is −∞ and it is never predicted; its mean is the mean of all rows;
- a class with one row: its mean is that row, and the shared covariance (or variance) stands in for its own;
- no class with two rows that differ: nothing tells how rows of a class vary, and a sphere with the mean variance of all
  rows stands in for every covariance, so that heads compare distances from the means;
- fewer rows than dimensions: its covariance is singular as measured, and heads shrink it.

Of a total with noise, the moments are repaired first (`ghofl.privacy.repair`), and covariances are shrunk by what the
noise in them is known to be: the shared one towards a sphere, those of classes towards the shared one. What a head
shrinks by itself comes on top.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ghofl.errors import EmbeddingsError, PrivacyError
from ghofl.features import Features
from ghofl.gaussians import linalg
from ghofl.gaussians.covariances import ClassCovariances, Diagonal, Exact, Repaired, noise_amount
from ghofl.moments import Moments
from ghofl.privacy import diagonal_shrinkage, repair
from ghofl.shapes import Bool, Float, Int64, Num
from ghofl.wire.total import Total

ROUNDING = 1e-12  # of the sum of squares: less than that within classes is rounding


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of rows whose features are worth `unit` each; results are in the units of the embedding.

    Second moments per class are `packed` integers where they are exact, and `dense` where they were repaired. `noise`
    is the deviation of the noise in D, and off the diagonal in B and S.
    """

    counts: Float[np.ndarray, " classes"]
    sums: Num[np.ndarray, "classes dim"]
    squares: Num[np.ndarray, "classes dim"] | None = None
    second: Num[np.ndarray, "dim dim"] | None = None
    packed: Int64[np.ndarray, "classes triangle"] | None = None
    dense: Float[np.ndarray, "classes dim dim"] | None = None
    unit: float = 1.0
    noise: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.counts.sum() > 0:
            raise EmbeddingsError(
                f"the total holds no rows of its {len(self.counts)} classes; a head needs at least one site with data."
            )

    @classmethod
    def of_moments(cls, moments: Moments, unit: float = 1.0) -> "Sums":
        """The sums in exact moments."""
        has = moments.layout.has
        return cls(
            moments.counts.astype(np.float64),
            moments.sums,
            moments.squares if has("D") else None,
            moments.pooled() if has("B") else None,
            moments.blocks.get("S"),
            unit=unit,
        )

    @classmethod
    def of_repaired(
        cls, blocks: Mapping[str, Float[np.ndarray, "..."]], unit: float, noise: Mapping[str, float]
    ) -> "Sums":
        """The sums that `privacy.repair` gives, with noise of these deviations in the units of the blocks.

        >>> blocks = {"N": np.array([2.0, 2.0]), "A": np.array([[2.0, 2.0], [10.0, 2.0]])}
        >>> blocks["B"] = np.array([[56.0, 16.0], [16.0, 8.0]])
        >>> Sums.of_repaired(blocks, 1.0, noise={"B": 1.0}).shared.round(2)
        array([[2.  , 1.7], [1.7, 2.  ]])
        """
        if not blocks["N"].any():
            raise PrivacyError(
                f"the noise left none of {len(blocks['N'])} classes a row; heads need a larger epsilon or more rows."
            )
        dense, own = blocks.get("S"), noise.get("S", 0.0)
        second = blocks["B"] if "B" in blocks else None if dense is None else dense.sum(axis=0)
        squares = blocks["D"] if "D" in blocks else None if dense is None else np.einsum("cii->ci", dense)
        derived = {"D": np.sqrt(2.0) * own, "B": np.sqrt(len(blocks["N"])) * own, "S": own}
        return cls(blocks["N"], blocks["A"], squares, second, None, dense, unit, derived | dict(noise))

    @classmethod
    def of_total(cls, total: Total, features: Features) -> "Sums":
        """The sums of a total: repaired where it has noise or was rounded."""
        if _is_exact(total):
            return cls.of_moments(total.moments, features.unit)
        stored = (name for name in "DBS" if name in total.moments.blocks)
        noise = {name: total.deviation(name, off_diagonal=name != "D") for name in stored}
        return cls.of_repaired(repair(total.moments, features.radius, features.sketch), features.unit, noise)

    @classmethod
    def of_sketch(cls, total: Total, features: Features) -> "Sums":
        """The sums of the sketch z = Rᵀx of the rows in a total."""
        assert features.sketch is not None, "asked for a sketch where the recipe has one"
        sketched = total.moments.of_sketch(features.sketch)
        if _is_exact(total):
            return cls.of_moments(sketched, features.unit)
        if "Z" in total.moments.blocks:
            noise = total.deviation("Z", off_diagonal=True)
        else:  # Z = RᵀSR, whose entry (i, j) has the noise of S times ‖R_i‖ ‖R_j‖
            spread = float(np.square(features.sketch.astype(np.float64)).sum()) / features.sketch.shape[1]
            noise = total.deviation("S", off_diagonal=True) * spread
        return cls.of_repaired(repair(sketched), features.unit, {"S": noise})

    @cached_property
    def means(self) -> Float[np.ndarray, "classes dim"]:
        """μ_c in units of the grid."""
        counts, centre = self.counts[:, None], self.sums.sum(axis=0) / self.counts.sum()
        return np.where(counts > 0, self.sums / np.maximum(counts, 1.0), centre)

    @cached_property
    def shared(self) -> Float[np.ndarray, "dim dim"] | None:
        """Σ_pool, where B is there."""
        if self.second is None:
            return None
        if not self.has_spread:
            level = self._level_of_all(float(np.trace(self.second)))
            return level * self.unit**2 * np.eye(self.means.shape[1])
        weighted = self.means * np.sqrt(self.counts)[:, None]
        measured = (self.second - weighted.T @ weighted) / self._degrees
        amount = noise_amount(measured, self._degrees, self.noise.get("B", 0.0))
        return (linalg.shrink(measured, amount) if amount else measured) * self.unit**2

    @cached_property
    def variances(self) -> Float[np.ndarray, "classes dim"] | None:
        """var_c, where D is there."""
        if self.squares is None:
            return None
        if not self.has_spread:
            return np.full(self.means.shape, self._level_of_all(float(self.squares.sum())) * self.unit**2)
        counts, noise = self.counts[:, None], self.noise.get("D", 0.0)
        own = np.maximum(self.squares / np.maximum(counts, 1.0) - self.means**2, 0.0)
        shared = self.counts @ np.where(counts > 1, own, 0.0) / self._degrees
        if noise:  # as for matrices: the shared variances towards their mean, those of classes towards the shared ones
            present = np.count_nonzero(self.counts)
            amount = diagonal_shrinkage(np.array([noise * np.sqrt(present) / self._degrees]), shared[None])
            shared = (1.0 - amount) * shared + amount * shared.mean()
            amounts = diagonal_shrinkage(noise / np.maximum(self.counts, 1.0), own)[:, None]
            own = (1.0 - amounts) * own + amounts * shared
        return np.where(counts > 1, own, shared) * self.unit**2

    @cached_property
    def covariances(self) -> ClassCovariances | None:
        """Σ_c of every class, where S is there."""
        if self.variances is not None and not self.has_spread and (self.dense is not None or self.packed is not None):
            return Diagonal(self.variances)
        if self.dense is not None:
            assert self.shared is not None, "B follows from S"
            noise = self.noise.get("S", 0.0)
            return Repaired(self.counts, self.means, self.dense, self.unit, self.shared, noise)
        if self.packed is not None:
            assert self.shared is not None, "B follows from S"
            return Exact(self.counts, self.means, self.packed, self.unit, self.shared, self._levels())
        return None

    @cached_property
    def has_spread(self) -> bool:
        """Whether some class has two rows that differ, as far as the sums tell."""
        known = self.squares if self.second is None else self.second.diagonal()
        if known is None:
            return False
        squares = float(known.sum())
        within = squares - float(self.counts @ np.einsum("cd,cd->c", self.means, self.means))
        return bool(self.counts.sum() > np.count_nonzero(self.counts)) and within > ROUNDING * squares

    @cached_property
    def smooth(self) -> Bool[np.ndarray, " dim"] | None:
        """Features that take more than the two values 0 and β, or −β and β, as far as exact sums tell; None without D.

        Of two-valued rows D_c = β A_c or D_c = β² N_c for every class c.
        """
        if self.squares is None or np.count_nonzero(self.counts) < 2:
            return None
        squares, sums, counts = self.squares.astype(np.float64), self.sums.astype(np.float64), self.counts[:, None]
        is_two = np.zeros(squares.shape[1], dtype=bool)
        for other in (sums, np.broadcast_to(counts, squares.shape)):
            one, all_ = squares * other.sum(axis=0), other * squares.sum(axis=0)
            is_two |= (np.abs(one - all_) <= ROUNDING * np.abs(one)).all(axis=0)
        return ~is_two

    def _level_of_all(self, squares: float) -> float:
        """The mean variance of the features of all rows, whatever their class, from the sum of all squares."""
        rows, centre = float(self.counts.sum()), self.sums.sum(axis=0) / self.counts.sum()
        return max(squares - rows * float(centre @ centre), 0.0) / (max(rows - 1.0, 1.0) * self.means.shape[1])

    @property
    def _degrees(self) -> float:
        return max(1.0, self.counts.sum() - np.count_nonzero(self.counts))

    def _levels(self) -> Float[np.ndarray, " classes"]:
        """tr Σ_c / d without the matrices."""
        assert self.squares is not None, "D follows from S"
        assert self.shared is not None, "B follows from S"
        scatter = self.squares.sum(axis=1) - self.counts * np.einsum("cd,cd->c", self.means, self.means)
        own = np.maximum(scatter, 0.0) / np.maximum(self.counts - 1.0, 1.0) * self.unit**2
        return np.where(self.counts > 1, own, np.trace(self.shared)) / self.means.shape[1]


def _is_exact(total: Total) -> bool:
    return total.guarantee is None and not total.recipe.privacy.rounding
