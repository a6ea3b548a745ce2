"""Samples through the Hugging Face `datasets` library: any data set of the hub, and folders that the library wrote."""

from pathlib import Path
from typing import Any

import numpy as np

from ghofl.errors import DatasetError, MissingExtraError, SampleError
from ghofl.rows import base, hub
from ghofl.rows.base import Samples
from ghofl.rows.images import decode
from ghofl.rows.reader import LABEL, PATHS, TEXT, labels_in, pick

SPLIT = "train"  # of the hub, where none is named
SAMPLES = (*TEXT, *PATHS, "img")


def from_hub(data: str, split: str, sample: str, label: str, row_by_row: bool = False) -> Samples:
    """A split (train unless given) of ``OWNER/NAME`` or ``OWNER/NAME:CONFIGURATION``, from the hub or its local cache.

    Columns that are not named are found by their usual names.
    """
    library = _library(f"hf:{data}")
    library.disable_progress_bars()
    repository, _, configuration = data.partition(":")
    try:
        with hub.offline_where_unreachable():
            table = library.load_dataset(repository, configuration or None, split=split or SPLIT)
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DatasetError(
            f"the data set 'hf:{data}' could not be loaded from the Hugging Face hub: {first.rstrip('.')}. "
            "Connect once, or give your own folder or file with --data."
        ) from None
    return _samples(table, sample, label, f"hf:{data}", row_by_row)


def from_disk(folder: Path, split: str, sample: str, label: str, row_by_row: bool = False) -> Samples:
    """A data set written by `save_to_disk`; columns that are not named are found by their usual names."""
    library = _library(str(folder))
    try:
        table = library.load_from_disk(str(folder))
    except Exception as error:
        raise DatasetError(f"{folder} could not be read as a datasets folder ({str(error).splitlines()[0]}).") from None
    if isinstance(table, library.DatasetDict):
        if split not in table:
            raise DatasetError(f"{folder} holds the splits {', '.join(table)}; choose one with --split.")
        table = table[split]
    elif split:
        raise DatasetError(f"{folder} has no splits, and --split {split} was asked for; leave it out.")
    return _samples(table, sample, label, str(folder), row_by_row)


def _samples(table: Any, sample: str, label: str, where: str, row_by_row: bool) -> Samples:
    found, labelled = pick(table.column_names, sample, SAMPLES), pick(table.column_names, label, LABEL)
    if found is None or (label and labelled is None):
        raise DatasetError(
            f"{where} has the columns {', '.join(table.column_names)}; name those to read with --text-column or "
            "--path-column, and --label-column."
        )
    labels = None if labelled is None else _labels(table, labelled, where, row_by_row)
    names = [f"{where} row {i}" for i in range(len(table))]
    if type(table.features[found]).__name__ != "Image":
        return base.of_texts(table[found][:], labels, names)
    raw = table.select_columns([found]).cast_column(found, _library(where).Image(decode=False))

    def data(i: int) -> bytes:
        entry = raw[i][found] or {}
        if entry.get("bytes") is None and entry.get("path") is None:
            raise SampleError(f"{names[i]} has no image.")
        return entry["bytes"] if entry["bytes"] is not None else base.bytes_of(Path(entry["path"]))

    # The library's own fingerprint changes with the table's content and with every step applied to it.
    def digest() -> str:
        return base.digest_of(["huggingface", where, table._fingerprint])

    return Samples("image", names, lambda i: decode(data(i), names[i]), digest, labels)


def _labels(table: Any, column: str, where: str, row_by_row: bool) -> np.ndarray:
    values, feature = table[column][:], table.features[column]
    if hasattr(feature, "names"):
        names = dict(enumerate(feature.names))
        values = [names.get(value) for value in values]  # hidden labels are −1, and −1 is not the last class
    return labels_in(values, f"{where}, column {column!r}", row_by_row)


def _library(what: str) -> Any:
    try:
        import datasets
    except ModuleNotFoundError:
        raise MissingExtraError(
            f"{what} needs datasets, which is not installed: pip install 'ghofl[datasets]'."
        ) from None
    return datasets
