"""Class means free of what sites add to all of their rows, and each site's own offset: a mixed model from counts and sums.

A row of class c at site k is x = μ_c + g_k + e, with var(g) = ρ var(e) in every feature and one ρ for all of them. With n_k the
site's rows by class, A_k their sums, N_k = Σ_c n_kc, a_k = Σ_c A_kc and u_k = ρ / (1 + ρ N_k)::

    M = diag(Σ_k n_k) − Σ_k u_k n_k n_kᵀ      R = Σ_k A_k − Σ_k u_k n_k a_kᵀ      μ = M⁻¹ R
    g_k = u_k (a_k − n_kᵀ μ)                  Σ = (B − Σ_k u_k a_k a_kᵀ − Rᵀ μ) / (N − C)

ρ maximises the restricted likelihood (Patterson & Thompson 1971), with σ_j² the variance within the cells of site and class and
Q_j = Σ_kc A²_kcj / n_kc − Σ_k u_k a²_kj − Σ_c R_cj μ_cj::

    −½ [ Σ_j Q_j / σ_j² + d Σ_k log(1 + ρ N_k) + d log det M ]

It is 0, which changes nothing, where classes and sites are not connected, so that a difference between two classes could as
well be one between sites.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from ghofl import Classifier, Features, Gaussians, HeadSpec, Message, Total
from ghofl.evaluation.leave_out import ignore
from ghofl.heads.rules import Linear
from ghofl.shapes import Float, Int64, Num

RATIOS = np.concatenate([[0.0], 10.0 ** np.linspace(-5.0, 2.0, 57)])


@dataclass(frozen=True, eq=False)
class SiteEffects:
    """Class means free of site effects, the covariance around them, and ρ; in the units of what they were estimated from.

    Guarantees
    ----------
    With ρ = 0 they are the means and the shared covariance of all rows. Otherwise they are the generalised least squares
    estimate, and `offset` the best linear unbiased prediction.

    Examples
    --------
    >>> counts = np.array([[50, 50], [50, 50]])
    >>> sums = np.array([[[0.0], [100.0]], [[50.0], [150.0]]])  # the second site sees everything higher by 1
    >>> found = SiteEffects.estimate(counts, sums, np.array([[900.0]]))
    >>> found.ratio > 0, found.means.round(2).ravel()
    (True, array([0.5, 2.5]))
    """

    ratio: float
    means: Float[np.ndarray, "classes dim"] = field(repr=False)
    shared: Float[np.ndarray, "dim dim"] | None = field(default=None, repr=False)

    @classmethod
    def estimate(
        cls,
        counts: Num[np.ndarray, "sites classes"],
        sums: Num[np.ndarray, "sites classes dim"],
        second: Num[np.ndarray, "dim dim"],
    ) -> "SiteEffects":
        """The model of sites' counts and sums per class, and the second moments of all rows together."""
        n, rows = counts.astype(np.float64), float(counts.sum())
        centre = sums.sum(axis=(0, 1)) / rows  # means far from zero would cancel
        centred = sums - n[:, :, None] * centre
        second = second - rows * np.outer(centre, centre)
        present = n.sum(axis=0) > 0
        inside = _Sites(n[:, present], centred[:, present], second)
        ratio = float(RATIOS[int(np.argmax([inside.likelihood(r) for r in RATIOS]))]) if inside.is_connected else 0.0
        means = np.tile(centre, (n.shape[1], 1))
        means[present] += inside.means(ratio)
        return cls(ratio, means, inside.covariance(ratio))

    def apply(self, whole: Gaussians) -> Gaussians:
        """The Gaussians with these means and this covariance; those of single classes would hold site effects, and go."""
        return Gaussians(whole.counts, self.means, self.shared, rows_differ=whole.rows_differ)

    def offset(
        self, counts: Num[np.ndarray, " classes"], sums: Num[np.ndarray, "classes dim"]
    ) -> Float[np.ndarray, " dim"]:
        """g of a site, from its counts and sums per class."""
        weight = self.ratio / (1.0 + self.ratio * float(counts.sum()))
        return weight * (sums.sum(axis=0) - counts @ self.means)


def fit_without_site_effects(
    total: Total, messages: Iterable[Message], head: HeadSpec
) -> tuple[Classifier, SiteEffects]:
    """The head of a total's rows with what each site adds to all of its rows taken out; `messages` are all of the total's."""
    moments = total.moments
    counts, sums = zip(*((message.moments.counts, message.moments.sums) for message in messages), strict=True)
    unit = Features.of(total.recipe).unit
    effects = SiteEffects.estimate(np.array(counts), np.array(sums) * unit, moments.pooled() * unit**2)
    return Classifier.fit(total, head, ignore, adapt=effects.apply), effects


def offset_head(
    classifier: Classifier, effects: SiteEffects, x: Num[np.ndarray, "n dim"], y: Int64[np.ndarray, " n"]
) -> Classifier:
    """A linear head without site effects, moved by the offset that the labelled rows of one site predict."""
    rule, hot = classifier.rule, np.eye(len(classifier.recipe.classes))[y]
    assert isinstance(rule, Linear), "only a linear rule is moved by a shift of its bias"
    by = effects.offset(hot.sum(axis=0), hot.T @ classifier.features.values(x))
    return replace(classifier, rule=replace(rule, bias=rule.bias - rule.weights @ by))


class _Sites:
    """Counts and sums by site and class, of classes that have rows, and the sums that every ρ needs."""

    def __init__(self, n: np.ndarray, sums: np.ndarray, second: np.ndarray) -> None:
        self.n, self.sums, self.second = n, sums, second
        self.rows, self.totals = n.sum(axis=1), sums.sum(axis=1)
        self.cells = np.einsum("kcd,kc->d", np.square(sums), 1.0 / np.where(n > 0, n, 1.0))
        degrees = max(1.0, n.sum() - np.count_nonzero(n))
        within = (second.diagonal() - self.cells) / degrees
        self.varies = within > 1e-12 * np.maximum(second.diagonal() / n.sum(), np.finfo(float).tiny)
        self.within = np.where(self.varies, within, 1.0)

    @property
    def is_connected(self) -> bool:
        has = self.n > 0
        reached, before = has[:, :1].any(axis=1), 0
        while reached.sum() > before:  # sites that share a class with those that were reached
            before = reached.sum()
            reached = has[:, has[reached].any(axis=0)].any(axis=1)
        is_whole = bool(has[reached].any(axis=0).all())
        return len(self.n) > 1 and bool(self.varies.any()) and is_whole

    def _weights(self, ratio: float) -> np.ndarray:
        return ratio / (1.0 + ratio * self.rows)

    def _normal(self, ratio: float) -> tuple[np.ndarray, np.ndarray]:
        """M and R."""
        weighted = self._weights(ratio)[:, None] * self.n
        return np.diag(self.n.sum(axis=0)) - weighted.T @ self.n, self.sums.sum(axis=0) - weighted.T @ self.totals

    def means(self, ratio: float) -> Float[np.ndarray, "classes dim"]:
        return np.linalg.solve(*self._normal(ratio))

    def covariance(self, ratio: float) -> Float[np.ndarray, "dim dim"]:
        _, right = self._normal(ratio)
        shifted = self.totals * np.sqrt(self._weights(ratio))[:, None]
        degrees = max(1.0, self.rows.sum() - self.n.shape[1])
        return (self.second - shifted.T @ shifted - right.T @ self.means(ratio)) / degrees

    def likelihood(self, ratio: float) -> float:
        """The logarithm of the restricted likelihood, up to a constant."""
        matrix, right = self._normal(ratio)
        left = self.cells - self._weights(ratio) @ np.square(self.totals) - np.sum(right * self.means(ratio), axis=0)
        terms = np.log1p(ratio * self.rows).sum() + np.linalg.slogdet(matrix)[1]
        return -0.5 * float((left / self.within)[self.varies].sum() + self.varies.sum() * terms)
