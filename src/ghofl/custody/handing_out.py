"""Handing the exact total out to the sites in it: to whom, after which checks, and the journal of it at the server.

A site that takes its own sums out of a total has the sum of the others. So it gets the total only under a recipe with
``privacy.hand_out``, where enough sites are left beside it and those that may collude with it and, as far as the server can
see, no class of the others has few rows. A released total is for everybody.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ghofl import files
from ghofl.custody.disclosure import PRESETS
from ghofl.custody.history import check_recipients
from ghofl.custody.overlap import Sum, can_drop, groups_of
from ghofl.custody.policy import Policy
from ghofl.errors import FederationError, PolicyError, PrivacyError, RosterError, errors_about
from ghofl.names import is_hex
from ghofl.recipe import Recipe
from ghofl.secure import CORRUPTION
from ghofl.secure.graph import portion
from ghofl.shapes import Int64
from ghofl.wire.message import Message
from ghofl.wire.releases import copies_folder
from ghofl.wire.roster import Entry, check_cohort, list_names
from ghofl.wire.total import Total

FEWEST = Policy().min_difference
CLASS_ROWS: int = PRESETS["usual"]["class_rows"]
LARGEST = 256 * 2**20  # bytes of a journal
Counts = Mapping[str, Int64[np.ndarray, " classes"]]  # rows per class, by the id of a message
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Share:
    """What the journal says of a site in a total: its name, the hash of its sums, and its rows per class up to `CLASS_ROWS`.

    A total of a secure round has neither hashes nor rows of its sites; there is the id of an entry instead.
    """

    name: str
    version: str
    rows: str = ""

    @classmethod
    def all_of(cls, total: Total, counts: Counts | None) -> "tuple[Share, ...]":
        """The sites of a total, where nobody knows their rows, or with those of their messages."""
        if counts is None:
            return tuple(cls(entry.name, entry.id) for entry in total.roster)
        few = {key: "".join(map(str, np.minimum(each, CLASS_ROWS).tolist())) for key, each in counts.items()}
        return tuple(cls(entry.name, entry.sha256, few[entry.id]) for entry in total.roster)

    @classmethod
    def of_values(cls, values: Any, path: Path) -> "Share":
        """A site as a line of the journal at `path` has it."""
        are_texts = isinstance(values, list) and len(values) == 3 and all(isinstance(text, str) for text in values)
        if not are_texts or not re.fullmatch(f"[0-{CLASS_ROWS}]*", values[2]):
            raise _damage(path)
        return cls(*values)


@dataclass(frozen=True, slots=True)
class HandOuts:
    """The journal of the totals that were handed out, one JSON line each; only its owner reads it."""

    path: Path

    @classmethod
    def of_user(cls, recipe: Recipe) -> "HandOuts":
        """The one journal of a user of this machine for a recipe."""
        return cls(copies_folder() / f"handed-out-{recipe.fingerprint}.jsonl")

    @property
    def folder(self) -> Path:
        """What is locked while a total is handed out."""
        return self.path.parent

    def hand_out(self, total: Total, site: str, counts: Counts | None = None, corruption: float = CORRUPTION) -> Total:
        """The total as this site gets it, after all checks and with a line in the journal; raises where it does not get it.

        `counts` are the rows per class in each message. A total of plain messages is not handed out without them; in a
        total of secure rounds nobody knows them. The roster hides rows and hashes of the other sites.

        Guarantees
        ----------
        With what was handed out before, by this journal, no recipient finds the sum of fewer than three others than the
        share `corruption` of the sites, rounded up, that may collude with it. In totals of plain messages it finds no sum of
        one to four rows of a class either, whichever these colluders are and however many totals are combined.
        """
        if total.is_released:
            return total
        _check_inside(total, site)
        if not total.recipe.privacy.hand_out:
            raise PrivacyError(
                f"the exact total is not for {site!r}: its recipe does not say privacy.hand_out = true, so only a released one "
                "is for others. Agree on a recipe with hand_out, or release the total."
            )
        check_cohort(total.recipe, len(total.roster))
        if not total.recipe.privacy.secure:
            _check_counts(total, counts)
        shares = Share.all_of(total, None if total.recipe.privacy.secure else counts)
        known = list(dict.fromkeys([*self._totals().values(), shares]))
        sums, sites = list(map(_sum_over, known)), {share.name for each in known for share in each}
        colluders = portion(len(sites), corruption)
        check_recipients([site], sums, FEWEST, colluders)
        if not total.recipe.privacy.secure:
            check_class_rows(known, site, colluders, total.recipe.classes)
        self._record(total, site, shares)
        return _hide_sites(total, but=site)

    def _totals(self) -> dict[str, tuple[Share, ...]]:
        """What was handed out before, to whomever: sites may tell each other."""
        return {line["total"]: line["sites"] for line in reversed(_read(self.path)) if line["sites"]}

    def _record(self, total: Total, site: str, shares: tuple[Share, ...]) -> None:
        time, digest = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), total.moments.sha256
        lines = _read(self.path)
        if any((line["to"], line["total"]) == (site, digest) for line in lines):
            return
        new: Line = {"time": time, "recipe": total.recipe.fingerprint, "to": site, "total": digest}
        if all(line["total"] != digest for line in lines):  # its later lines do not repeat who is in it
            new["sites"] = [[share.name, share.version, share.rows] for share in shares]
        before = self.path.read_text(encoding="utf-8").removesuffix("\n") + "\n" if lines else ""
        files.write(self.path, before + json.dumps(new, ensure_ascii=False) + "\n", files.PRIVATE)


def counts_in(total: Total, messages: Iterable[Path]) -> dict[str, Int64[np.ndarray, " classes"]]:
    """The rows per class of messages in files, by their ids; raises for one that is not in the total."""
    entries, counts = {entry.id: entry for entry in total.roster}, {}
    for path in messages:
        with errors_about(path):
            message = Message.load(path, total.recipe)
            if entries.get(message.id) != Entry.of(message):
                raise RosterError(
                    f"message {message.name!r} is not in this total, which holds {list_names(total.roster)}; give the very "
                    "messages that were added up."
                )
        counts[message.id] = message.moments.counts
    return counts


def _read(path: Path) -> list[Line]:
    """The lines of a journal; the first about a total has its sites."""
    if not path.exists():
        return []
    try:
        text = path.read_bytes() if path.stat().st_size <= LARGEST else b"damaged"
        lines, seen = [], set()
        for line in map(json.loads, text.decode().removesuffix("\n").split("\n")):
            sites = tuple(Share.of_values(values, path) for values in line.get("sites", ()))
            if (
                not isinstance(line["to"], str)
                or not is_hex(line["total"], 64)
                or bool(sites) == (line["total"] in seen)
            ):
                raise _damage(path)
            seen.add(line["total"])
            lines.append({**line, "sites": sites})
        return lines
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _damage(path) from None


def _damage(path: Path) -> FederationError:
    return FederationError(
        f"{path} is damaged; it says who has which total. Restore it from a copy: without it, nothing is handed out."
    )


def _hide_sites(total: Total, but: str) -> Total:
    """The total without what its roster says about sites, except their names, `but` for one of them."""
    hidden = (e if e.site == but else replace(e, rows=None, sha256="", clipped=None) for e in total.roster)
    return replace(total, roster=tuple(hidden))


def _check_inside(total: Total, site: str) -> None:
    if not site or all(entry.site != site for entry in total.roster):
        raise RosterError(
            f"{site!r} is not in this total, which holds {list_names(total.roster)}; only its sites get it."
        )


def _check_counts(total: Total, counts: Counts | None) -> None:
    """Raise unless the rows per class of every message in a total of plain ones are known, and all have names."""
    if nameless := next((entry for entry in total.roster if not entry.site), None):
        raise RosterError(
            f"message {nameless.name}… in the total has no site's name, so nobody could tell whether its rows changed between "
            "two totals; hand totals out of messages with names."
        )
    if missing := [entry for entry in total.roster if counts is None or entry.id not in counts]:
        raise PrivacyError(
            f"the total is of plain messages, and it is handed out only where no class of other sites has few rows; give all of "
            f"its messages, so that this can be checked: {list_names(missing)} did not come."
        )


def _sum_over(shares: Iterable[Share]) -> Sum:
    return frozenset((share.name, share.version) for share in shares)


def check_class_rows(known: list[tuple[Share, ...]], site: str, colluders: int, classes: tuple[str, ...]) -> None:
    """Raise where a site, with colluders and some totals of plain messages, could find the sum of few rows of a class.

    Of a group of sites that no combination of the totals tells apart, p others than the recipient have rows of a class. When
    any k of them take theirs out, the fewest rows that can be left are those of the max(1, p − k) that have least. Where
    these are few, no combination may hold the group without another one that has enough and cannot vanish (p > k).
    """
    rows = _rows_by_site(known)
    groups = groups_of([frozenset((share.name, "") for share in each) for each in known])
    least, holders = (np.empty((len(groups), len(classes)), dtype=np.int64) for _ in range(2))
    for i, names in enumerate(groups.values()):
        counts = np.array([rows[name] for name in sorted(names - {site})], dtype=np.int64).reshape(-1, len(classes))
        holders[i] = (counts > 0).sum(axis=0)
        some = np.cumsum(np.sort(np.where(counts > 0, counts, CLASS_ROWS), axis=0), axis=0)
        at = np.maximum(holders[i] - colluders, 1) - 1
        least[i] = some[at, np.arange(len(classes))] if len(some) else CLASS_ROWS
    marks, checked = list(groups), {}
    for c in np.flatnonzero((least < CLASS_ROWS).any(axis=0)).tolist():
        few, firm = least[:, c] < CLASS_ROWS, (least[:, c] >= CLASS_ROWS) & (holders[:, c] > colluders)
        key = (few.tobytes(), firm.tobytes())
        if key not in checked:
            checked[key] = can_drop(*([marks[i] for i in np.flatnonzero(which)] for which in (firm, few)))
        if checked[key]:
            left = int(least[few, c].min())
            raise PrivacyError(
                f"less the sums of {site!r} and {colluders} that may collude with it, class {classes[c]!r} could have {left} "
                f"row{'' if left == 1 else 's'} in {'the total' if len(known) == 1 else 'a combination of totals'}, and they "
                f"could find their sums; it gets the total when every class has none left, or {CLASS_ROWS} or more."
            )


def _rows_by_site(known: list[tuple[Share, ...]]) -> dict[str, list[int]]:
    """The rows per class of every site, up to `CLASS_ROWS`; raises where a site's rows changed between two totals."""
    found: dict[str, Share] = {}
    for share in (share for each in known for share in each):
        if found.setdefault(share.name, share) != share:
            raise PolicyError(
                f"a total was handed out with other rows of {share.name!r}, and the difference of the two would show the sums of "
                "those that changed, however few; hand out no other than the first, or a released one."
            )
    return {name: list(map(int, share.rows)) for name, share in found.items()}
