"""Where classes differ: the few directions in which between-class variance exceeds within-class variance.

The Fisher directions solve S_B v = λ S_W v with S_W = shrink(Σ_pool, a) + ε I and S_B the covariance of the class
means. With S_W = L Lᵀ and M = L⁻¹ [√π_c (μ_c − m)]_c, they are V = L⁻ᵀ U from the singular vectors M = U s Qᵀ, and
λ = s². In the coordinates z = Vᵀx the shared covariance is the identity.
"""

from dataclasses import dataclass, field

import numpy as np
import scipy

from ghofl.errors import HeadError
from ghofl.gaussians import linalg
from ghofl.gaussians.gaussians import Gaussians
from ghofl.shapes import Float

SHRINKAGE = 0.05
EPSILON = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Fisher:
    """The Fisher subspace: `basis` V (dim × k) and the ratio λ of between to within variance along each direction.

    Guarantees
    ----------
    ``V.T @ S_W @ V`` is the identity. With all C₊ − 1 directions, LDA in ``x @ V`` ranks classes as LDA in x does.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> fisher = Fisher.of_dim(Gaussians.estimate(Moments.of(x, y, Layout(2, 2))), 1)
    >>> fisher.basis.shape, bool(fisher.ratios[0] > 10)
    ((2, 1), True)
    """

    basis: Float[np.ndarray, "dim k"] = field(repr=False)
    ratios: Float[np.ndarray, " k"]
    energy: float

    @classmethod
    def of_dim(cls, gaussians: Gaussians, dim: int, shrinkage: float = SHRINKAGE) -> "Fisher":
        """The `dim` strongest directions, or all C₊ − 1 where there are fewer."""
        basis, ratios = _directions(gaussians, shrinkage)
        return cls._first(basis, ratios, min(dim, len(ratios)))

    @classmethod
    def of_energy(
        cls, gaussians: Gaussians, energy: float = 0.995, at_most: int | None = None, shrinkage: float = SHRINKAGE
    ) -> "Fisher":
        """The fewest directions that hold `energy` of Σλ, and no more than `at_most`."""
        if not 0 < energy <= 1:
            raise HeadError(f"energy is {energy}; give a share above 0 and up to 1.")
        basis, ratios = _directions(gaussians, shrinkage)
        reached = np.cumsum(ratios) / max(ratios.sum(), 1e-300)
        dim = int(np.searchsorted(reached, energy * (1 - 1e-12))) + 1
        return cls._first(basis, ratios, min(dim, len(ratios), at_most or dim))

    @classmethod
    def _first(cls, basis: np.ndarray, ratios: np.ndarray, dim: int) -> "Fisher":
        return cls(basis[:, :dim].copy(), ratios[:dim].copy(), float(ratios[:dim].sum() / max(ratios.sum(), 1e-300)))

    def project(self, gaussians: Gaussians) -> Gaussians:
        """The Gaussians of z = Vᵀx."""
        return gaussians.mapped(self.basis)


def _directions(gaussians: Gaussians, shrinkage: float) -> tuple[np.ndarray, np.ndarray]:
    within = linalg.shrink(gaussians.pooled(), shrinkage)
    np.fill_diagonal(within, within.diagonal() + EPSILON)
    lower = linalg.cholesky(within, "the shared covariance")
    apart = (gaussians.means - gaussians.centre) * np.sqrt(gaussians.counts / gaussians.rows)[:, None]
    m = scipy.linalg.solve_triangular(lower, apart.T, lower=True, check_finite=False)
    u, s, _ = np.linalg.svd(m, full_matrices=False)
    keep = max(1, min(gaussians.present - 1, len(s)))
    return scipy.linalg.solve_triangular(lower, u[:, :keep], lower=True, trans=1, check_finite=False), s[:keep] ** 2
