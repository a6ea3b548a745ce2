"""A projection made from the encoder's own public classifier."""

import numpy as np

from ghofl.encoders.base import SampleEncoder
from ghofl.encoders.images import ImageEncoder
from ghofl.errors import EncoderError
from ghofl.recipe import Projection
from ghofl.shapes import Float, Int64

# Eleven bits: entries of a unit vector keep about two digits, and products stay exact in float32.
LARGEST = 1023


def projection_from(encoder: SampleEncoder, dim: int) -> Projection:
    """The projection onto the `dim` directions that weigh most in the encoder's own classifier."""
    classifier = getattr(encoder, "classifier", None)
    if isinstance(encoder, ImageEncoder) and encoder.views.has_maps:
        raise EncoderError(
            f"{encoder.name} with '{encoder.views}' gives more numbers than its classifier takes; leave 'stages' and 'mean+std' "
            "out of --views, or give --dim for random signs."
        )
    if classifier is None:
        raise EncoderError(
            f"{encoder.name} has no classifier to take directions from; load weights that include one, or give --dim "
            "for random signs."
        )
    matrix = directions(classifier, dim)
    length = float(np.linalg.norm(matrix[:, 0]))
    return Projection.of_matrix(matrix, shift=max(0, round(np.log2(length))))


def directions(classifier: Float[np.ndarray, "classes dim"], count: int) -> Int64[np.ndarray, "dim count"]:
    """The leading right singular vectors of centred classifier weights, as integers within ±1023.

    All vectors are scaled by one factor and keep equal lengths. A vector and its negative are the same direction;
    the one whose largest entry is positive is taken, so that the integers follow from the weights alone.

    >>> directions(np.array([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), 2).tolist()
    [[1023, 0], [0, 0], [0, 1023]]
    """
    weights = classifier.astype(np.float64) - classifier.mean(axis=0, dtype=np.float64)
    if not 1 <= count <= min(weights.shape):
        raise EncoderError(
            f"{count} directions were asked for, and a classifier of {weights.shape[0]} classes over "
            f"{weights.shape[1]} numbers has {min(weights.shape)}; ask for no more than that."
        )
    vectors = np.linalg.svd(weights, full_matrices=False)[2][:count].T
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(count)])
    return np.rint(LARGEST / np.abs(vectors).max() * vectors * signs).astype(np.int64)
