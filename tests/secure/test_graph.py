"""Who is whose neighbour, and how many neighbours are enough."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghofl.secure import Plan, PlanError, RingError, arrange, plan
from ghofl.secure.graph import portion


def labels(n):
    return [b"site-%d" % i for i in range(n)]


@st.composite
def graphs(draw):
    """The arguments of `arrange`."""
    n = draw(st.integers(3, 40))
    ks = [*range(2, n - 1, 2), n - 1]
    return labels(n), draw(st.binary(min_size=32, max_size=32)), draw(st.sampled_from(ks))


@given(graphs())
def test_everybody_has_exactly_k_neighbours_and_being_neighbours_is_mutual(drawn):
    graph = arrange(*drawn)
    n = len(graph.order)
    for u in range(n):
        around = graph.neighbours_of(u)
        assert len(set(around)) == graph.neighbours
        assert u not in around
        assert set(graph.circle_of(u)) == {u, *around}
        assert all(u in graph.neighbours_of(v) for v in around)


@given(graphs())
def test_the_order_is_a_permutation_of_the_seats(drawn):
    graph = arrange(*drawn)
    assert sorted(graph.order) == list(range(len(graph.order)))


def test_the_graph_follows_from_the_list_and_the_seed_and_changes_with_either():
    first = arrange(labels(50), bytes(32), 6)
    assert first == arrange(labels(50), bytes(32), 6)
    assert first != arrange(labels(50), b"\1" + bytes(31), 6)
    assert first != arrange([*labels(49), b"another"], bytes(32), 6)


def test_neighbours_are_spread_evenly_over_all_others():
    """Seen from one seat, every other is a neighbour with probability k/(n − 1)."""
    n, k, draws = 12, 4, 3000
    seen = np.zeros(n)
    for i in range(draws):
        seen[list(arrange(labels(n), i.to_bytes(32, "little"), k).neighbours_of(0))] += 1
    expected, sigma = draws * k / (n - 1), np.sqrt(draws * k / (n - 1) * (1 - k / (n - 1)))
    assert seen[0] == 0
    assert np.all(np.abs(seen[1:] - expected) < 5 * sigma)


@given(graphs(), st.randoms(use_true_random=False))
def test_the_thinnest_window_is_the_fewest_survivors_in_consecutive_places(drawn, chance):
    graph = arrange(*drawn)
    n, width = len(graph.order), graph.neighbours // 2
    survives = np.array([chance.random() < 0.6 for _ in range(n)])
    if graph.neighbours == n - 1:
        assert graph.thinnest_window(survives) == survives.sum()
        return
    windows = [sum(survives[graph.order[(p + j) % n]] for j in range(width)) for p in range(n)]
    assert graph.thinnest_window(survives) == min(windows)


def tail(at_least, others, marked, drawn):
    """P[at least so many of the drawn are marked] by counting subsets."""
    ways = sum(comb(marked, i) * comb(others - marked, drawn - i) for i in range(max(at_least, 0), drawn + 1))
    return Fraction(ways, comb(others, drawn))


@pytest.mark.parametrize(
    ("n", "dropout", "corruption", "sigma"),
    [(60, 0.1, 0.1, 10), (100, 0.1, 0.05, 40), (300, 0.1, 0.1, 40), (300, 0.2, 0.0, 20), (1000, 0.1, 0.1, 40)],
)
def test_the_stated_bounds_are_the_exact_hypergeometric_tails(n, dropout, corruption, sigma):
    p = plan(n, bound=1, dropout=dropout, corruption=corruption, sigma=sigma)
    k, t, h, c, d = p.neighbours, p.threshold, p.window, p.corrupted, p.dropped
    assert not p.is_complete
    privacy = n * tail(2 * t - k - 1, n - 1, c, k) + n * tail(h, n - 1, c, k // 2)
    alive, gone = (n - d) * tail(k + 2 - t, n - 1, d, k), d * tail(k + 1 - t, n - 1, d - 1, k)
    liveness = alive + gone + n * tail(k // 2 - h + 1, n, d, k // 2)
    assert p.privacy_failure == pytest.approx(float(privacy), rel=1e-6, abs=1e-30)
    assert p.liveness_failure == pytest.approx(float(liveness), rel=1e-6, abs=1e-30)
    assert max(privacy, liveness) <= Fraction(1, 2**sigma)


@pytest.mark.slow
def test_failures_in_drawn_graphs_stay_below_the_stated_bounds():
    """A weak plan, so that failures are seen: each event is counted in thousands of drawn graphs."""
    n, draws, chance = 40, 3000, np.random.default_rng(11)
    p = plan(n, bound=1, dropout=0.2, corruption=0.1, sigma=2)
    assert not p.is_complete
    unsafe = stuck = 0
    for i in range(draws):
        graph = arrange(labels(n), i.to_bytes(32, "little"), p.neighbours)
        corrupted, dropped = (set(chance.permutation(n)[:m].tolist()) for m in (p.corrupted, p.dropped))
        survives = np.array([seat not in dropped for seat in range(n)])
        reach = p.neighbours // 2
        circles = [set(graph.circle_of(u)) for u in range(n)]
        ahead = [{graph.order[(graph.places[u] + j) % n] for j in range(1, reach + 1)} for u in range(n)]
        honest = set(range(n)) - corrupted
        split = any(2 * p.threshold <= len(circles[u]) + len(circles[u] & corrupted) for u in honest)
        unsafe += split or any(len(ahead[u] & corrupted) >= p.window for u in honest)
        few = any(len(circles[u] - dropped) < p.threshold for u in range(n))
        stuck += few or graph.thinnest_window(survives) < p.window
    assert stuck > 0
    assert unsafe / draws <= p.privacy_failure
    assert stuck / draws <= p.liveness_failure


@given(graphs(), st.randoms(use_true_random=False))
def test_honest_survivors_stay_connected_when_windows_hold_more_survivors_than_corrupted(drawn, chance):
    """The claim behind the window: whoever the server leaves out, the honest survivors are one group."""
    graph = arrange(*drawn)
    n, width = len(graph.order), graph.neighbours // 2
    if graph.neighbours == n - 1:
        return
    survives = np.array([chance.random() < 0.8 for _ in range(n)])
    corrupted = {seat for seat in range(n) if chance.random() < 0.15}
    most = max(sum(graph.order[(p + j) % n] in corrupted for j in range(width)) for p in range(n))
    honest = {seat for seat in range(n) if survives[seat] and seat not in corrupted}
    if graph.thinnest_window(survives) <= most or not honest:
        return
    reached, frontier = set(), {min(honest)}
    while frontier:
        reached |= frontier
        frontier = {v for u in frontier for v in graph.neighbours_of(u) if v in honest} - reached
    assert reached == honest


@pytest.mark.parametrize(
    ("n", "dropout", "corruption"), [(3, 0.34, 0.0), (10, 0.3, 0.1), (20, 0.1, 0.1), (31, 0.3, 0.2)]
)
def test_small_cohorts_use_the_complete_graph_with_exact_counts(n, dropout, corruption):
    p = plan(n, bound=1, dropout=dropout, corruption=corruption)
    assert p.is_complete
    assert p.privacy_failure == p.liveness_failure == 0
    assert 2 * p.threshold > n + p.corrupted
    assert p.threshold <= p.min_survivors == n - p.dropped


@given(st.integers(3, 400), st.floats(0, 0.4), st.floats(0, 0.3), st.sampled_from([10, 20, 40]))
def test_a_plan_keeps_its_promises_or_is_refused(n, dropout, corruption, sigma):
    try:
        p = plan(n, bound=5, dropout=dropout, corruption=corruption, sigma=sigma)
    except PlanError:
        return
    assert p.privacy_failure <= 2.0**-sigma
    assert p.liveness_failure <= 2.0**-sigma
    assert p.dropped <= dropout * n + 1
    assert p.corrupted >= corruption * n - 1e-6
    assert p.clients * p.bound < 2 ** (p.bits - 1)


@pytest.mark.parametrize("n", range(3, 32))
@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.2, 0.3])
def test_any_share_of_corrupted_clients_above_none_is_at_least_one(n, fraction):
    """Rounded down, a tenth of nine clients would be nobody, and one of them with the server would see the others."""
    p = plan(n, bound=1, dropout=0.0, corruption=fraction)
    assert p.corrupted == portion(n, fraction) >= max(1, fraction * n - 1e-9)
    assert 2 * p.threshold > n + p.corrupted


@given(st.integers(3, 31), st.floats(0, 0.99), st.floats(0, 0.4))
def test_dropouts_round_up_or_fall_to_the_most_that_a_plan_withstands(n, dropout, corruption):
    c = portion(n, corruption)
    possible = [d for d in range(n) if (n + c) // 2 + 1 <= n - d and d + c <= n - 2]
    if not possible:
        with pytest.raises(PlanError):
            plan(n, bound=1, dropout=dropout, corruption=corruption)
        return
    p = plan(n, bound=1, dropout=dropout, corruption=corruption)
    assert p.dropped == max(d for d in possible if d <= portion(n, dropout))


def test_dropouts_leave_as_many_as_are_asked_for():
    assert plan(10, bound=1, dropout=0.3, min_survivors=9).min_survivors == 9
    assert plan(10, bound=1, dropout=0.0, min_survivors=5).min_survivors == 10


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"clients": 2}, "2 clients"),
        ({"clients": 10, "corruption": 0.95}, "10 may be corrupted"),
        ({"clients": 10, "dropout": 0.0, "corruption": 0.85}, "fewer than two"),
        ({"clients": 10, "dropout": 1.0}, "dropout is 1.0"),
        ({"clients": 10, "corruption": -0.1}, "corruption is -0.1"),
    ],
)
def test_assumptions_that_no_plan_meets_are_refused(arguments, text):
    with pytest.raises(PlanError, match=text):
        plan(bound=1, **arguments)


@pytest.mark.parametrize(
    "changes",
    [
        {"neighbours": 3},
        {"threshold": 6},
        {"window": 3},
        {"bits": 64},
    ],
)
def test_a_plan_with_numbers_that_do_not_fit_is_refused(changes):
    fine = {"neighbours": 4, "threshold": 4, "window": 1, "bits": 32}
    rest = {"clients": 9, "bound": 1, "dropped": 1, "corrupted": 0}
    assert Plan(**fine, **rest).min_survivors == 8
    with pytest.raises(PlanError):
        Plan(**(fine | changes), **rest)


def test_a_sum_that_no_ring_holds_is_refused_before_the_round():
    with pytest.raises(RingError, match="beyond 2"):
        plan(10, bound=2**60)
