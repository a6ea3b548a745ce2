"""What sites add to all of their rows: a mixed model from counts and sums, and heads without it."""

import numpy as np
import pytest
from ghofl_benchmarks.site_effects import RATIOS, SiteEffects, _Sites, fit_without_site_effects, offset_head
from ghofl_benchmarks.sites import HEAD, Federation

from ghofl import Encoder, Grid, Recipe

DIM, CLASSES = 4, 3
CENTRES = 2.0 * np.eye(CLASSES, DIM)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def sites(rng, ratio, count=30, most=30, skew=False):
    """Rows and labels of sites that each see everything shifted."""
    out = []
    for _ in range(count):
        shares = rng.dirichlet([0.2] * CLASSES) if skew else np.full(CLASSES, 1 / CLASSES)
        y = rng.choice(CLASSES, size=rng.integers(5, most), p=shares)
        out.append((CENTRES[y] + np.sqrt(ratio) * rng.normal(size=DIM) + rng.normal(size=(len(y), DIM)), y))
    return out


def sums_of(parts):
    counts = np.array([np.bincount(y, minlength=CLASSES) for _, y in parts])
    sums = np.array([np.eye(CLASSES)[y].T @ x for x, y in parts])
    return counts, sums, sum(x.T @ x for x, _ in parts)


def test_means_offsets_and_likelihood_are_those_of_the_dense_mixed_model(rng):
    """By matrices over all rows: generalised least squares, best linear predictions, the restricted likelihood."""
    parts = sites(rng, 0.3, count=6, most=12)
    counts, sums, second = sums_of(parts)
    x, y = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    who = np.repeat(np.eye(6), [len(y) for _, y in parts], axis=0)
    design, found, dense = np.eye(CLASSES)[y], [], []
    model = _Sites(counts.astype(float), sums, second)
    for ratio in (0.01, 0.3, 5.0):
        inverse = np.linalg.inv(np.eye(len(y)) + ratio * who @ who.T)
        normal = design.T @ inverse @ design
        means = np.linalg.solve(normal, design.T @ inverse @ x)
        assert model.means(ratio) == pytest.approx(means)
        left = x - design @ means
        effects = SiteEffects(ratio, means)
        for k in range(6):
            assert effects.offset(counts[k], sums[k]) == pytest.approx(ratio * (who.T @ inverse @ left)[k])
        assert model.covariance(ratio) == pytest.approx(left.T @ inverse @ left / (len(y) - CLASSES))
        squares = np.einsum("nd,nm,md->d", left, inverse, left)
        logs = -np.linalg.slogdet(inverse)[1] + np.linalg.slogdet(normal)[1]
        dense.append(-0.5 * (np.sum(squares / model.within) + DIM * logs))
        found.append(model.likelihood(ratio))
    assert np.diff(found) == pytest.approx(np.diff(dense))


@pytest.mark.parametrize("ratio", [0.3, 3.0])
def test_the_ratio_is_found_and_means_are_nearer_to_the_truth(ratio, rng):
    counts, sums, second = sums_of(sites(rng, ratio, count=80, skew=True))
    found = SiteEffects.estimate(counts, sums, second)
    assert ratio / 2 < found.ratio < ratio * 2
    pooled = sums.sum(axis=0) / counts.sum(axis=0)[:, None]
    apart = lambda means: np.abs(np.diff(means - CENTRES, axis=0)).mean()  # noqa: E731
    assert apart(found.means) < apart(pooled)


def federation(parts):
    """Sites whose rows are cut to twelve bits."""
    recipe = Recipe(("a", "b", "c"), Encoder(dim=DIM), ("B",), grid=Grid(bits=12, scale=100.0))
    return Federation(recipe, {f"site-{i}": rows for i, rows in enumerate(parts)})


def test_without_site_effects_nothing_changes(rng):
    made, x = federation(sites(rng, 0.0, most=400)), CENTRES.repeat(20, axis=0)
    found, effects = fit_without_site_effects(made.total, made.messages.values(), HEAD)
    assert effects.ratio <= RATIOS[RATIOS > 0][16]  # 10⁻³
    assert np.array_equal(found.predict(x), made.shared.predict(x))


def test_sites_of_one_class_each_could_be_anything_so_nothing_changes(rng):
    parts = [(x + 5.0 * y[:1], np.full(len(y), k % CLASSES)) for k, (x, y) in enumerate(sites(rng, 1.0))]
    counts, sums, second = sums_of(parts)
    found = SiteEffects.estimate(counts, sums, second)
    assert found.ratio == 0
    assert found.means == pytest.approx(sums.sum(axis=0) / counts.sum(axis=0)[:, None])
    within = second - np.einsum("cd,ce,c->de", sums.sum(axis=0), sums.sum(axis=0), 1 / counts.sum(axis=0))
    assert found.shared == pytest.approx(within / (counts.sum() - CLASSES))


def test_constant_features_and_classes_without_rows_are_no_trouble(rng):
    counts, sums, second = sums_of(sites(rng, 0.5))
    wide = np.zeros((len(counts), CLASSES + 1, DIM + 1))
    wide[:, :CLASSES, :DIM] = sums
    square = np.zeros((DIM + 1, DIM + 1))
    square[:DIM, :DIM] = second
    found = SiteEffects.estimate(np.pad(counts, ((0, 0), (0, 1))), wide, square)
    assert found.ratio == SiteEffects.estimate(counts, sums, second).ratio
    assert np.isfinite(found.means).all()


def test_a_head_with_an_own_offset_beats_the_pooled_one(rng):
    parts = sites(rng, 2.0, count=20, skew=True)
    made = federation(parts)
    head, effects = fit_without_site_effects(made.total, made.messages.values(), HEAD)
    own, before = [], []
    for x, y in parts:
        moved, centre = offset_head(head, effects, x, y), np.mean(x - CENTRES[y], axis=0)
        labels = rng.integers(CLASSES, size=200)
        rows = CENTRES[labels] + centre + rng.normal(size=(200, DIM))
        own.append(np.mean(moved.with_priors("uniform").predict_numbers(rows) == labels))
        before.append(np.mean(made.shared.with_priors("uniform").predict_numbers(rows) == labels))
    assert np.mean(own) > np.mean(before) + 0.1
