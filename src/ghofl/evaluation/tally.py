"""Calibration on real rows: a small second message of additive whole numbers.

A site scores its own labelled rows with a head and adds up two histograms: the log loss at each of a public list of
temperatures, and how many rows fall into each of a public list of ranges of the novelty. Both are whole numbers, so the
sum over sites is that of all rows, to the bit, however rows are split. The server takes the temperature of the least
log loss, and the quantiles of the novelty.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ghofl.classifier import Classifier
from ghofl.errors import HeadError, MessageError
from ghofl.heads.novelty import LEVELS, Novelty
from ghofl.privacy import Guarantee
from ghofl.shapes import Float, Int64, Integer

RATIOS = 2.0 ** (np.arange(-32, 33) / 8.0)  # temperatures to try, over the head's own
UNIT = 2**20  # log losses are counted in this share of a nat
MOST = 40.0  # nats: the largest log loss that one row counts for
BINS = 600
BELOW, ABOVE = 1.0, 4.0  # how far the ranges of the novelty reach, in units of the spread of its levels
FEWEST = 50  # rows needed for a temperature


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """A head's scores on labelled rows, summed up: log losses by temperature, rows by novelty.

    Guarantees
    ----------
    ``Tally.of(all rows)`` is the sum of the tallies of any split of them, to the bit.

    Examples
    --------
    >>> one = Tally(np.array([5]), np.array([2, 1]))
    >>> (one + one).losses, (one + one).novelties
    (array([10]), array([4, 2]))
    """

    losses: Int64[np.ndarray, " ratios"] = field(repr=False)
    novelties: Int64[np.ndarray, " bins"] = field(repr=False)

    @classmethod
    def zeros(cls) -> "Tally":
        """The tally of no rows."""
        return cls(np.zeros(len(RATIOS), dtype=np.int64), np.zeros(BINS, dtype=np.int64))

    @classmethod
    def of(cls, classifier: Classifier, x: np.ndarray, y: Integer[np.ndarray, " n"]) -> "Tally":
        """The tally of a head on these embeddings and class numbers."""
        scores, rows = classifier.scores(x), np.arange(len(y))
        losses = [
            np.rint(np.minimum(-np.log(np.maximum(p[rows, y], 1e-300)), MOST) * UNIT).astype(np.int64).sum()
            for p in (classifier.calibration.temper(ratio).probabilities(scores) for ratio in RATIOS)
        ]
        counts = cls.zeros().novelties
        if classifier.novelty_rule is not None and len(y):
            values = classifier.novelty_rule.scores(classifier.features.values(x))
            place = np.searchsorted(_edges(classifier.novelty_rule), values) - 1
            counts = np.bincount(np.clip(place, 0, BINS - 1), minlength=BINS).astype(np.int64)
        return cls(np.array(losses, dtype=np.int64), counts)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.losses + other.losses, self.novelties + other.novelties)

    def calibrate(self, classifier: Classifier, rows: int) -> Classifier:
        """The classifier with the temperature and the novelty quantiles of the rows behind this tally.

        The tally is exact. What the noise in the classifier's total promised does not hold for what was fitted to it, so the
        guarantee is dropped, and `revealed` says why.
        """
        if rows < FEWEST:
            raise HeadError(f"{rows} rows at all sites together are too few to calibrate on; give {FEWEST} or more.")
        ratio = float(RATIOS[int(np.argmin(self.losses))])
        rule = classifier.novelty_rule
        if rule is not None and self.novelties.sum():
            shares = np.concatenate([[0.0], np.cumsum(self.novelties) / self.novelties.sum()])
            # Ranges without rows repeat a share; the last edge of such a run is the one to interpolate from.
            kept = np.append(np.diff(shares) > 0, True)
            quantiles = (np.arange(LEVELS) + 0.5) / LEVELS
            rule = rule.measured_by(np.interp(quantiles, shares[kept], _edges(rule)[kept]))
        calibration = replace(classifier.calibration.temper(ratio), source="sites")
        revealed = f"{classifier.revealed} {_without_promise(classifier.guarantee)}".strip()
        return replace(
            classifier, calibration=calibration, novelty_rule=rule, guarantee=None, revealed=revealed, total=""
        )

    def to_dict(self) -> dict[str, Any]:
        """The tally as plain values."""
        return {"losses": self.losses.tolist(), "novelties": self.novelties.tolist()}

    @classmethod
    def of_values(cls, values: Any, rows: int, source: object) -> "Tally | None":
        """The tally of so many rows in a report from outside, where there is one; a damaged one raises `MessageError`.

        It weighs no more than its rows: each counts for so much log loss at most, and has one novelty, or none has.
        """
        if values is None:
            return None
        if not isinstance(values, Mapping) or set(values) != {"losses", "novelties"}:
            raise MessageError(f"{source}: the tally is damaged; ask the site to evaluate again.")
        losses, novelties = _whole(values["losses"], len(RATIOS), source), _whole(values["novelties"], BINS, source)
        if int(losses.max()) > rows * int(MOST * UNIT) or sum(novelties.tolist()) not in (0, rows):
            raise MessageError(f"{source}: the tally is not that of {rows:,} rows; ask the site to evaluate again.")
        return cls(losses, novelties)


def _without_promise(guarantee: Guarantee | None) -> str:
    """Why a calibrated head promises nothing, where the head that it was made from did."""
    if guarantee is None:
        return ""
    return (
        f"It was calibrated on exact counts of the sites' rows, which no noise covers: the promise of the head that it was made "
        f"from (epsilon = {guarantee.epsilon:.4g}, delta = {guarantee.delta:g}) does not hold for this one."
    )


def _edges(rule: Novelty) -> Float[np.ndarray, " edges"]:
    """The limits of the ranges, which follow from the head file."""
    low, high = float(rule.levels[0]), float(rule.levels[-1])
    spread = max(high - low, 1e-6)
    return np.linspace(low - BELOW * spread, high + ABOVE * spread, BINS + 1)


def _whole(values: Any, count: int, source: object) -> Int64[np.ndarray, " count"]:
    if (
        not isinstance(values, list)
        or len(values) != count
        or not all(type(v) is int and 0 <= v < 2**53 for v in values)
    ):
        raise MessageError(f"{source}: the tally is not {count} whole numbers from 0; ask the site to evaluate again.")
    return np.array(values, dtype=np.int64)
