"""Heads as ONNX operations: the formula of each `scores`, in doubles."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ghofl.errors import HeadError
from ghofl.export.graph import Graph
from ghofl.heads import Head
from ghofl.heads.blend import SKETCH
from ghofl.heads.novelty import Novelty


def add_scores(graph: Graph, x: str, head: Head) -> str:
    """The scores of features `x`; a head without a formula here raises `HeadError`."""
    if head.name not in _SCORES:
        raise HeadError(f"head {head.name!r} cannot be written as ONNX; choose one of {', '.join(sorted(_SCORES))}.")
    return _SCORES[head.name](graph, x, head)


def add_novelty(graph: Graph, x: str, rule: Novelty) -> str:
    """How far each row of features `x` is from all classes, as in `Novelty.scores`."""
    away = graph.op("Sub", x, graph.constant(rule.centre))
    inside = graph.op("MatMul", away, graph.constant(rule.basis))
    to_means = graph.op("MatMul", away, graph.constant(-2.0 * rule.weights.T.astype(np.float64)))
    nearest = graph.op(
        "ReduceMin", graph.op("Add", to_means, graph.constant(rule.offsets)), graph.constant([1], np.int64), keepdims=1
    )
    found = graph.op("Add", graph.total(graph.op("Mul", inside, inside)), nearest)
    return graph.op("Squeeze", found, graph.constant([1], np.int64))


def _affine(graph: Graph, x: str, weights: np.ndarray, bias: np.ndarray) -> str:
    return graph.op("Add", graph.op("MatMul", x, graph.constant(weights.T)), graph.constant(bias))


def _linear(graph: Graph, x: str, head: Any) -> str:
    return _affine(graph, x, head.weights, head.bias)


def _cosine(graph: Graph, x: str, head: Any) -> str:
    length = graph.op("Sqrt", graph.total(graph.op("Mul", x, x)))
    is_row = graph.op("Greater", length, graph.constant(0.0))
    unit = graph.op("Div", x, graph.op("Where", is_row, length, graph.constant(1.0)))
    return _affine(graph, unit, head.directions, head.offsets)


def _naive_bayes(graph: Graph, x: str, head: Any) -> str:
    squared = graph.op("MatMul", graph.op("Mul", x, x), graph.constant(head.squared.T))
    return graph.op("Add", squared, _affine(graph, x, head.linear, head.bias))


def _distances(graph: Graph, x: str, means: np.ndarray, whiteners: np.ndarray) -> str:
    """‖(x − μ_c)ᵀ W_c‖² for every row and class, one class after the other so that memory stays small."""
    columns = []
    for mu, whitener in zip(means, whiteners, strict=True):
        y = graph.op("MatMul", graph.op("Sub", x, graph.constant(mu)), graph.constant(whitener))
        columns.append(graph.total(graph.op("Mul", y, y)))
    return graph.op("Concat", *columns, axis=1)


def _quadratic(graph: Graph, x: str, head: Any) -> str:
    half = graph.op("Mul", _distances(graph, x, head.means, head.whiteners), graph.constant(-0.5))
    return graph.op("Add", half, graph.constant(head.offsets))


def _student(graph: Graph, x: str, head: Any) -> str:
    dof, dim = float(head.dof), head.means.shape[1]
    far = graph.op("Div", _distances(graph, x, head.means, head.whiteners), graph.constant(dof))
    log = graph.op("Log", graph.op("Add", far, graph.constant(1.0)))
    return graph.op("Add", graph.op("Mul", log, graph.constant(-0.5 * (dof + dim))), graph.constant(head.offsets))


def _low_rank(graph: Graph, x: str, head: Any) -> str:
    columns = []
    for mu, precision, directions in zip(head.means, head.precisions, head.directions, strict=True):
        shifted = graph.op("Sub", x, graph.constant(mu))
        y = graph.op("MatMul", shifted, graph.constant(directions))
        plain = graph.op("MatMul", graph.op("Mul", shifted, shifted), graph.constant(precision[:, None]))
        columns.append(graph.op("Sub", plain, graph.total(graph.op("Mul", y, y))))
    half = graph.op("Mul", graph.op("Concat", *columns, axis=1), graph.constant(-0.5))
    return graph.op("Add", half, graph.constant(head.offsets))


def _sketched(graph: Graph, x: str, head: Any) -> str:
    z = graph.op("MatMul", x, graph.constant(head.sketch))
    own = _quadratic(graph, z, head) if head.dof == 0 else _student(graph, z, head)
    return graph.op("Add", _affine(graph, x, head.weights, head.bias), own)


def _proto_hyper(graph: Graph, x: str, head: Any) -> str:
    z = graph.op("Sub", graph.op("MatMul", x, graph.constant(head.basis)), graph.constant(head.shift))
    learned = graph.op("MatMul", graph.op("MatMul", z, graph.constant(head.inward)), graph.constant(head.outward))
    return graph.op("Add", add_scores(graph, z, head.base), learned)


def _blend(graph: Graph, x: str, head: Any) -> str:
    z = x
    if any(name.startswith(SKETCH) for name, _ in head.parts):
        z = graph.op("MatMul", x, graph.constant(head.sketch))
    found = [add_scores(graph, z if name.startswith(SKETCH) else x, part) for name, part in head.parts]
    mean = graph.op("Sum", *(_standardised(graph, scores) for scores in found))
    return graph.op("Mul", mean, graph.constant(1.0 / len(found)))


def _standardised(graph: Graph, scores: str) -> str:
    """Each row with mean 0 and deviation 1 over the classes that can be predicted (whose score is finite)."""
    lowest, zero, one = graph.constant(-np.finfo(np.float64).max), graph.constant(0.0), graph.constant(1.0)
    possible = graph.op("Greater", scores, lowest)
    count = graph.total(graph.op("Where", possible, one, zero))
    mean = graph.op("Div", graph.total(graph.op("Where", possible, scores, zero)), count)
    centred = graph.op("Where", possible, graph.op("Sub", scores, mean), zero)
    spread = graph.op("Sqrt", graph.op("Div", graph.total(graph.op("Mul", centred, centred)), count))
    spread = graph.op("Where", graph.op("Greater", spread, zero), spread, one)
    return graph.op("Where", possible, graph.op("Div", centred, spread), graph.constant(-np.inf))


_SCORES: dict[str, Callable[[Graph, str, Any], str]] = {
    "nearest_mean": _cosine,
    "spherical": _linear,
    "fedcgs": _linear,
    "nb": _naive_bayes,
    "lda": _linear,
    "qda": _quadratic,
    "low_rank_qda": _low_rank,
    "rda": _quadratic,
    "student": _student,
    "sketched_qda": _sketched,
    "ridge": _linear,
    "fisher_mix": _linear,
    "proto_hyper": _proto_hyper,
    "blend": _blend,
}
