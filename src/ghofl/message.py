"""The one thing a site sends: its moments as bytes, with a header that says what they are.

A message is a safetensors file. Its metadata has one key, ``ghofl``, a JSON object::

    {"schema": 1, "kind": "message", "recipe": fingerprint, "layout": {...}, "id": ..., "site": ..., "rows": ...,
     "sha256": of the packed bytes}

and each statistic X is two uint8 tensors, ``X.codes`` and ``X.data`` (see `ghofl.packing`). The whole may be wrapped
in zstd. Nothing is ever unpickled.

Every byte is treated as hostile: sizes are checked against what the recipe allows before anything is allocated, and
what comes out is checked to be something that rows on the recipe's grid could have made.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ghofl import files
from ghofl.envelope import check_fingerprint, decode, encode, open_envelope, size_limit
from ghofl.errors import MessageError
from ghofl.features import radius_of
from ghofl.files import FileBytes
from ghofl.moments import Layout, Moments
from ghofl.plausible import check_plausible, check_radius
from ghofl.privacy import NoiseStream, leaving, restored, rounded, shifts_of
from ghofl.recipe import Recipe

MAX_HEADER = 64 * 2**10
FIELDS = {"schema", "kind", "recipe", "id", "site", "layout", "rows", "sha256"}
_ID = re.compile(r"[0-9a-f]{32}")
_SITE = re.compile(r"[^\x00-\x1f\x7f]{0,64}")


def is_site_name(text: object) -> bool:
    """Whether something can be a site's name: up to 64 printable characters."""
    return isinstance(text, str) and _SITE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Message:
    """The moments of one site under one recipe, with an id that is counted once.

    Guarantees
    ----------
    ``Message.from_bytes(message.to_bytes(), recipe) == message``. Bytes that are not a message of this recipe raise
    `MessageError` with what came, what was expected and what to do.

    Examples
    --------
    >>> import numpy as np
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
        if not is_site_name(site):
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
    def from_bytes(cls, data: bytes | FileBytes, recipe: Recipe) -> "Message":
        """The message in some bytes, in memory or in a file, checked against the recipe."""
        layout, shifts = Layout.of(recipe), shifts_of(recipe)
        header, body = open_envelope(data, layout, "message", MAX_HEADER, FIELDS)
        check_fingerprint(header, recipe)
        if not isinstance(header.get("id"), str) or not _ID.fullmatch(header["id"]):
            raise MessageError(f"the message id {str(header.get('id'))[:40]!r} is not 32 hexadecimal digits.")
        if not is_site_name(header.get("site")):
            raise MessageError(f"the site name {str(header.get('site'))[:40]!r} is not up to 64 printable characters.")
        moments = restored(decode(header, body, layout), shifts)
        check_plausible(moments, recipe)
        return cls(header["recipe"], header["id"], header["site"], moments, shifts)

    def save(self, path: str | Path, zstd: bool = False) -> None:
        """Write the message to a file that only its owner may read."""
        files.write(path, self.to_bytes(zstd), files.PRIVATE)

    @classmethod
    def load(cls, path: str | Path, recipe: Recipe) -> "Message":
        """Read a message from a file, which is not read at all when it is too large to be one."""
        with FileBytes(path) as data:
            limit = size_limit(Layout.of(recipe), MAX_HEADER)
            if len(data) > limit:
                raise MessageError(
                    f"{path} has more than the {limit:,} bytes that this recipe allows; it is not of this recipe."
                )
            return cls.from_bytes(data, recipe)
