"""What every option of every head promises: its range holds, its errors say what is allowed, and it is honoured."""

import re
from math import inf, isfinite, nan, nextafter

import numpy as np
import pytest

from federations import blobs, recipe_of, sketched_recipe, total_of
from ghofl import HEADS, Classifier, HeadSpec
from ghofl.errors import HeadError

EVERY = [(name, option) for name, head in HEADS.items() for option in head.Options.known().values()]
# Another value than the default for each option, which must change the head fitted on the rows below.
OTHER = {
    "alpha": 0.7, "base": "nb", "batch": 16, "blend": 0.3, "centred": 0, "dispersion": 0.7, "dof": 3.0, "energy": 0.4,
    "epochs": 1.5, "extra": 1, "floor": 2.0, "learning_rate": 0.05, "method": "plain", "parts": "lda", "penalty": 0.5,
    "per_class": 50, "prior": 0, "rank": 1, "seed": 3, "shrinkage": 0.4, "steps": 7, "teacher": 0.5, "temperature": 1.5,
    "warm": 0.6, "weight": 0.3, "weight_decay": 0.5,
}  # fmt: skip
QUICK = {"per_class": 40, "steps": 20}  # for heads that are trained


def of_every_option(test):
    return pytest.mark.parametrize(("name", "option"), EVERY, ids=[f"{n}.{o.name}" for n, o in EVERY])(test)


def beside(option, value, direction):
    """The nearest value that lies beyond another one."""
    return value + direction if option.kind is int else nextafter(value, direction * inf)


def edges(option):
    """The outermost values that an option allows."""
    if option.kind is str:
        return [*option.choices, *([option.joined.join(option.choices)] if option.joined else [])]
    low, high = option.between
    lowest = low if option.above is None else beside(option, option.above, 1)
    return [option.default, *(edge for edge in (lowest, high) if isfinite(edge))]


def beyond(option):
    """Values just outside of what an option allows, and of other kinds."""
    if option.kind is str:
        twice = option.joined.join([option.choices[0]] * 2)
        return ["svm", "", twice, option.choices[0] + "_", 3, 0.5]
    low, high = option.between
    outside = [beside(option, low, -1) if option.above is None else option.above]
    outside += [beside(option, high, 1)] if isfinite(high) else [10**400]
    return [*outside, nan, inf, -inf, "some", *([2.5] if option.kind is int else [])]


@of_every_option
def test_an_option_is_allowed_up_to_the_edges_of_its_range(name, option):
    for value in edges(option):
        record = HEADS[name].Options.parse({option.name: value})
        assert getattr(record, option.name) == value


@of_every_option
@pytest.mark.usefixtures("as_users_run_it")
def test_an_option_beyond_its_range_is_refused_by_one_error_that_says_what_is_allowed(name, option):
    kind = HEADS[name].Options
    for value in beyond(option):
        start = re.escape(f"{option.name} is {str(value)[:40]}")
        says = rf"^{start}.*; option {option.name} of head '{name}' is {re.escape(option.allowed)}: "
        for build in (lambda v: kind(**{option.name: v}), lambda v: HeadSpec(name, {option.name: v})):
            with pytest.raises(HeadError, match=says):
                build(value)


@of_every_option
def test_an_option_is_honoured(name, option, rng):
    """No option is dropped on the way: with another value the head is another."""
    sketched = "Z" in HEADS[name].needs[0]
    total = total_of(sketched_recipe() if sketched else recipe_of(), *blobs(rng, spread=1.0))
    start = QUICK if "seed" in HEADS[name].Options.known() else {}
    usual, changed = (
        Classifier.fit(total, HeadSpec(name, {**start, **given})) for given in ({}, {option.name: OTHER[option.name]})
    )
    assert changed.rule != usual.rule
    assert changed.options[option.name] == OTHER[option.name]


@pytest.mark.parametrize("name", HEADS)
def test_a_preset_is_made_of_options_of_the_head(name):
    spec = HeadSpec.parse(name, "paper")
    assert spec.options == HEADS[name].Options.preset("paper")
    assert all(getattr(spec.record, key) == value for key, value in spec.options.items())
    assert HeadSpec.parse(name).record == HEADS[name].Options()


@pytest.mark.parametrize(
    ("name", "value"), [("low_rank_qda", {"rank": np.int64(2)}), ("lda", {"shrinkage": np.float32(0.5)})]
)
def test_numbers_of_numpy_are_options_that_a_file_can_hold(name, value, rng):
    """Such a head was fitted, and could not be saved."""
    total = total_of(recipe_of(), *blobs(rng))
    head = Classifier.fit(total, HeadSpec(name, value))
    assert Classifier.from_bytes(head.to_bytes()).options == {key: each.item() for key, each in value.items()}


def test_truth_values_are_no_numbers():
    with pytest.raises(HeadError, match="shrinkage is True"):
        HeadSpec("lda", {"shrinkage": True})
