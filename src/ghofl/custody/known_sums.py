"""What sites know of earlier sums, and tell each other before a round, because no site may have been in all of them.

In {1,2,3,4}, {1,2,5,6} and {3,4,5,6} every site is in two of three sums, and none sees that the three show {1,2}. So each
site that joins a round says which survivor lists it signed, and which it was told of in earlier rounds, and signs that
statement with its key of the round; peers who check the signature know that the server left nothing out.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ghofl.custody.overlap import Sum
from ghofl.errors import PolicyError
from ghofl.names import is_site_name

MOST_BYTES = 32 * 2**10  # of one site's statement


@dataclass(frozen=True, slots=True)
class Known:
    """The sums that one site knows of: round, survivors, and the version of its own rows, counted from 0.

    For a round that it left before a survivor list came, it knows its version but no survivors. `now` is its version in
    the round that it joins.
    """

    now: int = 0
    sums: tuple[tuple[str, tuple[str, ...], int], ...] = ()

    def to_text(self) -> str:
        """The text that travels; empty where there is nothing to tell."""
        if not self.sums:
            return ""
        text = json.dumps([self.now, self.sums], ensure_ascii=False, separators=(",", ":"))
        if len(text.encode()) > MOST_BYTES:
            raise PolicyError(
                f"this site knows of {len(self.sums)} sums, too many to tell its peers before another round; start a new "
                "folder with new rows."
            )
        return text

    @classmethod
    def from_text(cls, text: object) -> "Known":
        """What another site says it knows; the text may be anything."""
        if text == "":
            return cls()
        damaged = PolicyError("what a participant says about earlier sums is damaged; nothing is revealed.")
        if not isinstance(text, str) or len(text) > MOST_BYTES:
            raise damaged
        try:
            now, sums = json.loads(text)
            known = tuple((str(of), tuple(map(str, names)), version) for of, names, version in sums)
        except (ValueError, TypeError, RecursionError):
            raise damaged from None
        if not all(type(number) is int for number in (now, *(version for *_, version in known))):
            raise damaged
        if not all(all(map(is_site_name, (of, *names))) for of, names, _ in known):
            raise damaged  # rounds and sites are named in refusals and logs
        return cls(now, known)


def sums_of(by_site: Mapping[str, Known]) -> list[Sum]:
    """All sums that some sites know of; a round that two of them describe differently counts as two."""
    versions = {(name, of): version for name, known in by_site.items() for of, _, version in known.sums}
    found = dict.fromkeys((of, names) for known in by_site.values() for of, names, _ in known.sums if names)
    return [
        frozenset((name, str(versions.get((name, of), by_site[name].now)) if name in by_site else "") for name in names)
        for of, names in found
    ]


def told_by(by_site: Mapping[str, Known]) -> list[tuple[str, tuple[str, ...]]]:
    """The rounds and survivors of all sums that some sites know of."""
    return sorted({(of, tuple(sorted(names))) for known in by_site.values() for of, names, _ in known.sums if names})


def sum_over(names: Iterable[str], by_site: Mapping[str, Known]) -> Sum:
    """The sum of a new round over these sites, with their rows as they are now."""
    return frozenset((name, str(by_site[name].now) if name in by_site else "") for name in names)
