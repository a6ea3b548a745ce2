"""A big site adds its rows up in parts, on several machines or at several times, and merges them into its one message.

A part holds exact sums of some of a site's rows, before noise, rounding, minimum counts or any rule of disclosure. Its
file is for the site only and never leaves it; nothing but `merge` reads it. What the recipe asks of a site is done once,
when the message is made from the merged parts.
"""

import hashlib
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.compute import arrays
from ghofl.errors import EmbeddingsError, MessageError, PrivacyError, RosterError
from ghofl.features import ClipCount, Clipping, Features, radius_of
from ghofl.features.grid import SPACES
from ghofl.files import PRIVATE, FileBytes
from ghofl.moments import Layout, Moments
from ghofl.names import is_hex, shorten
from ghofl.outbox.counting import Counted, Progress, count
from ghofl.outbox.site_rows import Embedded, Encodable
from ghofl.recipe import Recipe
from ghofl.wire import envelope
from ghofl.wire.message import MAX_HEADER
from ghofl.wire.plausible import check_lengths, check_plausible
from ghofl.wire.roster import check_overflow

MOST = 100_000  # parts of one site
SAMPLED = 1000  # rows, spread over a file, that distinguish it from another one with the same labels
FIELDS = {"schema", "kind", "recipe", "layout", "rows", "sha256", "part", "source", "clipping"}


@dataclass(frozen=True, slots=True)
class Place:
    """Which part of a site's rows: `number` of `parts`, counted from 1.

    >>> Place.parse("2/8")
    Place(number=2, parts=8)
    """

    number: int
    parts: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.parts <= MOST:
            raise EmbeddingsError(
                f"part {self.number} of {self.parts} does not exist; parts are 1/N to N/N, at most {MOST:,} of them."
            )

    @classmethod
    def parse(cls, text: str) -> "Place":
        """The place that a text like ``2/8`` names."""
        found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if found is None:
            raise EmbeddingsError(f"{shorten(text, 40)!r} is not a part; write 2/8 for the second of eight.")
        return cls(int(found[1]), int(found[2]))

    def of_rows(self, rows: int) -> slice:
        """The rows of this part; all parts together have each row once."""
        return slice(rows * (self.number - 1) // self.parts, rows * self.number // self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The exact moments of one part of a site's rows, and what fell outside the grid.

    `source` identifies the rows that the parts were cut from (the sha256 of all their labels and of some embeddings). It
    is empty where each part has its own rows, such as a file or a partition of a table.
    """

    fingerprint: str
    place: Place
    counted: Counted
    source: str = ""

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        rows: Embedded | Encodable,
        place: Place,
        source: str = "",
        progress: Progress | None = None,
    ) -> "Part":
        """The part of these rows: those of `part_of` with their source, or rows that no other part has."""
        return cls(recipe.fingerprint, place, count(Features.of(recipe), rows, progress), source)

    def save(self, path: str | Path) -> None:
        """Write the part to a file that only its owner may read."""
        envelope.write(path, self.counted.moments, self._header(), PRIVATE)

    def to_bytes(self) -> bytes:
        """The part as bytes, for another process of the site."""
        return envelope.encode(self.counted.moments, self._header())

    def _header(self) -> dict[str, Any]:
        spaces = [getattr(self.counted.clipping, name) for name in SPACES]
        return {
            "kind": "part",
            "recipe": self.fingerprint,
            "part": [self.place.number, self.place.parts],
            "source": self.source,
            "clipping": [[s.entries, s.clipped, min(s.reach, sys.float_info.max)] for s in spaces],
        }

    @classmethod
    def load(cls, path: str | Path, recipe: Recipe) -> "Part":
        """Read a part from a file, checked against the recipe."""
        with FileBytes(path) as data:
            return cls.from_bytes(data, recipe)

    @classmethod
    def from_bytes(cls, data: bytes | FileBytes, recipe: Recipe) -> "Part":
        """The part in some bytes; every byte is checked as in a message."""
        layout = Layout.of(recipe)
        opened = envelope.open_envelope(data, layout, "part", MAX_HEADER, FIELDS)
        header = opened.header
        envelope.check_fingerprint(header, recipe)
        place, clipping = _place_in(header), _clipping_in(header)
        if header["source"] != "" and not is_hex(header["source"], 64):
            raise MessageError(
                f"the part names the rows {shorten(header['source'], 40)!r}; expected 64 hexadecimal digits."
            )
        moments = envelope.decode(opened, layout)
        check_plausible(moments)
        check_lengths(moments, radius_of(recipe))
        return cls(header["recipe"], place, Counted(moments, clipping), header["source"])


def part_of(rows: Embedded | Encodable, place: Place) -> tuple[Embedded | Encodable, str]:
    """The rows of one part, and the name of all the rows that it was cut from."""
    labels = rows.y if isinstance(rows, Embedded) else rows.samples.labels
    assert labels is not None, "rows of a site have labels"
    digest = hashlib.sha256(f"ghofl rows 1|{len(labels)}\n".encode())
    digest.update(np.ascontiguousarray(labels, dtype="<i8").data if labels.dtype.kind == "i" else _texts(labels))
    some = place.of_rows(len(labels))
    if isinstance(rows, Embedded):
        spread = np.unique(np.linspace(0, max(len(labels) - 1, 0), SAMPLED).astype(np.int64))[: len(labels)]
        digest.update(np.ascontiguousarray(rows.x[spread], dtype="<f8").data)
        return replace(rows, x=rows.x[some], y=rows.y[some]), digest.hexdigest()
    return replace(rows, samples=rows.samples.only(np.arange(some.start, some.stop))), digest.hexdigest()


def merge(parts: Iterable[Part], recipe: Recipe) -> Counted:
    """The exact moments of all parts of a site's rows, each part once and none missing.

    Guarantees
    ----------
    Moments and clipping are, to the bit, those of one process that adds up all rows.

    Examples
    --------
    >>> from ghofl.recipe import Encoder
    >>> recipe = Recipe(classes=("a", "b"), encoder=Encoder(dim=2))
    >>> rows, parts = Embedded(np.array([[0.5, 1.0], [2.0, 0.0]]), np.array([0, 1])), []
    >>> for number in (2, 1):
    ...     some, source = part_of(rows, Place(number, 2))
    ...     parts.append(Part.of(recipe, some, Place(number, 2), source))
    >>> merge(parts, recipe).moments == count(Features.of(recipe), rows).moments
    True
    """
    total, clipping, first, seen = Moments.zeros(Layout.of(recipe)), Clipping(), None, set()
    for part in parts:
        first = first or part
        _check_beside(part, first, seen, recipe)
        seen.add(part.place.number)
        check_overflow(total.layout, total.rows + part.counted.moments.rows, f"part {part.place.number}")
        for name, block in total.blocks.items():
            arrays.add_to(block, part.counted.moments.blocks[name])
        clipping += part.counted.clipping
    if first is None:
        raise RosterError("there are no parts; 'ghofl moments --part 1/N' makes the first of N.")
    missing = sorted(set(range(1, first.place.parts + 1)) - seen)
    if missing:
        raise RosterError(
            f"{len(seen)} of {first.place.parts} parts came; missing are {_list_text(missing)}. Give all of them."
        )
    return Counted(total, clipping)


def check_own_rows(recipe: Recipe, person: str = "") -> None:
    """Raise where parts with their own rows could count a person more often than the recipe promises."""
    if person or recipe.privacy.person_rows is not None:
        raise PrivacyError(
            "the rows per person are limited, and a part with its own file does not see the person's rows in the others; "
            "put all rows into one file and leave out --own-file."
        )


def _check_beside(part: Part, first: Part, seen: set[int], recipe: Recipe) -> None:
    envelope.check_fingerprint({"recipe": part.fingerprint}, recipe)
    if not part.source:
        check_own_rows(recipe)
    number, parts = part.place.number, part.place.parts
    if parts != first.place.parts:
        raise RosterError(
            f"part {number}/{parts} and part {first.place.number}/{first.place.parts} are of different divisions; "
            "give parts of one."
        )
    if number in seen:
        raise RosterError(f"part {number} of {parts} came twice; give each part once.")
    if part.source != first.source:
        raise RosterError(
            f"part {number} of {parts} was cut from other rows than part {first.place.number}; make all parts from one file."
        )


def _place_in(header: dict[str, Any]) -> Place:
    values = header["part"]
    if not isinstance(values, list) or len(values) != 2 or not all(type(v) is int for v in values):
        raise MessageError(f"the header says part {shorten(values, 40)}; expected its number and how many there are.")
    try:
        return Place(*values)
    except EmbeddingsError as error:
        raise MessageError(f"the header is damaged: {error}") from None


def _clipping_in(header: dict[str, Any]) -> Clipping:
    lines = header["clipping"]
    if not isinstance(lines, list) or len(lines) != len(SPACES) or not all(map(_is_clipped, lines)):
        raise MessageError("the part's figures about clipped entries are damaged; make the part again.")
    return Clipping(*(ClipCount(entries, clipped, float(reach)) for entries, clipped, reach in lines))


def _is_clipped(line: Any) -> bool:
    if not isinstance(line, list) or len(line) != 3 or any(type(v) is not int for v in line[:2]):
        return False
    is_reach = isinstance(line[2], int | float) and not isinstance(line[2], bool) and 0 <= line[2] <= sys.float_info.max
    return is_reach and 0 <= line[1] <= line[0] < 2**63


def _texts(labels: np.ndarray) -> bytes:
    return b"".join(f"{len(text)}:{text}".encode("utf-8", "surrogatepass") for text in map(str, labels))


def _list_text(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:8])) + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")
