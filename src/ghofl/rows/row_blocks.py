"""Files of embeddings, a block of rows at a time, so that a file need not fit into memory."""

import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from ghofl.errors import EmbeddingsError
from ghofl.names import shown
from ghofl.recipe import Encoder
from ghofl.rows.columnar import SUFFIXES, matrix, open_columns
from ghofl.rows.damage import damage_as
from ghofl.rows.rows import FINGERPRINT, NAME, VIEWS, check_shapes, encoder_in, suffix_in
from ghofl.rows.tables import cells, open_parquet, pick
from ghofl.shapes import Num, Shaped

EMBEDDING = ("x", "embedding")
MOST_ENTRIES = 2**48
MOST_BESIDE = 2**30  # bytes of ids, which are read whole


@dataclass(frozen=True, slots=True, eq=False)
class RowFile:
    """An open file of embeddings: how many rows it has and how long they are (None before they are read, in a
    Parquet or Arrow file), its encoder where it says so, and its blocks with their ids.
    """

    rows: int
    dim: int | None
    encoder: Encoder | None = None
    blocks: Iterator[tuple[Num[np.ndarray, "n dim"], Shaped[np.ndarray, " n"] | None]] = field(
        default_factory=lambda: iter(()), repr=False
    )


@contextmanager
def open_rows(path: Path, size: int, split: str = "", column: str = "", ids: str = "") -> Iterator[RowFile]:
    """The rows of a file as in `load_rows`, without labels; `ids` names an array or column of ids.

    A damaged file raises `EmbeddingsError`, here or while its blocks are read.
    """
    opened = {".npz": _npz, ".safetensors": _safetensors, **dict.fromkeys(SUFFIXES, _columns)}.get(path.suffix, _npy)
    words = f"{path} is damaged, or not a file of embeddings; write it again."
    with ExitStack() as stack:
        with damage_as(words):
            found = stack.enter_context(opened(path, size, split, column, ids))
        yield replace(found, blocks=_undamaged(found.blocks, words))


def _undamaged(blocks: Iterator[Any], words: str) -> Iterator[Any]:
    with damage_as(words):
        yield from blocks


def holds_rows(path: Path, column: str) -> bool:
    """Whether a file holds embeddings, by its suffix or, in a parquet file, by a column of lists."""
    if path.suffix != ".parquet":
        return path.suffix in (".npz", ".npy", ".safetensors", *SUFFIXES)
    with open_parquet(path) as file:
        name = pick(file.schema_arrow.names, column, EMBEDDING)
        return name is not None and "list" in str(file.schema_arrow.field(name).type)


@contextmanager
def _npy(path: Path, size: int, split: str, column: str, ids: str) -> Iterator[RowFile]:
    if split or ids:
        raise EmbeddingsError(
            f"{path} holds one bare array, without a split {split!r} or ids {ids!r}; leave these out."
        )
    try:
        x = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:
        raise EmbeddingsError(f"{path} is not an array of plain numbers; write it with numpy.save.") from None
    check_shapes(x, None, path)
    yield RowFile(
        len(x), x.shape[1], None, ((np.array(x[start : start + size]), None) for start in range(0, len(x), size))
    )


@contextmanager
def _npz(path: Path, size: int, split: str, column: str, ids: str) -> Iterator[RowFile]:
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        suffix = suffix_in(names, split, path)
        small = {name: _member(archive, name, path) for name in (NAME, FINGERPRINT, VIEWS) if name in names}
        keys = _ids(ids, suffix, names, path)
        beside = _member(archive, keys, path) if keys else None
        with archive.open(f"x{suffix}.npy") as member:
            shape, dtype = _header(member, path)
            check_shapes(np.lib.stride_tricks.as_strided(np.zeros(1, dtype), shape, [0] * len(shape)), None, path)
            check_ids(beside, ids, shape[0], path)
            blocks = _npz_blocks(member, shape, dtype, size, beside, path)
            yield RowFile(shape[0], shape[1], encoder_in(small, shape[1]), blocks)


def _header(member: Any, path: Path) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and type of the array that starts here, stored row by row."""
    try:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_by_columns, dtype = read(member)
    except ValueError:
        raise EmbeddingsError(f"{path} is not an .npz of plain arrays; write one with numpy.savez.") from None
    if min(shape, default=0) < 0 or prod(shape) > MOST_ENTRIES:
        raise EmbeddingsError(f"{path} claims an array of the impossible shape {shape}; write it again.")
    if dtype.hasobject or (is_by_columns and len(shape) > 1):
        what = "objects" if dtype.hasobject else "numbers column by column"
        raise EmbeddingsError(f"{path} holds {what}; save numpy.ascontiguousarray(x) as numbers.")
    return shape, dtype


def _npz_blocks(member: Any, shape: tuple[int, ...], dtype: np.dtype, size: int, ids: np.ndarray | None, path: Path):
    width = dtype.itemsize * prod(shape[1:])
    for start in range(0, shape[0], size):
        count = min(size, shape[0] - start)
        data = member.read(count * width)
        if len(data) < count * width:
            raise EmbeddingsError(f"{path} ends before its last row; write it again.")
        x = np.frombuffer(data, dtype=dtype).reshape(count, *shape[1:])
        yield x, None if ids is None else ids[start : start + count]
    if member.read(1):  # reading on also checks the checksum
        raise EmbeddingsError(f"{path} has more bytes after its last row; write it again.")


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray:
    with archive.open(f"{name}.npy") as member:
        shape, dtype = _header(member, path)
        size = dtype.itemsize * prod(shape)
        data = member.read(size) if size <= MOST_BESIDE else b""
        if len(data) < size:
            raise EmbeddingsError(f"{path} is damaged: {name} is cut off or too large; write it again.")
        return np.frombuffer(data, dtype=dtype).reshape(shape)


@contextmanager
def _safetensors(path: Path, size: int, split: str, column: str, ids: str) -> Iterator[RowFile]:
    with safe_open(path, framework="numpy") as file:
        names = list(file.keys())
        suffix = suffix_in(names, split, path)
        small = {name: file.get_tensor(name) for name in (NAME, FINGERPRINT, VIEWS) if name in names}
        keys = _ids(ids, suffix, names, path)
        beside = file.get_tensor(keys) if keys else None
        x = file.get_slice("x" + suffix)
        shape = tuple(x.get_shape())
        check_shapes(x[:1] if shape and shape[0] else file.get_tensor("x" + suffix), None, path)
        check_ids(beside, ids, shape[0], path)
        blocks = (
            (x[start : min(start + size, shape[0])], None if beside is None else beside[start : start + size])
            for start in range(0, shape[0], size)
        )
        yield RowFile(shape[0], shape[1], encoder_in(small, shape[1]), blocks)


@contextmanager
def _columns(path: Path, size: int, split: str, column: str, ids: str) -> Iterator[RowFile]:
    with open_columns(path) as file:
        names, rows = file.names, file.rows
    name = pick(names, column, EMBEDDING)
    if name is None or split or (ids and ids not in names):
        raise EmbeddingsError(
            f"{path} has the columns {shown(', '.join(names), 200)} and no splits; expected a column {column or 'embedding'!r} "
            "of lists" + (f" and a column {ids!r} of ids." if ids else ".")
        )
    yield RowFile(rows, None, None, _column_blocks(path, size, name, ids))


def _column_blocks(path: Path, size: int, name: str, ids: str):
    with open_columns(path, size) as file:
        for batch in file.batches(list(dict.fromkeys([name, *([ids] if ids else [])]))):
            for start in range(0, len(batch), size):
                some = batch.slice(start, size)
                x = matrix(some.column(name))
                if x is None:
                    raise EmbeddingsError(
                        f"{path}: column {name!r} does not hold lists of one length; repair its rows."
                    )
                yield x, np.array(cells(some.column(ids), f"{path}, column {ids!r}")) if ids else None


def _ids(ids: str, suffix: str, names: list[str], path: Path) -> str:
    """The name of the array of ids: that of the split, or the one without a split."""
    found = next((name for name in (ids + suffix, ids) if ids and name in names), "")
    if ids and not found:
        raise EmbeddingsError(
            f"{path} holds {shown(', '.join(sorted(names)), 200)} but no ids {ids!r}; check --id-column."
        )
    return found


def check_ids(ids: np.ndarray | None, name: str, rows: int, where: str | Path) -> None:
    """Raise unless there is one id per row."""
    if ids is not None and (ids.shape != (rows,) or ids.dtype.kind not in "iuU"):
        raise EmbeddingsError(
            f"{where}: {name!r} has shape {ids.shape} and {ids.dtype}; expected one text or whole number per row, {rows}."
        )
