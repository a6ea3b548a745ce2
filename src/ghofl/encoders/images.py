"""The encoder of images, whatever library runs its network."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ghofl.encoders.base import Sample
from ghofl.encoders.resize import Preprocessing
from ghofl.encoders.views import Views
from ghofl.errors import SampleError
from ghofl.shapes import Float, Float32, UInt8

# Activations of one image in a convolutional network, as a multiple of one plane of its input.
PLANES = 400


@dataclass(frozen=True, slots=True, eq=False)
class ImageEncoder:
    """Images to embeddings: preprocessing, then a network without its classifier.

    `forward` takes images of equal size as bytes and gives their embeddings, as means over `views`. `classifier` is the
    weight matrix of the public classifier that the network was trained with, if its checkpoint has one.
    """

    name: str
    dim: int
    fingerprint: str
    preprocessing: Preprocessing
    forward: Callable[[UInt8[np.ndarray, "n h w 3"]], Float32[np.ndarray, "n dim"]] = field(repr=False)
    classifier: Float[np.ndarray, "classes dim"] | None = field(default=None, repr=False)
    kind: str = "image"
    views: Views = field(default_factory=Views)

    @property
    def sample_bytes(self) -> int:
        """Roughly the memory of one image in a batch."""
        return 4 * PLANES * max((self.preprocessing.size, *self.views.scales)) ** 2

    def encode(self, batches: Iterable[Sequence[Sample]]) -> Iterator[Float[np.ndarray, "n dim"]]:
        """The embeddings of each batch of images."""
        for batch in batches:
            x = np.empty((len(batch), self.dim), dtype=np.float32)
            for group in _by_shape(batch):
                x[group] = self.forward(np.stack([np.asarray(batch[i]) for i in group]))
            yield x


def _by_shape(batch: Sequence[Sample]) -> Iterator[list[int]]:
    """Positions of images of equal size, in the order of the first of each size."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, image in enumerate(batch):
        if not isinstance(image, np.ndarray) or image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            got = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
            raise SampleError(f"sample {i} of a batch is {got}; expected an image of bytes (height, width, 3).")
        groups.setdefault(image.shape, []).append(i)
    yield from groups.values()
