"""Photos and X-rays of every kind of file, as an encoder sees them: right, or refused in a sentence with the file's name."""

import io
import struct
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image, ImageOps

import ghofl
from ghofl.errors import SampleError

SHAPE = (8, 12)
DEEP = (np.arange(96) * 689).reshape(SHAPE).astype(np.uint16)  # 96 levels over 16 bits
COLOURS = np.stack([np.indices(SHAPE)[0] * 30, np.indices(SHAPE)[1] * 20, np.full(SHAPE, 99)], axis=2).astype(np.uint8)


@dataclass
class Pixels:
    """An encoder whose embeddings are the pixels."""

    name: str = "pixels"
    kind: str = "image"
    dim: int = COLOURS.size
    fingerprint: str = "0" * 64
    sample_bytes: int = COLOURS.size

    def encode(self, batches):
        for batch in batches:
            yield np.array([np.ravel(image) for image in batch], dtype=np.float32).reshape(len(batch), self.dim)


def pixels(sample, shape=SHAPE):
    """What an encoder gets of a sample."""
    return ghofl.encode([sample], Pixels())[0].reshape(*shape, 3)


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def saved(path, image, **options):
    image.save(path, **options)
    return path


def told(path):
    with pytest.raises(SampleError, match=f"{path.name} is not an image that can be read") as caught:
        pixels(path)
    return str(caught.value)


# Levels of grey


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm"])
def test_an_image_of_sixteen_bits_keeps_its_levels(tmp_path, name):
    """Of 64 levels, black and white were left."""
    found = pixels(saved(tmp_path / name, Image.fromarray(DEEP)))
    assert np.array_equal(found, np.repeat(np.rint(DEEP / 257)[:, :, None], 3, axis=2))
    assert len(np.unique(found)) == 96


def test_arrays_and_pillow_images_of_sixteen_bits_are_read_as_files_are(tmp_path):
    expected = pixels(saved(tmp_path / "a.png", Image.fromarray(DEEP)))
    for sample in (DEEP, DEEP.astype(">u2"), DEEP.astype(np.int32), Image.fromarray(DEEP), DEEP / np.float32(65535)):
        assert np.array_equal(pixels(sample), expected)
    colours = np.stack([DEEP, DEEP[::-1], DEEP], axis=2)
    assert np.array_equal(pixels(colours)[:, :, 1], expected[::-1, :, 1])


@pytest.mark.parametrize("most", [1, 255])
def test_floating_point_grey_goes_from_0_to_1_or_to_255(tmp_path, most):
    grey = np.linspace(0, most, DEEP.size, dtype=np.float32).reshape(SHAPE)
    found = pixels(saved(tmp_path / "a.tif", Image.fromarray(grey)))
    assert np.array_equal(found[:, :, 0], np.rint(grey * (255 / most)))


@pytest.mark.parametrize(
    ("grey", "says"),
    [
        (DEEP // 16, r"from 0 to 4,090, .* read from 0 to 65,535; stretch its range \(12 bits by a factor of 16\)"),
        (DEEP.astype(np.int32) - 1024, "from -1,024 to 64,431, and those of grey images of 16 bits"),
        (DEEP.astype(np.int32) * 9, "from 0 to 589,095, and those of grey images of 16 bits"),
        (DEEP.astype(np.float32), "from 0 to 65455; floating-point pixels are read between 0 and 1, or 0 and 255"),
        (np.full(SHAPE, np.nan, np.float32), "from nan to nan; floating-point"),
    ],
)
def test_grey_of_an_unknown_range_is_refused_with_the_range_and_what_to_do(tmp_path, grey, says):
    path = saved(tmp_path / "scan.tif", Image.fromarray(grey))
    for sample, name in ((grey, "sample 0"), (path, "scan.tif")):
        with pytest.raises(SampleError, match=f"{name} is not an image .*{says}"):
            pixels(sample)


def test_twelve_bits_are_read_once_they_are_stretched_as_the_error_says(tmp_path):
    twelve = DEEP // 16
    assert "factor of 16" in told(saved(tmp_path / "scan.png", Image.fromarray(twelve)))
    assert len(np.unique(pixels(saved(tmp_path / "scan.png", Image.fromarray(twelve * 16))))) == 96
    assert not pixels(np.zeros(SHAPE, np.uint16)).any(), "black is black in any range"


def test_a_tiff_that_stores_white_as_zero_is_inverted_or_refused(tmp_path):
    path = tmp_path / "scan.tif"
    tags = {262: 0}
    eight = (DEEP // 257).astype(np.uint8)
    assert np.array_equal(pixels(saved(path, Image.fromarray(eight), tiffinfo=tags))[:, :, 0], eight)
    data = encoded(Image.fromarray(DEEP), "TIFF")
    says_black = struct.pack("<HHIHH", 262, 3, 1, 1, 0)
    assert data.count(says_black) == 1
    path.write_bytes(data.replace(says_black, struct.pack("<HHIHH", 262, 3, 1, 0, 0)))
    assert "stores white as 0" in told(path)


# Colours and transparency


def test_every_mode_becomes_the_colours_that_people_see(tmp_path):
    colours = Image.fromarray(COLOURS)
    for mode, name in (("RGBA", "png"), ("P", "png"), ("L", "png"), ("LA", "png"), ("1", "png"), ("CMYK", "tif")):
        image = colours.convert(mode)
        expected = np.asarray(image.convert("RGB"))
        assert np.array_equal(pixels(saved(tmp_path / f"{mode}.{name}", image)), expected), mode
    jpeg = saved(tmp_path / "CMYK.jpg", colours.convert("CMYK"), quality=100)
    assert np.abs(pixels(jpeg) - COLOURS).max() < 12, "as inks, not inverted"


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white_whatever_colour_hides_there(tmp_path, mode):
    """A palette with transparency stopped a run, and elsewhere the colour behind came out."""
    image = Image.fromarray(COLOURS).convert(mode)
    if mode == "P":
        path = saved(tmp_path / "a.png", image, transparency=bytes(256))
    else:
        image.putalpha(0)
        path = saved(tmp_path / "a.png", image)
    assert (pixels(path) == 255).all()


# Orientation and metadata


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_a_photo_is_upright_as_its_orientation_says(tmp_path, kind, orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    path = tmp_path / "photo"
    path.write_bytes(
        encoded(Image.fromarray(COLOURS), kind, exif=tags, **({"lossless": True} if kind == "WEBP" else {}))
    )
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert expected.shape[:2] == (SHAPE if orientation < 5 else SHAPE[::-1])
    assert np.array_equal(pixels(path, expected.shape[:2]), expected)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("cut", [9, 20, 40])
def test_a_photo_with_damaged_metadata_is_read(tmp_path, cut):
    tags = Image.Exif()
    tags[0x010E] = "a description that is long enough to be kept outside of the directory"
    whole = Image.fromarray(COLOURS)
    (tmp_path / "a.jpg").write_bytes(encoded(whole, "JPEG", exif=tags.tobytes()[:cut]))
    (tmp_path / "b.jpg").write_bytes(encoded(whole, "JPEG"))
    with warnings.catch_warnings(record=True):
        assert np.array_equal(pixels(tmp_path / "a.jpg"), pixels(tmp_path / "b.jpg"))


# Several pages, damage, and bombs


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_several_pages_or_frames_none_is_chosen(tmp_path, kind):
    path, first = tmp_path / f"a.{kind.lower()}", Image.fromarray(COLOURS)
    first.save(path, kind, save_all=True, append_images=[Image.fromarray(255 - COLOURS)])
    assert "it has 2 pages or frames; save the one to read as a file of its own" in told(path)
    first.save(path, kind)
    assert pixels(path).any()


def test_the_second_picture_that_a_camera_keeps_in_its_photo_does_not_matter(tmp_path):
    photo, other = Image.fromarray(COLOURS), Image.fromarray(255 - COLOURS)
    photo.save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[other])
    photo.save(tmp_path / "b.jpg")
    assert np.array_equal(pixels(tmp_path / "a.jpg"), pixels(tmp_path / "b.jpg"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM"])
def test_a_truncated_file_is_named_with_the_reason(tmp_path, kind):
    data, path = encoded(Image.fromarray(COLOURS), kind), tmp_path / "cut"
    for end in (len(data) // 3, len(data) * 3 // 4):
        path.write_bytes(data[:end])
        assert len(told(path)) > len(f"{path} is not an image that can be read ().")


def test_a_decompression_bomb_is_refused_in_every_thread_and_filters_stay_as_they_were(tmp_path, monkeypatch):
    """Pillow only warns, and filters of warnings belong to the process, which other threads use."""
    good = encoded(Image.fromarray(COLOURS), "PNG")
    bomb = encoded(Image.fromarray(np.repeat(COLOURS, 2, axis=0)), "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    monkeypatch.setattr(Image, "_decompression_bomb_check", lambda size: None)  # it would warn, which is an error here
    before, started = list(warnings.filters), threading.Barrier(8)

    def read(worker):
        started.wait(30)
        for _ in range(25):
            assert np.array_equal(pixels(good), COLOURS)
            with pytest.raises(SampleError, match=r"sample 0 is not .* \(it has 192 pixels, and 100 are allowed\)"):
                pixels(bomb)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(8)))
    assert list(warnings.filters) == before


def test_a_photo_in_a_format_that_starts_a_program_is_not_opened(tmp_path):
    """EPS is read by Ghostscript, whatever the file is called."""
    (tmp_path / "photo.png").write_bytes(encoded(Image.fromarray(COLOURS), "EPS"))
    assert "it is of no known format" in told(tmp_path / "photo.png")
