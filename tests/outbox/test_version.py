"""The version of a site's rows names the rows, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from federations import recipe_of
from ghofl.custody.site import Site
from ghofl.features import Features
from ghofl.outbox import Encodable, count
from ghofl.outbox.row_version import RowVersion, version_of
from ghofl.recipe import Encoder, Recipe, Sketch
from ghofl.rows import load_samples
from ghofl.rows.base import of_texts

CLASSES = ("ant", "bee", "cat", "dog")
RECIPE = replace(recipe_of(), classes=CLASSES)


def rows(n=30, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, RECIPE.encoder.dim)).astype(np.float32), rng.integers(0, 4, n)


def site_of(folder, name, **changes):
    return Site("north", **{"embeddings": str(folder / name), "folder": str(folder / "memory")} | changes)


def write(folder, x, y, name):
    """A file with these rows, in some format and order."""
    labels, path = np.array(CLASSES)[y], folder / name
    if name == "rows.npz":
        np.savez(path, x=x, y=labels)
    elif name == "turned.npz":
        np.savez(path, x_train=x[::-1].astype(np.float64), y_train=labels[::-1])
    elif name == "numbers.npz":
        np.savez(path, x=x, y=y)
    elif name == "rows.npy":
        np.save(path, x)
        np.save(path.with_suffix(".labels.npy"), labels)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"embedding": list(x), "label": labels.tolist()}), path)
    return site_of(folder, name, labels_are_numbers=name == "numbers.npz")


@pytest.mark.parametrize("name", ["turned.npz", "numbers.npz", "rows.npy", "rows.parquet"])
def test_the_same_rows_have_one_version_whatever_their_file_and_order(tmp_path, name):
    x, y = rows()
    assert write(tmp_path, x, y, name).count(RECIPE).version == write(tmp_path, x, y, "rows.npz").count(RECIPE).version


@pytest.mark.parametrize(
    "other",
    [
        replace(RECIPE, classes=("bee", "ant", "cat", "dog")),
        replace(RECIPE, classes=(*CLASSES, "eel")),
        replace(RECIPE, grid=replace(RECIPE.grid, scale=2 * RECIPE.grid.scale)),
        replace(RECIPE, statistics=("D",)),
        replace(RECIPE, statistics=("B",), sketch=Sketch(dim=3)),
    ],
    ids=["swapped classes", "one class more", "another grid", "another statistic", "a sketch"],
)
def test_the_same_rows_have_one_version_whatever_the_recipe(tmp_path, other):
    site = write(tmp_path, *rows(), "rows.npz")
    first, second = site.count(RECIPE), site.count(other)
    assert first.moments.sha256 != second.moments.sha256
    assert first.version == second.version


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["value", "label", "twice", "gone"]))
def test_another_row_is_another_version(seed, what):
    x, y = rows(10, seed)
    before, at = version_of(x, y, CLASSES), seed % 10
    if what == "value":
        x[at, 0] = np.nextafter(x[at, 0], np.float32(9))
    elif what == "label":
        y[at] = (y[at] + 1) % 4
    elif what == "twice":
        x, y = np.vstack([x, x[at]]), np.append(y, y[at])
    else:
        x, y = np.delete(x, at, axis=0), np.delete(y, at)
    assert version_of(x, y, CLASSES) != before


def test_a_label_does_not_run_into_the_row():
    x = np.frombuffer(b"bcdefgh!", dtype="<f8")[None]
    assert version_of(x, np.array([0]), ("a",)) != version_of(x, np.array([0]), ("ab",))
    assert version_of(x[:0], np.array([], dtype=np.int64), CLASSES) == RowVersion(("x",)).text


class Lengths:
    """An encoder of texts and images, whose device decides about its last digits."""

    kind, name, fingerprint, dim, sample_bytes = "text", "lengths", "", 2, 8

    def __init__(self, kind="text", last_digit=0.0):
        self.kind, self.last_digit = kind, last_digit

    def encode(self, batches):
        for batch in batches:
            yield np.array([[np.size(s) / 9, self.last_digit] for s in batch], dtype=np.float32).reshape(-1, 2)


def counted(samples, encoder, classes=("a", "b")):
    recipe = Recipe(classes, Encoder(dim=2))
    version = RowVersion(classes)
    return count(Features.of(recipe), Encodable(samples, encoder, batch_size=2), version=version).version


def test_samples_are_named_by_themselves_and_not_by_what_a_device_makes_of_them():
    texts, labels = ["one", "two", "three", "four"], np.array(["a", "b", "a", "b"])
    names, back = [f"line {i}" for i in range(4)], [2, 0, 3, 1]
    first = counted(of_texts(texts, labels, names), Lengths())
    turned = of_texts([texts[i] for i in back], labels[back], names)
    assert counted(turned, Lengths(last_digit=1e-6), ("b", "a")) == first
    assert counted(of_texts([*texts[:3], "Four"], labels, names), Lengths()) != first
    assert counted(of_texts(texts, labels[::-1].copy(), names), Lengths()) != first


def test_images_are_named_by_their_pixels(tmp_path):
    rng, found = np.random.default_rng(0), []
    pixels = rng.integers(0, 256, (4, 3, 5, 3), dtype=np.uint8)
    for suffix in ("png", "bmp"):
        for i, image in enumerate(pixels):
            folder = tmp_path / suffix / "ab"[i % 2]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / f"{i if suffix == 'png' else 9 - i}.{suffix}")
        found.append(counted(load_samples(str(tmp_path / suffix)), Lengths("image")))
    assert found[0] == found[1]
