"""QDA beside scikit-learn's: both see the same rows and predict alike; nothing is timed here."""

import cifar100
import numpy as np
import pytest
import ratios


def small_rows():
    rng = np.random.default_rng(0)
    y = {"y_train": np.arange(400) % 8, "y_test": np.arange(80) % 8}
    means = rng.normal(size=(8, 60)).astype(np.float32)  # 50 rows per class: fewer than dimensions
    x = {f"x{k[1:]}": (rng.normal(size=(len(v), 60)) + means[v]).astype(np.float32) for k, v in y.items()}
    return {**x, **y}


def test_both_systems_predict_alike_where_classes_have_fewer_rows_than_dimensions():
    steps, ours = cifar100.ours(small_rows(), classes=8)
    others, theirs = cifar100.theirs(small_rows(), classes=8)
    assert set(steps) == {"statistics", "fit", "score"}
    assert set(others) == {"fit", "score"}
    assert np.mean(ours == theirs) > 0.98


def test_the_promise_is_held_against_scikit_learn_with_the_sums_and_without():
    ours = {"statistics": 4.0, "fit": 5.0, "score": 15.0, "peak_mb": 2500}
    found = {"ghofl": [ours], "sklearn": [{"fit": 50.0, "score": 60.0, "peak_mb": 4000}]}
    whole, sums = cifar100.measures(found)
    assert [m.ratio for m in (whole, sums)] == pytest.approx([24 / 110, 20 / 110])
    assert [m.keeps_its_promise for m in (whole, sums)] == [False, True]
    run = {
        "rows": "random rows",
        "agreement": 0.999,
        "accuracy": {"ghofl": 0.67, "sklearn": 0.67},
        "systems": found,
        "measures": ratios.as_stored([whole, sums]),
    }
    table = cifar100.table(run)
    assert "the same in 99.90 % of rows" in table
    assert "| ghofl | 4.0 | 5.0 | 15.0 | 2,500 | 67.00 |" in table
    assert "| scikit-learn |  | 50.0 | 60.0 | 4,000 | 67.00 |" in table
    assert "5 × faster: **missed**" in table
