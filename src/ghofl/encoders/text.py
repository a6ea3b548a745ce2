"""The encoder of texts, whatever library runs its network."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ghofl.encoders.base import Sample
from ghofl.encoders.tokens import Tokens, encode_by_length
from ghofl.errors import SampleError
from ghofl.shapes import Float, Float32, Int64

# A batch is sorted by length and run in smaller groups, so it costs little memory and should be large.
TEXT_BYTES = 2**20


@dataclass(frozen=True, slots=True, eq=False)
class TextEncoder:
    """Texts to embeddings: tokens, a language model, and one vector pooled from its last layer.

    `forward` takes token numbers and a mask and gives the pooled embeddings.
    """

    name: str
    dim: int
    fingerprint: str
    pooling: str
    tokens: Tokens = field(repr=False)
    forward: Callable[[Int64[np.ndarray, "n t"], Int64[np.ndarray, "n t"]], Float32[np.ndarray, "n dim"]] = field(
        repr=False
    )
    kind: str = "text"
    sample_bytes: int = TEXT_BYTES
    classifier: None = None

    def encode(self, batches: Iterable[Sequence[Sample]]) -> Iterator[Float[np.ndarray, "n dim"]]:
        """The embeddings of each batch of texts."""
        for batch in batches:
            texts = [text for text in batch if isinstance(text, str)]
            if len(texts) != len(batch):
                raise SampleError(f"{len(batch) - len(texts)} of {len(batch)} samples are not texts.")
            yield encode_by_length(self.tokens, texts, self.dim, self.forward)
