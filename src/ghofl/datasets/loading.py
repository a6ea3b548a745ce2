"""Samples by name or from the user's own files.

::

    cifar10, cifar100, svhn, ag_news, dbpedia_14, sst2, banking77, clinc_oos   through Hugging Face datasets
    cifar100-c                                                                 corrupted test images, by severity
    FOLDER/CLASS/IMAGE, or FOLDER/SPLIT/CLASS/IMAGE                            an image folder
    FILE.csv .tsv .jsonl .parquet, or a FOLDER of SPLIT.csv …                  a text or path column, a label column
    FILE.npz .npy .safetensors .parquet                                        rows that are embeddings already
    FOLDER written by datasets.save_to_disk                                    a local Hugging Face dataset
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ghofl.datasets import corruptions, huggingface, samples, tables
from ghofl.datasets.huggingface import NAMED
from ghofl.datasets.samples import Samples
from ghofl.embeddings import load_rows
from ghofl.errors import DatasetError

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
ROWS = (".npz", ".npy", ".safetensors")
CORRUPTED = "cifar100-c"
NAMES = (*NAMED, CORRUPTED)


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a table hold what; an empty name means the usual ones are tried."""

    text: str = ""
    path: str = ""
    row: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Corruption:
    """One of the 19 corruptions at a severity from 1 to 5."""

    name: str
    severity: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        corruptions.check(self.name, self.severity)


def load(data: str, split: str = "", columns: Columns | None = None, corruption: Corruption | None = None) -> Samples:
    """The samples of a dataset's name, a folder or a file, in an order that is the same every time.

    A corruption is read from the published arrays where `data` is a folder that holds them, and generated from the
    images otherwise.
    """
    columns = columns or Columns()
    path = Path(data)
    if path.is_dir() and (path / "labels.npy").is_file():
        return _published(path, corruption)
    if data == CORRUPTED and not path.exists():
        if corruption is None:
            raise DatasetError(
                f"{CORRUPTED} holds corrupted test images: say which with --corruption and --severity. Statistics "
                "come from the clean cifar100, never from these."
            )
        found = huggingface.named("cifar100", "test")
    elif data in NAMED and not path.exists():
        found = huggingface.named(data, split)
    elif path.is_dir():
        found = _folder(path, split, columns)
    elif path.is_file():
        found = _file(path, split, columns)
    else:
        raise DatasetError(
            f"{data!r} is neither a file or folder here nor one of {', '.join(NAMES)}; check the path or the name."
        )
    if not len(found):
        raise DatasetError(f"{data} holds no samples.")
    return found if corruption is None else corrupted(found, corruption)


def corrupted(clean: Samples, corruption: Corruption) -> Samples:
    """Images with one corruption each, generated; image i is the same whatever is read before it."""
    if clean.kind != "image":
        raise DatasetError(f"--corruption {corruption.name} is for images and the data holds {clean.kind}s.")

    def change(image: np.ndarray, i: int) -> np.ndarray:
        rng = np.random.default_rng([corruption.seed, i])
        return corruptions.apply(corruption.name, image, corruption.severity, rng)

    return clean.mapped(change, repr(corruption))


def _published(folder: Path, corruption: Corruption | None) -> Samples:
    """CIFAR-10-C and CIFAR-100-C as published: five severities of the same images, one after the other."""
    if corruption is None:
        raise DatasetError(
            f"{folder} holds corrupted test images: say which with --corruption and --severity. Statistics come from "
            "the clean training set, never from these."
        )
    file = folder / f"{corruption.name}.npy"
    if not file.is_file():
        raise DatasetError(f"{folder} has no {file.name}; it is one file of the published archive.")
    try:
        images = np.load(file, mmap_mode="r", allow_pickle=False)
        labels = np.load(folder / "labels.npy", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DatasetError(f"{file} or labels.npy beside it is not an .npy of plain numbers: {error}") from None
    count = len(images) // 5
    rows = slice((corruption.severity - 1) * count, corruption.severity * count)
    if len(labels) not in (count, len(images)):
        raise DatasetError(f"{folder}/labels.npy has {len(labels)} labels for five times {count} images.")
    own = labels[rows] if len(labels) == len(images) else labels
    return samples.of_image_array(np.array(images[rows]), own.astype(np.int64), str(file))


def _folder(folder: Path, split: str, columns: Columns) -> Samples:
    if (folder / "dataset_info.json").is_file() or (folder / "dataset_dict.json").is_file():
        return huggingface.from_disk(folder, split, columns.text, columns.path, columns.label)
    tables_here = {path.stem: path for path in sorted(folder.iterdir()) if path.suffix in TABLES}
    if split and split in tables_here:
        return _table(tables_here[split], columns)
    if split:
        if not (folder / split).is_dir():
            have = sorted([*tables_here, *(p.name for p in folder.iterdir() if p.is_dir())])
            raise DatasetError(f"{folder} has no split {split!r}; it holds {', '.join(have[:8]) or 'nothing'}.")
        folder = folder / split
    elif tables_here:
        raise DatasetError(f"{folder} holds {', '.join(p.name for p in tables_here.values())}; choose one by --split.")
    return _images(folder)


def _images(folder: Path) -> Samples:
    """An image folder: one folder a class, images anywhere below it; images right in `folder` have no label."""
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in IMAGES and p.is_file())
    names = [path.relative_to(folder).as_posix() for path in paths]
    if not paths:
        raise DatasetError(f"{folder} holds no image ({', '.join(IMAGES[:3])}, …), and no table of samples.")
    order = sorted(range(len(paths)), key=lambda i: names[i])  # by text, so that every platform reads alike
    paths, names = [paths[i] for i in order], [names[i] for i in order]
    flat = [name for name in names if "/" not in name]
    if flat and len(flat) != len(names):
        raise DatasetError(
            f"{folder} holds {flat[0]} beside folders of classes; put every image into its class's folder."
        )
    _refuse_splits(folder, names)
    labels = None if flat else np.array([name.split("/")[0] for name in names])
    return samples.of_image_files(paths, labels, [str(path) for path in paths])


def _refuse_splits(folder: Path, names: list[str]) -> None:
    """Folders called train and test whose own folders are classes would make two classes 'train' and 'test'."""
    top = {name.split("/")[0] for name in names}
    if top & {"train", "test"} and all(name.count("/") >= 2 for name in names):
        raise DatasetError(f"{folder} holds the splits {', '.join(sorted(top))}; choose one by --split.")


def _file(path: Path, split: str, columns: Columns) -> Samples:
    if path.suffix in ROWS or (path.suffix == ".parquet" and columns.row):
        rows = load_rows(path, split, labelled=None, column=columns.row, label=columns.label)
        return samples.of_rows(rows.x, rows.y, str(path))
    if split:
        raise DatasetError(f"{path} is one table and has no split {split!r}; give its folder, or no --split.")
    if path.suffix not in TABLES:
        raise DatasetError(f"{path} is no kind of file that is known; known are {', '.join((*TABLES, *ROWS))}.")
    return _table(path, columns)


def _table(path: Path, columns: Columns) -> Samples:
    table = tables.read(path)
    labels = tables.labels(table, columns.label, path)
    if not columns.path and (text := tables.pick(table, columns.text, tables.TEXT)):
        names = [f"{path}, row {i + 1}" for i in range(len(table[text]))]
        return samples.of_texts(table[text], labels, names)
    if file := tables.pick(table, columns.path, tables.PATHS):
        paths = [path.parent / str(value) for value in table[file]]
        return samples.of_image_files(paths, labels, [str(p) for p in paths])
    asked = columns.text or columns.path
    raise DatasetError(
        f"{path} has the columns {', '.join(table)}"
        + (f" and not {asked!r}" if asked else "")
        + "; name the one to read by --text-column or --path-column."
    )
