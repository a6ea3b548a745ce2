"""The Gaussians of a total, changed towards those of one site.

With n_c, A_c the site's own counts and sums, and μ_c, Σ the means and covariance of the total::

    own means        μ'_c = (A_c + κ μ_c) / (n_c + κ)
    own covariance   Σ'   = (1 − w) Σ + w Σ_own, which counts as 1 / ((1 − w)²/N + w²/n) rows
    own priors       π'_c = (n_c + κ π_c) / (n + κ)
    alone            the Gaussians of the site's own rows
"""

from dataclasses import dataclass, replace

import numpy as np

from ghofl.gaussians import Gaussians
from ghofl.gaussians.covariances import Mixed
from ghofl.gaussians.gaussians import Sketched
from ghofl.shapes import Float, Num


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What is changed for a site: `means` and `priors` are κ, `covariance` is w; None changes nothing.

    `alone` takes nothing from the total but the share that it has in own priors.

    >>> str(Adaptation(means=20.0, covariance=0.3, priors=2.0))
    'own means (20 pseudo-rows), own covariance (0.3), own priors (2 pseudo-rows)'
    """

    means: float | None = None
    covariance: float = 0.0
    priors: float | None = None
    alone: bool = False

    def __str__(self) -> str:
        parts = (
            "own rows only" if self.alone else "",
            "" if self.means is None else f"own means ({self.means:g} pseudo-rows)",
            f"own covariance ({self.covariance:g})" if self.covariance else "",
            "" if self.priors is None else f"own priors ({self.priors:g} pseudo-rows)",
        )
        return ", ".join(part for part in parts if part) or "nothing"

    @property
    def changes_gaussians(self) -> bool:
        """Whether means or covariances change, and not only priors."""
        return self.alone or (self.means, self.covariance) != (None, 0.0)

    def apply(self, whole: Gaussians, own: Gaussians) -> Gaussians:
        """The Gaussians of the total, changed towards those of the site."""
        if not self.changes_gaussians:
            return whole
        if self.alone:
            return replace(own, smooth=whole.smooth)
        sketch = None
        if whole.sketch is not None and own.sketch is not None:
            both = (whole.sketch, own.sketch)
            sketch = Sketched(whole.sketch.matrix, lambda: self.apply(*(seen.gaussians for seen in both)))
        return replace(_mix(whole, own, self._means(whole, own), self.covariance), sketch=sketch)

    def _means(self, whole: Gaussians, own: Gaussians) -> Float[np.ndarray, "classes dim"]:
        if self.means is None:
            return whole.means
        counts = own.counts[:, None]
        return (counts * own.means + self.means * whole.means) / np.maximum(counts + self.means, np.finfo(float).tiny)

    def shares(
        self, whole: Num[np.ndarray, " classes"], own: Num[np.ndarray, " classes"]
    ) -> Float[np.ndarray, " classes"]:
        """The priors of the site, from the total's counts and its own."""
        assert self.priors is not None
        return (own + self.priors * whole / whole.sum()) / (own.sum() + self.priors)


def _mix(whole: Gaussians, own: Gaussians, means: Float[np.ndarray, "classes dim"], weight: float) -> Gaussians:
    """The Gaussians of the total around other means, with a share of the site's covariance in all of its own."""
    if not weight:
        known = (whole.shared, whole.own_variances, whole.covariances)
        return Gaussians(whole.counts, means, *known, None, whole.rows_differ, whole.smooth)
    shared = None if whole.shared is None else (1.0 - weight) * whole.shared + weight * own.pooled()
    variances = own.pooled_variances()
    narrow = None if whole.own_variances is None else (1.0 - weight) * whole.own_variances + weight * variances
    inside = None if whole.covariances is None else Mixed(whole.covariances, own.pooled(), weight)
    # A head shrinks a covariance by how many rows it was measured on; a mean of two varies like one of so many.
    rows = 1.0 / ((1.0 - weight) ** 2 / whole.rows + weight**2 / own.rows)
    counts = whole.counts * (rows / whole.rows)
    return Gaussians(counts, means, shared, narrow, inside, None, whole.rows_differ, whole.smooth)
