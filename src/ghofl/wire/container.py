"""The outer form of a file: safetensors, read without trusting a byte of it."""

import json
from collections.abc import Mapping
from math import prod
from typing import Any, NoReturn

import numpy as np

from ghofl.compute import arrays
from ghofl.errors import MessageError
from ghofl.files import FileBytes
from ghofl.names import shorten
from ghofl.wire import packing

# The number types of safetensors, in the order in which it writes their tensors.
KINDS = {
    name: np.dtype(kind)
    for name, kind in {
        "U64": "u8", "I64": "i8", "F64": "f8", "F32": "f4", "U32": "u4", "I32": "i4",
        "F16": "f2", "U16": "u2", "I16": "i2", "I8": "i1", "U8": "u1", "BOOL": "?",
    }.items()
}  # fmt: skip


def read_header(data: bytes | FileBytes, kind: str, max_header: int) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The tensors that a file announces, its metadata, and where its tensors begin."""
    if len(data) < 10:
        raise MessageError(f"{len(data)} bytes are too few for a {kind}; the file is truncated or empty.")
    size = int.from_bytes(bytes(data[:8]), "little")
    if size > max_header:
        what = "text" if bytes(data[:8]).decode("latin-1").replace("\n", " ").isprintable() else "another kind of file"
        raise MessageError(f"this is not a ghofl {kind} but {what}. Check the path.")
    if 8 + size > len(data):
        raise MessageError(f"the header claims {size:,} bytes of a file of {len(data):,}; the {kind} is truncated.")
    header = read_json(bytes(data[8 : 8 + size]), f"the {kind}'s header")
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or set(metadata) != {"ghofl"} or not isinstance(metadata["ghofl"], str):
        raise MessageError(f"the file is safetensors without ghofl's metadata; it is not a {kind}.")
    return header, metadata, 8 + size


def tensor(name: str, info: Any, data: bytes | FileBytes, start: int) -> packing.Sliced:
    """One uint8 vector of a safetensors file, checked against the size of the file; not copied."""
    if not isinstance(info, dict) or set(info) != {"dtype", "shape", "data_offsets"}:
        raise MessageError(f"tensor {name[:40]!r} has a damaged entry in the header.")
    if info["dtype"] != "U8":
        raise MessageError(f"tensor {name[:40]!r} has dtype {str(info['dtype'])[:20]}; packed integers are U8.")
    shape, offsets = info["shape"], info["data_offsets"]
    is_vector = isinstance(shape, list) and isinstance(offsets, list) and len(shape) == 1 and len(offsets) == 2
    numbers = [*shape, *offsets] if is_vector else []
    if not is_vector or set(map(type, numbers)) != {int} or min(numbers) < 0:
        raise MessageError(f"tensor {name[:40]!r} has shape {str(shape)[:40]}; packed integers are one vector.")
    size, low, high = numbers
    if high - low != size or start + high > len(data):
        raise MessageError(
            f"tensor {name[:40]!r} claims bytes {low} to {high}, which are not there; the file is truncated."
        )
    if isinstance(data, FileBytes):
        return data.part(start + low, start + high)
    return np.frombuffer(data, dtype=np.uint8, count=size, offset=start + low)


def load_arrays(data: bytes | FileBytes, max_header: int) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, in memory or not; arrays too large for memory stay in the file."""
    tensors, _, start = read_header(data, "head", max_header)
    check_coverage(tensors, len(data) - start)
    out = {}
    for name, info in tensors.items():
        kind, shape = info.get("dtype"), info.get("shape")
        if not isinstance(kind, str) or kind not in KINDS:
            raise MessageError(f"tensor {name[:40]!r} has dtype {str(kind)[:20]}; heads have {', '.join(KINDS)}.")
        dtype, (low, high) = KINDS[kind].newbyteorder("<"), info["data_offsets"]
        if not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in shape):
            raise MessageError(f"tensor {name[:40]!r} has shape {str(shape)[:40]}; expected a list of sizes.")
        if prod(shape) * dtype.itemsize != high - low:
            raise MessageError(
                f"tensor {name[:40]!r} has shape {str(shape)[:40]} and {high - low} bytes; it is damaged."
            )
        if isinstance(data, bytes):
            found = np.frombuffer(data, np.uint8, high - low, start + low).copy().view(dtype).reshape(shape)
        elif high - low > arrays.limit():
            found = data.mapped(dtype, start + low, tuple(shape))
        else:
            found = data[start + low : start + high].view(dtype).reshape(shape)
        out[name] = found
    return out


def check_coverage(tensors: Mapping[str, Any], size: int) -> None:
    """Raise unless the tensors follow each other without gaps to the end of the file."""
    spans = []
    for name, info in tensors.items():
        span = info.get("data_offsets") if isinstance(info, dict) else None
        if not isinstance(span, list) or len(span) != 2 or any(type(v) is not int for v in span):
            raise MessageError(
                f"the tensor {shorten(name, 40)!r} has a damaged entry in the header; the file is damaged or not a ghofl file."
            )
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


def read_json(text: bytes | str, what: str) -> dict[str, Any]:
    """A JSON object without duplicate keys; `what` names it in errors."""
    try:
        value = _JSON.decode(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError):
        raise MessageError(f"{what} is not JSON; the file is damaged or not a ghofl file.") from None
    if not isinstance(value, dict):
        raise MessageError(f"{what} is not a JSON object; the file is damaged or not a ghofl file.")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key comes twice")
    return values


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_not_json)
