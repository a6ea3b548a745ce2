"""Image encoders against the libraries' own forward passes."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torchvision import models

from ghofl import encoders
from ghofl.encoders import Runtime, SampleEncoder, cosines
from ghofl.encoders.resize import FITS
from ghofl.errors import EncoderError, MissingExtraError, SampleError


@pytest.fixture(scope="module")
def encoder(checkpoint):
    return encoders.load("torchvision:mobilenet_v2", weights=checkpoint)


def rows(encoder, batch):
    return next(iter(encoder.encode([batch])))


def test_every_family_keeps_the_protocol(encoder, language_model, vit):
    others = [encoders.load(f"hf:{language_model}"), encoders.load("timm:test_vit", weights=vit)]
    for one in (encoder, *others, encoders.load("precomputed:x", dim=3)):
        assert isinstance(one, SampleEncoder)
        assert len(one.fingerprint) == 64
        assert one.sample_bytes > 0
        assert list(one.encode([])) == []


def test_an_embedding_is_what_the_network_gives_before_its_classifier(encoder, checkpoint, images):
    network = models.mobilenet_v2(weights=None)
    network.load_state_dict(load_file(checkpoint))
    network.classifier = torch.nn.Identity()
    planes = np.concatenate([encoder.preprocessing.planes(image[None]) for image in images])
    with torch.inference_mode():
        expected = network.eval()(torch.from_numpy(planes)).numpy()
    assert np.allclose(rows(encoder, images), expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("name", "dim"),
    [("resnet18", 512), ("efficientnet_b0", 1280), pytest.param("resnet50", 2048, marks=pytest.mark.slow)],
)
def test_the_paper_s_networks_load_without_a_download(name, dim, tmp_path, images):
    torch.manual_seed(0)
    save_file(models.get_model(name, weights=None).state_dict(), tmp_path / "w.safetensors")
    loaded = encoders.load(f"torchvision:{name}", weights=tmp_path / "w.safetensors")
    assert loaded.dim == dim
    assert rows(loaded, images[:1]).shape == (1, dim)
    assert loaded.classifier.shape == (1000, dim)


@pytest.mark.slow
def test_vgg_gives_its_penultimate_layer(tmp_path, images):
    torch.manual_seed(0)
    network = models.vgg16(weights=None).eval()
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    loaded = encoders.load("torchvision:vgg16", weights=tmp_path / "w.safetensors")
    planes = torch.from_numpy(loaded.preprocessing.planes(images[0][None]))
    with torch.inference_mode():
        expected = network.classifier[:-1](torch.flatten(network.avgpool(network.features(planes)), 1)).numpy()
    assert loaded.dim == 4096
    assert np.allclose(rows(loaded, images[:1]), expected, atol=1e-4 * np.abs(expected).max())


def test_places365_s_names_and_number_of_classes_are_understood(tmp_path, images):
    """Places365 saves {'arch', 'state_dict'} with 'module.' before every name, and 365 classes."""
    torch.manual_seed(0)
    network = models.resnet18(weights=None, num_classes=365)
    saved = {"arch": "resnet18", "state_dict": {f"module.{k}": v for k, v in network.state_dict().items()}}
    torch.save(saved, tmp_path / "resnet18_places365.pth.tar")
    save_file(network.state_dict(), tmp_path / "plain.safetensors")
    theirs = encoders.load("torchvision:resnet18", weights=tmp_path / "resnet18_places365.pth.tar")
    plain = encoders.load("torchvision:resnet18", weights=tmp_path / "plain.safetensors")
    assert theirs.classifier.shape == (365, 512)
    assert theirs.fingerprint == plain.fingerprint
    assert np.array_equal(rows(theirs, images), rows(plain, images))


def test_old_names_of_densenets_are_understood():
    from ghofl.encoders.checkpoints import _normalise

    old = "module.features.denseblock1.denselayer2.norm.1.running_mean"
    assert _normalise(old) == "features.denseblock1.denselayer2.norm1.running_mean"
    assert _normalise("features.conv0.weight") == "features.conv0.weight"


@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_timm_s_embedding_is_timm_s_own(name, tmp_path, images):
    import timm

    torch.manual_seed(0)
    network = timm.create_model(name, pretrained=False).eval()
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    loaded = encoders.load(f"timm:{name}", weights=tmp_path / "w.safetensors")
    planes = torch.from_numpy(loaded.preprocessing.planes(images[1][None]))
    with torch.inference_mode():
        expected = network.forward_head(network.forward_features(planes), pre_logits=True).numpy()
    assert np.allclose(rows(loaded, images[1:2]), expected, atol=1e-5)
    assert loaded.classifier.shape == (1000, loaded.dim)


def test_the_networks_that_the_page_names_are_timm_s():
    from timm.models import is_model_pretrained

    page = (Path(__file__).parents[2] / "docs" / "encoders.md").read_text(encoding="utf-8")
    named = re.findall(r"\(`timm:(\w+\.\w+)`\)", page)
    assert len(named) == 3
    assert all(map(is_model_pretrained, named))


def test_the_fingerprint_changes_with_weights_and_preprocessing_and_with_nothing_else(encoder, checkpoint, tmp_path):
    def mark(state, **options):
        save_file(state, tmp_path / "w.safetensors")
        return encoders.load("torchvision:mobilenet_v2", weights=tmp_path / "w.safetensors", **options).fingerprint

    state = load_file(checkpoint)
    assert mark(state) == encoder.fingerprint
    headless = {name: value for name, value in state.items() if not name.startswith("classifier")}
    assert mark(headless) == encoder.fingerprint, "the classifier is no part of the embedding"
    assert len({mark(state, fit=fit) for fit in FITS}) == len(FITS)
    touched = {**state, "features.0.0.weight": state["features.0.0.weight"] * (1 + 1e-6)}
    assert mark(touched) != encoder.fingerprint


def test_half_precision_is_taken_where_it_holds_and_refused_where_it_does_not(checkpoint, images, monkeypatch):
    full = rows(encoders.load("torchvision:mobilenet_v2", weights=checkpoint), images)
    half = encoders.load("torchvision:mobilenet_v2", Runtime(precision="bf16"), weights=checkpoint)
    monkeypatch.setattr("ghofl.encoders.torch_forward.HALF_PRECISION_COSINE", 0.99)
    assert np.median(cosines(rows(half, images), full)) > 0.99
    half = encoders.load("torchvision:mobilenet_v2", Runtime(precision="bf16"), weights=checkpoint)
    monkeypatch.setattr("ghofl.encoders.torch_forward.HALF_PRECISION_COSINE", 1.0)
    with pytest.raises(EncoderError, match="bf16 changes embeddings too much.* write `precision` fp32"):
        rows(half, images)


def test_rows_come_in_the_order_of_the_samples_whatever_their_shapes(encoder, images):
    together = rows(encoder, images)
    alone = np.concatenate([rows(encoder, [image]) for image in images])
    assert np.allclose(together, alone, atol=1e-4 * np.abs(alone).max())


def test_the_projection_spans_the_classifier_s_leading_directions(encoder):
    projection = encoders.projection_from(encoder, 20)
    matrix = projection.given_matrix(encoder.dim).astype(float)
    weights = encoder.classifier - encoder.classifier.mean(axis=0)
    exact = np.linalg.svd(weights.astype(np.float64), full_matrices=False)[2][:20].T
    overlap = np.linalg.svd(np.linalg.qr(matrix)[0].T @ exact)[1]
    assert overlap.min() > 0.9999
    lengths = np.linalg.norm(matrix, axis=0)
    assert lengths.max() / lengths.min() < 1.01
    assert 2**projection.shift == pytest.approx(lengths[0], rel=0.5)


@pytest.mark.parametrize(
    ("spec", "options", "says"),
    [
        ("resnet18", {}, "encoder 'resnet18' is unknown; write one of torchvision:mobilenet_v2"),
        ("torch:resnet18", {}, "is unknown"),
        ("onnx:", {}, "is unknown"),
        ("torchvision:resnet19", {"weights": "x"}, "torchvision has no network 'resnet19'"),
        ("timm:resnetty", {"weights": "x"}, "timm has no network 'resnetty'"),
        ("hf:folder", {"weights": "x"}, "--weights x has no meaning for 'hf:folder'; only torchvision and timm"),
        ("torchvision:resnet18", {"pooling": "cls"}, "--pooling cls has no meaning"),
        ("precomputed:x", {}, "give their length"),
    ],
)
def test_an_encoder_that_cannot_be_is_refused(spec, options, says):
    with pytest.raises(EncoderError, match=says):
        encoders.load(spec, **options)


def test_weights_that_do_not_fit_are_refused_with_what_is_wrong(checkpoint, tmp_path):
    def load(state, name="torchvision:mobilenet_v2"):
        save_file(state, tmp_path / "w.safetensors")
        return encoders.load(name, weights=tmp_path / "w.safetensors")

    state = load_file(checkpoint)
    with pytest.raises(EncoderError, match="lacks 'bn1.bias' and .* more; give a checkpoint of this network"):
        load(state, "torchvision:resnet18")
    with pytest.raises(EncoderError, match="has 'extra'"):
        load({**state, "extra": torch.zeros(1)})
    with pytest.raises(EncoderError, match="another shape of 'features.0.0.weight'"):
        load({**state, "features.0.0.weight": torch.zeros(1)})
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    with pytest.raises(EncoderError, match="not a safetensors file"):
        encoders.load("torchvision:resnet18", weights=tmp_path / "bad.safetensors")
    with pytest.raises(FileNotFoundError):
        encoders.load("torchvision:resnet18", weights=tmp_path / "missing.pth")


def test_a_pickle_with_code_in_it_is_not_run(tmp_path):
    class Payload:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    torch.save({"state_dict": Payload()}, tmp_path / "evil.pth")
    with pytest.raises(EncoderError, match="cannot be read as weights alone .* save its state_dict as .safetensors"):
        encoders.load("torchvision:resnet18", weights=tmp_path / "evil.pth")
    assert not (tmp_path / "owned").exists()


def test_samples_of_another_kind_are_refused(encoder):
    with pytest.raises(SampleError, match="expected an image of bytes"):
        rows(encoder, [np.zeros((8, 8), np.uint8)])
    with pytest.raises(SampleError, match="is str; expected an image"):
        rows(encoder, ["a text"])
    with pytest.raises(SampleError, match=r"a row is \(3,\); precomputed:x expects 2 numbers"):
        rows(encoders.load("precomputed:x", dim=2), [np.zeros(3)])


@pytest.mark.parametrize("device", ["cuda", "tpu9", "mps"])
def test_a_device_that_is_not_there_is_refused(device, checkpoint):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(EncoderError, match=f"device '{device}' is unknown|no device"):
        encoders.load("torchvision:mobilenet_v2", Runtime(device=device), weights=checkpoint)


@pytest.mark.parametrize(
    ("spec", "missing", "extra"),
    [
        ("torchvision:resnet18", "torchvision", "images"),
        ("timm:resnet18", "timm", "images"),
        ("hf:x", "transformers", "text"),
        ("onnx:x.onnx", "onnxruntime", "onnx"),
    ],
)
def test_a_missing_library_is_told_with_the_line_that_installs_it(spec, missing, extra, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, missing, None)
    for name in [name for name in sys.modules if name.startswith("ghofl.encoders.from_")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=rf"{spec} needs {missing}.*: pip install 'ghofl\[{extra}\]'"):
        encoders.load(spec)
