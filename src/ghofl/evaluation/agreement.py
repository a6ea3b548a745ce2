"""How far the class means of sites agree, compared with what their numbers of rows explain.

With features whitened by the covariance within classes, the mean of class c at site s and that of all others differ by ::

    q_sc = ‖m_sc − m_oc‖² / (v(N_sc) + v(N_oc) + τ²)        v(N) = 1/N + 2/N²

where the second term of v allows for the long tails of means of very few rows. For rows of one population it is
about χ² with as many degrees of freedom as there are directions. It is computed twice: along the directions that separate
classes (C − 1 of them: labels), and along all of them (features, counts). τ² is how much honest sites naturally differ:
the median over sites of what their numbers of rows do not explain. One site is left out, the one that makes it smallest,
so that a liar cannot hide behind the spread it causes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy

from ghofl.shapes import Bool, Float

CHANCE = 1e-4  # that one site's means are beyond the quantile, if rows are Gaussian
# How many times the quantile is too far, because rows are not Gaussian (see benchmarks/diagnosis.py).
LABELS, FEATURES = 1.6, 2.0
TAILS = 2.0  # rows: the mean of so few has about twice the spread, because rows have longer tails than a Gaussian
CANDIDATES = 8  # sites tried as the one that the others disagree with
CENTRE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """Squared gaps between each site's class means and those of all others, with the `variance` that counts explain.

    `labels` and `features` are means over directions; they are 0 where no other site has the class.
    """

    is_known: Bool[np.ndarray, "sites classes"]
    variance: Float[np.ndarray, "sites classes"]
    labels: Float[np.ndarray, "sites classes"]
    features: Float[np.ndarray, "sites classes"]
    directions: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Agreement:
    """Class means of sites, in whitened features, and which of the sites they are judged by (`active`).

    >>> rng = np.random.default_rng(0)
    >>> centres = np.eye(3) * 9.0
    >>> counts, means = np.full((4, 3), 25.0), centres + rng.normal(size=(4, 3, 3)) / 5.0
    >>> means[2] = means[2, [1, 0, 2]]  # two of its classes are swapped
    >>> found = Agreement(counts, means)
    >>> found.outliers(), found.without([2]).outliers()
    ([2], [])
    """

    counts: Float[np.ndarray, "sites classes"]
    means: Float[np.ndarray, "sites classes dim"] = field(repr=False)
    left_out: tuple[int, ...] = ()

    def without(self, sites: Sequence[int]) -> "Agreement":
        """The same sites, judged without these and those left out before."""
        return Agreement(self.counts, self.means, tuple(sorted({*self.left_out, *sites})))

    @cached_property
    def active(self) -> list[int]:
        """The sites that others are judged by."""
        return [s for s in range(len(self.counts)) if s not in self.left_out and self.counts[s].any()]

    @cached_property
    def basis(self) -> Float[np.ndarray, "dim directions"]:
        """Orthonormal directions that the class means of all active sites lie along."""
        totals = self.counts[self.active].sum(axis=0)
        centres = self._sums[self.active].sum(axis=0)[totals > 0] / totals[totals > 0, None]
        _, sizes, directions = np.linalg.svd(centres - centres.mean(axis=0), full_matrices=False)
        return directions[sizes > CENTRE * max(1.0, float(sizes.max(initial=0.0)))].T

    @cached_property
    def others(self) -> tuple[Float[np.ndarray, "sites classes"], Float[np.ndarray, "sites classes dim"]]:
        """Counts and means of each class at all active sites but the one in question."""
        mine = np.zeros(len(self.counts))
        mine[self.active] = 1.0
        counts = self.counts[self.active].sum(axis=0) - mine[:, None] * self.counts
        sums = self._sums[self.active].sum(axis=0) - mine[:, None, None] * self._sums
        return counts, sums / np.maximum(counts, 1.0)[:, :, None]

    @cached_property
    def gaps(self) -> Gaps:
        """How far every site is from the others, before honest differences are taken into account."""
        counts, means = self.others
        is_known = (self.counts > 0) & (counts > 0)
        variance = _variance(self.counts) + _variance(counts)
        apart = self.means - means
        dim, directions = apart.shape[2], max(1, self.basis.shape[1])
        along = np.square(apart @ self.basis).sum(axis=2) / directions
        whole = np.square(apart).sum(axis=2) / dim
        return Gaps(is_known, variance, along * is_known, whole * is_known, (directions, dim))

    @cached_property
    def spread(self) -> tuple[float, float]:
        """τ² along the directions of labels and of all features, with the most deviant site left out."""
        found = [self._spread]
        if len(self.active) > 2:
            found += [self.without([s])._spread for s in self._suspects(self._scores((0.0, 0.0)))]
        return min(f[0] for f in found), min(f[1] for f in found)

    @cached_property
    def scores(self) -> Float[np.ndarray, "sites kinds"]:
        """How far each site is from the others, in labels and in features: above 1 is too far."""
        return np.stack([each.max(axis=1) for each in self.by_class], axis=1)

    @cached_property
    def by_class(self) -> tuple[Float[np.ndarray, "sites classes"], Float[np.ndarray, "sites classes"]]:
        """The scores of every class, in labels and in features."""
        return self._by_class(self.spread)

    def likeness(self, s: int, c: int) -> tuple[int, float]:
        """The class of the others that class c of a site is nearest to, and how many times nearer it is than their c.

        Distances are along the directions of labels; the ratio is 1 where the nearest class is c itself.
        """
        counts, means = self.others
        distances = np.linalg.norm((means[s] - self.means[s, c]) @ self.basis, axis=1)
        distances[counts[s] == 0] = np.inf
        nearest = int(distances.argmin())
        ratio = float(distances[c] / max(distances[nearest], CENTRE)) if np.isfinite(distances[c]) else 1.0
        return nearest, ratio

    def outliers(self) -> list[int]:
        """The sites that the others disagree with, found one by one: each time the one without which the rest agree best.

        The search stops while more than half of the sites are left: a majority of liars cannot be found from means.
        """
        now, found = self, []
        while len(now.active) > max(2, len(self.active) // 2 + 1):
            worst = now.scores.max(axis=1)
            beyond = [s for s in now._suspects(worst) if worst[s] > 1.0]
            if not beyond:
                break
            found.append(min(beyond, key=lambda s: (now.without([s])._excess() - now._swaps(s), -worst[s])))
            now = now.without(found[-1:])
        final = now.scores.max(axis=1)
        return sorted(s for s in found if final[s] > 1.0)

    @cached_property
    def _sums(self) -> Float[np.ndarray, "sites classes dim"]:
        return self.counts[:, :, None] * self.means

    @cached_property
    def _spread(self) -> tuple[float, float]:
        gaps = self.gaps
        weights = gaps.is_known / gaps.variance
        known = [s for s in self.active if weights[s].any()]
        if len(known) < 2:
            return 0.0, 0.0
        share = weights[known] / weights[known].sum(axis=1, keepdims=True)
        excess = [(share * (gap - gaps.variance)[known]).sum(axis=1) for gap in (gaps.labels, gaps.features)]
        return max(0.0, float(np.median(excess[0]))), max(0.0, float(np.median(excess[1])))

    def _by_class(self, spread: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
        gaps, chance = self.gaps, CHANCE / self.counts.shape[1]
        limits = [float(scipy.special.chdtri(k, chance)) / k for k in gaps.directions]
        return (
            gaps.labels / (gaps.variance + spread[0]) / (LABELS * limits[0]),
            gaps.features / (gaps.variance + spread[1]) / (FEATURES * limits[1]),
        )

    def _scores(self, spread: tuple[float, float]) -> Float[np.ndarray, " sites"]:
        labels, features = self._by_class(spread)
        return np.maximum(labels, features).max(axis=1)

    def _suspects(self, scores: Float[np.ndarray, " sites"]) -> list[int]:
        return sorted(self.active, key=lambda s: -scores[s])[:CANDIDATES]

    def _excess(self) -> float:
        """How far all active sites together are beyond what is allowed."""
        return float(np.log(np.maximum(self.scores[self.active].max(axis=1), 1.0)).sum())

    def _swaps(self, s: int) -> float:
        """How much nearer the site's classes are to other classes than to their own: evidence that this site lies."""
        beyond = np.flatnonzero(self.by_class[0][s] > 1.0)
        return float(sum(np.log(self.likeness(s, int(c))[1]) for c in beyond))


def _variance(counts: Float[np.ndarray, "sites classes"]) -> Float[np.ndarray, "sites classes"]:
    """The variance of a class mean in whitened features: 1/N, and more where N is small."""
    rows = np.maximum(counts, 1.0)
    return (1.0 + TAILS / rows) / rows
