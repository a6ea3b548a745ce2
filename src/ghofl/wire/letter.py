"""Letters between server and sites, and their bytes, which are the same on a network, on a socket and in a file::

    "ghofl letter 1\\n"   4 bytes: length of the fields   8 bytes: length of the payload   fields, JSON   payload

Lengths are big-endian. Fields are texts, whole numbers, truth values, bytes (``{"bytes": base64}``) and lists of these.
Nothing else is understood, and nothing is ever unpickled or run.

In a file their sha256 follows, which shows damage. What a site writes there is signed by the identity it joined the round
with, so nobody else can answer for it, wherever the file has been.
"""

import base64
import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ghofl.errors import MessageError
from ghofl.files import FileBytes
from ghofl.names import shorten
from ghofl.secure import Identity
from ghofl.secure.keys import is_signed

MAGIC, SIZES = b"ghofl letter 1\n", struct.Struct(">IQ")
START = len(MAGIC) + SIZES.size
MOST_FIELDS = 32
DIGEST = 32  # bytes
MAX_LETTER = 2**36
SIGNED = "signed"


@dataclass(frozen=True, slots=True)
class Letter:
    """A question or an answer: a few named values, and bytes of any size, in memory or in a file.

    Guarantees
    ----------
    ``Letter.from_bytes(letter.to_bytes()) == letter``; bytes that are not a letter's, no more and no less, raise
    `MessageError`.

    Examples
    --------
    >>> letter = Letter({"status": "sent", "signatures": [b"1", b"2"]}, b"moments")
    >>> Letter.from_bytes(letter.to_bytes()) == letter
    True
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes | FileBytes = field(default=b"", repr=False)

    @property
    def content(self) -> bytes:
        """The payload in memory."""
        return self.payload if isinstance(self.payload, bytes) else self.payload[:].tobytes()

    @property
    def head(self) -> bytes:
        """All bytes before the payload; whoever carries a large one writes it after them, without a copy of both."""
        text = json.dumps({key: _plain(value) for key, value in self.fields.items()}, sort_keys=True).encode()
        return MAGIC + SIZES.pack(len(text), len(self.payload)) + text

    @property
    def sha256(self) -> bytes:
        """The hash of its bytes."""
        digest = hashlib.sha256(self.head)
        digest.update(self.content)
        return digest.digest()

    def to_bytes(self) -> bytes:
        """The letter as bytes."""
        return b"".join((self.head, self.content))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> "Letter":
        """The letter in some bytes, which may come from anyone."""
        end = START + sizes_of(bytes(data[:START]))[0]
        return cls.of(bytes(data[:end]), bytes(data[end:]))

    @classmethod
    def of(cls, head: bytes, payload: bytes | FileBytes) -> "Letter":
        """The letter with this head, which may come from anyone, and the payload that came after it."""
        return cls(fields_of(head, len(payload)), payload)


def sizes_of(start: bytes) -> tuple[int, int]:
    """The lengths of fields and payload in a letter's first `START` bytes; raises where they begin something else."""
    if len(start) != START or not start.startswith(MAGIC):
        raise MessageError("what came is not a letter; give what the other side of the federation wrote.")
    size, length = SIZES.unpack(start[len(MAGIC) :])
    return size, length


def text_of(letter: Letter, name: str) -> str:
    """The text in a field; raises where there is none."""
    value = letter.fields.get(name)
    if not isinstance(value, str):
        raise MessageError(f"the letter has no {name!r}; it was not written by this version of ghofl.")
    return value


def fields_of(head: bytes, length: int) -> dict[str, Any]:
    """The fields in a letter's head, which may come from anyone and was followed by a payload of this length."""
    size, announced = sizes_of(head[:START])
    if (len(head), length) != (START + size, announced):
        raise MessageError(
            f"a letter of {len(head):,} and {length:,} bytes came where {START + size:,} and {announced:,} were "
            "announced; ask for it again."
        )
    try:
        values = json.loads(head[START:])
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise MessageError("the fields of a letter are not a JSON object; it was not written by ghofl.")
    if len(values) > MOST_FIELDS:
        raise MessageError(f"a letter with {len(values)} fields came, and at most {MOST_FIELDS} are allowed.")
    return {key: list(map(_value, each)) if isinstance(each, list) else _value(each) for key, each in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain_item(each) for each in value]
    return _plain_item(value)


def _plain_item(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if not isinstance(value, str | int):
        raise MessageError(
            f"a field of a letter is {shorten(repr(value), 40)}; it holds texts, whole numbers, bytes, or a list."
        )
    return value


def _value(value: Any) -> Any:
    if isinstance(value, str | int):
        return value
    text = value.get("bytes") if isinstance(value, dict) and len(value) == 1 else None
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise MessageError(
            "a field of a letter is neither a text, a whole number, bytes, nor a list of those."
        ) from None


def to_file(letter: Letter) -> bytes:
    """The content of a letter's file."""
    return b"".join((letter.head, letter.content, letter.sha256))


def of_file(data: bytes, where: str | Path = "the letter") -> Letter:
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
    return of_file(Path(path).read_bytes(), path)


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
