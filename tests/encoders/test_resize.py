import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from ghofl.encoders import Preprocessing
from ghofl.encoders.resize import FITS
from ghofl.encoders.torch_forward import planes_on
from ghofl.errors import EncoderError

PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def image(shape, seed=0):
    return np.random.default_rng(seed).integers(256, size=(2, *shape, 3)).astype(np.uint8)


@pytest.mark.parametrize("shape", [(32, 32), (57, 40), (224, 224), (300, 401)])
@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
def test_resizing_agrees_with_torch_up_and_down(shape, kernel):
    """torch computes its weights in float32, which moves a pixel by some 1e-5 of the range."""
    x = image(shape)
    expected = interpolate(
        torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255, size=(224, 224), mode=kernel, antialias=True
    )
    assert np.abs(Preprocessing(kernel=kernel, **PLAIN).planes(x) - expected.numpy()).max() < 5e-5


@pytest.mark.parametrize("shape", [(300, 401), (256, 256), (40, 90), (500, 224)])
def test_cropping_agrees_with_torchvision_s_evaluation_transform(shape):
    from torchvision.transforms import v2

    x = torch.from_numpy(image(shape)).permute(0, 3, 1, 2).float() / 255
    transform = v2.Compose([v2.Resize(256, antialias=True), v2.CenterCrop(224)])
    ours = Preprocessing(fit="crop", share=0.875, **PLAIN).planes(image(shape))
    # The longer side is rounded differently (256 · 401/300): a shift of a fraction of a pixel at most.
    assert np.abs(ours - transform(x).numpy()).mean() < (0.06 if shape[0] != shape[1] else 1e-5)


@pytest.mark.parametrize(
    "shape", [(32, 32), (57, 40), (224, 224), (300, 401), (40, 90), (500, 224), (3, 5), (417, 107)]
)
@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
@pytest.mark.parametrize("fit", ["pillow-squash", "pillow-crop"])
def test_pillow_s_fits_give_torchvision_s_bytes_of_a_pillow_image(shape, kernel, fit):
    from PIL import Image
    from torchvision.transforms import v2

    how = v2.InterpolationMode(kernel)
    steps = [v2.Resize((224, 224), how)] if fit == "pillow-squash" else [v2.Resize(256, how), v2.CenterCrop(224)]
    expected = np.stack([np.asarray(v2.Compose(steps)(Image.fromarray(one))) for one in image(shape)])
    ours = Preprocessing(fit=fit, kernel=kernel, mean=(0.0, 0.0, 0.0), std=(1 / 255, 1 / 255, 1 / 255))
    assert np.array_equal(ours.planes(image(shape)), expected.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("shape", [(57, 40), (32, 32), (300, 401), (3, 5), (224, 224)])
@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
def test_pillow_and_torch_resize_alike(shape, fit, kernel):
    x, made = image(shape), Preprocessing(size=64, fit=fit, kernel=kernel)
    planes = planes_on(torch.device("cpu"), x, made)
    assert planes.is_contiguous(memory_format=torch.channels_last)
    assert np.allclose(planes.numpy(), made.planes(x), atol=5e-5 if not made.is_of_bytes else 1e-6)


@pytest.mark.parametrize("fit", FITS)
def test_a_batch_of_large_images_is_resized_in_parts(fit, monkeypatch):
    x, made = np.concatenate([image((20, 30), seed) for seed in range(3)]), Preprocessing(size=16, fit=fit)
    whole = planes_on(torch.device("cpu"), x, made)
    monkeypatch.setattr("ghofl.encoders.torch_forward.PIXELS_AT_ONCE", 20 * 30 * 4)
    assert torch.equal(planes_on(torch.device("cpu"), x, made), whole)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"fit": "stretch"}, "fit is 'stretch'; write one of squash, crop"),
        ({"kernel": "nearest"}, "kernel is 'nearest'; write one of bilinear, bicubic"),
        ({"size": 0}, "size 0"),
        ({"mean": (0.5,)}, "three numbers"),
    ],
)
def test_what_cannot_work_is_refused(wrong, says):
    with pytest.raises(EncoderError, match=says):
        Preprocessing(**wrong)
