"""Rows for a head, a block at a time: embeddings, tables with a schema, samples through an encoder."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from ghofl import encoders
from ghofl.encoders import Runtime, SampleEncoder
from ghofl.encoders.embed import Bad, encode_samples
from ghofl.encoders.from_schema import check_encoder, encode_blocks, rows_for
from ghofl.errors import DatasetError, EmbeddingsError
from ghofl.recipe import Recipe
from ghofl.rows.base import Samples
from ghofl.rows.embeddings import Rows, drop_bad, holds_rows, open_rows
from ghofl.rows.loading import Columns, load_samples, samples_in
from ghofl.rows.reader import PATHS, pick, text_of
from ghofl.rows.tables import SUFFIXES, open_table, table_blocks
from ghofl.shapes import Int64, Num

BLOCK = 2048
SAMPLES = 8192  # rows of a table of samples at a time, which are encoded in batches
FILE = "file"


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some rows of a source, their positions in it from 0, and their ids if it has any."""

    x: Num[np.ndarray, "n dim"] = field(repr=False)
    rows: Int64[np.ndarray, " n"] = field(repr=False)
    ids: Sequence[Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A stream of rows: their blocks, how many there are if that is known, and the name of their ids.

    `bad` fills up while blocks are read: the positions of samples that were left out, and why.
    """

    blocks: Iterator[Block] = field(repr=False)
    rows: int | None = None
    key: str = ""
    bad: list[Bad] = field(default_factory=list, repr=False)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How samples are encoded: an encoder's name (the recipe's unless given), its options, and how it runs."""

    encoder: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    runtime: Runtime = field(default_factory=Runtime)

    def check_unused(self, columns: Columns, where: str | Path) -> None:
        """Raise where rows need no encoder but options for one are given."""
        is_used = self.encoder or self.runtime != Runtime() or columns.text or columns.path
        if is_used or any(value is not None for value in self.options.values()):
            raise DatasetError(
                f"{where} needs no encoder; leave out --encoder, --weights, --pooling, --fit, --text-column, "
                "--path-column, --device and --precision, which are about samples."
            )


def load_whole(
    recipe: Recipe,
    data: str,
    split: str = "",
    *,
    columns: Columns | None = None,
    encoding: Encoding | None = None,
    skip_bad: bool = False,
) -> tuple[Rows, list[Bad]]:
    """All rows of whatever `open_stream` takes, with labels, and what was left out; at least one row."""
    columns, encoding, path = columns or Columns(), encoding or Encoding(), _file(data, split)
    split = "" if path != Path(data) else split
    bad: list[Bad] = []
    if _is_table(recipe, path) or _is_rows(path, columns, encoding):
        encoding.check_unused(columns, path)
        rows = rows_for(recipe, path, split, columns.label, skip_bad)
        rows, bad = drop_bad(rows) if skip_bad else (rows, [])
    else:
        samples = load_samples(str(path), split, columns)
        if samples.labels is None:
            raise DatasetError(
                f"{path} has no labels; put images into one folder per class, or name the column of "
                "labels with --label-column."
            )
        loaded, parts = _load_encoder(recipe, encoding, path), [np.zeros((0, recipe.encoder.dim), dtype=np.float32)]
        kept = [np.zeros(0, dtype=np.int64)]
        for x, places, left_out in _encode(samples, loaded, encoding, skip_bad):
            parts.append(x)
            kept.append(places)
            bad += left_out
        rows = Rows(np.concatenate(parts), samples.labels[np.concatenate(kept)])
    if not len(rows.x):
        raise EmbeddingsError(f"{path} has no rows, and at least one is needed; give a file with rows.")
    return rows, bad


@contextmanager
def open_stream(
    recipe: Recipe,
    data: str,
    split: str = "",
    *,
    columns: Columns | None = None,
    ids: str = "",
    encoding: Encoding | None = None,
    skip_bad: bool = False,
) -> Iterator[Stream]:
    """The rows of a folder, a file or a set of the hub under a recipe, in order, in bounded memory.

    A table goes through the recipe's schema if it has one; files of embeddings are read as they are; everything else
    is samples, encoded by `encoding`. `ids` is the column of ids to keep; without it, the files of images are the ids.

    Guarantees
    ----------
    Rows of an encoder whose fingerprint is not the recipe's are refused before the first row. The rows do not depend on
    the size of blocks.
    """
    columns, encoding, path = columns or Columns(), encoding or Encoding(), _file(data, split)
    split = "" if path != Path(data) else split
    if _is_table(recipe, path):
        encoding.check_unused(columns, path)
        if split:
            raise DatasetError(f"{path} is one table and has no split {split!r}; leave it out.")
        yield _of_table(recipe, path, ids, skip_bad)
    elif _is_rows(path, columns, encoding):
        encoding.check_unused(columns, path)
        with open_rows(path, BLOCK, split, ids) as found:
            check_encoder(found.encoder, recipe, path)
            if found.dim not in (None, recipe.encoder.dim):
                raise EmbeddingsError(
                    f"{path} holds rows of {found.dim} numbers and the recipe expects rows of {recipe.encoder.dim} numbers; "
                    "encode with the recipe's encoder."
                )
            bad: list[Bad] = []
            yield Stream(_blocks_of_rows(found.blocks, path, skip_bad, bad), found.rows, ids, bad)
    elif path.is_file() and path.suffix in SUFFIXES:
        if split:
            raise DatasetError(f"{path} is one table and has no split {split!r}; give its folder, or no --split.")
        yield _of_table_of_samples(recipe, path, columns, ids, encoding, skip_bad)
    else:
        yield _of_samples(recipe, data, split, columns, ids, encoding, skip_bad)


def _is_table(recipe: Recipe, path: Path) -> bool:
    return recipe.table is not None and path.suffix in SUFFIXES


def _is_rows(path: Path, columns: Columns, encoding: Encoding) -> bool:
    """Whether a file holds embeddings, which need no encoder."""
    is_sample = encoding.encoder or columns.text or columns.path
    return not is_sample and path.is_file() and holds_rows(path)


def _file(data: str, split: str) -> Path:
    """The path of some data; in a folder of tables, the table of the split."""
    path = Path(data)
    named = [path / f"{split}{suffix}" for suffix in SUFFIXES] if split and path.is_dir() else []
    return next((each for each in named if each.is_file()), path)


def _blocks_of_rows(blocks: Any, path: Path, skip_bad: bool, bad: list[Bad]) -> Iterator[Block]:
    """Blocks of embeddings with their positions; with `skip_bad`, rows that are not finite are left out."""
    first = 0
    for x, _, ids in blocks:
        places = np.arange(first, first + len(x))
        first += len(x)
        keep = np.isfinite(x).all(axis=1) if x.dtype.kind == "f" else np.ones(len(x), dtype=bool)
        if not keep.all():
            found = [(int(i), f"{path} row {i} holds a number that is not finite") for i in places[~keep]]
            if not skip_bad:
                raise EmbeddingsError(f"{found[0][1]}. Repair or drop it, or leave such rows out with --skip-bad.")
            bad += found
            x, places, ids = (
                x[keep],
                places[keep],
                None if ids is None else list(compress(ids, keep)),
            )
        yield Block(x, places, ids)


def _of_table(recipe: Recipe, path: Path, ids: str, skip_bad: bool) -> Stream:
    table, bad = recipe.table, []
    assert table is not None
    named = {column.name for column in table.columns}

    def texts() -> Iterator[dict[str, list[Any]]]:
        for block in table_blocks(path, BLOCK):
            yield {name: list(map(text_of, cells)) if name in named else cells for name, cells in block.items()}

    def blocks() -> Iterator[Block]:
        for x, first, kept, columns in encode_blocks(texts(), table, path, skip_bad, bad):
            yield Block(x, first + kept, _ids_in(columns, ids, kept, path))

    return Stream(blocks(), None, ids, bad)


def _of_table_of_samples(
    recipe: Recipe, path: Path, columns: Columns, ids: str, encoding: Encoding, skip_bad: bool
) -> Stream:
    """Texts or files of images in a table; without other ids, the files are the ids."""
    loaded, bad = _load_encoder(recipe, encoding, path), []
    with open_table(path) as file:
        names = file.cells
    key = ids or (pick(names, columns.path, PATHS) or "" if loaded.kind == "image" else "")

    def blocks() -> Iterator[Block]:
        first = 0
        for table in table_blocks(path, SAMPLES):
            samples = samples_in(table, columns, path, first, labelled=False)
            for x, kept, left_out in _encode(samples, loaded, encoding, skip_bad):
                bad.extend((first + i, why) for i, why in left_out)
                yield Block(x, first + kept, _ids_in(table, key, kept, path))
            first += len(samples)

    return Stream(blocks(), None, key, bad)


def _of_samples(
    recipe: Recipe, data: str, split: str, columns: Columns, ids: str, encoding: Encoding, skip_bad: bool
) -> Stream:
    """Images of a folder, whose files are the ids, and sets of the Hugging Face hub."""
    if ids:
        raise DatasetError(f"{data} has no columns, so no ids {ids!r}; leave out --id-column.")
    samples, bad = load_samples(data, split, columns, labelled=False), []
    loaded, files = _load_encoder(recipe, encoding, data), _files_in(Path(data), samples)

    def blocks() -> Iterator[Block]:
        for x, kept, left_out in _encode(samples, loaded, encoding, skip_bad):
            bad.extend(left_out)
            yield Block(x, kept, None if files is None else [files[int(i)] for i in kept])

    return Stream(blocks(), len(samples), "" if files is None else FILE, bad)


def _encode(samples: Samples, loaded: SampleEncoder, encoding: Encoding, skip_bad: bool):
    """Rows of each batch, their positions, and the samples that were left out since the batch before."""
    left_out: list[Bad] = []
    for x, kept in encode_samples(samples, loaded, runtime=encoding.runtime, skip_bad=skip_bad, bad=left_out):
        yield x, kept, left_out[:]
        left_out.clear()


def _load_encoder(recipe: Recipe, encoding: Encoding, where: str | Path) -> SampleEncoder:
    """The encoder asked for, or the recipe's own, with the recipe's views; raises unless it is the recipe's."""
    spec = encoders.spec_for(recipe.encoder, encoding.encoder, where)
    views = encoders.agreed_views(spec, recipe.encoder)
    loaded = encoders.load(spec, encoding.runtime, views=views, **encoding.options)
    check_encoder(encoders.identity(loaded), recipe, where)
    return loaded


def _files_in(folder: Path, samples: Samples) -> list[str] | None:
    """The files of an image folder, relative to it; None for other samples."""
    if samples.kind != "image" or not folder.is_dir():
        return None
    try:
        return [Path(name).relative_to(folder).as_posix() for name in samples.names]
    except ValueError:
        return None


def _ids_in(table: Mapping[str, Sequence[Any]], key: str, kept: np.ndarray, path: Path) -> list[Any] | None:
    if not key:
        return None
    if key not in table:
        raise DatasetError(f"{path} has the columns {', '.join(table)} but no ids {key!r}; check --id-column.")
    return [_id_of(table[key][int(i)]) for i in kept]


def _id_of(value: Any) -> str | int:
    return value if isinstance(value, int) and not isinstance(value, bool) else text_of(value)
