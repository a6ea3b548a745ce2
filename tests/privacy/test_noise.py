"""The noise is the discrete Gaussian: on every σ, to the bit, from the key alone."""

import numpy as np
import pytest
from scipy import stats

from ghofl.privacy import NoiseStream, PrivacyError, discrete_gaussian, noise, reach


def pmf(sigma, largest):
    y = np.arange(-largest, largest + 1)
    weights = np.exp(-(y**2) / (2 * sigma**2))
    return y, weights / weights.sum()


@pytest.mark.parametrize("sigma", [0.4, 0.75, 1.0, 1.5, 2.0, np.e, 6.6])
def test_draws_of_a_small_sigma_pass_a_chi_square_test(sigma):
    draws = discrete_gaussian(sigma, 400_000, NoiseStream(b"chi-square %f" % sigma))
    y, p = pmf(sigma, int(40 * sigma) + 2)
    expected = p * len(draws)
    seen = np.array([np.count_nonzero(draws == value) for value in y])
    kept = expected > 10
    rest = len(draws) - seen[kept].sum(), len(draws) - expected[kept].sum()
    observed, wanted = np.append(seen[kept], rest[0]), np.append(expected[kept], rest[1])
    enough = wanted > 1
    statistic = np.sum(np.square(observed - wanted)[enough] / wanted[enough])
    assert stats.chi2.sf(statistic, np.count_nonzero(enough) - 1) > 1e-3


@pytest.mark.parametrize("sigma", [64.0, 65.3, 1000.0, 12345.678, 1e6, 1e7, 2.0**50])
def test_draws_of_a_large_sigma_pass_a_kolmogorov_smirnov_test(sigma):
    draws = discrete_gaussian(sigma, 300_000, NoiseStream(b"ks %f" % sigma))
    # Spread over one step, the discrete Gaussian is normal to within 1/(24σ²), far below what 300,000 draws resolve.
    smooth = draws + np.random.default_rng(0).uniform(-0.5, 0.5, len(draws))
    assert stats.kstest(smooth / np.hypot(sigma, 12**-0.5), "norm").pvalue > 1e-3


@pytest.mark.parametrize("sigma", [1.0, 3.7306, 100.5, 1e5])
def test_moments_of_the_draws_are_those_of_the_distribution(sigma):
    n = 500_000
    draws = discrete_gaussian(sigma, n, NoiseStream(b"moments %f" % sigma)) / sigma
    assert abs(draws.mean()) < 4 / np.sqrt(n)
    assert draws.var() == pytest.approx(1.0, abs=4 * np.sqrt(2 / n) + 1e-6)
    assert stats.kurtosis(draws) == pytest.approx(0.0, abs=4 * np.sqrt(24 / n) + 1e-3)
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 4 / np.sqrt(n)


@pytest.mark.parametrize("sigma", [0.9, 2.5, 1e4])
def test_deciding_every_candidate_exactly_gives_the_same_draws(sigma, monkeypatch):
    """The float comparison is a short cut of the 192-bit one, never another answer."""
    fast = discrete_gaussian(sigma, 1000, NoiseStream(b"doubt"))
    monkeypatch.setattr(noise, "DOUBT", 1e9)
    assert np.array_equal(discrete_gaussian(sigma, 1000, NoiseStream(b"doubt")), fast)


def test_a_word_that_ties_with_a_cumulative_probability_is_settled_by_spare_bits():
    _, tops = noise._cumulative()
    stream = NoiseStream(b"rigged")
    stream.spare = lambda: 0
    assert noise._stretch(tops[:3], stream).tolist() == [0, 1, 2]
    stream.spare = lambda: 2**128 - 1
    assert noise._stretch(tops[:3], stream).tolist() == [1, 2, 3]


def test_the_last_word_of_all_still_has_a_stretch():
    """All ones ties with the tail of the table; the answer must stay inside it."""
    word = np.full(100, 2**64 - 1, dtype=np.uint64)
    k = noise._stretch(word, NoiseStream(b"ties"))
    assert k.min() >= 8
    assert k.max() <= noise.STRETCHES


def test_draws_depend_on_the_key_and_on_nothing_else():
    first = discrete_gaussian(5.5, (20, 3), NoiseStream(b"one"))
    assert first.shape == (20, 3)
    assert np.array_equal(first, discrete_gaussian(5.5, (20, 3), NoiseStream(b"one")))
    assert not np.array_equal(first, discrete_gaussian(5.5, (20, 3), NoiseStream(b"two")))
    assert not np.array_equal(discrete_gaussian(1e6, 9, NoiseStream()), discrete_gaussian(1e6, 9, NoiseStream()))


def test_a_stream_never_repeats_itself():
    stream = NoiseStream(b"stream")
    words = np.concatenate([stream.words(n) for n in (1, 1000, 3)])
    assert len(np.unique(words)) == 1004
    assert stream.spare() != stream.spare()


def test_no_draws_and_almost_no_noise_are_possible():
    assert discrete_gaussian(3.0, 0, NoiseStream()).shape == (0,)
    assert not discrete_gaussian(0.05, 1000, NoiseStream()).any()


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf"), 2.0**51])
def test_a_sigma_that_is_not_positive_or_too_large_is_refused(sigma):
    with pytest.raises(PrivacyError, match="sigma is"):
        discrete_gaussian(sigma, 3, NoiseStream())


def test_reach_is_beyond_every_draw_and_grows_slowly():
    draws = discrete_gaussian(50.0, 200_000, NoiseStream(b"reach"))
    assert np.abs(draws).max() < reach(50.0, len(draws)) < 1000
