"""Least squares from moments, with its penalty chosen without data."""

from dataclasses import dataclass
from math import inf

import numpy as np
import scipy

from ghofl.errors import HeadError
from ghofl.gaussians import Gaussians
from ghofl.heads.head import Head
from ghofl.heads.options import HeadOptions, option
from ghofl.heads.rules import Linear
from ghofl.shapes import Float

LARGEST = 1024  # dimensions that are decomposed into eigenvectors
START, STRIDE = 30, 8  # where the search on the grid begins, and its first step
PROBES = 64
COARSE = 1e-4  # penalties from which single precision is enough to compare them
GRID = 10.0 ** np.linspace(-8, 3, 67)


@dataclass(frozen=True)
class RidgeOptions(HeadOptions, head="ridge"):
    """How far the weights are pulled towards zero."""

    penalty: float | None = option(
        None, "λ in units of the mean eigenvalue of G", between=(0, inf), auto="generalised cross-validation"
    )


def fit_ridge(gaussians: Gaussians, options: RidgeOptions = RidgeOptions()) -> Linear:
    """Ridge regression on one-hot labels. Fed3R (before its normalisation) and AFL are this head.

    With G = B − N m mᵀ, Q = Aᵀ − m nᵀ and n the counts::

        w = (G + λ I)⁻¹ Q      b = n/N − wᵀ m

    Without a given penalty, λ minimises the generalised cross-validation error (Golub, Heath & Wahba 1979), which
    needs the moments only::

        GCV = (RSS/N) / (1 − df/N)²      RSS = tr(diag n − n nᵀ/N) − 2⟨w, Q⟩ + ⟨w, G w⟩      df = 1 + Σ g_i/(g_i + λ)

    Up to 1,024 dimensions one eigendecomposition serves every λ of a grid of 67. Beyond, the same grid is searched in
    steps that get smaller, with one Cholesky factor each (in single precision from 10⁻⁴ on), and df comes from 64 fixed
    random signs v as the mean of vᵀ(G + λ I)⁻¹v (Hutchinson 1990), whose relative error is about 1/√(32 d).

    Guarantees
    ----------
    The same weights as ridge regression with an intercept on the rows themselves.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("B",))))
    >>> fit_ridge(gaussians).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """
    n, m, rows = gaussians.counts, gaussians.centre, gaussians.rows
    g, right = gaussians.total_covariance() * rows, (gaussians.means - m).T * n
    found = (
        _search_grid(g, right, n, options.penalty) if len(g) > LARGEST else _solve_whole(g, right, n, options.penalty)
    )
    return Linear(np.ascontiguousarray(found), np.where(n > 0, n / rows - found @ m, -np.inf))


HEAD = Head(RidgeOptions, fit_ridge, needs=(("B",),), log_posteriors=False)


def _solve_whole(
    g: Float[np.ndarray, "dim dim"], right: Float[np.ndarray, "dim classes"], n: np.ndarray, given: float | None
) -> Float[np.ndarray, "classes dim"]:
    """The weights of a given penalty, or of the best one of the grid, by eigenvectors."""
    values, vectors = scipy.linalg.eigh(g, check_finite=False)
    values, q = np.maximum(values, 0.0), vectors.T @ right
    unit = max(float(values.mean()), np.finfo(float).tiny)
    rows = float(n.sum())
    penalty = min(GRID[::-1] * unit, key=lambda p: _gcv(p, values, q, n, rows)) if given is None else given * unit
    return (vectors @ (q / np.maximum(values + penalty, np.finfo(float).tiny)[:, None])).T


def _gcv(penalty: float, values: np.ndarray, q: np.ndarray, n: np.ndarray, rows: float) -> float:
    """The generalised cross-validation error of one penalty, in the eigenbasis of G."""
    w = q / (values + penalty)[:, None]
    rss = n.sum() - n @ n / rows - 2.0 * np.sum(w * q) + np.sum(w * values[:, None] * w)
    return _error_of(rss, 1.0 + float(np.sum(values / (values + penalty))), rows)


def _error_of(rss: float, df: float, rows: float) -> float:
    """The generalised cross-validation error; infinite where no degrees of freedom are left.

    Sums of rows leave some. Sums with noise, and covariances that are a mean of two, can have more directions than rows.
    """
    return float(max(rss, 0.0)) / rows / (1.0 - df / rows) ** 2 if df < rows else np.inf


def _search_grid(
    g: Float[np.ndarray, "dim dim"], q: Float[np.ndarray, "dim classes"], n: np.ndarray, given: float | None
) -> Float[np.ndarray, "classes dim"]:
    """The weights of a given penalty, or of the best one that a search on the grid finds."""
    unit = max(float(np.trace(g)) / len(g), np.finfo(float).tiny)
    if given is not None:
        found, is_solved = _solve(g, q, given * unit)
        if not is_solved:
            raise HeadError(
                f"ridge with penalty={given:g} has no solution: features depend on each other; write a larger penalty, e.g. "
                "1e-6, or leave it out."
            )
        return np.ascontiguousarray(found.T)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(len(g), PROBES))
    columns, single, met = np.hstack([q, signs]), g.astype(np.float32), {}

    def error(i: int) -> float:
        if i not in met:
            precise = g if GRID[i] < COARSE else single
            met[i] = _error(precise, columns.astype(precise.dtype), GRID[i] * unit, n)
        return met[i]

    best, stride = START, STRIDE
    while stride:
        near = [i for i in (best + stride, best, best - stride) if 0 <= i < len(GRID)]  # of equals, the larger penalty
        nearest = min(near, key=error)
        best, stride = (nearest, stride) if nearest != best else (best, stride // 2)
    return np.ascontiguousarray(_solve(g, q, GRID[best] * unit)[0].T)


def _solve(
    g: Float[np.ndarray, "dim dim"], columns: Float[np.ndarray, "dim k"], penalty: float
) -> tuple[Float[np.ndarray, "dim k"], bool]:
    """(G + λ I)⁻¹ times columns, with λ at least the rounding of G, and whether it exists; zeros where it does not."""
    shifted = np.array(g, order="F")
    np.fill_diagonal(shifted, shifted.diagonal() + max(penalty, float(np.finfo(g.dtype).eps * np.trace(g) / len(g))))
    try:
        factor = scipy.linalg.cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return np.zeros_like(columns), False
    return scipy.linalg.cho_solve(factor, columns, check_finite=False), True


def _error(
    g: Float[np.ndarray, "dim dim"], columns: Float[np.ndarray, "dim k"], penalty: float, n: np.ndarray
) -> float:
    """The generalised cross-validation error of one penalty."""
    rows, (q, signs) = float(n.sum()), np.split(columns, [len(n)], axis=1)
    found, is_solved = _solve(g, columns, penalty)
    if not is_solved:
        return np.inf
    w, of_signs = np.split(found.astype(np.float64), [len(n)], axis=1)
    # ⟨w, G w⟩ = ⟨w, Q⟩ − λ‖w‖², as (G + λ I) w = Q.
    rss = n.sum() - n @ n / rows - np.sum(w * q) - penalty * np.sum(w * w)
    df = 1.0 + len(g) - penalty * float(np.sum(signs * of_signs)) / PROBES
    return _error_of(rss, df, rows)
