import numpy as np
import pytest

from ghofl.errors import NotPositiveDefiniteError
from ghofl.gaussians import linalg


def covariance(rng, d=7):
    a = rng.normal(size=(d, 3 * d))
    return a @ a.T


def test_shrinkage_keeps_the_trace_and_ends_in_a_sphere(rng):
    sigma = covariance(rng)
    for amount in (0.0, 0.3, 1.0):
        assert np.trace(linalg.shrink(sigma, amount)) == pytest.approx(np.trace(sigma))
    assert linalg.shrink(sigma, 0.0) == pytest.approx(sigma)
    assert linalg.shrink(sigma, 1.0) == pytest.approx(np.eye(7) * np.trace(sigma) / 7)
    assert linalg.shrink(sigma, 0.4) is not sigma


@pytest.mark.parametrize("amount", [-0.1, 1.1, float("nan")])
def test_a_shrinkage_out_of_range_is_refused(amount):
    with pytest.raises(ValueError, match="give a number from 0"):
        linalg.shrink(np.eye(2), amount)


def test_a_whitener_gives_quadratic_forms_and_the_determinant(rng):
    sigma, x = covariance(rng), rng.normal(size=7)
    w, log_determinant = linalg.whitener(sigma, "it")
    assert np.sum((x @ w) ** 2) == pytest.approx(x @ np.linalg.solve(sigma, x))
    assert log_determinant == pytest.approx(np.linalg.slogdet(sigma)[1])
    assert not np.tril(w, -1).any()


def test_solving_is_the_inverse(rng):
    sigma, columns = covariance(rng), rng.normal(size=(7, 3))
    assert linalg.solve(sigma, columns, "it") == pytest.approx(np.linalg.inv(sigma) @ columns)


def test_a_singular_covariance_says_what_to_change():
    with pytest.raises(
        NotPositiveDefiniteError, match=r"the covariance of class 3 cannot be inverted .* shrinkage above 0"
    ):
        linalg.cholesky(np.diag([1.0, 0.0]), "the covariance of class 3")


def test_oas_of_a_sphere_is_full_shrinkage():
    assert linalg.oas(np.eye(5), rows=10) == 1.0
    assert linalg.oas(np.zeros((5, 5)), rows=10) == 1.0
