"""Arrays of .npz, .npy and .safetensors files, some of their rows at a time; nothing is ever unpickled."""

import errno
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from ghofl.errors import EmbeddingsError, GhoflError
from ghofl.rows import from_text
from ghofl.rows.reader import OpenFile, unknown_suffix

SUFFIXES = (".npz", ".npy", ".safetensors")
MOST_ENTRIES = 2**48
MOST_AT_ONCE = 2**26  # bytes of an archive
WIDEST_ROW = 2**30  # bytes
DENSEST = 1032  # bytes that a byte of a zip file stands for at most, by its own rules
# What is raised for damaged files: numpy, zipfile and the decompressors have no error in common.
# Encrypted members and unknown versions of zip files are a RuntimeError and its child NotImplementedError; a header that
# is not Python is a SyntaxError or, where a bracket is open, a TokenError.
_ERRORS = (
    ValueError, TypeError, LookupError, AttributeError, OverflowError, RuntimeError, SyntaxError, EOFError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, SafetensorError,
)  # fmt: skip


class _Array(NamedTuple):
    """An array of a file: its shape, how many rows of it to read at once, and a function that reads rows, in order."""

    shape: tuple[int, ...]
    at_once: int
    read: Callable[[int, int], np.ndarray]


@contextmanager
def open_arrays(path: Path) -> Iterator[OpenFile]:
    """An open file of arrays. A bare .npy has one called x, and y where its labels are in NAME.labels.npy beside it.

    A damaged file raises `EmbeddingsError`, here or while its blocks are read.
    """
    words = (
        f"{path} is damaged, or is not an {path.suffix} of plain arrays; "
        "write one with numpy.savez(path, x=embeddings, y=labels)."
    )
    if path.is_file() and path.suffix not in (*SUFFIXES, *from_text.SUFFIXES):
        raise EmbeddingsError(unknown_suffix(path, SUFFIXES))
    if path.suffix in from_text.SUFFIXES:
        words = (
            f"{path} is a table, and an .npz of arrays x and y was expected; the rows of a table need a schema, or a "
            "`label_column` from which one is drafted, and texts or files of images go with `data`."
        )
    with ExitStack() as stack:
        with damage_as(words):
            names, find = {".npy": _npy, ".safetensors": _safetensors}.get(path.suffix, _npz)(path, stack, words)

        def shape(name: str) -> tuple[int, ...]:
            with damage_as(words), ExitStack() as own:
                return find(name, own).shape

        def blocks(wanted: Sequence[str], size: int) -> Iterator[dict[str, np.ndarray]]:
            with damage_as(words), ExitStack() as own:
                found = {name: find(name, own) for name in wanted}
                rows = min(_rows(array.shape) for array in found.values())
                step = min(size or max(1, rows), *(array.at_once for array in found.values()))
                for start in range(0, max(1, rows), step):
                    yield {name: array.read(start, min(start + step, rows)) for name, array in found.items()}

        yield OpenFile(names, shape, blocks)


Find = Callable[[str, ExitStack], _Array]


def _rows(shape: tuple[int, ...]) -> int:
    return shape[0] if shape else 1


def labels_beside(path: Path) -> Path:
    """The file that has the labels of a bare .npy."""
    return path.with_suffix(".labels.npy")


def _npy(path: Path, stack: ExitStack, words: str) -> tuple[list[str], Find]:
    found = {}
    for name, each in (("x", path), ("y", labels_beside(path))):
        if name == "x" or each.is_file():
            with each.open("rb") as file:
                _header(file, words, str(each))  # objects are not damage
            found[name] = np.load(each, mmap_mode="r" if name == "x" else None, allow_pickle=False)
    return list(found), lambda name, _: _Array(found[name].shape, 2**62, lambda start, stop: found[name][start:stop])


def _safetensors(path: Path, stack: ExitStack, words: str) -> tuple[list[str], Find]:
    file = stack.enter_context(safe_open(path, framework="numpy"))

    def find(name: str, _: ExitStack) -> _Array:
        part = file.get_slice(name)
        shape = tuple(part.get_shape())

        def read(start: int, stop: int) -> np.ndarray:
            return file.get_tensor(name) if (start, stop) == (0, _rows(shape)) else part[start:stop]

        return _Array(shape, 2**62, read)

    return list(file.keys()), find


def _npz(path: Path, stack: ExitStack, words: str) -> tuple[list[str], Find]:
    file = stack.enter_context(path.open("rb"))  # a damaged archive would not be closed otherwise
    archive = stack.enter_context(zipfile.ZipFile(file))

    def find(name: str, own: ExitStack) -> _Array:
        member = own.enter_context(archive.open(f"{name}.npy"))
        return _member(member, DENSEST * path.stat().st_size, words, f"{path}, array {name!r}")

    return [name.removesuffix(".npy") for name in archive.namelist()], find


def _member(member: Any, most: int, words: str, where: str) -> _Array:
    """An array of an archive, which holds at most so many bytes, and whose rows are read one after another."""
    shape, is_by_columns, dtype = _header(member, words, where)
    rows, width = _rows(shape), dtype.itemsize * prod(shape[1:])

    def take(count: int, is_last: bool) -> bytearray:
        data = bytearray(member.read(count * width)) if width <= WIDEST_ROW and count * width <= most else b""
        if len(data) < count * width:
            raise EmbeddingsError(f"{words} It ends before its last row.")
        if is_last and member.read(1):  # reading on also checks the checksum
            raise EmbeddingsError(f"{words} It has more bytes after its last row.")
        return bytearray(data)

    @cache
    def whole() -> np.ndarray:
        return np.frombuffer(take(rows, True), dtype=dtype).reshape(shape[::-1]).T

    def read(start: int, stop: int) -> np.ndarray:
        if is_by_columns:
            return whole()[start:stop]
        data = np.frombuffer(take(stop - start, stop == rows), dtype=dtype)
        return data.reshape((stop - start, *shape[1:]) if shape else ())

    return _Array(shape, max(1, MOST_AT_ONCE // max(1, width)), read)


def _header(member: Any, words: str, where: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """The shape of the array that starts here, whether it is stored column by column, and its type."""
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_by_columns, dtype = read(member)
    if min(shape, default=0) < 0 or prod(shape) > MOST_ENTRIES:
        raise EmbeddingsError(f"{words} It claims an array of the impossible shape {shape}.")
    if dtype.hasobject:
        raise EmbeddingsError(
            f"{where} holds objects of Python, which are never loaded, as they may run programs; save labels with "
            ".astype(str), and numbers with .astype(numpy.float32)."
        )
    return shape, is_by_columns and len(shape) > 1, dtype


@contextmanager
def damage_as(words: str) -> Iterator[None]:
    """Inside the block, which only reads a file, damage raises `EmbeddingsError` with these words."""
    try:
        yield
    except GhoflError:
        raise
    except MemoryError:
        raise EmbeddingsError(
            f"{words} It claims more than fits into memory; the rows of an .npy are read a few at a time."
        ) from None
    except OSError as error:  # a place before the file's start, or what bz2 cannot read; not a file that is missing
        if error.errno not in (None, errno.EINVAL):
            raise
        raise EmbeddingsError(words) from None
    except _ERRORS:
        raise EmbeddingsError(words) from None
