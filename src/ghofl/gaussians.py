"""The Gaussians that a total describes: means, priors and covariances, in the units of the embedding.

With N = Σ N_c over the C₊ classes that have rows, and q = x/unit the integer features::

    μ_c = A_c / N_c       π_c = N_c / N       Σ_pool = (B − Σ N_c μ_c μ_cᵀ) / (N − C₊)
    Σ_c = (S_c − N_c μ_c μ_cᵀ) / (N_c − 1)    var_c = D_c / N_c − μ_c∘μ_c

Classes with few rows have a meaning, always the same one:

- a class nobody has: prior 0, so its score is −∞ and it is never predicted; its mean is the mean of all rows;
- a class with one row: its mean is that row, and the shared covariance (or variance) stands in for its own;
- fewer rows than dimensions: its covariance is singular as measured, and heads shrink it.

Of a total with noise, the moments are repaired first (`ghofl.privacy.repaired`), and covariances are shrunk by what the
noise in them is known to be: the shared one towards a sphere, those of classes towards the shared one. What a head
shrinks by itself comes on top.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
from jaxtyping import Float, Int64, Num

from ghofl import linalg
from ghofl.errors import EmbeddingsError, MissingStatisticError, PrivacyError
from ghofl.features import Features
from ghofl.moments import Moments
from ghofl.privacy import diagonal_shrinkage, noise_shrinkage, repaired
from ghofl.statistics import triangles
from ghofl.wire.total import Total

ClassCovariance = Callable[[int], Float[np.ndarray, "dim dim"]]
ClassProduct = Callable[[int, Float[np.ndarray, "dim k"]], Float[np.ndarray, "dim k"]]


@dataclass(frozen=True, eq=False)
class Gaussians:
    """One Gaussian a class, as far as the moments tell; heads score with it and synthesis samples from it.

    A field that the moments do not determine is None, and asking for it through a method raises
    `MissingStatisticError` with the recipe that would have it.

    Guarantees
    ----------
    A function of the total alone: how rows were split over sites does not matter. Never NaN or infinite.
    ``==`` says whether two are the same object: class covariances are computed when asked for, and never all compared.

    Examples
    --------
    >>> from ghofl.moments import Layout
    >>> x, y = np.array([[0, 0], [2, 2], [4, 0], [6, 2]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("B",))))
    >>> gaussians.means
    array([[1., 1.], [5., 1.]])
    >>> gaussians.pooled()
    array([[2., 2.], [2., 2.]])
    """

    counts: Float[np.ndarray, " classes"]
    means: Float[np.ndarray, "classes dim"]
    _pooled: Float[np.ndarray, "dim dim"] | None = field(default=None, repr=False)
    _variances: Float[np.ndarray, "classes dim"] | None = field(default=None, repr=False)
    _by_class: ClassCovariance | None = field(default=None, repr=False)
    _along: ClassProduct | None = field(default=None, repr=False)
    _levels: Float[np.ndarray, " classes"] | None = field(default=None, repr=False)

    @classmethod
    def estimate(cls, moments: Moments, unit: float = 1.0) -> "Gaussians":
        """The Gaussians of exact moments whose integer features are worth `unit` each."""
        has = moments.layout.has
        return _estimated(
            _Sums(
                moments.counts.astype(np.float64),
                moments.sums,
                moments.squares if has("D") else None,
                moments.pooled() if has("B") else None,
                moments.by_class if has("S") else None,
                moments.blocks.get("S"),
            ),
            unit,
        )

    @classmethod
    def of_total(cls, total: Total, features: Features) -> "Gaussians":
        """The Gaussians of a total, in the units of the embedding: repaired where it has noise or was rounded."""
        if _is_exact(total):
            return cls.estimate(total.moments, features.unit)
        blocks = repaired(total.moments, features.radius, features.sketch)
        return cls.of_repaired(blocks, features.unit, _deviations(total))

    @classmethod
    def of_sketch(cls, total: Total, features: Features) -> "Gaussians":
        """The Gaussians of the sketch z = Rᵀx of a total."""
        assert features.sketch is not None, "asked for a sketch where the recipe has one"
        sketched = total.moments.of_sketch(features.sketch)
        if _is_exact(total):
            return cls.estimate(sketched, features.unit)
        if "Z" in total.moments.blocks:
            sigma = total.deviation("Z", off_diagonal=True)
        else:  # Z = RᵀSR, whose entry (i, j) has the noise of S times ‖R_i‖ ‖R_j‖
            spread = float(np.square(features.sketch.astype(np.float64)).sum()) / features.sketch.shape[1]
            sigma = total.deviation("S", off_diagonal=True) * spread
        return cls.of_repaired(repaired(sketched), features.unit, {"S": sigma})

    @classmethod
    def of_repaired(
        cls, blocks: Mapping[str, Float[np.ndarray, "..."]], unit: float, noise: Mapping[str, float]
    ) -> "Gaussians":
        """The Gaussians of what `privacy.repaired` gives, shrunk for noise of these deviations.

        `noise` has the deviation of D, and of the off-diagonal entries of B and S, in the units of the blocks.

        Examples
        --------
        >>> blocks = {"N": np.array([2.0, 2.0]), "A": np.array([[2.0, 2.0], [10.0, 2.0]])}
        >>> blocks["B"] = np.array([[56.0, 16.0], [16.0, 8.0]])
        >>> Gaussians.of_repaired(blocks, 1.0, noise={"B": 1.0}).pooled().round(2)
        array([[2.  , 1.7], [1.7, 2.  ]])
        """
        if not blocks["N"].any():
            raise PrivacyError("the noise left no class with a row; heads need a larger epsilon or more rows.")
        by_class = blocks.get("S")
        pooled = blocks["B"] if "B" in blocks else None if by_class is None else by_class.sum(axis=0)
        squares = blocks["D"] if "D" in blocks else None if by_class is None else np.einsum("cii->ci", by_class)
        classes, own = len(blocks["N"]), noise.get("S", 0.0)
        levels = {"D": np.sqrt(2.0) * own, "B": np.sqrt(classes) * own, "S": own} | dict(noise)
        of_class = None if by_class is None else lambda c: by_class[c]
        return _estimated(_Sums(blocks["N"], blocks["A"], squares, pooled, of_class, noise=levels), unit)

    def mapped(self, basis: Float[np.ndarray, "dim k"], dtype: type[np.floating] = np.float64) -> "Gaussians":
        """The Gaussians of z = basisᵀ x. Variances along new directions need S (or, with one for all, B).

        Class covariances are computed in `dtype`, each once, when it is asked for.
        """
        pooled = None if self._pooled is None else basis.T @ self._pooled @ basis
        columns = basis.astype(dtype)
        by_class = None if self._by_class is None else cache(lambda c: columns.T @ self.along(c, columns))
        return Gaussians(self.counts, self.means @ basis, pooled, None, by_class)

    def shifted(self, by: Float[np.ndarray, " dim"]) -> "Gaussians":
        """The Gaussians of x − by."""
        return replace(self, means=self.means - by)

    def diagonal(self) -> "Gaussians":
        """The same Gaussians with independent features: all that D alone can tell."""
        variances = self.variances()
        shared = np.diag(self.pooled_variances())
        by_class, along = (
            lambda c: np.diag(variances[c]),
            lambda c, columns: variances[c, :, None].astype(columns.dtype) * columns,
        )
        return Gaussians(self.counts, self.means, shared, variances, by_class, along, variances.mean(axis=1))

    def shrunk(self, amount: float) -> "Gaussians":
        """The Gaussians with every covariance pulled towards a sphere of the same total variance (`linalg.shrink`)."""
        pooled = None if self._pooled is None else linalg.shrink(self._pooled, amount)
        if self._by_class is None:
            return Gaussians(self.counts, self.means, pooled)
        by_class = lambda c: linalg.shrink(self.by_class(c), amount)  # noqa: E731
        along = lambda c, columns: (1.0 - amount) * self.along(c, columns) + amount * self.level(c) * columns  # noqa: E731
        return Gaussians(self.counts, self.means, pooled, None, by_class, along, self._levels)

    @property
    def has_class_covariances(self) -> bool:
        """Whether every class has a covariance of its own."""
        return self._by_class is not None

    @property
    def has_shared_covariance(self) -> bool:
        """Whether the shared covariance is known."""
        return self._pooled is not None

    @property
    def rows(self) -> float:
        """N: how many rows there are in all."""
        return float(self.counts.sum())

    @property
    def present(self) -> int:
        """C₊: how many classes have rows."""
        return int(np.count_nonzero(self.counts))

    @cached_property
    def log_priors(self) -> Float[np.ndarray, " classes"]:
        """log π_c, −∞ for a class nobody has."""
        with np.errstate(divide="ignore"):
            return np.log(self.counts / self.rows)

    @cached_property
    def centre(self) -> Float[np.ndarray, " dim"]:
        """m: the mean of all rows."""
        return self.counts @ self.means / self.rows

    def pooled(self) -> Float[np.ndarray, "dim dim"]:
        """Σ_pool: the covariance within classes, shared by all of them."""
        return _there(self._pooled, "B", "the shared covariance")

    def between(self) -> Float[np.ndarray, "dim dim"]:
        """Σ π_c (μ_c − m)(μ_c − m)ᵀ: the covariance of the class means."""
        shifted = (self.means - self.centre) * np.sqrt(self.counts / self.rows)[:, None]
        return shifted.T @ shifted

    def total_covariance(self) -> Float[np.ndarray, "dim dim"]:
        """G / N: the covariance of all rows, whatever their class."""
        return self.pooled() * ((self.rows - self.present) / self.rows) + self.between()

    def oas(self) -> float:
        """The shrinkage of Σ_pool that is best for Gaussian rows (see `ghofl.linalg.oas`)."""
        within = self.pooled() * ((self.rows - self.present) / self.rows)
        return linalg.oas(within, self.rows)

    def by_class(self, c: int) -> Float[np.ndarray, "dim dim"]:
        """Σ_c: the covariance of one class."""
        return _there(self._by_class, "S", "class covariances")(c)

    def along(self, c: int, columns: Float[np.ndarray, "dim k"]) -> Float[np.ndarray, "dim k"]:
        """Σ_c times columns, in their precision; of a total without noise, straight from its packed triangles."""
        if self._along is None:
            return self.by_class(c).astype(columns.dtype, copy=False) @ columns
        return self._along(c, columns)

    def level(self, c: int) -> float:
        """tr Σ_c / d: the mean variance of a class's features."""
        return float(np.trace(self.by_class(c)) / len(self.means[c]) if self._levels is None else self._levels[c])

    def variances(self) -> Float[np.ndarray, "classes dim"]:
        """var_c: the variance of every feature in every class."""
        return _there(self._variances, "D", "class variances")

    def pooled_variances(self) -> Float[np.ndarray, " dim"]:
        """The diagonal of Σ_pool, from B or from D, whichever is there."""
        if self._pooled is not None:
            return self._pooled.diagonal().copy()
        own = np.where(self.counts[:, None] > 1, self.variances(), 0.0)
        return self.counts @ own / max(1.0, self.rows - self.present)


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over rows, as integers or repaired, and the deviation of the noise in D, and off the diagonal of B and S."""

    counts: Float[np.ndarray, " classes"]
    sums: Num[np.ndarray, "classes dim"]
    squares: Num[np.ndarray, "classes dim"] | None
    second: Num[np.ndarray, "dim dim"] | None
    by_class: Callable[[int], Num[np.ndarray, "dim dim"]] | None
    packed: Int64[np.ndarray, "classes triangle"] | None = None
    noise: Mapping[str, float] = field(default_factory=dict)

    def amount(self, covariance: Float[np.ndarray, "dim dim"], rows: float, statistic: str) -> float:
        """How far to shrink a covariance of so many rows, by what the noise in its scatter is known to be."""
        sigma = self.noise.get(statistic, 0.0)
        return noise_shrinkage(sigma / rows, len(covariance), float(np.trace(covariance))) if sigma else 0.0


def _estimated(sums: _Sums, unit: float) -> Gaussians:
    counts = sums.counts
    if not counts.sum() > 0:
        raise EmbeddingsError("the total holds no rows; a head needs at least one site with data.")
    centre = sums.sums.sum(axis=0) / counts.sum()
    means = np.where(counts[:, None] > 0, sums.sums / np.maximum(counts, 1.0)[:, None], centre)
    pooled = None if sums.second is None else _pooled(sums, means) * unit**2
    variances = None if sums.squares is None else _variances(sums, means) * unit**2
    by_class = None if sums.by_class is None else _class_covariances(sums, means, unit, pooled)
    if sums.packed is None or pooled is None or sums.squares is None:
        return Gaussians(counts, means * unit, pooled, variances, by_class)
    levels = _class_levels(sums, means, unit, pooled)
    along = _class_products(sums, means, unit, pooled, levels)
    return Gaussians(counts, means * unit, pooled, variances, by_class, along, levels)


def _pooled(sums: _Sums, means: np.ndarray) -> np.ndarray:
    weighted = means * np.sqrt(sums.counts)[:, None]
    rows = max(1.0, sums.counts.sum() - np.count_nonzero(sums.counts))
    measured = (sums.second - weighted.T @ weighted) / rows
    amount = sums.amount(measured, rows, "B")
    return linalg.shrink(measured, amount) if amount else measured


def _variances(sums: _Sums, means: np.ndarray) -> np.ndarray:
    counts, sigma = sums.counts, sums.noise.get("D", 0.0)
    rows = max(1.0, counts.sum() - np.count_nonzero(counts))
    own = np.maximum(sums.squares / np.maximum(counts, 1.0)[:, None] - means**2, 0.0)
    shared = counts @ np.where(counts[:, None] > 1, own, 0.0) / rows
    if sigma:  # as for matrices: the shared variances towards their mean, those of classes towards the shared ones
        amount = diagonal_shrinkage(np.array([sigma * np.sqrt(np.count_nonzero(counts)) / rows]), shared[None])
        shared = (1.0 - amount) * shared + amount * shared.mean()
        amounts = diagonal_shrinkage(sigma / np.maximum(counts, 1.0), own)[:, None]
        own = (1.0 - amounts) * own + amounts * shared
    return np.where(counts[:, None] > 1, own, shared)


def _class_covariances(sums: _Sums, means: np.ndarray, unit: float, pooled: np.ndarray | None) -> ClassCovariance:
    def covariance(c: int) -> Float[np.ndarray, "dim dim"]:
        assert pooled is not None, "B follows from S"
        n = float(sums.counts[c])
        if n < 2:
            return pooled
        assert sums.by_class is not None
        scatter = sums.by_class(c) - n * np.outer(means[c], means[c])
        measured = scatter * (unit**2 / (n - 1.0))
        # The noise of one class is that of the shared covariance times the square root of the number of classes.
        amount = sums.amount(scatter / (n - 1.0), n - 1.0, "S")
        return (1.0 - amount) * measured + amount * pooled if amount else measured

    return covariance


def _class_products(
    sums: _Sums, means: np.ndarray, unit: float, pooled: np.ndarray, levels: np.ndarray
) -> ClassProduct:
    # S_c − n μ_c μ_cᵀ cancels: float32 keeps its last digits only where no mean is far from zero.
    is_far = np.square(means * unit).max(axis=1) > 1e3 * levels

    def product(c: int, columns: Float[np.ndarray, "dim k"]) -> Float[np.ndarray, "dim k"]:
        assert sums.packed is not None
        n, exact = float(sums.counts[c]), np.float64 if is_far[c] else columns.dtype
        v, mean = columns.astype(exact, copy=False), means[c].astype(exact)
        if n < 2:
            return (pooled @ columns).astype(columns.dtype, copy=False)
        found = triangles.times(sums.packed[c], v)
        found -= np.outer(n * mean, mean @ v)
        found *= unit**2 / (n - 1.0)
        return found.astype(columns.dtype, copy=False)

    return product


def _class_levels(sums: _Sums, means: np.ndarray, unit: float, pooled: np.ndarray) -> np.ndarray:
    assert sums.squares is not None
    counts, dim = sums.counts, means.shape[1]
    own = (sums.squares.sum(axis=1) - counts * np.einsum("cd,cd->c", means, means)) / np.maximum(counts - 1.0, 1.0)
    return np.where(counts > 1, own * unit**2, np.trace(pooled)) / dim


def _is_exact(total: Total) -> bool:
    return total.guarantee is None and not total.recipe.privacy.rounding


def _deviations(total: Total) -> dict[str, float]:
    """The deviation of the noise in the stored second moments: of D, and off the diagonal of B and S."""
    return {name: total.deviation(name, off_diagonal=name != "D") for name in "DBS" if name in total.moments.blocks}


def _there(value, statistic: str, what: str):  # type: ignore[no-untyped-def]
    if value is None:
        raise MissingStatisticError(
            f"{what} need statistic {statistic}, which these moments do not hold; a recipe with "
            f"statistics = ['{statistic}'] has it, and sites must send again."
        )
    return value
