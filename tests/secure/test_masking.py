"""The ring and its masks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare

from ghofl.secure import Ring, RingError, WireError
from ghofl.secure.masking import CHUNK, RING_BITS

RINGS = [Ring(bits) for bits in RING_BITS]
seeds = st.binary(min_size=32, max_size=32)


@st.composite
def ring_vectors(draw):
    ring = draw(st.sampled_from(RINGS))
    limit = 2 ** (ring.bits - 1) - 1
    values = draw(arrays(np.int64, st.integers(0, 40), elements=st.integers(-limit, limit)))
    return ring, values, limit


@given(ring_vectors())
def test_packing_and_unpacking_gives_the_values_back_in_bits_over_eight_bytes_an_entry(case):
    ring, values, limit = case
    packed = ring.pack(ring.encode(values, limit))
    assert len(packed) == len(values) * ring.bits // 8
    assert ring.decode(ring.unpack(packed, len(values))).tolist() == values.tolist()


@given(ring_vectors())
def test_a_packed_entry_is_the_little_endian_residue(case):
    ring, values, limit = case
    expected = b"".join((int(v) % 2**ring.bits).to_bytes(ring.width, "little") for v in values)
    assert ring.pack(ring.encode(values, limit)) == expected


@given(ring_vectors(), st.lists(seeds, max_size=4), st.lists(seeds, max_size=4))
def test_masks_that_are_added_and_taken_away_leave_nothing(case, plus, minus):
    ring, values, limit = case
    elements = ring.encode(values, limit)
    masked = ring.unpack(ring.pack(ring.masked(elements, plus, minus)), len(values))
    assert ring.decode(ring.masked(masked, plus=minus, minus=plus)).tolist() == values.tolist()


@given(st.sampled_from(RINGS), st.lists(seeds, min_size=2, max_size=4, unique=True))
def test_the_order_of_masks_does_not_matter(ring, some):
    zeros = np.zeros(9, dtype=ring.dtype)
    one_by_one = zeros
    for seed in reversed(some):
        one_by_one = ring.masked(one_by_one, [seed])
    assert ring.pack(one_by_one) == ring.pack(ring.masked(zeros, some))


@pytest.mark.parametrize("ring", RINGS)
def test_a_mask_does_not_depend_on_how_long_the_vector_is(ring):
    seed, long = bytes(range(32)), 2 * CHUNK + 5
    whole = ring.masked(np.zeros(long, dtype=ring.dtype), [seed])
    part = ring.masked(np.zeros(CHUNK + 3, dtype=ring.dtype), [seed])
    assert ring.pack(whole[: len(part)]) == ring.pack(part)


@pytest.mark.parametrize("ring", RINGS)
def test_masks_of_many_chunks_cancel_and_leave_the_input_alone(ring):
    rng = np.random.default_rng(3)
    values = rng.integers(-1000, 1000, 2 * CHUNK + 5)
    elements = ring.encode(values, 1000)
    before = elements.copy()
    some = [bytes([i]) * 32 for i in range(70)]
    masked = ring.masked(elements, some)
    assert np.array_equal(elements, before)
    assert np.array_equal(ring.decode(ring.masked(masked, minus=some)), values)


@pytest.mark.parametrize("ring", RINGS)
def test_the_bytes_of_a_masked_vector_look_uniform(ring):
    values = np.full(40_000, 12_345)
    masked = ring.pack(ring.masked(ring.encode(values, 20_000), [b"s" * 32]))
    for offset in range(ring.width):
        counts = np.bincount(np.frombuffer(masked, dtype=np.uint8)[offset :: ring.width], minlength=256)
        assert chisquare(counts).pvalue > 1e-4  # fixed seed: the test cannot fail by chance


@given(st.integers(1, 10_000), st.integers(0, 2**62))
def test_the_chosen_ring_holds_every_sum_and_no_smaller_ring_does(clients, bound):
    if clients * bound >= 2**63:
        with pytest.raises(RingError, match=str(clients * bound)):
            Ring.holding(clients, bound)
        return
    ring = Ring.holding(clients, bound)
    assert clients * bound <= 2 ** (ring.bits - 1) - 1
    assert ring.bits == 32 or clients * bound > 2 ** (ring.bits - 9) - 1


@pytest.mark.parametrize(("clients", "bits"), [(2**31 - 1, 32), (2**31, 40), (2**55 - 1, 56), (2**63 - 1, 64)])
def test_the_largest_sum_of_a_ring_comes_out_signed(clients, bits):
    ring = Ring.holding(clients, 1)
    assert ring.bits == bits
    extremes = np.array([clients, -clients])
    assert ring.decode(ring.encode(extremes, clients)).tolist() == [clients, -clients]


@pytest.mark.parametrize("value", [101, -101, np.iinfo(np.int64).min])
def test_an_entry_beyond_the_bound_is_refused_before_masking_and_not_repeated(value):
    with pytest.raises(RingError, match="bound of 100") as caught:
        Ring(32).encode(np.array([0, value]), bound=100)
    assert "101" not in str(caught.value)


def test_a_vector_of_the_wrong_length_is_refused():
    with pytest.raises(WireError, match="24 bytes"):
        Ring(40).unpack(bytes(24), entries=5)


@pytest.mark.parametrize("bits", [0, 8, 33, 128])
def test_a_ring_of_another_size_is_refused(bits):
    with pytest.raises(RingError, match=str(bits)):
        Ring(bits)


@pytest.mark.parametrize(("clients", "bound"), [(0, 1), (1, -1)])
def test_a_ring_for_no_clients_or_a_negative_bound_is_refused(clients, bound):
    with pytest.raises(RingError):
        Ring.holding(clients, bound)
