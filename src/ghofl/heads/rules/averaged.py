"""The mean of two kinds of probabilities."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ghofl.heads.rules.base import Base, Graph, Rule, add, softmax
from ghofl.heads.rules.linear import Linear
from ghofl.shapes import Float


@dataclass(frozen=True, eq=False, repr=False)
class Averaged(Rule):
    """The logarithm of the mean of a softmax and of the shares of a regression on one-hot labels.

    ::

        s_c(x) = log ½ (p_c + r_c)      p = softmax(W x + b)      r_c ∝ ((t_c + √(t_c² + 4τ_c²))/2)^1.5      t = V x + a

    A regression's t_c estimates the probability of class c as far as a plane can, and strays below 0; the root is smooth, is
    about t_c where that is far above the `widths` τ_c, and τ_c²/|t_c| where it is far below 0. So no share is exponentially
    small, and the mean of both is wrong by a bounded amount where the softmax is sure of itself without reason.

    >>> line = Linear(np.array([[1.0], [-1.0]]), np.array([0.5, 0.5]))
    >>> np.exp(Averaged(line, line, np.array([0.05, 0.05])).scores(np.array([[0.0], [9.0]]))).round(3)
    array([[0.5, 0.5],
           [1. , 0. ]])
    """

    kind = "averaged"
    posterior: Linear
    regression: Linear
    widths: Float[np.ndarray, " classes"]

    @property
    def is_linear(self) -> bool:
        """Never: a mean of probabilities has no planes."""
        return False

    @property
    def form(self) -> Any:
        """Its kind; both rules in it are linear."""
        return self.kind

    def scores(self, x: Float[np.ndarray, "n dim"], base: Base = None) -> Float[np.ndarray, "n classes"]:
        """The logarithms of the mean probabilities."""
        sure = softmax(self.posterior.scores(x))
        with np.errstate(divide="ignore"):  # a class without rows
            return add(base, np.log(0.5 * (sure + self._shares(self.regression.scores(x)))))

    def _shares(self, t: Float[np.ndarray, "n classes"]) -> Float[np.ndarray, "n classes"]:
        known = np.isfinite(t)
        t = np.where(known, t, 0.0)
        root = np.sqrt(t * t + 4.0 * self.widths**2)
        # The same number without cancellation where t is negative.
        size = np.where(t > 0, 0.5 * (t + root), 2.0 * self.widths**2 / (root - np.minimum(t, 0.0)))
        size = np.where(known, size * np.sqrt(size), 0.0)
        return size / size.sum(axis=1, keepdims=True)

    def write(self, graph: Graph, x: str) -> str:
        """Both rules, a softmax, and the shares."""
        sure = graph.op("Softmax", self.posterior.write(graph, x), axis=1)
        t, zero = self.regression.write(graph, x), graph.constant(0.0)
        known = graph.op("Greater", t, graph.constant(-np.finfo(np.float64).max))
        t = graph.op("Where", known, t, zero)
        root = graph.op("Sqrt", graph.op("Add", graph.op("Mul", t, t), graph.constant(4.0 * self.widths**2)))
        above = graph.op("Mul", graph.op("Add", t, root), graph.constant(np.full(len(self.widths), 0.5)))
        below = graph.op("Div", graph.constant(2.0 * self.widths**2), graph.op("Sub", root, graph.op("Min", t, zero)))
        size = graph.op("Where", graph.op("Greater", t, zero), above, below)
        size = graph.op("Where", known, graph.op("Mul", size, graph.op("Sqrt", size)), zero)
        mean = graph.op("Add", sure, graph.op("Div", size, graph.total(size)))
        return graph.op("Log", graph.op("Mul", mean, graph.constant(np.full(len(self.widths), 0.5))))

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of both rules, and the widths."""
        parts = {"posterior": self.posterior, "regression": self.regression}
        found = {f"{part}_{name}": array for part, rule in parts.items() for name, array in rule.arrays().items()}
        return found | {"widths": self.widths}
