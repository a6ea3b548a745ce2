"""The quadratic head with few parameters: a diagonal and r directions per class."""

from dataclasses import dataclass
from math import inf

import numpy as np
import scipy

from ghofl.compute.threads import parallel_for
from ghofl.gaussians import Gaussians
from ghofl.heads.head import Head
from ghofl.heads.naive_bayes import FLOOR
from ghofl.heads.options import HeadOptions, option
from ghofl.heads.qda import OWN
from ghofl.heads.rules import LowRank
from ghofl.shapes import Float


@dataclass(frozen=True)
class LowRankQDAOptions(HeadOptions, head="low_rank_qda"):
    """How much of a class covariance is kept."""

    rank: int = option(16, "r, the directions that each class keeps; 0 for a diagonal", between=(0, inf), paper=16)
    shrinkage: float | None = option(
        None, "a, the pull towards a sphere", between=(0, 1), auto="0.1, less when there are many rows", paper=0.1
    )


def fit_low_rank_qda(gaussians: Gaussians, options: LowRankQDAOptions = LowRankQDAOptions()) -> LowRank:
    """Diagonal plus low rank: Σ̃_c ≈ diag(v_c) + U_c U_cᵀ with U_c of rank r.

    U_c holds the r leading eigenvectors of (1 − a) Σ_c, scaled by the roots of their eigenvalues; v_c is the rest
    of the diagonal of shrink(Σ_c, a). By Woodbury, with K_c = I + U_cᵀ V_c⁻¹ U_c = L_c L_cᵀ and V = diag(v)::

        (x−μ)ᵀ Σ̃⁻¹ (x−μ) = Σ_j (x_j−μ_j)²/v_j − ‖L⁻¹ Uᵀ V⁻¹ (x−μ)‖²      log|Σ̃| = Σ_j log v_j + log|K|

    Guarantees
    ----------
    The diagonal of Σ̃_c is kept exactly. Rank 0 without shrinkage is `nb` up to N_c/(N_c − 1); rank d is `qda` with the
    same shrinkage. It needs S in the total, but the rule itself has O(C d r) numbers.
    """
    classes, dim = gaussians.means.shape
    rank = min(options.rank, dim)
    precisions, directions = np.ones((classes, dim)), np.zeros((classes, dim, rank))
    offsets = gaussians.log_priors.copy()
    amount = gaussians.ease_shrinkage(OWN) if options.shrinkage is None else options.shrinkage

    def fill(c: int) -> None:
        v, u = _split(gaussians.by_class(c), rank, amount)
        precisions[c] = 1.0 / v
        scaled = u * precisions[c][:, None]
        lower = np.linalg.cholesky(np.eye(rank) + u.T @ scaled)
        directions[c] = scipy.linalg.solve_triangular(lower, scaled.T, lower=True, check_finite=False).T
        offsets[c] -= 0.5 * (np.log(v).sum() + 2.0 * np.log(lower.diagonal()).sum())

    parallel_for(fill, np.flatnonzero(gaussians.counts).tolist())
    return LowRank(gaussians.means, precisions, directions, offsets)


HEAD = Head(LowRankQDAOptions, fit_low_rank_qda, needs=(("S",),))


def _split(
    sigma: Float[np.ndarray, "d d"], rank: int, shrinkage: float
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d r"]]:
    """The diagonal v and the directions U of shrink(Σ, a)."""
    values, vectors = _leading(sigma, rank)
    u = vectors * np.sqrt((1.0 - shrinkage) * np.maximum(values, 0.0))
    left = (1.0 - shrinkage) * sigma.diagonal() - np.einsum("dr,dr->d", u, u)
    return np.maximum(left, 0.0) + max(shrinkage * np.trace(sigma) / len(sigma), FLOOR), u


def _leading(sigma: Float[np.ndarray, "d d"], rank: int) -> tuple[np.ndarray, np.ndarray]:
    d = len(sigma)
    if rank == 0 or not sigma.any():  # Lanczos cannot start from a matrix of zeros
        return np.zeros(rank), np.zeros((d, rank))
    if rank > d // 8:
        values, vectors = scipy.linalg.eigh(sigma, check_finite=False)
        return values[d - rank :], vectors[:, d - rank :]
    # Lanczos from a fixed start: the same bits every time, and far fewer products than a full decomposition.
    start = np.full(d, 1.0 / np.sqrt(d))
    values, vectors = scipy.sparse.linalg.eigsh(sigma, k=rank, v0=start)
    return values, vectors
