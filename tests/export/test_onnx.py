"""A head in ONNX Runtime gives the labels and probabilities that it gives here."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

import golden_files
from exported_heads import DIM, RECIPE, classifier_of, rows, session_of
from ghofl import Classifier, Grid, Lift, Privacy, Projection, Total, Transform
from ghofl.export.features import add_features
from ghofl.export.graph import Graph
from ghofl.export.model import export_head
from ghofl.features import Features
from ghofl.heads import HEADS
from ghofl.outbox import Embedded, outgoing


def run(classifier, x):
    return session_of(export_head(classifier)).run(None, {"embeddings": x.astype(np.float32)})


@pytest.mark.parametrize("head", [*HEADS, "best", "blend(parts=lda+ridge+z.student)"])
def test_every_head_gives_the_same_labels_and_probabilities(head, rng):
    classifier = classifier_of(head, RECIPE, rng, novelty=True)
    x = rows(rng, 2000)[0].astype(np.float32)
    labels, probabilities, scores, *novelty = run(classifier, x)
    names = classifier.predict(x)
    assert (labels == names).all()
    assert (
        np.abs(probabilities - classifier.predict_proba(x)).max() < 1e-7
    )  # ONNX Runtime's exponentials keep eight digits
    finite = np.isfinite(classifier.scores(x))
    assert np.array_equal(np.isfinite(scores), finite)
    assert len(novelty) == 1
    assert novelty[0] == pytest.approx(classifier.novelty(x), rel=1e-6, abs=1e-6)
    assert all(numbers.dtype == np.float32 for numbers in (probabilities, scores, *novelty))
    assert scores[finite] == pytest.approx(classifier.scores(x)[finite].astype(np.float32), rel=2e-7, abs=1e-9)


SPACES = {
    "projection": {"projection": Projection(dim=6, seed=3)},
    "given projection": {"projection": Projection.of_matrix(np.arange(-30, 30).reshape(DIM, 5), shift=4)},
    "lift": {"lift": Lift(dim=40)},
    "kept lift": {"lift": Lift(dim=40, keep=True)},
    "lift that is not centred": {"lift": Lift(dim=40, centred=False)},
    "square root": {"transform": Transform(power=0.5)},
    "power": {"transform": Transform(power=0.7)},
    "anchor and unit length": {
        "transform": Transform(anchor=tuple([0.25] * DIM), unit_length=True),
        "grid": Grid(12, 900.0),
    },
    "square root and centre": {
        "transform": Transform(power=0.5, centre=tuple(np.linspace(-1, 1, DIM).tolist()), unit_length=True),
        "grid": Grid(12, 900.0),
    },
    "radius": {"privacy": Privacy(radius=3.0)},
    "tight radius": {"privacy": Privacy(radius=0.5)},
}


@pytest.mark.parametrize("space", SPACES)
def test_every_space_gives_the_same_integers(space, rng):
    recipe = replace(RECIPE, statistics=("B",), sketch=None, **SPACES[space])
    classifier = classifier_of("lda", recipe, rng)
    x = np.vstack([rows(rng, 3000)[0], np.zeros((1, DIM)), 100.0 * rng.normal(size=(5, DIM))]).astype(np.float32)
    labels, probabilities, *_ = run(classifier, x)
    assert (labels == classifier.predict(x)).mean() >= 0.999
    apart = np.abs(probabilities - classifier.predict_proba(x)).max(axis=1)
    assert (apart <= 1e-7).mean() >= 0.999  # a power that is not a square root may round to the neighbouring step


def test_hinges_and_cosines_of_a_table_are_the_same_integers_to_the_bit(rng):
    recipe = golden_files.RECIPES["basis"]
    features, graph = Features.of(recipe), Graph()
    graph.name(add_features(graph, "embeddings", features), "features")
    dim = recipe.encoder.dim
    given, found = (
        helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["n", width])
        for name, width in (("embeddings", dim), ("features", recipe.dim))
    )
    session = session_of(graph.model([given], [found], {}))
    x = rng.uniform(-1.3, 1.3, size=(20_000, dim)).astype(np.float32).astype(np.float64)
    x[:10_000] = np.round(x[:10_000], 2)  # many are on a knot, or half way between two steps
    assert np.array_equal(session.run(None, {"embeddings": x})[0], features.values(x))


@pytest.mark.parametrize("head", ["lda", "ridge", "fisher_mix"])
def test_calibration_and_priors_in_force_travel_along(head, rng):
    """Of uneven classes, scores that are not log posteriors get a bias of their own."""
    y = rng.choice(4, size=900, p=[0.8, 0.1, 0.07, 0.03])
    x = (rng.normal(size=(900, DIM)) + 1.5 * np.eye(5, DIM)[y]).astype(np.float32)
    message = outgoing(RECIPE, Embedded(x, y), "north").message
    classifier = Classifier.fit(Total.of([message], RECIPE), head, warn=lambda _: None).with_priors([1, 1, 2, 1, 0])
    assert classifier.calibration.shift is not None
    labels, probabilities, *_ = run(classifier, x)
    assert np.abs(probabilities - classifier.predict_proba(x)).max() < 1e-7
    assert (labels == classifier.predict(x)).all()
