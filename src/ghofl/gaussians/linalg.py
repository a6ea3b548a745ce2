"""The matrix operations that heads share: shrinkage, Cholesky factors with a helpful error, whitening."""

import numpy as np
import scipy

from ghofl.errors import HeadError, NotPositiveDefiniteError
from ghofl.shapes import Float


def shrink(sigma: Float[np.ndarray, "d d"], amount: float) -> Float[np.ndarray, "d d"]:
    """A covariance pulled towards a sphere of the same total variance: (1−a) Σ + a (tr Σ / d) I.

    >>> shrink(np.diag([1.0, 3.0]), 0.5)
    array([[1.5, 0. ], [0. , 2.5]])
    """
    check_share("shrinkage", amount, "as measured", "a sphere")
    out = (1.0 - amount) * sigma
    np.fill_diagonal(out, out.diagonal() + amount * np.trace(sigma) / len(sigma))
    return out


def ease_shrinkage(usual: float, rows: float, dim: int) -> float:
    """The shrinkage of a covariance of `rows` rows: the usual amount, and less from five rows per dimension on.

    ::

        a = usual · min(1, 5 d / n)

    The usual amounts were chosen on embeddings with fewer rows than that; with more rows, the measured covariance is
    better than a shrunk one.

    >>> ease_shrinkage(0.1, rows=500, dim=1280), ease_shrinkage(0.1, rows=10_000, dim=20)
    (0.1, 0.001)
    """
    return usual * min(1.0, 5.0 * dim / max(rows, 1.0))


def check_share(name: str, value: float, at_zero: str, at_one: str) -> None:
    """Raise unless an option lies between 0 and 1."""
    if not 0 <= value <= 1:
        raise HeadError(f"{name} is {value}; give a number from 0 ({at_zero}) to 1 ({at_one}).")


def oas(sigma: Float[np.ndarray, "d d"], rows: float) -> float:
    """The shrinkage amount that is best for Gaussian rows, from the covariance alone.

    Oracle approximating shrinkage (Chen, Wiesel, Eldar & Hero 2010) of a covariance Σ divided by `rows`::

        ρ = min(1, (a + t²) / ((n + 1)(a − t²/d)))      a = mean(Σ_ij²)      t = tr Σ / d

    >>> round(oas(np.diag([1.0, 2.0, 3.0]), rows=100), 4)
    0.2475
    """
    d = len(sigma)
    a, t = float(np.mean(sigma**2)), float(np.trace(sigma)) / d
    excess = (rows + 1.0) * (a - t**2 / d)
    return 1.0 if excess <= 0 else min(1.0, (a + t**2) / excess)


def cholesky(sigma: Float[np.ndarray, "d d"], what: str) -> Float[np.ndarray, "d d"]:
    """The lower triangle L with L Lᵀ = Σ, or an error that says what to change."""
    try:
        # The transpose is the same matrix in the order that LAPACK works on.
        return scipy.linalg.cholesky(sigma.T, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        if not np.trace(sigma) > 0:  # shrinking a matrix of zeros changes nothing
            raise NotPositiveDefiniteError(
                f"{what} is zero: the total does not show how rows of a class vary, for example "
                "because every class has one row. Add sites with more rows, or use the head nearest_mean or ridge."
            ) from None
        smallest = float(np.linalg.eigvalsh(sigma)[0])
        raise NotPositiveDefiniteError(
            f"{what} cannot be inverted (smallest eigenvalue {smallest:.3g} in {len(sigma)} dimensions); "
            "there are too few rows, or features are constant. Use a shrinkage above 0, a projection, or a head with fewer "
            "parameters."
        ) from None


def whitener(sigma: Float[np.ndarray, "d d"], what: str) -> tuple[Float[np.ndarray, "d d"], float]:
    """W = L⁻ᵀ (upper triangular, so ‖xᵀW‖² = xᵀΣ⁻¹x) and log|Σ|."""
    lower = cholesky(sigma, what)
    (trtri,) = scipy.linalg.get_lapack_funcs(("trtri",), (lower,))
    inverse, info = trtri(lower, lower=1)
    assert info == 0, "a Cholesky factor has a positive diagonal"
    return np.ascontiguousarray(inverse.T), 2.0 * float(np.log(lower.diagonal()).sum())


def solve(sigma: Float[np.ndarray, "d d"], columns: Float[np.ndarray, "d k"], what: str) -> Float[np.ndarray, "d k"]:
    """Σ⁻¹ applied to columns, through a Cholesky factor."""
    return scipy.linalg.cho_solve((cholesky(sigma, what), True), columns, check_finite=False)


def inverse(lower: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    """The upper triangle of Σ⁻¹ from the Cholesky factor of Σ; what lies below it means nothing."""
    (potri,) = scipy.linalg.get_lapack_funcs(("potri",), (lower,))
    found, info = potri(lower, lower=1)
    assert info == 0, "a Cholesky factor has a positive diagonal"
    return found.T
