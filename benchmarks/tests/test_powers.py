"""Third and fourth powers are one record each, and then sums like the others: exact, bounded and noised."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from ghofl_benchmarks import powers
from ghofl_benchmarks.powers import excess_kurtosis, skewness
from hypothesis import given
from hypothesis import strategies as st

from federations import blobs, moments_of, recipe_of, total_of
from ghofl import Classifier, Features, Layout, Limits, Message, Moments, Privacy, Recipe, Total
from ghofl.errors import MessageError, MissingStatisticError, MomentsOverflowError, PrivacyError, RecipeError
from ghofl.features import radius_of
from ghofl.features.radius import clip_rows
from ghofl.moments import INT64_MAX
from ghofl.privacy import (
    NoiseStream,
    apply_min_count,
    as_vector,
    entry_bound,
    from_vector,
    length,
    noise_plan,
    record_bounds,
    repair,
    sensitivity,
    site_warning,
)
from ghofl.statistics import STATISTICS

POWERS = ("D", "D3", "D4")
with powers.registered():
    RECIPE = recipe_of(statistics=POWERS, bits=8)


@pytest.fixture(scope="module", autouse=True)
def _known():
    with powers.registered():
        yield


def test_they_are_known_only_where_they_are_registered():
    before = {name: STATISTICS.pop(name) for name in powers.POWERS}
    try:
        with pytest.raises(RecipeError, match=r"known are N, A, D, B, S\."):
            recipe_of(statistics=("D3", "D"), bits=7)
    finally:
        STATISTICS.update(before)


@pytest.mark.parametrize("statistics", [("D3",), POWERS, ("S", "D3", "D4")], ids="".join)
def test_one_record_moves_the_moments_by_at_most_the_sensitivity(statistics):
    rng, layout = np.random.default_rng(2), Layout(3, 5, statistics, bound=2**12)
    axes = 40 * np.vstack([np.eye(5, dtype=int), -np.eye(5, dtype=int)])
    rows = clip_rows(np.vstack([np.rint(rng.normal(size=(60, 5)) * 40).astype(np.int64), axes]), 40)
    each = [Moments.of(x[None], np.array([0]), layout) for x in rows]
    bound = sensitivity(layout, 40).value
    assert 0.99 * bound <= max(map(length, each)) <= bound


def test_the_bound_of_the_grid_tightens_them():
    layout = Layout(2, 4, ("D3", "D4"), bound=10)
    rows = clip_rows(np.array([[10, 10, 0, 0], [10, 9, 4, 1], [10, -10, 5, 0]]), 15)
    assert record_bounds(layout, 15) == {"N": 1.0, "A": 15.0, "D3": 1500.0, "D4": 15000.0}
    assert record_bounds(layout, 5) == {"N": 1.0, "A": 5.0, "D3": 125.0, "D4": 625.0}
    for name, bound in record_bounds(layout, 15).items():
        assert all(np.linalg.norm(Moments.of(x[None], np.array([0]), layout).blocks[name]) <= bound for x in rows)


def rows_of(seed=0, rows=120):
    return blobs(np.random.default_rng(seed), rows=rows)


@pytest.mark.slow
@given(
    st.integers(0, 999), st.sampled_from([1, 127, 4095]), st.sampled_from([POWERS, ("D3",), ("D4", "B"), ("S", "D4")])
)
def test_powers_are_their_definition_under_any_split(seed, bound, statistics):
    rng = np.random.default_rng(seed)
    layout = Layout(3, 4, statistics, bound=bound)
    x, y = rng.integers(-bound, bound + 1, size=(30, 4)), rng.integers(3, size=30)
    whole = Moments.of(x, y, layout)
    for name, power in (("D3", 3), ("D4", 4)):
        if name in statistics:
            exact = [[sum(int(v) ** power for v in x[y == c, j]) for j in range(4)] for c in range(3)]
            assert whole.blocks[name].tolist() == exact
    owner = rng.integers(4, size=30)
    parts = [Moments.of(x[owner == p], y[owner == p], layout) for p in rng.permutation(4)]
    assert sum(parts, start=Moments.zeros(layout)) == whole
    assert whole - parts[0] + parts[0] == whole


def test_the_largest_entries_are_exact():
    """At 16 bits one row's fourth power is just under 2^60, and a dozen leave the 64-bit integers."""
    layout = Layout(2, 2, ("D3", "D4"), bound=32767)
    moments = Moments.of(np.full((7, 2), -32767), np.zeros(7, dtype=int), layout)
    assert moments.blocks["D4"][0].tolist() == [7 * 32767**4] * 2
    assert moments.blocks["D3"][0].tolist() == [-7 * 32767**3] * 2
    with pytest.raises(MomentsOverflowError, match="use fewer grid bits"):
        Moments.of(np.zeros((12, 2), dtype=int), np.zeros(12, dtype=int), layout)


def test_a_recipe_lists_them_after_the_others():
    assert RECIPE.statistics == ("N", "A", "D", "D3", "D4")
    assert Recipe.from_toml(RECIPE.to_toml()) == RECIPE
    assert recipe_of(statistics=("D4", "S", "D3", "D"), bits=8).statistics == ("N", "A", "S", "D3", "D4")
    with pytest.raises(RecipeError, match=r"lists \['D5'\]; known are N, A, D, B, S, D3, D4\."):
        recipe_of(statistics=("D5",))
    with pytest.raises(MissingStatisticError, match=r"a recipe with statistics = \['D4'\] has it"):
        Moments.zeros(Layout(2, 2, ("S",))).block("D4")


@pytest.mark.parametrize(("bits", "statistic", "power"), [(16, "D3", 3), (12, "D4", 4), (16, "D4", 4)])
def test_a_grid_on_which_powers_could_leave_the_integers_is_refused_when_the_recipe_is_made(bits, statistic, power):
    most = INT64_MAX // (2 ** (bits - 1) - 1) ** power
    fits = recipe_of(statistics=(statistic,), bits=bits, limits=Limits(max_rows=min(most, 2**40)))
    assert fits.statistics == ("N", "A", statistic)
    with pytest.raises(
        RecipeError, match=rf"{statistic}.* beyond {most:,} rows, .* limits.max_rows of at most {most:,}"
    ):
        replace(fits, limits=Limits(max_rows=most + 1))


def test_a_message_and_a_total_hold_them_exactly():
    x, y = rows_of()
    total = total_of(RECIPE, x, y, sites=3)
    assert total.moments == moments_of(RECIPE, x, y)
    message = Message.of(moments_of(RECIPE, x[:40], y[:40]), RECIPE, "site-0")
    assert Message.from_bytes(message.to_bytes(), RECIPE) == message
    assert Total.from_bytes(total.to_bytes()).moments == total.moments
    late = Message.of(moments_of(RECIPE, x[:10], y[:10]), RECIPE, "late")
    assert (total + late - late).moments == total.moments


HOSTILE = [
    ("a cube beyond its count", "D3", lambda d: -(10**12), "an entry of D3 is larger"),
    ("a fourth power beyond its count", "D4", lambda d: 10**14, "an entry of D4 is larger"),
    ("a negative fourth power", "D4", lambda d: -1, "the fourth powers in D4 are negative"),
    (
        "fourth powers under the squares",
        "D4",
        lambda d: d // 2,
        "fourth powers in D4 are smaller than the squares in D",
    ),
    ("cubes over squares and fourth powers", "D3", lambda d: d * 3 // 2, "D4 are smaller than the third powers in D3"),
]


@pytest.mark.parametrize(("name", "edit", "says"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_powers_that_no_rows_could_have_are_refused(name, edit, says):
    x = np.tile([[20, -20, 19, 21, -18, 1]], (40, 1)) + np.random.default_rng(0).integers(-2, 3, size=(40, 6))
    moments = Moments.of(x, np.repeat(np.arange(4), 10), Layout.of(RECIPE))
    blocks = {key: block.copy() for key, block in moments.blocks.items()}
    blocks[name][1, 0] = edit(int(blocks[name][1, 0]))
    message = replace(Message.of(moments, RECIPE), moments=Moments(moments.layout, blocks))
    with pytest.raises(MessageError, match=says):
        Message.from_bytes(message.to_bytes(), RECIPE)


def test_fourth_powers_of_rows_longer_than_the_radius_are_refused():
    recipe = replace(RECIPE, statistics=("D4",), privacy=Privacy(radius=1.0))
    x, y = rows_of()
    moments = moments_of(recipe, x, y)
    blocks = {name: block.copy() for name, block in moments.blocks.items()}
    blocks["D4"][0, 0] = moments.counts[0] * radius_of(recipe) ** 4 + 1
    with pytest.raises(MessageError, match=r"rows longer than privacy\.radius"):
        Message.of(Moments(moments.layout, blocks), recipe)


@pytest.mark.parametrize("noise", ["central", "local"])
def test_noisy_powers_are_sent_released_and_read_again(noise):
    privacy = Privacy(radius=1.0, epsilon=2.0, delta=1e-5, noise=noise, min_count=3, rounding=2)
    recipe, (x, y) = replace(RECIPE, privacy=privacy), rows_of(rows=400)
    stream = NoiseStream(b"powers")
    message = Message.of(moments_of(recipe, x, y), recipe, "site", stream)
    assert Message.from_bytes(message.to_bytes(), recipe).moments == message.moments
    released = Total.of([message], recipe).release(stream)
    assert Total.from_bytes(released.to_bytes()).moments == released.moments
    assert set(released.guarantee.sigmas) == set(released.moments.blocks)
    assert Classifier.fit(released, "nb").predict_numbers(x[:5]).shape == (5,)


def test_powers_are_not_rounded():
    x, y = rows_of()
    exact, rounded = (
        Message.of(moments_of(r, x, y), r).moments for r in (RECIPE, replace(RECIPE, privacy=Privacy(rounding=5)))
    )
    assert np.array_equal(exact.blocks["D3"], rounded.blocks["D3"])
    assert np.array_equal(exact.blocks["D4"], rounded.blocks["D4"])
    assert not np.array_equal(exact.blocks["D"], rounded.blocks["D"])


def test_noise_beyond_what_can_be_drawn_is_refused_with_what_to_do():
    layout = Layout(2, 4, ("D4",), bound=32767)
    with pytest.raises(PrivacyError, match=r"noise of D4 .* fewer grid bits"):
        noise_plan(layout, 32767, Privacy(radius=1.0, epsilon=0.1, delta=1e-5))


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_repaired_powers_are_as_large_as_the_squares_ask(epsilon):
    recipe = replace(RECIPE, privacy=Privacy(radius=1.0, epsilon=epsilon, delta=1e-5))
    exact = moments_of(recipe, *rows_of())
    for moments in (exact, Total.of([Message.of(exact, recipe)], recipe).release(NoiseStream(b"repair")).moments):
        out = repair(moments, radius_of(recipe))
        n = out["N"][:, None]
        assert np.all(n * out["D"] >= out["A"] ** 2 * (1 - 1e-12))
        assert np.all(n * out["D4"] >= out["D"] ** 2 * (1 - 1e-12))
        assert not out["D3"][out["N"] == 0].any()
    assert all(np.array_equal(block, repair(exact)[name]) for name, block in exact.blocks.items())


def test_a_vector_for_a_secure_round_has_room_for_them():
    recipe, (x, y) = replace(RECIPE, limits=Limits(max_rows=200)), rows_of()
    moments = moments_of(recipe, x, y)
    assert from_vector(as_vector(moments, recipe), recipe) == moments
    full = Moments.of(np.full((200, 6), 127), np.zeros(200, dtype=int), Layout.of(recipe))
    assert entry_bound(recipe) / 2 < np.abs(as_vector(full, recipe)).max() <= entry_bound(recipe)


def test_small_classes_lose_their_powers_too():
    x, y = np.array([[1, 2], [3, 4], [5, 6]]), np.array([0, 0, 1])
    kept, _ = apply_min_count(Moments.of(x, y, Layout(2, 2, POWERS)), threshold=2)
    assert kept == Moments.of(x[:2], y[:2], Layout(2, 2, POWERS))


def test_a_site_is_warned_of_as_many_rows_as_powers_give_away():
    x, y = np.array([[3], [-7], [12]]), np.zeros(3, dtype=int)
    moments = Moments.of(x, y, Layout(2, 1, ("D", "D3")))
    assert site_warning(moments, threshold=5).exposed == (0,)
    assert site_warning(Moments.of(x, y, Layout(2, 1, ("D",))), threshold=5).exposed == ()
    # Newton's identities: the three rows are the roots of a polynomial whose coefficients are known.
    p1, p2, p3 = (int(moments.block(name)[0, 0]) for name in ("A", "D", "D3"))
    e2 = (p1**2 - p2) / 2
    roots = np.roots([1, -p1, e2, -(e2 * p1 - p1 * p2 + p3) / 3])
    assert sorted(roots.real) == pytest.approx(sorted(x.ravel()))


@pytest.mark.parametrize("statistics", [POWERS, ("S", "D3", "D4")])
def test_skewness_and_kurtosis_agree_with_scipy(statistics):
    rng = np.random.default_rng(5)
    recipe = recipe_of(statistics=statistics, bits=8, scale=20.0)
    x, y = rng.gamma(2.0, size=(500, 6)) - 1.0, rng.integers(3, size=500)
    total = total_of(recipe, x, y, sites=4)
    q = Features.of(recipe).rows(x)[0].astype(float)
    for c in range(3):
        assert skewness(total.moments)[c] == pytest.approx(scipy.stats.skew(q[y == c]), rel=1e-9)
        assert excess_kurtosis(total.moments)[c] == pytest.approx(scipy.stats.kurtosis(q[y == c]), rel=1e-9)
    assert np.isnan(skewness(total.moments)[3]).all(), "a class without rows"
    assert np.isnan(excess_kurtosis(total.moments)[3]).all()


def test_nothing_cancels_where_the_spread_is_small_beside_the_mean():
    """In float64, P₂/n − x̄² of entries near 30,000 keeps five digits of a spread of one step, m₄ not a single one."""
    x = 30_000 + np.array([[0], [1], [1], [2], [5]])
    layout = Layout(2, 1, POWERS, bound=32767)
    moments = Moments.of(x, np.zeros(5, dtype=int), layout)
    assert skewness(moments)[0] == pytest.approx(scipy.stats.skew(x - 30_000.0), rel=1e-12)
    assert excess_kurtosis(moments)[0] == pytest.approx(scipy.stats.kurtosis(x - 30_000.0), rel=1e-12)


def test_a_head_is_the_same_with_them_and_without():
    x, y = rows_of()
    plain, richer = (total_of(recipe_of(statistics=s, bits=8), x, y) for s in (("D",), POWERS))
    assert np.array_equal(Classifier.fit(plain, "nb").scores(x), Classifier.fit(richer, "nb").scores(x))
