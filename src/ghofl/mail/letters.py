"""A letter as a file::

    "ghofl letter 1\\n"   length of the fields, 8 bytes, big-endian   fields, JSON   payload   sha256 of all before

Fields are texts, whole numbers, truth values, bytes (``{"bytes": base64}``) and lists of these. What a site writes is
signed by the identity it joined the round with, so nobody else can answer for it, wherever the file has been.
"""

import base64
import binascii
import hashlib
import json
from pathlib import Path
from typing import Any

from ghofl import files
from ghofl.errors import MessageError
from ghofl.secure.keys import is_signed
from ghofl.site.letter import Letter

MAGIC, LENGTH, DIGEST = b"ghofl letter 1\n", 8, 32
MAX_FIELDS = 64 * 2**20  # bytes: enough for a recipe with its own matrix
MAX_LETTER = 2**36
SIGNED = "signed"


def to_bytes(letter: Letter) -> bytes:
    """A letter as the bytes of its file."""
    fields = json.dumps({key: _plain(value) for key, value in letter.fields.items()}, sort_keys=True).encode()
    content = MAGIC + len(fields).to_bytes(LENGTH, "big") + fields + letter.content
    return content + hashlib.sha256(content).digest()


def from_bytes(data: bytes, where: str | Path = "the letter") -> Letter:
    """The letter in some bytes, which may come from anyone."""
    start = len(MAGIC) + LENGTH
    if not data.startswith(MAGIC) or len(data) < start + DIGEST:
        raise MessageError(f"{where} is not a letter of a secure round; give the file that the other side wrote.")
    content, digest = data[:-DIGEST], data[-DIGEST:]
    if hashlib.sha256(content).digest() != digest:
        raise MessageError(f"{where} was damaged on its way: its hash does not match its content; copy it again.")
    length = int.from_bytes(content[len(MAGIC) : start], "big")
    if length > min(MAX_FIELDS, len(content) - start):
        raise MessageError(
            f"{where} claims fields of {length:,} bytes, more than it has or may have; ask for it again."
        )
    try:
        values = json.loads(content[start : start + length])
        fields = {str(key): _value(value) for key, value in values.items()}
    except (ValueError, AttributeError, RecursionError, binascii.Error):
        raise MessageError(f"{where} has fields that cannot be read; it was not written by ghofl.") from None
    return Letter(fields, content[start + length :])


def load(path: str | Path, limit: int = MAX_LETTER) -> Letter:
    """The letter in a file, which is not read when it has more than `limit` bytes."""
    size = Path(path).stat().st_size
    if size > limit:
        raise MessageError(f"{path} has {size:,} bytes, and a letter has at most {limit:,}; give the right file.")
    return from_bytes(Path(path).read_bytes(), path)


def save(path: str | Path, letter: Letter) -> None:
    """Write a letter to a file that only its owner can read."""
    files.write(path, to_bytes(letter), files.PRIVATE)


def signed_content(letter: Letter) -> bytes:
    """What a site signs: the whole letter except the signature."""
    rest = {key: value for key, value in letter.fields.items() if key != SIGNED}
    return b"ghofl-mail/1 " + to_bytes(Letter(rest, letter.content))


def check_signed(letter: Letter, key: bytes, name: str) -> None:
    """Raise unless the site with this identity wrote the letter."""
    signature = letter.fields.get(SIGNED)
    if not isinstance(signature, bytes) or not is_signed(key, signature, signed_content(letter)):
        raise MessageError(
            f"the letter is not signed by the identity that {name!r} joined the round with; ask {name!r} to send it again."
        )


def text_of(letter: Letter, field: str) -> str:
    """The text in a field; raises where there is none."""
    value = letter.fields.get(field)
    if not isinstance(value, str):
        raise MessageError(f"the letter has no {field!r}; it was not written by this version of ghofl.")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        (name, text), *others = value.items()
        if name != "bytes" or others or not isinstance(text, str):
            raise MessageError("an object that is not bytes")
        return base64.b64decode(text, validate=True)
    if isinstance(value, list):
        return [_value(each) for each in value]
    if not isinstance(value, str | int | bool):
        raise MessageError("a value of another kind")
    return value
