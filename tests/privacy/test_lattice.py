"""Noise on the integers keeps the promise of the continuous Gaussian: alone, in many dimensions, and in sums."""

from math import exp, log1p, pi, sqrt

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st

from ghofl.privacy import NoiseStream, PrivacyError, delta_of, discrete_gaussian, lattice_sigma, share_sigma, slack


def pmf(sigma, largest=200):
    weights = np.exp(-(np.arange(-largest, largest + 1.0) ** 2) / (2 * sigma**2))
    return weights / weights.sum()


def eta(tau):
    zeta = 2 * sum(exp(-2 * (pi * tau * k) ** 2) for k in (1, 2, 3))
    return log1p(zeta) - log1p(-zeta)


@pytest.mark.parametrize("v", [0.5, 0.6, 0.8, 1.0, 2.0 * sqrt(2)])
def test_sums_of_shares_are_a_discrete_gaussian_within_the_proved_factor(v):
    """The proof of `lattice` at parameters where the distance can be seen in floats, and at the one in use."""
    total = pmf(v)
    for m in range(2, 6):
        total = np.convolve(total, pmf(v), mode="same")
        one = pmf(v * sqrt(m))
        seen = one > 1e-12
        distance = np.abs(np.log(total[seen] / one[seen])).max()
        assert distance <= 2 * (m - 1) * eta(v / sqrt(2)) + 1e-9


@pytest.mark.parametrize("tau", [0.4, 0.5, 0.7])
def test_a_rounded_continuous_release_is_discrete_within_the_proved_factor(tau):
    s = 1.3
    sigma, n = sqrt(s * s + tau * tau), np.arange(-6, 7)
    y = np.linspace(-14, 14, 28 * 2000 + 1)
    kernel = np.exp(-((n[:, None] - y) ** 2) / (2 * tau**2))
    norm = np.exp(-((np.arange(-25, 26)[:, None] - y) ** 2) / (2 * tau**2)).sum(axis=0)
    released = (np.exp(-(y**2) / (2 * s * s)) / sqrt(2 * pi) / s * kernel / norm).sum(axis=1) / 2000
    one = pmf(sigma)[200 + n]
    assert np.abs(np.log(released / one)).max() <= eta(tau) + 1e-9


@pytest.mark.parametrize("sensitivity", [1, 3, 10])
@pytest.mark.parametrize("sigma", [0.5, 2.0, 7.3])
def test_discrete_noise_is_at_least_as_private_as_claimed(sigma, sensitivity):
    """dp-accounting's discrete Gaussian, one dimension: its δ is below the one we state, at every ε."""
    exact = pld.from_discrete_gaussian_mechanism(lattice_sigma(sigma), sensitivity, value_discretization_interval=1e-3)
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
        stated = delta_of(epsilon, sigma, sensitivity)
        assert exact.get_delta_for_epsilon(epsilon) <= stated * 1.01 + 1e-9


def test_discrete_noise_in_several_dimensions_is_at_least_as_private_as_claimed():
    """A record that moves 16 entries by one each: sensitivity 4, and no one-dimensional argument."""
    sigma = 6.0
    each = pld.from_discrete_gaussian_mechanism(lattice_sigma(sigma), 1, value_discretization_interval=1e-4)
    exact = each.self_compose(16)
    for epsilon in (0.25, 1.0, 2.0):
        assert exact.get_delta_for_epsilon(epsilon) <= delta_of(epsilon, sigma, 4.0) * 1.01 + 1e-9


@given(st.floats(1e-3, 1e9), st.integers(1, 5000))
def test_the_smallest_cohort_reaches_the_noise_that_was_asked_for(sigma, survivors):
    share = share_sigma(sigma, survivors)
    assert survivors * share**2 >= sigma**2 + 4
    assert share >= 2 * sqrt(2)


def test_sums_of_shares_have_the_variance_promised():
    sigma, m = 40.0, 7
    stream = NoiseStream(b"shares")
    total = sum(discrete_gaussian(share_sigma(sigma, m), 100_000, stream) for _ in range(m))
    assert total.var() == pytest.approx(lattice_sigma(sigma) ** 2, rel=0.02)


def test_the_price_of_the_lattice_cannot_be_seen():
    assert 0 < slack(10**9, 10**4) < 1e-20
    assert lattice_sigma(1000.0) / 1000.0 - 1 < 2.1e-6


def test_noise_without_size_or_survivors_is_refused():
    with pytest.raises(PrivacyError, match="min_survivors is 0"):
        share_sigma(5.0, 0)
    with pytest.raises(PrivacyError, match="sigma is 0"):
        lattice_sigma(0.0)
