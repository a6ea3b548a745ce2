"""The folder of one federation at the server: messages, the total, heads and report, and the journal of a round.

::

    recipe.toml           the agreed recipe
    messages/ID.ghofl     every accepted message, as it came: the journal of the plain mode
    removed/ID.ghofl      messages that were taken out again; ID.json where the message was forgotten too
    incoming/             answers that are being checked
    round/                a secure round in progress, so that it can continue: see `federation.round`
    total.ghofl           the exact total
    released.ghofl        the total as others may see it, where the recipe has noise or minimum counts
    heads/NAME.ghofl      classifiers of that total
    old-heads/NAME.ghofl  classifiers of earlier totals
    releases.jsonl        every noisy total that was drawn here, and what it promises
    roster.json  guarantee.json  report.json  report.md
    refused.json          why the last run was refused before it began; the other files are of the run before
    .running              a server is at work, or died at work

Only its owner can read any of it: sites trusted this server with their messages, and the difference of two exact totals
may be the message of one site.
"""

import json
import logging
import secrets
import shutil
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from ghofl import files
from ghofl.errors import BusyError, FederationError, GhoflError
from ghofl.files import FileBytes
from ghofl.recipe import Recipe
from ghofl.wire.envelope import peek
from ghofl.wire.releases import Releases, copies_folder
from ghofl.wire.total import Total

log = logging.getLogger("flwr")
TOTAL, RELEASED, INCOMING = "total.ghofl", "released.ghofl", "incoming"
RELEASES = "releases.jsonl"
REPORT, PAGE, HTML, REFUSED, RUNNING = "report.json", "report.md", "report.html", "refused.json", ".running"
ROSTER, GUARANTEE = "roster.json", "guarantee.json"
FOLDERS = ("messages", "removed", "heads", "old-heads")
MOMENT = 0.2  # seconds for which a process that only checks for a server may hold the lock


class RunFolder:
    """The folder of a federation, open for one server at a time.

    Guarantees
    ----------
    A message is in the folder before it is counted, and messages in the folder are counted when it is opened again:
    a server that is killed at any moment continues without asking those sites again, and counts none twice.
    """

    def __init__(self, path: str | Path, recipe: Recipe) -> None:
        self.path, self.recipe = files.own_folder(path), recipe
        self._lock = ExitStack()
        try:
            self._lock.enter_context(files.lock(self.path, MOMENT))
        except BusyError:
            raise FederationError(
                f"another server is at work in {path}; wait for it, or give another folder."
            ) from None
        try:
            self._check_agreed()
            for name in FOLDERS:
                files.private_folder(self.path / name)
            shutil.rmtree(self.path / INCOMING, ignore_errors=True)
            files.private_folder(self.path / INCOMING)
            self._finish_forgetting()
            files.write(self.path / RUNNING, "", files.PRIVATE)
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, GhoflError):
            (self.path / RUNNING).unlink(missing_ok=True)
        self._lock.close()

    def _check_agreed(self) -> None:
        path = self.path / "recipe.toml"
        if not path.exists():
            files.write(path, self.recipe.to_toml(), files.PRIVATE)
        elif (there := Recipe.load(path).fingerprint) != self.recipe.fingerprint:
            raise FederationError(
                f"{self.path} belongs to recipe {there[:12]}… and this app has {self.recipe.fingerprint[:12]}…; "
                "give another folder for another recipe."
            )

    def message(self, message_id: str) -> Path:
        """Where a message is kept."""
        return self.path / "messages" / f"{message_id}.ghofl"

    def keep(self, message_id: str, data: bytes | FileBytes) -> None:
        """Write a message to its file, or move the file that it came in."""
        if isinstance(data, bytes):
            files.write(self.message(message_id), data, files.PRIVATE)
        else:
            data.path.replace(self.message(message_id))

    def headers(self) -> dict[str, dict[str, Any]]:
        """The headers of the messages that are kept, by message id, in the order of ids."""
        return {path.stem: _header(path) for path in sorted((self.path / "messages").glob("*.ghofl"))}

    def ids(self) -> set[str]:
        """Ids of all messages that came, including removed ones."""
        return {path.stem for path in (self.path / "messages").glob("*.ghofl")} | set(self.removed())

    def removed(self) -> dict[str, str]:
        """Names of the sites that were taken out, by the id of their message."""
        kept = {path.stem: _header(path)["site"] for path in (self.path / "removed").glob("*.ghofl")}
        return kept | {path.stem: _forgotten(path) for path in (self.path / "removed").glob("*.json")}

    def remove(self, site: str, forget: bool) -> None:
        """Take a site's message out. It moves to another folder, or with `forget` only its name and id are kept."""
        for message_id, header in self.headers().items():
            if header["site"] == site:
                path = self.message(message_id)
                path.replace(self.path / "removed" / path.name)
        for message_id, name in self.removed().items():
            if name == site and forget:
                text = json.dumps({"site": site, "id": message_id}, ensure_ascii=False)
                files.write(self.path / "removed" / f"{message_id}.json", text + "\n", files.PRIVATE)
        self._finish_forgetting()

    def _finish_forgetting(self) -> None:
        """Delete the messages to be forgotten, also where a server died before it did so."""
        for path in (self.path / "removed").glob("*.json"):
            path.with_suffix(".ghofl").unlink(missing_ok=True)

    def set_aside(self, names: set[str] | None = None) -> list[str]:
        """Move the heads of an older total to their own folder, all of them or all but `names`."""
        moved = []
        for path in sorted((self.path / "heads").glob("*.ghofl")):
            if names is None or path.name not in names:
                free = self.path / "old-heads" / path.name
                while free.exists():
                    free = free.with_name(f"{path.stem}-{secrets.token_hex(4)}.ghofl")
                path.replace(free)
                moved.append(str(free.relative_to(self.path)))
        return moved

    def forget_old_heads(self) -> None:
        """Delete the heads of older totals."""
        for path in (self.path / "old-heads").glob("*.ghofl"):
            path.unlink()

    def forget_total(self) -> None:
        """Delete the total and the files about it; the next one is made from the remaining messages."""
        for name in (TOTAL, RELEASED, ROSTER, GUARANTEE):
            self.discard(name)

    def counted_ids(self) -> set[str]:
        """Ids in the roster of the last total; empty where there is none."""
        header = peek(self.path / TOTAL) if (self.path / TOTAL).exists() else None
        roster = header.get("roster") if header is not None else None
        return (
            {str(line[0]) for line in roster if isinstance(line, list) and line} if isinstance(roster, list) else set()
        )

    @property
    def releases(self) -> Releases:
        """The journal of the noisy totals that were drawn here."""
        return Releases(self.path / RELEASES)

    def total(self) -> Total | None:
        """The exact total so far, if there is one."""
        path = self.path / TOTAL
        return Total.load(path) if path.exists() else None

    def release(self, total: Total) -> Total:
        """The total as others may see it, drawn once per exact total: a second call returns the same one."""
        path, ids = self.path / RELEASED, {entry.id for entry in total.roster}
        if path.exists():
            there = Total.load(path)
            if not self.releases.path.exists():
                self.releases.count(there)  # its journal was lost
            if {entry.id for entry in there.roster} == ids:
                return there
        made = self._count(total.release(), total)  # before it is written, so that no release goes uncounted
        if made is not total:
            made.save(path)
            files.close_to_others(path)
        return made

    def _count(self, released: Total, exact: Total) -> Total:
        try:
            copies_folder()
        except FederationError as error:  # a server's user may have no home; the run's folder counts in any case
            log.warning("%s Until then, a release of a copy of this run's total does not know of this one.", error)
            return self.releases.count(released)
        return self.releases.count(released, exact)

    @property
    def round(self) -> Path:
        """Where a secure round in progress is kept."""
        return self.path / "round"

    def end_round(self) -> None:
        """Forget the round."""
        shutil.rmtree(self.round, ignore_errors=True)

    def write(self, name: str, content: str | dict[str, Any] | list[Any]) -> None:
        """Write a text, or values as JSON."""
        text = content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        files.write(self.path / name, text, files.PRIVATE)

    def discard(self, name: str) -> None:
        """Delete a file, if it exists."""
        (self.path / name).unlink(missing_ok=True)


def _header(path: Path) -> dict[str, Any]:
    """The header of a message that was kept."""
    header = peek(path)
    if header is None or not isinstance(header.get("site"), str) or not isinstance(header.get("rows"), int):
        raise FederationError(f"{path} is damaged; remove the file, and its site is asked again.")
    return header


def _forgotten(path: Path) -> str:
    """The name of a site whose message was forgotten."""
    try:
        name = json.loads(path.read_text(encoding="utf-8"))["site"]
    except (ValueError, KeyError, TypeError):
        name = None
    if not isinstance(name, str):
        raise FederationError(
            f'{path} does not say which site was removed; write {{"site": "NAME"}} into it, or remove it.'
        )
    return name
