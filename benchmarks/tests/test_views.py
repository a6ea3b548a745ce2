"""The benchmark of views measures the library: its moments, its heads, its rows."""

import io
from types import SimpleNamespace

import numpy as np
import on_gpu
import pytest
import views
from PIL import Image

from ghofl.encoders import Views
from ghofl.features import Features
from ghofl.gaussians import Gaussians
from ghofl.heads.blend import BlendOptions, fit_blend
from ghofl.heads.spec import HeadSpec
from ghofl.moments import Layout, Moments
from ghofl.simulation.simulate import Dataset, recipe_for
from ghofl.wire.total import Total


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    x = np.abs(rng.normal(size=(400, 24)) + 1.5 * rng.normal(size=(4, 24))[y]).astype(np.float32)
    return Dataset(x[:300], y[:300], x[300:], y[300:], tuple("abcd"))


def test_moments_made_on_a_device_are_the_library_s_to_the_bit(data):
    recipe = recipe_for(data, [HeadSpec.parse("best")], power=0.5, lift=32)
    features, layout = Features.of(recipe), Layout.of(recipe)
    q = on_gpu.features_of(features, data.x_train)
    assert np.array_equal(q, features.rows(data.x_train)[0])
    ours = on_gpu.moments_of(q, data.y_train, layout, "cpu")
    assert ours == Moments.of(q, data.y_train, layout, features.sketch)


def test_best_is_the_library_s_blend(data):
    recipe = recipe_for(data, [HeadSpec.parse("best")], power=0.5, lift=32)
    features = Features.of(recipe)
    moments = Moments.of(features.rows(data.x_train)[0], data.y_train, Layout.of(recipe), features.sketch)
    gaussians = Gaussians.of_total(Total(recipe, moments), features)
    head = fit_blend(gaussians, BlendOptions(parts="lda+z.student"))
    expected = float((head.predict(features.values(data.x_test)) == data.y_test).mean())
    assert views.heads_of(data, "cpu", lift=32)["best"] == expected


def test_rows_of_views_are_means_of_single_views():
    rng = np.random.default_rng(0)
    found = {(size, flip): rng.normal(size=(3, 3232)).astype(np.float32) for size in (160, 224, 288) for flip in (0, 1)}
    assert np.array_equal(views.rows_of(Views(), found), found[224, 0][:, :1280])
    expected = sum(found.values()) / 6
    assert np.allclose(views.rows_of(Views.parse("flip 160,224,288 mean+std stages"), found), expected, atol=1e-6)
    stages = views.rows_of(Views.parse("flip 160,224,288 stages"), found)
    assert np.allclose(stages, np.delete(expected, np.arange(1280, 2560), axis=1), atol=1e-6)


def test_packs_give_their_images_back(tmp_path):
    rng = np.random.default_rng(0)
    small = rng.integers(256, size=(6, 32, 32, 3)).astype(np.uint8)
    montage = small.reshape(2, 3, 32, 32, 3).transpose(0, 2, 1, 3, 4).reshape(64, 96, 3)
    file = io.BytesIO()
    Image.fromarray(montage).save(file, "PNG")
    blob = np.frombuffer(file.getvalue(), np.uint8)
    fields = {"labels": np.arange(6) % 3, "is_test": np.arange(6) > 3, "montage": True}
    np.savez(tmp_path / "set-0.npz", blob=blob, lengths=np.array([len(blob)]), **fields)
    loaded = SimpleNamespace(**views.read([tmp_path / "set-0.npz"]))
    assert np.array_equal(np.stack(loaded.images), small)
    assert (loaded.classes, loaded.group.tolist()) == (("0", "1", "2"), ["train"] * 4 + ["val"] * 2)
