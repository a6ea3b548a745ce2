"""Rules made of other rules."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ghofl.heads.rules.base import Base, Graph, Rule, add
from ghofl.shapes import Float, Num
from ghofl.statistics.triangles import apply

SKETCH = "sketch"  # a file holds a head's sketch once, whichever of its rules look through it
Parts = tuple[tuple[str, Rule], ...]


@dataclass(frozen=True, eq=False, repr=False)
class Mapped(Rule):
    """A rule on x M − shift: on the sketch of a row (M of small integers, no shift), or in the Fisher space.

    >>> from ghofl.heads.rules.linear import Linear
    >>> Mapped(np.array([[2], [1]]), Linear(np.eye(1), np.zeros(1))).scores(np.array([[3.0, 1.0]]))
    array([[7.]])
    """

    kind = "mapped"
    matrix: Num[np.ndarray, "dim k"]
    rule: Rule
    shift: Float[np.ndarray, " k"] | None = None

    @property
    def inner(self) -> tuple[Rule, ...]:
        """The rule of mapped rows."""
        return (self.rule,)

    @property
    def form(self) -> Any:
        """The name of the matrix in a file, and the form of the inner rule."""
        return [self.kind, SKETCH if self.shift is None else "basis", self.rule.form]

    def scores(self, x: Float[np.ndarray, "n dim"], base: Base = None) -> Float[np.ndarray, "n classes"]:
        """The scores of the mapped rows."""
        return self.rule.scores(apply(x, self.matrix) if self.shift is None else x @ self.matrix - self.shift, base)

    def without_tails(self) -> "Mapped":
        """The same map, with Gaussian tails behind it."""
        return replace(self, rule=self.rule.without_tails())

    def write(self, graph: Graph, x: str) -> str:
        """A product, and what the inner rule writes."""
        z = graph.op("MatMul", x, graph.constant(self.matrix))
        return self.rule.write(graph, z if self.shift is None else graph.op("Sub", z, graph.constant(self.shift)))

    def arrays(self) -> dict[str, np.ndarray]:
        """The map, and the arrays of the inner rule."""
        own = {SKETCH: self.matrix} if self.shift is None else {"basis": self.matrix, "shift": self.shift}
        return {name: np.ascontiguousarray(array) for name, array in own.items()} | self.rule.arrays()


@dataclass(frozen=True, eq=False, repr=False)
class Summed(Rule):
    """The sum of several rules, each with a positive weight, or 1.

    Each rule is given the sum of those before it, so that one that rounds classes far below (`Quadratic`) knows which
    ones they are: put it last. A name goes before the names of a rule's arrays in a file; it may be empty.

    >>> from ghofl.heads.rules.linear import Linear
    >>> one = Linear(np.eye(2), np.zeros(2))
    >>> Summed((("a", one), ("b", one)), np.array([1.0, 0.5])).scores(np.array([[2.0, 4.0]]))
    array([[3., 6.]])
    """

    kind = "summed"
    parts: Parts
    weights: Float[np.ndarray, " parts"] | None = None

    @property
    def inner(self) -> tuple[Rule, ...]:
        """Its rules."""
        return tuple(rule for _, rule in self.parts)

    @property
    def form(self) -> Any:
        """The names and forms of its rules."""
        return _form(self.kind, self.parts)

    def scores(self, x: Float[np.ndarray, "n dim"], base: Base = None) -> Float[np.ndarray, "n classes"]:
        """The weighted sum of the scores."""
        for rule, weight in zip(
            self.inner, np.ones(len(self.parts)) if self.weights is None else self.weights, strict=True
        ):
            found = rule.scores(x, base if base is None or weight == 1 else base / weight)
            base = found if weight == 1 else found * weight
        assert base is not None, "a sum has a rule"
        return base

    def without_tails(self) -> "Summed":
        """The sum of the rules with Gaussian tails."""
        return replace(self, parts=tuple((name, rule.without_tails()) for name, rule in self.parts))

    def write(self, graph: Graph, x: str) -> str:
        """The sum of what its rules write."""
        found = [rule.write(graph, x) for rule in self.inner]
        if self.weights is not None:
            pairs = zip(found, self.weights.tolist(), strict=True)
            found = [graph.op("Mul", scores, graph.constant(weight)) for scores, weight in pairs]
        return graph.op("Sum", *found)

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of its rules under their names, and the weights where they are not all 1."""
        return _arrays(self.parts) | ({} if self.weights is None else {"shares": self.weights})


@dataclass(frozen=True, eq=False, repr=False)
class Standardised(Rule):
    """The mean of the standardised scores of several rules.

    ::

        s(x) = mean over rules of (s_rule − mean_c s_rule) / sd_c s_rule      for each row x, over the classes

    or, with `spreads`, of s_rule divided by the spread of that rule, the same for every row: with two classes only the
    sign would remain of standardised scores.

    >>> from ghofl.heads.rules.linear import Linear
    >>> Standardised((("a", Linear(np.eye(3), np.zeros(3))),)).scores(np.array([[0.0, 2.0, 4.0]])).round(2)
    array([[-1.22,  0.  ,  1.22]])
    """

    kind = "standardised"
    parts: Parts
    spreads: Float[np.ndarray, " parts"] | None = None

    @property
    def inner(self) -> tuple[Rule, ...]:
        """Its rules."""
        return tuple(rule for _, rule in self.parts)

    @property
    def form(self) -> Any:
        """The names and forms of its rules."""
        return _form(self.kind, self.parts)

    def scores(self, x: Float[np.ndarray, "n dim"], base: Base = None) -> Float[np.ndarray, "n classes"]:
        """The mean of the rules' standardised scores."""
        found = [rule.scores(x) for rule in self.inner]
        if self.spreads is None:
            same = [standardise(scores) for scores in found]
        else:
            same = [scores / spread for scores, spread in zip(found, self.spreads, strict=True)]
        return add(base, np.sum(same, axis=0) / len(same))

    def without_tails(self) -> "Standardised":
        """The mean of the rules with Gaussian tails."""
        return replace(self, parts=tuple((name, rule.without_tails()) for name, rule in self.parts))

    def write(self, graph: Graph, x: str) -> str:
        """The mean of what its rules write, standardised in the same way."""
        found = [rule.write(graph, x) for rule in self.inner]
        if self.spreads is None:
            same = [_write_standardised(graph, scores) for scores in found]
        else:
            pairs = zip(found, self.spreads.tolist(), strict=True)
            same = [graph.op("Div", scores, graph.constant(spread)) for scores, spread in pairs]
        return graph.op("Div", graph.op("Sum", *same), graph.constant(float(len(same))))

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of its rules under their names, and the spreads where there are any."""
        return _arrays(self.parts) | ({} if self.spreads is None else {"spreads": self.spreads})


def standardise(scores: Float[np.ndarray, "n classes"]) -> Float[np.ndarray, "n classes"]:
    """Each row with mean 0 and deviation 1 over the classes that can be predicted."""
    possible = np.isfinite(scores)
    count = np.maximum(possible.sum(axis=1, keepdims=True), 1)
    centred = np.where(possible, scores, 0.0)
    centred = np.where(possible, scores - centred.sum(axis=1, keepdims=True) / count, 0.0)
    spread = np.sqrt((centred**2).sum(axis=1, keepdims=True) / count)
    return np.where(possible, centred / np.where(spread > 0, spread, 1.0), -np.inf)


def _write_standardised(graph: Graph, scores: str) -> str:
    """`standardise` as operations; possible are the classes whose score is finite."""
    lowest, zero, one = graph.constant(-np.finfo(np.float64).max), graph.constant(0.0), graph.constant(1.0)
    possible = graph.op("Greater", scores, lowest)
    count = graph.total(graph.op("Where", possible, one, zero))
    mean = graph.op("Div", graph.total(graph.op("Where", possible, scores, zero)), count)
    centred = graph.op("Where", possible, graph.op("Sub", scores, mean), zero)
    spread = graph.op("Sqrt", graph.op("Div", graph.total(graph.op("Mul", centred, centred)), count))
    spread = graph.op("Where", graph.op("Greater", spread, zero), spread, one)
    return graph.op("Where", possible, graph.op("Div", centred, spread), graph.constant(-np.inf))


def _form(kind: str, parts: Parts) -> list[Any]:
    return [kind, *([name, rule.form] for name, rule in parts)]


def _arrays(parts: Parts) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for name, rule in parts:
        own = {key_of(name, key): array for key, array in rule.arrays().items()}
        twice = found.keys() & own.keys()
        assert twice <= {SKETCH}, "rules of one name have arrays of different names"
        assert all(np.array_equal(found[key], own[key]) for key in twice), "a head looks through one sketch"
        found |= own
    return found


def key_of(part: str, name: str) -> str:
    """The name in a file of an array of a part."""
    return f"{part}:{name}" if part and name != SKETCH else name
