"""How good a classifier is on labelled rows: how often it is right, and how far its probabilities can be trusted."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ghofl.evaluation.confusion import Confusion, expected_calibration_error
from ghofl.evaluation.ranking import Ranking, Threshold
from ghofl.shapes import Float, Int64, Integer

SMALLEST = float(np.finfo(np.float64).eps)  # stands for a probability of 0 of the true class


@dataclass(frozen=True, slots=True, eq=False)
class Metrics:
    """The measures of one classifier on labelled rows.

    With p the probabilities and e_y the one-hot label of a row::

        log_loss = mean −log p_y      brier = mean ‖p − e_y‖²      ece = mean |confidence − accuracy| over 15 bins

    The Brier score of two classes is half of that: the squared error of one of them. `average_precisions` has the area
    under the curve of precision and recall by class, NaN for a class without rows or without others. For two classes,
    both with rows, `auc` is the area under the ROC curve, and `thresholds` say what becomes of the rarer class.

    Guarantees
    ----------
    The same numbers as scikit-learn's functions of these names, where it has them.

    Examples
    --------
    >>> found = Metrics.of(np.array([[0.8, 0.2], [0.4, 0.6], [0.1, 0.9]]), np.array([0, 0, 1]))
    >>> round(found.brier, 3), round(found.log_loss, 3), round(found.confusion.accuracy, 3)
    (0.137, 0.415, 0.667)
    >>> found.confusion.rarest, found.average_precision, found.thresholds[0].precision
    (1, 1.0, 1.0)
    """

    confusion: Confusion
    log_loss: float
    brier: float
    ece: float
    average_precisions: Float[np.ndarray, " classes"] = field(repr=False)
    auc: float | None = field(default=None)
    thresholds: tuple[Threshold, ...] = field(default=(), repr=False)

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
        ranked = [Ranking.of(probabilities[:, c], y == c) for c in range(classes)]
        rarer = ranked[counts.rarest] if classes == 2 and len(y) else None
        return cls(
            counts,
            float(np.mean(-np.log(np.maximum(of_label, SMALLEST)))) if len(y) else 0.0,
            float(np.mean(squared)) / (2.0 if classes == 2 else 1.0) if len(y) else 0.0,
            expected_calibration_error(probabilities, y),
            np.array([np.nan if each is None else each.average_precision for each in ranked]),
            None if rarer is None else rarer.auc,
            () if rarer is None else rarer.thresholds(),
        )

    @property
    def average_precision(self) -> float | None:
        """That of the rarest class that has rows; None where no other class has any."""
        found = float(self.average_precisions[self.confusion.rarest])
        return None if np.isnan(found) else found

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
            **({} if self.average_precision is None else {"average_precision": self.average_precision}),
            **({} if self.auc is None else {"auc": self.auc}),
            **({"by_threshold": [asdict(each) for each in self.thresholds]} if self.thresholds else {}),
        }
