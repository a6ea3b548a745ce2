"""What would leave a site under a recipe, as bytes: packed once, shown to an administrator, and the same every time."""

import hashlib
import json
from dataclasses import asdict, dataclass, field

import numpy as np

from ghofl.errors import MessageError
from ghofl.features import TOLERATED_CLIPPING
from ghofl.moments import Moments
from ghofl.outbox.counting import Counted, Outgoing
from ghofl.privacy import as_vector, entry_bound
from ghofl.recipe import Recipe
from ghofl.secure import masked_bytes
from ghofl.wire.envelope import safetensors_header
from ghofl.wire.message import MAX_HEADER

_TO_REPAIR = (
    "Under an epsilon these figures are for this site's administrator only, and never decide whether it leaves: repair files or "
    "labels because they are wrong, not because of what one row of them does."
)


@dataclass(frozen=True, slots=True, eq=False)
class Parcel:
    """What would leave a site under one recipe: a message, or the vector that a secure round hides.

    `sentences` say what it would reveal to someone who reads it. `data` is the version of the rows it was made from
    (see `RowVersion`); it never leaves the site. `clipped` is the share of entries outside the grid, and `left_out` how many
    rows are not in it because they do not fit a recipe with an epsilon.
    """

    content: bytes = field(repr=False)
    is_message: bool
    rows: int
    sentences: tuple[str, ...]
    data: str = ""
    clipped: float = 0.0
    left_out: int = 0

    @classmethod
    def of(cls, left: Outgoing, sentences: tuple[str, ...]) -> "Parcel":
        """The parcel of what leaves, before a share of distributed noise, which every secure round draws anew."""
        counted, message = left.counted, left.message
        content = message.to_bytes() if message else as_vector(left.moments, left.recipe).astype("<i8").tobytes()
        figures = (counted.version, counted.clipping.share, counted.not_counted)
        return cls(content, message is not None, counted.moments.rows, sentences, *figures)

    @classmethod
    def from_files(cls, content: bytes, facts: bytes) -> "Parcel":
        """The parcel of two files, the bytes that leave and the `facts` about them."""
        values = json.loads(facts)
        if hashlib.sha256(content).hexdigest() != values.pop("sha256"):
            raise MessageError(
                "the message kept in this site's folder is damaged; remove it there, and it is made again."
            )
        return cls(content, **{**values, "sentences": tuple(values["sentences"])})

    @property
    def facts(self) -> bytes:
        """All but the bytes that leave, for the file beside them."""
        values = {key: value for key, value in asdict(self).items() if key != "content"} | {"sha256": self.sha256}
        order = ("is_message", "rows", "sentences", "sha256", "data", "clipped", "left_out")
        return json.dumps({key: values[key] for key in order}, indent=1, ensure_ascii=False).encode()

    @property
    def sha256(self) -> str:
        """The hash that an approval names."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def message_id(self) -> str:
        """The id of the message, empty for a vector."""
        if not self.is_message:
            return ""
        return str(safetensors_header(self.content, "message", MAX_HEADER)["id"])

    @property
    def vector(self) -> np.ndarray:
        """The vector to hide, before the site's share of distributed noise."""
        assert not self.is_message
        return np.frombuffer(self.content, dtype="<i8").astype(np.int64, copy=False)

    def bytes_leaving(self, recipe: Recipe, sites: int) -> int:
        """The bytes that leave, as the ledger counts them: of the message, or of the masked vector in a round of `sites`."""
        return len(self.content) if self.is_message else masked_bytes(len(self.vector), sites, entry_bound(recipe))

    def is_outdated(self, rows: Counted | None) -> bool | None:
        """Whether it was made of other rows than there are now; None when that cannot be known."""
        return None if rows is None or not self.data else rows.version != self.data

    def doubts(self, recipe: Recipe, rows: Counted | None) -> tuple[str, ...]:
        """What an administrator should know before it leaves, given the site's rows as they are now."""
        out, is_private = (), recipe.privacy.epsilon is not None
        if self.clipped > TOLERATED_CLIPPING:
            advice = "" if rows is None else f"; {rows.clipping.advice(recipe)}"
            out += (
                f"WARNING: {self.clipped:.1%} of its entries fell outside the grid and were clipped (up to "
                f"{TOLERATED_CLIPPING:.1%} is harmless){'' if is_private else ', so it should not be sent'}{advice}.",
            )
        if self.left_out:
            out += (
                f"WARNING: {self.left_out:,} rows are not in it, beside {self.rows:,} that are: their label is not a class of "
                "the recipe, a value breaks the schema or is not finite, or a sample could not be read.",
            )
        if is_private and self.rows > recipe.max_rows:
            out += (
                f"WARNING: it is made of {self.rows:,} rows, and the recipe expects at most {recipe.max_rows:,} per site; "
                "larger sums were cut to what that many rows can add up to.",
            )
        if is_private and out:
            out += (_TO_REPAIR,)
        if rows is None:
            out += ("WARNING: the rows it was made from are no longer there; this is what was packed before.",)
        elif self.is_outdated(rows):
            out += (
                "WARNING: the rows have changed since this was packed. What was packed before is what leaves and what an "
                "approval is for; --again makes it from the rows as they are now.",
            )
        return out


def smallest_class(moments: Moments) -> int:
    """The rows of the smallest class that has any; 0 when none has."""
    return int(moments.counts[moments.counts > 0].min(initial=np.iinfo(np.int64).max)) if moments.rows else 0
