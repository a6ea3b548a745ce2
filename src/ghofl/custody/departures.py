"""What left a site, one record each, as its ledger and its folder say it."""

from collections.abc import Iterator
from dataclasses import dataclass

from ghofl.custody.budget import Release
from ghofl.custody.custody import kept_parcel
from ghofl.custody.history import History
from ghofl.custody.ledger import Ledger
from ghofl.custody.storage import Storage
from ghofl.errors import MessageError

MESSAGE, VECTOR, REPORT = "message", "masked vector", "report on a head"
_KINDS = {"sent": MESSAGE, "masked": VECTOR, "reported": REPORT}


@dataclass(frozen=True, slots=True)
class Departure:
    """Something about a site's rows that left it.

    `bytes` are those of the answer that carried it, None where none did: people send reports as files. `answers` is
    how often it was given, the same bytes each time. `sites` are those of a secure round, and `survivors` those that the
    sum is known of, once this site has revealed. `reveals` are the sentences that were shown about it before it left; empty
    where something else was packed since.
    """

    line: int
    time: str
    kind: str
    key: str
    recipe: str
    release: Release
    rows: int | None = None
    bytes: int | None = None
    answers: int = 0
    sha256: str = ""
    sites: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    reveals: tuple[str, ...] = ()


def departures(ledger: Ledger, history: History, storage: Storage) -> Iterator[Departure]:
    """Everything that left, in the order of the ledger."""
    revealed, carried = {reveal.round: reveal.survivors for reveal in history.reveals}, _bytes_carried(ledger)
    for line, release in zip(ledger.of(*_KINDS), history.releases, strict=True):
        kind, facts, sizes = _KINDS[line.what], line.facts, carried.get(line.number, [])
        parcel_hash, sentences = _shown(storage, release)
        is_known = facts.get("sha256", parcel_hash) == parcel_hash and kind != REPORT
        yield Departure(
            line.number, line.time, kind, release.key, release.recipe, release, facts.get("rows"),
            max(sizes, default=None), len(sizes), facts.get("sha256", ""), tuple(facts.get("cohort", ())),
            revealed.get(release.key, ()), sentences if is_known else (),
        )  # fmt: skip


def _bytes_carried(ledger: Ledger) -> dict[int, list[int]]:
    """The bytes of the answers that gave something away, by the number of the line that says it is leaving."""
    found: dict[int, list[int]] = {}
    latest: dict[tuple[str, str], int] = {}
    for line in ledger.lines:
        facts = line.facts
        if line.what == "sent":
            latest["message", facts["recipe"]] = line.number
        elif line.what == "masked":
            latest["mask", facts["round"]] = line.number
        elif line.what == "answered" and facts.get("bytes"):
            action = facts.get("action", "")
            about = facts.get("recipe" if action == "message" else "round", "")
            if (action, about) in latest:
                found.setdefault(latest[action, about], []).append(facts["bytes"])
    return found


def _shown(storage: Storage, release: Release) -> tuple[str, tuple[str, ...]]:
    """The hash and the sentences of what is packed under a recipe, if it was made of the same rows."""
    try:
        parcel = kept_parcel(storage, release.recipe)
    except MessageError:  # damaged since; the ledger's own facts still hold
        return "", ()
    return ("", ()) if parcel is None or parcel.data != release.data else (parcel.sha256, parcel.sentences)
