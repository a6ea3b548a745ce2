"""The noise that is added is the noise that was planned, and the plan keeps the recipe's (ε, δ)."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from ghofl.errors import LayoutError
from ghofl.moments import Layout, Moments
from ghofl.privacy import NoiseStream, PrivacyError, add_noise, epsilon_of, noise_plan, record_bounds, sigma_for
from ghofl.recipe import Privacy
from ghofl.statistics.triangles import diagonal

PRIVACY = Privacy(radius=1.0, epsilon=1.0, delta=1e-5)
DISTRIBUTED = replace(PRIVACY, noise="distributed", secure=True, min_cohort=6)
LAYOUT = Layout(classes=60, dim=40, statistics=("D", "B"))


def spread(moments):
    """The standard deviation of each block, and of the off-diagonal entries of B."""
    parts = {name: block.ravel() for name, block in moments.blocks.items()}
    on = diagonal(moments.layout.dim)
    return {n: b.std() for n, b in parts.items() if n != "B"} | {
        "B": parts["B"][on].std(),
        "off": np.delete(parts["B"], on).std(),
    }


@pytest.mark.parametrize("radius", [1, 30, 5000])
@pytest.mark.parametrize("statistics", [("N", "A"), ("D", "B"), ("S",), ("B",), ("D",)])
def test_blocks_share_the_budget_and_use_it_up(statistics, radius):
    layout = Layout(10, 8, statistics)
    plan = noise_plan(layout, radius, PRIVACY)
    bounds = record_bounds(layout, radius)
    mu = sqrt(sum((bounds[name] / sigma) ** 2 for name, sigma in plan.sigmas.items()))
    assert mu == pytest.approx(1 / plan.multiplier, rel=1e-9)
    assert epsilon_of(1 / mu, 1e-5) == pytest.approx(1.0, rel=1e-6)


def test_a_larger_share_means_less_noise_for_that_block():
    even = noise_plan(LAYOUT, 50, PRIVACY, shares=dict.fromkeys("NADB", 1.0)).sigmas
    tilted = noise_plan(LAYOUT, 50, PRIVACY, shares={"N": 1.0, "A": 5.0, "D": 1.0, "B": 1.0}).sigmas
    assert even["N"] == pytest.approx(2 * sigma_for(1.0, 1e-5))
    assert tilted["A"] < even["A"]
    assert tilted["B"] > even["B"]
    with pytest.raises(PrivacyError, match="B has none"):
        noise_plan(LAYOUT, 50, PRIVACY, shares={"N": 1.0, "A": 1.0, "D": 1.0})


def test_central_noise_has_the_planned_spread_in_every_block():
    plan = noise_plan(LAYOUT, 100, PRIVACY)
    seen = spread(add_noise(Moments.zeros(LAYOUT), plan, NoiseStream(b"central")))
    for name in "NADB":
        count = 40 if name == "B" else LAYOUT.shapes[name][0] * (1 if name == "N" else 40)
        assert seen[name] == pytest.approx(plan.deviation(name), rel=4 / sqrt(2 * count))
    assert seen["off"] == pytest.approx(plan.deviation("B", off_diagonal=True), rel=0.1)
    assert plan.deviation("B") == pytest.approx(sqrt(2) * plan.deviation("B", off_diagonal=True), rel=1e-3)


@pytest.mark.parametrize("clients", [6, 9])
def test_shares_of_the_smallest_cohort_add_up_to_the_central_noise(clients):
    plan, central = noise_plan(LAYOUT, 100, DISTRIBUTED), noise_plan(LAYOUT, 100, PRIVACY)
    stream = NoiseStream(b"distributed")
    total = sum((add_noise(Moments.zeros(LAYOUT), plan, stream) for _ in range(clients)), start=Moments.zeros(LAYOUT))
    seen = spread(total)
    for name in "AD":
        assert seen[name] == pytest.approx(plan.deviation(name, clients), rel=0.06)
        assert plan.deviation(name, clients) == pytest.approx(sqrt(clients / 6) * central.deviation(name), rel=1e-6)
    assert plan.guarantee.sigmas == pytest.approx(central.guarantee.sigmas)
    assert plan.guarantee.min_cohort == 6


def test_local_noise_is_whole_in_every_message():
    plan = noise_plan(LAYOUT, 100, replace(PRIVACY, noise="local"))
    assert plan.parameter("A") == noise_plan(LAYOUT, 100, PRIVACY).parameter("A")
    assert plan.deviation("A", messages=25) == pytest.approx(5 * plan.parameter("A"))
    assert plan.guarantee.mechanism == "local"


def test_the_guarantee_says_what_the_recipe_asked_for():
    for privacy in (PRIVACY, DISTRIBUTED, replace(PRIVACY, noise="local")):
        promise = noise_plan(LAYOUT, 100, privacy).guarantee
        assert (promise.epsilon, promise.delta) == (1.0, pytest.approx(1e-5))
        assert (promise.unit, promise.mechanism) == ("record", privacy.noise)
        assert len(promise.assumptions) == 5
    assert "At least 6 of the clients" in str(noise_plan(LAYOUT, 100, DISTRIBUTED).guarantee)


def test_a_protected_client_needs_noise_for_all_its_rows():
    privacy = replace(PRIVACY, unit="client", client_rows=30)
    record, client = noise_plan(LAYOUT, 100, PRIVACY), noise_plan(LAYOUT, 100, privacy)
    assert client.sigmas["A"] == pytest.approx(30 * record.sigmas["A"])
    assert client.limit == pytest.approx(30.0)
    assert record.limit is None
    assert "30 full rows" in str(client.guarantee)


def test_rounding_shrinks_the_noise_in_steps_and_raises_it_in_units():
    shifts = {"A": 2, "B": 5}
    fine, coarse = noise_plan(LAYOUT, 100, PRIVACY), noise_plan(LAYOUT, 100, PRIVACY, shifts=shifts)
    assert coarse.sigmas["B"] < fine.sigmas["B"] < 2**5 * coarse.sigmas["B"]
    assert coarse.guarantee.epsilon == 1.0


def test_reach_leaves_room_for_every_entry_of_the_noise():
    plan = noise_plan(LAYOUT, 100, DISTRIBUTED)
    stream = NoiseStream(b"reach")
    total = sum((add_noise(Moments.zeros(LAYOUT), plan, stream) for _ in range(8)), start=Moments.zeros(LAYOUT))
    largest = max(int(np.abs(block).max()) for block in total.blocks.values())
    assert largest < plan.reach(messages=8) < 20 * plan.deviation("D", 8) + 20 * plan.deviation("B", 8)


def test_noise_on_an_aggregate_is_added_to_it_exactly():
    plan = noise_plan(LAYOUT, 100, PRIVACY)
    rng = np.random.default_rng(0)
    moments = Moments.of(rng.integers(-9, 9, (50, 40)), rng.integers(0, 60, 50), LAYOUT)
    noise = add_noise(Moments.zeros(LAYOUT), plan, NoiseStream(b"same"))
    assert add_noise(moments, plan, NoiseStream(b"same")) == moments + noise
    assert add_noise(moments, plan) != add_noise(moments, plan)


def test_a_sketch_gets_noise_of_its_own():
    layout = Layout(4, 9, ("B",), sketch=3)
    plan = noise_plan(layout, 50, PRIVACY, sketch_norm=5.0)
    noise = add_noise(Moments.zeros(layout), plan, NoiseStream(b"sketch"))
    assert noise.blocks["Z"].shape == (4, 6)
    assert plan.sigmas["Z"] == pytest.approx(25 * plan.sigmas["B"])


def test_a_recipe_without_a_budget_and_moments_of_another_layout_are_refused():
    with pytest.raises(PrivacyError, match=r"no privacy\.epsilon"):
        noise_plan(LAYOUT, 100, Privacy())
    with pytest.raises(LayoutError, match="planned for layout"):
        add_noise(Moments.zeros(Layout(2, 2)), noise_plan(LAYOUT, 100, PRIVACY))
