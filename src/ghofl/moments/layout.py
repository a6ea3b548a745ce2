"""Which statistics some moments hold, and how large their entries can be."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any

from ghofl.recipe import Recipe
from ghofl.statistics import STATISTICS, Statistic, statistics_to_store


@dataclass(frozen=True)
class Layout:
    """The statistics in some moments, the number of classes and dimensions, and the largest feature.

    >>> Layout(classes=10, dim=256, statistics=("N", "A", "B")).entries
    35466
    """

    classes: int
    dim: int
    statistics: tuple[str, ...] = ("N", "A", "B")
    sketch: int = 0
    bound: int = 127

    def __post_init__(self) -> None:
        object.__setattr__(self, "statistics", statistics_to_store(self.statistics))

    @classmethod
    def of(cls, recipe: Recipe) -> "Layout":
        """The layout that every site of this recipe fills; statistics that can be derived from others are not in it."""
        is_sent = recipe.sketch is not None and STATISTICS["Z"].parent not in recipe.statistics
        sketch = recipe.sketch.dim if is_sent and recipe.sketch is not None else 0
        return _layout(len(recipe.classes), recipe.dim, recipe.statistics, sketch, recipe.grid.bound)

    @property
    def records(self) -> tuple[Statistic, ...]:
        """The stored statistics, in the order they are hashed and sent."""
        return tuple(
            record
            for name, record in STATISTICS.items()
            if (self.sketch > 0 if record.is_sketched else name in self.statistics)
        )

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every stored block, in the order they are hashed and sent."""
        return {record.name: record.shape(self.classes, self.dim, self.sketch) for record in self.records}

    @cached_property
    def entries(self) -> int:
        """The number of integers in all blocks."""
        return sum(prod(shape) for shape in self.shapes.values())

    @cached_property
    def largest(self) -> int:
        """The largest entry that one row can add to any block; at least a square."""
        return max(self.bound**2, *(record.largest(self.bound, self.dim) for record in self.records))

    def width(self, statistic: Statistic) -> int:
        """How many features a statistic sums: those of a row, or of its sketch."""
        return statistic.width(self.dim, self.sketch)

    def digest(self) -> Any:
        """A sha256 of the layout, to be updated with every entry as little-endian int64."""
        return hashlib.sha256(self._text)

    @cached_property
    def _text(self) -> bytes:
        return json.dumps([str(self), *self.shapes]).encode()

    def source(self, statistic: str) -> str:
        """The stored block that a statistic is read from: its own or its parent's; empty where there is neither."""
        shapes = self.shapes
        parent = STATISTICS[statistic].parent if statistic in STATISTICS else ""
        return statistic if statistic in shapes else parent if parent in shapes else ""

    def has(self, statistic: str) -> bool:
        """Whether a statistic is stored or can be derived: B, D and any sketch follow from S."""
        return bool(self.source(statistic))

    def __str__(self) -> str:
        blocks = ",".join(self.shapes)
        sketch = f", sketch={self.sketch}" if self.sketch else ""
        return f"(classes={self.classes}, dim={self.dim}, {blocks}{sketch}, bound={self.bound})"


@lru_cache(maxsize=64)  # thousands of messages of one recipe share what a layout works out
def _layout(*values: Any) -> Layout:
    return Layout(*values)
