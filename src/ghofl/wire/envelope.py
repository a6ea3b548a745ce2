"""Moments as bytes with a header, and back: the form that messages and totals share.

The file is safetensors. Its metadata has one key, ``ghofl``, a JSON object, and each statistic X is two uint8 tensors,
``X.codes`` and ``X.data`` (see `ghofl.wire.packing`). Nothing is ever unpickled. The header's ``sha256`` is that of the whole
file, header included, with those 64 digits written as zeros.

Every byte is treated as hostile: sizes are checked against what the recipe allows before anything is allocated. Bytes
may lie in memory or in a file; from a file they are read a few megabytes at a time.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from safetensors.numpy import save as save_safetensors

from ghofl import files
from ghofl.compute import arrays
from ghofl.errors import MessageError
from ghofl.files import FileBytes
from ghofl.moments import Layout, Moments
from ghofl.names import shorten
from ghofl.recipe import Recipe
from ghofl.shapes import Int64
from ghofl.wire import container, packing

SCHEMA = 1
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
    """An opened file: ghofl's header, its tensors by name, and all of its bytes."""

    header: dict[str, Any]
    body: Mapping[str, packing.Sliced]
    data: bytes | FileBytes = field(repr=False)


@lru_cache(maxsize=64)
def size_limit(layout: Layout, header: int) -> int:
    """The most bytes that moments of this layout can take."""
    chunks = sum(packing.chunks_of(prod(shape)) for shape in layout.shapes.values())
    return 8 + header + chunks + 8 * layout.entries


def encode(moments: Moments, header: Mapping[str, Any], zstd: bool = False) -> bytes:
    """Moments and a header as bytes."""
    tensors = {}
    for name, block in moments.blocks.items():
        for part, content in zip(("codes", "data"), packing.pack(block.ravel()), strict=True):
            tensors[f"{name}.{part}"] = content
    data = seal(tensors, _full_header(moments, header))
    return container.compress(data) if zstd else data


def seal(tensors: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> bytes:
    """A safetensors file of these tensors and ghofl's header, with the checksum of all of it in the header."""
    text = json.dumps({"schema": SCHEMA, **header, "sha256": NO_DIGEST}, sort_keys=True)
    data = save_safetensors(dict(tensors), metadata={"ghofl": text})
    at, digest = _digest_position(data, NO_DIGEST), hashlib.sha256(data).hexdigest()
    return data[:at] + digest.encode() + data[at + len(digest) :]


def check_seal(header: Mapping[str, Any], data: bytes | FileBytes) -> None:
    """Raise unless the checksum in the header is that of the file with its digits replaced by zeros."""
    given = header.get("sha256")
    at = _digest_position(data, given) if isinstance(given, str) and len(given) == len(NO_DIGEST) else -1
    digest = hashlib.sha256()
    for start in range(0, len(data), HASHED):
        piece = bytearray(data[start : start + HASHED])
        low, high = max(at, start), min(at + len(NO_DIGEST), start + len(piece))
        if low < high:
            piece[low - start : high - start] = b"0" * (high - low)
        digest.update(piece)
    if at < 0 or digest.hexdigest() != given:
        raise MessageError(_damaged(header))


def _damaged(header: Mapping[str, Any]) -> str:
    """What to say of a file whose bytes are not those of its header, and where to get another one."""
    kind = header["kind"]
    return f"the bytes do not match the header's sha256: the {kind} was damaged after it was written; {AGAIN[kind]}."


def write(path: str | Path, moments: Moments, header: Mapping[str, Any], mode: int = 0o666) -> None:
    """Write what `encode` gives, byte by byte the same, without ever holding all of it."""
    tensors: dict[str, StreamedTensor] = {}
    for name, block in moments.blocks.items():
        flat = block.reshape(-1)
        codes = packing.codes_of(flat)
        tensors[f"{name}.codes"] = StreamedTensor("U8", (len(codes),), [codes])
        data = packing.packed_slabs(flat, codes)
        tensors[f"{name}.data"] = StreamedTensor("U8", (packing.data_bytes(codes, len(flat)),), data)
    write_sealed(path, tensors, _full_header(moments, header), mode)


class StreamedTensor(NamedTuple):
    """A tensor to write to a file: its type as safetensors names it, its shape, and its content in pieces."""

    kind: str
    shape: tuple[int, ...]
    content: Iterable[np.ndarray]

    @classmethod
    def of(cls, array: np.ndarray) -> "StreamedTensor":
        """An array, a piece at a time where it is larger than memory."""
        kind = next(kind for kind, dtype in container.KINDS.items() if dtype == array.dtype)
        return cls(kind, array.shape, _little(array))


def _little(array: np.ndarray) -> Iterator[np.ndarray]:
    for (some,) in arrays.pieces(array):
        yield some.astype(some.dtype.newbyteorder("<"), order="C", copy=False).reshape(-1)


def write_sealed(
    path: str | Path, tensors: Mapping[str, StreamedTensor], header: Mapping[str, Any], mode: int = 0o666
) -> None:
    """Write what `seal` gives, byte by byte the same, without ever holding all of it."""
    order = [*container.KINDS]
    listed = dict(sorted(tensors.items(), key=lambda item: (order.index(item[1].kind), item[0])))
    full, digest = {"schema": SCHEMA, **header}, hashlib.sha256()
    with files.open_to_replace(path, mode) as file:
        _write_hashed(file, digest, _file_header({**full, "sha256": NO_DIGEST}, listed))
        for each in listed.values():
            for piece in each.content:
                _write_hashed(file, digest, piece.data)
        file.seek(0)
        file.write(_file_header({**full, "sha256": digest.hexdigest()}, listed))


def _full_header(moments: Moments, header: Mapping[str, Any]) -> dict[str, Any]:
    return {**header, "layout": _layout_header(moments.layout), "rows": moments.rows}


def _write_hashed(file: BinaryIO, digest: Any, content: bytes | memoryview) -> None:
    file.write(content)
    digest.update(content)


def _digest_position(data: bytes | FileBytes, digest: str) -> int:
    """Where the digits of the checksum are in the bytes of a file; −1 unless they occur exactly once."""
    size = 8 + int.from_bytes(bytes(data[:8]), "little")
    header, key = bytes(data[:size]), rb"\"sha256\": \""
    pattern = key + digest.encode(errors="replace")
    return header.find(pattern) + len(key) if header.count(pattern) == 1 else -1


def _file_header(full: Mapping[str, Any], listed: Mapping[str, StreamedTensor]) -> bytes:
    """The first bytes of a safetensors file of tensors in this order, as `safetensors` writes them."""
    tensors, end = {}, 0
    for name, (kind, shape, _) in listed.items():
        start, end = end, end + prod(shape) * container.KINDS[kind].itemsize
        tensors[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
    metadata = {"__metadata__": {"ghofl": json.dumps(full, sort_keys=True)}}
    text = json.dumps({**metadata, **tensors}, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def open_envelope(
    data: bytes | FileBytes,
    layout: Layout | None,
    kind: str,
    max_header: int,
    fields: set[str],
    optional: frozenset = frozenset(),
) -> Envelope:
    """The header and the uint8 tensors of some bytes, after every check that needs no large allocation.

    `fields` are the header's fields. Without a layout (a file that contains its own recipe) tensors are limited
    by the size of the file.
    """
    limit = None if layout is None else size_limit(layout, max_header)
    data = container.decompress(data, limit)
    if limit is not None and len(data) > limit:
        raise MessageError(
            f"the {kind} has {len(data):,} bytes and this recipe allows {limit:,}; it is not of this recipe."
        )
    tensors, metadata, start = container.read_header(data, kind, max_header)
    header = _ghofl_header(metadata, kind)
    if set(header) - optional != fields:
        came = shorten(sorted(header)[:20], 400)
        raise MessageError(f"the {kind}'s header has the fields {came}; expected {sorted(fields)}.")
    container.check_coverage(tensors, len(data) - start)
    return Envelope(header, {name: container.tensor(name, info, data, start) for name, info in tensors.items()}, data)


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
    body = opened.body
    _check_layout(opened.header.get("layout"), layout)
    check_body(opened, layout)
    moments = Moments(
        layout,
        {
            name: packing.unpack(body[f"{name}.codes"][:], body[f"{name}.data"], prod(shape)).reshape(shape)
            for name, shape in layout.shapes.items()
        },
    )
    _check_count(opened, moments.rows)
    return moments


def decode_into(
    blocks: Mapping[str, Int64[np.ndarray, "messages _"]], opened: Sequence[Envelope], layout: Layout
) -> None:
    """Write the moments of small messages into blocks with a row for each, checked as in `decode`."""
    for one in opened:
        _check_layout(one.header.get("layout"), layout)
        check_body(one, layout)
    for name, rows in blocks.items():
        codes, data = f"{name}.codes", f"{name}.data"
        packing.unpack_many(rows, [(one.body[codes][:], one.body[data]) for one in opened])
    for one, rows in zip(opened, blocks["N"].sum(axis=1).tolist(), strict=True):
        _check_count(one, rows)


def _check_count(opened: Envelope, rows: int) -> None:
    said = opened.header.get("rows")
    if rows != said:
        raise MessageError(f"the header counts {shorten(said, 40)} rows and the moments {rows}.")


def check_body(opened: Envelope, layout: Layout) -> None:
    """Raise unless the tensors are those of the layout, and the bytes the ones that the header was written for."""
    expected = {f"{name}.{part}" for name in layout.shapes for part in ("codes", "data")}
    if set(opened.body) != expected:
        came = shorten(sorted(opened.body)[:12], 400)
        raise MessageError(f"tensors {came} came; layout {layout} has {sorted(expected)}.")
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
        raise MessageError(f"schema {schema} is newer than {SCHEMA}, the newest this ghofl reads; update ghofl.")
    if header.get("kind") != kind:
        came = str(header.get("kind"))[:40]
        raise MessageError(f"this file is a {came!r}, and a {kind!r} was expected. {MADE_BY[kind]} makes one.")
    return header


def is_share(value: object) -> bool:
    """Whether something is a share from 0 to 1, or missing."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1)
