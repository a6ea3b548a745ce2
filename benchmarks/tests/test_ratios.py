"""Two runs of timed parts are compared by their ratios and their memory; nothing is timed here."""

import json
from pathlib import Path

import numpy as np
import pytest
import ratios

STEADY = (1.00, 1.02, 0.98, 1.01, 0.99)
SHAKY = (1.0, 1.5, 0.7, 1.3, 0.8)


def measure(name="pack", ratio=2.0, turns=STEADY, machine=1.0, **fields):
    """A measure whose reference takes one second on a machine of speed 1, and whose own turns shake around a ratio."""
    ours = tuple(machine * ratio * turn for turn in turns)
    return ratios.Measure(name, "4 million entries packed", "sha256 of them", ours, (machine,) * len(turns), **fields)


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
    assert table.endswith("Slower or larger beyond noise, or missing: unpack; lda.")


def test_a_stored_run_gives_its_measures_back():
    measures = [measure("pack"), measure("lda", ratio=0.03, turns=SHAKY, peak_mb=(12.0, None), at_most=1.5)]
    again = ratios.from_stored(json.loads(json.dumps(run(*measures))))
    assert [m.name for m in again] == ["pack", "lda"]
    assert [(m.peak_mb, m.at_most) for m in again] == [((None, None), None), ((12.0, None), 1.5)]
    assert again[1].ours == pytest.approx(measures[1].ours, rel=1e-3)


@pytest.mark.parametrize(
    ("new", "status", "said"),
    [
        (run(measure(ratio=2.1)), 0, "Nothing is slower or larger beyond noise."),
        (run(measure(ratio=4.0)), 1, "Slower or larger beyond noise, or missing: pack."),
        (run(measure("unpack")), 1, "Slower or larger beyond noise, or missing: pack."),
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
        ({"measures": [{**ratios.as_stored([measure()])[0], "peak_mb": [1.0]}]}, "not two numbers of megabytes"),
        ({"measures": [{**ratios.as_stored([measure()])[0], "peak_mb": [-1.0, 2.0]}]}, "not two numbers of megabytes"),
        ({"measures": [{**ratios.as_stored([measure()])[0], "at_most": "2"}]}, "at_most"),
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


def test_memory_that_grew_beyond_a_seventh_and_a_megabyte_is_a_failure_of_its_own():
    old = measure(peak_mb=(100.0, 50.0))
    names = {mb: verdicts([old], [measure(peak_mb=(mb, 50.0))]) for mb in (80.0, 110.0, 130.0)}
    assert [found["pack, MB"] for found in names.values()] == ["smaller", "same", "LARGER"]
    assert all(found["pack"] == "same" for found in names.values())
    small = verdicts([measure(peak_mb=(0.01, None))], [measure(peak_mb=(0.9, None))])
    assert small["pack, MB"] == "same"  # less than a megabyte more
    assert verdicts([measure(peak_mb=(0.01, None))], [measure(peak_mb=(1.2, None))])["pack, MB"] == "LARGER"


def test_memory_that_is_no_longer_measured_is_missing_and_memory_that_never_was_is_not():
    assert verdicts([measure(peak_mb=(9.0, 9.0))], [measure()])["pack, MB"] == "MISSING"
    assert "pack, MB" not in verdicts([measure()], [measure(peak_mb=(9.0, 9.0))])


def test_a_table_says_which_promises_are_kept():
    kept, missed = measure(ratio=1.4, at_most=1.5), measure("qda", ratio=0.5, at_most=0.2)
    assert (kept.keeps_its_promise, missed.keeps_its_promise, measure().keeps_its_promise) == (True, False, True)
    lines = ratios.table_of_measures([kept, missed, measure(peak_mb=(1234.5, None))]).splitlines()[2:]
    assert "| ≤ 1.5 ×: kept |" in lines[0]
    assert "| 5 × faster: **missed** |" in lines[1]
    assert lines[2].endswith("|  | 1,234 |  |")


def test_folders_of_runs_are_compared_part_by_part_and_a_missing_part_is_a_failure(tmp_path, capsys):
    for name in ("old", "same", "slower", "less"):
        (tmp_path / name).mkdir()
        written(tmp_path / name / "speed.json", run(measure(ratio=4.0 if name == "slower" else 2.0)))
        if name != "less":
            written(tmp_path / name / "growth.json", run(measure("growth_total_clients")))
        written(tmp_path / name / "accuracy.json", [{"accuracy": 0.9}])  # not timed
    statuses = [ratios.main([str(tmp_path / "old"), str(tmp_path / name)]) for name in ("same", "slower", "less")]
    assert statuses == [0, 1, 1]
    said = capsys.readouterr().out
    assert "growth is missing" in said
    assert "accuracy" not in said


def test_a_baseline_is_a_folder_or_the_file_of_the_only_part(tmp_path):
    file = written(tmp_path / "growth.json", run(measure("growth_total_clients")))
    assert list(ratios.runs_in(tmp_path, ["speed", "growth"])) == ["growth"]
    assert list(ratios.runs_in(file, ["growth"])) == ["growth"]
    with pytest.raises(ratios.BaselineError, match=r"speed, growth are several timed parts; give the folder"):
        ratios.runs_in(file, ["speed", "growth"])
    with pytest.raises(ratios.BaselineError, match=r"has none of speed\.json"):
        ratios.runs_in(tmp_path, ["speed"])


def test_the_stored_speed_run_is_one_that_can_be_a_baseline():
    stored = ratios.read(Path(ratios.__file__).parent / "results" / "speed.json")
    assert {"statistics", "qda_scoring", "lda"} <= {m.name for m in ratios.from_stored(stored)}
    assert "| QDA scores of a row" in ratios.table_of_measures(ratios.from_stored(stored))
