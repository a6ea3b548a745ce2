"""Heads by name: ghofl's own, and those that installed distributions offer by an entry point.

::

    [project.entry-points."ghofl.heads"]
    diagonal_lda = "my_heads:DiagonalLDA"
"""

import re
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ghofl.errors import HeadError, MessageError
from ghofl.heads.base import Head

GROUP = "ghofl.heads"
BEST = "best"
if TYPE_CHECKING:
    Kind = type[Head]
else:  # beartype cannot check a class against a protocol
    Kind = type
_NAME = re.compile(r"[a-z_]{1,40}")


class Heads(MutableMapping[str, Kind]):
    """The class of every head by its name.

    Guarantees
    ----------
    A name is looked up among ghofl's own heads first, so no distribution can replace one of them; a warning names a
    distribution that tries. Only what an installed distribution names in its metadata is imported, and only when that
    head is asked for: a name in a file from elsewhere imports nothing else. Where such a head cannot be used, the
    `HeadError` names its distribution.
    """

    def __init__(self, own: Mapping[str, Kind]) -> None:
        self._known = dict(own)

    def __getitem__(self, name: str) -> Kind:
        if name not in self._known:
            self._known[name] = _load(name, self._offered[name])
        return self._known[name]

    def __setitem__(self, name: str, head: Kind) -> None:
        self._known[name] = head

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._offered

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._known, *self._offered)))

    def __len__(self) -> int:
        return len(self._known.keys() | self._offered.keys())

    def check_usable(self, name: str) -> None:
        """Raise `MessageError` where this installation cannot use the head that a file names; the file is not damaged."""
        if name not in self:
            raise MessageError(
                f"head {name[:40]!r} is unknown; known here are {', '.join(self)}; for a head of another distribution, "
                "install that distribution."
            )
        try:
            self[name]
        except HeadError as error:
            raise MessageError(str(error)) from error

    @cached_property
    def _offered(self) -> dict[str, list[Any]]:
        """The entry points of other distributions by name; nothing of them is imported yet."""
        from importlib.metadata import entry_points  # importing it takes as long as importing all heads

        offered: dict[str, list[Any]] = {}
        for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, _distribution(entry))):
            if entry.name in self._known or entry.name == BEST:
                warnings.warn(
                    f"distribution {_distribution(entry)} offers a head {entry.name!r}, and ghofl has one of that name, "
                    "which is used; give the other one another name.",
                    stacklevel=2,
                )
            else:
                offered.setdefault(entry.name, []).append(entry)
        return offered


def _load(name: str, entries: list[Any]) -> Kind:
    """The class behind an entry point; raises `HeadError` unless it is a head of that name."""
    by = " and ".join(map(_distribution, entries))
    if len(entries) > 1:
        raise HeadError(f"head {name[:40]!r} is offered by distributions {by}; uninstall all but one of them.")
    whose = f"head {name[:40]!r} of distribution {by}"
    if not _NAME.fullmatch(name):
        raise HeadError(f"{whose} cannot be asked for: a name is up to 40 small letters and underscores.")
    try:
        found = entries[0].load()
    except Exception as error:  # whatever another distribution's import raises
        raise HeadError(f"{whose} cannot be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and Head in found.__mro__[1:]):
        raise HeadError(f"{whose} is not a head: {entries[0].value} must be a class with ghofl.Head as its base.")
    if found.name != name:
        raise HeadError(f"{whose} calls itself {str(found.name)[:40]!r}; the two names must be the same.")
    return found


def _distribution(entry: Any) -> str:
    return "unknown" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
