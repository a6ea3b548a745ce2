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


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_both_systems_predict_alike_where_classes_have_fewer_rows_than_dimensions(dtype):
    steps, ours = cifar100.ours(small_rows(), classes=8)
    others, theirs = cifar100.theirs(small_rows(), classes=8, dtype=dtype)
    assert set(steps) == {"statistics", "fit", "score"}
    assert set(others) == {"fit", "score"}
    assert np.mean(ours == theirs) > 0.98


def test_the_promise_is_held_against_float64_rows_with_the_sums_and_without():
    ours = {"statistics": 4.0, "fit": 5.0, "score": 15.0, "peak_mb": 2500}
    found = {"ghofl": [ours], "float64": [{"fit": 50.0, "score": 60.0, "peak_mb": 4000}]}
    found["float32"] = [{"fit": 40.0, "score": 30.0, "peak_mb": 3000}]
    whole, sums, single = cifar100.measures(found)
    assert [m.ratio for m in (whole, sums, single)] == pytest.approx([24 / 110, 20 / 110, 24 / 70])
    assert [m.keeps_its_promise for m in (whole, sums, single)] == [False, True, True]
    run = {
        "rows": "random rows",
        "agreement": {"float64": 0.999, "float32": 0.998},
        "accuracy": {"ghofl": 0.67, "float64": 0.67, "float32": 0.67},
        "systems": found,
        "measures": ratios.as_stored([whole, sums, single]),
    }
    table = cifar100.table(run)
    assert "| ghofl | 4.0 | 5.0 | 15.0 | 2,500 | 67.00 |  |" in table
    assert "| scikit-learn, float64 rows |  | 50.0 | 60.0 | 4,000 | 67.00 | 99.90 |" in table
    assert "5 × faster: **missed**" in table
