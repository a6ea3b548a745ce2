"""Several rounds with fresh distributed noise, by brute force: the exact privacy loss of sums of discrete Gaussians.

On one entry that a record moves by one, a round shows q + X_1 + … + X_m with X_i discrete Gaussian. Its distribution is
convolved exactly, its privacy loss is a finite distribution, and that of several rounds is the convolution of those.
"""

import math

import numpy as np
import pytest
from scipy.signal import fftconvolve

from ghofl.moments import Layout
from ghofl.privacy import compose, noise_plan
from ghofl.recipe import Privacy

REACH = 14  # standard deviations; what is beyond has less than 10⁻⁴⁰ of the mass


def discrete_gaussian(sigma):
    """Probabilities of −r … r."""
    r = math.ceil(REACH * sigma)
    weights = np.exp(-0.5 * (np.arange(-r, r + 1) / sigma) ** 2)
    return weights / weights.sum()


def of_a_round(share, clients):
    """The noise in the sum of a round."""
    out = np.ones(1)
    for _ in range(clients):
        out = np.convolve(out, discrete_gaussian(share))
    return out


def delta_of_rounds(noise, step, rounds, epsilon):
    """The exact δ(ε) of several rounds, for a record that moves an entry by `step` in each: E[max(0, 1 − e^{ε − L})].

    Losses are rounded up to a grid, so that the result is a bound from above.
    """
    here, there = noise[step:], noise[:-step]  # P(y) with the record, P(y) without it, where both are positive
    keep = (here > 1e-60) & (there > 1e-60)
    losses = np.log(here[keep] / there[keep])
    width = 2e-4
    bins = np.ceil(losses / width).astype(int)
    lowest = bins.min()
    one = np.bincount(bins - lowest, weights=here[keep])
    total, start = np.ones(1), 0
    for _ in range(rounds):
        total, start = fftconvolve(total, one), start + lowest
    loss = (np.arange(len(total)) + start) * width
    return float((total * np.maximum(0.0, -np.expm1(epsilon - loss))).sum())


@pytest.mark.parametrize("clients", [2, 5])
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_rounds_with_fresh_shared_noise_keep_the_composed_epsilon_and_spend_most_of_it(clients, rounds):
    privacy = Privacy(radius=1.0, epsilon=0.3, delta=1e-5, secure=True, noise="distributed", min_cohort=clients)
    plan = noise_plan(Layout(classes=1, dim=1, statistics=()), radius=1, privacy=privacy, shares={"N": 1.0, "A": 1e-9})
    promised = compose([plan.guarantee] * rounds)
    assert promised.releases == rounds
    noise = of_a_round(plan.parameter("N"), clients)
    spent = delta_of_rounds(noise, 1, rounds, promised.epsilon)
    assert spent <= promised.delta
    # The lattice adds 4 to σ², so that a little less is spent than promised, and not much less.
    assert delta_of_rounds(noise, 1, rounds, 0.95 * promised.epsilon) > promised.delta


def test_fewer_clients_than_the_cohort_break_the_promise_and_the_brute_force_sees_it():
    privacy = Privacy(radius=1.0, epsilon=0.3, delta=1e-5, secure=True, noise="distributed", min_cohort=5)
    plan = noise_plan(Layout(classes=1, dim=1, statistics=()), radius=1, privacy=privacy, shares={"N": 1.0, "A": 1e-9})
    for rounds in (1, 4):
        promised = compose([plan.guarantee] * rounds)
        assert delta_of_rounds(of_a_round(plan.parameter("N"), 5), 1, rounds, promised.epsilon) <= promised.delta
        assert delta_of_rounds(of_a_round(plan.parameter("N"), 4), 1, rounds, promised.epsilon) > promised.delta
