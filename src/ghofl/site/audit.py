"""What a message or a total reveals to someone who reads it: single rows, and whether a row is among its rows.

The rows of a small class can be recovered::

    1 row    it is its own sum                                                       A
    2 rows   m ± δ,  m = A/2,  2δδᵀ = S − 2mmᵀ                                        A, S
    3 rows   m + F R(θ) q_i,  F Fᵀ = S − 3mmᵀ, for the one angle θ that gives integers  A, S

and membership in a larger one can be inferred from how far the class mean leans towards a row (Homer et al. 2008). Both
are known attacks, so they show the least that can be learnt; only noise bounds the most.
"""

from dataclasses import asdict, dataclass, field, replace
from math import ceil, pi, sqrt
from typing import Any

import numpy as np
import scipy

from ghofl.errors import EmbeddingsError
from ghofl.features import Features
from ghofl.moments import Layout, Moments
from ghofl.privacy import Guarantee, NoisePlan, NoiseStream, add_noise, plan_of
from ghofl.recipe import Privacy, Recipe
from ghofl.shapes import Float, Int, Int64, Num

FEW = 3
BLOCK = 256  # angles tried at a time
WHAT_IF = Privacy(radius=1.0, epsilon=1.0, delta=1e-5)
ENOUGH = 64  # entries, those that vary most, are enough to find an angle
LONGEST = 0.99  # the quantile of row lengths that a what-if radius is set to
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


@dataclass(frozen=True, slots=True)
class Membership:
    """How well an attacker distinguishes members from others of the same class: `advantage` is TPR − FPR on unseen rows.

    `limit` is the most any attacker can reach under the noise: 2Φ(μ/2) − 1 for one record of a Gaussian mechanism.
    """

    noise: str
    members: int
    advantage: float
    auc: float
    limit: float | None = None

    def sentence(self) -> str:
        """The result in words."""
        bound = "" if self.limit is None else f" No attack can exceed {self.limit:.3f}."
        return (
            f"Membership, {self.noise}: advantage {self.advantage:.3f}, AUC {self.auc:.3f}, "
            f"with {self.members:,} shadow rows as members and as many others.{bound}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """What a file would reveal, class by class and by attack."""

    recipe: Recipe
    rows: int
    guarantee: Guarantee | None
    exposures: tuple[Exposure, ...]
    blur: float | None
    memberships: tuple[Membership, ...] = ()

    def sentences(self) -> list[str]:
        """The findings in words, the worst first."""
        out = [exposure.sentence(repr(self.recipe.classes[exposure.label])) for exposure in self.exposures]
        if self.guarantee is not None:
            out.append(str(self.guarantee).splitlines()[0])
            out.append(
                f"Noise blurs the sum of a class by {self.blur:.3g} of the longest row, so no row can be read off."
            )
        elif not out:
            out.append(f"No class has 1 to {FEW} rows, so no row follows from the sums of its class alone.")
        if self.guarantee is None:
            out.append("There is no noise: someone who knows all rows but one gets that one by subtraction.")
        return out + [membership.sentence() for membership in self.memberships]

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
            "membership": [asdict(membership) for membership in self.memberships],
            "findings": self.sentences(),
        }


def audit(
    moments: Moments,
    recipe: Recipe,
    guarantee: Guarantee | None = None,
    shadow: tuple[Num[np.ndarray, "n dim"], Int64[np.ndarray, " n"]] | None = None,
    seed: int = 0,
) -> Audit:
    """What the moments of a message or total reveal; `shadow` rows, similar to theirs, are for membership inference.

    Examples
    --------
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
    found = () if shadow is None else memberships(recipe, *shadow, moments.counts, seed)
    return Audit(recipe, moments.rows, guarantee, exposed, blur, found)


def exposures(moments: Moments) -> tuple[Exposure, ...]:
    """The classes of exact moments that have one to three rows, with those rows where they follow."""
    few = [int(c) for c in np.flatnonzero((moments.counts > 0) & (moments.counts <= FEW))]
    return tuple(_exposure(moments, c) for c in few)


def memberships(
    recipe: Recipe,
    x: Num[np.ndarray, "n dim"],
    y: Int64[np.ndarray, " n"],
    counts: Int64[np.ndarray, " classes"],
    seed: int = 0,
    stream: NoiseStream | None = None,
) -> tuple[Membership, Membership]:
    """Membership inference on shadow rows with classes as large as `counts`, without noise and with it.

    The noise is that of the recipe (see `with_noise`) or, where it has none, that of ε = 1, δ = 1e-5 for
    rows cut to the 99 % quantile of their lengths. It comes from the operating system's entropy unless a `stream` is given.
    """
    private = recipe if recipe.privacy.epsilon is not None else _what_if(recipe, x)
    exact = replace(private, privacy=Privacy(radius=private.privacy.radius))
    plan = plan_of(private)
    assert plan is not None
    limit = float(2 * scipy.special.ndtr(plan.guarantee.mu / 2) - 1)
    says = f"epsilon = {private.privacy.epsilon:g}" + ("" if private is recipe else " (if the recipe had it)")
    q, _ = Features.of(exact).rows(x)
    parts = _thirds(y, counts, np.random.default_rng(seed))
    counts_and_sums = replace(Layout.of(exact), statistics=(), sketch=0)  # all that the attack uses
    sums = Moments.of(q[parts[1]], y[parts[1]], counts_and_sums)
    without = _attack(sums, q, y, parts)
    with_it = _attack(with_noise(sums, plan, stream), q, y, parts)
    size = len(parts[1])
    return Membership("no noise", size, *without), Membership(says, size, *with_it, limit)


def with_noise(moments: Moments, plan: NoisePlan, stream: NoiseStream | None = None) -> Moments:
    """Moments of some of a plan's statistics, with the least noise that others ever see on them.

    That is the noise of a total (central), of one message (local), or of a total in which the fewest sites that
    privacy.min_cohort allows add their shares (distributed): no share is ever seen by itself.
    """
    stream = NoiseStream() if stream is None else stream
    of_these = replace(plan, layout=moments.layout)
    for _ in range(plan.draws):
        moments = add_noise(moments, of_these, stream)
    return moments


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


def _what_if(recipe: Recipe, x: np.ndarray) -> Recipe:
    lengths = np.linalg.norm(Features.of(recipe).values(x), axis=1)
    return replace(
        recipe, privacy=replace(WHAT_IF, radius=recipe.privacy.radius or float(np.quantile(lengths, LONGEST)))
    )


def _thirds(
    y: np.ndarray, counts: np.ndarray, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"], Int[np.ndarray, " c"]]:
    """Shadow rows in three parts: those the attacker knows, members, and as many others of each class."""
    known, members, others = [], [], []
    for c in np.flatnonzero(counts > 0):
        mine = rng.permutation(np.flatnonzero(y == c))
        size = min(int(counts[c]), len(mine) // 3)
        members.append(mine[:size])
        others.append(mine[size : 2 * size])
        known.append(mine[2 * size :])
    if sum(map(len, members)) < 4:
        raise EmbeddingsError(
            f"{len(y)} shadow rows are too few: membership needs at least six rows of a class that the file has."
        )
    return np.concatenate(known), np.concatenate(members), np.concatenate(others)


def _attack(
    moments: Moments, q: np.ndarray, y: np.ndarray, parts: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[float, float]:
    """Advantage and AUC of scores that are high where the mean of a row's class leans towards the row."""
    known, members, others = parts
    inside, outside = (_lean(moments, q[known], y[known], q[rows], y[rows]) for rows in (members, others))
    ranks = np.searchsorted(np.sort(outside), inside, side="left") + np.searchsorted(np.sort(outside), inside, "right")
    thresholds = np.concatenate([inside[::2], outside[::2]])  # chosen on one half, judged on the other
    gains = [np.mean(inside[::2] >= t) - np.mean(outside[::2] >= t) for t in thresholds]
    best = thresholds[int(np.argmax(gains))]
    return float(np.mean(inside[1::2] >= best) - np.mean(outside[1::2] >= best)), float(ranks.mean() / 2 / len(outside))


def _lean(
    moments: Moments, known: np.ndarray, known_y: np.ndarray, x: np.ndarray, y: np.ndarray
) -> Float[np.ndarray, " n"]:
    """Σ_j (x_j − μ_j)(A_cj/N_c − μ_j)/v_j, with mean μ of the class and variance v from rows the attacker knows."""
    scores, variance = np.zeros(len(x)), np.maximum(known.var(axis=0, dtype=np.float64), 1.0)
    for c in np.unique(y):
        mu = known[known_y == c].mean(axis=0, dtype=np.float64)
        leaning = (moments.sums[c] / max(1.0, float(moments.counts[c])) - mu) / variance
        scores[y == c] = (x[y == c] - mu) @ leaning
    return scores
