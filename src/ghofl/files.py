"""Files that are there whole or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

try:
    import fcntl
except ModuleNotFoundError:  # not on Windows: there, two processes at one folder are not told apart
    fcntl = None


@contextmanager
def replacing(path: str | Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """An open binary file that becomes `path` when the block ends well, and vanishes when it does not.

    `mode` is who may read and write it, as far as the umask allows.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(path.parent))
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write(path: str | Path, content: bytes | str, mode: int = 0o666) -> None:
    """Write `content` to `path` in one step: readers see the old file or the new one, never a part."""
    with replacing(path, mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def is_ours(file: BinaryIO) -> bool:
    """Lock an open file for this process until it is closed; not when another process has it."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


class FileBytes:
    """The bytes of a file, read where they are asked for: slices are uint8 arrays, and the whole is never in memory.

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
        self._handle = os.open(path, os.O_RDONLY) if handle is None else handle
        self._start = start
        self._end = os.fstat(self._handle).st_size if end is None else end

    def __len__(self) -> int:
        return self._end - self._start

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
        """A view of some of the bytes, open as long as this one is."""
        return FileBytes(self.path, self._start + low, self._start + high, self._handle)

    def close(self) -> None:
        """Close the file; parts of it cannot be read any more."""
        os.close(self._handle)

    def __enter__(self) -> "FileBytes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
