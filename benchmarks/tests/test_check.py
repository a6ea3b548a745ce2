"""Today's code gives the stored figures of small sets; what does not is named."""

import json

import check
import pytest
from ghofl_benchmarks import made

ROW = {"dataset": "wine", "rows_per_class": 8, "statistic": "B", "turned_away": {"0.05": 0.0508}, "recipe": "ab" * 32}


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A stored file with one cheap row and one that is not, and what is measured now, to be changed."""
    rows = [ROW, {**ROW, "dataset": "cifar10"}]
    (tmp_path / "false_alarms.json").write_text(json.dumps(rows))
    monkeypatch.setattr(check, "RESULTS", tmp_path)
    now = [ROW]
    part = check.PARTS["false_alarms"]
    again = check.Part(part.names, part.is_cheap, lambda: now, part.unit)
    monkeypatch.setattr(check, "PARTS", {"false_alarms": again})
    return now


@pytest.mark.parametrize("name", ["naive_bayes", "false_alarms", "probabilities"])
def test_stored_figures_of_small_sets_are_what_the_code_gives_now(name):
    """After a change that is meant to move them: python benchmarks/check.py --store."""
    part = check.PARTS[name]
    found = list(check.drifts(name, filter(part.is_cheap, check.read(name)), part.again()))
    assert not found, "\n".join(map(str, found))


def test_stored_figures_of_few_rows_are_what_the_code_gives_now():
    stored = [row for row in check.read("few_shots") if check.PARTS["few_shots"].is_cheap(row)]
    some = [row for row in stored if row["rows_per_class"] in ("2", "16")]
    assert len(some) == 2
    found = list(check.drifts("few_shots", some, check.few(("2", "16"))))
    assert not found, "\n".join(map(str, found))


def test_every_part_has_cheap_rows_that_are_stored():
    for name, part in check.PARTS.items():
        names = [part.name_of(row) for row in check.read(name) if part.is_cheap(row)]
        assert len(names) == len(set(names)) >= 6


def test_nothing_drifts_within_half_of_the_last_printed_digit(folder, capsys):
    folder[:] = [{**ROW, "turned_away": {"0.05": 0.0513}}]
    assert check.main([]) == 0
    assert "1 rows measured again, 0 figures drifted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"turned_away": {"0.05": 0.0514}}, "wine, 8, B: turned_away 0.05 is 0.0514, stored is 0.0508"),
        ({"turned_away": {}}, "turned_away 0.05 is None, stored is 0.0508"),
        ({"recipe": "cd" * 32}, f"recipe is {'cd' * 32}, stored is {'ab' * 32}"),
        ({"more": 1.0}, "more is 1.0, stored is None"),
        ({"dataset": "digits"}, "digits, 8, B: turned_away 0.05 is 0.0508, stored is None"),
    ],
)
def test_figures_recipes_and_rows_that_are_others_fail_and_are_named(now, said, folder, capsys):
    folder[:] = [{**ROW, **now}]
    assert check.main(["false_alarms"]) == 1
    assert said in capsys.readouterr().out


def test_a_part_without_cheap_cells_is_refused(capsys):
    assert check.main(["speed"]) == 2
    assert "'speed' has no cheap cells; known are few_shots" in capsys.readouterr().err


def test_storing_replaces_the_measured_rows_alone_and_enters_who_made_them(folder):
    folder[:] = [{**ROW, "turned_away": {"0.05": 0.06}}]
    check.store("false_alarms", folder)
    assert check.read("false_alarms") == [*folder, {**ROW, "dataset": "cifar10"}]
    entry = made.read(check.RESULTS)["false_alarms.json"]
    assert entry["has_older_rows"] is True
    assert entry["sha256"] == made.digest(check.RESULTS / "false_alarms.json")
    assert check.main([]) == 0
