"""What a site remembers from one query to the next: names and bytes."""

import shutil
from pathlib import Path
from typing import Protocol, runtime_checkable

from ghofl import files


@runtime_checkable
class Memory(Protocol):
    """Bytes by name; `is_lasting` when they outlive the run they were written in."""

    is_lasting: bool

    def get(self, name: str) -> bytes | None:
        """What was put there, or nothing."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Remember; what was there before is replaced in one step."""
        ...

    def forget(self, prefix: str) -> None:
        """Forget every name below a prefix."""
        ...


class FolderMemory:
    """A folder of files that only their owner reads: round secrets are among them."""

    is_lasting = True

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def get(self, name: str) -> bytes | None:
        """What was put there, or nothing."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, name: str, content: bytes) -> None:
        """Remember; the file is there whole or not at all."""
        path = self.folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(path, content, mode=0o600)

    def forget(self, prefix: str) -> None:
        """Remove the folder of this prefix."""
        shutil.rmtree(self.folder / prefix, ignore_errors=True)
