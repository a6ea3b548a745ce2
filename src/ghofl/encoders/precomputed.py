"""Rows that are already embeddings."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ghofl.encoders.base import Sample, fingerprint
from ghofl.errors import SampleError
from ghofl.shapes import Float


@dataclass(frozen=True, slots=True)
class Precomputed:
    """Embeddings from elsewhere, under a name that all sites give them.

    Nothing shows what made them, so the fingerprint covers only the name and the length of a row, unless the file says
    which encoder wrote it.

    >>> next(Precomputed.of("clip", 2).encode([[np.array([1.0, 2.0])]]))
    array([[1., 2.]], dtype=float32)
    """

    name: str
    dim: int
    fingerprint: str
    kind: str = "row"

    @classmethod
    def of(cls, name: str, dim: int) -> "Precomputed":
        """Rows of length `dim` that all sites call `name`."""
        return cls(f"precomputed:{name}", dim, fingerprint({}, {"precomputed": name, "dim": dim}))

    @property
    def sample_bytes(self) -> int:
        """The memory of one row."""
        return 16 * self.dim

    def encode(self, batches: Iterable[Sequence[Sample]]) -> Iterator[Float[np.ndarray, "n dim"]]:
        """The rows themselves, as float32."""
        for batch in batches:
            for row in batch:
                if not isinstance(row, np.ndarray) or row.shape != (self.dim,):
                    got = row.shape if isinstance(row, np.ndarray) else type(row).__name__
                    raise SampleError(f"a row is {got}; {self.name} expects {self.dim} numbers.")
            yield np.array(batch, dtype=np.float32).reshape(len(batch), self.dim)
