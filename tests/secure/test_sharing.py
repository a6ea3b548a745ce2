"""Shamir's secret sharing."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghofl.secure import Share, SharingError, combine, split
from ghofl.secure.sharing import PRIME, SHARE_BYTES

secrets = st.binary(min_size=32, max_size=32)


@st.composite
def sharings(draw):
    holders = draw(st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=7, unique=True))
    threshold = draw(st.integers(1, len(holders)))
    return draw(secrets), holders, threshold


@given(sharings(), st.randoms())
def test_any_threshold_of_shares_gives_the_secret(case, chance):
    secret, holders, threshold = case
    shares = list(split(secret, holders, threshold))
    chance.shuffle(shares)
    assert combine(shares[:threshold], threshold) == secret
    assert combine(shares, threshold) == secret


@given(secrets, secrets, st.randoms(use_true_random=False))
def test_fewer_shares_than_the_threshold_fit_every_secret(secret, other, chance):
    """Through threshold − 1 shares and any other secret goes a polynomial of the same degree: they say nothing."""
    known = split(secret, [1, 2, 3], threshold=3, entropy=chance.randbytes)[:2]
    at_zero = int.from_bytes(other, "little")
    # Lagrange through (0, other), (1, y1), (2, y2), evaluated at 3: 1·f(0) − 3·f(1) + 3·f(2).
    third = Share(3, (at_zero - 3 * known[0].value + 3 * known[1].value) % PRIME)
    assert combine([*known, third], 3) == other


def test_single_shares_of_a_fixed_secret_are_spread_over_the_field():
    chance = random.Random(5)
    tops = [split(bytes(32), [1, 2], 2, chance.randbytes)[0].value >> 254 for _ in range(2000)]
    assert all(420 < tops.count(quarter) < 580 for quarter in range(4))  # 500 expected, 4 sigma


@given(sharings(), st.integers(0, 6), st.integers(1, PRIME - 1))
def test_a_changed_share_among_more_than_the_threshold_is_noticed(case, which, change):
    secret, holders, threshold = case
    shares = list(split(secret, holders, threshold))
    if len(shares) == threshold:
        return
    which %= len(shares)
    shares[which] = Share(shares[which].holder, (shares[which].value + change) % PRIME)
    with pytest.raises(SharingError, match="changed"):
        combine(shares, threshold)


@given(sharings())
def test_a_share_is_33_bytes_and_comes_back_from_them(case):
    shares = split(*case)
    for share in shares:
        assert len(share.content) == SHARE_BYTES
        assert Share.of_content(share.holder, share.content) == share


def test_the_modulus_is_the_smallest_prime_above_every_secret():
    def is_probably_prime(n: int) -> bool:
        return all(pow(base, n - 1, n) == 1 for base in (2, 3, 5, 7, 11, 13, 17))

    assert is_probably_prime(PRIME)
    assert not any(is_probably_prime(n) for n in range(2**256, PRIME))


@pytest.mark.parametrize(
    ("secret", "holders", "threshold", "text"),
    [
        (bytes(31), [1, 2], 1, "31 bytes"),
        (bytes(32), [1, 1], 1, "only 1 differ"),
        (bytes(32), [0, 1], 1, "x = 0"),
        (bytes(32), [1, 2**32], 1, "x = 4294967296"),
        (bytes(32), [1, 2], 3, "threshold is 3 for 2 holders"),
        (bytes(32), [1, 2], 0, "threshold is 0 for 2 holders"),
        (bytes(32), [], 1, "for 0 holders"),
    ],
)
def test_a_sharing_that_cannot_work_says_why(secret, holders, threshold, text):
    with pytest.raises(SharingError, match=text):
        split(secret, holders, threshold)


def test_shares_that_cannot_be_combined_say_why():
    shares = split(bytes(32), [1, 2, 3], 2)
    with pytest.raises(SharingError, match="1 shares came and 2 are needed"):
        combine(shares[:1], 2)
    with pytest.raises(SharingError, match="the same holder"):
        combine([shares[0], shares[0]], 2)
    with pytest.raises(SharingError, match="no 32-byte secret"):
        combine([Share(1, PRIME - 1)], 1)
    with pytest.raises(SharingError, match="not a number of the field"):
        Share(1, PRIME)
    with pytest.raises(SharingError, match="32 bytes"):
        Share.of_content(1, bytes(32))
