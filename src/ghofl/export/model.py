"""A classifier as one ONNX file: embeddings, or an encoder's own inputs, in; label, probabilities and scores out."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.classifier import Classifier
from ghofl.encoders.onnx_file import DESCRIPTION, Description, description_of
from ghofl.errors import EncoderError
from ghofl.export.decision import add_decision, add_novelty
from ghofl.export.exported import METADATA
from ghofl.export.features import add_features
from ghofl.export.graph import IR_VERSION, OPSET, Graph  # before onnx: its error has the install line

import onnx  # isort: skip
from onnx import TensorProto, compose, helper, version_converter  # isort: skip


def export_head(classifier: Classifier) -> Any:
    """The ONNX model of a classifier, from embeddings (n, dim) in doubles.

    Outputs: ``label`` (class names, as `Classifier.predict` gives them under the priors and thresholds in force),
    ``probabilities`` and ``scores`` (n, classes), in the order of the classes, and ``novelty`` (n) where the head can
    measure it.

    Guarantees
    ----------
    Features are the same integers as `Features.rows` gives, except for entries that a rounding of the last digit moves to
    a neighbouring step; scores are the rule's formula in doubles.
    """
    graph = Graph()
    x = helper.make_tensor_value_info("embeddings", TensorProto.DOUBLE, ["n", classifier.recipe.encoder.dim])
    return _finish(graph, "embeddings", [x], classifier)


def export_with_encoder(classifier: Classifier, encoder: str | Path) -> Any:
    """The ONNX model of an encoder's file (written by ``ghofl export-encoder``) followed by the classifier.

    Its inputs are the encoder's: ``planes`` of images, or ``ids`` and ``mask`` of tokens. Its metadata say, under
    ``ghofl`` as in the encoder's file, how samples become those.
    """
    data = Path(encoder).read_bytes()
    described = description_of(data, Path(encoder))
    if described is None:
        raise EncoderError(
            f"{encoder} was not written by 'ghofl export-encoder', so its inputs are not known; export the encoder."
        )
    _check_same_encoder(described, classifier)
    if described.views:
        raise EncoderError(
            f"{encoder} averages over views ({described.views}), which are made outside its network; export the head "
            "alone, or an encoder with one view ('ghofl export-encoder --views paper') and a head built from its rows."
        )
    front = onnx.load_from_string(data)
    if _opset(front).version < OPSET:
        front = version_converter.convert_version(front, OPSET)
    graph, width = Graph(), classifier.recipe.encoder.dim
    x = helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["n", width])
    back = _finish(graph, graph.op("Cast", "embeddings", to=TensorProto.DOUBLE), [x], classifier)
    _opset(back).version = _opset(front).version  # the operations of heads are the same in every later set
    front.ir_version = back.ir_version = max(IR_VERSION, front.ir_version)
    rows = front.graph.output[0].name
    del front.metadata_props[:]
    merged = compose.merge_models(front, back, io_map=[(rows, "embeddings")], prefix1="encoder/", prefix2="")
    for given in merged.graph.input:
        given.name = _rename(merged, given.name)
    helper.set_model_props(merged, {METADATA: _metadata(classifier), DESCRIPTION: _description(data)})
    onnx.checker.check_model(merged)
    return merged


def _opset(model: Any) -> Any:
    return next(entry for entry in model.opset_import if entry.domain in ("", "ai.onnx"))


def _finish(graph: Graph, x: str, inputs: list[Any], classifier: Classifier) -> Any:
    features = add_features(graph, x, classifier.features)
    scores = classifier.rule.write(graph, features)
    calibrated, shift = graph.op("Div", scores, graph.constant(classifier.temperature)), classifier.calibration.shift
    if shift is not None:
        calibrated = graph.op("Add", calibrated, graph.constant(shift))
    probabilities = graph.op("Softmax", calibrated, axis=1)
    names = graph.constant([*classifier.recipe.classes, ""])
    graph.name(graph.op("Gather", names, add_decision(graph, calibrated, probabilities, classifier)), "label")
    graph.name(probabilities, "probabilities")
    graph.name(scores, "scores")
    classes = len(classifier.recipe.classes)
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.STRING, ["n"]),
        helper.make_tensor_value_info("probabilities", TensorProto.DOUBLE, ["n", classes]),
        helper.make_tensor_value_info("scores", TensorProto.DOUBLE, ["n", classes]),
    ]
    if classifier.novelty_rule is not None:
        graph.name(add_novelty(graph, features, classifier.novelty_rule), "novelty")
        outputs.append(helper.make_tensor_value_info("novelty", TensorProto.DOUBLE, ["n"]))
    return graph.model(inputs, outputs, {METADATA: _metadata(classifier)})


def _metadata(classifier: Classifier) -> str:
    return json.dumps(
        {
            "head": classifier.head.name,
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


def _description(data: bytes) -> str:
    return next(entry.value for entry in onnx.load_from_string(data).metadata_props if entry.key == DESCRIPTION)


def _rename(model: Any, name: str) -> str:
    """An input's name without the prefix that merging gave it, everywhere it is used."""
    plain = name.removeprefix("encoder/")
    for node in model.graph.node:
        for i, used in enumerate(node.input):
            if used == name:
                node.input[i] = plain
    return plain


def largest_difference(model: Any, classifier: Classifier, x: np.ndarray) -> tuple[float, float]:
    """A model of `export_head` in ONNX Runtime against its classifier: share of equal labels, largest difference."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    labels, probabilities, *_ = session.run(None, {"embeddings": np.ascontiguousarray(x, dtype=np.float64)})
    apart = np.abs(probabilities - classifier.predict_proba(x)).max(initial=0.0)
    return float(np.mean(labels == classifier.predict(x))), float(apart)
