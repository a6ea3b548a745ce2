import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix

from ghofl.evaluation import Confusion


def test_counts_and_rates_agree_with_scikit_learn(rng):
    y, predicted = rng.integers(5, size=200), rng.integers(5, size=200)
    ours = Confusion.of(y, predicted, 5)
    assert np.array_equal(ours.counts, confusion_matrix(y, predicted))
    assert ours.accuracy == pytest.approx(accuracy_score(y, predicted))
    assert ours.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, predicted))


def test_counts_of_sites_add_up(rng):
    y, predicted = rng.integers(5, size=200), rng.integers(5, size=200)
    parts = Confusion.of(y[:50], predicted[:50], 5) + Confusion.of(y[50:], predicted[50:], 5)
    assert np.array_equal(parts.counts, Confusion.of(y, predicted, 5).counts)


def test_classes_without_rows_do_not_count():
    result = Confusion.of(np.array([0, 0]), np.array([0, 1]), 3)
    assert result.balanced_accuracy == 0.5
    assert np.isnan(result.recalls[2])
    empty = Confusion.of(np.array([], dtype=int), np.array([], dtype=int), 3)
    assert (empty.accuracy, empty.balanced_accuracy) == (0.0, 0.0)
