"""One covariance per class, computed on demand: they are never all dense at once.

Each kind gives the covariance of a class as a matrix, its product with columns, and its mean variance.
"""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from ghofl.compute import arrays
from ghofl.gaussians import linalg
from ghofl.privacy import noise_shrinkage
from ghofl.shapes import Float, Int, Int64
from ghofl.statistics import triangles

FAR = 1e3  # the square of a mean over the class's variance from which float32 products lose too many digits


@runtime_checkable
class ClassCovariances(Protocol):
    """Σ_c of every class."""

    def matrix(self, c: int) -> Float[np.ndarray, "dim dim"]:
        """Σ_c itself."""
        ...

    def times(self, c: int, columns: Float[np.ndarray, "dim k"]) -> Float[np.ndarray, "dim k"]:
        """Σ_c times columns, in their precision."""
        return self.matrix(c).astype(columns.dtype, copy=False) @ columns

    def level(self, c: int) -> float:
        """tr Σ_c / d: the mean variance of the features of a class."""
        sigma = self.matrix(c)
        return float(np.trace(sigma) / len(sigma))


@dataclass(frozen=True, eq=False)
class Exact(ClassCovariances):
    """Class covariances of exact moments; products come straight from the packed triangles.

    `means` and `packed` are in units of the grid, `shared` and `levels` in those of the embedding. A class of fewer
    than two rows takes the shared covariance.
    """

    counts: Float[np.ndarray, " classes"]
    means: Float[np.ndarray, "classes dim"]
    packed: Int64[np.ndarray, "classes triangle"]
    unit: float
    shared: Float[np.ndarray, "dim dim"]
    levels: Float[np.ndarray, " classes"]

    def matrix(self, c: int) -> Float[np.ndarray, "dim dim"]:
        n, mean = float(self.counts[c]), self.means[c]
        if n < 2:
            return self.shared
        out = triangles.unpack_triangle(self.packed[c], len(mean), np.dtype(np.float64))
        arrays.evict(self.packed[c])
        out -= n * np.outer(mean, mean)
        out *= self.unit**2 / (n - 1.0)
        return out

    def times(self, c: int, columns: Float[np.ndarray, "dim k"]) -> Float[np.ndarray, "dim k"]:
        n = float(self.counts[c])
        if n < 2:
            return (self.shared @ columns).astype(columns.dtype, copy=False)
        # S_c − n μ_c μ_cᵀ cancels: float32 is precise enough only where no mean is far from zero.
        is_far = np.square(self.means[c] * self.unit).max() > FAR * self.levels[c]
        v = columns.astype(np.float64 if is_far else columns.dtype, copy=False)
        mean = self.means[c].astype(v.dtype)
        found = triangles.times(self.packed[c], v)
        arrays.evict(self.packed[c])
        found -= np.outer(n * mean, mean @ v)
        found *= self.unit**2 / (n - 1.0)
        return found.astype(columns.dtype, copy=False)

    def level(self, c: int) -> float:
        return float(self.levels[c])


@dataclass(frozen=True, eq=False)
class Repaired(ClassCovariances):
    """Class covariances of repaired second moments, shrunk towards the shared one by an amount that follows from the noise.

    `noise` is the standard deviation of the noise in `second` off the diagonal.
    """

    counts: Float[np.ndarray, " classes"]
    means: Float[np.ndarray, "classes dim"]
    second: Float[np.ndarray, "classes dim dim"]
    unit: float
    shared: Float[np.ndarray, "dim dim"]
    noise: float

    def matrix(self, c: int) -> Float[np.ndarray, "dim dim"]:
        n, mean = float(self.counts[c]), self.means[c]
        if n < 2:
            return self.shared
        scatter = self.second[c] - n * np.outer(mean, mean)
        measured = scatter * (self.unit**2 / (n - 1.0))
        # The noise of one class is that of the shared covariance times the square root of the number of classes.
        amount = noise_amount(scatter / (n - 1.0), n - 1.0, self.noise)
        return (1.0 - amount) * measured + amount * self.shared if amount else measured


@dataclass(frozen=True, eq=False)
class Mapped(ClassCovariances):
    """Class covariances of z = basisᵀ x, in the precision of the basis, each computed once."""

    source: ClassCovariances
    basis: Float[np.ndarray, "dim k"]
    found: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    def matrix(self, c: int) -> Float[np.ndarray, "k k"]:
        if c not in self.found:
            self.found[c] = self.basis.T @ self.source.times(c, self.basis)
        return self.found[c]


@dataclass(frozen=True, eq=False)
class Selected(ClassCovariances):
    """Class covariances of some of the features."""

    source: ClassCovariances
    columns: Int[np.ndarray, " k"]

    def matrix(self, c: int) -> Float[np.ndarray, "k k"]:
        return self.source.matrix(c)[np.ix_(self.columns, self.columns)]


@dataclass(frozen=True, eq=False)
class Diagonal(ClassCovariances):
    """Class covariances of independent features."""

    variances: Float[np.ndarray, "classes dim"]

    def matrix(self, c: int) -> Float[np.ndarray, "dim dim"]:
        return np.diag(self.variances[c])

    def times(self, c: int, columns: Float[np.ndarray, "dim k"]) -> Float[np.ndarray, "dim k"]:
        return self.variances[c, :, None].astype(columns.dtype) * columns

    def level(self, c: int) -> float:
        return float(self.variances[c].mean())


@dataclass(frozen=True, eq=False)
class Shrunk(ClassCovariances):
    """Class covariances pulled towards spheres of the same total variance (`linalg.shrink`)."""

    source: ClassCovariances
    amount: float

    def matrix(self, c: int) -> Float[np.ndarray, "dim dim"]:
        return linalg.shrink(self.source.matrix(c), self.amount)

    def times(self, c: int, columns: Float[np.ndarray, "dim k"]) -> Float[np.ndarray, "dim k"]:
        sphere = self.amount * self.source.level(c)
        return (1.0 - self.amount) * self.source.times(c, columns) + sphere * columns

    def level(self, c: int) -> float:
        return self.source.level(c)  # shrinking does not change the trace


@dataclass(frozen=True, eq=False)
class Mixed(ClassCovariances):
    """Class covariances with a share of one other covariance in each."""

    source: ClassCovariances
    other: Float[np.ndarray, "dim dim"]
    weight: float

    def matrix(self, c: int) -> Float[np.ndarray, "dim dim"]:
        return (1.0 - self.weight) * self.source.matrix(c) + self.weight * self.other

    def times(self, c: int, columns: Float[np.ndarray, "dim k"]) -> Float[np.ndarray, "dim k"]:
        other = self.other.astype(columns.dtype, copy=False) @ columns
        return (1.0 - self.weight) * self.source.times(c, columns) + self.weight * other

    def level(self, c: int) -> float:
        other = float(np.trace(self.other) / len(self.other))
        return (1.0 - self.weight) * self.source.level(c) + self.weight * other


def noise_amount(covariance: Float[np.ndarray, "dim dim"], rows: float, noise: float) -> float:
    """How far to shrink a covariance of `rows` rows whose scatter has entries with noise of this standard deviation."""
    return noise_shrinkage(noise / rows, len(covariance), float(np.trace(covariance))) if noise else 0.0
