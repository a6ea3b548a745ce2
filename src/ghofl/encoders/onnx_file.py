"""The ONNX file a site runs: the network, and after it what goes around the network, sealed by a checksum.

An ONNX file is a protobuf message, and a protobuf message may be followed by more of its fields. What ghofl adds
are entries of the model's metadata at the very end of the file::

    network | ghofl = JSON of name, dim, fingerprint, kind, preprocessing or tokenizer | ghofl.seal = 80 characters

The seal is the network's length (16 hexadecimal digits) and the sha256 of everything before the seal and of those
digits (64). Any ONNX tool reads such a file; a tool that writes it again breaks the seal, and then the fingerprint
is no longer believed.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from ghofl.errors import EncoderError

DESCRIPTION, SEAL = "ghofl", "ghofl.seal"
METADATA_FIELD = 14  # ModelProto.metadata_props, a StringStringEntryProto: key = 1, value = 2
SEAL_LENGTH = 80


def sealed(network: bytes, description: dict[str, Any]) -> bytes:
    """A file of a network and its description."""
    body = network + _entry(DESCRIPTION, json.dumps(description, sort_keys=True, ensure_ascii=False))
    length = f"{len(network):016x}"
    return body + _entry(SEAL, length + _checksum(body, length.encode()))


def description_of(data: bytes, path: Path) -> dict[str, Any] | None:
    """What a file says about itself, or nothing where ghofl did not write it; a broken seal is an error."""
    mark = _entry(SEAL, "0" * SEAL_LENGTH)
    start = len(data) - len(mark)
    if start < 0 or data[start : len(data) - SEAL_LENGTH] != mark[:-SEAL_LENGTH]:
        if _key(DESCRIPTION) in data:
            raise EncoderError(f"{path} was changed after 'ghofl export-encoder' wrote it; export it again.")
        return None
    length, checksum = data[-SEAL_LENGTH:-64], data[-64:]
    if _checksum(data[:start], length).encode() != checksum:
        raise EncoderError(f"{path} is damaged: its checksum is not that of its content. Copy or export it again.")
    entry = data[int(length, 16) : start]
    return json.loads(entry[entry.index(b"{") :])


def _checksum(body: bytes, length: bytes) -> str:
    return hashlib.sha256(body + length).hexdigest()


def _entry(key: str, value: str) -> bytes:
    pair = _key(key) + _text(2, value)
    return _varint(METADATA_FIELD << 3 | 2) + _varint(len(pair)) + pair


def _key(key: str) -> bytes:
    return _text(1, key)


def _text(number: int, text: str) -> bytes:
    data = text.encode()
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """Seven bits a byte, lowest first; the top bit says that more follow."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
