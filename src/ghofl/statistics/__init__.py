"""The kinds of sums that sites can send, one record each. A new kind is one file with its record and one line here."""

from collections.abc import Sequence
from functools import lru_cache

from ghofl.errors import RecipeError
from ghofl.statistics.standard import STANDARD
from ghofl.statistics.statistic import Statistic

__all__ = ["INT64_MAX", "STATISTICS", "Statistic", "statistics_to_store"]

INT64_MAX = 2**63 - 1
# By name, in the order in which they are hashed and sent.
STATISTICS: dict[str, Statistic] = {record.name: record for record in STANDARD}


def statistics_to_store(statistics: Sequence[str]) -> tuple[str, ...]:
    """The statistics to store so that all of `statistics` can be derived, in the order of `STATISTICS`.

    >>> statistics_to_store(["S", "B"])
    ('N', 'A', 'S')
    """
    return _statistics_to_store(tuple(statistics))


@lru_cache(maxsize=64)
def _statistics_to_store(statistics: tuple[str, ...]) -> tuple[str, ...]:
    asked = {"N", "A", *statistics}
    listed = {name: record for name, record in STATISTICS.items() if not record.is_sketched}
    unknown = sorted(asked - listed.keys())
    if unknown:
        sketched = " and ".join(name for name in unknown if name in STATISTICS)
        end = f"; class moments of a sketch ({sketched}) come with a [sketch] section." if sketched else "."
        raise RecipeError(f"statistics lists {unknown}; known are {', '.join(listed)}{end}")
    return tuple(name for name, record in listed.items() if name in asked and record.parent not in asked)
