"""What a classifier says of scores, as ONNX operations: the class that it decides on, and novelty."""

import numpy as np

from ghofl.classifier import Classifier
from ghofl.export.graph import Graph
from ghofl.heads.decision import limits_of
from ghofl.heads.novelty import Novelty


def add_decision(graph: Graph, calibrated: str, probabilities: str, classifier: Classifier) -> str:
    """The number of each row's class, as in `ghofl.heads.decision.decide`; −1 where no class reaches its threshold."""
    if not classifier.thresholds:
        return graph.op("ArgMax", calibrated, axis=1, keepdims=0)
    limits = limits_of(classifier.thresholds, classifier.recipe.classes)
    factors = graph.op("Div", probabilities, graph.constant(limits))
    highest = graph.op("ReduceMax", factors, graph.constant([1], np.int64), keepdims=0)
    is_reached = graph.op("GreaterOrEqual", highest, graph.constant(1.0))
    best = graph.op("ArgMax", factors, axis=1, keepdims=0)
    if not np.isinf(limits).any():
        return graph.op("Where", is_reached, best, graph.constant(-1, np.int64))
    free = graph.op("Where", graph.constant(np.isinf(limits), np.bool_), probabilities, graph.constant(-1.0))
    return graph.op("Where", is_reached, best, graph.op("ArgMax", free, axis=1, keepdims=0))


def add_novelty(graph: Graph, x: str, rule: Novelty) -> str:
    """How far each row of features `x` is from all classes, as in `Novelty.scores`."""
    away = graph.op("Sub", x, graph.constant(rule.centre))
    has_basis = bool(rule.basis.shape[1])
    inside = graph.op("MatMul", away, graph.constant(rule.basis if has_basis else rule.matrix))
    to_means = graph.op("MatMul", away, graph.constant(-2.0 * rule.weights.T.astype(np.float64)))
    nearest = graph.op(
        "ReduceMin", graph.op("Add", to_means, graph.constant(rule.offsets)), graph.constant([1], np.int64), keepdims=1
    )
    found = graph.op("Add", graph.total(graph.op("Mul", inside, inside if has_basis else away)), nearest)
    return graph.op("Squeeze", found, graph.constant([1], np.int64))
