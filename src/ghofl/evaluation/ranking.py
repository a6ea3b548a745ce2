"""How well the probabilities of one class put its rows before all others: what a rare class is judged by."""

from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Context

import numpy as np

from ghofl.shapes import Bool, Float, Int64

RECALLS = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
DIGITS = 3  # of a threshold that a person can type


@dataclass(frozen=True, slots=True)
class Threshold:
    """What becomes of a class that is predicted wherever its probability is at least `probability`.

    `recall` is the share of its rows that are found, `precision` the share of predicted rows that belong to it, and
    `flagged` the share of all rows that are predicted as it.
    """

    probability: float
    recall: float
    precision: float
    flagged: float


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Rows in the order of one class's probability: at each of its values, how many rows have at least that, and hits.

    Guarantees
    ----------
    `average_precision` and `auc` are scikit-learn's, ties included.

    Examples
    --------
    >>> found = Ranking.of(np.array([0.9, 0.4, 0.6, 0.1]), np.array([True, True, False, False]))
    >>> round(found.average_precision, 3), found.auc
    (0.833, 0.75)
    >>> found.at(0.4)
    Threshold(probability=0.4, recall=1.0, precision=0.6666666666666666, flagged=0.75)
    """

    values: Float[np.ndarray, " values"] = field(repr=False)
    rows: Int64[np.ndarray, " values"] = field(repr=False)
    hits: Int64[np.ndarray, " values"] = field(repr=False)

    @classmethod
    def of(cls, probabilities: Float[np.ndarray, " n"], is_class: Bool[np.ndarray, " n"]) -> "Ranking | None":
        """The ranking of some rows; None unless some of them belong to the class and others do not."""
        if not is_class.any() or is_class.all():
            return None
        order = np.argsort(-probabilities, kind="stable")
        falling = probabilities[order]
        last = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))  # of each value
        return cls(falling[last], last + 1, np.cumsum(is_class[order], dtype=np.int64)[last])

    @property
    def average_precision(self) -> float:
        """The precision at every value, weighted by what it adds to the recall."""
        return float(np.sum(np.diff(self.hits, prepend=0) * self.hits / self.rows) / self.hits[-1])

    @property
    def auc(self) -> float:
        """The probability that a row of the class is put before another; ties count half."""
        misses, found = self.rows - self.hits, np.diff(self.hits, prepend=0)
        before = self.hits - found / 2.0
        return float(np.sum(np.diff(misses, prepend=0) * before) / (self.hits[-1] * misses[-1]))

    def at(self, probability: float) -> Threshold:
        """What the class is predicted for at a threshold; nothing predicted counts as a precision of 1."""
        place = int(np.searchsorted(-self.values, -probability, side="right")) - 1
        rows, hits = (int(self.rows[place]), int(self.hits[place])) if place >= 0 else (0, 0)
        return Threshold(
            probability, hits / int(self.hits[-1]), hits / rows if rows else 1.0, rows / int(self.rows[-1])
        )

    def thresholds(self) -> tuple[Threshold, ...]:
        """One half, and the highest thresholds that find given shares of the class; falling, of three digits each."""
        first = np.searchsorted(self.hits / self.hits[-1], np.array(RECALLS))
        found = {_rounded_down(float(value)) for value in self.values[first]} | {0.5}
        return tuple(self.at(value) for value in sorted(found, reverse=True))


def _rounded_down(value: float) -> float:
    """The value to three digits, never above it, so that as much is found at it."""
    return float(Context(prec=DIGITS, rounding=ROUND_FLOOR).create_decimal_from_float(value))
