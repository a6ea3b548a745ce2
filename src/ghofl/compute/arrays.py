"""Arrays that may be larger than memory: those that are lie in a nameless temporary file that is mapped into it.

An array may take a quarter of the memory that this process can have, or as many bytes as GHOFL_ARRAY_BYTES says. A larger
one is an array like any other, whose entries the system reads and writes as they are used; TMPDIR says on which disk.
Whoever goes through such an array looks at a piece of it at a time, and lets go of it afterwards.
"""

import errno
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from math import prod
from pathlib import Path

import numpy as np

from ghofl.errors import MemoryLimitError
from ghofl.shapes import Shaped

LIMIT = "GHOFL_ARRAY_BYTES"
PIECE = 2**24  # bytes of a mapped array that are worked on at a time, where single rows are smaller
AROUND = 2**21  # bytes: with an entry the system brings in what lies around it, also before it
CONTAINER = Path("/sys/fs/cgroup/memory.max")  # what a container may have


def limit() -> int:
    """The most bytes that an array may take in memory."""
    given = os.environ.get(LIMIT, "")
    if not given:
        return _memory() // 4
    if not given.isdecimal():
        raise MemoryLimitError(f"{LIMIT} is {given[:40]!r}; write a number of bytes, e.g. {2**30}, or leave it unset.")
    return int(given)


@cache
def _memory() -> int:
    found = [2**62]
    with suppress(AttributeError, ValueError, OSError):  # not on Windows
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ValueError, OSError):  # "max" where nothing is limited
        found.append(int(CONTAINER.read_text()))
    return min(found)


def zeros(
    shape: tuple[int, ...], dtype: np.dtype | type = np.int64, most: int | None = None
) -> Shaped[np.ndarray, "..."]:
    """An array of zeros: in memory, or in a file where it takes more than `most` bytes, `limit()` unless given.

    >>> is_mapped(zeros((2, 3))), is_mapped(zeros((2, 3), most=1))
    (False, True)
    """
    size = prod(shape) * np.dtype(dtype).itemsize
    if size <= (limit() if most is None else most):
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile() as file:  # the system forgets it with the last array on it
        _reserve(file.fileno(), size)
        return np.asarray(np.memmap(file, dtype, "r+", shape=shape))  # type: ignore[call-overload]


def _reserve(handle: int, size: int) -> None:
    """Take room for a file: a disk that is full later would end the process without a word."""
    try:
        os.truncate(handle, size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system that takes room only as it is used
            return
        raise MemoryLimitError(
            f"an array of {size:,} bytes is too large for memory (a quarter of it, unless {LIMIT} says otherwise), and there is "
            f"no room for it in {tempfile.gettempdir()} ({error.strerror}); set TMPDIR to a folder on a larger disk."
        ) from None


def is_mapped(array: np.ndarray) -> bool:
    """Whether an array lies in a file."""
    return _map(array) is not None


def evict(array: np.ndarray) -> None:
    """Let go of the memory that holds entries of an array in a file; they are read again when they are used again.

    Nothing happens to an array in memory, and nothing is lost of one in a file.
    """
    mapped = _map(array)
    if mapped is None or not array.flags.c_contiguous or not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = np.frombuffer(mapped, dtype=np.uint8).ctypes.data
    start = (array.ctypes.data - first) // AROUND * AROUND
    mapped.madvise(mmap.MADV_DONTNEED, start, array.ctypes.data - first + array.nbytes - start)


def pieces(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Arrays of one length, some of their rows at a time where one of them lies in a file, and otherwise whole.

    >>> [(a.shape, b.shape) for a, b in pieces(np.zeros((3, 2)), np.ones(3))]
    [((3, 2), (3,))]
    """
    if not any(map(is_mapped, arrays)):
        yield arrays
        return
    widest = max(array.nbytes // max(1, len(array)) for array in arrays)
    step = max(1, PIECE // max(1, widest))
    for start in range(0, len(arrays[0]), step):
        some = tuple(array[start : start + step] for array in arrays)
        yield some
        for array in some:
            evict(array)


def copies(blocks: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of their own with the same entries."""
    out = {name: zeros(block.shape, block.dtype) for name, block in blocks.items()}
    for name, block in blocks.items():
        add_to(out[name], block)
    return out


def map_entries(work: Callable[..., np.ndarray], *given: np.ndarray) -> np.ndarray:
    """What `work` makes of arrays of one shape, entry by entry, in an array of its own of that shape and kind.

    >>> map_entries(np.add, np.array([1, 2]), np.array([10, 20]))
    array([11, 22])
    """
    if not any(map(is_mapped, given)):
        return work(*given)
    out = zeros(given[0].shape, given[0].dtype)
    for into, *some in pieces(out, *given):
        into[...] = work(*some)
    return out


def add_to(out: np.ndarray, more: np.ndarray) -> None:
    """Add the entries of an array to those of another, in place."""
    for into, some in pieces(out, more):
        into += some


def _map(array: np.ndarray) -> mmap.mmap | None:
    """What an array of a file is mapped by, where forgetting it loses nothing."""
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base  # type: ignore[assignment]
    if isinstance(array, np.memmap) and array.mode != "c":
        return array._mmap  # type: ignore[attr-defined]
    return None
