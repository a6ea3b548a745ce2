"""The schema of a table: its columns, and how each becomes numbers between −1 and 1.

::

    number      −1 at `low`, 1 at `high`, linear between
    log         the same on the logarithms: for amounts over several powers of ten
    quantiles   −1 at the first of `breaks`, 1 at the last, equal steps between neighbours
    category    one number per level: 1 for the row's own, 0 for the others
    yes/no      1 for yes, −1 for no

The embedding of a row is the numbers of its columns, one after another. All have the same range, so one grid fits all.
"""

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ghofl.errors import RecipeError
from ghofl.names import NAMES_ARE, is_name
from ghofl.recipe.options import MOST
from ghofl.recipe.schema import build, coerce, to_canonical, to_plain
from ghofl.recipe.schema import check as _check
from ghofl.recipe.sections import MAX_DIM, Encoder

KINDS = ("number", "log", "quantiles", "category", "yes/no")
MISSING = ("refuse", "neutral", "indicator")
OUTSIDE = ("clip", "refuse")
MISSING_WORDS = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "None", "?", "-")  # unless one of them is a level
YES, NO = ("yes", "y", "true", "t", "1"), ("no", "n", "false", "f", "0")
ENCODER = "table"
MOST_BREAKS = 64  # of a number: knots cost a feature each
FINE = 2.0**20  # parts of 1 that knots are rounded to: the last digits of logarithms differ between platforms


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its kind, and what happens to values that are missing or outside.

    `unit` is for people. Numbers and logarithms have `low` and `high`, quantiles have `breaks`, categories `levels`. The
    `breaks` of a number or logarithm are quantiles between its ends; its own number does not depend on them, but a recipe's
    [basis] has a kink at some of them and takes ranks by all.
    A `missing` value is refused, or becomes the `neutral` one (by default the middle of the range, no level, or neither
    yes nor no); with ``indicator`` an extra number is 1 where it was missing and 0 in other rows. A value `outside`
    is moved to the nearest end of the range, or counts as none of the levels, or is refused. A category with a `rest` has
    one more level of that name, unless it is listed, for everything that is not: no level is outside then.

    >>> Column("age", "number", unit="years", low=0, high=120).width
    1
    """

    name: str
    kind: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    breaks: tuple[float, ...] = ()
    levels: tuple[str, ...] = ()
    missing: str = "refuse"
    neutral: float | None = None
    outside: str = "clip"
    rest: str = ""

    def __post_init__(self) -> None:
        coerce(self, "table.columns.")
        _check(bool(self.name) and is_name(self.name), f"a column is called {self.name[:80]!r}; {NAMES_ARE}")
        _check(is_name(self.unit) or not self.unit, f"{self._where} has the unit {self.unit[:80]!r}; {NAMES_ARE}")
        for field, allowed in (("kind", KINDS), ("missing", MISSING), ("outside", OUTSIDE)):
            value = getattr(self, field)
            _check(
                value in allowed,
                f"{self._where} has {field} = {value[:40]!r}; write one of {', '.join(map(repr, allowed))}.",
            )
        self._check_only_own()
        if self.kind in ("number", "log"):
            self._check_range()
        elif self.kind == "quantiles":
            self._check_rising(2)
            self._check_apart(self.breaks)
        elif self.kind == "category":
            self._check_levels()
        _check(
            self.neutral is None or (self.missing != "refuse" and self.span[0] <= self.neutral <= self.span[1]),
            f"{self._where} has neutral = {self.neutral}; it must be in the range, and stands for missing values: write "
            "missing = 'neutral' or 'indicator' too.",
        )

    @property
    def _where(self) -> str:
        return f"column {self.name[:80]!r}"

    @property
    def span(self) -> tuple[float, float]:
        """The ends of the range of a numeric column."""
        if self.kind == "quantiles":
            return self.breaks[0], self.breaks[-1]
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high

    @property
    def width(self) -> int:
        """How many numbers of the embedding come from it."""
        return (len(self.all_levels) if self.kind == "category" else 1) + (self.missing == "indicator")

    @property
    def all_levels(self) -> tuple[str, ...]:
        """The levels of a category, with the one for the rest."""
        return (*self.levels, self.rest) if self.rest and self.rest not in self.levels else self.levels

    @property
    def knots(self) -> tuple[float, ...]:
        """The breaks of a number or logarithm between −1 and 1, with both ends; empty where it has none.

        >>> Column("age", "number", low=0, high=100, breaks=(25, 50)).knots
        (-1.0, -0.5, 0.0, 1.0)
        """
        if not self.breaks or self.kind == "quantiles":
            return ()
        ends = self.span
        low, *inner, high = (math.log(v) if self.kind == "log" else v for v in (ends[0], *self.breaks, ends[1]))
        return (-1.0, *(round((2.0 * (v - low) / (high - low) - 1.0) * FINE) / FINE for v in inner), 1.0)

    def _check_only_own(self) -> None:
        """Raise for fields of other kinds, which would silently have no effect."""
        own = {"number": ("low", "high", "breaks", "neutral"), "log": ("low", "high", "breaks", "neutral"),
               "quantiles": ("breaks", "neutral"), "category": ("levels", "rest"), "yes/no": ()}[self.kind]  # fmt: skip
        for field in ("low", "high", "breaks", "levels", "rest", "neutral"):
            _check(
                field in own or getattr(self, field) in (None, (), ""),
                f"{self._where} is of kind {self.kind!r}, which has no {field}; leave it out.",
            )

    def _check_range(self) -> None:
        low, high = self.low, self.high
        _check(
            low is not None and high is not None and math.isfinite(low) and math.isfinite(high) and low < high,
            f"{self._where} goes from {low} to {high}; write low and high, two numbers with low < high.",
        )
        assert low is not None
        _check(
            self.kind != "log" or low > 0,
            f"{self._where} is logarithmic and starts at {low}; write a low above 0, or kind = 'number'.",
        )
        self._check_apart(tuple(math.log(v) if self.kind == "log" else v for v in self.span))
        if self.breaks:
            self._check_inner_breaks(*self.span)

    def _check_apart(self, values: tuple[float, ...]) -> None:
        """Raise where the distance between two values, or between the first and the last, is no number to divide by."""
        is_apart = all(b - a >= sys.float_info.min for a, b in pairwise(values))
        _check(
            is_apart and math.isfinite(2.0 * (values[-1] - values[0])),
            f"{self._where} goes from {self.span[0]} to {self.span[1]}, in steps that are too small or too large to scale; "
            "write another range or other breaks.",
        )

    def _check_inner_breaks(self, low: float, high: float) -> None:
        self._check_rising(1)
        _check(
            low < self.breaks[0] and self.breaks[-1] < high and len(self.breaks) <= MOST_BREAKS,
            f"{self._where} has {len(self.breaks)} breaks from {self.breaks[0]} to {self.breaks[-1]}; write at most "
            f"{MOST_BREAKS}, all between {low} and {high}.",
        )
        _check(
            _are_rising(self.knots),
            f"{self._where} has breaks that its range from {low} to {high} does not tell apart; leave some out.",
        )

    def _check_rising(self, least: int) -> None:
        _check(
            len(self.breaks) >= least and all(map(math.isfinite, self.breaks)) and _are_rising(self.breaks),
            f"{self._where} has the breaks {list(self.breaks)[:6]}; write {'two' if least == 2 else 'one'} or more numbers, "
            "each above the last.",
        )

    def _check_levels(self) -> None:
        _check(len(self.levels) >= 1, f"{self._where} is a category without levels; write levels = ['a', 'b'].")
        for level in self.all_levels:
            _check(bool(level) and is_name(level), f"{self._where} has the level {level[:80]!r}; {NAMES_ARE}")
        twice = [level for level, count in Counter(self.levels).items() if count > 1]
        _check(not twice, f"{self._where} lists {twice[:3]} more than once; every level is listed once.")
        _check(
            not self.rest or self.outside != "refuse",
            f"{self._where} has a level for the rest, so no level is outside; leave out rest, or outside = 'refuse'.",
        )


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a table, in the order of the embedding, and the column of labels.

    `missing_words` are texts that mean a missing value, in addition to empty cells, NA, n/a, NaN, null, None, ? and -.
    `site_rows` is roughly how many rows a site has, from which a recipe sees how many features they carry. `from_rows` says
    that ranges, breaks and levels come from somebody's rows, not from a data dictionary; such a table is refused
    under ε.

    Guarantees
    ----------
    Every embedding entry is in [−1, 1], whatever the rows hold. `fingerprint` covers everything that affects an embedding.

    Examples
    --------
    >>> table = Table((Column("age", "number", low=0, high=120), Column("ward", "category", levels=("a", "b"))))
    >>> table.dim, table.features
    (3, ('age', 'ward=a', 'ward=b'))
    """

    columns: tuple[Column, ...]
    label: str = ""
    missing_words: tuple[str, ...] = ()
    from_rows: bool = False
    site_rows: int | None = None

    def __post_init__(self) -> None:
        coerce(self, "table.")
        _check(bool(self.columns), "table.columns is empty; write at least one column.")
        twice = [name for name, count in Counter(c.name for c in self.columns).items() if count > 1]
        _check(not twice, f"table.columns has {twice[:3]} more than once; every column is listed once.")
        _check(not self.label or is_name(self.label), f"table.label is {self.label[:80]!r}; {NAMES_ARE}")
        _check(
            self.label not in {c.name for c in self.columns},
            f"table.label is {self.label!r}, which is among the columns too; a label must not predict itself.",
        )
        _check(
            self.site_rows is None or 1 <= self.site_rows <= MOST,
            f"table.site_rows is {self.site_rows}; write the rows that a site has, or leave it out.",
        )
        _check(
            self.dim <= MAX_DIM,
            f"the columns give {self.dim} numbers per row, and at most {MAX_DIM} are allowed; leave some out.",
        )

    @property
    def dim(self) -> int:
        """Numbers in one embedding."""
        return sum(column.width for column in self.columns)

    @property
    def features(self) -> tuple[str, ...]:
        """The name of each number of an embedding."""
        names: list[str] = []
        for column in self.columns:
            names += [f"{column.name}={level}" for level in column.all_levels] or [column.name]
            names += [f"{column.name} is missing"] if column.missing == "indicator" else []
        return tuple(names)

    @property
    def numbers(self) -> tuple[bool, ...]:
        """Whether each number of an embedding is one of many, not one of two."""
        found: list[bool] = []
        for column in self.columns:
            found += [column.kind not in ("category", "yes/no")] * (column.width - (column.missing == "indicator"))
            found += [False] * (column.missing == "indicator")
        return tuple(found)

    @property
    def longest(self) -> float:
        """The greatest length that a row's embedding can have: every column gives at most 1."""
        return math.sqrt(len(self.columns))

    @property
    def fingerprint(self) -> str:
        """The sha256 of the columns and of the texts that mean missing."""
        values = {"columns": to_plain(self)["columns"], "missing_words": list(self.missing_words)}
        text = json.dumps(to_canonical(values), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(f"ghofl table 1\n{text}".encode()).hexdigest()

    @property
    def encoder(self) -> Encoder:
        """The encoder section of a recipe with this schema."""
        return Encoder(dim=self.dim, name=ENCODER, fingerprint=self.fingerprint)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Table":
        """A table from plain values; unknown keys raise and name the nearest known one."""
        return build(cls, values, "table.")


def _are_rising(values: tuple[float, ...]) -> bool:
    return all(a < b for a, b in pairwise(values))


def check_table(table: Table, encoder: Encoder, is_private: bool) -> None:
    """Raise `RecipeError` unless a recipe's encoder is its table, and the table may be used under its privacy."""
    if encoder != table.encoder:
        raise RecipeError(
            f"encoder is {encoder.name!r} of {encoder.dim} numbers, fingerprint {encoder.fingerprint[:12]}…, and the "
            f"[table] gives {table.dim} and {table.fingerprint[:12]}…; make the recipe again with 'ghofl recipe --schema'."
        )
    if table.from_rows and is_private:
        raise RecipeError(
            "the table's ranges, breaks and levels come from somebody's rows, and a minimum, maximum or quantile is somebody's "
            "value, which epsilon would not cover. Draft the schema from a data dictionary, or compare every range, break and "
            "level with what is public and then write from_rows = false."
        )
