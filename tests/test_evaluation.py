import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    f1_score,
    log_loss,
    precision_recall_curve,
    precision_score,
    recall_score,
    roc_auc_score,
)
from typer.testing import CliRunner

from federations import blobs, recipe_of, total_of
from ghofl import Classifier, Privacy
from ghofl.cli import app
from ghofl.errors import HeadError, MessageError, RosterError
from ghofl.evaluation import Confusion, Metrics
from ghofl.evaluation.confusion import wilson
from ghofl.evaluation.ranking import RECALLS
from ghofl.evaluation.selection import Report, load_reports
from ghofl.evaluation.tally import Tally


def test_counts_and_rates_agree_with_scikit_learn(rng):
    y, predicted = rng.integers(5, size=200), rng.integers(5, size=200)
    ours = Confusion.of(y, predicted, 5)
    assert np.array_equal(ours.counts, confusion_matrix(y, predicted))
    assert ours.accuracy == pytest.approx(accuracy_score(y, predicted))
    assert ours.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, predicted))


def test_classes_without_rows_do_not_count():
    result = Confusion.of(np.array([0, 0]), np.array([0, 1]), 3)
    assert result.balanced_accuracy == 0.5
    assert np.isnan(result.recalls[2])
    empty = Confusion.of(np.array([], dtype=int), np.array([], dtype=int), 3)
    assert (empty.accuracy, empty.balanced_accuracy) == (0.0, 0.0)


def test_the_measures_are_scikit_learn_s(rng):
    p = rng.dirichlet(np.ones(4), size=300)
    y = rng.integers(4, size=300)
    found = Metrics.of(p, y).to_dict()
    assert found["macro_f1"] == pytest.approx(f1_score(y, p.argmax(axis=1), average="macro"))
    assert found["log_loss"] == pytest.approx(log_loss(y, p))
    assert found["brier"] == pytest.approx(brier_score_loss(y, p))
    shares, others = {"accuracy", "balanced_accuracy"}, {"macro_f1", "log_loss", "brier", "ece", "average_precision"}
    assert set(found) == shares | {f"{name}_interval" for name in shares} | others
    every = Metrics.of(p, y).average_precisions
    assert every == pytest.approx(average_precision_score(np.eye(4)[y], p, average=None))
    assert found["average_precision"] == every[np.bincount(y).argmin()]
    precision = Metrics.of(p, y).confusion.precisions
    assert precision == pytest.approx(precision_score(y, p.argmax(axis=1), average=None))


def two_classes(rng, rows=600, share=0.07):
    """Labels of which few are 1, and probabilities with many ties."""
    y = (rng.uniform(size=rows) < share).astype(int)
    second = np.clip(np.round(0.3 * y + rng.beta(1, 6, size=rows), 2), 0, 1)
    return np.stack([1 - second, second], axis=1), y


def test_the_measures_of_two_classes_are_scikit_learn_s(rng):
    p, y = two_classes(rng)
    found = Metrics.of(p, y)
    assert found.auc == pytest.approx(roc_auc_score(y, p[:, 1]))
    assert found.brier == pytest.approx(brier_score_loss(y, p[:, 1]))
    assert found.average_precision == pytest.approx(average_precision_score(y, p[:, 1]))
    swapped = Metrics.of(p[:, ::-1], 1 - y)
    assert (swapped.confusion.rarest, swapped.average_precision) == (0, found.average_precision)
    assert (swapped.auc, swapped.thresholds) == (found.auc, found.thresholds)


def test_thresholds_keep_what_they_say_and_reach_the_recalls_by_the_fewest_flags(rng):
    p, y = two_classes(rng)
    found = Metrics.of(p, y).thresholds
    for line in found:
        predicted = p[:, 1] >= line.probability
        assert (line.recall, line.flagged) == pytest.approx((recall_score(y, predicted), predicted.mean()))
        assert line.precision == pytest.approx(precision_score(y, predicted, zero_division=1))
    assert 0.5 in [line.probability for line in found]
    assert found == tuple(sorted(found, key=lambda line: -line.probability))
    _, recalls, values = precision_recall_curve(y, p[:, 1])
    for least in RECALLS:
        highest = values[recalls[:-1] >= least].max()
        line = next(line for line in found if line.recall >= least)
        assert (p[:, 1] >= line.probability).sum() <= (p[:, 1] >= np.nextafter(highest - 0.001, 0)).sum()
    assert json.loads(json.dumps(Metrics.of(p, y).to_dict()))["by_threshold"][0]["flagged"] == found[0].flagged


def test_there_are_no_thresholds_where_nothing_can_be_told_apart():
    one = Metrics.of(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 0]))
    assert (one.auc, one.average_precision, one.thresholds) == (None, None, ())
    assert not one.confusion.has_rare
    assert Metrics.of(np.full((3, 3), 1 / 3), np.array([0, 1, 2])).thresholds == ()
    tiny = Metrics.of(np.array([[1.0, 0.0], [1.0, 1e-12]]), np.array([0, 1]))
    assert [(line.probability, line.recall) for line in tiny.thresholds] == [(0.5, 0.0), (9.99e-13, 1.0)]


@pytest.mark.parametrize(("rows", "expected"), [([50, 50], 1), ([5, 95], 0), ([0, 20, 80], 1), ([40, 30, 30], 2)])
def test_the_rarest_class_is_the_one_with_fewest_rows(rows, expected):
    found = Confusion(np.diag(rows))
    assert found.rarest == expected
    assert found.has_rare == (min(n for n in rows if n) / 100 < 0.5 / np.count_nonzero(rows))


@pytest.mark.parametrize(("right", "rows"), [(0, 1), (1, 1), (0, 30), (30, 30), (17, 40), (995, 1000)])
def test_the_interval_of_an_accuracy_is_wilson_s(right, rows):
    theirs = binomtest(right, rows).proportion_ci(0.95, method="wilson")
    assert wilson(right, rows) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    y = np.zeros(rows, dtype=int)
    found = Confusion.of(y, np.where(np.arange(rows) < right, 0, 1), 2)
    assert found.accuracy_interval == wilson(right, rows)
    assert found.balanced_interval == pytest.approx(wilson(right, rows))  # with one class it is the same share


def test_the_interval_of_a_balanced_accuracy_holds_it_nineteen_times_in_twenty(rng):
    recalls, rows, inside = np.array([0.95, 0.6, 0.8]), np.array([60, 25, 40]), []
    for _ in range(2000):
        right = rng.binomial(rows, recalls)
        low, high = Confusion(np.diag(right) + np.diag(rows - right)[:, [2, 0, 1]]).balanced_interval
        inside.append(low <= recalls.mean() <= high)
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)  # three deviations of 2,000 trials
    assert Confusion(np.zeros((3, 3), dtype=np.int64)).balanced_interval == (0.0, 1.0)


def test_a_row_without_a_label_counts_as_wrong():
    found = Metrics.of(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 1]), np.array([-1, 1]))
    assert found.confusion.accuracy == 0.5
    assert Metrics.of(np.array([[0.9, 0.1]]), np.array([0])).auc is None


@pytest.fixture
def head_and_rows(rng):
    x, y = blobs(rng, rows=1200, spread=0.8)
    return Classifier.fit(total_of(recipe_of(), x[:400], y[:400]), "student", novelty=True), x[400:], y[400:]


def test_the_tally_of_a_union_is_the_sum_of_tallies(head_and_rows):
    classifier, x, y = head_and_rows
    parts = Tally.of(classifier, x[:7], y[:7]) + Tally.of(classifier, x[7:300], y[7:300])
    parts = parts + Tally.of(classifier, x[300:], y[300:])
    whole = Tally.of(classifier, x, y)
    assert np.array_equal(parts.losses, whole.losses)
    assert np.array_equal(parts.novelties, whole.novelties)
    assert whole.novelties.sum() == len(y)


def test_calibrated_on_rows_of_sites_the_temperature_and_the_rejected_share_are_those_of_the_rows(head_and_rows):
    classifier, x, y = head_and_rows
    wrong = replace(classifier, calibration=classifier.calibration.temper(6.0))
    mended = Tally.of(wrong, x, y).calibrate(wrong, len(y))
    before, after, own = (Metrics.of(c.predict_proba(x), y).log_loss for c in (wrong, mended, classifier))
    assert after < before
    assert after < own + 0.01
    assert mended.calibration.source == "sites"
    assert np.mean(mended.is_novel(x, 0.05)) == pytest.approx(0.05, abs=0.01)
    assert Classifier.from_bytes(mended.to_bytes()) == mended
    with pytest.raises(HeadError, match="too few"):
        Tally.of(wrong, x[:5], y[:5]).calibrate(wrong, 5)


@pytest.mark.parametrize(
    "values",
    [3, {"losses": []}, {"losses": [0.5] * 65, "novelties": [0] * 600}, {"losses": [-1] * 65, "novelties": [0] * 600}],
)
def test_a_hostile_tally_is_refused(values):
    with pytest.raises(MessageError, match="tally"):
        Tally.of_values(values, 10, "report.json")


def test_from_evaluate_to_predict_at_the_command_line(head_and_rows, tmp_path):
    """Two sites evaluate, the server calibrates, priors are given at use."""
    classifier, x, y = head_and_rows
    classifier.save(tmp_path / "head")
    names = np.array(classifier.recipe.classes)
    for site, rows in (("north", slice(0, 300)), ("south", slice(300, None))):
        np.savez(tmp_path / f"{site}.npz", x=x[rows], y=names[y[rows]])
        arguments = ["evaluate", "head", f"{site}.npz", "--site", site, "--tally", "--json", f"{site}.json"]
        said = command(tmp_path, *arguments)
        assert "Brier" in said
        assert "class 3" in said
    report = json.loads((tmp_path / "north.json").read_text())
    assert {"accuracy", "balanced_accuracy", "macro_f1", "log_loss", "brier", "ece", "precisions", "recalls"} <= set(
        report
    )
    assert "temperature" in command(tmp_path, "calibrate", "head", "north.json", "south.json", "-o", "mended")
    both = Tally.of(classifier, x, y).calibrate(classifier, len(y))
    assert Classifier.load(tmp_path / "mended") == both
    (tmp_path / "priors.json").write_text(json.dumps({"class 0": 3, "class 1": 1}))
    for given, expected in (
        (["--priors", "uniform"], both.with_priors("uniform").predict_numbers(x[:300])),
        (["--priors", "priors.json"], both.with_priors([3, 1, 0, 0]).predict_numbers(x[:300])),
    ):
        command(tmp_path, "predict", "mended", "north.npz", "-o", "out.csv", "--force", *given)
        lines = (tmp_path / "out.csv").read_text().splitlines()
        assert [line.split(",")[1] for line in lines[1:]] == names[expected].tolist()
    assert "neither a file nor" in command(tmp_path, "predict", "mended", "north.npz", "-o", "b.csv", "--priors", "x")
    other = ["calibrate", "mended", "north.json", "-o", "again"]
    assert "another head file" in command(tmp_path, *other)


def command(folder, *arguments):
    """What a command says, run in a folder."""
    from contextlib import chdir

    with chdir(folder):
        result = CliRunner().invoke(app, [*arguments])
    return f"{result.output} {result.exception}"


def test_a_calibrated_head_promises_nothing_and_its_file_says_why(tmp_path, rng):
    """Fitted to exact counts of the rows that epsilon is about."""
    recipe = replace(recipe_of(), privacy=Privacy(radius=6.0, epsilon=8.0, delta=1e-5))
    x, y = blobs(rng, rows=600)
    Classifier.fit(total_of(recipe, x, y).release(), "lda").save(tmp_path / "head")
    np.savez(tmp_path / "north.npz", x=x, y=np.array(recipe.classes)[y])
    command(tmp_path, "evaluate", "head", "north.npz", "--site", "north", "--tally", "--json", "north.json")
    assert "promises no epsilon" in command(tmp_path, "calibrate", "head", "north.json", "-o", "mended")
    before, after = Classifier.load(tmp_path / "head"), Classifier.load(tmp_path / "mended")
    assert (before.guarantee.epsilon, after.guarantee) == (pytest.approx(8.0), None)
    assert after.calibration.source == "sites"
    for text in (after.revealed, command(tmp_path, "inspect", "mended", "--json", "-")):
        assert "does not hold for this one" in text
    python = Tally.of(before, x, y).calibrate(before, len(y))
    assert (python.guarantee, python.revealed) == (None, after.revealed), "in Python as at the command line"


IN_FORCE = {"priors": ["--priors", "uniform"], "thresholds": ["--threshold", "class 2=0.1"]}


@pytest.mark.parametrize("setting", IN_FORCE)
def test_reports_with_other_priors_or_thresholds_do_not_add_up(head_and_rows, tmp_path, setting):
    classifier, x, y = head_and_rows
    classifier.save(tmp_path / "head")
    for name, rows, given in (("plain", slice(0, 300), []), ("other", slice(300, None), IN_FORCE[setting])):
        np.savez(tmp_path / f"{name}.npz", x=x[rows], y=np.array(classifier.recipe.classes)[y[rows]])
        command(
            tmp_path, "evaluate", "head", f"{name}.npz", "--site", name, "--tally", "--json", f"{name}.json", *given
        )
    told = json.loads((tmp_path / "other.json").read_text())
    expected = {"priors": [0.25] * 4} if setting == "priors" else {"thresholds": {"class 2": 0.1}}
    assert {key: told[key] for key in expected} == expected
    (plain,), (other,) = (load_reports(tmp_path / f"{name}.json") for name in ("plain", "other"))
    with pytest.raises(RosterError, match="do not add up"):
        plain + other
    assert "do not add up" in command(tmp_path, "select", "plain.json", "other.json")
    assert "do not add up" in command(tmp_path, "calibrate", "head", "plain.json", "other.json", "-o", "mended")
    assert "would be wrong for it" in command(tmp_path, "calibrate", "head", "other.json", "-o", "mended")
    assert "temperature" in command(tmp_path, "calibrate", "head", "plain.json", "-o", "mended")


@pytest.mark.parametrize("change", [
    {"priors": [0.5]}, {"priors": "uniform"}, {"priors": [2.0, 0, 0, 0]}, {"thresholds": None}, {"thresholds": {"a": "b"}},
    {"thresholds": {"a": float("nan")}}, {"thresholds": {f"c{i}": 0.5 for i in range(9)}},
])  # fmt: skip
def test_a_report_that_does_not_say_what_was_in_force_is_refused(head_and_rows, tmp_path, change):
    classifier, _, y = head_and_rows
    classifier.save(tmp_path / "head")
    values = Report.of(tmp_path / "head", "north", classifier, Confusion.of(y, y, 4)).to_dict() | change
    (tmp_path / "report.json").write_text(json.dumps(values))
    with pytest.raises(MessageError, match="thresholds"):
        load_reports(tmp_path / "report.json")
