import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ghofl.errors import MessageError
from ghofl.wire.packing import CHUNK, SIGNED, chunks_of, pack, unpack

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(hnp.arrays(np.int64, st.integers(0, 700), elements=INT64 | st.integers(-300, 300)))
def test_unpacking_gives_back_what_was_packed(values):
    assert np.array_equal(unpack(*pack(values), len(values)), values)


@given(st.integers(0, 8), st.booleans(), st.integers(0, 2**32))
def test_an_entry_takes_the_fewest_whole_bytes(width, is_signed, seed):
    rng = np.random.default_rng(seed)
    low, high = (
        (-(2 ** (8 * width - 1)), 2 ** (8 * width - 1) - 1) if is_signed and width else (0, 2 ** (8 * width) - 1)
    )
    high = min(high, 2**63 - 1)
    values = rng.integers(low, high, size=CHUNK, endpoint=True)
    values[:2] = low, high
    codes, data = pack(values)
    assert codes.tolist() == [width + (SIGNED if low < 0 else 0)]
    assert len(data) == width * CHUNK


@pytest.mark.parametrize("value", [0, 1, 255, 256, -1, -128, -129, 2**31, -(2**63), 2**63 - 1])
def test_the_edges_of_every_width_survive(value):
    values = np.full(5, value)
    assert np.array_equal(unpack(*pack(values), 5), values)


def test_zeros_cost_only_their_code_bytes():
    codes, data = pack(np.zeros(10_000, dtype=np.int64))
    assert len(codes) == chunks_of(10_000)
    assert len(data) == 0


def test_a_block_beyond_one_slab_survives(rng):
    values = rng.integers(-(10**6), 10**9, size=4096 * CHUNK + 300)
    values[:100_000] = 0
    assert np.array_equal(unpack(*pack(values), len(values)), values)


@given(st.binary(max_size=12), st.binary(max_size=40), st.integers(0, 600))
def test_bytes_that_are_not_a_block_are_refused_or_read(codes, data, count):
    """Whatever comes, the answer is a block of the announced length or MessageError."""
    arrays = np.frombuffer(codes, np.uint8), np.frombuffer(data, np.uint8)
    try:
        values = unpack(*arrays, count)
    except MessageError:
        return
    assert len(values) == count


@pytest.mark.parametrize("code", [9, 15, 16, 25, 255])
def test_an_unknown_code_is_refused(code):
    with pytest.raises(MessageError, match="code byte"):
        unpack(np.array([code], np.uint8), np.zeros(9, np.uint8), 1)
