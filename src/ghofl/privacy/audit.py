"""What a message or a total reveals to someone who reads it: the rows of a small class can be recovered.

::

    1 row    it is its own sum                                                       A
    2 rows   m ± δ,  m = A/2,  2δδᵀ = S − 2mmᵀ                                        A, S
    3 rows   m + F R(θ) q_i,  F Fᵀ = S − 3mmᵀ, for the one angle θ that gives integers  A, S

These are known attacks, so they show the least that can be learnt; only noise bounds the most.
"""

from dataclasses import dataclass, field
from math import ceil, pi, sqrt
from typing import Any

import numpy as np
import scipy

from ghofl.moments import Moments
from ghofl.privacy import Guarantee, plan_of
from ghofl.recipe import Recipe
from ghofl.shapes import Float, Int64

FEW = 3
BLOCK = 256  # angles tried at a time
ENOUGH = 64  # entries, those that vary most, are enough to find an angle
CORNERS = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])  # an equilateral triangle


@dataclass(frozen=True, slots=True, eq=False)
class Exposure:
    """A class with so few rows that its sums reveal single ones.

    `recovered` are the rows themselves, as integers on the grid, where they follow; `misfit` is the largest difference
    between the sums of those rows and the ones in the file. A misfit of 0 means that they are the rows or, where
    `is_shuffled`, that both values of every entry are right, but not which row has which.
    """

    label: int
    rows: int
    recovered: Int64[np.ndarray, "rows dim"] | None = field(default=None, repr=False)
    misfit: int | None = None
    is_shuffled: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the file reveals the rows exactly, entry by entry."""
        return self.misfit == 0

    def sentence(self, name: str) -> str:
        """What a reader learns about the class called `name`."""
        if self.rows == 1:
            return f"Class {name} has one row, and its sum is that row: the embedding is in the file, error 0."
        if self.is_exact and self.is_shuffled:
            return f"Class {name} has two rows; both values of every entry follow, though not which row has which, error 0."
        if self.is_exact:
            return f"Class {name} has {self.rows} rows, and all of them follow from its sums, error 0."
        if self.recovered is not None:
            return f"Class {name} has {self.rows} rows; a guess at them misses their sums by up to {self.misfit}."
        return f"Class {name} has {self.rows} rows: their mean is known, not the rows themselves."


_HANDED_OUT = (
    "The sites in the total get it, exact as it is (privacy.hand_out): each of them can take its own sums out and has the sum "
    "of the others. A site may be asked how often heads of it are right on its rows; its policy decides. "
)
_CHECKED = "The server gives it to none for whom too few sites, or a class with few rows, would be left."
_UNCHECKED = (
    "It is given to none for whom too few sites would be left; but how many rows of a class are left, nobody can check in a "
    "secure round: a class of which the others have one row shows that row."
)


@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """What a file would reveal, class by class."""

    recipe: Recipe
    rows: int
    guarantee: Guarantee | None
    exposures: tuple[Exposure, ...]
    blur: float | None

    @property
    def advantage(self) -> float | None:
        """The most by which anyone's rate of true positives exceeds that of false ones, in telling who was there."""
        # The total variation of N(0, 1) and N(μ, 1) is 2Φ(μ/2) − 1 (Dong, Roth & Su 2022).
        return None if self.guarantee is None else float(2 * scipy.special.ndtr(self.guarantee.mu / 2) - 1)

    def sentences(self) -> list[str]:
        """The findings in words, the worst first."""
        out = [exposure.sentence(repr(self.recipe.classes[exposure.label])) for exposure in self.exposures]
        if self.guarantee is not None:
            out.append(str(self.guarantee).splitlines()[0])
            out.append(
                f"Noise blurs the sum of a class by {self.blur:.3g} of the longest row, so no row can be read off."
            )
            out.append(
                f"Whether a {self.guarantee.unit} was there can be told with an advantage of at most {self.advantage:.3f} (the "
                "rate of true positives minus that of false ones)."
            )
        elif not out:
            out.append(f"No class has 1 to {FEW} rows, so no row follows from the sums of its class alone.")
        if self.guarantee is None:
            out.append("There is no noise: someone who knows all rows but one gets that one by subtraction.")
        if self.recipe.privacy.hand_out:
            out.append(_HANDED_OUT + (_UNCHECKED if self.recipe.privacy.secure else _CHECKED))
        return out

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain values."""
        return {
            "rows": self.rows,
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "noise_over_longest_row": self.blur,
            "exposed_classes": [
                {
                    "class": self.recipe.classes[e.label],
                    "rows": e.rows,
                    "misfit": e.misfit,
                    "is_exact": e.is_exact,
                    "is_shuffled": e.is_shuffled,
                    "recovered": None if e.recovered is None else e.recovered.tolist(),
                }
                for e in self.exposures
            ],
            "largest_advantage": self.advantage,
            "findings": self.sentences(),
        }


def audit(moments: Moments, recipe: Recipe, guarantee: Guarantee | None = None) -> Audit:
    """What the moments of a message or total reveal; `guarantee` is that of the noise in them.

    Examples
    --------
    >>> from ghofl.moments import Layout
    >>> from ghofl.recipe import Encoder
    >>> recipe = Recipe(("a", "b"), Encoder(dim=2))
    >>> moments = Moments.of(np.array([[3, 4]]), np.array([1]), Layout.of(recipe))
    >>> audit(moments, recipe).exposures[0].recovered
    array([[3, 4]])
    """
    exposed = exposures(moments) if guarantee is None else ()
    plan, blur = plan_of(recipe), None
    if guarantee is not None and plan is not None:
        blur = guarantee.sigmas["A"] * sqrt(moments.layout.dim) / plan.radius
    return Audit(recipe, moments.rows, guarantee, exposed, blur)


def exposures(moments: Moments) -> tuple[Exposure, ...]:
    """The classes of exact moments that have one to three rows, with those rows where they follow."""
    few = [int(c) for c in np.flatnonzero((moments.counts > 0) & (moments.counts <= FEW))]
    return tuple(_exposure(moments, c) for c in few)


def _exposure(moments: Moments, c: int) -> Exposure:
    n, total = int(moments.counts[c]), moments.sums[c]
    if n == 1:
        return Exposure(c, 1, total[None].copy(), 0)
    if moments.layout.has("S") and moments.layout.dim >= n - 1:
        rows = _rebuild(total, moments.by_class(c), n)
        wrong = np.abs(rows.T @ rows - moments.by_class(c)).max()
    elif moments.layout.has("D") and n == 2:
        apart = np.sqrt(np.maximum(moments.squares[c] / 2.0 - np.square(total / 2.0), 0.0))
        rows = np.rint(total / 2.0 + np.outer([1.0, -1.0], apart)).astype(np.int64)
        wrong = np.abs(np.square(rows).sum(axis=0) - moments.squares[c]).max()
    else:
        return Exposure(c, n)
    misfit = max(int(wrong), int(np.abs(rows.sum(axis=0) - total).max()))
    return Exposure(c, n, rows, misfit, is_shuffled=not moments.layout.has("S"))


def _rebuild(
    total: Int64[np.ndarray, " dim"], second: Int64[np.ndarray, "dim dim"], n: int
) -> Int64[np.ndarray, "n dim"]:
    """Two or three integer rows from their sum and their second moments."""
    mean = total / n
    scatter, last = second - n * np.outer(mean, mean), len(mean) - 1
    # Rows span n − 1 directions around their mean.
    values, vectors = scipy.linalg.eigh(scatter, subset_by_index=[last - n + 2, last], check_finite=False)
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    corners = np.array([[1.0, -1.0]]) * sqrt(0.5) if n == 2 else _rotation(_best_angle(mean, factor)) @ CORNERS
    return np.rint(mean + (factor @ corners).T).astype(np.int64)


def _best_angle(mean: Float[np.ndarray, " dim"], factor: Float[np.ndarray, "dim 2"]) -> float:
    """The angle at which all three rows are nearest to integers, by an ever finer search."""
    widest = np.argsort(np.square(factor).sum(axis=1))[-ENOUGH:]
    mean, factor = mean[widest], factor[widest]
    step = 0.1 / max(1.0, float(np.abs(factor).max()))  # entries move by less than a tenth between two angles
    angles = step * np.arange(ceil(2 * pi / 3 / step) + 1)  # a third of a turn changes only which row is which
    best = angles[_distances(mean, factor, angles).argmin()]
    while step > 1e-12:
        step /= 4
        angles = best + step * np.arange(-5, 6)
        best = angles[_distances(mean, factor, angles).argmin()]
    return float(best)


def _distances(
    mean: Float[np.ndarray, " dim"], factor: Float[np.ndarray, "dim 2"], angles: Float[np.ndarray, " k"]
) -> Float[np.ndarray, " k"]:
    """How far three rows are from integers, squared and summed, at each of some angles."""
    out = np.empty(len(angles))
    for start in range(0, len(angles), BLOCK):
        turns = np.moveaxis(_rotation(angles[start : start + BLOCK]), -1, 0)
        rows = mean[:, None] + factor @ turns @ CORNERS
        out[start : start + BLOCK] = np.square(rows - np.rint(rows)).sum(axis=(1, 2))
    return out


def _rotation(angle: Float[np.ndarray, "*k"] | float) -> Float[np.ndarray, "2 2 *k"]:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
