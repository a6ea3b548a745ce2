"""An encoder and a head in one ONNX file say what the two say in ghofl: samples in, the same labels out."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from exported_heads import session_of
from ghofl import Classifier, Encoder, Recipe, Total, encoders
from ghofl.cli import app
from ghofl.encoders.export import export
from ghofl.encoders.onnx_file import DESCRIPTION
from ghofl.encoders.tokens import pad
from ghofl.errors import EncoderError
from ghofl.export.model import export_head, export_with_encoder
from ghofl.features import fit_grid
from ghofl.outbox import Embedded, outgoing

pytestmark = pytest.mark.slow
CLASSES = ("dark", "red", "light")
MARGIN = 1e-3  # between the best and the second probability: nearer ones may change places


def photos(rng: np.random.Generator, n: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Noisy images of three shades, and which shade each has."""
    y = np.arange(n) % 3
    shades = np.array([[70, 70, 70], [150, 90, 90], [170, 170, 170]])[y]
    return [np.clip(rng.normal(shade, 60, size=(32, 32, 3)), 0, 255).astype(np.uint8) for shade in shades], y


def texts(rng: np.random.Generator, n: int) -> tuple[list[str], np.ndarray]:
    """Made-up sentences of three sets of words, which overlap."""
    y = np.arange(n) % 3
    words = ("the cat sat on a mat far", "a dog ran on the long road", "very far away home the mat")
    return [" ".join(rng.choice(words[c].split(), size=rng.integers(2, 9))) for c in y], y


def rows_of(encoder, samples):
    return next(iter(encoder.encode([samples])))


def fitted(encoder, samples, y, head: str, novelty: bool = False) -> Classifier:
    x = rows_of(encoder, samples)
    recipe = fit_grid(Recipe(CLASSES, encoders.identity(encoder), ("S",)), x)
    return Classifier.fit(Total.of([outgoing(recipe, Embedded(x, y), "north").message], recipe), head, novelty=novelty)


def run(model, inputs):
    session = session_of(model)
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs), strict=True))


def check_same(found, classifier: Classifier, x: np.ndarray) -> None:
    expected = classifier.predict_proba(x)
    ordered = np.sort(expected, axis=1)
    is_clear = ordered[:, -1] - ordered[:, -2] > MARGIN
    assert is_clear.mean() > 0.9
    names = np.array(CLASSES, dtype=object)[expected.argmax(axis=1)]
    assert (found["label"] == names)[is_clear].all()
    assert (
        np.mean(np.abs(found["probabilities"] - expected).max(axis=1) < 1e-2) > 0.95
    )  # a step of the grid here and there
    assert np.median(np.abs(found["probabilities"] - expected)) < 1e-4


@pytest.fixture(scope="module")
def of_images(vit, tmp_path_factory):
    original = encoders.load("timm:test_vit", weights=vit)
    file = tmp_path_factory.mktemp("images") / "vit.onnx"
    export(original, file)
    return original, file


@pytest.mark.parametrize("head", ["lda", "rda"])
@pytest.mark.parametrize("with_novelty", [True, False])
def test_an_image_encoder_and_a_head_in_one_file_label_images_as_the_two_do(of_images, rng, head, with_novelty):
    original, file = of_images
    classifier = fitted(original, *photos(rng, 240), head, with_novelty)
    samples = photos(rng, 120)[0]
    found = run(export_with_encoder(classifier, file), {"images": np.stack(samples)})
    x = rows_of(original, samples)
    check_same(found, classifier, x)
    assert ("novelty" in found) == with_novelty
    if with_novelty:
        assert found["novelty"] == pytest.approx(classifier.novelty(x), rel=0.05, abs=0.5)


def test_a_text_encoder_and_a_head_in_one_file_label_texts_as_the_two_do(language_model, rng, tmp_path):
    original = encoders.load(f"hf:{language_model}")
    export(original, tmp_path / "bert.onnx")
    classifier = fitted(original, *texts(rng, 300), "lda")
    samples = texts(rng, 120)[0]
    model = export_with_encoder(classifier, tmp_path / "bert.onnx")
    ids, mask = pad(original.tokens.numbers(samples))
    found = run(model, dict(zip([given.name for given in model.graph.input], (ids, mask), strict=True)))
    check_same(found, classifier, rows_of(original, samples))
    described = json.loads(next(entry.value for entry in model.metadata_props if entry.key == DESCRIPTION))
    assert described["kind"] == "text"


@pytest.mark.parametrize("views", ["flip 64,96", "flip 64,96 mean+std stages bicubic"])
def test_an_encoder_with_views_and_a_head_in_one_file_label_photos_as_the_two_do(views, checkpoint, rng, tmp_path):
    original = encoders.load("torchvision:mobilenet_v2", weights=checkpoint, views=views)
    export(original, tmp_path / "m.onnx")
    classifier = fitted(original, *photos(rng, 150), "lda")
    samples = photos(rng, 40)[0]
    model = export_with_encoder(classifier, tmp_path / "m.onnx")
    network, head = (tmp_path / "m.onnx").stat().st_size, len(export_head(classifier).SerializeToString())
    assert len(model.SerializeToString()) < 1.1 * (network + head)  # weights are there once, whatever the views
    check_same(run(model, {"images": np.stack(samples)}), classifier, rows_of(original, samples))


def test_the_command_refuses_the_file_of_another_encoder_and_one_that_says_nothing(of_images, vit, rng, tmp_path):
    original, file = of_images
    classifier = fitted(original, *photos(rng, 60), "lda")
    other = replace(classifier.recipe, encoder=Encoder(dim=64, name="other", fingerprint="f" * 64))
    with pytest.raises(EncoderError, match="the head was built for other"):
        export_with_encoder(replace(classifier, recipe=other), file)
    (tmp_path / "foreign.onnx").write_bytes(b"not sealed")
    with pytest.raises(EncoderError, match="was not written by 'ghofl export'"):
        export_with_encoder(classifier, tmp_path / "foreign.onnx")
    classifier.save(tmp_path / "head.safetensors")
    arguments = ["export", tmp_path / "head.safetensors", "--json", "-", "-o"]
    of_torch = ["timm:test_vit", "--weights", str(vit)]
    for spec, name in (([f"onnx:{file}"], "one.onnx"), (of_torch, "other.onnx")):
        done = CliRunner().invoke(app, [*map(str, arguments), str(tmp_path / name), "--encoder", *spec])
        assert done.exit_code == 0, done.output
        assert json.loads(done.output)["inputs"] == ["images"]
    samples = {"images": np.stack(photos(rng, 9)[0])}
    one, other = (run(onnx.load(tmp_path / name), samples)["probabilities"] for name in ("one.onnx", "other.onnx"))
    assert one == pytest.approx(other, abs=1e-6)
