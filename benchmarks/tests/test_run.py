"""`make bench`: which parts are run, compared with a baseline, and written to the page; nothing is timed here."""

import json

import encoders
import pytest
import ratios
import run
import scale
import trained


def stored(ratio=2.0, name="lda", **fields):
    measure = ratios.Measure(name, "LDA", "scikit-learn's", (ratio,) * 5, (1.0,) * 5, **fields)
    return {
        "threads": 1,
        "clock": "CPU",
        "float32_gflops": 1.0,
        "float64_gflops": 1.0,
        "measures": ratios.as_stored([measure]),
    }


@pytest.fixture
def parts(monkeypatch, tmp_path):
    """Parts that are done at once, an empty folder of results, and what is measured now, to be changed."""
    now = {name: stored(name=f"{name}_lda", peak_mb=(10.0, 10.0)) for name in run.TIMED}
    monkeypatch.setattr(run, "PARTS", {name: lambda name=name: now[name] for name in run.TIMED})
    monkeypatch.setattr(run, "FIGURES", {})
    monkeypatch.setattr(run, "SECTIONS", ())
    monkeypatch.setattr(run.data, "is_there", lambda: True)
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results")
    run.RESULTS.mkdir()
    return now


@pytest.fixture
def baseline(parts, tmp_path):
    """A folder with a run of every timed part, as fast as what is measured now."""
    folder = tmp_path / "old"
    folder.mkdir()
    for name, result in parts.items():
        (folder / f"{name}.json").write_text(json.dumps(result))
    return folder


def test_every_timed_part_can_be_run_and_its_stored_file_can_be_a_baseline():
    assert set(run.TIMED) <= set(run.PARTS)
    timed = [name for name in run.TIMED if (run.RESULTS / f"{name}.json").is_file()]
    assert set(timed) == set(run.TIMED)
    assert all(ratios.read(run.RESULTS / f"{name}.json") for name in timed)


def test_every_timed_part_that_is_named_is_run_and_compared(parts, baseline, capsys):
    assert run.main(list(run.TIMED), str(baseline)) == 0
    said = capsys.readouterr().out
    assert all(f"{name}_lda" in said for name in run.TIMED)
    assert said.count("Nothing is slower or larger beyond noise.") == len(run.TIMED)


def test_without_names_the_parts_that_only_time_are_run_and_compared(parts, baseline, capsys):
    assert run.main([], str(baseline)) == 0
    assert capsys.readouterr().out.count("Nothing is slower or larger beyond noise.") == len(run.ONLY_TIMED)


@pytest.mark.parametrize("name", run.TIMED)
def test_a_part_that_became_slower_fails_whichever_it_is(name, parts, baseline, capsys):
    parts[name] = stored(3.0, f"{name}_lda", peak_mb=(10.0, 10.0))
    assert run.main([name], str(baseline)) == 1
    assert f"Slower or larger beyond noise, or missing: {name}_lda." in capsys.readouterr().out


def test_a_part_that_takes_more_memory_fails(parts, baseline, capsys):
    parts["growth"] = stored(2.0, "growth_lda", peak_mb=(14.0, 10.0))
    assert run.main(["growth"], str(baseline)) == 1
    assert "missing: growth_lda, MB." in capsys.readouterr().out


def test_a_measure_that_is_left_out_now_fails(parts, baseline, capsys):
    parts["speed"] = stored(2.0, "another")
    assert run.main(["speed"], str(baseline)) == 1
    assert "missing: speed_lda." in capsys.readouterr().out


def test_a_part_that_cannot_be_run_any_more_fails(baseline, monkeypatch, capsys):
    monkeypatch.setattr(run, "_run", lambda name: name != "growth")
    (run.RESULTS / "speed.json").write_text((baseline / "speed.json").read_text())
    assert run.main(["speed", "growth"], str(baseline)) == 1
    assert "growth is missing" in capsys.readouterr().out


def test_one_file_is_the_baseline_of_the_one_timed_part_that_is_named(parts, baseline, capsys):
    assert run.main(["growth"], str(baseline / "growth.json")) == 0
    assert run.main([], str(baseline / "speed.json")) == 0  # speed, where none is named
    assert run.main(["speed", "growth"], str(baseline / "speed.json")) == 2
    assert "give the folder that it lies in" in capsys.readouterr().err


def test_a_baseline_may_be_the_folder_that_the_run_writes_to(parts):
    assert run.main(["speed"]) == 0
    parts["speed"] = stored(3.0, "speed_lda", peak_mb=(10.0, 10.0))
    assert run.main(["speed"], str(run.RESULTS)) == 1


@pytest.mark.parametrize(
    ("names", "path", "why"),
    [
        (["spede"], None, "is not a part of the benchmarks"),
        (["accuracy"], "there", "PARTS names none of them"),
        (["speed"], "nowhere", "No such file"),
        ([], "empty", "has none of speed.json"),
    ],
)
def test_what_cannot_be_run_or_compared_is_refused_before_anything_is_measured(
    names, path, why, parts, baseline, tmp_path, monkeypatch, capsys
):
    (tmp_path / "empty").mkdir()
    known = {**run.PARTS, "accuracy": list}
    monkeypatch.setattr(run, "PARTS", known)
    monkeypatch.setattr(run, "_run", lambda name: pytest.fail("nothing is to be run"))
    given = {None: None, "there": str(baseline)}.get(path, str(tmp_path / str(path)))
    assert run.main(names, given) == 2
    assert why in capsys.readouterr().err


def test_page_and_pictures_come_from_stored_files_alone(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    monkeypatch.setattr(run, "PARTS", {})
    monkeypatch.setattr(run, "FIGURES", {"speed": drawn.append, "growth": drawn.append})
    (tmp_path / "speed.json").write_text(json.dumps(stored()))
    run.write_page(draw=True)
    assert drawn == [stored()]
    page = (tmp_path / "README.md").read_text()
    assert "## Speed, ratios in one run" in page
    assert "| LDA | scikit-learn's |" in page
    assert "## How time grows" not in page  # which nobody measured


def test_the_stored_page_is_the_one_that_stored_results_give():
    """After a change of results or tables: python benchmarks/run.py --page."""
    assert (run.RESULTS / "README.md").read_text(encoding="utf-8") == run.page()


def test_comparisons_of_whole_commands_are_measures_by_both_clocks():
    turn = {"seconds": 2.0, "cpu_seconds": 3.0, "peak_mb": 100, "load": 1.0}
    comparison = {"ours": [turn, turn], "reference": [{**turn, "seconds": 1.0, "peak_mb": 50}] * 2}
    found = {m.name: m for m in scale.measures({"moments": {"as the machine is": comparison}, "sum": comparison})}
    assert set(found) == {f"scale_{n}{c}" for n in ("moments_as_the_machine_is", "sum") for c in ("", "_CPU")}
    assert found["scale_sum"].ratio == 2.0
    assert found["scale_sum_CPU"].ratio == 1.0
    assert found["scale_sum"].peak_mb == (100, 50)


def test_every_way_of_an_encoder_and_every_trained_head_is_a_measure():
    way = {"images_per_second": 80.0, "times_plain": 4.0}
    (found,) = encoders.measures({"ways": {"plain loop": {**way, "images_per_second": 20.0}, "torch fp32": way}})
    assert (found.name, found.ratio) == ("encoders torch fp32", pytest.approx(0.25))
    clocks = {"wall": 4.0, "processor": 2.0}
    fits = {f"{head}_{s}": clocks for head in trained.PAPER for s in ("released", "default")}
    plain = {f"plain_{head}": {"wall": 8.0, "processor": 40.0} for head in trained.PAPER}
    speeds = [{"threads": 1, **fits, **plain}, {"threads": 2, **fits, **plain}, {"threads": 2, **fits}]
    ratios_of = {m.name: m.ratio for m in trained.measures(speeds)}
    assert len(ratios_of) == 8
    assert ratios_of["trained_fisher_mix_released_1"] == pytest.approx(0.05)
    assert ratios_of["trained_fisher_mix_default_2"] == pytest.approx(0.5)
