"""The keys of a round: for signatures, for masks between two clients, and for sealing shares.

::

    identity    Ed25519, one per site, kept from round to round; signs the advertised keys and the survivor list
    cipher key  X25519, one per site and round; never leaves the site; seals shares for one neighbour
    mask key    X25519, one per site and round; the server rebuilds it when the site vanished after sharing
    pair key    HKDF-SHA256(X25519(mine, yours), info = purpose, round, both identities)
"""

import hashlib
import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.base import Cipher
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ghofl.secure.errors import RefusedError

KEY_BYTES = 32
SIGNATURE_BYTES = 64
TAG_BYTES = 16
Entropy = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Identity:
    """A site's Ed25519 key pair: `public` is known to all sites, the rest stays at the site.

    >>> identity = Identity(bytes(32))
    >>> is_signed(identity.public, identity.sign(b"list"), b"list")
    True
    >>> "secret" in repr(identity)
    False
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise RefusedError(f"an identity key of {len(self.secret)} bytes came; Ed25519 keys have {KEY_BYTES}.")

    @classmethod
    def fresh(cls, entropy: Entropy = os.urandom) -> "Identity":
        """A new identity from the operating system's generator."""
        return cls(entropy(KEY_BYTES))

    @property
    def public(self) -> bytes:
        """The 32 bytes by which other sites know this one."""
        return Ed25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw()

    def sign(self, content: bytes) -> bytes:
        """The signature of this identity on some content."""
        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(content)


@dataclass(frozen=True, slots=True)
class Secrets:
    """What a client draws for one round: two X25519 keys, its personal mask seed, and the seed of its polynomials."""

    cipher_key: bytes = field(repr=False)
    mask_key: bytes = field(repr=False)
    mask_seed: bytes = field(repr=False)
    polynomial_seed: bytes = field(repr=False)

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, name)) for name in self.__slots__}
        if lengths != {KEY_BYTES}:
            raise RefusedError(f"secrets of {sorted(lengths)} bytes came; all have {KEY_BYTES}.")

    @classmethod
    def fresh(cls, entropy: Entropy = os.urandom) -> "Secrets":
        """New secrets from the operating system's generator."""
        return cls(*(entropy(KEY_BYTES) for _ in range(4)))


def is_signed(public: bytes, signature: bytes, content: bytes) -> bool:
    """Whether the holder of a public identity signed the content."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def private_key(secret: bytes) -> X25519PrivateKey:
    """The X25519 key of 32 secret bytes."""
    return X25519PrivateKey.from_private_bytes(secret)


def public_key(secret: bytes) -> bytes:
    """The X25519 public key of 32 secret bytes."""
    return private_key(secret).public_key().public_bytes_raw()


def is_usable(public: bytes) -> bool:
    """Whether a secret can be agreed on with a public key, which must not be one of the few of low order."""
    try:
        pair_key(private_key(bytes(KEY_BYTES)), public, b"")
    except RefusedError:
        return False
    return True


def pair_key(private: X25519PrivateKey, public: bytes, purpose: bytes) -> bytes:
    """The 32 bytes that the holders of two X25519 keys share and nobody else has, for one purpose.

    >>> ours, theirs = bytes([1] * 32), bytes([2] * 32)
    >>> (
    ...     pair_key(private_key(ours), public_key(theirs), b"mask")
    ...     == pair_key(private_key(theirs), public_key(ours), b"mask")
    ... )
    True
    """
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # a point of low order: the result would be known to everyone
        raise RefusedError(
            f"a public key of low order came, {public.hex()[:16]}…; no secret can be agreed on with it."
        ) from None
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose).derive(shared)


def seal(key: bytes, content: bytes, context: bytes) -> bytes:
    """Content under ChaCha20-Poly1305, bound to its context.

    The nonce is zero because a key seals only once: it belongs to two keys of one round and one direction, and a
    stage that is run again from the same state seals the same content.
    """
    return ChaCha20Poly1305(key).encrypt(bytes(12), content, context)


def unseal(key: bytes, box: bytes, context: bytes) -> bytes | None:
    """The sealed content, or None when the box, its key or its context is not the one it was sealed with."""
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), box, context)
    except InvalidTag:
        return None


def commitment(purpose: bytes, secret: bytes) -> bytes:
    """The SHA-256 by which a secret is recognised later; it reveals nothing about a secret of 32 random bytes."""
    return hashlib.sha256(purpose + secret).digest()


def is_committed(expected: bytes, purpose: bytes, secret: bytes) -> bool:
    """Whether a secret is the one that was committed to, compared in constant time."""
    return hmac.compare_digest(expected, commitment(purpose, secret))


def entropy_of(seed: bytes) -> Entropy:
    """A generator of bytes that is deterministic in its seed: AES-256-CTR from block 0."""
    cipher = Cipher(AES(seed), CTR(bytes(16))).encryptor()
    return lambda count: cipher.update(bytes(count))
