"""One record, or one client, moves the moments by no more than `sensitivity` says, and by nearly that much."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ghofl.features import rademacher
from ghofl.moments import Layout, Moments
from ghofl.privacy import (
    PrivacyError,
    clip_rows,
    clip_vector,
    grid_radius,
    length,
    noise_plan,
    record_bounds,
    round_moments,
    sensitivity,
    sketch_norm,
)
from ghofl.recipe import Privacy
from ghofl.statistics.triangles import diagonal

DIM, CLASSES, RADIUS = 5, 3, 40
STATISTICS = [("N", "A"), ("N", "A", "D"), ("N", "A", "B"), ("N", "A", "D", "B"), ("N", "A", "S")]
BOUND = 2**12  # of entries: beyond the radius, and its square times some rows within the 64-bit integers
int_rows = arrays(np.int16, st.tuples(st.integers(1, 6), st.integers(1, 30)), elements=st.integers(-32767, 32767))


def squared(q):
    return (q.astype(object) ** 2).sum(axis=1)


def records(rng, count, radius=RADIUS, dim=DIM):
    """Random directions, axes, equal entries, nearly antiparallel and far too long rows: all cut to the radius."""
    random = rng.normal(size=(count, dim)) * radius
    sparse = random * (rng.random((count, dim)) < 0.4)
    axes = np.vstack([np.eye(dim), -np.eye(dim)]) * radius
    equal = np.outer(np.linspace(-3, 3, 20), np.ones(dim)) * radius
    rows = np.rint(np.vstack([random, sparse, axes, equal, -random * 50])).astype(np.int64)
    return clip_rows(np.clip(rows, -(2**20), 2**20), radius)


def of(x, c, layout, sketch=None):
    return Moments.of(np.atleast_2d(x), np.atleast_1d(c), layout, sketch)


@given(int_rows, st.integers(1, 10**6))
@settings(max_examples=200, deadline=None)
def test_a_clipped_row_is_no_longer_than_the_radius_in_integers(q, radius):
    clipped = clip_rows(q, radius)
    assert clipped.dtype == q.dtype
    assert all(squared(clipped) <= radius**2)
    assert np.all(np.abs(clipped.astype(int)) <= np.abs(q.astype(int))), "no entry grows"
    assert np.all(clipped.astype(int) * q >= 0), "no entry changes sign"
    short = squared(q) <= radius**2
    assert np.array_equal(clipped[short], q[short]), "a row within the radius is untouched"


@given(int_rows, st.integers(1, 10**5))
@settings(max_examples=100, deadline=None)
def test_a_rows_clipping_does_not_depend_on_the_batch(q, radius):
    alone = np.vstack([clip_rows(row[None], radius) for row in q])
    assert np.array_equal(clip_rows(q, radius), alone)
    assert np.array_equal(clip_rows(q[::-1], radius), alone[::-1])


@pytest.mark.parametrize("dim", [1, 2, 7, 1280])
def test_rows_that_all_round_up_at_once_stay_within_the_radius(dim):
    """Every scaled entry just above a half: rounding to the nearest alone would lengthen the row by far."""
    for radius in [1, 2, 3, 10, 51, 1000]:
        sizes = np.arange(1, 400)
        rows = np.repeat(sizes[:, None], dim, axis=1)
        assert np.all(squared(clip_rows(rows, radius)) <= radius**2)


def test_clipping_keeps_dense_rows_close_to_their_scaled_selves():
    """Rows barely over the radius: rounding towards zero would cost half a step an entry, this costs an eighth."""
    rng = np.random.default_rng(0)
    q = np.rint(rng.normal(size=(200, 1280)) * 11).astype(np.int16)
    radius = 360
    scaled = q * (radius / np.sqrt(squared(q).astype(float)))[:, None]
    error = np.abs(scaled) - np.abs(clip_rows(q, radius))
    assert np.abs(error).max() < 1
    assert abs(error.mean()) < 0.125


def test_a_radius_under_one_step_and_rows_beyond_exact_arithmetic_are_refused():
    with pytest.raises(PrivacyError, match=r"privacy.radius = 0.01 is 0.16 steps"):
        grid_radius(0.01, step=1 / 16)
    with pytest.raises(PrivacyError, match="radius is 0"):
        clip_rows(np.array([[1]]), 0)
    with pytest.raises(PrivacyError, match="beyond 2\\^53"):
        clip_rows(np.array([[2**30]]), 5)


@pytest.mark.slow
@pytest.mark.parametrize("statistics", STATISTICS)
def test_one_record_moves_the_moments_by_at_most_the_sensitivity(statistics):
    rng = np.random.default_rng(1)
    layout = Layout(CLASSES, DIM, statistics, bound=BOUND)
    bound = sensitivity(layout, RADIUS)
    base = of(records(rng, 10)[:50], rng.integers(0, CLASSES, 50), layout)
    worst = 0.0
    for x in records(rng, 400):
        change = base + of(x, int(rng.integers(CLASSES)), layout) - base
        plain = sqrt(sum(float(np.square(b.astype(float)).sum()) for b in change.blocks.values()))
        assert plain <= length(change) * (1 + 1e-12), "the packed integers move by no more than the scaled ones"
        worst = max(worst, length(change))
    assert 0.99 * bound.value <= worst <= bound.value


@pytest.mark.parametrize("statistics", STATISTICS)
def test_the_packed_integers_alone_reach_the_same_worst_case(statistics):
    layout = Layout(CLASSES, DIM, statistics, bound=BOUND)
    change = of(np.eye(1, DIM, dtype=int)[0] * RADIUS, 0, layout)
    packed = np.concatenate([b.ravel() for b in change.blocks.values()]).astype(float)
    assert np.linalg.norm(packed) == pytest.approx(sensitivity(layout, RADIUS).value)


def test_the_formula_of_the_paper_comes_out():
    for statistics in (("N", "A", "B"), ("N", "A", "S")):
        assert sensitivity(Layout(2, 9, statistics), 7).value == pytest.approx(sqrt(1 + 7**2 + 7**4))
    both = sensitivity(Layout(2, 9, ("D", "B")), 7)
    assert both.value == pytest.approx(sqrt(1 + 7**2 + 2 * 7**4))
    assert str(both).endswith("R = 7; record, add-remove")


def test_the_bound_of_the_grid_tightens_the_sums_of_squares():
    layout = Layout(2, 4, ("N", "A", "D"), bound=10)
    rows = clip_rows(np.array([[10, 10, 0, 0], [10, 9, 4, 1]]), 15)
    assert record_bounds(layout, 15)["D"] == 150
    assert all(np.linalg.norm(of(x, 0, layout).blocks["D"]) <= 150 for x in rows)


def test_a_sketch_moves_by_at_most_its_spectral_norm():
    rng = np.random.default_rng(3)
    sketch = rademacher(0, 12, 4, "sketch")
    norm = sketch_norm(sketch)
    assert np.linalg.norm(sketch, 2) <= norm <= np.linalg.norm(sketch, 2) * (1 + 1e-8)
    layout = Layout(2, 12, ("B",), sketch=4, bound=2**12)
    bounds, bound = record_bounds(layout, 300, norm), sensitivity(layout, 300, sketch_norm=norm).value
    top = np.linalg.svd(sketch.astype(float))[0][:, 0]
    rows = [*records(rng, 50, 300, 12), np.trunc(300 * top).astype(int)]
    sizes = []
    for x in rows:
        change = of(x, 1, layout, sketch)
        z = change.blocks["Z"][1].astype(float)
        sizes.append(sqrt(2 * np.square(z).sum() - np.square(z[diagonal(4)]).sum()))
        assert length(change) <= bound
    assert 0.97 * bounds["Z"] <= max(sizes) <= bounds["Z"]
    with pytest.raises(PrivacyError, match="sketch"):
        sensitivity(layout, 300)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=12, max_size=12), st.floats(0.5, 1e13), st.floats(1e-3, 1e3))
@settings(max_examples=100, deadline=None)
def test_a_clients_vector_is_no_longer_than_the_limit(values, limit, scale):
    layout = Layout(2, 2, ("D",))
    sizes = iter(values)
    moments = Moments(
        layout,
        {n: np.array([next(sizes) for _ in range(int(np.prod(s)))]).reshape(s) for n, s in layout.shapes.items()},
    )
    scales = {"N": 1.0, "A": scale, "D": 2.0}
    clipped = clip_vector(moments, limit, scales)
    assert length(clipped, scales) <= limit
    if length(moments, scales) < 0.999 * limit:
        assert clipped == moments


def test_a_client_within_its_rows_is_never_cut_and_a_longer_one_is():
    rng = np.random.default_rng(4)
    layout = Layout(CLASSES, DIM)
    privacy = Privacy(radius=1.0, epsilon=1.0, delta=1e-5, unit="client", client_rows=50)
    plan = noise_plan(layout, RADIUS, privacy)
    x = records(rng, 20)[:80]
    client = of(x[:49], rng.integers(0, CLASSES, 49), layout)
    crowd = sum((of(x, rng.integers(0, CLASSES, 80), layout) for _ in range(5)), start=client)
    assert clip_vector(client, plan.limit, plan.scales) == client
    cut = clip_vector(crowd, plan.limit, plan.scales)
    assert length(cut, plan.scales) <= plan.limit < length(crowd, plan.scales)
    assert length(client - cut, plan.scales) <= plan.sensitivity.value
    assert plan.sensitivity.value == plan.limit
    with pytest.raises(PrivacyError, match="client_rows is None"):
        sensitivity(layout, RADIUS, unit="client")


@pytest.mark.slow
def test_one_record_moves_rounded_moments_by_at_most_the_stated_sensitivity():
    rng = np.random.default_rng(5)
    layout = Layout(CLASSES, DIM, bound=2**20)
    shifts = {"A": 4, "B": 9}
    exact = sensitivity(layout, RADIUS).value
    bound = sensitivity(layout, RADIUS, shifts=shifts).value
    assert bound > exact
    steps = {"N": 1.0, "A": 2.0**-4, "B": 2.0**-9}  # lengths back in unrounded units
    rows = records(rng, 100)
    worst = 0.0
    for x in rows:
        base = of(rows[rng.integers(len(rows), size=20)], rng.integers(0, CLASSES, 20), layout)
        after = base + of(x, 0, layout)
        worst = max(worst, length(round_moments(after, shifts) - round_moments(base, shifts), steps))
    assert exact < worst <= bound


def test_an_unknown_unit_is_refused_by_name():
    with pytest.raises(PrivacyError, match="unit is 'row'"):
        sensitivity(Layout(2, 2), 5, unit="row")
