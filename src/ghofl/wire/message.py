"""The one thing a site sends: its moments as bytes, with a header that says what they are.

A message is a safetensors file. Its metadata has one key, ``ghofl``, a JSON object::

    {"schema": 2, "kind": "message", "recipe": fingerprint, "layout": {...}, "id": ..., "site": ..., "rows": ...,
     "clipped": share of clipped entries or null, "sha256": of the whole file}

and its one tensor holds all entries (see `ghofl.wire.packing`). Nothing is ever unpickled.

Every byte is treated as hostile: sizes are checked against what the recipe allows before anything is allocated, and
what comes out is checked to be something that rows on the recipe's grid could have made.
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ghofl import files
from ghofl.errors import MessageError
from ghofl.features import Clipping, radius_of
from ghofl.files import FileBytes
from ghofl.moments import Layout, Moments
from ghofl.names import WHY_NO_SITE_NAME, is_hex, is_site_name, shorten
from ghofl.notebook import Printable, bars
from ghofl.privacy import NoiseStream, plan_of, protect, restore, round_moments, shifts_of
from ghofl.recipe import Recipe
from ghofl.wire.envelope import Envelope, check_fingerprint, decode, encode, is_share, open_envelope, size_limit, write
from ghofl.wire.plausible import check_lengths, check_plausible, check_possible, check_rows

MAX_HEADER = 64 * 2**10
FIELDS = {"schema", "kind", "recipe", "id", "site", "layout", "rows", "clipped", "sha256"}
ID_DIGITS = 32
AT_ONCE = 2**20  # bytes of a message that is read in one go


@dataclass(frozen=True, slots=True, repr=False)
class Message(Printable):
    """The moments of one site under one recipe, with an id that is counted once.

    Guarantees
    ----------
    ``Message.from_bytes(message.to_bytes(), recipe) == message``. Bytes that are not a message of this recipe raise
    `MessageError` with what came, what was expected and what to do. `recipe` is the one it was made or read with; it
    does not travel, only its fingerprint does.

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
    shifts: Mapping[str, int] = field(default_factory=dict)
    clipped: float | None = None
    recipe: Recipe | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        moments: Moments,
        recipe: Recipe,
        site: str = "",
        stream: NoiseStream | None = None,
        clipping: Clipping | None = None,
    ) -> "Message":
        """A new message of a site, with a fresh random id, after what the recipe's [privacy] asks of a site.

        `moments` are exact. Local noise is drawn here, from the operating system's entropy unless a `stream` is given.
        The share of entries that fell outside the grid (`clipping`) goes along where the message has no noise.
        """
        if moments.layout != Layout.of(recipe):
            raise MessageError(
                f"moments of layout {moments.layout} are not of this recipe, which has {Layout.of(recipe)}."
            )
        check_not_secure(recipe)
        if not is_site_name(site):
            raise MessageError(f"site name {site[:80]!r} is not allowed: {WHY_NO_SITE_NAME}")
        check_row_count(moments.rows, recipe)
        plan = plan_of(recipe)
        check_lengths(moments, radius_of(recipe))
        left = protect(moments, recipe, stream)
        tells = clipping is not None and (plan is None or plan.mechanism == "central")
        share = clipping.share if clipping is not None and tells else None
        return cls(recipe.fingerprint, secrets.token_hex(16), site, left, shifts_of(recipe), share, recipe)

    @property
    def rows(self) -> int:
        """How many rows the site added up."""
        return self.moments.rows

    @property
    def name(self) -> str:
        """How people tell this message from others."""
        return self.site or self.id[:8]

    def _facts(self) -> dict[str, object]:
        return {"site": self.name, **self.moments._facts(), "recipe": f"{self.fingerprint[:12]}…"}

    def _picture(self) -> str:
        return "" if self.recipe is None else bars(self.recipe.classes, self.moments.counts.tolist(), "rows by class")

    def to_bytes(self) -> bytes:
        """The message as bytes."""
        return encode(round_moments(self.moments, self.shifts), self._header())

    def _header(self) -> dict[str, Any]:
        about = {"kind": "message", "recipe": self.fingerprint, "id": self.id, "site": self.site}
        return {**about, "clipped": self.clipped}

    @classmethod
    def from_bytes(cls, data: bytes | FileBytes, recipe: Recipe, is_own: bool = False) -> "Message":
        """The message in some bytes, in memory or in a file, checked against the recipe.

        Whether second moments are those of some rows takes a Cholesky factor per class (0.06 s at 1,280 dimensions);
        it is left out where this process made the message itself (`is_own`).
        """
        layout, shifts = Layout.of(recipe), shifts_of(recipe)
        opened = open_message(data, recipe)
        header = opened.header
        moments = restore(decode(opened, layout), shifts)
        check_rows(moments, recipe)
        check_plausible(moments, recipe)
        if not is_own:
            check_possible(moments, recipe)
        return cls(header["recipe"], header["id"], header["site"], moments, shifts, header["clipped"], recipe)

    def save(self, path: str | Path) -> None:
        """Write the message to a file that only its owner may read."""
        write(path, round_moments(self.moments, self.shifts), self._header(), files.PRIVATE)

    @classmethod
    def load(cls, path: str | Path, recipe: Recipe) -> "Message":
        """Read a message from a file, which is not read at all when it is too large to be one."""
        with message_bytes(path, recipe) as data:
            return cls.from_bytes(data, recipe)


@contextmanager
def message_bytes(path: str | Path, recipe: Recipe) -> Iterator[bytes | FileBytes]:
    """The bytes of a file that is small enough to be a message: those of a small one are read, large ones wait in it."""
    with FileBytes(path) as data:
        limit = size_limit(Layout.of(recipe), MAX_HEADER)
        if len(data) > limit:
            raise MessageError(
                f"{path} has more than the {limit:,} bytes that this recipe allows; it is not of this recipe."
            )
        yield bytes(data) if len(data) <= AT_ONCE else data


def open_message(data: bytes | FileBytes, recipe: Recipe) -> Envelope:
    """The header and the tensors of a message, after every check that needs no large allocation."""
    opened = open_envelope(data, Layout.of(recipe), "message", MAX_HEADER, FIELDS)
    check_header(opened.header, recipe)
    return opened


def check_not_secure(recipe: Recipe) -> None:
    """Raise when a recipe lets nobody see the message of a single site."""
    if recipe.privacy.secure:
        raise MessageError(
            f"the recipe {recipe.fingerprint[:12]}… asks for secure aggregation, and a message would show the "
            "server this site's moments; "
            "take part in a secure round ('ghofl secure', or on Flower), or agree on a recipe with privacy.secure = false."
        )


def check_row_count(rows: int, recipe: Recipe) -> None:
    """Raise when a site has more rows than the recipe lets it send. Under an epsilon sums are cut instead, later."""
    if rows > recipe.max_rows and plan_of(recipe) is None:
        raise MessageError(
            f"{rows:,} rows are more than the {recipe.max_rows:,} that one site may have under this recipe; "
            "agree on a recipe with a larger max_rows in its [limits] section."
        )


def check_header(header: Mapping[str, Any], recipe: Recipe) -> None:
    """Raise unless a message's header names this recipe, and has an id, a site and a share that can be such."""
    check_fingerprint(header, recipe)
    if not is_hex(header.get("id"), ID_DIGITS):
        raise MessageError(f"the message id {shorten(header.get('id'), 40)!r} is not 32 hexadecimal digits.")
    if not is_site_name(header.get("site")):
        raise MessageError(f"the site name {shorten(header.get('site'), 64)!r} is not allowed: {WHY_NO_SITE_NAME}")
    if not is_share(header["clipped"]):
        raise MessageError(
            f"the share of clipped entries is {shorten(header['clipped'], 20)}; it is from 0 to 1, or null."
        )
