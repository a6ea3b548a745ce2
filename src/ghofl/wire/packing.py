"""Integers in the fewest whole bytes, chunk by chunk.

A block of int64 entries is cut into chunks of 256. Each chunk has one code byte: the number of bytes an entry takes
(0 to 8), plus 16 when the chunk holds a negative entry and is stored in two's complement. Chunks of one width follow
each other as byte planes (all lowest bytes first), which also suits general compressors best. A
chunk of zeros takes its code byte and nothing else, so classes that a site does not have take almost no space.

::

    codes   one byte per chunk
    data    for each slab of 4096 chunks: for each code in ascending order: the chunks' byte planes
            then, where the entries do not fill the last chunk, that shorter chunk on its own
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from ghofl.compute import arrays
from ghofl.errors import MessageError
from ghofl.shapes import Int, Int64, UInt8

CHUNK = 256
SLAB = 4096
SIGNED = 16
AT_ONCE = 256  # chunks that are widened at a time: half a megabyte, which caches hold
_UNSIGNED_LIMITS = np.array([2 ** (8 * w) - 1 for w in range(8)], dtype=np.uint64)
_CODES = frozenset([*range(9), *range(SIGNED + 1, SIGNED + 9)])
_SIGNED_LIMITS = np.array([-1, *(2 ** (8 * w - 1) - 1 for w in range(1, 8))], dtype=np.int64)


def chunks_of(count: int) -> int:
    """How many chunks, and so code bytes, a block of `count` entries has."""
    return -(-count // CHUNK)


@runtime_checkable
class Sliced(Protocol):
    """Bytes that give uint8 arrays when they are sliced: an array, or a file."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def __getitem__(self, where: slice, /) -> np.ndarray:
        """Some of them."""
        ...


def pack(values: Int64[np.ndarray, " n"]) -> tuple[UInt8[np.ndarray, " chunks"], UInt8[np.ndarray, " bytes"]]:
    """Codes and data of a block.

    >>> codes, data = pack(np.array([1, 2, 300]))
    >>> codes, data
    (array([2], dtype=uint8), array([ 1,  2, 44,  0,  0,  1], dtype=uint8))
    """
    codes = codes_of(values)
    return codes, _join(list(packed_slabs(values, codes)))


def codes_of(values: Int64[np.ndarray, " n"]) -> UInt8[np.ndarray, " chunks"]:
    """The code byte of every chunk of a block."""
    return _join([_codes(slab) for slab in _slabs(values)])


def data_bytes(codes: UInt8[np.ndarray, " chunks"], count: int) -> int:
    """How many data bytes the codes of a block of `count` entries announce."""
    each = codes.tobytes()
    whole = CHUNK * sum(code % SIGNED * each.count(code) for code in set(each))
    return whole - (-count % CHUNK) * (each[-1] % SIGNED) if count else whole


def packed_slabs(
    values: Int64[np.ndarray, " n"], codes: UInt8[np.ndarray, " chunks"]
) -> Iterator[UInt8[np.ndarray, " bytes"]]:
    """The data of a block, a slab at a time."""
    chunk = 0
    for slab in _slabs(values):
        code = codes[chunk : chunk + len(slab)]
        chunk += len(slab)
        for width in np.unique(code):
            planes = slab[code == width].astype("<i8", copy=False).view(np.uint8)
            planes = planes.reshape(-1, slab.shape[1], 8)[:, :, : width % SIGNED]
            yield planes.transpose(2, 0, 1).ravel()


def unpack(codes: UInt8[np.ndarray, " chunks"], data: Sliced, count: int) -> Int64[np.ndarray, " count"]:
    """The entries of a block; codes and data that do not fit `count` or each other raise `MessageError`.

    >>> unpack(*pack(np.array([-5, 0, 7])), 3)
    array([-5,  0,  7])
    """
    _check(codes, data, count)
    values, position = arrays.zeros((count,)), 0
    for low, high in _spans(count):
        position = _fill(values[low:high], codes[low // CHUNK :], data, position)
        arrays.evict(values[low:high])
    return values


def unpack_many(values: Int64[np.ndarray, "blocks count"], packed: Sequence[tuple[np.ndarray, Sliced]]) -> None:
    """Write the entries of many small blocks, a row for each; checked as in `unpack`.

    Chunks of one width are widened together, whichever block they are of, so that small ones cost what their bytes cost.
    """
    for codes, data in packed:
        _check(codes, data, values.shape[1])
    each, left = [codes.tobytes() for codes, _ in packed], [data[:].tobytes() for _, data in packed]
    for low, high in _spans(values.shape[1]):
        slabs = values[:, low:high].reshape(len(values), -1, min(CHUNK, high - low))
        for (code, count), parts in _alike(each, left, low // CHUNK, *slabs.shape[1:]).items():
            owners, places, content = zip(*parts, strict=True)
            shape = len(parts), code % SIGNED, count, slabs.shape[2]
            planes = np.frombuffer(b"".join(content), np.uint8).reshape(shape)
            slabs[np.array(owners)[:, None], places] = _from_planes(planes.swapaxes(0, 1), code)


def _alike(
    codes: Sequence[bytes], left: list[bytes], first: int, chunks: int, entries: int
) -> dict[tuple[int, int], list[tuple[int, list[int], bytes]]]:
    """By code and how many chunks have it: whose chunks these are, which ones, and their bytes, taken from what is left."""
    found: dict[tuple[int, int], list[tuple[int, list[int], bytes]]] = {}
    for i, (code, data) in enumerate(zip(codes, left, strict=True)):
        each, position = code[first : first + chunks], 0
        for one in sorted(set(each)):
            places = [j for j, other in enumerate(each) if other == one]
            end = position + one % SIGNED * len(places) * entries
            found.setdefault((one, len(places)), []).append((i, places, data[position:end]))
            position = end
        left[i] = data[position:]
    return found


def unpacked_slabs(
    codes: UInt8[np.ndarray, " chunks"], data: Sliced, count: int
) -> Iterator[tuple[int, Int64[np.ndarray, " some"]]]:
    """The entries of a block, a slab at a time, each with the position of its first; checked as in `unpack`."""
    _check(codes, data, count)
    position = 0
    for low, high in _spans(count):
        entries = np.empty(high - low, dtype=np.int64)
        position = _fill(entries, codes[low // CHUNK :], data, position)
        yield low, entries


def _fill(entries: np.ndarray, codes: np.ndarray, data: Sliced, position: int) -> int:
    """Write the entries of a slab whose data start at this position; returns where the data of the next slab start."""
    slab = _in_chunks(entries)
    each = codes[: len(slab)].tobytes()
    for code in sorted(set(each)):
        chunks = each.count(code)
        rows = None if chunks == len(each) else np.flatnonzero(codes[: len(slab)] == code)
        planes = data[position : position + code % SIGNED * chunks * slab.shape[1]]
        position += len(planes)
        planes = planes.reshape(code % SIGNED, chunks, slab.shape[1])
        for first in range(0, chunks, AT_ONCE):
            some = slice(first, first + AT_ONCE)
            slab[some if rows is None else rows[some]] = _from_planes(planes[:, some], code)
    return position


def _spans(count: int) -> list[tuple[int, int]]:
    """Where the slabs of a block start and end: those of whole chunks, then the rest."""
    whole = count - count % CHUNK
    spans = [(low, min(low + SLAB * CHUNK, whole)) for low in range(0, whole, SLAB * CHUNK)]
    return [*spans, (whole, count)] if whole < count else spans


def _in_chunks(slab: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, "chunks entries"]:
    return slab.reshape(-1, min(CHUNK, len(slab)))


def _slabs(values: Int64[np.ndarray, " n"]) -> Iterator[Int64[np.ndarray, "chunks entries"]]:
    """Views of whole chunks, a slab at a time, then of the rest."""
    for low, high in _spans(len(values)):
        yield _in_chunks(values[low:high])
        arrays.evict(values[low:high])


def _codes(slab: Int64[np.ndarray, "chunks entries"]) -> UInt8[np.ndarray, " chunks"]:
    low, high = slab.min(axis=1), slab.max(axis=1)
    unsigned = np.searchsorted(_UNSIGNED_LIMITS, np.maximum(high, 0).astype(np.uint64))
    signed = np.searchsorted(_SIGNED_LIMITS, np.maximum(high, ~low)) + SIGNED  # ~low = −low − 1
    return np.where(low < 0, signed, unsigned).astype(np.uint8)


def _from_planes(
    planes: UInt8[np.ndarray, "width *chunks entries"], code: int
) -> Int[np.ndarray, "*chunks entries"] | int:
    width = code % SIGNED
    if not width:
        return 0
    highest = planes[width - 1].view(np.int8) if code >= SIGNED else planes[width - 1]
    out = highest.astype(np.int32 if width < 4 else np.int64)  # narrow numbers go through the cache twice as fast
    for plane in planes[width - 2 :: -1] if width > 1 else ():
        out <<= 8
        out |= plane
    return out


def _check(codes: np.ndarray, data: Sliced, count: int) -> None:
    if len(codes) != chunks_of(count):
        raise MessageError(f"{len(codes)} code bytes came for {count} entries; {chunks_of(count)} were expected.")
    if not _CODES.issuperset(codes.tobytes()):
        raise MessageError(
            f"a code byte is outside 0–8 and 17–24 ({max(set(codes.tobytes()) - _CODES)}); the message is "
            "damaged, ask the site to send it again."
        )
    expected = data_bytes(codes, count)
    if len(data) != expected:
        raise MessageError(f"{len(data)} data bytes came where the codes announce {expected}; the message is damaged.")


def _join(parts: list[np.ndarray]) -> UInt8[np.ndarray, " n"]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint8)
