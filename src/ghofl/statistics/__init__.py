"""The kinds of sums that sites can send, each a record. A new one is a file with its record and a line here."""

from collections.abc import Sequence
from functools import lru_cache

from ghofl.errors import RecipeError
from ghofl.statistics.higher import HIGHER
from ghofl.statistics.standard import STANDARD
from ghofl.statistics.statistic import Statistic

__all__ = ["INT64_MAX", "STATISTICS", "Statistic", "stored"]

INT64_MAX = 2**63 - 1
# By name, in the order in which they are hashed and sent.
STATISTICS: dict[str, Statistic] = {record.name: record for record in (*STANDARD, *HIGHER)}


def stored(statistics: Sequence[str]) -> tuple[str, ...]:
    """The statistics that need storing so that all of `statistics` can be derived, in the order of `STATISTICS`.

    >>> stored(["S", "B"])
    ('N', 'A', 'S')
    """
    return _stored(tuple(statistics))


@lru_cache(maxsize=64)
def _stored(statistics: tuple[str, ...]) -> tuple[str, ...]:
    asked = {"N", "A", *statistics}
    listed = {name: record for name, record in STATISTICS.items() if not record.is_sketched}
    unknown = sorted(asked - listed.keys())
    if unknown:
        sketched = " and ".join(name for name in unknown if name in STATISTICS)
        end = f"; class moments of a sketch ({sketched}) are asked for by a [sketch] section." if sketched else "."
        raise RecipeError(f"statistics lists {unknown}; known are {', '.join(listed)}{end}")
    return tuple(name for name, record in listed.items() if name in asked and record.parent not in asked)
