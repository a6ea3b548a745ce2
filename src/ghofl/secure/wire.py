"""Frozen dataclasses to bytes and back, strictly: the encoding of all messages and states of a round.

::

    bytes   = "ghofl-secure/1 " + class name + "\\n" + fields in order
    int     = 8 bytes, unsigned            bool    = 1 byte, 0 or 1
    bytes   = 8-byte length + content      str     = the same, UTF-8; a memoryview the same, which is not copied
    tuple   = 8-byte length + items        array   = 1 byte (4 or 8: the width of an entry) + 8-byte length + entries
    a nested dataclass = its fields

All numbers are little-endian. Every length is checked against the bytes that are left before anything is allocated, so
a reader's memory is at most a constant times the bytes it was given; a byte too many or too few is an error.
"""

import dataclasses
import functools
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from ghofl.secure.errors import SecureError, WireError

MAGIC = "ghofl-secure/1 "
_ARRAY_TYPES = {4: np.dtype("<u4"), 8: np.dtype("<u8")}

T = TypeVar("T")


def to_bytes(value: Any) -> bytes:
    """The bytes of a frozen dataclass; equal values have equal bytes."""
    parts, ahead = [_header(type(value))], [value]
    while ahead:
        match ahead.pop():
            case bool(flag):
                parts.append(bytes([flag]))
            case int(number):
                parts.append(number.to_bytes(8, "little"))
            case bytes() | memoryview() as content:
                parts += [len(content).to_bytes(8, "little"), content]
            case str(text):
                ahead.append(text.encode())
            case tuple(items):
                parts.append(len(items).to_bytes(8, "little"))
                ahead += reversed(items)
            case np.ndarray() as array:
                entries = array.astype(_ARRAY_TYPES[array.itemsize]).tobytes()
                parts += [bytes([array.itemsize]), len(array).to_bytes(8, "little"), entries]
            case nested:
                ahead += [getattr(nested, name) for name, _ in reversed(_fields(type(nested)))]
    return b"".join(parts)


def from_bytes(kind: type[T], data: bytes, limit: int) -> T:
    """The value of class `kind` in `data`, which may come from anyone and has at most `limit` bytes.

    Guarantees
    ----------
    Returns a value whose bytes are `data`, or raises `WireError`.
    """
    if len(data) > limit:
        raise WireError(f"a {kind.__name__} of {len(data)} bytes came; at most {limit} were expected.")
    header = _header(kind)
    if data[: len(header)] != header:
        came = data[: len(header) + 24].split(b"\n")[0]
        raise WireError(f"these bytes start with {came!r}; a {kind.__name__} starts with {header[:-1]!r}.")
    reader = _Reader(data, len(header), kind.__name__)
    try:
        value = _read_fields(kind, reader)
    except SecureError as error:
        raise error if isinstance(error, WireError) else WireError(f"a {kind.__name__} came with {error}") from None
    reader.check_done()
    return value


def _header(kind: type) -> bytes:
    return f"{MAGIC}{kind.__name__}\n".encode()


@functools.lru_cache(maxsize=64)
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in dataclasses.fields(kind) if field.init)


class _Reader:
    """A position in some bytes that only moves forward, and never past their end."""

    def __init__(self, data: bytes, start: int, name: str) -> None:
        self._data, self._at, self._name = data, start, name

    def take(self, length: int) -> bytes:
        self.skip(length)
        return self._data[self._at - length : self._at]

    def skip(self, length: int) -> None:
        left = len(self._data) - self._at
        if length > left:
            raise WireError(f"a {self._name} ended early: {length} more bytes were announced and {left} are left.")
        self._at += length

    def uint(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def blob(self) -> bytes:
        return self.take(self.uint())

    def view(self) -> memoryview:
        length, start = self.uint(), self._at
        self.skip(length)
        return memoryview(self._data)[start : self._at]

    def flag(self) -> bool:
        byte = self.take(1)
        if byte not in (b"\0", b"\1"):
            raise WireError(f"a {self._name} holds {byte!r} where a yes or no, 1 or 0, was expected.")
        return byte == b"\1"

    def text(self) -> str:
        try:
            return self.blob().decode()
        except UnicodeDecodeError:
            raise WireError(f"a {self._name} holds a text that is not UTF-8.") from None

    def count(self) -> int:
        count, left = self.uint(), len(self._data) - self._at
        if count > left:
            raise WireError(f"a {self._name} announces {count} items and only {left} bytes are left.")
        return count

    def array(self) -> np.ndarray:
        width = self.take(1)[0]
        if width not in _ARRAY_TYPES:
            raise WireError(f"a {self._name} holds entries of {width} bytes; entries have 4 or 8.")
        return np.frombuffer(self.take(width * self.uint()), dtype=_ARRAY_TYPES[width])

    def check_done(self) -> None:
        if self._at != len(self._data):
            raise WireError(f"a {self._name} is followed by {len(self._data) - self._at} bytes that do not belong.")


_READERS = {
    bool: _Reader.flag,
    int: _Reader.uint,
    str: _Reader.text,
    bytes: _Reader.blob,
    memoryview: _Reader.view,
    np.ndarray: _Reader.array,
}


def _read_fields(kind: type[T], reader: _Reader) -> T:
    return kind(*[_READERS[hint](reader) if hint in _READERS else _read(hint, reader) for _, hint in _fields(kind)])


def _read(hint: Any, reader: _Reader) -> Any:
    """A tuple of one kind of items, or a nested dataclass."""
    if get_origin(hint) is not tuple:
        return _read_fields(hint, reader)
    item = get_args(hint)[0]
    read = _READERS.get(item) or functools.partial(_read_fields, item)
    return tuple(read(reader) for _ in range(reader.count()))
