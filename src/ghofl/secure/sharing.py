"""Shamir's secret sharing of 32-byte secrets: any `threshold` shares give the secret, fewer reveal nothing.

Over the prime field of p = 2^256 + 297, the smallest prime above every 32-byte number::

    f(x) = secret + a_1·x + … + a_(t−1)·x^(t−1)  mod p        share of holder x:  f(x)
    secret = f(0) = Σ_i f(x_i) · Π_(j≠i) x_j / (x_j − x_i)

with coefficients a_i uniform in the field. (Shamir 1979.)
"""

import hmac
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ghofl.secure.errors import SharingError

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
MAX_HOLDER = 2**32 - 1
_COEFFICIENT_BYTES = 48  # 128 bits more than the field, so that reducing mod p leaves a bias below 2^-127


@dataclass(frozen=True, slots=True)
class Share:
    """What one holder keeps: the value of the polynomial at `holder`, which is not zero."""

    holder: int
    value: int = field(repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.holder <= MAX_HOLDER:
            raise SharingError(f"a share is held at x = {self.holder}; holders are numbered from 1 to {MAX_HOLDER}.")
        if not 0 <= self.value < PRIME:
            raise SharingError(f"the share of holder {self.holder} is not a number of the field; it was damaged.")

    @property
    def content(self) -> bytes:
        """The value as 33 bytes, little-endian."""
        return self.value.to_bytes(SHARE_BYTES, "little")

    @classmethod
    def of_content(cls, holder: int, content: bytes) -> "Share":
        """The share with this content."""
        if len(content) != SHARE_BYTES:
            raise SharingError(f"the share of holder {holder} has {len(content)} bytes; a share has {SHARE_BYTES}.")
        return cls(holder, int.from_bytes(content, "little"))


def is_share(content: bytes) -> bool:
    """Whether some bytes are the content of a share: a number of the field.

    >>> is_share(bytes(33)), is_share(b"\\xff" * 33)
    (True, False)
    """
    return len(content) == SHARE_BYTES and int.from_bytes(content, "little") < PRIME


def split(
    secret: bytes, holders: Sequence[int], threshold: int, entropy: Callable[[int], bytes] = os.urandom
) -> tuple[Share, ...]:
    """One share of the secret for every holder; any `threshold` of them give it back.

    Guarantees
    ----------
    Fewer than `threshold` shares are independent of the secret: every secret is as likely as before.

    Examples
    --------
    >>> shares = split(bytes(31) + b"!", holders=[1, 2, 3], threshold=2)
    >>> combine(shares[1:], threshold=2)[-1:]
    b'!'
    """
    _check_split(secret, holders, threshold)
    noise = entropy(_COEFFICIENT_BYTES * (threshold - 1))
    coefficients = [
        int.from_bytes(noise[start : start + _COEFFICIENT_BYTES], "little") % PRIME
        for start in range(0, len(noise), _COEFFICIENT_BYTES)
    ]
    polynomial = [int.from_bytes(secret, "little"), *coefficients]
    return tuple(Share(x, _evaluate(polynomial, x)) for x in holders)


def combine(shares: Sequence[Share], threshold: int) -> bytes:
    """The secret, from `threshold` or more shares; further shares must agree with the first ones.

    Guarantees
    ----------
    Returns the secret that was split, or raises `SharingError` when shares are too few, two have one holder, or they are
    not on one polynomial of the threshold's degree. With exactly `threshold` shares a wrong one cannot be noticed here:
    compare the result with a commitment.
    """
    if len(shares) < threshold or threshold < 1:
        raise SharingError(f"{len(shares)} shares came and {threshold} are needed; ask more holders.")
    if len({share.holder for share in shares}) != len(shares):
        raise SharingError(f"two of {len(shares)} shares have the same holder; give one per holder.")
    first, rest = shares[:threshold], shares[threshold:]
    if not all(_agree(_interpolate(first, share.holder), share.value) for share in rest):
        raise SharingError(f"the {len(shares)} shares are not of one secret; at least one of them was changed.")
    secret = _interpolate(first, 0)
    if secret >= 2 ** (8 * SECRET_BYTES):
        raise SharingError(f"the {len(shares)} shares give no 32-byte secret; at least one of them was changed.")
    return secret.to_bytes(SECRET_BYTES, "little")


def _check_split(secret: bytes, holders: Sequence[int], threshold: int) -> None:
    if len(secret) != SECRET_BYTES:
        raise SharingError(f"a secret of {len(secret)} bytes came; secrets have {SECRET_BYTES}.")
    if len(set(holders)) != len(holders):
        raise SharingError(f"of {len(holders)} holders only {len(set(holders))} differ; name each once.")
    if not 1 <= threshold <= len(holders):
        raise SharingError(f"the threshold is {threshold} for {len(holders)} holders; give 1 to {len(holders)}.")


def _evaluate(polynomial: Sequence[int], x: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * x + coefficient) % PRIME
    return value


def _interpolate(shares: Sequence[Share], x: int) -> int:
    """The value at x of the polynomial through the shares."""
    total = 0
    for share in shares:
        others = [other.holder for other in shares if other.holder != share.holder]
        # Holders are small numbers, so the products are short, and one reduction and one inverse are enough.
        top = math.prod(other - x for other in others)
        bottom = math.prod(other - share.holder for other in others)
        total += share.value * (top % PRIME) * pow(bottom, -1, PRIME)
    return total % PRIME


def _agree(expected: int, value: int) -> bool:
    return hmac.compare_digest(expected.to_bytes(SHARE_BYTES, "little"), value.to_bytes(SHARE_BYTES, "little"))
