"""From photos to embeddings as ONNX operations: `Preprocessing.planes` and `Views.mean` around a network.

Resizing is two matrix products, whose weights follow from the photo's size as Pillow's do. ONNX has an operation for it,
but runtimes disagree about the edges where an image shrinks: in ONNX Runtime by up to 18 of 255 levels.
"""

from typing import Any

import numpy as np
from onnx import TensorProto

from ghofl.encoders.resize import Preprocessing
from ghofl.encoders.views import Views
from ghofl.export.graph import Graph

FLOAT = np.float32


def add_photos(graph: Graph, images: str, network: Any, own: Preprocessing, views: Views, dim: int) -> str:
    """The embeddings of byte images (n, height, width, 3), as floats (n, dim): the mean over all views."""
    planes = graph.op("Cast", graph.op("Transpose", images, perm=[0, 3, 1, 2]), to=TensorProto.FLOAT)
    total = ""
    for preprocessing in views.preprocessings(own):
        x = _prepared(graph, images, planes, preprocessing)
        if views.flip:
            x = graph.op("Concat", x, _mirrored(graph, x), axis=0)
        rows = graph.inline(network, x)
        if views.flip:
            pairs = graph.op("Reshape", rows, graph.constant([2, -1, dim], np.int64))
            rows = graph.op("ReduceSum", pairs, graph.constant([0], np.int64), keepdims=0)
        total = graph.op("Add", total, rows) if total else rows
    count = (1 + views.flip) * max(1, len(views.scales))
    return total if count == 1 else graph.op("Div", total, graph.constant(count, FLOAT))


def _mirrored(graph: Graph, planes: str) -> str:
    starts, ends, axes, steps = (graph.constant([value], np.int64) for value in (-1, np.iinfo(np.int64).min, 3, -1))
    return graph.op("Slice", planes, starts, ends, axes, steps)


def _prepared(graph: Graph, images: str, planes: str, preprocessing: Preprocessing) -> str:
    """Planes (n, 3, size, size), resized, cropped and normalised."""
    height, width = (
        graph.op("Cast", graph.op("Shape", images, start=axis, end=axis + 1), to=TensorProto.DOUBLE) for axis in (1, 2)
    )
    tall, wide = _sides(graph, height, width, preprocessing)
    across = graph.op("Transpose", _weights(graph, width, wide, preprocessing), perm=[1, 0])
    x = _as_bytes(graph, graph.op("MatMul", planes, across), preprocessing)
    x = _as_bytes(graph, graph.op("MatMul", _weights(graph, height, tall, preprocessing), x), preprocessing)
    for kind, values in (("Sub", preprocessing.mean), ("Div", preprocessing.std)):
        scaled = np.array(values, FLOAT).reshape(3, 1, 1) * FLOAT(255)
        x = graph.op(kind, x, graph.constant(scaled, FLOAT))
    return x


def _as_bytes(graph: Graph, x: str, preprocessing: Preprocessing) -> str:
    """What Pillow makes of a byte image after each direction; otherwise fractions are kept."""
    if not preprocessing.is_of_bytes:
        return x
    rounded = graph.op("Floor", graph.op("Add", x, graph.constant(0.5, FLOAT)))
    return graph.op("Clip", rounded, graph.constant(0, FLOAT), graph.constant(255, FLOAT))


def _sides(graph: Graph, height: str, width: str, preprocessing: Preprocessing) -> tuple[str, str]:
    """`Preprocessing.sides`, in doubles."""
    size = graph.constant([preprocessing.size])
    if preprocessing.fit.endswith("squash"):
        return size, size
    target, shorter = graph.constant([round(preprocessing.size / preprocessing.share)]), graph.op("Min", height, width)

    def side(length: str) -> str:
        if preprocessing.is_of_bytes:
            found = graph.op("Floor", graph.op("Div", graph.op("Mul", target, length), shorter))
        else:
            found = graph.op("Round", graph.op("Mul", length, graph.op("Div", target, shorter)))
        return graph.op("Max", size, found)

    return side(height), side(width)


def _weights(graph: Graph, length: str, resized: str, preprocessing: Preprocessing) -> str:
    """Weights (size, length) of the pixels of a line in each pixel of the crop from its resized line.

    Output pixel i covers input pixels around c = (i + ½) · length / resized, and the kernel widens where lines shrink.
    """
    half, one = graph.constant([0.5]), graph.constant([1.0])
    margin = graph.op("Div", graph.op("Sub", resized, graph.constant([preprocessing.size])), graph.constant([2.0]))
    # `Preprocessing.corner`: to the even number, or up.
    corner = (
        graph.op("Round", margin) if preprocessing.is_of_bytes else graph.op("Floor", graph.op("Add", margin, half))
    )
    scale = graph.op("Div", length, resized)
    outputs = graph.constant(np.arange(preprocessing.size)[:, None] + 0.5)
    centres = graph.op("Mul", graph.op("Add", outputs, corner), scale)
    scalar = graph.op("Squeeze", graph.op("Cast", length, to=TensorProto.INT64))
    numbers = graph.op("Range", graph.constant(0, np.int64), scalar, graph.constant(1, np.int64))
    inputs = graph.op("Add", graph.op("Cast", numbers, to=TensorProto.DOUBLE), half)
    away = graph.op("Div", graph.op("Abs", graph.op("Sub", inputs, centres)), graph.op("Max", scale, one))
    weights = _kernel(graph, away, preprocessing.kernel)
    return graph.op("Cast", graph.op("Div", weights, graph.total(weights)), to=TensorProto.FLOAT)


def _kernel(graph: Graph, away: str, kernel: str) -> str:
    """Pillow's kernels at a distance: 1 − t, or Keys' cubic with a = −½ (Keys 1981, eq. 15)."""

    def polynomial(*coefficients: float) -> str:
        value = graph.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            value = graph.op("Add", graph.op("Mul", value, away), graph.constant(coefficient))
        return value

    if kernel == "bilinear":
        return graph.op("Max", graph.constant(0.0), polynomial(-1.0, 1.0))
    near, far = polynomial(1.5, -2.5, 0.0, 1.0), polynomial(-0.5, 2.5, -4.0, 2.0)
    outer = graph.op("Where", graph.op("Less", away, graph.constant(2.0)), far, graph.constant(0.0))
    return graph.op("Where", graph.op("Less", away, graph.constant(1.0)), near, outer)
