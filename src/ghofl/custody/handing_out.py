"""Handing the exact total out to the sites in it: to whom, after which checks, and the journal of it at the server.

A site that takes its own sums out of a total has the sum of the others. So it gets the total only under a recipe with
``privacy.hand_out``, where enough sites are left beside it and those that may collude with it and, as far as the server can
see, no class of the others has few rows. A released total is for everybody.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from ghofl import files
from ghofl.custody.disclosure import PRESETS
from ghofl.custody.history import check_recipients
from ghofl.custody.overlap import Sum
from ghofl.custody.policy import Policy
from ghofl.errors import FederationError, PrivacyError, RosterError
from ghofl.recipe import Recipe
from ghofl.secure import CORRUPTION
from ghofl.secure.graph import portion
from ghofl.shapes import Int64
from ghofl.wire.releases import copies_folder
from ghofl.wire.roster import list_names
from ghofl.wire.total import Total

FEWEST = Policy().min_difference
CLASS_ROWS: int = PRESETS["usual"]["class_rows"]
LARGEST = 256 * 2**20  # bytes of a journal


@dataclass(frozen=True, slots=True)
class HandOuts:
    """The journal of the totals that were handed out, one JSON line each; only its owner reads it.

    `copy` is a second file for the lines of one run.
    """

    path: Path
    copy: Path | None = None

    @classmethod
    def of_user(cls, recipe: Recipe, copy: Path | None = None) -> "HandOuts":
        """The one journal of a user of this machine for a recipe, whichever way totals are handed out."""
        return cls(copies_folder() / f"handed-out-{recipe.fingerprint}.jsonl", copy)

    @property
    def folder(self) -> Path:
        """What is locked while a total is handed out."""
        return self.path.parent

    def hand_out(
        self,
        total: Total,
        site: str,
        counts: Int64[np.ndarray, " classes"] | None = None,
        corruption: float = CORRUPTION,
    ) -> Total:
        """The total as this site gets it, after all checks and with a line in the journal; raises where it does not get it.

        `counts` are the rows per class in the site's own message. A total of plain messages is not handed out without
        them; in a total of secure rounds nobody knows them. The roster hides rows and hashes of the other sites.

        Guarantees
        ----------
        With what was handed out before, by this journal, no recipient finds the sum of fewer than three others than the
        share `corruption` of the sites, rounded up, that may collude with it.
        """
        if total.is_released:
            return total
        _check_inside(total, site)
        if not total.recipe.privacy.hand_out:
            raise PrivacyError(
                f"the exact total is not for {site!r}: its recipe does not say privacy.hand_out = true, so only a released one "
                "is for others. Agree on a recipe with hand_out, or release the total."
            )
        check_recipients([site], [*self._sums(), _sum_of(total)], FEWEST, portion(len(total.roster), corruption))
        if not total.recipe.privacy.secure:
            _check_classes(total, site, counts)
        self._check_differences(total)
        self._record(total, site)
        return hide_sites(total, but=site)

    def recipients(self, total: Total) -> tuple[str, ...]:
        """The sites that have had this total, in order."""
        return tuple(dict.fromkeys(line["to"] for line in self._lines() if line["total"] == total.moments.sha256))

    def _sums(self) -> list[Sum]:
        """What was handed out before, to whomever: sites may tell each other."""
        return [frozenset((name, version) for name, version in line["sites"]) for line in self._lines()]

    def _check_differences(self, total: Total) -> None:
        """Raise where a total with more, or fewer, of the same sites was handed out, and those have few rows of a class."""
        here = _sum_of(total)
        for line, there in zip(self._lines(), self._sums(), strict=True):
            if here < there or there < here:
                apart = np.abs(total.moments.counts - np.array(line["counts"], dtype=np.int64))
                if len(few := np.flatnonzero((apart > 0) & (apart < CLASS_ROWS))):
                    raise PrivacyError(
                        f"{line['to']!r} has a total that differs from this one in {len(here ^ there)} sites, which have fewer "
                        f"than {CLASS_ROWS} rows of class {total.recipe.classes[int(few[0])]!r}; the two would show their sums."
                    )

    def _record(self, total: Total, site: str) -> None:
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        facts = {"to": site, "total": total.moments.sha256, "sites": sorted(_sum_of(total))}
        new = {"time": time, "recipe": total.recipe.fingerprint, **facts, "counts": total.moments.counts.tolist()}
        for path in (self.path,) if self.copy is None else (self.path, self.copy):
            lines = self._lines(path)
            if not any((line["to"], line["total"]) == (site, new["total"]) for line in lines):
                text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in [*lines, new])
                files.write(path, text, files.PRIVATE)

    def _lines(self, path: Path | None = None) -> list[dict]:
        path = self.path if path is None else path
        if not path.exists():
            return []
        try:
            text = path.read_text(encoding="utf-8") if path.stat().st_size <= LARGEST else "damaged"
            lines = list(map(json.loads, text.splitlines()))
            for line in lines:
                _ = line["to"], line["total"], [f"{name}{version}" for name, version in line["sites"]]
                _ = np.array(line["counts"], dtype=np.int64)
            return lines
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise FederationError(
                f"{path} is damaged; it says who has which total. Restore it from a copy: without it, nothing is handed out."
            ) from None


def hide_sites(total: Total, but: str = "") -> Total:
    """The total without what its roster says about sites, except their names, `but` for one of them."""
    hidden = (e if but and e.site == but else replace(e, rows=None, sha256="", clipped=None) for e in total.roster)
    return replace(total, roster=tuple(hidden), quarantined=())


def _check_inside(total: Total, site: str) -> None:
    if not site or all(entry.site != site for entry in total.roster):
        raise RosterError(
            f"{site!r} is not in this total, which holds {list_names(total.roster)}; only its sites get it."
        )


def _sum_of(total: Total) -> Sum:
    """The total as a sum over sites; the id of a message is that of its rows."""
    return frozenset((entry.name, entry.id) for entry in total.roster)


def _check_classes(total: Total, site: str, counts: Int64[np.ndarray, " classes"] | None) -> None:
    if counts is None:
        raise PrivacyError(
            f"the total is of plain messages, and it is handed out to {site!r} only where no class of the others has few rows; "
            "give that site's message, so that this can be checked."
        )
    rest = total.moments.counts - counts
    few = np.flatnonzero((rest != 0) & (rest < CLASS_ROWS))
    if len(few):
        name, rows = total.recipe.classes[int(few[0])], int(rest[few[0]])
        raise PrivacyError(
            f"without {site!r}, class {name!r} has {rows} row{'' if rows == 1 else 's'} in the total, and {site!r} could find "
            f"their sums; it gets the total when every class of the others has none, or {CLASS_ROWS} or more."
        )
