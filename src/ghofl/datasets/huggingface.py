"""Samples through the Hugging Face `datasets` library: the paper's sets by name, and folders it wrote."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ghofl import hub
from ghofl.datasets import samples
from ghofl.datasets.samples import Samples
from ghofl.datasets.tables import LABEL, PATHS, TEXT
from ghofl.errors import DatasetError, MissingExtraError


@dataclass(frozen=True, slots=True)
class Named:
    """Where a dataset lies on the hub, and which of its columns hold the sample and the label."""

    repository: str
    sample: str
    label: str = "label"
    configuration: str | None = None
    test: str = "test"


NAMED = {
    "cifar10": Named("uoft-cs/cifar10", "img"),
    "cifar100": Named("uoft-cs/cifar100", "img", "fine_label"),
    "svhn": Named("ufldl-stanford/svhn", "image", configuration="cropped_digits"),
    "ag_news": Named("fancyzhx/ag_news", "text"),
    "dbpedia_14": Named("fancyzhx/dbpedia_14", "content"),
    # The test split of SST-2 has no labels; everyone reports the development split.
    "sst2": Named("stanfordnlp/sst2", "sentence", test="validation"),
    "banking77": Named("legacy-datasets/banking77", "text"),
    "clinc_oos": Named("clinc/clinc_oos", "text", "intent", configuration="plus"),
}


def named(name: str, split: str) -> Samples:
    """A split (train unless said) of one of the paper's datasets, from the hub or the local cache of it."""
    source, library = NAMED[name], _library(f"the dataset {name!r}")
    split = source.test if split == "test" else split or "train"
    library.disable_progress_bars()
    try:
        with hub.offline_where_unreachable():
            table = library.load_dataset(source.repository, source.configuration, split=split)
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DatasetError(
            f"the dataset {name!r} ({source.repository} on the Hugging Face hub) could not be had: {first.rstrip('.')}. "
            "Connect once, or give a folder or file of your own with --data."
        ) from None
    return _samples(table, source.sample, source.label, name)


def from_disk(folder: Path, split: str, text: str, image: str, label: str) -> Samples:
    """A dataset written by `save_to_disk`; columns that are not named are found by their usual names."""
    library = _library(str(folder))
    try:
        table = library.load_from_disk(str(folder))
    except Exception as error:
        raise DatasetError(f"{folder} could not be read as a datasets folder ({str(error).splitlines()[0]}).") from None
    if isinstance(table, library.DatasetDict):
        if split not in table:
            raise DatasetError(f"{folder} holds the splits {', '.join(table)}; choose one by --split.")
        table = table[split]
    elif split:
        raise DatasetError(f"{folder} has no splits, and --split {split} was asked for; leave it out.")
    wanted = (text, image) if text or image else (*TEXT, *PATHS, "img")
    sample = next((name for name in wanted if name and name in table.column_names), None)
    if sample is None or (label and label not in table.column_names):
        raise DatasetError(
            f"{folder} has the columns {', '.join(table.column_names)}; name those to read by --text-column or "
            "--path-column, and --label-column."
        )
    found = label or next((name for name in LABEL if name in table.column_names), "")
    return _samples(table, sample, found, str(folder))


def _samples(table: Any, sample: str, label: str, where: str) -> Samples:
    labels = _labels(table, label) if label else None
    names = [f"{where} row {i}" for i in range(len(table))]
    if type(table.features[sample]).__name__ != "Image":
        return samples.of_texts(table[sample][:], labels, names)
    raw = table.select_columns([sample]).cast_column(sample, _library(where).Image(decode=False))

    def data(i: int) -> bytes:
        entry = raw[i][sample]
        return entry["bytes"] if entry["bytes"] is not None else Path(entry["path"]).read_bytes()

    # The library's own fingerprint changes with the table's content and with every step applied to it.
    digest = samples.digest_of(["huggingface", where, table._fingerprint])
    return Samples("image", names, lambda i: samples.decoded(data(i), names[i]), digest, labels)


def _labels(table: Any, column: str) -> np.ndarray:
    values, feature = table[column][:], table.features[column]
    if hasattr(feature, "names"):
        return np.array([feature.names[int(value)] for value in values])
    return np.array(values) if all(isinstance(v, int) for v in values) else np.array([str(v) for v in values])


def _library(what: str) -> Any:
    try:
        import datasets
    except ModuleNotFoundError:
        raise MissingExtraError(
            f"{what} needs datasets, which is not installed: pip install 'ghofl[datasets]'."
        ) from None
    return datasets
