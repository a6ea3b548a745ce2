"""Several rounds with fresh distributed noise, by brute force: the exact privacy loss of sums of discrete Gaussians.

On one entry that a record moves by one, a round shows q + X_1 + … + X_m with X_i discrete Gaussian. Its distribution is
convolved exactly, its privacy loss is a finite distribution, and that of several rounds is the convolution of those.
"""

import math

import numpy as np
import pytest
from scipy.signal import fftconvolve

from ghofl.moments import Layout, Moments
from ghofl.privacy import NoiseStream, compose, noise_plan
from ghofl.privacy.plan import add_noise
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


def test_the_noise_that_is_drawn_is_the_one_that_was_brought_to_account():
    layout = Layout(classes=40, dim=1, statistics=())
    privacy = Privacy(radius=1.0, epsilon=1.0, delta=1e-5, secure=True, noise="distributed", min_cohort=3)
    plan = noise_plan(layout, radius=1, privacy=privacy)
    drawn = np.concatenate(
        [
            sum(add_noise(Moments.zeros(layout), plan, NoiseStream(f"{i} {c}".encode())).counts for c in range(3))
            for i in range(50)
        ]
    )
    probabilities = of_a_round(plan.parameter("N"), 3)
    values = np.arange(len(probabilities)) - len(probabilities) // 2
    deviation = math.sqrt((probabilities * values**2).sum())
    assert abs(drawn.mean()) < 5 * deviation / math.sqrt(len(drawn))
    assert abs(drawn.var() / deviation**2 - 1) < 5 * math.sqrt(2 / len(drawn))


def test_the_same_noise_twice_composes_to_nothing_new_but_the_stream_of_a_round_does_not_repeat():
    """A round that is resumed draws from the stream that it wrote down; another round has another stream."""
    layout = Layout(classes=2, dim=2, statistics=("B",))
    privacy = Privacy(radius=1.0, epsilon=1.0, delta=1e-5, secure=True, noise="distributed", min_cohort=3)
    plan, secret = noise_plan(layout, radius=3, privacy=privacy), bytes(32)
    again = [add_noise(Moments.zeros(layout), plan, NoiseStream(secret)) for _ in range(2)]
    assert again[0] == again[1]
    assert add_noise(Moments.zeros(layout), plan, NoiseStream(b"another round")) != again[0]
