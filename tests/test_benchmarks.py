"""Two speed runs are compared by their ratios; nothing is timed here."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parents[1] / "benchmarks" / "ratios.py"
if not FILE.exists():
    pytest.skip("the benchmarks are not beside the tests", allow_module_level=True)

_spec = importlib.util.spec_from_file_location("ratios", FILE)
assert _spec is not None
assert _spec.loader is not None
ratios = importlib.util.module_from_spec(_spec)
sys.modules["ratios"] = ratios  # where its dataclasses look for their own module
_spec.loader.exec_module(ratios)

STEADY = (1.00, 1.02, 0.98, 1.01, 0.99)
SHAKY = (1.0, 1.5, 0.7, 1.3, 0.8)


def measure(name="pack", ratio=2.0, turns=STEADY, machine=1.0):
    """A measure whose reference takes one second on a machine of speed 1, and whose own turns shake around a ratio."""
    ours = tuple(machine * ratio * turn for turn in turns)
    return ratios.Measure(name, "4 million entries packed", "sha256 of them", ours, (machine,) * len(turns))


def run(*measures, **fields):
    return {"threads": 1, "measures": ratios.as_stored(measures), **fields}


def written(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def verdicts(old, new):
    return {change.name: change.verdict for change in ratios.compare(old, new)}


def test_the_ratio_is_that_of_the_medians_and_one_disturbed_turn_moves_neither_it_nor_the_spread_much():
    quiet, disturbed = measure(turns=(1.0, 1.01, 0.99, 1.0, 1.0)), measure(turns=(1.0, 1.01, 0.99, 1.0, 9.0))
    assert quiet.ratio == pytest.approx(2.0)
    assert disturbed.ratio == pytest.approx(2.0)
    assert disturbed.spread < 0.02


def test_the_spread_is_a_relative_standard_deviation_and_unknown_of_a_single_turn():
    assert measure(turns=SHAKY).spread == pytest.approx(1.206 * 1.4826 * 0.3)  # 1.206 for five turns
    many = measure(turns=np.random.default_rng(0).normal(1.0, 0.05, size=2001)).spread
    assert many == pytest.approx(0.05, rel=0.05)
    assert measure(ratio=20.0, turns=SHAKY).spread == pytest.approx(measure(turns=SHAKY).spread)
    assert measure(turns=(1.0,)).spread is None


def test_changes_within_the_tolerance_are_the_same_speed():
    assert verdicts([measure()], [measure(ratio=2.2)]) == {"pack": "same"}


def test_a_machine_that_is_three_times_slower_today_changes_nothing():
    assert verdicts([measure()], [measure(machine=3.0)]) == {"pack": "same"}


def test_twice_the_time_is_slower_and_half_of_it_is_quicker():
    (change,) = ratios.compare([measure()], [measure(ratio=4.0)])
    assert (change.verdict, change.is_failure, change.change) == ("SLOWER", True, pytest.approx(1.0))
    assert verdicts([measure(ratio=4.0)], [measure()]) == {"pack": "quicker"}


@pytest.mark.parametrize(("slower", "fails"), [(1.14, False), (1.16, True)])
def test_without_any_spread_fifteen_per_cent_is_the_limit(slower, fails):
    (change,) = ratios.compare([measure(turns=(1.0,))], [measure(ratio=2.0 * slower, turns=(1.0,))])
    assert change.is_failure is fails


def test_noise_is_three_times_the_spreads_of_both_runs_together():
    old, new = measure(turns=SHAKY), measure(ratio=3.0, turns=SHAKY)
    (change,) = ratios.compare([old], [new])
    assert change.noise == pytest.approx(3 * (old.spread**2 + new.spread**2) ** 0.5)
    assert not change.is_failure
    assert change.verdict == "too noisy to tell"
    assert ratios.compare([measure()], [measure(ratio=3.0)])[0].is_failure


def test_a_measure_that_is_no_longer_there_fails_and_a_new_one_does_not():
    changes = ratios.compare([measure("pack"), measure("unpack")], [measure("pack"), measure("fit_lda")])
    assert {c.name: (c.verdict, c.is_failure) for c in changes} == {
        "pack": ("same", False),
        "unpack": ("MISSING", True),
        "fit_lda": ("new", False),
    }


def test_the_table_has_every_measure_and_names_those_that_fail():
    old = [measure("pack"), measure("unpack"), measure("lda")]
    table = ratios.table_of_changes(ratios.compare(old, [measure("pack"), measure("lda", ratio=5.0)]))
    lines = {line.split()[0]: line.split() for line in table.splitlines() if line}
    assert lines["pack"][1:] == ["2", "2", "+0", "%", "15", "%", "same"]
    assert lines["lda"][1:] == ["2", "5", "+150", "%", "15", "%", "SLOWER"]
    assert lines["unpack"][-1] == "MISSING"
    assert table.endswith("Slower beyond noise, or missing: unpack, lda.")


def test_a_stored_run_gives_its_measures_back():
    measures = [measure("pack"), measure("lda", ratio=0.03, turns=SHAKY)]
    again = ratios.from_stored(json.loads(json.dumps(run(*measures))))
    assert [m.name for m in again] == ["pack", "lda"]
    assert again[1].ours == pytest.approx(measures[1].ours, rel=1e-3)


@pytest.mark.parametrize(
    ("new", "status", "said"),
    [
        (run(measure(ratio=2.1)), 0, "Nothing is slower beyond noise."),
        (run(measure(ratio=4.0)), 1, "Slower beyond noise, or missing: pack."),
        (run(measure("unpack")), 1, "Slower beyond noise, or missing: pack."),
        (run(measure(), threads=8), 0, "threads then: 1; now: 8"),
    ],
)
def test_the_exit_status_says_whether_anything_became_slower(new, status, said, tmp_path, capsys):
    old, new = written(tmp_path / "old.json", run(measure())), written(tmp_path / "new.json", new)
    assert ratios.main([old, new]) == status
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        ("{", "Expecting"),
        ("[]", "no list of measures"),
        ({"statistics": {"ratio": 0.9}}, "no list of measures"),
        ({"measures": []}, "no list of measures"),
        ({"measures": [{"name": "pack"}]}, "a measure has not just name, what"),
        (run(measure(), measure()), "two measures of one name"),
        ({"measures": [{**ratios.as_stored([measure()])[0], "ours": []}]}, "not lists of positive seconds"),
        ({"measures": [{**ratios.as_stored([measure()])[0], "ours": [float("nan")] * 5}]}, "positive seconds"),
        ({"measures": [{**ratios.as_stored([measure()])[0], "ours": [0.0] * 5}]}, "positive seconds"),
        ({"measures": [{**ratios.as_stored([measure()])[0], "ours": [1.0]}]}, "1 times and 5 references"),
    ],
)
def test_a_baseline_that_is_missing_or_damaged_is_an_error_of_its_own(content, why, tmp_path, capsys):
    new, old = written(tmp_path / "new.json", run(measure())), str(tmp_path / "old.json")
    if content is not None:
        written(tmp_path / "old.json", content)
    assert ratios.main([old, new]) == 2
    error = capsys.readouterr().err
    assert old in error
    assert why in error
    assert "make bench PARTS=speed" in error


def test_the_stored_speed_run_is_one_that_can_be_a_baseline():
    stored = ratios.read(FILE.parent / "results" / "speed.json")
    assert {"statistics", "qda_scoring", "lda"} <= {m.name for m in ratios.from_stored(stored)}
    assert "| QDA scores of a row" in ratios.table_of_measures(ratios.from_stored(stored))


def test_the_exponent_is_the_slope_of_logarithms():
    spec = importlib.util.spec_from_file_location("growth", FILE.with_name("growth.py"))
    growth = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(growth)
    sizes = [100, 200, 400, 800]
    assert growth.exponent(sizes, [3e-6 * n**2 for n in sizes]) == pytest.approx(2.0)
    assert growth.exponent(sizes, [5.0 for _ in sizes]) == pytest.approx(0.0, abs=1e-9)
    names = [(curve.stage, curve.over) for curve in growth.curves(np.random.default_rng(0))]
    assert len(set(names)) == len(names) >= 12
