"""Heads with one full covariance per class, and how to score them quickly.

The quadratic form (x − μ)ᵀ Σ⁻¹ (x − μ) is the squared length of (x − μ)ᵀ W with W = L⁻ᵀ upper triangular, so a class
is one matrix product over all rows instead of one solve per row; panels of columns leave out the zeros of the triangle.
(BLAS can multiply triangles as such, but SciPy lets no other thread run meanwhile.)
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ghofl.errors import HeadError
from ghofl.gaussians import Gaussians, linalg
from ghofl.heads.base import Head
from ghofl.heads.options import HeadOptions, option
from ghofl.shapes import Bool, Float, Float32
from ghofl.statistics import arrays
from ghofl.workers import each

OWN, BLENDED = 0.1, 0.05  # the usual shrinkage of class covariances, alone and blended with the shared one
ROWS, PANEL = 2048, 256  # of one product
MANY, WIDE = 64, 256  # rows and dimensions from which float32 gains more than rounding the matrices costs
SEVERAL = 8  # classes, of which each row is near to one at least
NEAR = 20.0  # log odds: before calibration, the probability of a class that far below is under 10⁻⁸
SMALL = 1 / 16  # of its distance from the highest: rounding that a score far below may have


@dataclass(frozen=True)
class QDAOptions(HeadOptions, head="qda"):
    """How far class covariances are shrunk."""

    shrinkage: float | None = option(
        None, "a, the pull towards a sphere", between=(0, 1), auto="0.1, less where rows abound", paper=0.1
    )


@dataclass(frozen=True)
class RDAOptions(HeadOptions, head="rda"):
    """How class covariances are blended with the shared one, and shrunk."""

    blend: float | None = option(
        None, "λ, the share of the shared covariance", between=(0, 1), auto="from the dimension and the rows per class"
    )
    shrinkage: float | None = option(
        None, "γ, the pull towards a sphere", between=(0, 1), auto="0.05, less where rows abound"
    )


@dataclass(frozen=True)
class StudentOptions(HeadOptions, head="student"):
    """The options of RDA, and how heavy the tails are."""

    blend: float | None = option(
        None, "λ, the share of the shared covariance", between=(0, 1), auto="as for rda, a little less"
    )
    shrinkage: float | None = option(
        None, "γ, the pull towards a sphere", between=(0, 1), auto="0.05, less where rows abound"
    )
    dof: float = option(100.0, "ν, the degrees of freedom", above=0)


@dataclass(frozen=True, eq=False, repr=False)
class QDA(Head):
    """Quadratic head: every class has its own covariance.

    ::

        s_c(x) = log π_c − ½ log|Σ̃_c| − ½ (x − μ_c)ᵀ Σ̃_c⁻¹ (x − μ_c)      Σ̃_c = shrink(Σ_c, a)

    (Hastie, Tibshirani & Friedman 2009, eq. 4.12.)

    Guarantees
    ----------
    A class with one row takes the shared covariance. With a > 0, classes with fewer rows than dimensions work.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("S",))))
    >>> QDA.fit(gaussians).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """

    name = "qda"
    needs = (("S",),)
    Options = QDAOptions
    means: Float[np.ndarray, "classes dim"]
    whiteners: Float[np.ndarray, "classes dim dim"]
    offsets: Float[np.ndarray, " classes"]

    @classmethod
    def fit(cls, gaussians: Gaussians, options: QDAOptions = QDAOptions()) -> "QDA":
        """The head of shrunk class covariances."""
        a = gaussians.ease_shrinkage(OWN) if options.shrinkage is None else options.shrinkage
        return cls(gaussians.means, *whiteners_of(gaussians, lambda c: linalg.shrink(gaussians.by_class(c), a)))

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """Log posteriors up to a term common to all classes."""
        return quadratic_scores(x, self.means, self.whiteners, self.offsets)


@dataclass(frozen=True, eq=False, repr=False)
class RDA(Head):
    """Regularised discriminant analysis: class covariances blended with the shared one, then shrunk.

    ::

        Σ_c(λ, γ) = shrink((1 − λ) Σ_c + λ Σ_pool, γ)

    (Friedman 1989.) λ = 0 is `QDA` and λ = 1 is `LDA`, both with shrinkage γ.

    Guarantees
    ----------
    Needs the message of `QDA`. Without a given `blend`, λ follows from the dimension and the rows per class.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("S",))))
    >>> RDA.fit(gaussians, RDAOptions(blend=0.5)).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """

    name = "rda"
    needs = (("S",),)
    Options = RDAOptions
    means: Float[np.ndarray, "classes dim"]
    whiteners: Float[np.ndarray, "classes dim dim"]
    offsets: Float[np.ndarray, " classes"]

    @classmethod
    def fit(cls, gaussians: Gaussians, options: RDAOptions = RDAOptions()) -> "RDA":
        """The head of blended covariances."""
        blend = default_blend(gaussians) if options.blend is None else options.blend
        return cls(gaussians.means, *whiteners_of(gaussians, blend_covariances(gaussians, blend, options.shrinkage)))

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """Log posteriors up to a term common to all classes."""
        return quadratic_scores(x, self.means, self.whiteners, self.offsets)


@dataclass(frozen=True, eq=False, repr=False)
class Student(Head):
    """RDA with heavy tails: a multivariate Student t per class instead of a Gaussian.

    ::

        s_c(x) = log π_c − ½ log|Σ_c(λ, γ)| − ½ (ν + d) log(1 + m_c/ν)      m_c = (x − μ_c)ᵀ Σ_c(λ, γ)⁻¹ (x − μ_c)

    Embeddings lie further from their class mean than Gaussian rows do; the logarithm keeps one extreme feature
    from deciding. ν → ∞ is `RDA`.

    Guarantees
    ----------
    Needs the message of `QDA`. Without a given `blend`, λ is that of `RDA`, a little less shared.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("S",))))
    >>> Student.fit(gaussians).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """

    name = "student"
    needs = (("S",),)
    Options = StudentOptions
    means: Float[np.ndarray, "classes dim"]
    whiteners: Float[np.ndarray, "classes dim dim"]
    offsets: Float[np.ndarray, " classes"]
    dof: Float[np.ndarray, ""]

    def __post_init__(self) -> None:
        if not 0 < self.dof < np.inf:
            raise HeadError(f"dof is {self.dof}; give a positive finite number, e.g. 100.")

    @classmethod
    def fit(cls, gaussians: Gaussians, options: StudentOptions = StudentOptions()) -> "Student":
        """The head of blended covariances with heavy tails."""
        # With heavy tails, class covariances can have more weight; chosen as the constants of `default_blend` were.
        usual = max(0.0, 1.0 - 1.75 * (1.0 - default_blend(gaussians)))
        covariance = blend_covariances(gaussians, usual if options.blend is None else options.blend, options.shrinkage)
        return cls(gaussians.means, *whiteners_of(gaussians, covariance), np.asarray(float(options.dof)))

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """Log posteriors up to a term common to all classes."""
        return quadratic_scores(x, self.means, self.whiteners, self.offsets, float(self.dof))

    def scores_for_temperature(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """The scores of its Gaussian limit: wide draws lie in the heavy tails, where the head is never certain."""
        return replace(self, dof=np.asarray(1e9)).scores(x)


def default_blend(gaussians: Gaussians) -> float:
    """λ from the dimension d and the rows per class n::

        λ = 1 − 128/(d + 128) · n/(n + 150)

    Real embeddings are not Gaussian, and a class covariance is less reliable the more dimensions it has and the
    fewer rows it comes from. The two constants were chosen on held-out training rows of CIFAR-10 and CIFAR-100 over
    d = 64 … 1280 and n = 90 … 4500; within a point of the best λ in each of those sixteen settings.
    """
    n = gaussians.rows / gaussians.present
    return 1.0 - 128.0 / (gaussians.means.shape[1] + 128.0) * n / (n + 150.0)


def blend_covariances(
    gaussians: Gaussians, blend: float, shrinkage: float | None
) -> Callable[[int], Float[np.ndarray, "dim dim"]]:
    """The class covariances Σ_c(λ, γ) of `RDA`."""
    pooled, amount = gaussians.pooled(), gaussians.ease_shrinkage(BLENDED) if shrinkage is None else shrinkage
    return lambda c: linalg.shrink((1.0 - blend) * gaussians.by_class(c) + blend * pooled, amount)


def whiteners_of(
    gaussians: Gaussians, covariance: Callable[[int], Float[np.ndarray, "dim dim"]]
) -> tuple[Float[np.ndarray, "classes dim dim"], Float[np.ndarray, " classes"]]:
    """W_c and log π_c − ½ log|Σ_c| for every class; a class nobody has gets W = 0 and −∞."""
    classes, dim = gaussians.means.shape
    whiteners, offsets = arrays.zeros((classes, dim, dim), np.float64), gaussians.log_priors.copy()

    def fill(c: int) -> None:
        whiteners[c], log_determinant = linalg.whitener(covariance(c), f"the covariance of class {c}")
        offsets[c] -= 0.5 * log_determinant
        arrays.forget(whiteners[c])

    each(fill, np.flatnonzero(gaussians.counts).tolist())
    return whiteners, offsets


def quadratic_scores(
    x: Float[np.ndarray, "n dim"],
    means: Float[np.ndarray, "classes dim"],
    whiteners: Float[np.ndarray, "classes dim dim"],
    base: Float[np.ndarray, "*n classes"],
    dof: float = np.inf,
) -> Float[np.ndarray, "n classes"]:
    """base + the log density of every row under every class, up to a common term::

        −½ q                          q = ‖(x − μ_c)ᵀ W_c‖²
        −½ (ν + d) log(1 + q/ν)       with ν degrees of freedom

    Many rows of many dimensions are multiplied in float32 first, which takes half the time, and the rounding of each
    score is bounded. What it could change is then computed in float64: all scores that may come within `NEAR` of the
    highest of their row, and those whose bound is not small beside their distance from it.
    """
    out, present = (
        np.full((len(x), len(means)), -np.inf),
        np.flatnonzero(np.atleast_2d(base).max(axis=0, initial=-np.inf) > -np.inf),
    )
    slack, unsettled = np.zeros((0, 0)), None

    def score(c: int, rows: slice | np.ndarray, squared: np.ndarray) -> np.ndarray:
        tails = squared if np.isinf(dof) else (dof + x.shape[1]) * np.log1p(squared / dof)
        return (base[rows, c] if base.ndim == 2 else base[c]) - 0.5 * tails

    def estimate(c: int) -> None:
        upper = whiteners[c].astype(np.float32)
        for rows in _blocks(len(x)):
            squared, error = _rounded_lengths((x[rows] - means[c]).astype(np.float32), upper)
            out[rows, c] = score(c, rows, squared)
            slack[rows, c] = score(c, rows, np.maximum(squared - error, 0.0)) - score(c, rows, squared + error)
        arrays.forget(whiteners[c])

    def settle(c: int) -> None:
        for rows in _blocks(len(x)) if unsettled is None else np.split(*_places(unsettled[:, c])):
            out[rows, c] = score(c, rows, _squared_lengths(x[rows] - means[c], whiteners[c]))
        arrays.forget(whiteners[c])

    if len(x) >= MANY and x.shape[1] >= WIDE and len(present) >= SEVERAL:
        slack = np.zeros_like(out)
        with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold stays unsettled
            each(estimate, present.tolist())
            below = np.max(out - slack, axis=1, keepdims=True) - (out + slack)
            unsettled = ~((below > NEAR) & (slack < SMALL * below))
    each(settle, present.tolist())
    return out


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, count)) for start in range(0, count, ROWS))


def _places(chosen: Bool[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
    """Where rows are chosen, and where to cut the list of them into blocks."""
    places = np.flatnonzero(chosen)
    return places, np.arange(ROWS, len(places), ROWS)


def _squared_lengths(x: Float[np.ndarray, "n dim"], upper: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, " n"]:
    total = np.zeros(len(x))
    for left in range(0, upper.shape[1], PANEL):
        right = min(left + PANEL, upper.shape[1])
        y = x[:, :right] @ upper[:right, left:right]
        total += np.einsum("nk,nk->n", y, y)
    return total


def _rounded_lengths(
    x: Float32[np.ndarray, "n dim"], upper: Float32[np.ndarray, "dim dim"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """‖xᵀ W‖², and how far float32 may have moved it.

    No partial sum of an entry of xᵀ W exceeds ‖x‖ ‖w‖, w its column (Cauchy and Schwarz), and d roundings of at most so
    much each, independent of one another, add up to √d of them; the roundings of x and W themselves come on top.
    """
    longest = np.sqrt(np.einsum("nk,nk->n", x, x)).astype(np.float64) * float(np.linalg.norm(upper))
    off = np.finfo(np.float32).eps / 2 * (np.sqrt(x.shape[1]) + 2.0) * longest
    squared = _squared_lengths(x, upper)
    return squared, off * (2.0 * np.sqrt(squared) + off)
