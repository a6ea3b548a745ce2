"""How good a classifier is on labelled rows: how often it is right, and how far its probabilities can be trusted."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ghofl.evaluation.confusion import Confusion, expected_calibration_error
from ghofl.shapes import Float, Int64, Integer

SMALLEST = float(np.finfo(np.float64).eps)  # stands for a probability of 0 of the true class


@dataclass(frozen=True, slots=True, eq=False)
class Metrics:
    """The measures of one classifier on labelled rows.

    With p the probabilities and e_y the one-hot label of a row::

        log_loss = mean −log p_y      brier = mean ‖p − e_y‖²      ece = mean |confidence − accuracy| over 15 bins

    `auc` is the area under the ROC curve of the second class; None unless there are two classes and both have rows.

    Guarantees
    ----------
    The same numbers as scikit-learn's functions of these names, where it has them; its Brier score of two classes is
    half of this one, as it counts only one of them.

    Examples
    --------
    >>> found = Metrics.of(np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0, 0]))
    >>> round(found.brier, 3), round(found.log_loss, 3), found.confusion.accuracy
    (0.4, 0.57, 0.5)
    """

    confusion: Confusion
    log_loss: float
    brier: float
    ece: float
    auc: float | None = field(default=None)

    @classmethod
    def of(
        cls,
        probabilities: Float[np.ndarray, "n classes"],
        y: Integer[np.ndarray, " n"],
        predicted: Int64[np.ndarray, " n"] | None = None,
    ) -> "Metrics":
        """The measures of these probabilities; `predicted` is their largest unless given, and −1 counts as wrong."""
        classes, rows = probabilities.shape[1], np.arange(len(y))
        found = probabilities.argmax(axis=1) if predicted is None else predicted
        of_label = probabilities[rows, y]
        squared = np.einsum("nc,nc->n", probabilities, probabilities) - 2.0 * of_label + 1.0
        counts = Confusion.of(y, np.where(found < 0, (y + 1) % classes, found), classes)  # y + 1 is always wrong
        return cls(
            counts,
            float(np.mean(-np.log(np.maximum(of_label, SMALLEST)))) if len(y) else 0.0,
            float(np.mean(squared)) if len(y) else 0.0,
            expected_calibration_error(probabilities, y),
            _auc(probabilities[:, 1], y) if classes == 2 else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """The measures as plain values."""
        return {
            "accuracy": self.confusion.accuracy,
            "accuracy_interval": list(self.confusion.accuracy_interval),
            "balanced_accuracy": self.confusion.balanced_accuracy,
            "balanced_accuracy_interval": list(self.confusion.balanced_interval),
            "macro_f1": self.confusion.macro_f1,
            "log_loss": self.log_loss,
            "brier": self.brier,
            "ece": self.ece,
            **({} if self.auc is None else {"auc": self.auc}),
        }


def _auc(scores: Float[np.ndarray, " n"], y: Integer[np.ndarray, " n"]) -> float | None:
    """The probability that a row of class 1 scores above one of class 0; ties count half."""
    positives, negatives = int(np.sum(y == 1)), int(np.sum(y == 0))
    if not positives or not negatives:
        return None
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[place.ravel()]
    return float((ranks[y == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))
