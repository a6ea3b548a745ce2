"""The one thing a site sends: its moments as bytes, with a header that says what they are.

A message is a safetensors file. Its metadata has one key, ``ghofl``, a JSON object::

    {"schema": 1, "kind": "message", "recipe": fingerprint, "layout": {...}, "id": ..., "site": ..., "rows": ...,
     "sha256": of the packed bytes}

and each statistic X is two uint8 tensors, ``X.codes`` and ``X.data`` (see `ghofl.packing`). The whole may be wrapped
in zstd. Nothing is ever unpickled.

Every byte is treated as hostile: sizes are checked against what the recipe allows before anything is allocated, and
what comes out is checked to be something that rows on the recipe's grid could have made.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from safetensors.numpy import save as save_safetensors

from ghofl import files, packing
from ghofl.errors import MessageError, MissingExtraError
from ghofl.features import radius_of
from ghofl.moments import Layout, Moments
from ghofl.plausible import check_plausible, check_radius
from ghofl.privacy import NoiseStream, leaving, restored, rounded, shifts_of
from ghofl.recipe import Recipe

SCHEMA = 1
MAX_HEADER = 64 * 2**10
FIELDS = {"schema", "kind", "recipe", "id", "site", "layout", "rows", "sha256"}
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ID = re.compile(r"[0-9a-f]{32}")
_SITE = re.compile(r"[^\x00-\x1f\x7f]{0,64}")


@dataclass(frozen=True, slots=True)
class Message:
    """The moments of one site under one recipe, with an id that is counted once.

    Guarantees
    ----------
    ``Message.from_bytes(message.to_bytes(), recipe) == message``. Bytes that are not a message of this recipe raise
    `MessageError` with what came, what was expected and what to do.

    Examples
    --------
    >>> from ghofl.recipe import Encoder
    >>> recipe = Recipe(classes=("a", "b"), encoder=Encoder(dim=2))
    >>> moments = Moments.of(np.array([[1, 2]]), np.array([0]), Layout.of(recipe))
    >>> message = Message.of(moments, recipe, site="north")
    >>> Message.from_bytes(message.to_bytes(), recipe) == message
    True
    """

    fingerprint: str
    id: str
    site: str
    moments: Moments
    shifts: Mapping[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, moments: Moments, recipe: Recipe, site: str = "", stream: NoiseStream | None = None) -> "Message":
        """A new message of a site, with a fresh random id, after what the recipe's [privacy] asks of a site.

        `moments` are exact. Local noise is drawn here, from the operating system's entropy unless a `stream` is given.
        """
        if moments.layout != Layout.of(recipe):
            raise MessageError(
                f"moments of layout {moments.layout} are not of this recipe, which has {Layout.of(recipe)}."
            )
        if recipe.privacy.secure:
            raise MessageError(
                "the recipe asks for secure aggregation, and a message would show the server this site's moments; "
                "take part in a secure round (ghofl.secure), or agree on a recipe with privacy.secure = false."
            )
        if not _SITE.fullmatch(site):
            raise MessageError(f"site name {site[:80]!r} is not allowed; write up to 64 printable characters.")
        check_radius(moments, radius_of(recipe))
        return cls(recipe.fingerprint, secrets.token_hex(16), site, leaving(moments, recipe, stream), shifts_of(recipe))

    @property
    def rows(self) -> int:
        """How many rows the site added up."""
        return self.moments.rows

    @property
    def name(self) -> str:
        """How people tell this message from others."""
        return self.site or self.id[:8]

    def to_bytes(self, zstd: bool = False) -> bytes:
        """The message as bytes, smaller (and slower) when `zstd` is asked for."""
        header = {"kind": "message", "recipe": self.fingerprint, "id": self.id, "site": self.site}
        return encode(rounded(self.moments, self.shifts), header, zstd)

    @classmethod
    def from_bytes(cls, data: bytes, recipe: Recipe) -> "Message":
        """The message in some bytes, checked against the recipe."""
        layout, shifts = Layout.of(recipe), shifts_of(recipe)
        header, body = open_envelope(data, layout, "message", MAX_HEADER, FIELDS)
        check_fingerprint(header, recipe)
        if not isinstance(header.get("id"), str) or not _ID.fullmatch(header["id"]):
            raise MessageError(f"the message id {str(header.get('id'))[:40]!r} is not 32 hexadecimal digits.")
        if not isinstance(header.get("site"), str) or not _SITE.fullmatch(header["site"]):
            raise MessageError(f"the site name {str(header.get('site'))[:40]!r} is not up to 64 printable characters.")
        moments = restored(decode(header, body, layout), shifts)
        check_plausible(moments, recipe)
        return cls(header["recipe"], header["id"], header["site"], moments, shifts)

    def save(self, path: str | Path, zstd: bool = False) -> None:
        """Write the message to a file."""
        files.write(path, self.to_bytes(zstd))

    @classmethod
    def load(cls, path: str | Path, recipe: Recipe) -> "Message":
        """Read a message from a file, which is not read at all when it is too large to be one."""
        return cls.from_bytes(read_limited(path, size_limit(Layout.of(recipe), MAX_HEADER)), recipe)


def size_limit(layout: Layout, header: int) -> int:
    """The most bytes that moments of this layout can take."""
    chunks = sum(packing.chunks_of(int(np.prod(shape))) for shape in layout.shapes.values())
    return 8 + header + chunks + 8 * layout.entries


def read_limited(path: str | Path, limit: int) -> bytes:
    """A file's bytes, unless it has more than `limit`."""
    with open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise MessageError(
            f"{path} has more than the {limit:,} bytes that this recipe allows; it is not of this recipe."
        )
    return data


def encode(moments: Moments, header: Mapping[str, Any], zstd: bool = False) -> bytes:
    """Moments and a header as bytes."""
    tensors, digest = {}, hashlib.sha256()
    for name, block in moments.blocks.items():
        for part, content in zip(("codes", "data"), packing.pack(block.ravel()), strict=True):
            tensors[f"{name}.{part}"] = content
            digest.update(content.data)
    full = {
        "schema": SCHEMA,
        **header,
        "layout": _layout_header(moments.layout),
        "rows": moments.rows,
        "sha256": digest.hexdigest(),
    }
    data = save_safetensors(tensors, metadata={"ghofl": json.dumps(full, sort_keys=True)})
    return _zstandard().ZstdCompressor(level=3).compress(data) if zstd else data


def open_envelope(
    data: bytes, layout: Layout | None, kind: str, max_header: int, fields: set[str], optional: frozenset = frozenset()
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the uint8 tensors of some bytes, after every check that needs no large allocation.

    Without a layout (a file that brings its own recipe) the size of the tensors is limited by the bytes that came.
    """
    limit = None if layout is None else size_limit(layout, max_header)
    data = _decompressed(data, limit)
    if limit is not None and len(data) > limit:
        raise MessageError(
            f"the {kind} has {len(data):,} bytes and this recipe allows {limit:,}; it is not of this recipe."
        )
    tensors, metadata, start = _safetensors_header(data, kind, max_header)
    header = _ghofl_header(metadata, kind)
    if set(header) - optional != fields:
        raise MessageError(f"the {kind}'s header has the fields {sorted(header)[:20]}; expected {sorted(fields)}.")
    _check_coverage(tensors, len(data) - start)
    return header, {name: _tensor(name, info, data, start) for name, info in tensors.items()}


def safetensors_header(data: bytes, kind: str, max_header: int) -> dict[str, Any]:
    """ghofl's metadata in the bytes of a safetensors file of this kind."""
    return _ghofl_header(_safetensors_header(data, kind, max_header)[1], kind)


def peek(path: str | Path, max_header: int = 512 * 2**20) -> dict[str, Any] | None:
    """ghofl's metadata of a message, total or head, read without its body; nothing when it is none of them."""
    with open(path, "rb") as file:
        start = file.read(8)
        size = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= size <= max_header:
            return None
        header = file.read(size)
    try:
        return _json(_json(header, "")["__metadata__"]["ghofl"].encode(), "")
    except (MessageError, KeyError, AttributeError, TypeError):
        return None


def decode(header: Mapping[str, Any], body: Mapping[str, np.ndarray], layout: Layout) -> Moments:
    """The moments of an opened envelope, checked against the header; `check_plausible` checks the rest."""
    _check_layout(header.get("layout"), layout)
    expected = {f"{name}.{part}" for name in layout.shapes for part in ("codes", "data")}
    if set(body) != expected:
        raise MessageError(f"tensors {sorted(body)[:12]} came; layout {layout} has {sorted(expected)}.")
    digest = hashlib.sha256()
    for name in layout.shapes:
        digest.update(body[f"{name}.codes"].data)
        digest.update(body[f"{name}.data"].data)
    if digest.hexdigest() != header.get("sha256"):
        raise MessageError(
            "the bytes do not match the header's sha256: damaged on the way, ask the site to send it again."
        )
    moments = Moments(
        layout,
        {
            name: packing.unpack(body[f"{name}.codes"], body[f"{name}.data"], int(np.prod(shape))).reshape(shape)
            for name, shape in layout.shapes.items()
        },
    )
    if moments.rows != header.get("rows"):
        raise MessageError(f"the header counts {header.get('rows')!r} rows and the moments {moments.rows}.")
    return moments


def check_fingerprint(header: Mapping[str, Any], recipe: Recipe) -> None:
    """Raise unless the header names this recipe."""
    here, there = recipe.fingerprint, header.get("recipe")
    if here != there:
        raise MessageError(
            f"the message was made with recipe {str(there)[:12]}… and this is {here[:12]}…; "
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
            f"the message claims matrices in the form {came.get('matrices')!r}; second moments are symmetric and "
            "travel as their 'upper triangle'."
        )
    raise MessageError(f"the message has layout {str(came)[:200]} and the recipe has {expected}.")


def _safetensors_header(data: bytes, kind: str, max_header: int) -> tuple[dict[str, Any], dict[str, Any], int]:
    if len(data) < 10:
        raise MessageError(f"{len(data)} bytes are too few for a {kind}; the file is truncated or empty.")
    size = int.from_bytes(data[:8], "little")
    if size > max_header:
        raise MessageError(
            f"this is not a ghofl {kind}: its first bytes announce a header of over {max_header:,} bytes."
        )
    if 8 + size > len(data):
        raise MessageError(f"the header claims {size:,} bytes of a file of {len(data):,}; the {kind} is truncated.")
    header = _json(data[8 : 8 + size], f"the {kind}'s header")
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or set(metadata) != {"ghofl"} or not isinstance(metadata["ghofl"], str):
        raise MessageError(f"the file is safetensors without ghofl's metadata; it is not a {kind}.")
    return header, metadata, 8 + size


def _ghofl_header(metadata: Mapping[str, Any], kind: str) -> dict[str, Any]:
    header = _json(metadata["ghofl"].encode(), "ghofl's metadata")
    schema = header.get("schema")
    if type(schema) is not int or schema < 1:
        raise MessageError(f"schema {schema!r} is not a version of this format.")
    if schema > SCHEMA:
        raise MessageError(f"schema {schema} is newer than {SCHEMA}, the newest this ghofl reads; update ghofl.")
    if header.get("kind") != kind:
        raise MessageError(f"this file is a {str(header.get('kind'))[:40]!r}, and a {kind!r} was expected.")
    return header


def _tensor(name: str, info: Any, data: bytes, start: int) -> np.ndarray:
    """One uint8 vector of a safetensors file, checked against the bytes that are there; not copied."""
    if not isinstance(info, dict) or set(info) != {"dtype", "shape", "data_offsets"}:
        raise MessageError(f"tensor {name[:40]!r} has a damaged entry in the header.")
    if info["dtype"] != "U8":
        raise MessageError(f"tensor {name[:40]!r} has dtype {str(info['dtype'])[:20]}; packed integers are U8.")
    shape, offsets = info["shape"], info["data_offsets"]
    whole = all(isinstance(part, list) and all(type(v) is int and v >= 0 for v in part) for part in (shape, offsets))
    if not whole or len(shape) != 1 or len(offsets) != 2:
        raise MessageError(f"tensor {name[:40]!r} has shape {str(shape)[:40]}; packed integers are one vector.")
    low, high = offsets
    if high - low != shape[0] or start + high > len(data):
        raise MessageError(
            f"tensor {name[:40]!r} claims bytes {low} to {high}, which are not there; the file is truncated."
        )
    return np.frombuffer(data, dtype=np.uint8, count=shape[0], offset=start + low)


def _check_coverage(tensors: Mapping[str, Any], size: int) -> None:
    """Raise unless the tensors follow each other without gaps to the end of the file."""
    spans = []
    for info in tensors.values():
        span = info.get("data_offsets") if isinstance(info, dict) else None
        if not isinstance(span, list) or len(span) != 2 or any(type(v) is not int for v in span):
            raise MessageError("a tensor has a damaged entry in the header; the file is damaged or not a ghofl file.")
        spans.append(tuple(span))
    end = 0
    for low, high in sorted(spans):
        if low != end:
            raise MessageError(f"tensors leave a gap or overlap at byte {end}; the file is damaged.")
        end = high
    if end > size:
        raise MessageError(f"tensors claim {end} bytes and {size} are there; the file is truncated.")
    if end < size:
        raise MessageError(f"{size - end} bytes belong to no tensor; the file is damaged or not a ghofl file.")


def _json(text: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_not_json)
    except (ValueError, RecursionError):
        raise MessageError(f"{what} is not JSON; the file is damaged or not a ghofl file.") from None
    if not isinstance(value, dict):
        raise MessageError(f"{what} is not a JSON object; the file is damaged or not a ghofl file.")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key stands twice")
    return values


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _decompressed(data: bytes, limit: int | None) -> bytes:
    """The bytes inside a zstd frame, never more than `limit` of them; other bytes as they are."""
    if data[:4] != ZSTD_MAGIC:
        return data
    zstandard = _zstandard()
    if limit is None:
        raise MessageError("this file is compressed and may only be read with its recipe at hand.")
    try:
        size = zstandard.frame_content_size(data)
        if size > limit:
            raise MessageError(f"the message unpacks to {size:,} bytes and this recipe allows {limit:,}.")
        if size < 0:
            raise MessageError("the zstd frame does not say how much it holds; write messages with 'ghofl moments'.")
        return zstandard.ZstdDecompressor(max_window_size=2**27).decompress(data, allow_extra_data=False)
    except zstandard.ZstdError:
        raise MessageError("the zstd frame is damaged or truncated; ask the site to send the message again.") from None


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError("messages in zstd need zstandard: pip install 'ghofl[zstd]'") from None
    return zstandard
