"""The key of a secure round, signed by the key that a node is registered with.

A SuperNode proves who it is with an elliptic-curve key (``ssh-keygen -t ecdsa -b 384``) whose public half the
SuperLink knows. A site signs the identity of a round with that same key, so whoever knows the registered keys, the
server or other sites, sees that the identity belongs to that node and to nobody else.
"""

from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from ghofl.errors import SiteError
from ghofl.names import shorten


def statement(fingerprint: str, round_id: str, name: str, identity: bytes, known: str = "") -> bytes:
    """What a node signs: in this round of this recipe, the site of this name has this identity.

    Where the site knows of earlier sums, these are signed too, so that nobody can leave them out on the way to its peers.
    """
    parts = (b"ghofl-flower/1 identity", fingerprint.encode(), round_id.encode(), name.encode(), identity)
    parts += (known.encode(),) if known else ()
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def sign(key_file: str | Path, content: bytes, first: bytes = b"") -> bytes:
    """The signature of a node's private key, an OpenSSH file, on some content: `first`, where that is one."""
    try:
        key = load_ssh_private_key(Path(key_file).read_bytes(), password=None)
    except (ValueError, TypeError, NotImplementedError, UnsupportedAlgorithm) as error:
        raise SiteError(
            f"{key_file} is not an OpenSSH private key without a passphrase ({error}); give the file that the "
            "SuperNode has as --auth-supernode-private-key."
        ) from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise SiteError(f"{key_file} is not an elliptic-curve key; make one with ssh-keygen -t ecdsa -b 384.")
    return first if is_signed(key.public_key(), first, content) else key.sign(content, ECDSA(SHA384()))


def is_signed(key: EllipticCurvePublicKey, signature: bytes, content: bytes) -> bool:
    """Whether the holder of a node's key signed the content."""
    try:
        key.verify(signature, content, ECDSA(SHA384()))
    except InvalidSignature:
        return False
    return True


def load_public_key(content: bytes, where: str) -> EllipticCurvePublicKey:
    """A node's public key, from an OpenSSH line or from PEM."""
    try:
        is_pem = content.lstrip().startswith(b"-----BEGIN")
        key = load_pem_public_key(content) if is_pem else load_ssh_public_key(content.strip())
    except (ValueError, NotImplementedError, UnsupportedAlgorithm) as error:  # compressed points are not implemented
        raise SiteError(
            f"{where}: not a public key ({shorten(error)}); write the line of the node's .pub file."
        ) from None
    if not isinstance(key, EllipticCurvePublicKey):
        raise SiteError(f"{where}: not an elliptic-curve key; make nodes' keys with ssh-keygen -t ecdsa -b 384.")
    return key
