"""The hospitals' benchmark reads files as FLamby does, and a small run of it says what it should."""

import json

import numpy as np
import pytest
from ghofl_benchmarks import __main__ as command
from ghofl_benchmarks import flamby, made, report

HEADER = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,target"


@pytest.fixture
def folder(tmp_path):
    """Four hospitals of invented rows."""
    rng = np.random.default_rng(0)
    for name in flamby.HOSPITALS:
        lines = [HEADER]
        for _ in range(60):
            ill = int(rng.integers(2))
            values = (
                50 + 10 * ill,
                1,
                rng.integers(1, 5),
                130,
                200,
                0,
                rng.integers(3),
                150 - 40 * ill,
                ill,
                1,
                "",
                "?",
                3,
            )
            noise = [v + rng.normal() if i in (0, 3, 4, 7, 9) else v for i, v in enumerate(values)]
            lines.append(",".join(map(str, [*noise, ill * 2])))
        lines.append("40,1,1,-9,200,0,0,150,0,1,1,1,1,0")
        (tmp_path / f"{name}.data").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_rows_are_complete_and_levels_are_indicators(folder):
    x, y = flamby.load(folder)["va"]
    assert x.shape == (60, 13)
    assert set(np.unique(y)) == {0, 1}
    assert np.isin(x[:, 2:5], (0, 1)).all()
    assert x[:, 2:5].sum(axis=1).max() == 1


def test_a_run_writes_its_figures_beside_flamby_s_and_says_what_made_them(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ghofl.personal.choice.MEANS", ())
    words = ["flamby", "--folder", str(folder), "--splits", "1", "--fine-splits", "2", "--out", str(tmp_path / "out")]
    assert command.main(words) == 0
    found = json.loads((tmp_path / "out" / "flamby.json").read_text())
    rows = {(row["method"], row["split"]): row for row in found["rows"]}
    assert rows["Cyclic", "FLamby's"]["rounds"] == 100
    assert rows["one head for all", "FLamby's"]["bytes"] < rows["Cyclic", "FLamby's"]["bytes"]
    assert rows["a head for each, chosen by leave-out", "1 others"]["pooled"] > 90
    assert ("one head for all: leave-out says", "2 others") in rows
    assert set(made.read(tmp_path / "out")) == {"flamby.json", "flamby.md"}
    assert command.main(["flamby", "--folder", str(tmp_path / "nowhere")]) == 2
    assert "is not here" in capsys.readouterr().err


def test_the_stored_run_reaches_what_one_message_promises():
    """A hospital's own head beats 100 rounds, and leave-out's estimate is within a point of the test rows' in each."""
    rows = {(row["method"], row["split"]): row for row in report.read("flamby")["rows"]}
    own = rows["a head for each, chosen by leave-out", "50 others"]
    assert own["pooled"] >= 79.5
    assert own["mean of hospitals"] >= 81.8
    assert rows["a head for each, chosen by leave-out", "FLamby's"]["mean of hospitals"] >= 82.0
    says, truth = (rows[f"one head for all: {what}", "500 others"] for what in ("leave-out says", "the test rows say"))
    by_row = [rows["their difference row by row", f"{splits} others"] for splits in (50, 500)]
    for hospital in flamby.HOSPITALS:
        assert abs(says[hospital] - truth[hospital]) <= 1.0
        assert max(abs(row[hospital]) for row in by_row) <= 1.0
