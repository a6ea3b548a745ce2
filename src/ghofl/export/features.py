"""A recipe's features as ONNX operations: the same integers as `Features.rows`, in doubles."""

import numpy as np

from ghofl.export.graph import INT64, Graph
from ghofl.features import Features, shift_of
from ghofl.features.basis import PART, RANK, SHIFT, TURN, Expansion
from ghofl.features.radius import LEVELS, SLACK


def add_features(graph: Graph, x: str, features: Features) -> str:
    """The features of embeddings `x` (doubles), as floats in the units of the embedding."""
    recipe = features.recipe
    q = _on_grid(graph, _transformed(graph, x, features), recipe.grid.scale, recipe.grid.bound)
    if features.matrix is not None:
        projected = _through_matrix(graph, q, features)
        is_kept = recipe.lift is not None and recipe.lift.keep
        q = graph.op("Concat", q, projected, axis=1) if is_kept else projected
    if features.expansion is not None:
        q = graph.op("Concat", q, *_expanded(graph, x, features.expansion), axis=1)
    if features.radius is not None:
        q = _within_radius(graph, q, features.radius)
    # One number per feature: ONNX Runtime folds a single one into the next product, rounded to float32.
    return graph.op("Mul", q, graph.constant(np.full(recipe.dim, features.unit)))


def _transformed(graph: Graph, x: str, features: Features) -> str:
    transform = features.recipe.transform
    if transform.anchor:
        x = graph.op("Sub", x, graph.constant(transform.anchor))
    if transform.power != 1.0:
        size = graph.op("Abs", x)
        size = (
            graph.op("Sqrt", size) if transform.power == 0.5 else graph.op("Pow", size, graph.constant(transform.power))
        )
        x = graph.op("Mul", size, graph.op("Sign", x))
    if transform.centre:
        x = graph.op("Sub", x, graph.constant(transform.centre))
    if transform.unit_length:
        length = graph.op("Sqrt", graph.total(graph.op("Mul", x, x)))
        x = graph.op("Div", x, _or_one(graph, length))
    return x


def _on_grid(graph: Graph, x: str, scale: float, bound: int) -> str:
    return _clipped(graph, graph.op("Round", graph.op("Mul", x, graph.constant(scale))), bound)


def _through_matrix(graph: Graph, q: str, features: Features) -> str:
    """Integer rounding after the product, half up, as `Features` does it: all numbers are whole and below 2^53."""
    recipe, matrix = features.recipe, features.matrix
    space = recipe.projection or recipe.lift
    assert space is not None
    assert matrix is not None
    shift, dim = shift_of(space, recipe.encoder.dim), matrix.shape[0]
    y = graph.op("MatMul", q, graph.constant(matrix))
    if recipe.lift is not None and recipe.lift.centred:
        columns = graph.constant(matrix.sum(axis=0, dtype=np.float64)[None, :])
        y = graph.op("Sub", graph.op("Mul", y, graph.constant(float(dim))), graph.op("Mul", graph.total(q), columns))
        doubled = graph.op("Add", graph.op("Mul", y, graph.constant(2.0)), graph.constant(float(dim * 2**shift)))
        y = graph.op("Floor", graph.op("Div", doubled, graph.constant(float(dim * 2 ** (shift + 1)))))
    elif shift:
        raised = graph.op("Add", y, graph.constant(2.0 ** (shift - 1)))
        y = graph.op("Floor", graph.op("Mul", raised, graph.constant(2.0**-shift)))
    if recipe.lift is not None:
        y = graph.op("Max", y, graph.constant(0.0))
    return _clipped(graph, y, recipe.grid.bound)


def _expanded(graph: Graph, x: str, expansion: Expansion) -> list[str]:
    """`Expansion.rows`, operation by operation; every number is whole where it could be rounded differently."""
    x, found = _clipped(graph, x, 1), []
    if len(expansion.knots):
        above = graph.op("Sub", _columns(graph, x, expansion.hinges), graph.constant(expansion.knots))
        bent = graph.op("Mul", graph.op("Max", above, graph.constant(0.0)), graph.constant(expansion.slopes))
        bent = graph.op("Round", graph.op("Mul", bent, _each(graph, expansion.scale, expansion.knots)))
        found.append(_clipped(graph, bent, expansion.bound))
    if len(expansion.phases):
        ranks, order = _ranks(graph, x, expansion)
        product = graph.op("MatMul", ranks, graph.constant(expansion.weights[order]))
        turned = graph.op("Mul", product, _each(graph, expansion.factor / 2.0**SHIFT, expansion.phases))
        place = graph.op("Add", graph.op("Floor", turned), graph.constant(expansion.phases))
        whole = graph.op("Floor", graph.op("Mul", place, _each(graph, 1.0 / TURN, expansion.phases)))
        place = graph.op("Sub", place, graph.op("Mul", whole, _each(graph, float(TURN), expansion.phases)))
        found.append(graph.op("Gather", graph.constant(expansion.cosines), graph.op("Cast", place, to=INT64)))
    return found


def _ranks(graph: Graph, x: str, expansion: Expansion) -> tuple[str, np.ndarray]:
    """`Expansion.ranks`, with the entries that have breaks last, and the order in which they come."""
    others = np.setdiff1d(np.arange(len(expansion.weights)), expansion.ranked)
    found = []
    if len(others):
        found.append(graph.op("Round", graph.op("Mul", _columns(graph, x, others), _each(graph, RANK, others))))
    if len(expansion.ranked):
        entries = graph.op("Unsqueeze", _columns(graph, x, expansion.ranked), graph.constant([2], np.int64))
        along = graph.op(
            "Div", graph.op("Sub", entries, graph.constant(expansion.starts)), graph.constant(expansion.widths)
        )
        share = graph.op("Min", graph.op("Max", along, graph.constant(0.0)), graph.constant(1.0))
        parts = graph.op("Add", graph.op("Mul", share, _each(graph, PART, expansion.starts)), graph.constant(0.5))
        parts = graph.op("ReduceSum", graph.op("Floor", parts), graph.constant([2], np.int64), keepdims=0)
        twice = graph.op("Mul", parts, _each(graph, 2.0 * RANK, expansion.ranked))
        half_up = graph.op(
            "Add", graph.op("Div", twice, graph.constant(PART * expansion.segments)), graph.constant(0.5)
        )
        found.append(graph.op("Sub", graph.op("Floor", half_up), graph.constant(float(RANK))))
    return graph.op("Concat", *found, axis=1), np.concatenate([others, expansion.ranked])


def _columns(graph: Graph, x: str, columns: np.ndarray) -> str:
    return graph.op("Gather", x, graph.constant(columns, np.int64), axis=1)


def _each(graph: Graph, value: float, like: np.ndarray) -> str:
    """A constant for each column: ONNX Runtime folds a single one into a neighbouring product."""
    return graph.constant(np.full(like.shape, value, dtype=np.float64))


def _within_radius(graph: Graph, q: str, radius: int) -> str:
    """`clip_rows`: of the roundings it tries, the first that is no longer than the radius."""
    squares, limit = graph.total(graph.op("Mul", q, q)), graph.constant(float(radius**2))
    factor = graph.op("Div", graph.constant(radius * (1.0 - SLACK)), _or_one(graph, graph.op("Sqrt", squares)))
    scaled = graph.op("Mul", graph.op("Abs", q), factor)
    size = graph.op("Floor", scaled)  # towards zero: short enough whatever the row
    for level in range(LEVELS - 1, LEVELS // 2 - 1, -1):
        tried = graph.op("Floor", graph.op("Add", scaled, graph.constant(1.0 - level / LEVELS)))
        fits = graph.op("LessOrEqual", graph.total(graph.op("Mul", tried, tried)), limit)
        size = graph.op("Where", fits, tried, size)
    short = graph.op("Mul", size, graph.op("Sign", q))
    return graph.op("Where", graph.op("LessOrEqual", squares, limit), q, short)


def _clipped(graph: Graph, x: str, bound: int) -> str:
    return graph.op("Min", graph.op("Max", x, graph.constant(-float(bound))), graph.constant(float(bound)))


def _or_one(graph: Graph, x: str) -> str:
    """A length, or 1 where it is 0."""
    return graph.op("Where", graph.op("Greater", x, graph.constant(0.0)), x, graph.constant(1.0))
