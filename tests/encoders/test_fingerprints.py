"""A fingerprint never changes between releases: a recipe made with one accepts rows made with the next."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ghofl import encoders
from ghofl.encoders.base import fingerprint
from ghofl.encoders.resize import Preprocessing

PINNED = {
    "squash": "e102c64542559eb9237a49dff31bca455d45bbe32bf0d9e59717077a205844fa",
    "crop": "0eb6880139e52ff31d8e2e1ec38ad33a27e41adacb449c94319eef33b638944e",
    "pillow-squash": "04b974a3aba6bbf7b3b7a87622929d1ed3b72f541f87d874940330cc24ab9e2d",
    "pillow-crop": "14d9d695bee78280bd348926889d6f3ee8f7380813027d41e36e465246c93404",
}


def write_weights(network, path):
    """Weights that follow from their positions alone, so that no generator of any library decides them."""
    state = network.state_dict()
    for i, (name, value) in enumerate(state.items()):
        if value.is_floating_point():
            state[name] = ((torch.arange(value.numel()) * 7 + i) % 31).reshape(value.shape).to(value.dtype) / 31
    save_file(state, path)
    return path


@pytest.mark.parametrize("fit", PINNED)
def test_the_fingerprint_of_a_torchvision_encoder_stays_what_it_was(fit, tmp_path):
    from torchvision import models

    weights = write_weights(models.shufflenet_v2_x0_5(weights=None), tmp_path / "w.safetensors")
    assert encoders.load("torchvision:shufflenet_v2_x0_5", weights=weights, fit=fit).fingerprint == PINNED[fit]


def test_the_fingerprint_of_a_timm_encoder_stays_what_it_was(tmp_path):
    import timm

    weights = write_weights(timm.create_model("test_resnet", pretrained=False), tmp_path / "w.safetensors")
    pinned = "f069fed37149979c15912d599ea22a89e171db40153d960b38c6a99dad547f1d"
    assert encoders.load("timm:test_resnet", weights=weights).fingerprint == pinned


WITH_VIEWS = {
    "quick": "8abcede375d7d71fcf1d8f51f59b42980bb086e5cac0163b65e5eaef91ed4343",
    "default": "7e90d1b319a2ef06e7be33c8710e70d8102ede0948fc70b166095020780663f3",
    "best": "26c609d0cdd301a2762f849c322b54377421e6c4a7f65228a7f171410cf7dec0",
    "bicubic": "a38379d29854057c01eab2e578a3fc3e24772f5c06d98f7e53f3ac862df8152e",
}


@pytest.mark.parametrize("views", WITH_VIEWS)
def test_the_fingerprint_of_an_encoder_with_views_stays_what_it_was(views, tmp_path):
    from torchvision import models

    weights = write_weights(models.shufflenet_v2_x0_5(weights=None), tmp_path / "w.safetensors")
    loaded = encoders.load("torchvision:shufflenet_v2_x0_5", weights=weights, views=views)
    assert loaded.fingerprint == WITH_VIEWS[views]


def test_the_fingerprint_of_precomputed_rows_stays_what_it_was():
    pinned = "b49584fd9b680f5995e33c09171364d706db0898d21936c5b804547562a1275d"
    assert encoders.load("precomputed:clip", dim=512).fingerprint == pinned


def test_every_setting_of_preprocessing_enters_the_fingerprint():
    others = {"size": 96, "fit": "crop", "share": 0.9, "kernel": "bicubic", "mean": (0.1,) * 3, "std": (0.2,) * 3}
    made = [Preprocessing(), *(Preprocessing(**{name: value}) for name, value in others.items())]
    assert len({fingerprint({"w": np.zeros(2)}, one.settings()) for one in made}) == 7
    assert set(Preprocessing().settings()) == set(others)


def test_the_fingerprint_of_the_real_minilm_stays_what_it_was(minilm):
    pinned = "4eeaa4fd262ec042d4b89f0ebefcdafe53266bbdb27bc75862e466a348248ba6"
    assert encoders.load(f"hf:{minilm}").fingerprint == pinned
