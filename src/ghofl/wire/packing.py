"""Integers as byte planes under zlib, 65,536 of them at a time.

Each such slab of int64 entries is

::

    1 byte     w, how many bytes an entry takes in two's complement: 0 to 8
    4 bytes    how long the stream is, little-endian
    stream     zlib, of w planes: the lowest byte of every entry, then the next

The upper planes of sums are nearly constant, which zlib's run lengths take out quickly (level 1); they take out classes that
a site does not have, too.
"""

import zlib
from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from ghofl.compute.threads import map_in_order
from ghofl.errors import MessageError
from ghofl.shapes import Int, Int64, UInt8

SLAB = 2**16
HEAD = 5  # bytes before a stream
_AGAIN = "the file is damaged; ask for it again"


@runtime_checkable
class Sliced(Protocol):
    """Bytes that give uint8 arrays when they are sliced: an array, or a file."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def __getitem__(self, where: slice, /) -> np.ndarray:
        """Some of them."""
        ...


def most_bytes(count: int) -> int:
    """The most bytes that so many packed entries take: no zlib writes more than nine bits per byte, and a little."""
    return 9 * count + 128 * -(-count // SLAB)


def pack(values: Int64[np.ndarray, " n"]) -> bytes:
    """Entries as bytes.

    >>> pack(np.array([1, 2, 300]))[0], len(pack(np.zeros(65_536, dtype=np.int64))), len(pack(np.zeros(65_537, dtype=np.int64)))
    (2, 13, 26)
    """
    slabs = (values[low : low + SLAB] for low in range(0, len(values), SLAB))
    return b"".join(map_in_order(pack_slab, slabs))


def pack_slab(values: Int64[np.ndarray, " n"]) -> bytes:
    """The bytes of one slab."""
    low, high = int(values.min()), int(values.max())
    width = max(high, ~low).bit_length() // 8 + 1 if low or high else 0  # ~low = −low − 1
    planes = values.astype("<i8", copy=False).view(np.uint8).reshape(-1, 8)[:, :width].T
    squeezer = zlib.compressobj(level=1, strategy=zlib.Z_RLE)
    stream = squeezer.compress(planes.tobytes()) + squeezer.flush()
    return bytes([width]) + len(stream).to_bytes(HEAD - 1, "little") + stream


def unpack(data: Sliced, count: int) -> Int64[np.ndarray, " count"]:
    """So many entries; bytes that are not exactly theirs raise `MessageError`.

    >>> unpack(np.frombuffer(pack(np.array([-5, 0, 7])), dtype=np.uint8), 3)
    array([-5,  0,  7])
    """
    return np.concatenate([np.empty(0, dtype=np.int64), *(entries for _, entries in unpacked_slabs(data, count))])


def unpacked_slabs(data: Sliced, count: int) -> Iterator[tuple[int, Int64[np.ndarray, " some"]]]:
    """The entries of a block, a slab at a time, each with the position of its first; checked as in `unpack`."""

    def unpacked(slab: "_Slab") -> tuple[int, np.ndarray]:
        entries = np.empty(slab.size, dtype=np.int64)
        entries[...] = _widen(np.frombuffer(slab.inflated(), np.uint8).reshape(slab.width, slab.size))
        return slab.low, entries

    return map_in_order(unpacked, _frames(data, count))


class _Slab(NamedTuple):
    """The stream of `size` entries from `low` on, which take `width` bytes each."""

    low: int
    size: int
    width: int
    stream: bytes

    def inflated(self) -> bytes:
        """The planes; never more than announced, whatever the stream would give."""
        inflater, expected = zlib.decompressobj(), self.width * self.size
        try:
            planes = inflater.decompress(self.stream, expected + 1)
        except zlib.error as error:
            raise MessageError(f"the entries from {self.low:,} on are not a zlib stream ({error}); {_AGAIN}.") from None
        if len(planes) != expected or not inflater.eof or inflater.unused_data:
            came = f"more than {expected:,}" if len(planes) > expected else f"{len(planes):,}"
            raise MessageError(
                f"the entries from {self.low:,} on inflate to {came} bytes, with {len(inflater.unused_data):,} behind their end, "
                f"where {expected:,} were announced; {_AGAIN}."
            )
        return planes


def _frames(data: Sliced, count: int) -> Iterator[_Slab]:
    """The slabs of so many entries, whose bytes must be all there are."""
    at = 0
    for low in range(0, count, SLAB):
        width, *digits = bytes(data[at : at + HEAD]).ljust(HEAD, b"\xff")  # where it ends early, nothing fits
        length, size = int.from_bytes(digits, "little"), min(SLAB, count - low)
        at += HEAD + length
        if width > 8 or length > most_bytes(size) or at > len(data):
            raise MessageError(
                f"the entries from {low:,} on claim {width} bytes each, in a stream of {length:,} bytes, which cannot be or are "
                f"not there; {_AGAIN}."
            )
        yield _Slab(low, size, width, bytes(data[at - length : at]))
    if at != len(data):
        raise MessageError(f"{len(data) - at:,} bytes follow the last entry; {_AGAIN}.")


def _widen(planes: UInt8[np.ndarray, "width *entries"]) -> Int[np.ndarray, "*entries"] | int:
    if not len(planes):
        return 0
    # Narrow numbers go through the cache twice as fast.
    out = planes[-1].view(np.int8).astype(np.int32 if len(planes) <= 4 else np.int64)
    for plane in planes[-2::-1]:
        out <<= 8
        out |= plane
    return out
