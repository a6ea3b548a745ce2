"""Rows that are none of the classes: how far a row lies from every class, against how far from all rows.

The relative Mahalanobis distance (Ren et al. 2021) of a row is::

    r(x) = min over c of (x−μ_c)ᵀ Σ⁻¹ (x−μ_c)  −  (x−m)ᵀ T⁻¹ (x−m)
         = (x−m)ᵀ M (x−m) + min over c of [ (μ_c−m)·w_c − 2 w_c·(x−m) ]      M = Σ⁻¹ − T⁻¹      w_c = Σ⁻¹(μ_c−m)

with Σ the shared covariance and T that of all rows, both shrunk as LDA shrinks the first. A head keeps the triangle of M.
In more than 2,048 dimensions T is the shrunk Σ and the covariance of the class means, so that M = V Vᵀ has no more
columns than there are classes; it costs about a hundredth of the area under the curve.

How far rows of the classes lie is told by draws, where no site has counted its own. Rows that were not in the total lie
further from its means than those that were, so draws come from a guess at the Gaussians behind the total, and are scored
by the distance of as many rows redrawn from that guess (`gaussians.predictive`). Rows of networks have heavier tails than
Gaussian ones, so draws are those of a Student with ν = 20, around the covariance of their class where the total has it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy

from ghofl.errors import HeadError, MissingStatisticError, NotPositiveDefiniteError
from ghofl.gaussians import Draws, Gaussians, draw, linalg
from ghofl.gaussians.covariances import ClassCovariances
from ghofl.gaussians.predictive import denoise, resample
from ghofl.moments import Layout
from ghofl.shapes import Float, Float32
from ghofl.statistics import triangles

PREFIX = "novelty."
LEVELS = 500  # quantiles of the distance of rows that are of the classes
DRAWS = 4000
# ν of the draws: the least largest error on held-out training rows of twelve sets and five kinds of features.
DOF = 20.0
CLASSES = 32  # whose covariances stand for those of all
REDRAWN = 1024  # dimensions by which the number of redrawn totals is told: in few, one differs from the next
MOST = 16  # redrawn totals, more of which change little in few dimensions
PROBES = 64  # random rows on which a trace is estimated
LARGEST = 2048  # dimensions up to which M is a triangle, and totals are redrawn
FIELDS = ("triangle", "basis", "centre", "weights", "offsets", "levels")


@dataclass(frozen=True, eq=False)
class Novelty:
    """The distance of rows from all classes, and how far rows of the classes lie: `levels`, quantiles in rising order.

    `measured` says whether the levels come from rows at sites; otherwise they come from draws, and the share of real
    rows that is rejected was seen between a third and three and a half times what was asked for, with few rows less.

    Guarantees
    ----------
    From counts, sums and B (or D) alone, the same for every head of a total; with S the levels follow class covariances.

    Examples
    --------
    >>> gaussians = Gaussians(np.array([50.0, 50.0]), np.array([[0.0, 0.0], [9.0, 0.0]]), np.eye(2))
    >>> novelty = Novelty.of(gaussians)
    >>> near, between = novelty.scores(np.array([[0.0, 1.0], [4.5, 0.0]]))
    >>> bool(near < novelty.threshold(0.05) < between)
    True
    """

    triangle: Float32[np.ndarray, " triangle"] = field(repr=False)  # of M, empty where there is V
    basis: Float32[np.ndarray, "dim k"] = field(repr=False)  # V, without columns where there is M
    centre: Float32[np.ndarray, " dim"] = field(repr=False)
    weights: Float32[np.ndarray, "present dim"] = field(repr=False)
    offsets: Float32[np.ndarray, " present"] = field(repr=False)
    levels: Float[np.ndarray, " levels"] = field(repr=False)
    measured: bool = False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Novelty):
            return NotImplemented
        mine, theirs = self.arrays(), other.arrays()
        return self.measured == other.measured and all(np.array_equal(a, theirs[name]) for name, a in mine.items())

    __hash__ = None  # type: ignore[assignment]  # arrays inside

    @classmethod
    def of(cls, gaussians: Gaussians) -> "Novelty":
        """The distance that these Gaussians define; `HeadError` where they do not tell how rows of two classes vary."""
        if gaussians.present < 2 or not gaussians.has_spread:
            raise HeadError(_UNKNOWN)
        known = gaussians if gaussians.has_shared_covariance else gaussians.diagonal()
        try:
            lower = known.factor(known.shared_shrinkage())
            apart = known.means[known.counts > 0] - known.centre
            weights = scipy.linalg.cho_solve((lower, True), apart.T, check_finite=False).T
            triangle, basis = np.zeros(0), np.zeros((len(lower), 0))
            if len(lower) <= LARGEST:
                triangle = triangles.pack_triangle(_difference(known, lower))
            else:
                basis = _fisher_difference(known, lower)
            arrays = (triangle, basis, known.centre, weights, np.einsum("cd,cd->c", apart, weights))
            made = cls(*(a.astype(np.float32) for a in arrays), levels=np.zeros(1))
            distances = _of_new_rows(made, known)
        except NotPositiveDefiniteError:
            raise HeadError(_UNKNOWN) from None
        return replace(made, levels=np.quantile(distances, (np.arange(LEVELS) + 0.5) / LEVELS))

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """The relative Mahalanobis distance of every row: the larger, the less it is of any class."""
        away = x - self.centre
        nearest = (self.offsets - 2.0 * (away @ self.weights.T.astype(away.dtype))).min(axis=1)
        if self.basis.shape[1]:
            inside = away @ self.basis.astype(away.dtype)
            return np.einsum("nk,nk->n", inside, inside) + nearest
        return np.einsum("nd,nd->n", away @ self.matrix.astype(away.dtype), away) + nearest

    @cached_property
    def matrix(self) -> Float32[np.ndarray, "dim dim"]:
        """M, from its triangle."""
        return triangles.unpack_triangle(self.triangle, len(self.centre))

    def threshold(self, rate: float) -> float:
        """The distance that this share of the rows of the classes exceeds."""
        return threshold_of(self.levels, rate)

    def measured_by(self, levels: Float[np.ndarray, " levels"]) -> "Novelty":
        """The same distance, with quantiles of real rows."""
        return replace(self, levels=levels, measured=True)

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays for a head file."""
        found = {PREFIX + name: np.ascontiguousarray(getattr(self, name)) for name in FIELDS}
        return found | {PREFIX + "measured": np.array([self.measured], dtype=np.int8)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], dim: int) -> "Novelty | None":
        """The novelty in the arrays of a head file, where there is one; `HeadError` where it is damaged."""
        own = {name.removeprefix(PREFIX): a for name, a in arrays.items() if name.startswith(PREFIX)}
        if not own:
            return None
        if set(own) != {*FIELDS, "measured"}:
            raise HeadError(f"its novelty holds {sorted(own)}")
        odd = [name for name, a in own.items() if a.dtype.kind not in "fi" or not np.isfinite(a).all()]
        if odd:
            raise HeadError(f"its novelty holds something other than finite numbers in {', '.join(odd)}")
        k, present, levels = own["basis"].size // dim, own["offsets"].size, own["levels"].size
        shapes = {"basis": (dim, k), "centre": (dim,), "weights": (present, dim)}
        shapes |= {"triangle": (0 if k else triangles.triangle_size(dim),)}
        shapes |= {"offsets": (present,), "levels": (levels,)}
        wrong = [name for name, shape in shapes.items() if own[name].shape != shape]
        if wrong or not levels or not present or own["measured"].shape != (1,) or (np.diff(own["levels"]) < 0).any():
            raise HeadError(f"its novelty has the wrong shape: {', '.join(wrong) or 'levels'}")
        singles = {name: own[name].astype(np.float32) for name in FIELDS[:-1]}
        return cls(**singles, levels=own["levels"].astype(np.float64), measured=bool(own["measured"][0]))


_UNKNOWN = (
    "novelty was asked for, and this total does not tell how rows of two classes vary, as when each has one row, or the same row "
    "again and again; leave novelty out, or add sites with more rows."
)


def check_novelty(layout: Layout) -> None:
    """Raise `MissingStatisticError` unless totals of this layout tell how rows vary."""
    if not (layout.has("B") or layout.has("D")):
        raise MissingStatisticError(
            f"novelty needs statistics = ['B'] or ['D'] in the recipe, and this total holds {', '.join(layout.shapes)}; leave "
            "novelty out, or let sites send again."
        )


def threshold_of(levels: Float[np.ndarray, " levels"], rate: float) -> float:
    """The distance that this share exceeds, by quantiles in rising order."""
    finest = 0.5 / len(levels)
    if not finest <= rate <= 1.0 - finest:
        raise HeadError(
            f"the share of rows to turn away is {rate:g}; by the {len(levels):,} distances that this head knows, it lies between "
            f"{finest:g} and {1.0 - finest:g}, e.g. 0.05."
        )
    return float(np.interp(1.0 - rate, (np.arange(len(levels)) + 0.5) / len(levels), levels))


def _of_new_rows(made: Novelty, known: Gaussians) -> Float[np.ndarray, " n"]:
    """The distances of rows that are not in the total, as far as it tells."""
    rng, is_redrawn = np.random.default_rng(0), known.means.shape[1] <= LARGEST
    truth = denoise(known) if is_redrawn else known
    try:
        rows = _draws(truth, rng, known.covariances)
    except NotPositiveDefiniteError:  # a class whose rows are all the same, or noise
        if not known.has_class_covariances:
            raise
        rows = _draws(truth, rng)
    x, centres = rows.z, truth.means.astype(np.float32)[rows.y]
    stretch = (DOF - 2.0) / rng.chisquare(DOF, len(x))  # a Student's, of the same covariance
    stretch *= 1.0 if is_redrawn else _widening(known, rng)[rows.y]
    x -= centres
    x *= np.sqrt(stretch).astype(np.float32)[:, None]
    x += centres
    if not is_redrawn:
        return made.scores(x)
    parts = np.array_split(x, min(max(REDRAWN // x.shape[1], 1), MOST, len(x)))
    return np.concatenate([_distances(resample(truth, rng), part) for part in parts])


def _draws(truth: Gaussians, rng: np.random.Generator, covariances: ClassCovariances | None = None) -> Draws:
    """Rows of all classes with one covariance, or of some of them with their own."""
    chosen = rng.permutation(np.flatnonzero(truth.counts))[: None if covariances is None else CLASSES]
    counts = np.where(np.isin(np.arange(len(truth.counts)), chosen), truth.counts, 0.0)
    drawn_from = Gaussians(counts, truth.means, truth.shared, None, covariances)
    return draw(drawn_from, max(1, DRAWS // len(chosen)), rng, 1.0, 0.01, by_prior=True)


def _distances(known: Gaussians, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
    """`Novelty.scores` by the formula as it is written: quicker where rows are scored only once, in their precision."""
    amount, away = known.shared_shrinkage(), x - known.centre.astype(x.dtype)
    total = linalg.cholesky(linalg.shrink(known.total_covariance(), amount), "the covariance of all rows")
    means = (known.means[known.counts > 0] - known.centre).astype(x.dtype)
    lower, total = known.factor(amount).astype(x.dtype), total.astype(x.dtype)
    pairs = ((lower, away), (lower, means), (total, away))
    near, means, far = (scipy.linalg.solve_triangular(a, b.T, lower=True, check_finite=False) for a, b in pairs)
    nearest = (np.square(means).sum(axis=0) - 2.0 * near.T @ means).min(axis=1)
    return np.square(near).sum(axis=0) + nearest - np.square(far).sum(axis=0)


def _widening(known: Gaussians, rng: np.random.Generator) -> Float[np.ndarray, " classes"]:
    """How much larger the squared distance of a row is that is not in the total: (1 + 1/N_c) / (1 − t/n).

    n = N − C₊, and t = (1−a) tr(Σ Σ̃⁻¹) = d − a (tr Σ/d) tr Σ̃⁻¹ is how many dimensions Σ̃ = shrink(Σ, a) follows; the last
    trace is estimated on random rows.
    """
    amount, dim = known.shared_shrinkage(), known.means.shape[1]
    lower, probes = known.factor(amount), rng.standard_normal((dim, PROBES))
    white = scipy.linalg.solve_triangular(lower, probes, lower=True, check_finite=False)
    followed = dim - amount * float(np.trace(known.pooled())) / dim * float(np.square(white).sum()) / PROBES
    share = min(max(followed / (known.rows - known.present), 0.0), 0.9)
    return (1.0 + 1.0 / np.maximum(known.counts, 1.0)) / (1.0 - share)


def _difference(known: Gaussians, lower: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """M = Σ⁻¹ − T⁻¹ with both covariances shrunk by the same amount; directions in which T is the smaller count 0."""
    total = linalg.shrink(known.total_covariance(), known.shared_shrinkage())
    found = linalg.inverse(lower) - linalg.inverse(linalg.cholesky(total, "the covariance of all rows"))
    values, vectors = scipy.linalg.eigh(found, lower=False)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return root @ root.T


def _fisher_difference(known: Gaussians, lower: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim k"]:
    """V of Σ⁻¹ − T⁻¹ for T = Σ + Σ_c π_c (μ_c−m)(μ_c−m)ᵀ, which has the Fisher directions only."""
    shares = np.sqrt(known.counts / known.rows)
    apart = ((known.means - known.centre) * shares[:, None]).T
    u, s, _ = np.linalg.svd(scipy.linalg.solve_triangular(lower, apart, lower=True, check_finite=False), False)
    kept = s > 1e-9 * s.max()
    columns = scipy.linalg.solve_triangular(lower, u[:, kept], lower=True, trans=1, check_finite=False)
    return columns * np.sqrt(s[kept] ** 2 / (1.0 + s[kept] ** 2))
