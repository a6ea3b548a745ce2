"""What sites know of earlier sums, told to each other before a round: no one of them may have been in all.

In {1,2,3,4}, {1,2,5,6} and {3,4,5,6} every site is in two of three sums, and none sees that the three show {1,2}. So each
site that joins a round says which survivor lists it signed, and signs that together with its key of the round; peers who
check the signature know that the server left nothing out.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ghofl.errors import PolicyError
from ghofl.site.overlap import Sum

MOST_BYTES = 32 * 2**10  # of what one site tells


@dataclass(frozen=True, slots=True)
class Known:
    """The sums that one site knows of: round, survivors, and the version of its own rows, counted from 0.

    Of a round that it left before a survivor list came, it knows its version and no survivors. `now` is its version in
    the round that it joins.
    """

    now: int = 0
    sums: tuple[tuple[str, tuple[str, ...], int], ...] = ()

    def to_text(self) -> str:
        """As it travels; nothing where there is nothing to tell."""
        if not self.sums:
            return ""
        text = json.dumps([self.now, self.sums], ensure_ascii=False, separators=(",", ":"))
        if len(text.encode()) > MOST_BYTES:
            raise PolicyError(
                f"this site knows of {len(self.sums)} sums, too many to tell its peers before another round; a new folder "
                "for new rows begins at none."
            )
        return text

    @classmethod
    def from_text(cls, text: object) -> "Known":
        """What another site told, which may be anything."""
        if text == "":
            return cls()
        try:
            if not isinstance(text, str) or len(text.encode()) > MOST_BYTES:
                raise ValueError
            now, sums = json.loads(text)
            told = tuple((str(of), tuple(map(str, names)), version) for of, names, version in sums)
            if not all(type(number) is int for number in (now, *(version for *_, version in told))):
                raise ValueError
        except (ValueError, TypeError, RecursionError):
            raise PolicyError("what a participant tells of earlier sums is damaged; nothing is unmasked.") from None
        return cls(now, told)


def sums_of(told: Mapping[str, Known]) -> list[Sum]:
    """All sums that some sites know of; a round that two of them describe differently counts as two."""
    versions = {(name, of): version for name, known in told.items() for of, _, version in known.sums}
    found = dict.fromkeys((of, names) for known in told.values() for of, names, _ in known.sums if names)
    return [frozenset(_part(name, of, told, versions) for name in names) for of, names in found]


def sum_over(names: Iterable[str], told: Mapping[str, Known]) -> Sum:
    """The sum of a new round over these sites, with their rows as they are now."""
    return frozenset((name, str(told[name].now) if name in told else "") for name in names)


def _part(name: str, of: str, told: Mapping[str, Known], versions: Mapping[tuple[str, str], int]) -> tuple[str, str]:
    if name not in told:
        return name, ""
    return name, str(versions.get((name, of), told[name].now))
