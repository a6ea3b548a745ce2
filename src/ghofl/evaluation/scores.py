"""What a head makes of rows: its probabilities a block at a time, and how they compare with labels."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer, Num

from ghofl.classifier import Classifier
from ghofl.errors import EmbeddingsError
from ghofl.evaluation.confusion import Confusion, expected_calibration_error

BLOCK = 2048
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """How a head did on rows with labels: counts of right and wrong, and how far its probabilities can be trusted."""

    confusion: Confusion
    calibration_error: float

    def recalls(self, classes: tuple[str, ...]) -> dict[str, float]:
        """The share of rows that was found, by the name of each class that has any."""
        pairs = zip(classes, self.confusion.recalls, strict=True)
        return {name: float(recall) for name, recall in pairs if np.isfinite(recall)}


def probabilities(
    classifier: Classifier, x: Num[np.ndarray, "n dim"], progress: Progress | None = None
) -> Float[np.ndarray, "n classes"]:
    """Probabilities of every class for each row, in the memory of a block of rows."""
    parts = [np.zeros((0, len(classifier.recipe.classes)))]
    for start in range(0, len(x), BLOCK):
        parts.append(classifier.predict_proba(x[start : start + BLOCK]))
        if progress is not None:
            progress("rows", min(start + BLOCK, len(x)), len(x))
    return np.concatenate(parts)


def evaluate(
    classifier: Classifier,
    x: Num[np.ndarray, "n dim"],
    y: Integer[np.ndarray, " n"],
    progress: Progress | None = None,
) -> Scores:
    """How a head does on rows with these class numbers."""
    if not len(y):
        raise EmbeddingsError("there are no rows, and nothing can be said about none; give rows with labels.")
    found = probabilities(classifier, x, progress)
    confusion = Confusion.of(y, found.argmax(axis=1), len(classifier.recipe.classes))
    return Scores(confusion, expected_calibration_error(found, y))
