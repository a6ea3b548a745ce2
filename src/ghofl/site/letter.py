"""Letters between server and sites, whatever carries them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ghofl.files import FileBytes


@dataclass(frozen=True, slots=True)
class Letter:
    """A question or an answer: a few named values, and bytes of any size, in memory or in a file."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes | FileBytes = field(default=b"", repr=False)

    @property
    def content(self) -> bytes:
        """The payload in memory."""
        return self.payload if isinstance(self.payload, bytes) else self.payload[:].tobytes()
