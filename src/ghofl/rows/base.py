"""Samples with their labels, in one fixed order, for an encoder."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ghofl.errors import DatasetError, SampleError
from ghofl.recipe import Encoder
from ghofl.recipe.labels import classes_of, is_missing
from ghofl.rows.images import decode
from ghofl.shapes import Shaped

BLOCK = 4096  # rows that are read at once


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples of one kind (``image``, ``text`` or ``row``), read one at a time.

    `names` are for errors about a sample, `read(i)` gives sample i or raises `SampleError`, and `digest()` changes
    when the samples do. `labels` are class names or numbers, or None where there are none. `made_by` is the encoder that a
    file of embeddings names.
    """

    kind: str
    names: Sequence[str] = field(repr=False)
    read: Callable[[int], Any] = field(repr=False)
    digest: Callable[[], str] = field(repr=False)
    labels: Shaped[np.ndarray, " n"] | None = field(default=None, repr=False)
    made_by: Encoder | None = None

    def __len__(self) -> int:
        return len(self.names)

    def classes(self) -> tuple[str, ...]:
        """The class names that occur, sorted."""
        return () if self.labels is None else classes_of(self.labels)

    def map(self, change: Callable[[Any, int], Any], digest: str) -> "Samples":
        """The samples, each replaced by `change(sample, i)` when it is read; `digest` identifies the change."""
        return replace(self, read=lambda i: change(self.read(i), i), digest=lambda: digest_of([self.digest(), digest]))

    def unlabelled(self) -> list[tuple[int, str]]:
        """The samples without a label where there are labels, and what is said about each."""
        rows = [] if self.labels is None else np.flatnonzero(is_missing(self.labels)).tolist()
        return [(i, f"{self.names[i]} has no label.") for i in rows]

    def labelled(self) -> "Samples":
        """The samples, of which those without a label are bad ones; without labels where no sample has one."""
        bad = dict(self.unlabelled())
        if len(bad) == len(self):
            return replace(self, labels=None)

        def read(i: int) -> Any:
            if i in bad:
                raise SampleError(bad[i])
            return self.read(i)

        return replace(self, read=read, digest=lambda: digest_of([self.digest(), *bad.values()])) if bad else self

    def only(self, keep: np.ndarray) -> "Samples":
        """The samples at these positions, in this order."""
        keep = np.asarray(keep, dtype=np.int64)
        return replace(
            self,
            names=[self.names[int(i)] for i in keep],
            read=lambda i: self.read(int(keep[i])),
            digest=lambda: digest_of([self.digest(), hashlib.sha256(keep.astype("<i8").tobytes()).hexdigest()]),
            labels=None if self.labels is None else self.labels[keep],
        )


def digest_of(parts: Iterable[str]) -> str:
    """The sha256 of texts, each preceded by its length."""
    sha = hashlib.sha256(b"ghofl samples 1\n")
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        sha.update(f"{len(data)}:".encode() + data)
    return sha.hexdigest()


def of_texts(texts: Sequence[Any], labels: np.ndarray | None, names: Sequence[str]) -> Samples:
    """Texts; an empty one, or a value that is not a text, is a bad sample."""

    def read(i: int) -> str:
        text = texts[i]
        if not isinstance(text, str):
            raise SampleError(f"{names[i]} is {text!r}, which is not a text.")
        if not text.strip():
            raise SampleError(f"{names[i]} is an empty text.")
        return text

    return Samples("text", names, read, lambda: digest_of(["text", *map(str, texts)]), labels)


def of_image_files(paths: Sequence[Path], labels: np.ndarray | None) -> Samples:
    """Images from files; they count as the same samples while path, size and time of change are the same."""

    def read(i: int) -> np.ndarray:
        return decode(bytes_of(paths[i]), str(paths[i]))

    names = [str(path) for path in paths]
    return Samples("image", names, read, lambda: digest_of(["image", *map(_state, paths)]), labels)


def bytes_of(path: Path) -> bytes:
    """The bytes of a sample's file; one that cannot be read is a bad sample."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise SampleError(f"{path} does not exist.") from None
    except (OSError, ValueError) as error:  # a folder, somebody else's file, a zero character in its name
        raise SampleError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from None


def of_rows(x: np.ndarray, labels: np.ndarray | None, where: str, made_by: Encoder | None = None) -> Samples:
    """Rows that are already embeddings."""
    if x.ndim != 2 or x.dtype.kind not in "fiu":
        raise DatasetError(f"{where} holds {x.dtype} {x.shape}; expected numbers, one row per sample.")

    def read(i: int) -> np.ndarray:
        if not np.isfinite(x[i]).all():
            raise SampleError(f"{where} row {i} holds a number that is not finite.")
        return np.asarray(x[i], dtype=np.float32)

    def digest() -> str:
        sha = hashlib.sha256(f"{x.dtype.str} {x.shape}".encode())
        for start in range(0, len(x), BLOCK):  # they may be a mapped file
            sha.update(np.ascontiguousarray(x[start : start + BLOCK]).tobytes())
        return digest_of(["row", sha.hexdigest()])

    return Samples("row", [f"{where} row {i}" for i in range(len(x))], read, digest, labels, made_by)


def _state(path: Path) -> str:
    try:
        state = path.stat()
    except (OSError, ValueError):  # also for a zero character in its name
        return f"{path.absolute()} missing"
    return f"{path.absolute()} {state.st_size} {state.st_mtime_ns}"
