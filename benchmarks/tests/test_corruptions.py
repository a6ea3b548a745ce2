"""The nineteen corruptions, generated and as published."""

import corrupted
import numpy as np
import pytest
from corruptions import FAMILIES, Corruption, apply, corrupt, load_published
from PIL import Image

from ghofl import Classifier, Features, Message, Total, encoders
from ghofl.encoders import cosines
from ghofl.encoders.embed import embed
from ghofl.errors import DatasetError
from ghofl.outbox import Embedded, count
from ghofl.rows import load_samples
from ghofl.simulation.simulate import Dataset, recipe_for

ALL = [name for names in FAMILIES.values() for name in names]


def picture(seed, size=(32, 32)):
    """A smooth image with an edge, so that every corruption has something to harm."""
    rng = np.random.default_rng(seed)
    rows, columns = np.indices(size) / max(size)
    x = np.stack([rows, columns, rows * columns], axis=-1) * rng.uniform(60, 200, size=3) + rng.uniform(0, 50, size=3)
    x[size[0] // 3 : size[0] // 2] += 60
    return np.clip(x, 0, 255).astype(np.uint8)


@pytest.fixture
def photos(tmp_path):
    for i in range(6):
        folder = tmp_path / "photos" / ("cat", "dog")[i // 3]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(i)).save(folder / f"{i}.png")
    return tmp_path / "photos"


def everything(samples):
    return [samples.read(i) for i in range(len(samples))]


def test_there_are_nineteen_corruptions_in_four_families():
    assert [len(FAMILIES[f]) for f in ("noise", "blur", "weather", "digital")] == [4, 5, 5, 5]
    assert len(set(ALL)) == 19


@pytest.mark.parametrize("name", ALL)
def test_a_corruption_harms_more_as_it_grows_and_depends_on_its_generator_alone(name):
    def damage(severity):
        out = [apply(name, picture(i), severity, np.random.default_rng(i)) for i in range(6)]
        assert {o.shape for o in out} == {(32, 32, 3)}
        assert {o.dtype for o in out} == {np.dtype(np.uint8)}
        return np.mean([np.abs(o.astype(float) - picture(i)).mean() for i, o in enumerate(out)])

    assert 0 < damage(1) < damage(5) or name == "saturate"  # which takes colour away first and adds it later
    assert damage(3) == damage(3)


@pytest.mark.parametrize("name", ["glass_blur", "snow", "pixelate", "elastic_transform", "fog"])
@pytest.mark.parametrize("size", [(64, 48), (1, 1), (7, 33)])
def test_a_corruption_takes_images_of_any_size(name, size):
    out = apply(name, picture(0, size), 5, np.random.default_rng(0))
    assert out.shape == (*size, 3)


def test_corrupted_samples_do_not_depend_on_what_is_read_before_them(photos):
    clean = load_samples(str(photos))
    samples = corrupt(clean, Corruption("snow", 2))
    last = samples.read(5)
    everything(samples)
    assert np.array_equal(samples.read(5), last)
    assert not np.array_equal(last, clean.read(5))
    others = [Corruption("snow", 3), Corruption("fog", 2), Corruption("snow", 2, seed=1)]
    digests = {corrupt(clean, c).digest() for c in others}
    assert len(digests | {samples.digest()}) == 4


def test_published_arrays_are_read_by_severity(tmp_path):
    images = np.stack([picture(i) for i in range(10)])  # two images, five severities
    np.save(tmp_path / "fog.npy", images)
    np.save(tmp_path / "labels.npy", np.tile([3, 4], 5))
    samples = load_published(tmp_path, Corruption("fog", 4))
    assert np.array_equal(everything(samples), images[6:8])
    assert samples.labels.tolist() == [3, 4]
    np.save(tmp_path / "snow.npy", images[..., 0])
    with pytest.raises(DatasetError, match=r"expected bytes \(n, height, width, 3\)"):
        load_published(tmp_path, Corruption("snow"))
    with pytest.raises(DatasetError, match=r"has no frost.npy"):
        load_published(tmp_path, Corruption("frost"))


def test_corruptions_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="corruption 'rain' is unknown; known are noise: gaussian_noise"):
        Corruption("rain")
    with pytest.raises(DatasetError, match="severity is 6"):
        Corruption("fog", 6)
    (tmp_path / "t.csv").write_text("text,label\nhello,cat\n")
    texts = load_samples(str(tmp_path / "t.csv"))
    with pytest.raises(DatasetError, match="is for images and the data holds texts"):
        corrupt(texts, Corruption("fog"))


def test_published_corruptions_that_are_not_arrays_are_refused(tmp_path):
    (tmp_path / "fog.npy").write_bytes(b"no array")
    (tmp_path / "labels.npy").write_bytes(b"no array")
    with pytest.raises(DatasetError, match=r"fog.npy or labels.npy beside it is not an .npy of plain numbers"):
        load_published(tmp_path, Corruption("fog", 1))


def test_brightness_adds_to_the_value_of_a_colour():
    grey = np.full((8, 8, 3), 100, np.uint8)
    assert (
        apply("brightness", grey, 5, np.random.default_rng(0))[0, 0].tolist() == [176] * 3
    )  # 100 + 0.3 · 255, rounded


def test_rows_under_a_mix_have_its_shares():
    rng = np.random.default_rng(0)
    y, mix = rng.integers(0, 3, 3000), np.array([0.5, 0.4, 0.1])
    drawn = corrupted.draw(y, mix, rng)
    assert np.bincount(y[drawn]) / len(drawn) == pytest.approx(mix, abs=0.01)


def test_heads_that_are_aligned_with_shifted_rows_beat_the_shared_one_under_either_mix():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 3000)
    x = rng.normal(size=(3000, 4)) + 4.0 * np.eye(3, 4)[y]
    whole = Dataset(x, y, x, y, ("a", "b", "c"))
    recipe = recipe_for(whole, [corrupted.ALIGNED])
    total = Total.of([Message.of(count(Features.of(recipe), Embedded(x, y)).moments, recipe, "all")], recipe)
    shared, moved, skewed, moved_skewed = corrupted.aligned(
        total, Classifier.fit(total, corrupted.ALIGNED), (1.5 * x + [4.0, 0, 0, 0], y), 0
    )
    assert moved > shared + 0.1
    assert moved_skewed > skewed


def test_measuring_one_severity_again_keeps_the_others_and_the_table_says_what_is_there():
    heads = {"heads": ["lda"], "images": 10, "training_rows": 20, "clean": [0.9]}
    kinds = {
        family: {f"{name} {s}": [0.5] for name in names for s in (1, 2, 3, 4, 5)} for family, names in FAMILIES.items()
    }
    newer = {"noise": {"gaussian_noise 5": [0.7]}, "aligned": {"gaussian_noise 5": [0.4, 0.5, 0.6, 0.7]}}
    found = corrupted.merged(heads | kinds, heads | newer)
    assert found["noise"]["gaussian_noise 5"] == [0.7]
    assert found["noise"]["gaussian_noise 4"] == found["blur"]["defocus_blur 5"] == [0.5]
    assert "| 5 | 40.0 | 50.0 | 60.0 | 70.0 |" in corrupted.table(found)


@pytest.mark.slow
def test_embeddings_turn_further_the_more_an_image_is_corrupted(tmp_path, real_data):
    every = load_samples(str(real_data("images/cifar10-2k/test")))
    clean = every.only(np.concatenate([np.flatnonzero(every.labels == name)[:4] for name in every.classes()]))
    weights = real_data("weights/mobilenet_v2.safetensors")
    encoder = encoders.load("torchvision:mobilenet_v2", weights=weights)
    x = np.asarray(embed(clean, encoder, tmp_path).rows.x)
    for name in ("gaussian_noise", "gaussian_blur", "fog", "contrast"):
        turned = []
        for severity in (1, 5):
            damaged = corrupt(clean, Corruption(name, severity))
            turned.append(np.median(cosines(x, np.asarray(embed(damaged, encoder, tmp_path).rows.x))))
        assert 1 > turned[0] > turned[1]
