"""Rules with one covariance per class, and how to score them quickly.

The quadratic form (x − μ)ᵀ Σ⁻¹ (x − μ) is the squared length of (x − μ)ᵀ W with W = L⁻ᵀ upper triangular, so a class
is one matrix product over all rows instead of one solve per row; panels of columns leave out the zeros of the triangle.
(BLAS can multiply triangles as such, but SciPy lets no other thread run meanwhile.)
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ghofl.compute import arrays
from ghofl.compute.threads import parallel_for
from ghofl.errors import HeadError
from ghofl.heads.rules.base import Base, Graph, Rule, add
from ghofl.shapes import Bool, Float, Float32

ROWS, PANEL = 2048, 256  # of one product
MANY, WIDE = 64, 256  # rows and dimensions from which float32 gains more than rounding the matrices costs
SEVERAL = 8  # classes, of which each row is near to one at least
NEAR = 20.0  # log odds: before calibration, the probability of a class that far below is under 10⁻⁸
SMALL = 1 / 16  # of its distance from the highest: rounding that a score far below may have


@dataclass(frozen=True, eq=False, repr=False)
class Quadratic(Rule):
    """A Gaussian with its own covariance per class or, with ν degrees of freedom, a Student t.

    ::

        s_c(x) = b_c − ½ q_c                          q_c = ‖(x − μ_c)ᵀ W_c‖²      W_c W_cᵀ = Σ_c⁻¹, W_c upper triangular
        s_c(x) = b_c − ½ (ν + d) log(1 + q_c/ν)       ν = `dof`; None or 0 for Gaussian tails

    Guarantees
    ----------
    Scores within 20 of the highest of their row are those of float64. Of many rows of many dimensions, those further below
    are float32's, so their last digits depend on the batch: by less than a 10,000th of the distance, which no probability
    shows at any temperature (test_far_scores_of_a_batch_are_those_of_single_rows), unless covariances are so close to
    singular that float32 holds them badly; then by less than a 16th.

    Examples
    --------
    >>> rule = Quadratic(np.array([[0.0], [3.0]]), np.ones((2, 1, 1)), np.zeros(2))
    >>> rule.scores(np.array([[1.0]]))
    array([[-0.5, -2. ]])
    """

    kind = "quadratic"
    means: Float[np.ndarray, "classes dim"]
    whiteners: Float[np.ndarray, "classes dim dim"]
    offsets: Float[np.ndarray, " classes"]
    dof: Float[np.ndarray, ""] | None = None

    def __post_init__(self) -> None:
        if self.dof is not None and not 0 <= self.dof < np.inf:
            raise HeadError(f"dof is {self.dof}; give a positive finite number, e.g. 100, or 0 for Gaussian tails.")

    def scores(self, x: Float[np.ndarray, "n dim"], base: Base = None) -> Float[np.ndarray, "n classes"]:
        """Log densities and offsets, up to a term common to all classes; as precise near the highest sum with `base`."""
        offsets = self.offsets if base is None else base + self.offsets
        return quadratic_scores(x, self.means, self.whiteners, offsets, self._tails)

    def without_tails(self) -> "Quadratic":
        """The Gaussian limit: wide draws lie in heavy tails, where the rule is never certain."""
        return replace(self, dof=None)

    @property
    def _tails(self) -> float:
        return np.inf if self.dof is None else float(self.dof) or np.inf

    def write(self, graph: Graph, x: str) -> str:
        """One class after the other, so that memory stays small."""
        columns = []
        for mu, whitener in zip(self.means, self.whiteners, strict=True):
            y = graph.op("MatMul", graph.op("Sub", x, graph.constant(mu)), graph.constant(whitener))
            columns.append(graph.total(graph.op("Mul", y, y)))
        squared, dof = graph.op("Concat", *columns, axis=1), self._tails
        if np.isfinite(dof):
            far = graph.op("Div", squared, graph.constant(dof))
            squared = graph.op("Log", graph.op("Add", far, graph.constant(1.0)))
        factor = -0.5 if np.isinf(dof) else -0.5 * (dof + self.means.shape[1])
        return graph.op("Add", graph.op("Mul", squared, graph.constant(factor)), graph.constant(self.offsets))


@dataclass(frozen=True, eq=False, repr=False)
class LowRank(Rule):
    """A Gaussian per class whose covariance is a diagonal and few directions.

    ::

        s_c(x) = b_c − ½ [ p_c·(x − μ_c)² − ‖(x − μ_c)ᵀ U_c‖² ]

    >>> rule = LowRank(np.zeros((1, 2)), np.ones((1, 2)), np.array([[[0.5], [0.0]]]), np.zeros(1))
    >>> rule.scores(np.array([[2.0, 1.0]]))
    array([[-2.]])
    """

    kind = "low_rank"
    means: Float[np.ndarray, "classes dim"]
    precisions: Float[np.ndarray, "classes dim"]
    directions: Float[np.ndarray, "classes dim rank"]
    offsets: Float[np.ndarray, " classes"]

    def scores(self, x: Float[np.ndarray, "n dim"], base: Base = None) -> Float[np.ndarray, "n classes"]:
        """Log densities and offsets, up to a term common to all classes."""
        out = np.empty((len(x), len(self.means)))

        def fill(c: int) -> None:
            shifted = x - self.means[c]
            y = shifted @ self.directions[c]
            distance = (shifted * shifted) @ self.precisions[c] - np.einsum("nr,nr->n", y, y)
            out[:, c] = self.offsets[c] - 0.5 * distance

        parallel_for(fill, range(len(self.means)))
        return add(base, out)

    def write(self, graph: Graph, x: str) -> str:
        """One class after the other, so that memory stays small."""
        columns = []
        for mu, precision, directions in zip(self.means, self.precisions, self.directions, strict=True):
            shifted = graph.op("Sub", x, graph.constant(mu))
            y = graph.op("MatMul", shifted, graph.constant(directions))
            plain = graph.op("MatMul", graph.op("Mul", shifted, shifted), graph.constant(precision[:, None]))
            columns.append(graph.op("Sub", plain, graph.total(graph.op("Mul", y, y))))
        half = graph.op("Mul", graph.op("Concat", *columns, axis=1), graph.constant(-0.5))
        return graph.op("Add", half, graph.constant(self.offsets))


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
        arrays.evict(whiteners[c])

    def settle(c: int) -> None:
        for rows in _blocks(len(x)) if unsettled is None else np.split(*_places(unsettled[:, c])):
            out[rows, c] = score(c, rows, _squared_lengths(x[rows] - means[c], whiteners[c]))
        arrays.evict(whiteners[c])

    if len(x) >= MANY and x.shape[1] >= WIDE and len(present) >= SEVERAL:
        slack = np.zeros_like(out)
        with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold stays unsettled
            parallel_for(estimate, present.tolist())
            below = np.max(out - slack, axis=1, keepdims=True) - (out + slack)
            unsettled = ~((below > NEAR) & (slack < SMALL * below))
    parallel_for(settle, present.tolist())
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
