"""Real weights on real samples: the stored embeddings are met, and text goes end to end."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from test_cli import ghofl

from exported_heads import session_of
from ghofl import encoders
from ghofl.classifier import HeadSpec
from ghofl.encoders import cosines
from ghofl.encoders.embed import embed
from ghofl.encoders.export import export
from ghofl.rows import class_numbers, load_rows, load_samples
from ghofl.simulation import partition
from ghofl.simulation.simulate import Dataset, recipe_for, simulate

pytestmark = pytest.mark.slow
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def folders(real_data, split):
    """The folders of 2,000 images of CIFAR-10, one per class."""
    return [real_data(f"images/cifar10-2k/{split}/{name}") for name in CLASSES]


@pytest.fixture(scope="module")
def few(real_data, tmp_path_factory):
    """Four real images per class, as links under their own names."""
    folder = tmp_path_factory.mktemp("cifar10")
    for source in folders(real_data, "test"):
        (folder / source.name).mkdir()
        for image in sorted(source.iterdir())[:4]:
            (folder / source.name / image.name).symlink_to(image)
    return folder


@pytest.fixture(scope="module")
def exported(real_data, tmp_path_factory):
    """The real MobileNetV2 as an ONNX file."""
    path = tmp_path_factory.mktemp("onnx") / "m.onnx"
    export(encoders.load("torchvision:mobilenet_v2", weights=real_data("weights/mobilenet_v2.safetensors")), path)
    return path


def stored(real_data, names):
    with np.load(real_data("embeddings/cifar10-mobilenetv2.npz")) as arrays:
        return (arrays["x_test"][[int(name[-9:-4]) for name in names]] / 100.0) ** 2


def test_mobilenet_gives_the_stored_rows_and_so_does_its_onnx_file(real_data, few, exported, tmp_path, monkeypatch):
    """The stored rows were made on a GPU in TF32 and kept as bytes, so a cosine of 0.999 is what can be asked."""
    monkeypatch.chdir(tmp_path)
    encoder = ["--encoder", "torchvision:mobilenet_v2", "--weights", real_data("weights/mobilenet_v2.safetensors")]
    ghofl("embed", *encoder, "--data", few, "--views", "paper", "-o", "torch.npz")
    ghofl("embed", "--encoder", f"onnx:{exported}", "--data", few, "-o", "onnx.npz")
    ours, onnx = load_rows("torch.npz"), load_rows("onnx.npz")
    assert cosines(ours.x, stored(real_data, load_samples(str(few)).names)).min() >= 0.999
    assert np.abs(ours.x - onnx.x).max() <= 1e-3
    assert ours.encoder.fingerprint == onnx.encoder.fingerprint


def test_real_text_goes_from_csv_to_a_classifier(real_data, minilm, tmp_path):
    """Fifteen training texts and four test texts per class of BANKING77: 77 intents."""
    encoder, parts = encoders.load(f"hf:{minilm}"), {}
    for split, count in (("train", 15), ("test", 4)):
        samples = load_samples(str(real_data(f"text/banking77/{split}.csv").parent), split)
        kept = [np.flatnonzero(samples.labels == name)[:count] for name in samples.classes()]
        parts[split] = embed(samples.only(np.concatenate(kept)), encoder, tmp_path).rows
    classes = tuple(sorted(set(parts["train"].y.tolist())))
    data = Dataset(
        np.asarray(parts["train"].x), class_numbers(parts["train"].y, classes),
        np.asarray(parts["test"].x), class_numbers(parts["test"].y, classes), classes,
    )  # fmt: skip
    specs = HeadSpec.parse_list("lda,rda(blend=0.9, shrinkage=0.05)")
    recipe = recipe_for(data, specs.values())
    found = []
    for alpha in (0.5, 0.01):
        split = partition.dirichlet_by_class(data.y_train, 10, alpha, np.random.default_rng(0))
        found.append(simulate(data, split, recipe, specs))
    assert found[0].total.moments == found[1].total.moments
    assert all(head.accuracy > 0.8 for head in found[0].heads.values()), json.dumps(found[0].to_dict()["heads"])


@pytest.mark.seconds(600)
def test_a_thousand_photos_get_the_labels_of_predict_from_one_onnx_file(real_data, tmp_path, monkeypatch):
    """The default path of the photos page: six views, resized inside the file.

    Resized pixels differ by less than 1e-3 of a level and rows by about 1e-6 of their largest entry, so an entry here and
    there rounds to the neighbouring step of the grid. Labels differ only where two classes are equally probable.
    """
    monkeypatch.chdir(tmp_path)
    network = ["--encoder", "torchvision:mobilenet_v2", "--weights", real_data("weights/mobilenet_v2.safetensors")]
    ghofl("export", *network, "-o", "m.onnx")
    for folder in folders(real_data, "train"):
        (tmp_path / "photos" / folder.name).mkdir(parents=True)
        for image in sorted(folder.iterdir())[:25]:
            (tmp_path / "photos" / folder.name / image.name).symlink_to(image)
    test, classes = folders(real_data, "test")[0].parent, ",".join(CLASSES)
    encoder = ("--encoder", "onnx:m.onnx")
    ghofl("recipe", "r.toml", "--classes", classes, *encoder, "--statistics", "B", "--scale", "20")
    ghofl("moments", *encoder, "--data", "photos", "--recipe", "r.toml", "--site", "north", "-o", "north.ghofl")
    ghofl("sum", "north.ghofl", "--recipe", "r.toml", "-o", "total.ghofl")
    ghofl("head", "total.ghofl", "-o", "head.safetensors")
    ghofl("predict", "head.safetensors", test, *encoder, "-o", "labels.jsonl", "--top", "all")
    ghofl("export", "head.safetensors", *encoder, "-o", "photos.onnx")
    samples, session = load_samples(str(test)), session_of(onnx.load("photos.onnx"))
    found = [session.run(["label", "probabilities"], {"images": samples.read(i)[None]}) for i in range(len(samples))]
    labels, probabilities = (np.concatenate(parts) for parts in zip(*found, strict=True))
    told = [json.loads(line) for line in Path("labels.jsonl").read_text().splitlines()]
    is_same = labels == np.array([one["label"] for one in told])
    assert len(told) == len(samples)
    assert is_same.mean() >= 0.995
    top = np.sort(probabilities, axis=1)
    assert (top[~is_same, -1] - top[~is_same, -2] < 0.05).all()
    assert np.median(np.abs(probabilities.max(axis=1) - [one["probability"] for one in told])) < 1e-4
