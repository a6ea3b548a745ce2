"""What a site keeps from one request to the next: names and bytes."""

import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from ghofl import files

PATIENCE = 600.0  # seconds that a request or a command waits for another process in the same site folder


@runtime_checkable
class Storage(Protocol):
    """Bytes by name; `is_lasting` when they outlive the run they were written in."""

    is_lasting: bool

    def lock(self) -> AbstractContextManager[None]:
        """Be the only process that reads and writes here while a block runs; wait for another, or raise."""
        ...

    def get(self, name: str) -> bytes | None:
        """The bytes under a name, or None."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Store bytes under a name; earlier ones are replaced in one step."""
        ...

    def append(self, name: str, content: bytes) -> None:
        """Add bytes to the end of those under a name."""
        ...

    def forget(self, prefix: str) -> None:
        """Forget every name below a prefix."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Every name below a prefix."""
        ...


class FolderStorage:
    """A folder of files that only their owner can read, because round secrets are among them."""

    is_lasting = True

    def __init__(self, folder: str | Path) -> None:
        self.folder = files.own_folder(folder)

    def lock(self) -> AbstractContextManager[None]:
        """Be the only process at work in the folder while a block runs; wait for another one up to ten minutes."""
        return files.lock(self.folder, PATIENCE)

    def get(self, name: str) -> bytes | None:
        """The bytes under a name, or None."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, name: str, content: bytes) -> None:
        """Store bytes under a name; the file is written whole or not at all."""
        path = self.folder / name
        if path.parent != self.folder:
            files.private_folder(path.parent)
        files.write(path, content, files.PRIVATE)

    def append(self, name: str, content: bytes) -> None:
        """Add to the end of a file, and return when it is on disk."""
        with files.open_private(self.folder / name) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def forget(self, prefix: str) -> None:
        """Remove the folder of this prefix."""
        shutil.rmtree(self.folder / prefix, ignore_errors=True)

    def names(self, prefix: str) -> list[str]:
        """The files in the folder of this prefix, and in those below it; half-written ones are not among them."""
        found = (path for path in (self.folder / prefix).rglob("*") if path.is_file() and not path.name.startswith("."))
        return sorted(path.relative_to(self.folder).as_posix() for path in found)
