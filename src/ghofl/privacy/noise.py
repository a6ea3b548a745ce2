"""Discrete Gaussian noise on the integers, exact, from a cryptographic stream.

The discrete Gaussian of parameter σ (Canonne, Kamath & Steinke 2020) gives the integer y with probability
proportional to exp(−y²/2σ²). One candidate takes three 64-bit words (after Karney 2016)::

    k  with probability ∝ exp(−k²/2)                 which stretch [kσ, (k+1)σ) of the half line
    y  uniform among the integers of that stretch    and a sign
    accept with probability exp(k²/2 − y²/2σ²)       which never exceeds 1, since y ≥ kσ

so an accepted y has weight exp(−k²/2) · exp(k²/2 − y²/2σ²) = exp(−y²/2σ²). A word is compared with a probability
in floating point only where an error of 2⁻⁴⁰ cannot change the answer; the rare candidate in doubt is decided with
192 uniform bits and 80 decimal digits. The rounding of a float never decides, so the draws of one key are the same
on every platform.
"""

import hashlib
import os
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil, log, sqrt

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from ghofl.privacy.errors import PrivacyError
from ghofl.shapes import Bool, Int64, UInt64

LARGEST_SIGMA = 2.0**50
STRETCHES = 20  # less than 2⁻²⁸⁸ of the distribution is beyond 20σ
CHUNK = 2**14  # candidates at a time: their temporaries stay in the cache
DOUBT = 2.0**-40  # far above 2⁻⁴³, the largest error of float64 in exp(k²/2 − y²/2σ²)
SPARE_BITS = 128
DIGITS = 80


class NoiseStream:
    """Uniform 64-bit words from AES-256-CTR, keyed by the operating system or by given `entropy`.

    Guarantees
    ----------
    Without `entropy` the 256-bit key comes from `os.urandom` and is kept nowhere else. With it the words depend only on
    `entropy`: for tests, or for a secret of at least 32 bytes that is used once. A stream must not be used on both sides
    of a fork.

    Examples
    --------
    >>> NoiseStream(b"a test").words(2) == NoiseStream(b"a test").words(2)
    array([ True,  True])
    """

    def __init__(self, entropy: bytes | None = None) -> None:
        secret = os.urandom(32) if entropy is None else entropy
        self._words = _aes_ctr(b"words", secret)
        self._spare = _aes_ctr(b"spare", secret)

    def words(self, count: int) -> UInt64[np.ndarray, " count"]:
        """The next `count` words."""
        return np.frombuffer(self._words.update(bytes(8 * count)), dtype="<u8").astype(np.uint64, copy=False)

    def spare(self) -> int:
        """128 further bits, from a second key, for the rare word that cannot decide alone."""
        return int.from_bytes(self._spare.update(bytes(SPARE_BITS // 8)), "little")


def discrete_gaussian(sigma: float, shape: int | tuple[int, ...], stream: NoiseStream) -> Int64[np.ndarray, "..."]:
    """Independent draws of the discrete Gaussian with parameter σ: P(y) ∝ exp(−y²/2σ²) on the integers.

    Any σ from 0 (exclusive) to 2^50 is used exactly as the float it is. The variance is σ² to within 3·10⁻⁷ for σ ≥ 1.

    Guarantees
    ----------
    Given uniform words, each draw is within 2⁻¹²⁸ in total variation of the exact distribution: the tables err by
    2⁻¹⁹², the omitted tail by 2⁻²⁸⁸, and a comparison of 192 bits by 2⁻¹⁹⁰ on the 2⁻³⁹ that need it. The remaining
    assumption is that AES-256-CTR looks uniform. The time taken depends on the draws: it is not constant.

    Examples
    --------
    >>> discrete_gaussian(3.5, 6, NoiseStream(b"a test")).tolist()
    [0, 1, -4, 7, 2, 0]
    """
    if not 0 < sigma <= LARGEST_SIGMA:
        raise PrivacyError(f"sigma is {sigma}; discrete Gaussian noise takes a sigma above 0 and up to 2^50.")
    plan = _Stretches.of(float(sigma))
    size = int(np.prod(shape))
    out = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        draws = plan.draws(min(CHUNK, 2 * (size - filled) + 64), stream)[: size - filled]
        out[filled : filled + len(draws)] = draws
        filled += len(draws)
    return out.reshape(shape)


def reach(sigma: float, entries: int = 1) -> int:
    """The size that none of `entries` draws exceeds, except with probability 2⁻¹²⁸; a ring must have room for it.

    From the tail ``P(|y| ≥ t)`` ≤ 2 exp(−t²/2σ²), which holds as E exp(ty) ≤ exp(t²σ²/2): the sum Σ exp(−(m − c)²/2σ²) over
    integers m is largest at c = 0 (Canonne, Kamath & Steinke 2020).

    >>> reach(10.0, entries=1000)
    139
    """
    return ceil(sigma * sqrt(2 * (129 * log(2) + log(max(1, entries)))))


@dataclass(frozen=True, slots=True, eq=False)
class _Stretches:
    """The half line cut at the multiples of σ, as integers: stretch k is edges[k] ≤ y < edges[k+1]."""

    sigma: float
    edges: Int64[np.ndarray, " cuts"]
    bits: int

    @classmethod
    def of(cls, sigma: float) -> "_Stretches":
        exact = Fraction(sigma)
        edges = [ceil(k * exact) for k in range(STRETCHES + 2)]
        widest = max(right - left for left, right in pairwise(edges))
        return cls(sigma, np.array(edges, dtype=np.int64), max(1, (widest - 1).bit_length()))

    def draws(self, candidates: int, stream: NoiseStream) -> Int64[np.ndarray, " accepted"]:
        """The accepted ones among so many candidates: about half of them, at least a third."""
        first, second, third = stream.words(3 * candidates).reshape(3, candidates)
        k = _stretch(first, stream)
        y = self.edges[k] + (second >> np.uint64(64 - self.bits)).astype(np.int64)
        is_negative = (second & np.uint64(1)).astype(bool)  # bits ≤ 51: y and its sign share no bit
        inside = (y < self.edges[k + 1]) & ~(is_negative & (y == 0))
        k, y, third, is_negative = k[inside], y[inside], third[inside], is_negative[inside]
        accepted = self._accept(k, y, third, stream)
        return np.where(is_negative, -y, y)[accepted]

    def _accept(
        self,
        k: Int64[np.ndarray, " n"],
        y: Int64[np.ndarray, " n"],
        word: UInt64[np.ndarray, " n"],
        stream: NoiseStream,
    ) -> Bool[np.ndarray, " n"]:
        p = np.exp(0.5 * (k * k) - np.square(y * (1.0 / self.sigma)) * 0.5)
        margin = p - word * 2.0**-64
        accepted = margin > 0
        for i in np.flatnonzero(np.abs(margin) <= DOUBT * p + 2.0**-63):
            accepted[i] = self._accept_exactly(int(k[i]), int(y[i]), int(word[i]), stream.spare())
        return accepted

    def _accept_exactly(self, k: int, y: int, word: int, spare: int) -> bool:
        exponent = (k * k - (y / Fraction(self.sigma)) ** 2) / 2
        with localcontext() as context:
            context.prec = DIGITS
            p = (Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
            return Decimal((word << SPARE_BITS) | spare) < p * 2 ** (64 + SPARE_BITS)


def _stretch(word: UInt64[np.ndarray, " n"], stream: NoiseStream) -> Int64[np.ndarray, " n"]:
    """k with probability exp(−k²/2) / Σ exp(−j²/2), by inversion."""
    exact, tops = _cumulative()
    k = np.searchsorted(tops, word, side="right")
    for i in np.flatnonzero(word == tops[np.maximum(k, 1) - 1]):
        uniform = (int(word[i]) << SPARE_BITS) | stream.spare()
        k[i] = min(sum(c <= uniform for c in exact), STRETCHES)
    return k


@lru_cache(maxsize=1)
def _cumulative() -> tuple[tuple[int, ...], UInt64[np.ndarray, " k"]]:
    """The cumulative probabilities of k in units of 2⁻¹⁹², and their leading 64 bits."""
    with localcontext() as context:
        context.prec = DIGITS
        weights = [(Decimal(-k * k) / 2).exp() for k in range(STRETCHES + 1)]
        total = sum(weights)
        unit = 2 ** (64 + SPARE_BITS)
        exact = tuple(min(int(sum(weights[: k + 1]) / total * unit), unit - 1) for k in range(STRETCHES))
    return exact, np.array([c >> SPARE_BITS for c in exact], dtype=np.uint64)


def _aes_ctr(purpose: bytes, secret: bytes) -> CipherContext:
    key = hashlib.sha256(b"ghofl noise 1|" + purpose + b"|" + secret).digest()
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
