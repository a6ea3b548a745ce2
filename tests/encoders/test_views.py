"""Views of images: means over flips and sizes, pooled maps, fingerprints, ONNX, and what a recipe says about them."""

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torchvision import models

from ghofl import encoders
from ghofl.encoders import Views, ViewsRequest
from ghofl.encoders.export import export
from ghofl.encoders.maps import stage_ends
from ghofl.encoders.onnx_file import Description
from ghofl.errors import EncoderError
from ghofl.recipe import Encoder


def load(weights, views=None, name="shufflenet_v2_x0_5", **options):
    return encoders.load(f"torchvision:{name}", weights=weights[name], views=views, **options)


def rows(encoder, batch):
    return next(iter(encoder.encode([batch])))


def mirrored(images):
    return [np.ascontiguousarray(image[:, ::-1]) for image in images]


def test_the_flip_view_is_the_mean_of_an_image_s_row_and_its_mirror_image_s(weights, images):
    one, flip = load(weights), load(weights, "flip")
    expected = (rows(one, images) + rows(one, mirrored(images))) / 2
    assert np.allclose(rows(flip, images), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert flip.dim == one.dim


@pytest.mark.parametrize("fit", ["squash", "crop", "pillow-crop"])
def test_an_image_and_its_mirror_image_have_one_row(weights, images, fit):
    views = load(weights, "flip 64,96", fit=fit)
    x, one = rows(views, images), load(weights, "64,96", fit=fit)
    assert np.abs(x - rows(views, mirrored(images))).max() <= 1e-6 * np.abs(x).max()
    assert np.abs(rows(one, images) - rows(one, mirrored(images))).max() > 1e-3 * np.abs(x).max()


def test_scales_are_the_mean_over_preprocessings_of_those_sizes(weights, images):
    views = load(weights, "64,96")
    single = [load(weights, str(size)) for size in (64, 96)]
    expected = (rows(single[0], images) + rows(single[1], images)) / 2
    assert np.allclose(rows(views, images), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert np.abs(rows(single[0], images) - rows(single[1], images)).max() > 1e-3 * np.abs(expected).max()


def test_one_view_leaves_rows_and_fingerprint_as_they_are(weights, images):
    plain = load(weights)
    for same in (
        load(weights, Views()),
        load(weights, ""),
        load(weights, "paper"),
        load(weights, ViewsRequest("paper")),
    ):
        assert same.fingerprint == plain.fingerprint
        assert rows(same, images).tobytes() == rows(plain, images).tobytes()
    assert encoders.identity(plain) == Encoder(plain.dim, plain.name, plain.fingerprint)


def test_every_view_has_a_fingerprint_of_its_own(weights):
    texts = ("", "flip", "160", "160,224", "flip 160,224", "mean+std", "stages", "mean+std stages", "bicubic")
    assert len({load(weights, text).fingerprint for text in texts}) == len(texts)
    assert load(weights, "bilinear").fingerprint == load(weights).fingerprint  # it is bilinear anyway
    assert load(weights, "224").fingerprint != load(weights).fingerprint  # and this says so


def test_qualities_name_the_trade(weights):
    found = {name: str(load(weights, name).views) for name in ("paper", "quick", "default", "best")}
    assert found["paper"] == ""
    assert found["quick"] == "flip"
    assert found["default"] == "flip 160,224,288"
    assert found["best"] == "flip 160,224,288 mean+std stages"
    with pytest.raises(EncoderError, match="quality is 'good'; write one of paper, quick, default, best"):
        ViewsRequest("good")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "flip",
        "flip 192,256,320 mean+std",
        "bilinear",
    ],
)
def test_views_come_back_from_their_text(text):
    assert str(Views.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["flop", "flip flip", " flip", "flip  160", "160,,224", "8", "99999", "160 224", "1025", "mean+std mean"]
)
def test_a_text_that_is_not_views_is_refused(text):
    with pytest.raises(EncoderError, match="views are .*write paper, quick, default, best, or words|scales are"):
        Views.parse(text)


def test_at_most_eight_sizes_are_taken():
    with pytest.raises(EncoderError, match="at most 8 sizes from 16 to 1024"):
        Views(scales=tuple(range(32, 32 * 10, 32)))


def test_deviations_and_stages_follow_the_network_s_own_row(weights, images):
    network = models.resnet18(weights=None).eval()
    from safetensors.torch import load_file

    network.load_state_dict(load_file(weights["resnet18"]))
    plain, whole = (load(weights, views, "resnet18") for views in ("", "mean+std stages"))
    x = torch.from_numpy(plain.preprocessing.planes(images[0][None]))
    with torch.inference_mode():
        maps = [network.maxpool(network.relu(network.bn1(network.conv1(x))))]
        for layer in (network.layer1, network.layer2, network.layer3, network.layer4):
            maps.append(layer(maps[-1]))
    expected = [maps[4].mean((2, 3)), maps[4].std((2, 3), correction=0), *(m.mean((2, 3)) for m in maps[1:4])]
    assert whole.dim == 512 + 512 + 64 + 128 + 256
    assert np.allclose(rows(whole, images[:1]), torch.cat(expected, 1).numpy(), rtol=1e-3, atol=1e-4)
    assert load(weights, "stages", "resnet18").dim == 512 + 64 + 128 + 256


def test_stages_of_mobilenet_end_where_the_channels_change():
    ends = stage_ends(models.mobilenet_v2(weights=None), 64)
    assert ends[-6:] == [*(f"features.{i}" for i in (6, 10, 13, 16, 17)), "features"]


def test_a_network_of_one_size_refuses_others_and_its_default_leaves_them_out(images, tmp_path):
    name = "vit_tiny_patch16_224"
    save_file(timm.create_model(name, pretrained=False).state_dict(), tmp_path / "vit.safetensors")

    def of_vit(views):
        return encoders.load(f"timm:{name}", weights=tmp_path / "vit.safetensors", views=views)

    with pytest.raises(EncoderError, match="takes images of 224 pixels, not of 192"):
        of_vit("flip 192,224")
    with pytest.raises(EncoderError, match="no earlier maps"):
        of_vit("stages")
    assert str(ViewsRequest("default").views(64)) == "flip 32,64,96"
    flip = of_vit(ViewsRequest("default"))
    assert str(flip.views) == "flip"
    one = of_vit("paper")
    assert str(one.views) == ""
    expected = (rows(one, images) + rows(one, mirrored(images))) / 2
    assert np.allclose(rows(flip, images), expected, atol=1e-5)


def test_texts_and_files_with_views_of_their_own_take_none(language_model, tmp_path):
    with pytest.raises(EncoderError, match="only torchvision and timm take it"):
        encoders.load(f"hf:{language_model}", views="flip")
    with pytest.raises(EncoderError, match="has no meaning for 'precomputed:x'"):
        encoders.load("precomputed:x", dim=3, views="flip")
    assert (
        encoders.load(f"hf:{language_model}", views=ViewsRequest()).fingerprint
        == encoders.load(f"hf:{language_model}").fingerprint
    )
    assert encoders.agreed_views("onnx:m.onnx", Encoder(3, views="flip")) is None
    assert encoders.agreed_views("timm:resnet18", Encoder(3, views="flip")) == Views(flip=True)
    assert encoders.agreed_views("timm:resnet18", Encoder(3)) is None


def test_timm_s_networks_have_views_too(tmp_path, images):
    import timm

    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet", pretrained=False).state_dict(), tmp_path / "w.safetensors")
    one, best = (encoders.load("timm:test_resnet", weights=tmp_path / "w.safetensors", views=v) for v in ("", "best"))
    assert str(best.views) == "flip 128,160,192 mean+std stages"
    x = rows(best, images)
    assert x.shape[1] == best.dim > 2 * one.dim
    assert np.abs(x - rows(best, mirrored(images))).max() <= 1e-6 * np.abs(x).max()


@pytest.mark.slow
@pytest.mark.parametrize("views", ["flip", "flip 64,96 mean+std stages"])
def test_an_exported_encoder_applies_the_views_and_keeps_the_fingerprint(weights, images, tmp_path, views):
    original = load(weights, views)
    assert export(original, tmp_path / "m.onnx") < 1e-4
    exported = encoders.load(f"onnx:{tmp_path / 'm.onnx'}")
    assert np.abs(rows(exported, images) - rows(original, images)).max() < 1e-3
    assert (exported.fingerprint, exported.views) == (original.fingerprint, original.views)
    assert encoders.identity(exported).views == views


@pytest.mark.parametrize("views", ["flop", "flip 99999"])
def test_a_description_with_views_that_are_none_is_refused(views):
    with pytest.raises(EncoderError, match="views are|scales are"):
        Description("n", 3, "f" * 64, "image", preprocessing=encoders.Preprocessing(), views=views)
    with pytest.raises(EncoderError, match="only images have views"):
        Description("n", 3, "f" * 64, "text", tokenizer="{}", longest=8, views="flip")


def test_directions_of_a_classifier_need_rows_that_it_sees(weights):
    assert encoders.projection_from(load(weights, "flip"), 4).dim == 4
    with pytest.raises(EncoderError, match="gives more numbers than its classifier takes"):
        encoders.projection_from(load(weights, "stages"), 4)
