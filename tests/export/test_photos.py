"""Photos inside an ONNX file become the planes that Pillow makes of them."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from exported_heads import session_of
from ghofl.encoders import Preprocessing, Views
from ghofl.encoders.resize import KERNELS
from ghofl.export.graph import Graph
from ghofl.export.photos import add_photos

SHAPES = ((32, 32), (40, 57), (300, 200), (331, 500), (48, 48), (1, 1), (5, 900))


def network(size: int) -> object:
    """A network whose rows are its planes, pixel by pixel."""
    graph = Graph()
    graph.name(graph.op("Reshape", "planes", graph.constant([-1, 3 * size**2], np.int64)), "rows")
    planes = helper.make_tensor_value_info("planes", TensorProto.FLOAT, ["n", 3, size, size])
    rows = helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", 3 * size**2])
    return graph.model([planes], [rows], {})


def photo_session(own: Preprocessing, views: Views, size: int):
    graph = Graph()
    graph.name(add_photos(graph, "images", network(size), own, views, 3 * size**2), "rows")
    images = helper.make_tensor_value_info("images", TensorProto.UINT8, ["n", "height", "width", 3])
    rows = helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", 3 * size**2])
    return session_of(graph.model([images], [rows], {}))


def levels(own: Preprocessing, images: np.ndarray, views: Views | None = None) -> np.ndarray:
    """How many of 255 levels each pixel differs from Pillow's."""
    views = views or Views()

    def rows(preprocessing: Preprocessing, images: np.ndarray) -> np.ndarray:
        return preprocessing.planes(images).reshape(len(images), -1)

    found = photo_session(own, views, own.size).run(None, {"images": images})[0]
    difference = np.abs(found - views.mean(rows, images, own)).reshape(len(images), 3, -1)
    return difference * 255 * np.array(own.std, np.float32)[:, None]


def noise(rng: np.random.Generator, shape: tuple[int, int], n: int = 2) -> np.ndarray:
    """Neighbouring pixels have nothing in common: the hardest images to resize alike."""
    return rng.integers(256, size=(n, *shape, 3)).astype(np.uint8)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("fit", ["squash", "crop"])
def test_photos_of_any_shape_are_resized_as_pillow_does(fit, kernel, rng):
    """To 1e-3 of a level: Pillow adds up in doubles, and a matrix product in floats."""
    for shape in SHAPES:
        assert levels(Preprocessing(48, fit, kernel=kernel), noise(rng, shape)).max() < 1e-3, shape


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("fit", ["pillow-squash", "pillow-crop"])
def test_where_pillow_rounds_to_bytes_so_does_the_file(fit, kernel, rng):
    """One of 255 levels, here and there: Pillow's weights have 22 bits, and it chooses which direction comes first."""
    for shape in ((32, 32), (40, 57), (48, 48), (331, 500)):
        apart = levels(Preprocessing(48, fit, kernel=kernel), noise(rng, shape))
        assert apart.max() < 2.1, shape
        assert np.mean(apart > 0.5) < 0.1, shape


def test_the_mean_over_mirrored_photos_and_sizes_is_the_encoder_s(rng):
    own = Preprocessing(48)
    assert levels(own, noise(rng, (40, 57)), Views(flip=True)).max() < 1e-3
