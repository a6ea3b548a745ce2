"""Files that are written whole or not at all, private folders, and locks for one process at a time in a folder."""

import csv
import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from ghofl.errors import BusyError, MessageError

try:
    import fcntl
except ModuleNotFoundError:  # not on Windows, where a second process in a folder is not noticed
    fcntl = None


FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # what begins a formula, in full width too
PRIVATE = 0o600  # read and written by its owner alone, whatever the umask
LOCK = ".lock"  # the file in a folder that the process at work there has locked
LOOK = 0.05  # seconds between two attempts to get a lock


@contextmanager
def open_to_replace(path: str | Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """An open binary file that becomes `path` when the block succeeds, and vanishes when it fails.

    `mode` says who may read and write it, as far as the umask allows; with `PRIVATE` only its owner may.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(path.parent))
    temporary = path.parent / f".{path.name[:200]}.{secrets.token_hex(8)}.part"
    # The system applies the umask when it creates the file: to read the umask, a process would have to change it, and
    # files that other threads create in that moment would be open to everybody.
    handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write(path: str | Path, content: bytes | str, mode: int = 0o666) -> None:
    """Write `content` to `path` in one step: readers see the old file or the new one, never a part."""
    with open_to_replace(path, mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_csv(file: Any, rows: Iterable[Iterable[Any]], delimiter: str = ",") -> None:
    """Write rows as CSV, with `escape_formula` applied to every cell."""
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerows([escape_formula(value) for value in row] for row in rows)


def escape_formula(value: Any) -> Any:
    """A cell that no spreadsheet runs: texts that begin like a formula get an apostrophe in front, as OWASP advises.

    So do texts that look as if they had got one, and no two texts become the same.

    >>> escape_formula("=HYPERLINK(1)"), escape_formula("-0.5"), escape_formula("cat"), escape_formula(-0.5)
    ("'=HYPERLINK(1)", '-0.5', 'cat', -0.5)
    """
    if not isinstance(value, str) or not value.lstrip("'").startswith(FORMULAS):
        return value
    return value if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?", value) else f"'{value}"


def open_private(path: str | Path) -> BinaryIO:
    """A file to append to and to read, which only its owner may open from now on."""
    file = open(path, "ab+", opener=lambda name, flags: os.open(name, flags, PRIVATE))  # noqa: SIM115 - for the caller
    close_to_others(path)
    return file


def close_to_others(path: str | Path) -> None:
    """Let nobody but the owner read a file or enter a folder."""
    path = Path(path)
    wanted = 0o700 if path.is_dir() else PRIVATE
    if path.stat().st_mode & 0o777 & ~wanted:
        with suppress(PermissionError):  # somebody else's folder: the files we put into it are private
            path.chmod(wanted)


def private_folder(path: str | Path) -> Path:
    """A folder that only its owner may enter; it and missing parents are created."""
    path = Path(path)
    for missing in reversed([folder for folder in (path, *path.parents) if not folder.is_dir()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    close_to_others(path)
    return path


def own_folder(path: str | Path) -> Path:
    """A folder that a user named for us to work in, made private where it is new, empty or has our lock.

    One that holds other things may be shared and keeps its permissions.
    """
    path = Path(path)
    if not path.is_dir() or (path / LOCK).exists() or not any(path.iterdir()):
        private_folder(path)
    return path


@contextmanager
def lock(folder: str | Path, seconds: float = 0.0) -> Iterator[None]:
    """Be the only process at work in a folder while the block runs.

    If another process is at work there, wait `seconds` for it at most, then raise `BusyError`.
    """
    handle = os.open(Path(folder) / LOCK, os.O_RDWR | os.O_CREAT, PRIVATE)
    with os.fdopen(handle, "r+b") as file:
        deadline = time.monotonic() + seconds
        while not try_lock(file):
            if time.monotonic() >= deadline:
                waited = f" and still was after {seconds:g} seconds" if seconds >= 1 else ""
                raise BusyError(f"another process is at work in {folder}{waited}; wait for it to end and try again.")
            time.sleep(LOOK)
        yield


def is_busy(folder: str | Path) -> bool:
    """Whether a process is at work in a folder."""
    try:
        with open(Path(folder) / LOCK, "rb") as file:
            return not try_lock(file)
    except FileNotFoundError:
        return False


def try_lock(file: BinaryIO) -> bool:
    """Lock an open file for this process until it is closed; false when another process has locked it."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open_plain(path: str | Path) -> int:
    """A handle to read a file with; a folder raises, and so does a pipe, whose writer may never come."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise MessageError("this is a folder or a pipe; give a plain file.")


class FileBytes:
    """The bytes of a file, read when they are needed: slices are uint8 arrays, and the whole is never in memory.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"moments")
    ...     file.flush()
    ...     with FileBytes(file.name) as data:
    ...         len(data), bytes(data[:3]), bytes(data.part(2, 6)[1:])
    (7, b'mom', b'ent')
    """

    def __init__(self, path: str | Path, start: int = 0, end: int | None = None, handle: int | None = None) -> None:
        self.path = Path(path)
        self._handle = _open_plain(path) if handle is None else handle
        self._start = start
        self._end = os.fstat(self._handle).st_size if end is None else end

    def __len__(self) -> int:
        return self._end - self._start

    def __bytes__(self) -> bytes:
        os.lseek(self._handle, self._start, os.SEEK_SET)
        content = os.read(self._handle, len(self))
        return content if len(content) == len(self) else self[:].tobytes()

    def __getitem__(self, where: slice) -> np.ndarray:
        low, high, _ = where.indices(len(self))
        out, done = np.empty(max(0, high - low), dtype=np.uint8), 0
        while done < len(out):
            os.lseek(self._handle, self._start + low + done, os.SEEK_SET)
            read = os.read(self._handle, min(len(out) - done, 2**24))
            if not read:
                raise OSError(errno.EIO, "The file became shorter while it was read", str(self.path))
            out[done : done + len(read)] = np.frombuffer(read, dtype=np.uint8)
            done += len(read)
        return out

    def part(self, low: int, high: int) -> "FileBytes":
        """A view of some of the bytes, usable until this one is closed."""
        return FileBytes(self.path, self._start + low, self._start + high, self._handle)

    def mapped(self, dtype: np.dtype, low: int, shape: tuple[int, ...]) -> np.ndarray:
        """An array that stays in this file, by its open handle: its name may be another file's by now."""
        with os.fdopen(os.dup(self._handle), "rb") as file:
            return np.asarray(np.memmap(file, dtype, "r", self._start + low, shape))  # type: ignore[call-overload]

    def close(self) -> None:
        """Close the file; parts of it cannot be read any more."""
        os.close(self._handle)

    def __enter__(self) -> "FileBytes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
