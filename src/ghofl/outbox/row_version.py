"""Which rows a site has, as one hash: the same for the same rows, whatever their file, order, grid or statistics.

A row is its embedding as float64 numbers, or its sample (a text, the pixels of an image) where an encoder makes the
embedding, and the name of its class. Rows of a table are the numbers that the recipe's schema makes of them. Only rows
that count have a part in it: those that a limit per person leaves out do not.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from ghofl.recipe.labels import numbers_row_by_row
from ghofl.rows import Samples
from ghofl.shapes import Int64, Num

DIGEST = 16  # bytes that are kept per row
BLOCK = 4096  # rows that become float64 numbers at a time


class RowVersion:
    """The version of rows that are added block by block: the sha256 of their digests, sorted.

    >>> x, y = np.array([[0.5, 1.0], [2.0, -0.0]]), np.array([0, 1])
    >>> version_of(x, y, ("cat", "dog")) == version_of(x[::-1].astype(np.float32), np.array([0, 1]), ("dog", "cat"))
    True
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self._classes, self._digests = tuple(classes), bytearray()

    def add(self, x: Num[np.ndarray, "n dim"], y: Int64[np.ndarray, " n"]) -> None:
        """Add rows with their class numbers."""
        for start in range(0, len(x), BLOCK):
            rows = np.ascontiguousarray(x[start : start + BLOCK], dtype="<f8") + 0.0  # so that −0 is 0
            for row, number in zip(rows, y[start : start + BLOCK].tolist(), strict=True):
                self._add(self._classes[number] if 0 <= number < len(self._classes) else "", row.data)

    def watch(self, samples: Samples, labels_are_numbers: bool = False) -> Samples:
        """The same samples; each is added when it is read, by whichever thread. No label is refused here."""
        labels = np.zeros(len(samples), dtype=np.str_) if samples.labels is None else samples.labels
        places = numbers_row_by_row(labels, self._classes, labels_are_numbers)

        def add(sample: np.ndarray | str, i: int) -> np.ndarray | str:
            name = self._classes[places[i]] if places[i] >= 0 else str(labels[i])
            if isinstance(sample, str):
                self._add(name, sample.encode("utf-8", "surrogatepass"))
            elif sample.ndim == 1:
                self._add(name, (np.ascontiguousarray(sample, dtype="<f8") + 0.0).data)
            else:
                self._add(name, f"{sample.shape}".encode() + np.ascontiguousarray(sample).tobytes())
            return sample

        return samples.map(add, "")

    @property
    def text(self) -> str:
        """The version of the rows that were added so far, in hexadecimal."""
        digests = np.sort(np.frombuffer(bytes(self._digests), dtype=f"S{DIGEST}"))
        return hashlib.sha256(f"ghofl rows 2|{len(digests)}\n".encode() + digests.tobytes()).hexdigest()

    def _add(self, name: str, content: bytes | memoryview) -> None:
        label = name.encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(f"{len(label)}:".encode() + label)
        digest.update(content)
        self._digests.extend(digest.digest()[:DIGEST])


def version_of(x: Num[np.ndarray, "n dim"], y: Int64[np.ndarray, " n"], classes: Sequence[str]) -> str:
    """The version of rows in memory."""
    version = RowVersion(classes)
    version.add(x, y)
    return version.text
