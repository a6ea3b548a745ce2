"""The default head of totals with class covariances: LDA, and a share of what those covariances add to it."""

from dataclasses import dataclass

import numpy as np

from ghofl.gaussians import Gaussians, linalg
from ghofl.heads.dispersion import wideness
from ghofl.heads.head import Head
from ghofl.heads.lda import fit_lda
from ghofl.heads.options import HeadOptions, option
from ghofl.heads.qda import fit_quadratic
from ghofl.heads.rules import Linear, Mapped, Rule, Summed
from ghofl.shapes import Float, Int

# Chosen on the 52 sets of `CHOSEN_ON`, each with five splits, and on held-out training rows of four embeddings.
WEIGHT, SHRINKAGE, DOF = (0.65, 1.0), (0.01, 0.05), 50.0  # w and γ up to 128 dimensions and from 512 on; ν
WIDE, NARROW = 224.0, 128.0  # dimensions: a class covariance has at most the share 224/(k + 128)
ROWS, MOST = (2.0, 1.0), 128  # rows per dimension, of up to 128, at which a class covariance has half of that
ENOUGH = 1.0  # rows per dimension below which class covariances add nothing


@dataclass(frozen=True)
class HedgeOptions(HeadOptions, head="hedge"):
    """How much class covariances add to LDA, how far they are shrunk, and how heavy the tails are."""

    weight: float | None = option(
        None,
        "w, the share of what class covariances add; 0 is lda",
        between=(0, 1),
        auto="0.65, up to 1 in many dimensions",
    )
    shrinkage: float | None = option(
        None, "γ, the pull towards a sphere", between=(0, 1), auto="0.01, up to 0.05 in many dimensions"
    )
    dof: float = option(DOF, "ν, the degrees of freedom", above=0)


def fit_hedge(gaussians: Gaussians, options: HedgeOptions = HedgeOptions()) -> Rule:
    """LDA, and a share of what class covariances add to it where they can be relied on.

    ::

        s(x) = L(x) + w (Q(z) − L_z(z))          z the features that class covariances describe, k of them
        Σ̃_c = shrink((1 − λ_c) Σ_c + λ_c Σ_pool, γ)
        1 − λ_c = min(1, 224/(k + 128)) · n_c/(n_c + r min(k, 128))

    r falls from 2 up to 128 dimensions to 1 from 512 on. L is `lda` of all features and L_z of z; Q is a Student t per
    class with covariance Σ̃_c and ν degrees of freedom. A class of few rows gets nearly the shared covariance, whatever the
    others have. z leaves out features that take two values and columns of tables that reach far (`Gaussians.smooth`), whose
    squares mislead; in a recipe with a sketch it is the sketch. With fewer rows than features, and where no feature is
    left, the head is `lda`.

    Guarantees
    ----------
    With w = 0 it predicts as `lda`. It needs S, or B and a sketch.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("S",))))
    >>> fit_hedge(gaussians).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """
    linear, dim = fit_lda(gaussians), gaussians.means.shape[1]
    matrix, inside = None, gaussians
    if not gaussians.has_class_covariances:
        matrix, inside = gaussians.sketched().matrix, gaussians.sketched().gaussians
    columns = np.arange(inside.means.shape[1]) if inside.smooth is None else np.flatnonzero(inside.smooth)
    if options.weight == 0 or not len(columns) or gaussians.rows < ENOUGH * dim:
        return linear
    of_z, wide = inside.select(columns), wideness(len(columns))
    own, pooled = own_shares(of_z), of_z.pooled()
    weight = between(WEIGHT, wide) if options.weight is None else options.weight
    shrinkage = _usual_shrinkage(of_z) if options.shrinkage is None else options.shrinkage

    def covariance(c: int) -> Float[np.ndarray, "k k"]:
        return linalg.shrink(own[c] * of_z.by_class(c) + (1.0 - own[c]) * pooled, shrinkage)

    quadratic = fit_quadratic(of_z, covariance, options.dof)
    return _sum(linear, fit_lda(of_z), quadratic, _view(matrix, columns, dim), weight)


def between(ends: tuple[float, float], share: float) -> float:
    """From the first number to the second, in equal factors."""
    return ends[0] ** (1.0 - share) * ends[1] ** share


def own_shares(gaussians: Gaussians) -> Float[np.ndarray, " classes"]:
    """1 − λ_c: the share that the covariance of each class has, by its rows and the dimension."""
    dim, counts = gaussians.means.shape[1], gaussians.counts
    return min(1.0, WIDE / (dim + NARROW)) * counts / (counts + between(ROWS, wideness(dim)) * min(dim, MOST))


def _usual_shrinkage(gaussians: Gaussians) -> float:
    """γ; where rows are few, at least as much as LDA's."""
    usual = between(SHRINKAGE, wideness(gaussians.means.shape[1]))
    return max(usual, gaussians.shared_shrinkage()) if gaussians.fewness else usual


def _view(matrix: Int[np.ndarray, "dim sketch"] | None, columns: Int[np.ndarray, " k"], dim: int) -> np.ndarray | None:
    """The matrix from x to z; None where z is x."""
    if matrix is None:
        return None if len(columns) == dim else np.eye(dim)[:, columns]
    return matrix if len(columns) == matrix.shape[1] else matrix[:, columns].astype(np.float64)


def _sum(linear: Linear, linear_z: Linear, quadratic: Rule, view: np.ndarray | None, weight: float) -> Summed:
    """L − w L_z, which is linear in x, and w Q."""
    weights = linear.weights - weight * (linear_z.weights if view is None else linear_z.weights @ view.T)
    present = np.isfinite(linear.bias)
    bias = np.where(present, linear.bias - weight * np.where(present, linear_z.bias, 0.0), -np.inf)
    if view is not None:
        shift = None if view.dtype.kind == "i" else np.zeros(view.shape[1])  # whole numbers are the recipe's own sketch
        quadratic = Mapped(view, quadratic, shift)
    return Summed((("", Linear(weights, bias)), ("", quadratic)), np.array([1.0, weight]))


HEAD = Head(HedgeOptions, fit_hedge, needs=(("S",), ("B", "Z")))
