"""Parts of `make bench` on small data: what is scored on what, and the tables they become."""

import json
from pathlib import Path

import false_alarms
import few_shots
import novelty
import numpy as np
import probabilities
import pytest
from sklearn.metrics import roc_auc_score

from ghofl.simulation.demo import digits


def test_held_out_rows_are_training_rows_and_in_neither_part_twice():
    whole = digits()
    held = few_shots.held_out(whole, 300)
    assert len(held.y_test) == 300
    assert len(held.y_train) == len(whole.y_train) - 300
    rows = np.concatenate([held.x_train, held.x_test])
    assert np.array_equal(np.sort(rows.sum(axis=1)), np.sort(whole.x_train.sum(axis=1)))


def test_few_rows_are_as_many_of_every_class_and_the_test_rows_stay():
    whole = digits()
    some = [few_shots.some_of(whole, 4, 100, seed) for seed in (0, 1)]
    assert all((np.bincount(s.y_train) == 4).all() for s in some)
    assert np.array_equal(some[0].x_test, some[1].x_test)
    assert not np.array_equal(some[0].x_train, some[1].x_train)


def test_a_cell_has_every_head_of_the_message_and_the_gap_to_the_best_of_them():
    (cell,) = few_shots.results([few_shots.Cell("digits", "4", 100)], 1)
    assert {"nb", "lda", "student", "best"} <= set(cell)
    singles = [cell[h] for h in few_shots.HEADS["S"].split(",") if h != "best"]
    assert few_shots.gap(cell) == round(max(singles) - cell["best"], 2)
    assert f"| 4 | 1 | {cell['nearest_mean']:.2f} |" in few_shots.table([{**cell, "gap": few_shots.gap(cell)}])


def test_the_area_under_the_curve_is_scikit_learn_s():
    rng = np.random.default_rng(0)
    inside, outside = rng.integers(0, 9, 200), rng.integers(3, 12, 300)  # with ties
    theirs = roc_auc_score(np.repeat([0, 1], [200, 300]), np.concatenate([inside, outside]))
    assert novelty.auroc(inside, outside) == pytest.approx(theirs, abs=1e-4)


def test_rows_of_another_place_are_novel():
    found = novelty.measured(digits(), np.random.default_rng(0).uniform(0, 16, size=(200, 64)).astype(np.float32))
    assert found["relative_mahalanobis"] > 0.99
    assert found["outside_rows"] == 200


def test_rows_of_the_classes_are_turned_away_by_both_statistics_and_beside_gaussian_draws(monkeypatch):
    monkeypatch.setattr(false_alarms, "SETS", ("wine", "digits"))
    monkeypatch.setattr(false_alarms, "ROWS", (8,))
    rows = list(false_alarms.results())
    assert [(r["dataset"], r["statistic"]) for r in rows] == [(s, k) for s in ("wine", "digits") for k in "BS"]
    assert all(0 <= r["turned_away"]["0.01"] <= r["turned_away"]["0.05"] <= r["turned_away"]["0.1"] <= 1 for r in rows)
    assert all(r["turned_away"]["0.05"] < r["gaussian"]["0.05"] for r in rows), (
        "few rows: draws as measured lie too near"
    )
    assert f"| wine | 8 | B | {100 * rows[0]['turned_away']['0.01']:.1f} / " in false_alarms.table(rows)


def test_every_method_is_judged_by_the_same_measures(monkeypatch):
    case = probabilities.cases()["few rows", "digits, 8 per class"]
    monkeypatch.setattr(probabilities, "cases", lambda: {("few rows", "digits, 8 per class"): case})
    rows = list(probabilities.results())
    assert {"ghofl lda", "ghofl best", "scikit-learn LDA", "scikit-learn LogisticRegression"} <= {
        r["method"] for r in rows
    }
    by = {r["method"]: r for r in rows}
    assert by["ghofl lda"]["log_loss"] < by["ghofl lda, softmax of scores"]["log_loss"]
    assert "### few rows" in probabilities.table(rows)


def test_stored_cells_have_ten_seeds_and_best_is_at_most_a_point_under_the_best_single_head():
    stored = json.loads((Path(few_shots.__file__).parent / "results" / "few_shots.json").read_text())
    assert {cell["dataset"] for cell in stored} == set(few_shots.SETS)
    for cell in stored:
        assert cell["seeds"] == (1 if cell["rows_per_class"] == "all" else 10), cell
        assert few_shots.gap(cell) == cell["gap"] <= 1.0, cell
