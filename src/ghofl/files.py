"""Files that are there whole or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


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


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
