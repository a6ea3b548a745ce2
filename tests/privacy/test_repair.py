"""Repaired moments could come from rows: and repairing them again, or repairing exact ones, changes nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghofl.features import rademacher
from ghofl.moments import Layout, Moments
from ghofl.privacy import NoiseStream, PrivacyError, add_noise, clip_rows, noise_plan, noise_shrinkage, repair
from ghofl.privacy.repair import repair_counts, repair_powers, repair_second, repair_sums
from ghofl.recipe import Privacy
from ghofl.statistics import STATISTICS

CLASSES, DIM, RADIUS = 4, 6, 40


def exact(rng, statistics, rows=60, sketch=None):
    layout = Layout(CLASSES, DIM, statistics, 0 if sketch is None else sketch.shape[1])
    x = clip_rows(np.rint(rng.normal(3, 9, (rows, DIM))).astype(int), RADIUS)
    return Moments.of(x, rng.integers(0, CLASSES - 1, rows), layout, sketch)


def noisy(seed, statistics, epsilon=1.0):
    rng = np.random.default_rng(seed)
    moments = exact(rng, statistics)
    plan = noise_plan(moments.layout, RADIUS, Privacy(radius=1.0, epsilon=epsilon, delta=1e-5))
    return add_noise(moments, plan, NoiseStream(b"repair %d" % seed))


def scatter(second, a, n):
    return second - (a.T / np.maximum(n, 1)) @ a


@given(st.integers(0, 10**6), st.sampled_from([("D", "B"), ("S",), ("B",)]), st.sampled_from([0.2, 1.0, 10.0]))
@settings(max_examples=60, deadline=None)
def test_repaired_moments_have_no_negative_count_variance_or_eigenvalue(seed, statistics, epsilon):
    out = repair(noisy(seed, statistics, epsilon), RADIUS)
    n, a = out["N"], out["A"]
    assert np.all((n == 0) | (n >= 1))
    assert not a[n == 0].any()
    assert np.all(np.linalg.norm(a, axis=1) <= RADIUS * n * (1 + 1e-9))
    if "D" in out:
        assert np.all(out["D"] * np.maximum(n, 1)[:, None] >= a**2 * (1 - 1e-12))
    pairs = [(out["B"], a, n)] if "B" in out else [(out["S"][c], a[c : c + 1], n[c : c + 1]) for c in range(CLASSES)]
    for second, sums, counts in pairs:
        assert np.array_equal(second, second.T)
        assert np.linalg.eigvalsh(scatter(second, sums, counts)).min() >= -1e-9 * max(1.0, np.abs(second).max())


@given(st.integers(0, 10**6), st.sampled_from([0.2, 1.0, 10.0]))
@settings(max_examples=60, deadline=None)
def test_repairing_twice_changes_nothing_more(seed, epsilon):
    moments = noisy(seed, ("D", "B"), epsilon)
    out = repair(moments, RADIUS)
    n = repair_counts(out["N"])
    a = repair_sums(out["A"], n, RADIUS)
    assert np.array_equal(n, out["N"])
    assert np.array_equal(a, out["A"])
    assert np.array_equal(repair_powers(STATISTICS["D"], out["D"], {"N": n, "A": a}), out["D"])
    assert np.array_equal(repair_second(out["B"], a, n), out["B"])


@pytest.mark.parametrize("statistics", [("D", "B"), ("S",)])
def test_exact_moments_come_out_as_they_are(statistics):
    moments = exact(np.random.default_rng(0), statistics)
    out = repair(moments, RADIUS)
    assert np.array_equal(out["N"], moments.counts)
    assert np.array_equal(out["A"], moments.sums)
    if "B" in out:
        assert np.array_equal(out["B"], moments.pooled())
        assert np.array_equal(out["D"], moments.squares)
    else:
        assert all(np.array_equal(out["S"][c], moments.by_class(c)) for c in range(CLASSES))


def test_the_projection_is_the_nearest_matrix_without_negative_eigenvalues():
    rng = np.random.default_rng(1)
    second = rng.normal(size=(5, 5))
    second = second + second.T
    none = np.zeros((1, 5)), np.zeros(1)
    values = np.linalg.eigvalsh(second)
    distance = np.linalg.norm(repair_second(second, *none) - second)
    assert distance == pytest.approx(np.linalg.norm(values[values < 0]))


def test_a_sketch_is_repaired_with_the_matrix_that_made_it():
    sketch = rademacher(0, DIM, 2, "sketch")
    moments = exact(np.random.default_rng(2), ("B",), sketch=sketch)
    of_sketch = moments.of_sketch(sketch)
    out = repair(moments, sketch=sketch)
    assert all(np.array_equal(out["Z"][c], of_sketch.by_class(c)) for c in range(CLASSES))
    with pytest.raises(PrivacyError, match="pass sketch="):
        repair(moments)


def test_shrinkage_adds_a_quarter_of_the_noises_spectral_norm():
    rng = np.random.default_rng(3)
    d, sigma = 200, 0.7
    noise = np.triu(rng.normal(size=(d, d)) * sigma, 1)
    noise = noise + noise.T + np.diag(rng.normal(size=d) * sigma * np.sqrt(2))
    edge = np.linalg.eigvalsh(noise)[-1]
    a = noise_shrinkage(sigma, d, trace=d * 3.0)
    assert a / (1 - a) * 3.0 == pytest.approx(edge / 4, rel=0.05)


def test_shrinkage_runs_from_none_to_all():
    assert noise_shrinkage(0.0, 10, 5.0) == 0.0
    assert noise_shrinkage(1.0, 10, 0.0) == 1.0
    amounts = [noise_shrinkage(s, 10, 5.0) for s in (0.1, 1.0, 10.0)]
    assert amounts == sorted(amounts)
