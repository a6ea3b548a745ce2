"""A classifier as one ONNX file: embeddings, or an encoder's own inputs, in; label, probabilities and scores out."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.classifier import Classifier
from ghofl.encoders.onnx_file import DESCRIPTION, Description, description_of
from ghofl.encoders.views import Views
from ghofl.errors import EncoderError
from ghofl.export.decision import add_decision, add_novelty
from ghofl.export.features import add_features
from ghofl.export.graph import OPSET, Graph  # before onnx: its error has the install line
from ghofl.export.photos import add_photos
from ghofl.names import shorten

import onnx  # isort: skip
from onnx import TensorProto, helper, inliner, version_converter  # isort: skip

METADATA = "ghofl.classifier"  # the entry of a file's metadata that says what its head is
PHOTOS = "Photos as decoded, of one size per run and of any size: bytes of red, green and blue from 0 to 255."
TOKENS = (
    "Numbers of the tokens of each text, at most {longest}, by the tokenizer in the file's metadata under 'ghofl'.",
    "1 where there is a token, 0 after the end of a text.",
)
OUTPUTS = {
    "label": "The name of the class, or an empty text where no class reaches its threshold.",
    "probabilities": "One number per class, in the order of the classes.",
    "scores": "What the head computes for each class, before calibration.",
    "novelty": "How far the sample is from all classes; large for one that belongs to none.",
}


def export_head(classifier: Classifier) -> Any:
    """The ONNX model of a classifier, from embeddings (n, dim).

    Outputs: ``label`` (class names, as `Classifier.predict` gives them under the priors and thresholds in force),
    ``probabilities`` and ``scores`` (n, classes), in the order of the classes, and ``novelty`` (n) where the head can
    measure it. Numbers go in and come out as float32.

    Guarantees
    ----------
    Features are the same integers as `Features.rows` gives, except for entries that a rounding of the last digit moves to
    a neighbouring step; scores are the rule's formula in doubles.
    """
    recipe = classifier.recipe
    words = f"Embeddings of {shorten(recipe.encoder.name)}: {recipe.encoder.dim} numbers per row."
    x = helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["n", recipe.encoder.dim], words)
    return _finish(Graph(), "embeddings", [x], classifier, {})


def export_with_encoder(classifier: Classifier, encoder: str | Path) -> Any:
    """The ONNX model of an encoder's file (written by ``ghofl export``) followed by the classifier.

    Its inputs are ``images``, bytes (n, height, width, 3) of photos of one size and any size, or ``ids`` and ``mask`` of
    tokens; resizing and views are part of the model. Its metadata have the description of the encoder's file under
    ``ghofl``.
    """
    data = Path(encoder).read_bytes()
    described = description_of(data, Path(encoder))
    if described is None:
        raise EncoderError(
            f"{encoder} was not written by 'ghofl export', so its inputs are not known; export the encoder."
        )
    _check_same_encoder(described, classifier)
    network = onnx.load_from_string(data)
    description = next(entry.value for entry in network.metadata_props if entry.key == DESCRIPTION)
    network = inliner.inline_local_functions(network)
    if next(entry for entry in network.opset_import if entry.domain in ("", "ai.onnx")).version < OPSET:
        network = version_converter.convert_version(network, OPSET)
    graph = Graph()
    inputs, x = _front(graph, network, described)
    return _finish(graph, x, inputs, classifier, {DESCRIPTION: description})


def _front(graph: Graph, network: Any, described: Description) -> tuple[list[Any], str]:
    """The inputs of a model with its encoder, and the embeddings."""
    if described.preprocessing is None:
        inputs = list(network.graph.input)
        for given, words in zip(inputs, TOKENS, strict=True):
            given.doc_string = words.format(longest=described.longest)
        return inputs, graph.inline(network, *(given.name for given in inputs))
    shape = ["n", "height", "width", 3]
    views = Views.parse(described.views)
    inputs = [helper.make_tensor_value_info("images", TensorProto.UINT8, shape, PHOTOS)]
    return inputs, add_photos(graph, "images", network, described.preprocessing, views, described.dim)


def _finish(graph: Graph, x: str, inputs: list[Any], classifier: Classifier, metadata: dict[str, str]) -> Any:
    """The model whose float embeddings are `x`."""
    features = add_features(graph, graph.op("Cast", x, to=TensorProto.DOUBLE), classifier.features)
    scores = classifier.rule.write(graph, features)
    calibrated, shift = graph.op("Div", scores, graph.constant(classifier.temperature)), classifier.calibration.shift
    if shift is not None:
        calibrated = graph.op("Add", calibrated, graph.constant(shift))
    probabilities = graph.op("Softmax", calibrated, axis=1)
    names = graph.constant([*classifier.recipe.classes, ""])
    graph.name(graph.op("Gather", names, add_decision(graph, calibrated, probabilities, classifier)), "label")
    numbers = {"probabilities": probabilities, "scores": scores}
    if classifier.novelty_rule is not None:
        numbers["novelty"] = add_novelty(graph, features, classifier.novelty_rule)
    outputs = [helper.make_tensor_value_info("label", TensorProto.STRING, ["n"], OUTPUTS["label"])]
    for name, value in numbers.items():
        graph.name(graph.op("Cast", value, to=TensorProto.FLOAT), name)
        shape = ["n"] if name == "novelty" else ["n", len(classifier.recipe.classes)]
        outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape, OUTPUTS[name]))
    return graph.model(inputs, outputs, {METADATA: _metadata(classifier), **metadata})


def _metadata(classifier: Classifier) -> str:
    return json.dumps(
        {
            "head": classifier.head,
            "classes": list(classifier.recipe.classes),
            "dim": classifier.recipe.encoder.dim,
            "encoder": classifier.recipe.encoder.name,
            "encoder_fingerprint": classifier.recipe.encoder.fingerprint,
            "recipe": classifier.recipe.fingerprint,
            "sites": classifier.sites,
            "rows": classifier.rows,
            "guarantee": None if classifier.guarantee is None else classifier.guarantee.to_dict(),
            **({"personal": classifier.personal} if classifier.personal else {}),
            "novelty_levels": None if classifier.novelty_rule is None else classifier.novelty_rule.levels.tolist(),
        },
        ensure_ascii=False,
        sort_keys=True,
    )


def _check_same_encoder(described: Description, classifier: Classifier) -> None:
    wanted = classifier.recipe.encoder
    if described.dim != wanted.dim or (wanted.fingerprint and described.fingerprint != wanted.fingerprint):
        raise EncoderError(
            f"the encoder's file is {described.name} ({described.fingerprint[:12]}…, {described.dim} numbers per row) and "
            f"the head was built for {wanted.name} ({wanted.fingerprint[:12]}…, {wanted.dim}); export that encoder."
        )


def largest_difference(model: Any, classifier: Classifier, x: np.ndarray) -> tuple[float, float]:
    """A model of `export_head` in ONNX Runtime against its classifier: share of equal labels, largest difference."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    labels, probabilities, *_ = session.run(None, {"embeddings": np.ascontiguousarray(x, dtype=np.float32)})
    apart = np.abs(probabilities - classifier.predict_proba(x)).max(initial=0.0)
    return float(np.mean(labels == classifier.predict(x))), float(apart)
