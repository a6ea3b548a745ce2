"""A letter as a file: its bytes, and their sha256, which shows damage.

What a site writes is signed by the identity it joined the round with, so nobody else can answer for it, wherever the file
has been.
"""

import hashlib
from pathlib import Path

from ghofl.errors import MessageError
from ghofl.names import shorten
from ghofl.secure import Identity
from ghofl.secure.keys import is_signed
from ghofl.wire.letter import MAGIC, Letter

DIGEST = 32  # bytes
MAX_LETTER = 2**36
SIGNED = "signed"


def to_bytes(letter: Letter) -> bytes:
    """The content of a letter's file."""
    return b"".join((letter.head, letter.content, letter.sha256))


def from_bytes(data: bytes, where: str | Path = "the letter") -> Letter:
    """The letter in a file's content, which may come from anyone."""
    content = memoryview(data)[: max(0, len(data) - DIGEST)]
    if not data.startswith(MAGIC):
        raise MessageError(f"{where} is not a letter of a secure round; give the file that the other side wrote.")
    if hashlib.sha256(content).digest() != data[-DIGEST:]:
        raise MessageError(f"{where} was damaged on its way: its hash does not match its content; copy it again.")
    try:
        return Letter.from_bytes(content)
    except MessageError as error:
        raise MessageError(f"{where}: {error}") from None


def load(path: str | Path, limit: int = MAX_LETTER) -> Letter:
    """The letter in a file, which is not read when it has more than `limit` bytes."""
    size = Path(path).stat().st_size
    if size > limit:
        raise MessageError(f"{path} has {size:,} bytes, and a letter has at most {limit:,}; give the right file.")
    return from_bytes(Path(path).read_bytes(), path)


def sign_letter(letter: Letter, identity: Identity) -> Letter:
    """The letter with the signature of the site that wrote it."""
    return Letter({**letter.fields, SIGNED: identity.sign(_signed_content(letter))}, letter.payload)


def check_signature(letter: Letter, key: bytes, name: str) -> None:
    """Raise unless the site with this identity wrote the letter."""
    signature = letter.fields.get(SIGNED)
    if not isinstance(signature, bytes) or not is_signed(key, signature, _signed_content(letter)):
        who = shorten(name, 64)
        raise MessageError(
            f"the letter is not signed by the identity that {who!r} joined the round with; ask {who!r} to send it again."
        )


def _signed_content(letter: Letter) -> bytes:
    """What a site signs: the whole letter except the signature."""
    rest = {key: value for key, value in letter.fields.items() if key != SIGNED}
    return b"ghofl-mail/1 " + Letter(rest, letter.payload).sha256
