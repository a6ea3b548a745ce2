"""A site's ledger: what it was asked, what it answered and what it refused, one line each; no line is ever removed.

A line is JSON with its number, the time, what happened, and the sha256 of the line before it, so that a line cannot
be changed, moved or left out without changing all that follow. `ledger.head` beside it names the last line, so that a
ledger that lost its end, or all of it, is recognised too. A line is on disk before the thing it records leaves, and
before any other file that shows it: so a ledger without the lines of those files has lost them, too.

::

    ledger.jsonl     {"number": 7, "time": "2025-05-02T09:30:12Z", "what": "sent", …, "before": "9c1f…"}
    ledger.head      7 5be0…
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ghofl.custody.storage import Storage
from ghofl.errors import SiteError

LEDGER, HEAD, USED = "ledger.jsonl", "ledger.head", "used-rounds"
START = "0" * 64  # stands for the line before the first
OWN_KEYS = ("number", "time", "what", "before")
LONGEST = 2**24  # bytes of a line
MOST_CHECKED = 4
_NO_HEAD = f"{HEAD} is missing, and it names the last of the lines; some may be missing, too"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened at a site; `sha256` is that of the line's bytes, which the next line repeats."""

    number: int
    time: str
    what: str
    before: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The line as it is written."""
        return {"number": self.number, "time": self.time, "what": self.what, **self.facts, "before": self.before}


@dataclass(frozen=True, slots=True)
class Ledger:
    """The lines of a site's folder; `torn` is how many bytes of a last line were half-written when a process died.

    Guarantees
    ----------
    `load` returns lines that were all checked against each other and against the head, or raises `SiteError`.
    """

    lines: tuple[Line, ...] = ()
    torn: int = 0

    @property
    def head(self) -> str:
        """The sha256 of the last line; noted elsewhere, it shows later whether anything before it was changed."""
        return self.lines[-1].sha256 if self.lines else START

    @property
    def content(self) -> bytes:
        """The lines as the file has them, without one that was torn."""
        return b"".join(_raw(line) + b"\n" for line in self.lines)

    @classmethod
    def load(cls, storage: Storage) -> "Ledger":
        """The ledger of a site's folder; raises where it is damaged or was taken away."""
        content, head = storage.get(LEDGER), storage.get(HEAD)
        ledger = cls.from_bytes(content or b"")
        if head is None and len(ledger.lines) > 1:  # after the first line, it is there before the second one
            raise _damaged(_NO_HEAD)
        if head is not None:
            number, _, sha256 = head.decode(errors="replace").strip().partition(" ")
            at = int(number) if number.isdecimal() and len(number) < 12 else 0
            if not 0 < at <= len(ledger.lines) or ledger.lines[at - 1].sha256 != sha256:
                raise _damaged(
                    f"line {number[:12]} is not the one that {HEAD} names; lines are missing or were changed"
                )
        _check_complete(ledger, storage)
        if head is None and any(True for _ in _shown_by(storage)):  # and before any other file
            raise _damaged(_NO_HEAD)
        return ledger

    @classmethod
    def from_bytes(cls, content: bytes) -> "Ledger":
        """The ledger of a file, every line checked against the one before it."""
        whole, end, torn = content.rpartition(b"\n")
        whole += end
        start, lines = next(((kept, known) for kept, known in _CHECKED if whole.startswith(kept)), (b"", ()))
        found = list(lines)
        for raw in whole[len(start) :].split(b"\n")[:-1]:
            found.append(_line(raw, len(found) + 1, found[-1].sha256 if found else START))
        if len(whole) > len(start):
            _CHECKED.insert(0, (whole, tuple(found)))
            del _CHECKED[MOST_CHECKED:]
        return cls(tuple(found), len(torn))

    def write(self, storage: Storage, what: str, **facts: Any) -> "Ledger":
        """The ledger with one more line, which is on disk when this returns."""
        if self.torn:  # a process died while writing the line, so what it records never left
            storage.put(LEDGER, self.content)
            return Ledger(self.lines).write(storage, "torn", bytes=self.torn).write(storage, what, **facts)
        assert not set(facts) & set(OWN_KEYS)
        if self.lines and storage.get(HEAD) is None:  # it could not be written after the first line
            self._name_last(storage)
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = Line(len(self.lines) + 1, time, what, self.head, _plain(facts))
        raw = _raw(line)
        if len(raw) > LONGEST:
            raise SiteError(
                f"a line of the ledger would have {len(raw):,} bytes, and {LONGEST:,} are allowed; use shorter names."
            )
        storage.append(LEDGER, raw + b"\n")
        done = Ledger((*self.lines, replace(line, sha256=hashlib.sha256(raw).hexdigest())))
        done._name_last(storage)
        return done

    def _name_last(self, storage: Storage) -> None:
        storage.put(HEAD, f"{len(self.lines)} {self.head}\n".encode())

    def of(self, *kinds: str) -> Iterator[Line]:
        """The lines of some kinds, in order."""
        return (line for line in self.lines if line.what in kinds)


_CHECKED: list[tuple[bytes, tuple[Line, ...]]] = []  # ledgers by their bytes, so that only new lines are checked


def _plain(value: Any) -> Any:
    """A value as JSON returns it: tuples are lists, and texts have no unpaired surrogates."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _raw(line: Line) -> bytes:
    return json.dumps(line.to_dict(), ensure_ascii=False, allow_nan=False).encode()


def _line(raw: bytes, number: int, before: str) -> Line:
    try:
        values = json.loads(raw)
        facts = {key: value for key, value in values.items() if key not in OWN_KEYS}
        line = Line(values["number"], values["time"], values["what"], values["before"], facts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _damaged(f"line {number} is not a line of a ledger") from None
    if (line.number, line.before) != (number, before) or not isinstance(line.what, str):
        raise _damaged(f"line {number} does not follow from the one before it; a line was changed, moved or left out")
    return Line(line.number, line.time, line.what, line.before, facts, hashlib.sha256(raw).hexdigest())


def _damaged(why: str) -> SiteError:
    return SiteError(
        f"{LEDGER} in the site's folder is damaged: {why}. It says what has left this site, and without it nothing "
        "leaves. Restore it from a copy; 'ghofl ledger' checks it. Where there is no copy, nobody knows what has left: "
        "start a new folder, with other rows."
    )


def _check_complete(ledger: Ledger, storage: Storage) -> None:
    """Raise where another file of the folder shows something that the ledger has no line of."""
    for kind, key, value, what in _shown_by(storage):
        if all(line.facts.get(key) != value for line in ledger.of(kind)):
            raise _damaged(f"{'lines are' if ledger.lines else 'it is'} missing, and this site {what}")


def _shown_by(storage: Storage) -> Iterator[tuple[str, str, str, str]]:
    """What files beside the ledger show: the kind of line, one of its fields with its value, and the act in words."""
    for name in sorted(storage.names("round"), reverse=True):
        _, round_id, folder, *rest = [*name.split("/"), "", ""]
        if folder == "reply" and rest[0] in _REPLIES:
            kind, what = _REPLIES[rest[0]]
            yield kind, "round", round_id, f"{what} round {round_id[:8]}…"
    for round_id in (storage.get(USED) or b"").decode(errors="replace").split():
        yield "joined", "round", round_id, f"joined round {round_id[:8]}…"
    for name in storage.names("outbox"):
        recipe, _, kind = name.partition("/")[2].partition(".")
        if kind == "sent":
            yield "sent", "recipe", recipe, f"sent its message under recipe {recipe[:12]}…"
        else:
            yield "packed", "recipe", recipe, f"packed what leaves under recipe {recipe[:12]}…"


_REPLIES = {
    "reveal": ("revealed", "revealed in"),
    "endorse": ("endorsed", "signed a survivor list of"),
    "mask": ("masked", "sent its masked vector in"),
}
