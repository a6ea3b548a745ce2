"""Many messages read together, because a small message takes most of its time in steps that do not depend on its size.

Each message becomes one row of a matrix, and whether rows on the grid could have made them is checked for all at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.errors import GhoflError, errors_about
from ghofl.moments import Layout, Moments
from ghofl.privacy import restore, shifts_of
from ghofl.recipe import Recipe
from ghofl.shapes import Int64
from ghofl.wire.envelope import decode_into
from ghofl.wire.message import Message, message_bytes, open_message
from ghofl.wire.plausible import check_many
from ghofl.wire.roster import Entry

AT_ONCE = 2**18  # entries of messages that are checked together: two megabytes
MOST = 128  # messages that are read together, however small they are


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Several messages of one recipe: one row of entries per message, with its blocks in the order of the layout.

    Guarantees
    ----------
    Each was checked as `Message.load` checks it. A file that is not a message of this recipe raises the error that
    `Message.load` has for it, with its path in front.
    """

    recipe: Recipe
    paths: tuple[Path, ...]
    roster: tuple[Entry, ...]
    entries: Int64[np.ndarray, "messages entries"] = field(repr=False)

    @classmethod
    def load(cls, paths: Sequence[Path], recipe: Recipe) -> "Batch":
        """Read messages from files."""
        entries = np.empty((len(paths), Layout.of(recipe).entries), dtype=np.int64)
        try:
            headers = _read(entries, paths, recipe)
            _check(entries, recipe)
        except GhoflError:
            for path in paths:
                with errors_about(path):
                    Message.load(path, recipe)
            raise
        return cls(recipe, tuple(paths), tuple(map(_entry, headers, entries, repeat(recipe))), entries)

    @property
    def counts(self) -> Int64[np.ndarray, "messages classes"]:
        """The number of rows per message and class."""
        return self.entries[:, : len(self.recipe.classes)]


def batches(paths: Sequence[Path], recipe: Recipe) -> Iterator[Sequence[Path]]:
    """Files of messages, as many at a time as make two megabytes of entries, and at least one."""
    step = max(1, min(MOST, AT_ONCE // Layout.of(recipe).entries))
    for start in range(0, len(paths), step):
        yield paths[start : start + step]


def split_blocks(entries: Int64[np.ndarray, "*messages entries"], layout: Layout) -> dict[str, np.ndarray]:
    """The blocks in rows of entries, or in one row, in their shapes."""
    blocks, start = {}, 0
    for name, shape in layout.shapes.items():
        some = entries[..., start : start + prod(shape)]
        blocks[name] = some.reshape(*entries.shape[:-1], *shape)
        start += prod(shape)
    return blocks


def _read(entries: np.ndarray, paths: Sequence[Path], recipe: Recipe) -> list[Mapping[str, Any]]:
    """Write the entries of messages into rows, in their original units, and return the headers."""
    layout, shifts, opened = Layout.of(recipe), shifts_of(recipe), []
    for path in paths:
        with message_bytes(path, recipe) as data:
            opened.append(open_message(bytes(data), recipe))
    decode_into(entries, opened, layout)
    if shifts:
        blocks = split_blocks(entries, layout)
        restored = restore(Moments(layout, blocks), shifts)
        for name in shifts:
            blocks[name][...] = restored.blocks[name]
    return [one.header for one in opened]


def _check(entries: np.ndarray, recipe: Recipe) -> None:
    check_many(Layout.of(recipe), split_blocks(entries, Layout.of(recipe)), recipe)


def _entry(header: Mapping[str, Any], row: np.ndarray, recipe: Recipe) -> Entry:
    digest = Layout.of(recipe).digest()
    digest.update(row.astype("<i8", copy=False).data)
    rows = int(row[: len(recipe.classes)].sum())
    return Entry(header["id"], header["site"], rows, digest.hexdigest(), header["clipped"])
