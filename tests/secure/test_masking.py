"""The ring and its masks."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare

from ghofl.secure import Ring, RingError, WireError, masking

RINGS = [Ring(bits) for bits in masking.RING_BITS]
seeds = st.binary(min_size=32, max_size=32)


@st.composite
def ring_vectors(draw):
    ring = draw(st.sampled_from(RINGS))
    limit = 2 ** (ring.bits - 1) - 1
    values = draw(arrays(np.int64, st.integers(0, 40), elements=st.integers(-limit, limit)))
    return ring, values, limit


def mask_of(ring, seed, entries):
    """The mask of a seed as the module's description has it, entry by entry."""
    low, high = (stream(seed, start, 8 * entries) for start in (0, 2**127))
    if ring.bits in (32, 40):
        words = [int.from_bytes(low[4 * i : 4 * i + 4], "little") for i in range(entries)]
        return words if ring.bits == 32 else [word + (high[i] << 32) for i, word in enumerate(words)]
    return [int.from_bytes(low[8 * i : 8 * i + 8], "little") for i in range(entries)]


def stream(seed, block, size):
    return Cipher(algorithms.AES(seed), modes.CTR(block.to_bytes(16, "big"))).encryptor().update(bytes(size))


@given(ring_vectors(), st.lists(seeds, max_size=5), st.lists(seeds, max_size=5))
def test_a_masked_entry_is_the_little_endian_residue_of_the_value_and_its_masks(case, plus, minus):
    ring, values, limit = case
    sums = [int(value) for value in values]
    for sign, seed in [(1, seed) for seed in plus] + [(-1, seed) for seed in minus]:
        sums = [sum_ + sign * word for sum_, word in zip(sums, mask_of(ring, seed, len(values)), strict=True)]
    expected = b"".join((sum_ % 2**ring.bits).to_bytes(ring.width, "little") for sum_ in sums)
    with pytest.MonkeyPatch.context() as patch:  # several chunks that end within a block, and several batches
        patch.setattr(masking, "CHUNK", 7)
        patch.setattr(masking, "BATCH", 3)
        assert ring.mask(values, limit, plus, minus) == expected
        assert ring.unpack(expected, len(values)).tolist() == [sum_ % 2**ring.bits for sum_ in sums]
        assert ring.unmask(ring.unpack(expected, len(values)), plus=minus, minus=plus).tolist() == values.tolist()
    assert ring.mask(values, limit, plus, minus) == expected


@pytest.mark.parametrize("ring", RINGS)
def test_sums_of_elements_may_leave_the_ring_on_their_way(ring):
    limit = 2 ** (ring.bits - 1) - 1
    high, low = (ring.unpack(ring.mask(np.array([sign * limit]), limit), 1) for sign in (1, -1))
    assert ring.unmask(high + high + high + low + low).tolist() == [limit]


@pytest.mark.parametrize("ring", RINGS)
def test_a_vector_that_is_not_in_one_piece_is_masked_like_its_copy(ring):
    values = np.arange(-50, 50)
    assert ring.mask(values[::-3], 50, [b"s" * 32]) == ring.mask(values[::-3].copy(), 50, [b"s" * 32])


@pytest.mark.parametrize("ring", RINGS)
def test_masks_of_many_chunks_cancel_and_leave_the_input_alone(ring):
    rng = np.random.default_rng(3)
    values = rng.integers(-1000, 1000, 2 * masking.CHUNK + 5)
    before = values.copy()
    some = [bytes([i]) * 32 for i in range(70)]
    elements = ring.unpack(ring.mask(values, 1000, some), len(values))
    assert np.array_equal(values, before)
    kept = elements.copy()
    assert np.array_equal(ring.unmask(elements, minus=some), values)
    assert np.array_equal(elements, kept)


@pytest.mark.parametrize("ring", RINGS)
def test_the_bytes_of_a_masked_vector_look_uniform(ring):
    masked = ring.mask(np.full(40_000, 12_345), 20_000, [b"s" * 32])
    for offset in range(ring.width):
        counts = np.bincount(np.frombuffer(masked, dtype=np.uint8)[offset :: ring.width], minlength=256)
        assert chisquare(counts).pvalue > 1e-4  # fixed seed: the test cannot fail by chance


@given(st.integers(1, 10_000), st.integers(0, 2**62))
def test_the_chosen_ring_holds_every_sum_and_no_smaller_ring_does(clients, bound):
    if clients * bound >= 2**63:
        with pytest.raises(RingError, match=str(clients * bound)):
            Ring.for_sum(clients, bound)
        return
    ring = Ring.for_sum(clients, bound)
    assert clients * bound <= 2 ** (ring.bits - 1) - 1
    assert ring.bits == 32 or clients * bound > 2 ** (ring.bits - 9) - 1


@pytest.mark.parametrize(("clients", "bits"), [(2**31 - 1, 32), (2**31, 40), (2**55 - 1, 56), (2**63 - 1, 64)])
def test_the_largest_sum_of_a_ring_comes_out_signed(clients, bits):
    ring = Ring.for_sum(clients, 1)
    assert ring.bits == bits
    extremes = np.array([clients, -clients])
    assert ring.unmask(ring.unpack(ring.mask(extremes, clients), 2)).tolist() == [clients, -clients]


@pytest.mark.parametrize("many", [[], [b"s" * 32], [bytes([i]) * 32 for i in range(masking.BATCH + 1)]])
@pytest.mark.parametrize("value", [101, -101, np.iinfo(np.int64).min])
def test_an_entry_beyond_the_bound_is_refused_and_not_repeated(value, many):
    with pytest.raises(RingError, match="bound of 100") as caught:
        Ring(32).mask(np.array([0, value]), 100, many)
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
        Ring.for_sum(clients, bound)
