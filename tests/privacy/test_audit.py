"""An attacker who knows everything but one record cannot beat the claimed ε; with too little noise he is seen to.

Where all is stored per class, the classes of one noisy total are independent releases: the record is in class c or it is not. The
attacker's score is the exact log likelihood ratio; thresholds come from one half of the releases, and the other half
bounds ε from below by Clopper–Pearson intervals of 99.9 %.
"""

from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest
from scipy import stats

from ghofl.moments import Layout, Moments
from ghofl.privacy import NoiseStream, add_noise, clip_rows, noise_plan
from ghofl.recipe import Privacy
from ghofl.statistics.triangles import diagonal

RELEASES, DIM, RADIUS = 60_000, 2, 50
LAYOUT = Layout(RELEASES, DIM, ("S",))
SQUARES = Layout(RELEASES, DIM, ("D",))
# A record of full length in every block of its layout: squares are longest along an axis.
WORST = {LAYOUT: clip_rows(np.array([[30, 47]]), RADIUS)[0], SQUARES: np.array([-RADIUS, 0])}
PRIVACY = Privacy(radius=1.0, epsilon=1.0, delta=1e-5)


def scores(moments, plan, record, messages=1):
    """⟨release, φ⟩ in units of the noise variance, one for each class."""
    found = np.zeros(RELEASES)
    for name, phi in contribution(record, plan.layout).items():
        variance = np.full(phi.shape, plan.deviation(name, messages) ** 2)
        if name == "S":
            variance[:] = plan.deviation(name, messages, off_diagonal=True) ** 2
            variance[diagonal(DIM)] = plan.deviation(name, messages) ** 2
        found += (moments.blocks[name] * (phi / variance)).reshape(RELEASES, -1).sum(axis=1)
    return found


def contribution(record, layout):
    """φ: what the record adds to the blocks of its class."""
    alone = Moments.of(record[None], np.array([0]), replace(layout, classes=1))
    return {name: block[0] for name, block in alone.blocks.items()}


def lower_bound(without, with_it, delta):
    """The largest ε that both error rates refute, at thresholds chosen on the other half."""
    half = RELEASES // 2
    thresholds = np.quantile(np.concatenate([without[:half], with_it[:half]]), np.linspace(0.5, 0.995, 60))
    false = [stats.beta.ppf(0.999, k + 1, half - k) for k in (np.sum(without[half:] > t) for t in thresholds)]
    true = [stats.beta.ppf(0.001, k, half - k + 1) for k in (np.sum(with_it[half:] > t) for t in thresholds)]
    return max(log(max(t - delta, 1e-12) / f) for t, f in zip(true, false, strict=True))


def attack(plan, messages=1, copies=1):
    """The lower bound of ε for a record of full length that is there, `copies` times, or not."""
    layout, record = plan.layout, WORST[plan.layout]
    empty = Moments.zeros(layout)
    stream = NoiseStream(b"audit")

    def noise():
        return sum((add_noise(empty, plan, stream) for _ in range(messages)), start=empty)

    present = noise()
    moved = {name: present.blocks[name] + copies * phi for name, phi in contribution(record, layout).items()}
    without, with_it = scores(noise(), plan, record, messages), scores(Moments(layout, moved), plan, record, messages)
    return lower_bound(without, with_it, plan.delta)


@pytest.mark.parametrize(
    ("epsilon", "layout"),
    [(0.5, LAYOUT), (1.0, LAYOUT), (3.0, LAYOUT), (1.0, SQUARES), (3.0, SQUARES)],
    ids=["matrices, 0.5", "matrices, 1", "matrices, 3", "squares, 1", "squares, 3"],
)
def test_the_best_attack_on_central_noise_stays_below_the_claim(epsilon, layout):
    bound = attack(noise_plan(layout, RADIUS, replace(PRIVACY, epsilon=epsilon)))
    assert 0.35 * epsilon < bound <= epsilon


def test_the_best_attack_on_the_smallest_cohort_stays_below_the_claim():
    privacy = replace(PRIVACY, noise="distributed", secure=True, min_cohort=4)
    bound = attack(noise_plan(LAYOUT, RADIUS, privacy), messages=4)
    assert 0.35 < bound <= 1.0


@pytest.mark.parametrize("layout", [LAYOUT, SQUARES], ids=["matrices", "squares"])
def test_the_attack_notices_a_record_that_is_there_three_times(layout):
    """The audit has teeth: what breaks the claim is caught."""
    assert attack(noise_plan(layout, RADIUS, PRIVACY), copies=3) > 1.0


@pytest.mark.parametrize(("layout", "record"), [(LAYOUT, [30, 40]), (SQUARES, [0, 50])], ids=["matrices", "squares"])
def test_the_attacker_sees_the_mu_of_the_guarantee(layout, record):
    plan = noise_plan(layout, RADIUS, PRIVACY)
    seen = scores(add_noise(Moments.zeros(layout), plan, NoiseStream(b"mu")), plan, np.array(record))
    # The score of pure noise has the variance Σ φ²/σ², which is μ² for a record of full length (less the lattice's 4).
    assert sqrt(seen.var()) == pytest.approx(plan.guarantee.mu, rel=0.03)
