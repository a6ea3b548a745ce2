"""Moments as bytes with a header, and back: the form that messages and totals share.

The file is safetensors. Its metadata has one key, ``ghofl``, a JSON object, and its one tensor, ``entries``, holds all entries
in the order of the layout (see `ghofl.wire.packing`). Nothing is ever unpickled. The header's ``sha256`` is that of the
tensors' bytes and, after them, of the header with those 64 digits written as zeros: how long the tensors are is known last.

Every byte is treated as hostile: sizes are checked against what the recipe allows before anything is allocated. Bytes
may lie in memory or in a file; from a file they are read a few megabytes at a time.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ghofl import files
from ghofl.compute import arrays
from ghofl.compute.threads import map_in_order
from ghofl.errors import MessageError
from ghofl.files import FileBytes
from ghofl.moments import Layout, Moments
from ghofl.names import shorten
from ghofl.recipe import Recipe
from ghofl.shapes import Int64
from ghofl.wire import container, packing

SCHEMA = 2
ENTRIES = "entries"
HASHED = 4 * 2**20  # bytes to hash at a time
NO_DIGEST = 64 * "0"
AGAIN = {  # where another copy of a damaged file comes from
    "message": "ask the site to send it again",
    "total": "copy it again, or make it again from its messages",
    "head": "copy it again, or make it again with 'ghofl head'",
}
MADE_BY = {
    "message": "'ghofl moments'",
    "total": "'ghofl sum'",
    "head": "'ghofl head'",
}


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """An opened file: ghofl's header, its packed entries, and all of its bytes."""

    header: dict[str, Any]
    entries: packing.Sliced
    data: bytes | FileBytes = field(repr=False)


class Tensor(NamedTuple):
    """A tensor to write: its type as safetensors names it, its shape, and its content in pieces.

    The shape of bytes, whose number is known when they are written, is the most that they can be.
    """

    kind: str
    shape: tuple[int, ...]
    content: Iterable[bytes | memoryview]

    @classmethod
    def of(cls, array: np.ndarray) -> "Tensor":
        """An array, a piece at a time where it is larger than memory."""
        kind = next(kind for kind, dtype in container.KINDS.items() if dtype == array.dtype)
        return cls(kind, array.shape, _little(array))

    @classmethod
    def packed(cls, moments: Moments) -> "Tensor":
        """All entries of moments, slab by slab."""
        content = map_in_order(packing.pack_slab, _copied_slabs(moments))
        return cls("U8", (packing.most_bytes(moments.layout.entries),), content)


def _little(array: np.ndarray) -> Iterator[memoryview]:
    for (some,) in arrays.pieces(array):
        yield some.astype(some.dtype.newbyteorder("<"), order="C", copy=False).reshape(-1).data


def _copied_slabs(moments: Moments) -> Iterator[Int64[np.ndarray, " some"]]:
    for low in range(0, moments.layout.entries, packing.SLAB):
        views = [view for _, view, _ in views_of(moments.blocks, low, packing.SLAB)]
        yield np.concatenate(views)
        for view in views:
            arrays.evict(view)


def views_of(
    blocks: Mapping[str, Int64[np.ndarray, "..."]], low: int, size: int
) -> Iterator[tuple[str, Int64[np.ndarray, " some"], slice]]:
    """Where `size` entries from `low` on lie, counted through all blocks: a block's name, a view of it, and which of them."""
    start = 0
    for name, block in blocks.items():
        first, last = max(low, start), min(low + size, start + block.size)
        if first < last:
            yield name, block.reshape(-1)[first - start : last - start], slice(first - low, last - low)
        start += block.size


@lru_cache(maxsize=64)
def size_limit(layout: Layout, header: int) -> int:
    """The most bytes that moments of this layout can take."""
    return 8 + header + packing.most_bytes(layout.entries)


def encode(moments: Moments, header: Mapping[str, Any]) -> bytes:
    """Moments and a header as bytes."""
    return seal({ENTRIES: Tensor.packed(moments)}, _full_header(moments, header))


def write(path: str | Path, moments: Moments, header: Mapping[str, Any], mode: int = 0o666) -> None:
    """Write what `encode` gives to a file, without ever holding all of it."""
    with files.open_to_replace(path, mode) as file:
        write_sealed(file, {ENTRIES: Tensor.packed(moments)}, _full_header(moments, header))


def seal(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> bytes:
    """A safetensors file of these tensors and ghofl's header, with the checksum of all of it in the header."""
    file = io.BytesIO()
    write_sealed(file, tensors, header)
    return file.getvalue()


def write_sealed(file: BinaryIO | io.BytesIO, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write what `seal` gives, without ever holding all of it: the tensors, and before them their header."""
    order = [*container.KINDS]
    listed = dict(sorted(tensors.items(), key=lambda item: (order.index(item[1].kind), item[0])))
    full, digest, end = {"schema": SCHEMA, **header, "sha256": NO_DIGEST}, hashlib.sha256(), 0
    sizes = {name: _bytes_of(each.kind, each.shape) for name, each in listed.items()}
    room = len(_file_header(full, listed, sizes))
    file.seek(room)
    for name, each in listed.items():
        start = end
        for piece in map(memoryview, each.content):
            file.write(piece)
            digest.update(piece)
            end += piece.nbytes
        sizes[name] = end - start
    digest.update(_file_header(full, listed, sizes, room))
    file.seek(0)
    file.write(_file_header({**full, "sha256": digest.hexdigest()}, listed, sizes, room))


def _file_header(
    full: Mapping[str, Any], listed: Mapping[str, Tensor], sizes: Mapping[str, int], room: int = 0
) -> bytes:
    """The first bytes of a safetensors file of tensors in this order, filled up with spaces to so much `room`."""
    tensors, end = {}, 0
    for name, (kind, shape, _) in listed.items():
        start, end = end, end + sizes[name]
        is_whole = sizes[name] == _bytes_of(kind, shape)
        tensors[name] = {
            "dtype": kind, "shape": list(shape) if is_whole else [sizes[name]], "data_offsets": [start, end],
        }  # fmt: skip
    metadata = {"__metadata__": {"ghofl": json.dumps(full, sort_keys=True)}}
    text = json.dumps({**metadata, **tensors}, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * max(-len(text) % 8, room - 8 - len(text))
    return len(text).to_bytes(8, "little") + text


def _bytes_of(kind: str, shape: tuple[int, ...]) -> int:
    return prod(shape) * container.KINDS[kind].itemsize


def _full_header(moments: Moments, header: Mapping[str, Any]) -> dict[str, Any]:
    return {**header, "layout": _layout_header(moments.layout), "rows": moments.rows}


def check_seal(header: Mapping[str, Any], data: bytes | FileBytes) -> None:
    """Raise unless the checksum in the header is that of the tensors and of the header with zeros in its place."""
    given = header.get("sha256")
    first = bytes(data[: 8 + int.from_bytes(bytes(data[:8]), "little")])
    at = _digest_position(first, given) if isinstance(given, str) and len(given) == len(NO_DIGEST) else -1
    digest = hashlib.sha256()
    for start in range(len(first), len(data), HASHED):
        digest.update(bytes(data[start : start + HASHED]))
    digest.update(first[:at] + NO_DIGEST.encode() + first[at + len(NO_DIGEST) :])
    if at < 0 or digest.hexdigest() != given:
        raise MessageError(_damaged(header))


def _damaged(header: Mapping[str, Any]) -> str:
    """What to say of a file whose bytes are not those of its header, and where to get another one."""
    kind = header["kind"]
    return f"the bytes do not match the header's sha256: the {kind} was damaged after it was written; {AGAIN[kind]}."


def _digest_position(header: bytes, digest: str) -> int:
    """Where the digits of the checksum are in the first bytes of a file; −1 unless they occur exactly once."""
    key = rb"\"sha256\": \""
    pattern = key + digest.encode(errors="replace")
    return header.find(pattern) + len(key) if header.count(pattern) == 1 else -1


def open_envelope(
    data: bytes | FileBytes,
    layout: Layout | None,
    kind: str,
    max_header: int,
    fields: set[str],
    optional: frozenset = frozenset(),
) -> Envelope:
    """The header and the packed entries of some bytes, after every check that needs no large allocation.

    `fields` are the header's fields. Without a layout (a file that contains its own recipe) entries are limited
    by the size of the file.
    """
    if layout is not None and len(data) > (limit := size_limit(layout, max_header)):
        raise MessageError(
            f"the {kind} has {len(data):,} bytes and this recipe allows {limit:,}; it is not of this recipe."
        )
    tensors, metadata, start = container.read_header(data, kind, max_header)
    header = _ghofl_header(metadata, kind)
    if set(header) - optional != fields:
        came = shorten(sorted(header)[:20], 400)
        raise MessageError(f"the {kind}'s header has the fields {came}; expected {sorted(fields)}.")
    container.check_coverage(tensors, len(data) - start)
    if set(tensors) != {ENTRIES}:
        raise MessageError(
            f"the {kind} has the tensors {shorten(sorted(tensors)[:12], 400)}; expected one, {ENTRIES!r}."
        )
    return Envelope(header, container.tensor(ENTRIES, tensors[ENTRIES], data, start), data)


def safetensors_header(data: bytes | FileBytes, kind: str, max_header: int) -> dict[str, Any]:
    """ghofl's metadata in the bytes of a safetensors file of this kind."""
    return _ghofl_header(container.read_header(data, kind, max_header)[1], kind)


def peek(path: str | Path, max_header: int = 512 * 2**20) -> dict[str, Any] | None:
    """ghofl's metadata of a message, total or head, read without its body; None for any other file."""
    with open(path, "rb") as file:
        start = file.read(8)
        size = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= size <= max_header:
            return None
        header = file.read(size)
    try:
        return container.read_json(container.read_json(header, "")["__metadata__"]["ghofl"], "")
    except (MessageError, KeyError, AttributeError, TypeError):
        return None


def decode(opened: Envelope, layout: Layout) -> Moments:
    """The moments of an opened envelope, checked against the header; `check_plausible` checks the rest."""
    check_body(opened, layout)
    moments = Moments.zeros(layout)
    for low, entries in packing.unpacked_slabs(opened.entries, layout.entries):
        for _, view, where in views_of(moments.blocks, low, len(entries)):
            view[...] = entries[where]
            arrays.evict(view)
    _check_count(opened, moments.rows)
    return moments


def count_rows(opened: Envelope, layout: Layout) -> int:
    """The rows of an opened envelope, by its counts, which are the first of its entries; checked against the header."""
    rows = 0
    for low, entries in packing.unpacked_slabs(opened.entries, layout.entries):
        rows += int(entries[: max(0, layout.classes - low)].sum())
        if low + len(entries) >= layout.classes:
            break
    _check_count(opened, rows)
    return rows


def _check_count(opened: Envelope, rows: int) -> None:
    said = opened.header.get("rows")
    if rows != said:
        raise MessageError(f"the header counts {shorten(said, 40)} rows and the moments {rows}.")


def check_body(opened: Envelope, layout: Layout) -> None:
    """Raise unless the file is of this layout, and its bytes the ones that the header was written for."""
    _check_layout(opened.header.get("layout"), layout)
    check_seal(opened.header, opened.data)


def check_fingerprint(header: Mapping[str, Any], recipe: Recipe) -> None:
    """Raise unless the header names this recipe."""
    here, there = recipe.fingerprint, header.get("recipe")
    if here != there:
        raise MessageError(
            f"the message was made with recipe {shorten(there, 12)} and this is {here[:12]}…; "
            "all sites use one recipe file, so give this site that file and let it send again."
        )


def _layout_header(layout: Layout) -> dict[str, Any]:
    return {
        "classes": layout.classes,
        "dim": layout.dim,
        "statistics": list(layout.statistics),
        "sketch": layout.sketch,
        "bound": layout.bound,
        "matrices": "upper triangle",
    }


def _check_layout(came: Any, layout: Layout) -> None:
    expected = _layout_header(layout)
    if came == expected:
        return
    if isinstance(came, dict) and came.get("matrices") != expected["matrices"]:
        raise MessageError(
            f"the message claims matrices in the form {shorten(came.get('matrices'), 40)!r}; second moments are symmetric and "
            "travel as their 'upper triangle'."
        )
    raise MessageError(f"the message has layout {shorten(came, 200)} and the recipe has {expected}.")


def _ghofl_header(metadata: Mapping[str, Any], kind: str) -> dict[str, Any]:
    header = container.read_json(metadata["ghofl"], "ghofl's metadata")
    schema = header.get("schema")
    if type(schema) is not int or schema < 1:
        raise MessageError(f"schema {shorten(schema, 40)!r} is not a version of this format.")
    if schema > SCHEMA:
        raise MessageError(f"schema {schema} is newer than {SCHEMA}, the one this ghofl reads; update ghofl.")
    if schema < SCHEMA:
        raise MessageError(f"schema {schema} is older than {SCHEMA}, the one this ghofl reads; {AGAIN[kind]}.")
    if header.get("kind") != kind:
        came = str(header.get("kind"))[:40]
        raise MessageError(f"this file is a {came!r}, and a {kind!r} was expected. {MADE_BY[kind]} makes one.")
    return header


def is_share(value: object) -> bool:
    """Whether something is a share from 0 to 1, or missing."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1)
