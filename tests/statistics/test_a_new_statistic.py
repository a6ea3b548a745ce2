"""A kind of sum that ghofl has never heard of is one record: everything that treats statistics alike takes it."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from federations import blobs, moments_of, recipe_of
from ghofl import Layout, Limits, Message, Privacy, Recipe, Total
from ghofl.errors import MessageError, RecipeError
from ghofl.features import radius_of
from ghofl.moments import Moments
from ghofl.planning.propose import _bytes
from ghofl.privacy import (
    NoiseStream,
    apply_min_count,
    as_vector,
    entry_bound,
    from_vector,
    length,
    plan_of,
    repair,
    sensitivity,
)
from ghofl.statistics import STATISTICS, Statistic


def add_sizes(rows, out):
    out += np.abs(rows.astype(np.int64)).sum(axis=0)


def add_all_fifth_powers(rows, out):
    out += (rows.astype(np.int64) ** 5).sum(axis=0)


SIZES = Statistic(
    name="L",
    noun="sizes",
    power=1,
    of_class=lambda dim: (dim,),
    add=add_sizes,
    length=lambda r, bound, norm: r,
    formula="R²",
    share=2.0,
    is_unsigned=True,
    is_rounded=True,
    above=(("A", "L"),),
)
ALL_FIFTH_POWERS = Statistic(
    name="F",
    noun="fifth powers",
    power=5,
    of_class=lambda dim: (dim,),
    add=add_all_fifth_powers,
    length=lambda r, bound, norm: r * min(r, bound) ** 4,
    formula="(R·min(R, bound)⁴)²",
    share=1.0,
    is_per_class=False,
    is_deferred=True,
)
DEFINITIONS = {
    "L": lambda q, y: np.array([np.abs(q[y == c]).sum(axis=0) for c in range(4)]),
    "F": lambda q, y: (q**5).sum(axis=0),
}


@pytest.fixture(params=[SIZES, ALL_FIFTH_POWERS], ids=["per class", "of all rows"])
def statistic(request, monkeypatch):
    monkeypatch.setitem(STATISTICS, request.param.name, request.param)
    return request.param


def recipe_with(statistic, **parts) -> Recipe:
    parts = {"limits": Limits(max_rows=10_000), **parts}
    return recipe_of(statistics=(statistic.name, "D"), bits=8, **parts)


def data(rows=200):
    return blobs(np.random.default_rng(1), rows=rows)


def test_a_recipe_asks_for_it_and_its_moments_are_its_definition(statistic):
    recipe, y = recipe_with(statistic), data()[1]
    assert recipe.statistics == ("N", "A", "D", statistic.name)
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    q = np.random.default_rng(2).integers(-127, 128, size=(60, 6))
    moments = Moments.of(q, y[:60], Layout.of(recipe))
    assert np.array_equal(moments.blocks[statistic.name], DEFINITIONS[statistic.name](q, y[:60]))


def test_where_it_could_leave_the_integers_the_recipe_is_refused(monkeypatch):
    monkeypatch.setitem(STATISTICS, "F", ALL_FIFTH_POWERS)
    with pytest.raises(RecipeError, match=r"fifth powers \(F\) on a grid of 12 bits"):
        recipe_of(statistics=("F",), bits=12)


def test_it_is_sent_totalled_and_subtracted_exactly(statistic):
    recipe, (x, y) = recipe_with(statistic), data()
    parts = np.array_split(np.arange(len(y)), 4)
    messages = [Message.of(moments_of(recipe, x[p], y[p]), recipe, f"site-{i}") for i, p in enumerate(parts)]
    read = [Message.from_bytes(message.to_bytes(), recipe) for message in messages]
    assert read == messages
    total = Total.of(read, recipe)
    assert total.moments == moments_of(recipe, x, y)
    assert Total.from_bytes(total.to_bytes()).moments == total.moments
    rest = np.concatenate(parts[1:])
    assert (total - read[0]).moments == moments_of(recipe, x[rest], y[rest])
    vector = sum(as_vector(message.moments, recipe) for message in messages)
    assert from_vector(vector, recipe) == total.moments
    assert np.abs(vector).max() <= entry_bound(recipe)
    assert abs(len(messages[0].to_bytes()) - _bytes(recipe, 50)) < 1500


def test_what_no_rows_could_have_made_is_refused(statistic):
    recipe, (x, y) = recipe_with(statistic), data()
    moments = moments_of(recipe, x, y)
    wrong = {"too large": 10**16}
    if statistic.is_unsigned:
        wrong |= {"negative": -1, "under the sums": int(np.abs(moments.sums[0, 0])) // 2}
    for value in wrong.values():
        blocks = {name: block.copy() for name, block in moments.blocks.items()}
        blocks[statistic.name].reshape(-1)[0] = value
        message = replace(Message.of(moments, recipe), moments=Moments(moments.layout, blocks))
        with pytest.raises(MessageError, match=rf"(entry of|in) {statistic.name} "):
            Message.from_bytes(message.to_bytes(), recipe)


def test_one_record_moves_it_by_at_most_the_sensitivity(statistic):
    layout, rng = Layout(4, 3, (statistic.name, "D"), bound=127), np.random.default_rng(3)
    bound = sensitivity(layout, 20).value
    rows = np.vstack([20 * np.eye(3, dtype=int), -20 * np.eye(3, dtype=int), rng.integers(-11, 12, size=(80, 3))])
    worst = max(length(Moments.of(x[None], np.array([0]), layout)) for x in rows)
    assert 0.7 * bound <= worst <= bound


@pytest.mark.parametrize("noise", ["central", "local"])
def test_it_is_noised_as_planned_and_read_again(statistic, noise):
    privacy = Privacy(radius=1.0, epsilon=2.0, delta=1e-5, noise=noise, min_count=2, rounding=1)
    recipe, (x, y) = recipe_with(statistic, privacy=privacy), data()
    exact = moments_of(recipe, x, y)
    message = Message.of(exact, recipe, "site", NoiseStream(b"new"))
    assert Message.from_bytes(message.to_bytes(), recipe).moments == message.moments
    released = Total.of([message], recipe).release(NoiseStream(b"release"))
    assert Total.from_bytes(released.to_bytes()).moments == released.moments
    plan = plan_of(recipe)
    step = 2.0 ** plan.shifts.get(statistic.name, 0)
    moved = (released.moments.blocks[statistic.name] - exact.blocks[statistic.name]) / step
    assert 0 < sqrt(np.square(moved).mean()) < 3 * plan.deviation(statistic.name)
    out = repair(released.moments, radius_of(recipe))
    assert out[statistic.name].min() >= (0 if statistic.is_unsigned else -np.inf)


def test_a_minimum_count_drops_it_per_class_or_says_that_it_is_whole(statistic):
    recipe = recipe_with(statistic)
    x, y = np.array([[1, 2, 3, 4, 5, 6]] * 3), np.array([0, 0, 1])
    moments = Moments.of(x, y, Layout.of(recipe))
    kept, outcome = apply_min_count(moments, threshold=2)
    expected = Moments.of(x[:2], y[:2], Layout.of(recipe)) if statistic.is_per_class else moments
    assert np.array_equal(kept.blocks[statistic.name], expected.blocks[statistic.name])
    assert outcome.is_pooled_whole == (not statistic.is_per_class)
