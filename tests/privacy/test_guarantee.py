"""ε, δ and σ agree with each other and with dp-accounting, and a guarantee cannot claim more than its noise gives."""

import json
from dataclasses import replace

import pytest
from dp_accounting.pld import accountant, common
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from ghofl.errors import GhoflError
from ghofl.privacy import CompositionError, Guarantee, PrivacyError, compose, delta_of, epsilon_of, sigma_for

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
DELTAS = (1e-8, 1e-6, 1e-5, 1e-3)


def promise(epsilon=1.0, delta=1e-5, **changes):
    sigma = sigma_for(epsilon, delta)
    whole = Guarantee(epsilon, delta, 1 / sigma, {"N": sigma, "A": 9.0}, "record", "central", ("It is so.",))
    return replace(whole, **changes)


def test_the_textbook_case_needs_the_known_sigma():
    assert sigma_for(1.0, 1e-5, 1.0) == pytest.approx(3.7306, abs=1e-4)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_sigma_agrees_with_dp_accounting(epsilon, delta):
    oracle = accountant.get_smallest_gaussian_noise(common.DifferentialPrivacyParameters(epsilon, delta), 1, 2.5)
    assert sigma_for(epsilon, delta, 2.5) == pytest.approx(oracle, rel=1e-3)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_epsilon_agrees_with_dp_accounting(epsilon, delta):
    sigma = sigma_for(epsilon, delta)
    oracle = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4).get_epsilon_for_delta(delta)
    assert epsilon_of(sigma, delta) == pytest.approx(oracle, rel=1e-3, abs=1e-3)


@given(st.floats(1e-3, 50), st.floats(-25, -1), st.floats(1e-6, 1e12))
@settings(max_examples=200, deadline=None)
def test_sigma_and_epsilon_undo_each_other_and_err_on_the_safe_side(epsilon, log_delta, sensitivity):
    delta = 10.0 ** (log_delta / 2)
    sigma = sigma_for(epsilon, delta, sensitivity)
    assert delta_of(epsilon, sigma, sensitivity) <= delta
    assert delta_of(epsilon, sigma * (1 - 1e-6), sensitivity) > delta
    assert epsilon_of(sigma, delta, sensitivity) == pytest.approx(epsilon, rel=1e-4)
    assert delta_of(epsilon_of(sigma, delta, sensitivity), sigma, sensitivity) <= delta * (1 + 1e-9)


@given(st.floats(0.01, 20), st.floats(0.01, 20), st.floats(1e-9, 0.1))
@settings(deadline=None)
def test_more_budget_never_asks_for_more_noise(one, other, delta):
    low, high = sorted((one, other))
    assert sigma_for(high, delta) <= sigma_for(low, delta)
    assert delta_of(high, 2.0) <= delta_of(low, 2.0)


def test_noise_that_hides_everything_has_epsilon_zero():
    assert epsilon_of(sigma=1e9, delta=1e-5) == 0.0


def test_a_guarantee_cannot_claim_more_than_its_noise_gives():
    with pytest.raises(PrivacyError, match="does not follow from mu"):
        promise(mu=0.5)
    with pytest.raises(PrivacyError, match="epsilon is -1"):
        replace(promise(), epsilon=-1.0)
    with pytest.raises(PrivacyError, match="mechanism is 'magic'"):
        promise(mechanism="magic")
    with pytest.raises(PrivacyError, match="min_cohort is 0"):
        promise(min_cohort=0)
    for error in (PrivacyError, CompositionError):
        assert issubclass(error, GhoflError)
        assert issubclass(error, ValueError)


def test_a_guarantee_survives_json():
    whole = promise(min_cohort=5, mechanism="distributed")
    assert Guarantee.from_dict(json.loads(json.dumps(whole.to_dict()))) == whole
    with pytest.raises(PrivacyError, match="colour"):
        Guarantee.from_dict(whole.to_dict() | {"colour": "red"})
    with pytest.raises(PrivacyError, match="mu"):
        Guarantee.from_dict({k: v for k, v in whole.to_dict().items() if k != "mu"})


@pytest.mark.parametrize("times", [1, 2, 5])
def test_releasing_again_composes_as_dp_accounting_says(times):
    sigma = sigma_for(0.5, 1e-6)
    oracle = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4).self_compose(times)
    total = compose([promise(0.5, 1e-6)] * times)
    assert total.epsilon == pytest.approx(oracle.get_epsilon_for_delta(1e-6), rel=1e-3)
    assert total.releases == times
    assert total.sigmas["A"] == pytest.approx(9.0 / times**0.5)
    assert total.assumptions == ("It is so.",)


def test_composition_does_not_depend_on_order_or_grouping():
    a, b, c = promise(0.5), promise(1.0, min_cohort=4), promise(2.0, 1e-6, mechanism="local")
    whole = compose([a, b, c])
    for other in (compose([c, a, b]), compose([compose([a, b]), c])):
        assert other.epsilon == pytest.approx(whole.epsilon, rel=1e-6)
        assert (other.mechanism, other.min_cohort, other.releases, other.delta) == ("central+local", 4, 3, 1e-5)


def test_guarantees_about_different_things_do_not_compose():
    with pytest.raises(CompositionError, match=r"different units \(client and record\)"):
        compose([promise(), promise(unit="client")])
    with pytest.raises(CompositionError, match="at least one"):
        compose([])


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": "1"}, {"epsilon": True}, {"epsilon": None}, {"epsilon": float("inf")}, {"delta": 0}, {"mu": 5e-324},
        {"mu": [1]}, {"sigmas": [1.0]}, {"sigmas": {"N": "3"}}, {"sigmas": {"N": 0.0}}, {"unit": 3}, {"mechanism": None},
        {"assumptions": "text"}, {"assumptions": [1]}, {"min_cohort": 1.5}, {"releases": "1"}, {"releases": True},
    ],
)  # fmt: skip
def test_plain_values_of_another_type_are_no_guarantee(change):
    """Division by zero and comparisons of texts with numbers came out of a file once."""
    values = Guarantee(1.0, 1e-5, 1 / 3.7307, {"N": 3.7307}, "record", "central").to_dict()
    with pytest.raises(PrivacyError):
        Guarantee.from_dict({**values, **change})


@pytest.mark.parametrize("values", [None, 3, "text", [], [1], {1: 2}])
def test_what_is_no_record_is_no_guarantee(values):
    with pytest.raises(PrivacyError):
        Guarantee.from_dict(values)
