import numpy as np
import pytest

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


def test_oas_of_a_sphere_is_full_shrinkage():
    assert linalg.oas(np.eye(5), rows=10) == 1.0
    assert linalg.oas(np.zeros((5, 5)), rows=10) == 1.0
