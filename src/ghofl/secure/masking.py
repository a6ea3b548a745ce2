"""The ring that masked vectors live in, and the masks: integers mod 2^b, hidden by an AES-256-CTR stream.

A site adds masks to its int64 vector mod 2^b. Masks cancel or are taken away again, and what is left is the sum of
the vectors mod 2^b. With b chosen so that clients × bound < 2^(b−1), that is the sum itself, to the bit.

The mask of a 32-byte seed, entry by entry, with AES-256 in counter mode over zeros and all words little-endian::

    b = 32           the 4-byte words of the stream that starts at counter block 0
    b = 40           low 32 bits as above; high 8 bits are the bytes of the stream that starts at block 2^127
    b = 48, 56, 64   the 8-byte words of the stream that starts at counter block 0, mod 2^b
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ghofl.secure.errors import RingError, WireError
from ghofl.shapes import Int64, Integer, UInt

RING_BITS = (32, 40, 48, 56, 64)
CHUNK = 2**16  # entries masked at a time: they and the stream stay in the second-level cache together
BATCH = 64  # seeds whose ciphers are kept open at a time

_ZEROS = memoryview(bytes(8 * CHUNK))
_LOW_STREAM, _HIGH_STREAM = bytes(16), bytes([128]) + bytes(15)
# The numbers that the bytes of an entry are, each with where it starts: as they travel, and as masks are added to them.
_U32, _U64, _TOP = (np.dtype("<u4"), 0), (np.dtype("<u8"), 0), (np.dtype("u1"), 4)
_SENT = {
    32: (_U32,),
    40: (_U32, _TOP),
    48: (_U32, (np.dtype("<u2"), 4)),
    56: (_U32, (np.dtype("<u2"), 4), (np.dtype("u1"), 6)),
    64: (_U64,),
}
_ADDED = {32: (_U32,), 40: (_U32, _TOP), 48: (_U64,), 56: (_U64,), 64: (_U64,)}
_SIGNED = (_U32, (np.dtype("<i4"), 4))

Elements = UInt[np.ndarray, " entries"]
Words = list[np.ndarray]
Fields = Sequence[tuple[np.dtype, int]]


@dataclass(frozen=True, slots=True)
class Ring:
    """The integers mod 2^bits: signed vectors in, masked bytes out, and signed sums again.

    Elements are uint32 (32 bits) or uint64 arrays of which the low `bits` bits count; they add up.

    Guarantees
    ----------
    ``ring.unmask(ring.unpack(ring.mask(x, bound), len(x))) == x`` in exactly bits/8 bytes per entry, and the same with
    masks added and taken away in between. A ring from `Ring.for_sum` can hold every sum: overflow is not possible,
    because `mask` refuses entries beyond the bound.

    Examples
    --------
    >>> ring = Ring.for_sum(clients=1000, bound=10**8)
    >>> ring
    Ring(bits=40)
    >>> seed, x = bytes(range(32)), np.array([-5, 7])
    >>> masked = ring.unpack(ring.mask(x, bound=10, plus=[seed]), entries=2)
    >>> ring.unmask(masked)
    array([-108615659283,  140939053361])
    >>> ring.unmask(masked, minus=[seed])
    array([-5,  7])
    """

    bits: int

    def __post_init__(self) -> None:
        if self.bits not in RING_BITS:
            raise RingError(f"a ring of {self.bits} bits was asked for; rings have one of {RING_BITS}.")

    @classmethod
    def for_sum(cls, clients: int, bound: int) -> "Ring":
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
        """Bytes per entry in a message."""
        return self.bits // 8

    @property
    def dtype(self) -> np.dtype:
        """The type of elements in memory."""
        return np.dtype("<u4" if self.bits == 32 else "<u8")

    def mask(
        self, values: Int64[np.ndarray, " entries"], bound: int, plus: Sequence[bytes] = (), minus: Sequence[bytes] = ()
    ) -> memoryview:
        """Signed values with the masks of some seeds added and of others taken away: bits/8 bytes each, little-endian.

        Entries beyond ±bound are refused.
        """
        packed = np.empty((len(values), self.width), dtype=np.uint8)
        rooms = _rooms(_SENT[self.bits], len(values))
        *first, last = _batches(plus, minus)
        limit: int | None = bound
        for batch in first:
            values, limit = self._added(values, batch, limit), None
        for start, words in self._chunks(values, last, limit):
            out = packed[start : start + len(words[0])]
            if len(words) < len(rooms):  # in two steps, each with one side in one piece, which is quicker
                words = _copied(_views(words[0], _SENT[self.bits]), rooms)
            for view, word in zip(_views(out, _SENT[self.bits]), words, strict=True):
                view[...] = word
        return packed.reshape(-1).data

    def unpack(self, data: bytes | memoryview, entries: int) -> Elements:
        """The elements in packed bytes, which must hold exactly `entries` of them."""
        if len(data) != entries * self.width:
            raise WireError(
                f"a masked vector of {len(data)} bytes came; {entries} entries of {self.width} bytes "
                f"are {entries * self.width}."
            )
        if not entries or self.width == self.dtype.itemsize:
            return np.frombuffer(data, dtype=self.dtype).copy()
        elements = np.empty(entries, dtype=self.dtype)
        # Eight bytes from where each entry starts, without those of the next one; the last has none after it.
        words = np.ndarray((entries - 1,), self.dtype, data, 0, (self.width,))
        for start in range(0, len(words), CHUNK):
            out = elements[start : min(start + CHUNK, len(words))]
            out[...] = words[start : start + CHUNK]
            out &= self.dtype.type(2**self.bits - 1)
        elements[-1] = int.from_bytes(data[-self.width :], "little")
        return elements

    def unmask(
        self, elements: Elements, plus: Sequence[bytes] = (), minus: Sequence[bytes] = ()
    ) -> Int64[np.ndarray, " entries"]:
        """The signed values of elements, after the masks of some seeds are added and of others taken away.

        Elements of 2^(bits−1) and more stand for negative values.
        """
        values: np.ndarray = elements
        for batch in _batches(plus, minus):
            values = self._added(values, batch)
        return values

    def _added(
        self, source: Integer[np.ndarray, " entries"], batch: "Batch", bound: int | None = None
    ) -> Int64[np.ndarray, " entries"]:
        """Signed values under the masks of a batch."""
        values, spare = np.empty(len(source), dtype="<i8"), 64 - self.bits
        for start, (word, *top) in self._chunks(source, batch, bound):
            out = values[start : start + len(word)]
            if top:
                low, high = _views(out, _SIGNED)
                low[...], high[...] = word, top[0].view(np.int8)
            elif self.bits == 32:
                out[...] = word.view("<i4")
            else:
                np.left_shift(word, np.uint64(spare), out=word)
                np.right_shift(word.view("<i8"), spare, out=out)
        return values.astype(np.int64, copy=False)

    def _chunks(
        self, source: Integer[np.ndarray, " entries"], batch: "Batch", bound: int | None = None
    ) -> Iterator[tuple[int, Words]]:
        """Where each chunk starts, and its words under the masks of a batch, which are overwritten by the next."""
        source = np.ascontiguousarray(source, dtype="<i8" if source.dtype.kind == "i" else self.dtype)
        fields = _ADDED[self.bits]
        streams, rooms = _Streams(batch, fields, len(source)), _rooms(fields, len(source))
        for start in range(0, len(source), CHUNK):
            chunk = source[start : start + CHUNK]
            if bound is not None:
                _check_bound(chunk, bound)
            words = _copied([chunk, *_views(chunk, fields[1:])], rooms)  # of the whole, the low bits
            streams.add_to(words)
            yield start, words


def _check_bound(values: np.ndarray, bound: int) -> None:
    if int(values.max()) > bound or -int(values.min()) > bound:
        raise RingError(
            f"an entry is larger than the bound of {bound} that the round was planned for; "
            "the recipe's limits.max_rows says how many rows a site may have."
        )


Batch = Sequence[tuple[bytes, np.ufunc]]


def _batches(plus: Sequence[bytes], minus: Sequence[bytes]) -> list[Batch]:
    """Seeds and whether they are added or taken away, a batch at a time; one empty batch where there are none."""
    signs = [(seed, np.add) for seed in plus] + [(seed, np.subtract) for seed in minus]
    return [signs[start : start + BATCH] for start in range(0, max(1, len(signs)), BATCH)]


def _rooms(fields: Fields, entries: int) -> Words:
    return [np.empty(min(CHUNK, entries), dtype) for dtype, _ in fields]


def _views(entries: np.ndarray, fields: Fields) -> Words:
    """The numbers in the bytes of every entry."""
    return [np.ndarray((len(entries),), dtype, entries, at, (entries.strides[0],)) for dtype, at in fields]


def _copied(views: Words, rooms: Words) -> Words:
    words = [room[: len(view)] for view, room in zip(views, rooms, strict=True)]
    for word, view in zip(words, views, strict=True):
        word[...] = view
    return words


class _Streams:
    """The key streams of a batch of seeds, which are read on and on and added to the words of one chunk after another."""

    def __init__(self, batch: Batch, fields: Fields, entries: int) -> None:
        starts = (_LOW_STREAM, _HIGH_STREAM)[: len(fields)]
        self._masks = [(sign, [_stream(seed, start) for start in starts]) for seed, sign in batch]
        sizes = [room.nbytes for room in _rooms(fields, entries)]
        self._rooms = [bytearray(size + 15) for size in sizes]  # update_into asks for a block less one byte more
        self._carry = np.empty(min(CHUNK, entries), dtype=bool)

    def add_to(self, words: Words) -> None:
        """Add the next words of every stream, or take them away."""
        zeros = [_ZEROS[: word.nbytes] for word in words]
        masks = [np.frombuffer(room, word.dtype, len(word)) for room, word in zip(self._rooms, words, strict=True)]
        add = _add_halves(words, masks, self._carry[: len(words[0])]) if len(words) > 1 else _add_whole(words, masks)
        for sign, streams in self._masks:
            for read, nothing, room in zip(streams, zeros, self._rooms, strict=True):
                read(nothing, room)
            add(sign)


def _stream(seed: bytes, start: bytes) -> Callable[[memoryview, bytearray], int]:
    """Writes the next bytes of a key stream, as many as there are zeros, into a buffer."""
    return Cipher(algorithms.AES(seed), modes.CTR(start)).encryptor().update_into


def _add_whole(words: Words, masks: Words) -> Callable[[np.ufunc], object]:
    (word,), (mask,) = words, masks
    return lambda sign: sign(word, mask, word)


def _add_halves(words: Words, masks: Words, carry: np.ndarray) -> Callable[[np.ufunc], object]:
    """Masks of 40 bits as 32 + 8 with a carry: five bytes of stream per entry instead of eight."""
    (low, high), (mask, top), carried = words, masks, carry.view(np.uint8)

    def add(sign: np.ufunc) -> None:
        if sign is np.add:
            np.add(low, mask, low)
            np.less(low, mask, carry)
        else:
            np.less(low, mask, carry)
            np.subtract(low, mask, low)
        sign(high, top, high)
        sign(high, carried, high)

    return add
