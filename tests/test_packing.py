import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ghofl.errors import MessageError
from ghofl.wire.packing import HEAD, SLAB, most_bytes, pack, unpack, unpacked_slabs

INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES = INT64 | st.integers(-300, 300) | st.just(0)


def packed(values):
    return np.frombuffer(pack(np.asarray(values, dtype=np.int64)), np.uint8)


def slab(width, stream, length=None):
    size = len(stream) if length is None else length
    return np.frombuffer(bytes([width]) + size.to_bytes(HEAD - 1, "little") + stream, np.uint8)


@given(hnp.arrays(np.int64, st.integers(0, 700), elements=VALUES))
def test_unpacking_gives_back_what_was_packed(values):
    data = packed(values)
    assert np.array_equal(unpack(data, len(values)), values)
    assert len(data) <= most_bytes(len(values))


@given(st.integers(1, 8), st.integers(0, 2**32))
def test_an_entry_takes_the_fewest_whole_bytes(width, seed):
    low, high = -(2 ** (8 * width - 1)), 2 ** (8 * width - 1) - 1
    values = np.random.default_rng(seed).integers(low, high, size=300, endpoint=True)
    for end in (low, high):
        assert packed([*values, end])[0] == width
        assert np.array_equal(unpack(packed([*values, end]), 301), [*values, end])


def test_zeros_take_a_few_bytes_a_slab():
    assert len(packed(np.zeros(10 * SLAB))) == 130


def test_entries_beyond_one_slab_survive(rng):
    values = rng.integers(-(10**6), 10**9, size=20 * SLAB + 300)
    values[:100_000] = 0
    assert np.array_equal(unpack(packed(values), len(values)), values)
    slabs = list(unpacked_slabs(packed(values), len(values)))
    assert [low for low, _ in slabs] == list(range(0, len(values), SLAB))
    assert np.array_equal(np.concatenate([entries for _, entries in slabs]), values)


@given(st.integers(0, 10), st.binary(max_size=40), st.integers(0, 600), st.booleans())
def test_bytes_that_are_not_entries_are_refused_or_read(width, content, count, is_stream):
    """Whatever comes, the answer is as many entries as were announced, or MessageError."""
    data = slab(width, zlib.compress(content)) if is_stream else np.frombuffer(content, np.uint8)
    try:
        values = unpack(data, count)
    except MessageError:
        return
    assert len(values) == count


PLANES = bytes(range(20))
REFUSED = {
    "nothing": (np.zeros(0, np.uint8), "not there"),
    "half a head": (slab(2, b"")[:3], "not there"),
    "a width beyond eight bytes": (slab(9, zlib.compress(bytes(90))), "claim 9 bytes each"),
    "a stream that is not there": (slab(2, zlib.compress(PLANES), length=60), "not there"),
    "a stream longer than any": (slab(2, bytes(10**4)), "which cannot be"),
    "other bytes": (slab(2, b"x" * 30), "not a zlib stream"),
    "a stream that is too short": (slab(2, zlib.compress(PLANES[:-1])), "inflate to 19 bytes, .* where 20 were"),
    "a stream that is too long": (slab(2, zlib.compress(PLANES + b"x")), "inflate to more than 20 bytes"),
    "a stream without its end": (slab(2, zlib.compress(PLANES)[:-1]), "inflate to 20 bytes, with 0 behind"),
    "a stream of another checksum": (slab(2, zlib.compress(PLANES)[:-1] + b"x"), "not a zlib stream"),
    "bytes behind a stream": (slab(2, zlib.compress(PLANES) + b"xy"), "with 2 behind their end"),
    "bytes behind the last slab": (np.append(slab(2, zlib.compress(PLANES)), np.uint8(0)), "1 bytes follow the last"),
}


@pytest.mark.parametrize(("data", "says"), REFUSED.values(), ids=REFUSED)
def test_damaged_entries_are_refused(data, says):
    assert len(unpack(slab(2, zlib.compress(PLANES)), 10)) == 10
    with pytest.raises(MessageError, match=says):
        unpack(data, 10)
