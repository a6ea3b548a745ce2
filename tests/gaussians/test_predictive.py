import numpy as np
import pytest

from ghofl import Gaussians
from ghofl.gaussians.predictive import redraw, resample


def truth_of(counts, dim=6):
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(dim, dim)) / np.sqrt(dim) + np.eye(dim)
    return Gaussians(np.array(counts, dtype=float), rng.normal(size=(len(counts), dim)), mixing @ mixing.T)


@pytest.mark.parametrize("counts", [(2, 2, 1), (30, 20, 10)])
def test_gaussians_are_resampled_with_the_distribution_of_redrawn_rows(counts):
    """From fewer rows than dimensions on, and with Bartlett's triangle: entries have the same mean and deviation."""
    truth = truth_of(counts)
    found = {}
    for make in (lambda rng: resample(truth, rng), lambda rng: redraw(truth, truth, rng)):
        made = [make(np.random.default_rng(seed)) for seed in range(1500)]
        entries = np.array([np.concatenate([g.pooled().ravel(), g.means.ravel()]) for g in made])
        found[len(found)] = entries.mean(axis=0), entries.std(axis=0)
    (mean, spread), (their_mean, their_spread) = found[0], found[1]
    assert mean == pytest.approx(their_mean, abs=0.12 * spread.max())
    assert spread == pytest.approx(their_spread, rel=0.12)


def test_a_class_nobody_has_stays_one_and_the_counts_are_the_same():
    made = resample(truth_of((5, 0, 7)), np.random.default_rng(0))
    assert made.counts.tolist() == [5, 0, 7]
    assert np.isfinite(made.means).all()
    assert np.array_equal(made.pooled(), made.pooled().T)
