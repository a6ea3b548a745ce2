"""Samples from the user's own files, or from the Hugging Face hub.

::

    FOLDER/CLASS/IMAGE, or FOLDER/SPLIT/CLASS/IMAGE          an image folder
    FILE.csv .tsv .jsonl .parquet, or a FOLDER of SPLIT.csv   a text or path column, a label column
    FILE.npz .npy .safetensors .parquet .arrow .feather       rows that are already embeddings
    FOLDER written by datasets.save_to_disk                   a local Hugging Face data set
    hf:OWNER/NAME, or hf:OWNER/NAME:CONFIGURATION             a data set of the Hugging Face hub
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.errors import DatasetError
from ghofl.names import columns_but_not, shorten
from ghofl.rows import base, embeddings, from_arrays, huggingface, tables
from ghofl.rows.base import Samples
from ghofl.rows.embeddings import load_rows
from ghofl.rows.reader import PATHS, TEXT, pick, unknown_suffix

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
HUB = "hf:"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table by what they hold; for an empty name the usual names are tried."""

    text: str = ""
    path: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        if self.text and self.path:
            raise DatasetError(
                f"the samples are texts in {self.text!r} or files in {self.path!r}; name one of the columns."
            )


def default_split(data: str) -> str:
    """Which split a head is judged on where none is named and rows come in several: the test's, or else the training one."""
    path = Path(data)
    if data.startswith(HUB) and not path.exists():
        return huggingface.SPLIT
    return embeddings.part_of(path, ("test", "train")) if path.is_file() else ""


def load_samples(
    data: str,
    split: str = "",
    columns: Columns | None = None,
    row_by_row: int | None = None,
    labelled: bool = True,
) -> Samples:
    """The samples of a folder, a file or a set of the hub, in an order that is the same every time.

    A sample without a label is a bad one, unless no sample has one, or they are not to be `labelled`. With `row_by_row`,
    the length that embeddings should have, nothing is refused because of single samples, or because there are none: a
    sample whose label cannot be read has an empty one. It is for samples under an epsilon.
    """
    columns = columns or Columns()
    path = Path(data)
    if data.startswith(HUB) and not path.exists():
        found = huggingface.from_hub(
            data.removeprefix(HUB), split, columns.text or columns.path, columns.label,
            row_by_row is not None,
        )  # fmt: skip
    elif path.is_dir():
        found = _folder(path, split, columns, row_by_row is not None)
    elif path.is_file():
        found = _file(path, split, columns, row_by_row)
    else:
        raise DatasetError(
            f"{data!r} is not a file or folder here; check the path, or write {HUB}OWNER/NAME for a data set of the "
            "Hugging Face hub."
        )
    if not len(found) and row_by_row is None:
        raise DatasetError(f"{data} holds no samples; check the path and --split.")
    if not labelled:
        return replace(found, labels=None)
    return found if row_by_row is not None else found.labelled()


def _folder(folder: Path, split: str, columns: Columns, row_by_row: bool) -> Samples:
    if (folder / "dataset_info.json").is_file() or (folder / "dataset_dict.json").is_file():
        return huggingface.from_disk(folder, split, columns.text or columns.path, columns.label, row_by_row)
    tables_here = {path.stem: path for path in sorted(folder.iterdir()) if path.suffix in tables.SUFFIXES}
    if split and split in tables_here:
        return _table(tables_here[split], columns, row_by_row)
    if split:
        if not (folder / split).is_dir():
            have = sorted([*tables_here, *(p.name for p in folder.iterdir() if p.is_dir())])
            raise DatasetError(f"{folder} has no split {split!r}; it holds {', '.join(have[:8]) or 'nothing'}.")
        folder = folder / split
    elif tables_here:
        raise DatasetError(
            f"{folder} holds {', '.join(p.name for p in tables_here.values())}; choose one with --split."
        )
    if named := [name for name in (columns.text, columns.path, columns.label) if name]:
        raise DatasetError(
            f"{folder} holds images in folders and no column {named[0]!r}; leave out the names of columns."
        )
    return _images(folder, row_by_row)


def _images(folder: Path, row_by_row: bool) -> Samples:
    """An image folder: one folder per class, images anywhere below it; images directly in `folder` have no label."""
    found = (p for p in folder.rglob("*") if p.suffix.lower() in IMAGES and p.is_file())
    by_name = sorted((path.relative_to(folder).as_posix(), path) for path in found)  # one order on every platform
    names = [name for name, _ in by_name]
    if row_by_row:
        labels = np.array([name.rpartition("/")[0].split("/")[0] for name in names], dtype=np.str_)
        return base.of_image_files([path for _, path in by_name], labels)
    if not names:
        raise DatasetError(f"{folder} holds no image ({', '.join(IMAGES[:3])}, …), and no table of samples.")
    flat = [name for name in names if "/" not in name]
    if flat and len(flat) != len(names):
        raise DatasetError(
            f"{folder} holds {flat[0]} beside folders of classes; put every image into its class's folder."
        )
    _check_split(folder, names)
    labels = None if flat else np.array([name.split("/")[0] for name in names])
    return base.of_image_files([path for _, path in by_name], labels)


def _check_split(folder: Path, names: list[str]) -> None:
    """Raise where the folders are splits with folders of classes inside: they would become classes called 'train' …"""
    top = {name.split("/")[0] for name in names}
    if top & {"train", "test"} and all(name.count("/") >= 2 for name in names):
        raise DatasetError(f"{folder} holds the splits {', '.join(sorted(top))}; choose one with --split.")


def _file(path: Path, split: str, columns: Columns, row_by_row: int | None) -> Samples:
    named = columns.text or columns.path
    if path.suffix in from_arrays.SUFFIXES or (not named and embeddings.holds_rows(path, (*TEXT, *PATHS))):
        rows = load_rows(path, split, labelled=None, label=named or columns.label, row_by_row=row_by_row)
        return base.of_rows(rows.x, rows.y, str(path), rows.encoder)
    if split:
        raise DatasetError(f"{path} is one table and has no split {split!r}; give its folder, or no --split.")
    if path.suffix.lower() in IMAGES:
        raise DatasetError(f"{path} is one image; give the folder that it is in.")
    if path.suffix not in tables.SUFFIXES:
        raise DatasetError(unknown_suffix(path, (*tables.SUFFIXES, *embeddings.SUFFIXES)))
    return _table(path, columns, row_by_row is not None)


def _table(path: Path, columns: Columns, row_by_row: bool) -> Samples:
    table = tables.read_table(path)
    if row_by_row and not table:  # a file of JSON lines without a line does not name its columns
        return base.of_texts([], np.zeros(0, dtype=np.str_), [])
    return samples_in(table, columns, path, row_by_row=row_by_row)


def samples_in(
    table: dict[str, list[Any]],
    columns: Columns,
    path: Path,
    first: int = 0,
    labelled: bool = True,
    row_by_row: bool = False,
) -> Samples:
    """The samples in some rows of a table: texts, or images by the path of their file; `first` is the first row's number."""
    labels = tables.read_labels(table, columns.label, path, row_by_row) if labelled else None
    text = None if columns.path else pick(table, columns.text, TEXT)
    file = None if columns.text else pick(table, columns.path, PATHS)
    if text:
        return base.of_texts(table[text], labels, [f"{path}, row {first + i + 1}" for i in range(len(table[text]))])
    if file:
        return base.of_image_files([path.parent / str(value) for value in table[file]], labels)
    asked = columns.text or columns.path
    raise DatasetError(
        f"{path} has "
        + (columns_but_not(table, asked) if asked else f"the columns {shorten(', '.join(table), 200)}")
        + "; name the one to read with --text-column or --path-column."
    )
