"""The Gaussians that a total describes: means, priors and covariances, in the units of the embedding."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from ghofl.errors import MissingStatisticError
from ghofl.features import Features
from ghofl.gaussians import linalg
from ghofl.gaussians.covariances import ClassCovariances, Diagonal, Mapped, Selected, Shrunk
from ghofl.gaussians.sums import Sums
from ghofl.moments import Moments
from ghofl.notebook import Printable
from ghofl.recipe import Recipe
from ghofl.shapes import Bool, Float, Int
from ghofl.wire.total import Total

T = TypeVar("T")
FAR = 12.0  # deviations: a column that reaches further has tails that a covariance does not describe


@dataclass(frozen=True, eq=False, repr=False)
class Gaussians(Printable):
    """One Gaussian per class, as far as the moments determine it; heads score with it and synthesis samples from it.

    A field that the moments do not determine is None, and its method raises `MissingStatisticError`, which says what the
    recipe needs. `sketch` describes the same rows through the recipe's public sketch. `smooth` marks the features that class
    covariances describe well (`Sums.smooth`); None stands for all. (`ghofl.gaussians.sums` has the formulas.)

    Guarantees
    ----------
    A function of the total alone: how rows were split over sites does not matter. Never NaN or infinite.
    ``==`` compares identity, because class covariances are computed on demand.

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
    shared: Float[np.ndarray, "dim dim"] | None = field(default=None, repr=False)
    own_variances: Float[np.ndarray, "classes dim"] | None = field(default=None, repr=False)
    covariances: ClassCovariances | None = field(default=None, repr=False)
    sketch: "Sketched | None" = field(default=None, repr=False)
    rows_differ: bool = True
    smooth: Bool[np.ndarray, " dim"] | None = field(default=None, repr=False)

    @classmethod
    def of_sums(
        cls, sums: Sums, sketch: "Sketched | None" = None, smooth: Bool[np.ndarray, " dim"] | None = None
    ) -> "Gaussians":
        """The Gaussians of sums over rows, exact or repaired."""
        known = (sums.shared, sums.variances, sums.covariances)
        return cls(sums.counts, sums.means * sums.unit, *known, sketch, sums.has_spread, smooth)

    @classmethod
    def estimate(
        cls, moments: Moments, unit: float = 1.0, sketch: Int[np.ndarray, "dim k"] | None = None
    ) -> "Gaussians":
        """The Gaussians of exact moments whose integer features are worth `unit` each, and of their sketch."""
        inside = None if sketch is None else Sketched(sketch, lambda: cls.estimate(moments.of_sketch(sketch), unit))
        sums = Sums.of_moments(moments, unit)
        return cls.of_sums(sums, inside, sums.smooth)

    @classmethod
    def of_total(cls, total: Total, features: Features) -> "Gaussians":
        """The Gaussians of a total, in the units of the embedding: repaired where it has noise or was rounded."""
        inside = None
        if features.sketch is not None and total.moments.layout.has("Z"):
            inside = Sketched(features.sketch, lambda: _of_columns(Sums.of_sketch(total, features), total.recipe, None))
        return _of_columns(Sums.of_total(total, features), total.recipe, inside)

    def _facts(self) -> dict[str, object]:
        known = {"shared": self.shared, "variances": self.own_variances, "by class": self.covariances}
        covariances = ", ".join(name for name, value in known.items() if value is not None) or "none"
        size = {"classes": len(self.counts), "features": self.means.shape[1]}
        return {"rows": f"{self.counts.sum():,.0f}", **size, "covariances": covariances}

    def mapped(self, basis: Float[np.ndarray, "dim k"], dtype: type[np.floating] = np.float64) -> "Gaussians":
        """The Gaussians of z = basisᵀ x. Class covariances need S, and the shared one needs B.

        Class covariances are computed in `dtype`, on demand and once each.
        """
        shared = None if self.shared is None else basis.T @ self.shared @ basis
        inside = None if self.covariances is None else Mapped(self.covariances, basis.astype(dtype))
        return replace(
            self,
            means=self.means @ basis,
            shared=shared,
            own_variances=None,
            covariances=inside,
            sketch=None,
            smooth=None,
        )

    def shifted(self, by: Float[np.ndarray, " dim"]) -> "Gaussians":
        """The Gaussians of x − by; their sketch, which knows nothing of it, is left out."""
        return replace(self, means=self.means - by, sketch=None)

    def select(self, columns: Int[np.ndarray, " k"]) -> "Gaussians":
        """The Gaussians of some of the features, without the sketch."""
        if len(columns) == self.means.shape[1]:
            return self
        shared = None if self.shared is None else self.shared[np.ix_(columns, columns)]
        inside = None if self.covariances is None else Selected(self.covariances, columns)
        own = None if self.own_variances is None else self.own_variances[:, columns]
        smooth = None if self.smooth is None else self.smooth[columns]
        return replace(
            self,
            means=self.means[:, columns],
            shared=shared,
            own_variances=own,
            covariances=inside,
            sketch=None,
            smooth=smooth,
        )

    def diagonal(self) -> "Gaussians":
        """The same Gaussians with independent features, which is what D alone determines."""
        variances, shared = self.variances(), np.diag(self.pooled_variances())
        return replace(self, shared=shared, own_variances=variances, covariances=Diagonal(variances), sketch=None)

    def shrunk(self, amount: float) -> "Gaussians":
        """The Gaussians with every covariance pulled towards a sphere of the same total variance (`linalg.shrink`).

        They have no variances per class, and no sketch.
        """
        shared = None if self.shared is None else linalg.shrink(self.shared, amount)
        inside = None if self.covariances is None else Shrunk(self.covariances, amount)
        return replace(self, shared=shared, own_variances=None, covariances=inside, sketch=None)

    @property
    def has_class_covariances(self) -> bool:
        """Whether every class has a covariance of its own."""
        return self.covariances is not None

    @property
    def has_shared_covariance(self) -> bool:
        """Whether the shared covariance is known."""
        return self.shared is not None

    @property
    def has_spread(self) -> bool:
        """Whether rows show how a class varies; otherwise a sphere takes the place of every covariance."""
        return self.rows_differ and self.rows > self.present

    @property
    def rows(self) -> float:
        """N: the number of all rows."""
        return float(self.counts.sum())

    @property
    def present(self) -> int:
        """C₊: the number of classes that have rows."""
        return int(np.count_nonzero(self.counts))

    @cached_property
    def log_priors(self) -> Float[np.ndarray, " classes"]:
        """log π_c, −∞ for a class without rows."""
        with np.errstate(divide="ignore"):
            return np.log(self.counts / self.rows)

    @cached_property
    def centre(self) -> Float[np.ndarray, " dim"]:
        """m: the mean of all rows."""
        return self.counts @ self.means / self.rows

    def pooled(self) -> Float[np.ndarray, "dim dim"]:
        """Σ_pool: the covariance within classes, shared by all of them."""
        return _known(self.shared, "the shared covariance needs statistic B", "statistics = ['B']")

    def between(self) -> Float[np.ndarray, "dim dim"]:
        """Σ π_c (μ_c − m)(μ_c − m)ᵀ: the covariance of the class means."""
        shifted = (self.means - self.centre) * np.sqrt(self.counts / self.rows)[:, None]
        return shifted.T @ shifted

    def total_covariance(self) -> Float[np.ndarray, "dim dim"]:
        """G / N: the covariance of all rows, whatever their class."""
        found = self.between()
        found += self.pooled() * ((self.rows - self.present) / self.rows)
        return found

    @cached_property
    def oas(self) -> float:
        """The shrinkage of Σ_pool that is best for Gaussian rows (see `ghofl.gaussians.linalg.oas`)."""
        return linalg.oas(self.pooled() * ((self.rows - self.present) / self.rows), self.rows)

    def factor(self, amount: float) -> Float[np.ndarray, "dim dim"]:
        """The Cholesky factor of shrink(Σ_pool, amount); the last two are kept, as several heads need the same."""
        found = self._factors.pop(amount, None)
        if found is None:
            found = linalg.cholesky(linalg.shrink(self.pooled(), amount), "the shared covariance")
            for oldest in list(self._factors)[:-1]:
                self._factors.pop(oldest, None)
        self._factors[amount] = found
        return found

    @cached_property
    def _factors(self) -> dict[float, Float[np.ndarray, "dim dim"]]:
        return {}

    def keep(self, name: str, make: Callable[[], T]) -> T:
        """What `make` returns, made once per name: calibration and novelty need the same things of a total."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]  # type: ignore[return-value]

    @cached_property
    def _kept(self) -> dict[str, object]:
        return {}

    def ease_shrinkage(self, usual: float) -> float:
        """The usual shrinkage, less where classes have many rows (`linalg.ease_shrinkage`), the same for all of them.

        It depends on the mean rows per class or on ten times the rows of the smallest class, whichever is fewer. One
        amount serves all classes, because different ones would change their determinants without a reason in the data.
        """
        rows = min(self.rows / self.present, 10.0 * float(self.counts[self.counts > 0].min()))
        less = linalg.ease_shrinkage(usual, rows, self.means.shape[1])
        return max(less, self.shared_shrinkage()) if self.fewness and self.has_shared_covariance else less

    @cached_property
    def effective_dim(self) -> float:
        """(tr Σ)²/tr Σ²: about how many directions rows of a class vary in, free of the bias of few rows.

        Of n = N − C₊ degrees of freedom, tr Σ_pool² is too large by about (tr Σ)²/n.
        """
        sigma, degrees = self.pooled(), max(1.0, self.rows - self.present)
        trace, squares = float(np.trace(sigma)), float(np.einsum("ij,ij->", sigma, sigma))
        return min(len(sigma), trace**2 / max(squares - trace**2 / degrees, trace**2 / len(sigma))) if trace else 0.0

    @property
    def fewness(self) -> float:
        """From 1 for no rows to 0 for five rows per dimension and more: max(0, 1 − N/5d).

        A covariance that has few directions is measured well by fewer rows: d counts as ten effective dimensions at most.
        """
        dim = float(self.means.shape[1])
        dim = min(dim, 10.0 * self.effective_dim) if self.has_shared_covariance else dim
        return max(0.0, 1.0 - self.rows / (5.0 * dim)) if dim else 0.0

    def shared_shrinkage(self) -> float:
        """How far LDA shrinks Σ_pool: by OAS, and where rows are few by half of `fewness` at least.

        Chosen on held-out training rows of CIFAR-10, BANKING77 and digits with 2 to 64 rows per class.
        """
        return max(self.oas, 0.5 * self.fewness)

    def by_class(self, c: int) -> Float[np.ndarray, "dim dim"]:
        """Σ_c: the covariance of one class."""
        return self._by_class().matrix(c)

    def along(self, c: int, columns: Float[np.ndarray, "dim k"]) -> Float[np.ndarray, "dim k"]:
        """Σ_c times columns, in their precision; without noise it is computed from the packed triangles."""
        return self._by_class().times(c, columns)

    def level(self, c: int) -> float:
        """tr Σ_c / d: the mean variance of the features of a class."""
        return self._by_class().level(c)

    def finest(self, c: int) -> Float[np.ndarray, "dim dim"]:
        """The covariance of a class: its own where the moments have it, otherwise the shared one."""
        return self.by_class(c) if self.has_class_covariances else self.pooled()

    def variances(self) -> Float[np.ndarray, "classes dim"]:
        """var_c: the variance of every feature in every class."""
        return _known(self.own_variances, "class variances need statistic D", "statistics = ['D']")

    def pooled_variances(self) -> Float[np.ndarray, " dim"]:
        """The diagonal of Σ_pool, from B or from D, whichever is there."""
        if self.shared is not None:
            return self.shared.diagonal().copy()
        if self.rows <= self.present:  # one row per class: all classes have the same variances
            return self.variances()[int(np.argmax(self.counts))].copy()
        own = np.where(self.counts[:, None] > 1, self.variances(), 0.0)
        return self.counts @ own / max(1.0, self.rows - self.present)

    def sketched(self) -> "Sketched":
        """The same rows through the recipe's sketch."""
        return _known(self.sketch, "the view through a sketch needs statistic Z", "a [sketch] section")

    def _by_class(self) -> ClassCovariances:
        return _known(self.covariances, "class covariances need statistic S", "statistics = ['S']")


@dataclass(frozen=True, eq=False)
class Sketched:
    """Rows seen through a public sketch z = Rᵀx: its `matrix` R, and the Gaussians of z, estimated on demand."""

    matrix: Int[np.ndarray, "dim k"]
    estimate: Callable[[], Gaussians] = field(repr=False)

    @cached_property
    def gaussians(self) -> Gaussians:
        """The Gaussians of z."""
        return self.estimate()


def _of_columns(sums: Sums, recipe: Recipe, sketch: Sketched | None) -> Gaussians:
    """The Gaussians of sums, which know what the recipe's table says about its columns."""
    dim, table = sums.means.shape[1], recipe.table
    if (
        table is None
        or dim != recipe.encoder.dim
        or recipe.projection is not None
        or (recipe.lift is not None and sketch is not None)
    ):
        return Gaussians.of_sums(sums, sketch, sums.smooth if table is None else None)
    found = Gaussians.of_sums(sums, sketch)
    return replace(found, smooth=np.array(table.numbers) & ~_reach_far(found))


def _reach_far(gaussians: Gaussians) -> Bool[np.ndarray, " dim"]:
    """Whether a column between −1 and 1 can lie more than `FAR` deviations from its mean."""
    deviation = np.sqrt(np.maximum(gaussians.pooled_variances(), 0.0))
    return 1.0 + np.abs(gaussians.centre) > FAR * deviation


def _known(value: T | None, what: str, recipe: str) -> T:
    if value is None:
        raise MissingStatisticError(
            f"{what}, which these moments do not hold; a recipe with {recipe} has it, and sites must send again."
        )
    return value
