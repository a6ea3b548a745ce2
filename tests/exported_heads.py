"""Small classifiers for tests of what leaves the library."""

import numpy as np

from ghofl import Classifier, Encoder, Grid, Recipe, Sketch, Total
from ghofl.outbox import Embedded, outgoing

DIM, CLASSES = 12, ("cat", "dog", "bird", "Füchse", "nobody has these")
RECIPE = Recipe(CLASSES, Encoder(dim=DIM), ("S",), grid=Grid(bits=10, scale=40.0), sketch=Sketch(dim=5))


def session_of(model):
    """A model in ONNX Runtime, on one thread: those of a second one would spin while they wait."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def rows(rng, n=600):
    y = np.arange(n) % 4
    return rng.normal(size=(n, DIM)) + 1.5 * np.eye(5, DIM)[y], y


def classifier_of(head, recipe, rng, novelty=False):
    x, y = rows(rng)
    message = outgoing(recipe, Embedded(x, y), "north").message
    return Classifier.fit(Total.of([message], recipe), head, warn=lambda _: None, novelty=novelty)
