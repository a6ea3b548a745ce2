"""Heads by name: the modules beside this one, and those that installed distributions offer by an entry point.

::

    [project.entry-points."ghofl.heads"]
    diagonal_lda = "my_heads:HEAD"
"""

import pkgutil
import re
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib import import_module
from typing import Any

from ghofl.errors import HeadError, MessageError
from ghofl.heads.head import Head

GROUP = "ghofl.heads"
BEST = "best"
SIZES = "DBZS"  # statistics, those of the smallest messages first
_NAME = re.compile(r"[a-z_]{1,40}")


class Heads(MutableMapping[str, Head]):
    """Every head by its name; those of this package unless others are given.

    Guarantees
    ----------
    A name is looked up among ghofl's own heads first, so no distribution can replace one of them; a warning names a
    distribution that tries. Only what an installed distribution names in its metadata is imported, and only when that
    head is asked for: a name in a file from elsewhere imports nothing else. Where such a head cannot be used, the
    `HeadError` names its distribution.
    """

    def __init__(self, own: Mapping[str, Head] | None = None) -> None:
        self._own = own

    @cached_property
    def _known(self) -> dict[str, Head]:
        return own_heads() if self._own is None else dict(self._own)

    def __getitem__(self, name: str) -> Head:
        if name not in self._known:
            self._known[name] = _load(name, self._offered[name])
        return self._known[name]

    def __setitem__(self, name: str, head: Head) -> None:
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


def own_heads() -> dict[str, Head]:
    """The `HEAD` of every module of this package that has one, those that need least first."""
    paths = import_module(GROUP).__path__
    modules = [import_module(f"{GROUP}.{found.name}") for found in pkgutil.iter_modules(paths)]
    heads = [module.HEAD for module in modules if hasattr(module, "HEAD")]
    return {head.name: head for head in sorted(heads, key=_size)}


def _size(head: Head) -> tuple[list[int], str]:
    return sorted(map(SIZES.find, head.needs[0]), reverse=True), head.name


def _load(name: str, entries: list[Any]) -> Head:
    """The head behind an entry point; raises `HeadError` unless it is a head of that name."""
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
    if not isinstance(found, Head):
        raise HeadError(f"{whose} is not a head: {entries[0].value} must be a ghofl.Head.")
    if found.name != name:
        raise HeadError(f"{whose} calls itself {str(found.name)[:40]!r}; the two names must be the same.")
    return found


def _distribution(entry: Any) -> str:
    return "unknown" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
