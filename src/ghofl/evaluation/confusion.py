"""How often predictions are right: additive counts first, rates from them."""

from dataclasses import dataclass, field

import numpy as np

from ghofl.shapes import Float, Int64, Integer

BINS = 15
Z = 1.959963984540054  # 95 % of a Gaussian lie within this many standard deviations


@dataclass(frozen=True, slots=True, eq=False)
class Confusion:
    """How often class i was predicted as class j; counts of sites add up to the counts of all.

    >>> result = Confusion.of(np.array([0, 0, 1]), np.array([0, 1, 1]), classes=2)
    >>> result.counts
    array([[1, 1], [0, 1]])
    >>> round(result.accuracy, 3), result.balanced_accuracy
    (0.667, 0.75)
    """

    counts: Int64[np.ndarray, "classes classes"] = field(repr=False)

    @classmethod
    def of(cls, y: Integer[np.ndarray, " n"], predicted: Integer[np.ndarray, " n"], classes: int) -> "Confusion":
        """The counts of one set of rows."""
        flat = np.bincount(y.astype(np.int64) * classes + predicted, minlength=classes * classes)
        return cls(flat.reshape(classes, classes).astype(np.int64))

    def __add__(self, other: "Confusion") -> "Confusion":
        return Confusion(self.counts + other.counts)

    @property
    def rows(self) -> int:
        """How many rows were judged."""
        return int(self.counts.sum())

    @property
    def rarest(self) -> int:
        """The class with the fewest rows of those that have any; the last of several."""
        rows = self.counts.sum(axis=1)
        return len(rows) - 1 - int(np.argmin(np.where(rows > 0, rows, self.rows + 1)[::-1]))

    @property
    def is_rarest_alone(self) -> bool:
        """Whether no other class has as few rows."""
        rows = self.counts.sum(axis=1)
        return int(np.count_nonzero(rows == rows[self.rarest])) == 1

    @property
    def has_rare(self) -> bool:
        """Whether a class has less than half of what each would have if all had the same."""
        rows = self.counts.sum(axis=1)
        return bool(rows[self.rarest] < 0.5 * self.rows / np.count_nonzero(rows)) if self.rows else False

    @property
    def accuracy(self) -> float:
        """The share of rows whose class was predicted."""
        return float(np.trace(self.counts) / max(1, self.rows))

    @property
    def recalls(self) -> np.ndarray:
        """The share of each class's rows that was predicted as that class; NaN for a class without rows."""
        rows = self.counts.sum(axis=1)
        return np.where(rows > 0, np.diag(self.counts) / np.maximum(rows, 1), np.nan)

    @property
    def precisions(self) -> np.ndarray:
        """The share of the rows predicted as each class that belong to it; NaN for a class that is never predicted."""
        predicted = self.counts.sum(axis=0)
        return np.where(predicted > 0, np.diag(self.counts) / np.maximum(predicted, 1), np.nan)

    @property
    def balanced_accuracy(self) -> float:
        """The mean recall over classes that have rows."""
        return float(np.nanmean(self.recalls)) if self.rows else 0.0

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the accuracy on more rows of this kind (see `wilson`)."""
        return wilson(int(np.trace(self.counts)), self.rows)

    @property
    def balanced_interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the mean recall on more rows of this kind.

        The squared distances of the classes' own limits from their recalls add up, as for independent shares
        (Zou & Donner 2008)::

            mean − √Σ (r_c − l_c)² / C      mean + √Σ (u_c − r_c)² / C
        """
        pairs = [(int(row[c]), int(row.sum())) for c, row in enumerate(self.counts) if row.sum()]
        if not pairs:
            return 0.0, 1.0
        shares, limits = np.array([right / rows for right, rows in pairs]), np.array([wilson(*pair) for pair in pairs])
        down, up = (float(np.sqrt(((limits[:, i] - shares) ** 2).sum()) / len(pairs)) for i in (0, 1))
        return max(0.0, self.balanced_accuracy - down), min(1.0, self.balanced_accuracy + up)

    @property
    def macro_f1(self) -> float:
        """The mean over classes of 2·right / (rows + predictions); a class with neither does not count."""
        both = self.counts.sum(axis=0) + self.counts.sum(axis=1)
        seen = both > 0
        return float(np.mean(2.0 * np.diag(self.counts)[seen] / both[seen])) if self.rows else 0.0


def wilson(right: int, rows: int) -> tuple[float, float]:
    """The 95 % interval of a probability, after `right` of `rows` independent trials succeeded (Wilson 1927)::

        (p + z²/2n ± z √(p (1 − p)/n + z²/4n²)) / (1 + z²/n)

    >>> [round(end, 3) for end in wilson(95, 100)], wilson(0, 0)
    ([0.888, 0.978], (0.0, 1.0))
    """
    if not rows:
        return 0.0, 1.0
    share, square = right / rows, Z * Z / rows
    middle, reach = share + square / 2, Z * np.sqrt(share * (1 - share) / rows + square / (4 * rows))
    low, high = float((middle - reach) / (1 + square)), float((middle + reach) / (1 + square))
    return (0.0 if not right else low), (1.0 if right == rows else high)


def interval_text(interval: tuple[float, float], digits: int = 1) -> str:
    """An interval of shares in per cent, for people.

    >>> interval_text((0.8883, 0.9784))
    '88.8–97.8'
    """
    return "–".join(f"{100 * end:.{digits}f}" for end in interval)


def expected_calibration_error(probabilities: Float[np.ndarray, "n classes"], y: Integer[np.ndarray, " n"]) -> float:
    """The mean gap between confidence and accuracy over 15 equal bins of confidence (Guo et al. 2017).

    >>> expected_calibration_error(np.array([[0.8, 0.2], [0.8, 0.2]]), np.array([0, 1])).__round__(2)
    0.3
    """
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == y
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, right - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / max(1, len(y)))
