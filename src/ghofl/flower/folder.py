"""The folder of one federation at the server: what came, the total, heads and report, and the journal of a round.

::

    recipe.toml           what was agreed on
    messages/ID.ghofl     every message that was accepted, as it came: the journal of the plain mode
    removed/ID.ghofl      messages that were taken out again
    incoming/             answers that are being looked at
    round/                a secure round in progress: how far it came, so that it can go on
    total.ghofl           the exact total
    released.ghofl        the total as others may see it, where the recipe has noise or minimum counts
    heads/NAME.ghofl      classifiers
    roster.json  guarantee.json  report.json  report.md
"""

import json
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from ghofl import files
from ghofl.aggregation import Total
from ghofl.envelope import peek
from ghofl.errors import FederationError
from ghofl.files import FileBytes
from ghofl.recipe import Recipe
from ghofl.secure import ServerState

TOTAL, RELEASED, INCOMING = "total.ghofl", "released.ghofl", "incoming"
IDLE_SHARE = 9  # a round's state is written again after nine times as long as writing it took


class RunFolder:
    """The folder of a federation, open for one server at a time.

    Guarantees
    ----------
    A message is in the folder before it is counted, and what was in the folder is counted when it is opened again:
    a server that is killed at any moment goes on without asking those sites again, and counts none twice.
    """

    def __init__(self, path: str | Path, recipe: Recipe) -> None:
        self.path, self.recipe = Path(path), recipe
        for name in ("messages", "removed", "heads"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        self._lock = open(self.path / ".lock", "wb")  # noqa: SIM115 - closed by __exit__
        try:
            if not files.is_ours(self._lock):
                raise FederationError(f"another server is at work in {path}; wait for it, or give another folder.")
            self._agree()
            shutil.rmtree(self.path / INCOMING, ignore_errors=True)
            (self.path / INCOMING).mkdir()
        except BaseException:
            self._lock.close()
            raise
        self._next_save = 0.0

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.close()

    def _agree(self) -> None:
        path = self.path / "recipe.toml"
        if not path.exists():
            self.recipe.save(path)
        elif (there := Recipe.load(path).fingerprint) != self.recipe.fingerprint:
            raise FederationError(
                f"{self.path} belongs to recipe {there[:12]}… and this app has {self.recipe.fingerprint[:12]}…; "
                "give another folder for another recipe."
            )

    def message(self, message_id: str) -> Path:
        """Where a message is kept."""
        return self.path / "messages" / f"{message_id}.ghofl"

    def keep(self, message_id: str, data: bytes | FileBytes) -> None:
        """Write a message down, or move the file that it came in."""
        if isinstance(data, bytes):
            files.write(self.message(message_id), data)
        else:
            data.path.replace(self.message(message_id))

    def headers(self) -> dict[str, dict[str, Any]]:
        """The headers of the messages that are kept, by message id, in the order of ids."""
        return {path.stem: _header(path) for path in sorted((self.path / "messages").glob("*.ghofl"))}

    def ids(self) -> set[str]:
        """Ids of messages that came, the removed ones included."""
        return {path.stem for name in ("messages", "removed") for path in (self.path / name).glob("*.ghofl")}

    def removed_sites(self) -> set[str]:
        """Names of sites that were taken out."""
        return {_header(path)["site"] for path in (self.path / "removed").glob("*.ghofl")}

    def remove(self, site: str) -> bool:
        """Take a site's message out; whether it was there, now or before."""
        for message_id, header in self.headers().items():
            if header["site"] == site:
                path = self.message(message_id)
                path.replace(self.path / "removed" / path.name)
                return True
        return site in self.removed_sites()

    def total(self) -> Total | None:
        """The exact total so far, if there is one."""
        path = self.path / TOTAL
        return Total.load(path) if path.exists() else None

    def released(self, total: Total) -> Total:
        """The total as others may see it, drawn once for one exact total: asked again, it is the same one."""
        path, ids = self.path / RELEASED, {entry.id for entry in total.roster}
        if path.exists():
            there = Total.load(path)
            if {entry.id for entry in there.roster} == ids:
                return there
        made = total.released()
        if made is not total:
            made.save(path)
        return made

    def save_stage(self, closed: ServerState | None, state: ServerState) -> None:
        """Write down where a round stands between two stages: its state, and the one its last stage was closed in."""
        folder = self.path / "round"
        folder.mkdir(exist_ok=True)
        if closed is not None:
            files.write(folder / f"closed-{state.stage}", closed.to_bytes())
        files.write(folder / "state", state.to_bytes())
        for path in folder.glob("closed-*"):
            if path.name != f"closed-{state.stage}":
                path.unlink()

    def save_progress(self, state: ServerState) -> None:
        """Write down how far a stage has come, as often as writing does not hold the round up."""
        started = time.monotonic()
        if started >= self._next_save:
            files.write(self.path / "round" / "state", state.to_bytes())
            self._next_save = time.monotonic() + IDLE_SHARE * (time.monotonic() - started)

    def round(self) -> tuple[ServerState | None, ServerState] | None:
        """The round that was in progress: the state its last stage was closed in, and how far it came."""
        folder = self.path / "round"
        if not (folder / "state").exists():
            return None
        state = ServerState.from_bytes((folder / "state").read_bytes())
        closed = folder / f"closed-{state.stage}"
        return (ServerState.from_bytes(closed.read_bytes()) if closed.exists() else None), state

    def end_round(self) -> None:
        """Forget the round."""
        shutil.rmtree(self.path / "round", ignore_errors=True)

    def write(self, name: str, content: str | dict[str, Any] | list[Any]) -> None:
        """Write a text, or values as JSON."""
        text = content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        files.write(self.path / name, text)


def _header(path: Path) -> dict[str, Any]:
    """The header of a message that was kept."""
    header = peek(path)
    if header is None or not isinstance(header.get("site"), str) or not isinstance(header.get("rows"), int):
        raise FederationError(f"{path} is no message any more; remove the file, and its site is asked again.")
    return header
