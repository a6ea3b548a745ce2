"""The ring that masked vectors live in, and the masks: integers mod 2^b, hidden by an AES-256-CTR stream.

A site adds masks to its int64 vector mod 2^b. Masks cancel or are taken away again, and what is left is the sum of
the vectors mod 2^b. With b chosen so that clients × bound < 2^(b−1), that is the sum itself, to the bit.

The mask of a 32-byte seed, entry by entry, with AES-256 in counter mode over zeros and all words little-endian::

    b = 32           the 4-byte words of the stream that starts at counter block 0
    b = 40           low 32 bits as above; high 8 bits are the bytes of the stream that starts at block 2^127
    b = 48, 56, 64   the 8-byte words of the stream that starts at counter block 0, mod 2^b
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ghofl.secure.errors import RingError, WireError
from ghofl.shapes import Int64, UInt

RING_BITS = (32, 40, 48, 56, 64)
CHUNK = 2**15  # entries masked at a time: vector, stream and zeros stay in the second-level cache together
BATCH = 64  # ciphers kept open at a time

_LOW_STREAM, _HIGH_STREAM = bytes(16), bytes([128]) + bytes(15)

Elements = UInt[np.ndarray, " entries"]


@dataclass(frozen=True, slots=True)
class Ring:
    """The integers mod 2^bits: signed vectors in, packed bytes out, masks between.

    Elements are uint32 (32 bits) or uint64 arrays of which the low `bits` bits count.

    Guarantees
    ----------
    ``ring.decode(ring.unpack(ring.pack(ring.encode(x, bound)), len(x))) == x`` in exactly bits/8 bytes per entry, and
    the same with masks added and taken away in between. A ring from `Ring.holding` can hold every sum: overflow is
    not possible, because `encode` refuses entries beyond the bound.

    Examples
    --------
    >>> ring = Ring.holding(clients=1000, bound=10**8)
    >>> ring
    Ring(bits=40)
    >>> seed, x = bytes(range(32)), np.array([-5, 7])
    >>> masked = ring.masked(ring.encode(x, bound=10), plus=[seed])
    >>> ring.decode(masked)
    array([-108615659283,  140939053361])
    >>> ring.decode(ring.masked(masked, minus=[seed]))
    array([-5,  7])
    """

    bits: int

    def __post_init__(self) -> None:
        if self.bits not in RING_BITS:
            raise RingError(f"a ring of {self.bits} bits was asked for; rings have one of {RING_BITS}.")

    @classmethod
    def holding(cls, clients: int, bound: int) -> "Ring":
        """The smallest ring in which the sum of `clients` entries within ±bound is its own signed value."""
        if clients < 1 or bound < 0:
            raise RingError(f"{clients} clients with entries within ±{bound} make no sum; give at least 1 and ±0.")
        for bits in RING_BITS:
            if clients * bound < 2 ** (bits - 1):
                return cls(bits)
        raise RingError(
            f"{clients} clients with entries up to {bound} can add up to {clients * bound}, beyond 2^63 − 1; "
            "use fewer grid bits, or fewer rows per site."
        )

    @property
    def width(self) -> int:
        """Bytes an entry takes in a message."""
        return self.bits // 8

    @property
    def dtype(self) -> np.dtype:
        """The type of elements in memory."""
        return np.dtype("<u4" if self.bits == 32 else "<u8")

    def encode(self, values: Int64[np.ndarray, " entries"], bound: int) -> Elements:
        """Signed values as elements; entries beyond ±bound are refused."""
        largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
        if largest > bound:
            raise RingError(
                f"an entry is larger than the bound of {bound} that the round was planned for; "
                "the recipe's limits.max_rows says how many rows a site may have."
            )
        return values.astype(self.dtype)

    def decode(self, elements: Elements) -> Int64[np.ndarray, " entries"]:
        """Elements as signed values: those of 2^(bits−1) and more stand for negative ones."""
        if self.bits == 32:
            return elements.view("<i4").astype(np.int64)
        spare = 64 - self.bits
        return ((elements << np.uint64(spare)).view("<i8") >> spare).astype(np.int64, copy=False)

    def pack(self, elements: Elements) -> bytes:
        """Elements as bits/8 bytes each, little-endian."""
        return elements.view(self._low_bytes)["low"].tobytes()

    def unpack(self, data: bytes, entries: int) -> Elements:
        """The elements in packed bytes, which must hold exactly `entries` of them."""
        if len(data) != entries * self.width:
            raise WireError(
                f"a masked vector of {len(data)} bytes came; {entries} entries of {self.width} bytes "
                f"are {entries * self.width}."
            )
        elements = np.zeros(entries, dtype=self.dtype)
        elements.view(self._low_bytes)["low"] = np.frombuffer(data, dtype=f"V{self.width}")
        return elements

    def masked(self, elements: Elements, plus: Sequence[bytes] = (), minus: Sequence[bytes] = ()) -> Elements:
        """Elements with the masks of some seeds added and of others taken away, as a new array."""
        result = elements.astype(self.dtype)
        signs = [(seed, np.add) for seed in plus] + [(seed, np.subtract) for seed in minus]
        for start in range(0, len(signs), BATCH):
            self._apply(result, signs[start : start + BATCH])
        return result

    def _apply(self, elements: np.ndarray, signs: Sequence[tuple[bytes, np.ufunc]]) -> None:
        """All masks of one batch, chunk by chunk, so that each chunk stays in the cache while it is masked."""
        seeds, ufuncs = [seed for seed, _ in signs], [sign for _, sign in signs]
        low = [_Stream(seed, _LOW_STREAM, np.dtype("<u8" if self.bits > 40 else "<u4")) for seed in seeds]
        high = [_Stream(seed, _HIGH_STREAM, np.dtype("u1")) for seed in seeds]
        scratch = _Scratch(min(CHUNK, len(elements)) * self.dtype.itemsize)
        for start in range(0, len(elements), CHUNK):
            chunk = elements[start : start + CHUNK]
            if self.bits == 40:
                _mask_halves(chunk, ufuncs, low, high, scratch)
            else:
                for sign, stream in zip(ufuncs, low, strict=True):
                    sign(chunk, stream.words(len(chunk), scratch), out=chunk)

    @property
    def _low_bytes(self) -> np.dtype:
        """An element seen as the bytes that travel, and others that do not."""
        return np.dtype({"names": ["low"], "formats": [f"V{self.width}"], "itemsize": self.dtype.itemsize})


class _Scratch:
    """Zeros to encrypt and room for the result, allocated once per batch."""

    def __init__(self, size: int) -> None:
        self.zeros = memoryview(bytes(size))
        self.room = bytearray(size + 15)  # update_into asks for a block less one byte more than it writes


class _Stream:
    """A key stream that is read on and on, as words of one type."""

    def __init__(self, seed: bytes, start: bytes, dtype: np.dtype) -> None:
        self._cipher = Cipher(algorithms.AES(seed), modes.CTR(start)).encryptor()
        self._dtype = dtype

    def words(self, count: int, scratch: _Scratch) -> np.ndarray:
        self._cipher.update_into(scratch.zeros[: count * self._dtype.itemsize], scratch.room)
        return np.frombuffer(scratch.room, dtype=self._dtype, count=count)


def _mask_halves(
    chunk: np.ndarray, signs: Sequence[np.ufunc], low: list[_Stream], high: list[_Stream], scratch: _Scratch
) -> None:
    """Masks of 40 bits as 32 + 8 with a carry: five bytes of stream an entry instead of eight."""
    lows, highs, carry = chunk.astype("<u4"), (chunk >> np.uint64(32)).astype("u1"), np.empty(len(chunk), dtype=bool)
    for sign, words, tops in zip(signs, low, high, strict=True):
        word = words.words(len(chunk), scratch)
        if sign is np.add:
            lows += word
            np.less(lows, word, out=carry)
        else:
            np.less(lows, word, out=carry)
            lows -= word
        sign(highs, tops.words(len(chunk), scratch), out=highs)
        sign(highs, carry.view("u1"), out=highs)
    chunk[:] = highs
    chunk <<= np.uint64(32)
    chunk |= lows
