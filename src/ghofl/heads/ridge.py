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

GRID = np.linspace(-5.0, 3.0, 49)  # log₁₀ of penalties, in units of the mean eigenvalue of G
# Chosen on the cells of `few_shots` and on 52 tables and sets of vectors, where 1.01 to 1.06 differ by 0.05 points at most.
COUNTED = 1.05  # how much a degree of freedom counts, so that there are fewer than 0.96 N
KNOWN = 1e-4  # the share of the labels' variance below which a residual is as good as none
WRONG = 10.0  # how many times the least eigenvalue, where it is negative, a penalty must be
FAR = 1e9  # the logarithm of an infinite error


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

    Without a given penalty, λ minimises the generalised cross-validation error (Golub, Heath & Wahba 1979), which needs the
    moments only, modified so that a degree of freedom counts a little more than once (Kim & Gu 2004; Lukas, de Hoog &
    Anderssen 2016)::

        GCV = (RSS/N + 10⁻⁴ T/N) / (1 − 1.05 df/N)²      RSS = T − ⟨w, Q⟩ − λ‖w‖²      T = N − Σ n_c²/N
        df = 1 + Σ g_i/(g_i + λ)      with g_i the eigenvalues of G

    With fewer rows than dimensions both RSS and 1 − df/N go to 0 with λ, and of their ratio only rounding is left. This
    error is infinite from df = N/1.05 on instead, and the share of T keeps it above 0 where the labels are told exactly.
    Of 49 values of λ the best one and its neighbours give a parabola in log λ, and its lowest point is taken: a small
    change of the moments moves it by little. G = U H Uᵀ with tridiagonal H, found once, serves every λ (Eldén 1977).

    Guarantees
    ----------
    The same weights as ridge regression with an intercept on the rows themselves. A unit more or less in every sum, and
    another order of adding, hardly move them (test_a_unit_in_every_sum_moves_the_penalty_by_less_than_a_step).

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> gaussians = Gaussians.estimate(Moments.of(x, y, Layout(2, 2, ("B",))))
    >>> fit_ridge(gaussians).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """
    n, m, rows = gaussians.counts, gaussians.centre, gaussians.rows
    equations = _Equations.of(gaussians.total_covariance() * rows, (gaussians.means - m).T * n)
    penalty = equations.best_penalty(n) if options.penalty is None else equations.checked(options.penalty)
    found = np.ascontiguousarray(equations.weights(penalty).T)
    return Linear(found, np.where(n > 0, n / rows - found @ m, -np.inf))


HEAD = Head(RidgeOptions, fit_ridge, needs=(("B",),), log_posteriors=False)


@dataclass(frozen=True, eq=False)
class _Equations:
    """(G + λ I) w = Q as (H + λ I) Uᵀw = UᵀQ with H tridiagonal; U is kept as reflectors."""

    diagonal: Float[np.ndarray, " dim"]
    beside: Float[np.ndarray, " beside"]
    reflectors: Float[np.ndarray, "less less"]
    scales: Float[np.ndarray, " less"]
    values: Float[np.ndarray, " dim"]
    right: Float[np.ndarray, "dim classes"]
    unit: float

    @classmethod
    def of(cls, g: Float[np.ndarray, "dim dim"], q: Float[np.ndarray, "dim classes"]) -> "_Equations":
        """The equations of G, which is overwritten, and Q."""
        lapack = scipy.linalg.lapack
        room = int(lapack.dsytrd_lwork(len(g), lower=1)[0])
        packed, diagonal, beside, scales, _ = lapack.dsytrd(g.T, lower=1, lwork=room, overwrite_a=1)
        reflectors = np.asfortranarray(packed[1:, :-1])
        values = scipy.linalg.eigvalsh_tridiagonal(diagonal, beside, check_finite=False, lapack_driver="sterf")
        unit = float(diagonal.mean())
        right = _rotate(reflectors, scales, q, "T")
        beside = beside if len(beside) else np.zeros(1)  # as LAPACK wants it of a single feature
        return cls(diagonal, beside, reflectors, scales, values, right, unit if unit > 0 else 1.0)

    def weights(self, penalty: float) -> Float[np.ndarray, "dim classes"]:
        """w of this penalty."""
        return _rotate(self.reflectors, self.scales, self._rotated(penalty), "N")

    def _rotated(self, penalty: float) -> Float[np.ndarray, "dim classes"]:
        """Uᵀw of this penalty."""
        return scipy.linalg.lapack.dptsv(self.diagonal + penalty, self.beside, self.right)[2]

    def checked(self, given: float) -> float:
        """A given penalty times the mean eigenvalue; raises `HeadError` where it leaves no solution."""
        penalty = given * self.unit
        rounding = float(np.finfo(float).eps * len(self.values) * self.values[-1])
        if self.values[0] + penalty <= rounding:
            raise HeadError(
                f"ridge with penalty={given:g} has no solution: features depend on each other; write a larger penalty, e.g. "
                "1e-6, or leave it out."
            )
        return penalty

    def best_penalty(self, n: Float[np.ndarray, " classes"]) -> float:
        """The penalty with the least error; of equal ones, the largest."""
        logs = np.full(len(GRID) + 2, FAR)  # beyond both ends too
        logs[1:-1] = [self.log_error(10.0**exponent * self.unit, n) for exponent in GRID]
        best = len(GRID) - int(np.argmin(logs[-2:0:-1]))
        below, here, above = logs[best - 1 : best + 2]
        bend = below - 2.0 * here + above
        steps = 0.5 * (below - above) / bend if bend > 0 else 0.0
        return self.unit * 10.0 ** (GRID[best - 1] + steps * (GRID[1] - GRID[0]))

    def log_error(self, penalty: float, n: Float[np.ndarray, " classes"]) -> float:
        """The logarithm of the generalised cross-validation error.

        Sums of rows have no negative eigenvalue. Those of other sums say how far these are off.
        """
        rows, values = float(n.sum()), np.maximum(self.values, 0.0)
        free = 1.0 - COUNTED * (1.0 + float(np.sum(values / (values + penalty)))) / rows
        if free <= 0 or penalty < -WRONG * self.values[0]:
            return FAR
        w, total = self._rotated(penalty), float(n.sum() - n @ n / rows)
        # ⟨w, G w⟩ = ⟨w, Q⟩ − λ‖w‖², as (G + λ I) w = Q.
        left = max(total - np.sum(w * self.right) - penalty * np.sum(w * w), 0.0) + KNOWN * total
        return float(np.log(max(left, np.finfo(float).tiny) / rows) - 2.0 * np.log(free))


def _rotate(
    reflectors: Float[np.ndarray, "less less"],
    scales: Float[np.ndarray, " less"],
    columns: Float[np.ndarray, "dim k"],
    how: str,
) -> Float[np.ndarray, "dim k"]:
    """U times columns (how = "N"), or its transpose ("T"); U leaves the first row as it is."""
    out = np.array(columns, order="F")
    if len(scales):
        room = max(1, 64 * columns.shape[1])
        out[1:] = scipy.linalg.lapack.dormqr("L", how, reflectors, scales, out[1:], room)[0]
    return out
