"""What sums over overlapping groups of sites reveal about fewer sites than any one of them covers.

A sum over sites is a vector of zeros and ones, and whoever knows several sums knows every combination of them::

    {1,2,3,4,5} − {1,2,3,4}               =  {5}
    {1,2,3,4} + {1,2,5,6} − {3,4,5,6}     =  2 · {1,2}

Multiples reveal as much as the sum itself, so the question is about the row space over the rational numbers: does it hold
a vector that is zero everywhere but at a few sites? With the matrix reduced to its pivots, a vector inside the sites T
exists if and only if the rows whose pivots lie in T depend on each other outside T, so every small T is checked, exactly.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from fractions import Fraction
from itertools import combinations

from ghofl.errors import PolicyError

SiteRows = tuple[str, str]  # a site, and the version of its rows where that is known
Sum = frozenset[SiteRows]
MOST_SUMS = 64
MOST_LOOKS = 100_000
MOST_CHANGED, MOST_TRIES, MOST_SITES, FEW_LOOKS = 3, 100, 64, 2500  # of a search for another cohort


def find_isolated(sums: Sequence[Sum], fewest: int, most_looks: int = MOST_LOOKS) -> tuple[str, ...]:
    """Fewer than `fewest` sites whose own sum follows from some sums; empty when no combination shows so few.

    A site whose rows changed between two sums counts as two: their difference is what changed at that site.

    Guarantees
    ----------
    Exact: every group of sites is checked in rational arithmetic. Where there are too many, `PolicyError` is raised.

    Examples
    --------
    >>> def over(*sites):
    ...     return frozenset((site, "") for site in sites)
    >>> find_isolated([over("1", "2", "3", "4", "5"), over("1", "2", "3", "4")], fewest=3)
    ('5',)
    >>> find_isolated([over(*"1234"), over(*"1256"), over(*"3456")], fewest=3)
    ('1', '2')
    >>> find_isolated([over(*"1234"), over(*"1256"), over(*"3456")], fewest=2)
    ()
    """
    distinct = list(dict.fromkeys(sums))
    if len(distinct) > MOST_SUMS:
        raise PolicyError(
            f"this site knows of {len(distinct)} different sums, and can check at most {MOST_SUMS} for what they reveal; "
            "start a new folder with new rows."
        )
    columns = _columns(distinct)
    rows, pivots = _reduce([[Fraction(mark) for mark in row] for row in zip(*columns, strict=True)])
    groups = [frozenset(site for site, _ in column) for column in columns.values()]
    at = {pivot: row for row, pivot in zip(rows, pivots, strict=True)}
    for looks, inside in enumerate(_small(groups, fewest)):
        if looks >= most_looks:
            raise PolicyError(
                f"this site knows of {len(distinct)} sums over {len(groups)} groups of sites, too many to check for what "
                "they reveal; start a new folder with new rows."
            )
        held = [at[i] for i in inside if i in at]
        if held and not _are_independent(held, inside):
            return tuple(sorted(frozenset().union(*(groups[i] for i in inside))))
    return ()


def find_shown_to(
    recipients: Collection[str], sums: Sequence[Sum], fewest: int, colluders: int
) -> tuple[str, tuple[str, ...]]:
    """A recipient of some sums that could find one of fewer than `fewest` others, and the sites of that sum.

    It knows its own sums, and those of up to `colluders` other sites that share theirs with it. What it cannot take out
    is a sum over sites that are neither, so `fewest` and `colluders` sites must be left beside it. Empty where none could.

    >>> five = frozenset((site, "") for site in "12345")
    >>> find_shown_to("12345", [five], fewest=3, colluders=1), find_shown_to("12345", [five], fewest=3, colluders=2)
    (('', ()), ('1', ('2', '3', '4', '5')))
    """
    alike: dict[tuple[tuple[int, str], ...], str] = {}
    for name in sorted(recipients):
        place = ((i, rows) for i, each in enumerate(sums) for site, rows in sorted(each) if site == name)
        alike.setdefault(tuple(place), name)
    for name in alike.values():
        rest = [frozenset(one for one in each if one[0] != name) for each in sums]
        if shown := find_isolated([each for each in rest if each], fewest + colluders):
            return name, shown
    return "", ()


def groups_of(sums: Sequence[Sum]) -> dict[tuple[int, ...], frozenset[str]]:
    """The sites of some sums, by which of the sums they are in: no combination of the sums tells those of a group apart.

    >>> two = [frozenset((site, "") for site in some) for some in ("123", "1234")]
    >>> {marks: "".join(sorted(sites)) for marks, sites in groups_of(two).items()}
    {(1, 1): '123', (0, 1): '4'}
    """
    return {marks: frozenset(site for site, _ in column) for marks, column in _columns(sums).items()}


def can_drop(groups: Collection[tuple[int, ...]], but: Collection[tuple[int, ...]]) -> bool:
    """Whether a combination of sums is zero on all of these `groups_of` sites, and is not on one of the others.

    >>> can_drop([(1, 1)], [(0, 1)]), can_drop([(1, 1), (0, 1)], [(1, 0)]), can_drop([(1, 1, 0), (0, 1, 1)], [(1, 0, 1)])
    (True, False, True)
    """
    return _rank(groups) < _rank([*groups, *but])


def _rank(rows: Collection[tuple[int, ...]]) -> int:
    return len(_reduce([[Fraction(mark) for mark in row] for row in rows])[1])


def without_versions(sums: Sequence[Sum]) -> list[Sum]:
    """The sums by the names of their sites alone, as if no site's rows had ever changed.

    Rows that another recipe sees with other eyes have another version, but what a sum says about them may be the same.
    """
    return [frozenset((site, "") for site, _ in each) for each in sums]


def nearest_cohort(
    cohort: Collection[str], sites: Collection[str], first: Collection[str], passes: Callable[[frozenset[str]], bool]
) -> frozenset[str] | None:
    """The cohort with the fewest changes that passes: more of the `sites`, or fewer; None where the search finds none.

    Of as many changes, those of the sites that are named `first` are tried first, and more sites before fewer.

    >>> nearest_cohort("123", "123456", "5", lambda names: {"5", "6"} <= names) == frozenset("12356")
    True
    """
    here, every = frozenset(cohort), sorted({*cohort, *sites})
    if len(every) > MOST_SITES:
        return None
    changes = [frozenset(some) for size in range(1, MOST_CHANGED + 1) for some in combinations(every, size)]
    changes.sort(key=lambda some: (len(some), len(some.difference(first)), len(some & here)))
    return next((here ^ some for some in changes[:MOST_TRIES] if passes(here ^ some)), None)


def _columns(sums: Sequence[Sum]) -> dict[tuple[int, ...], list[SiteRows]]:
    """Sites by the sums they are in: those that are always together cannot be separated, and are one column."""
    columns: dict[tuple[int, ...], list[SiteRows]] = {}
    for one in sorted(frozenset().union(*sums)):
        columns.setdefault(tuple(int(one in each) for each in sums), []).append(one)
    return columns


def _small(groups: Sequence[frozenset[str]], fewest: int) -> Iterator[frozenset[int]]:
    """Every set of groups that holds fewer than `fewest` sites together, small ones first."""
    smaller: list[tuple[tuple[int, ...], frozenset[str]]] = [((), frozenset())]
    while smaller:
        found = []
        for chosen, sites in smaller:
            for i in range(chosen[-1] + 1 if chosen else 0, len(groups)):
                if len(sites | groups[i]) < fewest:
                    found.append(((*chosen, i), sites | groups[i]))
                    yield frozenset(found[-1][0])
        smaller = found


def _are_independent(rows: Sequence[Sequence[Fraction]], inside: frozenset[int]) -> bool:
    """Whether some rows, restricted to the columns that are not `inside`, are linearly independent."""
    basis: list[tuple[int, list[Fraction]]] = []
    for i in range(len(rows[0])):
        if i in inside:
            continue
        column = [row[i] for row in rows]
        for place, other in basis:
            if factor := column[place]:
                column = [value - factor * known for value, known in zip(column, other, strict=True)]
        place = next((place for place, value in enumerate(column) if value), None)
        if place is not None:
            basis.append((place, [value / column[place] for value in column]))
            if len(basis) == len(rows):
                return True
    return False


def _reduce(rows: list[list[Fraction]]) -> tuple[list[list[Fraction]], list[int]]:
    """A basis of the row space in reduced echelon form, and the column of each row's pivot."""
    rows, pivots, done = [list(row) for row in rows], [], 0
    for column in range(len(rows[0]) if rows else 0):
        found = next((i for i in range(done, len(rows)) if rows[i][column]), None)
        if found is None:
            continue
        rows[done], rows[found] = rows[found], rows[done]
        first = rows[done][column]
        rows[done] = [value / first for value in rows[done]]
        for i, row in enumerate(rows):
            if i != done and (factor := row[column]):
                rows[i] = [value - factor * other for value, other in zip(row, rows[done], strict=True)]
        pivots.append(column)
        done += 1
    return rows[:done], pivots
