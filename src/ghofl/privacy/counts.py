"""Classes with too few rows: a site is warned before it sends, and the total drops or merges them before any head.

The sum of one row is that row. With two rows, their sum and their second moments give both.
"""

from dataclasses import dataclass

import numpy as np

from ghofl.moments import Moments
from ghofl.privacy.errors import PrivacyError
from ghofl.shapes import Bool, Int64
from ghofl.statistics import STATISTICS


@dataclass(frozen=True, slots=True)
class MinCount:
    """What a minimum count did to a total, and what it still lets others see.

    `small` are the classes below the threshold, including empty ones; `merged_into` is the class that got their rows, if
    any; `is_pooled_whole` says that B still holds them, because without S their part of it is not known.
    """

    threshold: int
    small: tuple[int, ...]
    merged_into: int | None
    is_pooled_whole: bool

    @property
    def revealed(self) -> str:
        """What the outcome reveals about the data, in words."""
        if not self.small:
            return f"Every class has at least {self.threshold} rows, and that is now known."
        names = ", ".join(map(str, self.small))
        told = f"It is now known that each of the classes {names} has fewer than {self.threshold} rows, perhaps none"
        if self.merged_into is not None:
            return f"{told}; their rows are counted in class {self.merged_into}, where differences would show them."
        if self.is_pooled_whole:
            return f"{told}; they are gone from the counts and sums, but their rows are still part of the one matrix B."
        return f"{told}; nothing else of them is left."

    def __str__(self) -> str:
        return self.revealed


def apply_min_count(moments: Moments, threshold: int, merge_into: int | None = None) -> tuple[Moments, MinCount]:
    """A total without the classes that have fewer than `threshold` rows, and what that reveals.

    They are dropped: what is stored per class becomes zero, and so does their part of B where it follows from S. When B
    is stored by itself it cannot be separated by class and still holds their rows, at most (threshold − 1) per class. With
    `merge_into` their rows go to that class instead, which keeps B right; if that class stays below the threshold it is
    dropped as well.

    Guarantees
    ----------
    Every class of the result has no rows or at least `threshold`. Applied to a noisy total, it costs no privacy.
    Applied to an exact one, it is not differential privacy: the server saw the total, and `revealed` says what others see.

    Examples
    --------
    >>> from ghofl.moments import Layout
    >>> moments = Moments.of(np.array([[1], [2], [3]]), np.array([0, 0, 1]), Layout(classes=3, dim=1))
    >>> kept, outcome = apply_min_count(moments, threshold=2)
    >>> kept.counts, outcome.small
    (array([2, 0, 0]), (1, 2))
    >>> apply_min_count(moments, threshold=2, merge_into=0)[0].counts
    array([3, 0, 0])
    """
    _check_options(moments, threshold, merge_into)
    is_small = moments.counts < threshold
    blocks = dict(moments.blocks)
    if merge_into is not None:
        is_small[merge_into] = False
        blocks = {name: _merge(name, block, is_small, merge_into) for name, block in blocks.items()}
        is_small[merge_into] = bool(blocks["N"][merge_into] < threshold)
    small = tuple(int(c) for c in np.flatnonzero(is_small))
    is_dropped = bool(small) and (merge_into is None or bool(is_small[merge_into]))
    kept = Moments(moments.layout, {name: _drop(name, block, is_small) for name, block in blocks.items()})
    merged_into = None if is_dropped or not small else merge_into
    has_pooled = not all(record.is_per_class for record in moments.layout.records)
    return kept, MinCount(threshold, small, merged_into, is_dropped and has_pooled)


@dataclass(frozen=True, slots=True)
class SiteWarning:
    """The classes of a site's own message that have too few rows, with what the message says about them.

    It is true when there is something to warn about.
    """

    threshold: int
    counts: dict[int, int]
    exposed: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        if not self:
            return f"No class in this message has between 1 and {self.threshold - 1} rows."
        few = ", ".join(f"class {c} ({n} row{'s' if n > 1 else ''})" for c, n in self.counts.items())
        text = f"This message has fewer than {self.threshold} rows of {few}."
        if self.exposed:
            names = ", ".join(map(str, self.exposed))
            text += f" Of class {names} it holds the embeddings themselves: whoever reads the message reads those rows."
        return text + " Leave these rows out, or send with secure aggregation, which shows nobody the message."


def site_warning(moments: Moments, threshold: int) -> SiteWarning:
    """Which classes of a site's own message have fewer than `threshold` rows, and which of their rows it reveals.

    One row is its own sum. Two rows follow from their sum and their second moments S, or from their sum and D except for
    which row has which of two values; in this way, as many rows follow as there are sums of different powers.

    Examples
    --------
    >>> from ghofl.moments import Layout
    >>> moments = Moments.of(np.array([[1], [2], [3]]), np.array([0, 0, 1]), Layout(classes=2, dim=1))
    >>> print(site_warning(moments, threshold=2))
    This message has fewer than 2 rows of class 1 (1 row). Of class 1 it holds the embeddings themselves: whoever reads
    the message reads those rows. Leave these rows out, or send with secure aggregation, which shows nobody the message.
    """
    _check_options(moments, threshold, None)
    counts = {c: int(n) for c, n in enumerate(moments.counts) if 0 < n < threshold}
    known = (record for name, record in STATISTICS.items() if moments.layout.has(name) and record.is_per_class)
    solvable = len({record.power for record in known if record.power and not record.is_sketched})
    return SiteWarning(threshold, counts, tuple(c for c, n in counts.items() if n <= solvable))


def _merge(
    name: str, block: Int64[np.ndarray, "..."], is_small: Bool[np.ndarray, " classes"], target: int
) -> Int64[np.ndarray, "..."]:
    if not STATISTICS[name].is_per_class:
        return block
    block = block.copy()
    block[target] += block[is_small].sum(axis=0)
    block[is_small] = 0
    return block


def _drop(
    name: str, block: Int64[np.ndarray, "..."], is_small: Bool[np.ndarray, " classes"]
) -> Int64[np.ndarray, "..."]:
    if not STATISTICS[name].is_per_class or not is_small.any():
        return block
    block = block.copy()
    block[is_small] = 0
    return block


def _check_options(moments: Moments, threshold: int, merge_into: int | None) -> None:
    if threshold < 0:
        raise PrivacyError(f"the minimum count is {threshold}; write 0 for none.")
    if merge_into is not None and not 0 <= merge_into < moments.layout.classes:
        raise PrivacyError(
            f"merge_into is {merge_into}; the classes are 0 to {moments.layout.classes - 1}. "
            "Declare one of them in the recipe to take the rows of small classes."
        )
