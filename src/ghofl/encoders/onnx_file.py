"""The ONNX file of an encoder: the network, then its preprocessing or tokenizer, sealed by a checksum.

An ONNX file is a protobuf message, and a protobuf message may be followed by more of its fields. ghofl adds
entries to the model's metadata at the very end of the file::

    network | ghofl = JSON of a Description | ghofl.seal = 80 characters

The seal is the network's length (16 hexadecimal digits) and the sha256 of everything before the seal and of those
digits (64). Any ONNX tool reads such a file; a tool that writes it again breaks the seal, and then the fingerprint
is no longer trusted. The seal is checked before anything in the file is parsed.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from ghofl.encoders.resize import Preprocessing
from ghofl.encoders.views import Views
from ghofl.errors import EncoderError
from ghofl.names import shorten
from ghofl.recipe.schema import build

DESCRIPTION, SEAL = "ghofl", "ghofl.seal"
SEAL_LENGTH = 80
HEADER = b"r^\n\nghofl.seal\x12P"  # what protobuf writes before the seal's characters


@dataclass(frozen=True, slots=True)
class Description:
    """What a file says about its network: the encoder it came from, and how to make its input from samples."""

    name: str
    dim: int
    fingerprint: str
    kind: str
    preprocessing: Preprocessing | None = None
    tokenizer: str = ""
    longest: int = 0
    pooling: str = ""
    views: str = ""

    def __post_init__(self) -> None:
        has_preprocessing = self.preprocessing is not None
        if (self.kind, has_preprocessing, bool(self.tokenizer)) not in (("image", True, False), ("text", False, True)):
            raise EncoderError(
                f"kind is {self.kind!r}; expected an image with preprocessing or a text with a tokenizer"
            )
        if self.views and self.kind != "image":
            raise EncoderError(f"views are {self.views[:80]!r} of a {self.kind}; only images have views")
        Views.parse(self.views)


def seal_of(body: bytes, length: str) -> str:
    """The seal of everything before it, for a network of this length (16 hexadecimal digits)."""
    return length + hashlib.sha256(body + length.encode()).hexdigest()


def description_of(data: bytes, path: Path) -> Description | None:
    """The description in a file, or None where it does not end in a seal; a broken seal raises."""
    body, tail = data[: -len(HEADER) - SEAL_LENGTH], data[-len(HEADER) - SEAL_LENGTH :]
    if not tail.startswith(HEADER):
        return None
    seal = tail.removeprefix(HEADER).decode("latin-1")
    if seal_of(body, seal[:16]) != seal:
        raise EncoderError(f"{path} is damaged: its checksum does not match. Copy or export it again.")
    try:
        # The bytes before the JSON may contain a brace, but never one followed by a quote.
        return build(Description, json.loads(body[body.index(b'{"', int(seal[:16], 16)) :]), "")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:  # GhoflErrors about its values among them
        raise EncoderError(
            f"{path} has a description that cannot be read ({shorten(error, 160)}); export it again."
        ) from None
