"""Rules that are one or two matrix products for all classes together."""

from dataclasses import dataclass

import numpy as np

from ghofl.heads.rules.base import Base, Graph, Rule, add
from ghofl.shapes import Float


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Rule):
    """Planes between classes.

    ::

        s_c(x) = w_c·x + b_c

    Guarantees
    ----------
    Linear in x.

    Examples
    --------
    >>> Linear(weights=np.eye(2), bias=np.zeros(2)).predict(np.array([[3.0, 1.0], [0.0, 2.0]]))
    array([0, 1])
    """

    kind = "linear"
    has_planes = True
    weights: Float[np.ndarray, "classes dim"]
    bias: Float[np.ndarray, " classes"]

    @classmethod
    def of_means(
        cls,
        weights: Float[np.ndarray, "classes dim"],
        means: Float[np.ndarray, "classes dim"],
        log_priors: Float[np.ndarray, " classes"],
    ) -> "Linear":
        """The log posteriors of Gaussians with one covariance Σ and w_c = Σ⁻¹ μ_c: b_c = log π_c − ½ μ_c·w_c."""
        weights = np.ascontiguousarray(weights)
        return cls(weights, log_priors - 0.5 * np.einsum("cd,cd->c", means, weights))

    def scores(self, x: Float[np.ndarray, "n dim"], base: Base = None) -> Float[np.ndarray, "n classes"]:
        """w_c·x + b_c for every row and class."""
        return add(base, x @ self.weights.T + self.bias)

    def write(self, graph: Graph, x: str) -> str:
        """A product and a sum."""
        return _affine(graph, x, self.weights, self.bias)


@dataclass(frozen=True, eq=False, repr=False)
class Factored(Rule):
    """A linear correction of rank r, s(x) = (x U) V with U dim × r and V r × classes.

    >>> Factored(np.array([[1.0], [0.0]]), np.array([[2.0, 3.0]])).scores(np.array([[2.0, 5.0]]))
    array([[4., 6.]])
    """

    kind = "factored"
    has_planes = True
    inward: Float[np.ndarray, "dim rank"]
    outward: Float[np.ndarray, "rank classes"]

    def scores(self, x: Float[np.ndarray, "n dim"], base: Base = None) -> Float[np.ndarray, "n classes"]:
        """Both products."""
        return add(base, (x @ self.inward) @ self.outward)

    def write(self, graph: Graph, x: str) -> str:
        """Two products."""
        inside = graph.op("MatMul", x, graph.constant(self.inward))
        return graph.op("MatMul", inside, graph.constant(self.outward))


@dataclass(frozen=True, eq=False, repr=False)
class Cosine(Rule):
    """The cosine of the angle between a row and a direction per class; an offset is 0, or −∞ for a class without rows.

    Scores lie in [−1, 1]; a row of zeros scores 0.

    >>> Cosine(directions=np.eye(2), offsets=np.zeros(2)).scores(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """

    kind = "cosine"
    has_planes = True
    directions: Float[np.ndarray, "classes dim"]
    offsets: Float[np.ndarray, " classes"]

    def scores(self, x: Float[np.ndarray, "n dim"], base: Base = None) -> Float[np.ndarray, "n classes"]:
        """The cosine with every direction."""
        return add(base, unit_rows(x) @ self.directions.T + self.offsets)

    def write(self, graph: Graph, x: str) -> str:
        """The rows over their lengths, and a product."""
        length = graph.op("Sqrt", graph.total(graph.op("Mul", x, x)))
        is_row = graph.op("Greater", length, graph.constant(0.0))
        unit = graph.op("Div", x, graph.op("Where", is_row, length, graph.constant(1.0)))
        return _affine(graph, unit, self.directions, self.offsets)


@dataclass(frozen=True, eq=False, repr=False)
class Diagonal(Rule):
    """Squares without products of features: s_c(x) = a_c·x² + l_c·x + b_c.

    >>> Diagonal(-np.eye(2), np.zeros((2, 2)), np.zeros(2)).scores(np.array([[3.0, 4.0]]))
    array([[ -9., -16.]])
    """

    kind = "diagonal"
    squared: Float[np.ndarray, "classes dim"]
    linear: Float[np.ndarray, "classes dim"]
    bias: Float[np.ndarray, " classes"]

    def scores(self, x: Float[np.ndarray, "n dim"], base: Base = None) -> Float[np.ndarray, "n classes"]:
        """Two products for all classes."""
        return add(base, (x * x) @ self.squared.T + x @ self.linear.T + self.bias)

    def write(self, graph: Graph, x: str) -> str:
        """Two products and their sum."""
        squares = graph.op("MatMul", graph.op("Mul", x, x), graph.constant(self.squared.T))
        return graph.op("Add", squares, _affine(graph, x, self.linear, self.bias))


def unit_rows(rows: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
    """Every row with length 1; a row of zeros stays."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1.0)


def _affine(graph: Graph, x: str, weights: np.ndarray, bias: np.ndarray) -> str:
    return graph.op("Add", graph.op("MatMul", x, graph.constant(weights.T)), graph.constant(bias))
