"""The commands: what they write, what they say is missing, and figures that must be what they claim to be."""

import json
import re
import sys

import numpy as np
import pytest
import scipy.stats
from ghofl_benchmarks import data, ours, paper, powers, report, tables
from ghofl_benchmarks.__main__ import main
from ghofl_benchmarks.figures import _reached
from ghofl_benchmarks.page import rounds_table
from ghofl_benchmarks.tables import TABLES, Settings, gaussianity, load_table

from ghofl.features import Features
from ghofl.simulation.simulate import Dataset

DIM, CLASSES = 12, 10


@pytest.fixture
def small_sets(tmp_path, monkeypatch):
    """A folder with a small set called cifar10 and a small text set, and nothing else."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "data"
    (folder / "embeddings").mkdir(parents=True)
    (folder / "text-embeddings").mkdir()
    for path, classes in (
        (folder / "embeddings" / "cifar10-mobilenetv2.npz", 10),
        (folder / "text-embeddings" / "ag_news.npz", 4),
    ):
        arrays = {}
        for split, rows in (("train", 400), ("test", 100)):
            y = np.arange(rows) % classes
            x = np.abs(rng.normal(size=(rows, DIM)) + 4 * np.eye(classes, DIM)[y])
            arrays |= {f"x_{split}": x.astype(np.float32), f"y_{split}": y}
        np.savez(folder / path, **arrays)
    monkeypatch.setenv("GHOFL_DATA", str(folder))
    monkeypatch.delenv("GHOFL_EMBEDDINGS", raising=False)
    data._read.cache_clear()
    yield folder
    data._read.cache_clear()


def run(tmp_path, *arguments):
    out = tmp_path / "out"
    return main([*arguments, "--out", str(out)]), out


@pytest.mark.parametrize("arguments", [["--help"], ["table", "--help"], ["figure", "--help"], ["page", "--help"]])
def test_help_is_always_there(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 0
    assert "usage" in capsys.readouterr().out


@pytest.mark.slow
def test_a_table_writes_json_markdown_and_a_picture_and_says_what_is_missing(small_sets, tmp_path, capsys):
    code, out = run(tmp_path, "table", "main", "--alphas", "0.05", "--methods", "GH-LDA;FedCGS;FedNCM;FedPFT, diagonal")
    assert code == 0
    result = json.loads((out / "table-main.json").read_text())
    row = next(r for r in result["rows"] if r["method"] == "GH-LDA")
    assert row["paper"] == 86.05
    assert row["difference"] == pytest.approx(row["accuracy"] - 86.05, abs=0.006)
    assert row["same_total"] is True
    assert {r["set"] for r in result["rows"]} == {"cifar10"}
    missing = " ".join(m["what"] + m["how"] for m in result["missing"])
    assert "CIFAR-100" in missing
    assert "ghofl embed" in missing
    assert "SVHN" in missing
    assert str(tmp_path) not in json.dumps(result)  # results are read on other machines
    assert result["command"].startswith("python -m ghofl_benchmarks table main --alphas 0.05 --methods 'GH-LDA;FedCGS")
    page = (out / "table-main.md").read_text()
    assert "Not run" in page
    assert "| paper |" in page
    assert (out / "table-main.svg").read_text().startswith("<?xml")
    assert result["machine"]["versions"]["numpy"] == np.__version__


def test_without_any_data_a_table_says_so_and_ends_with_status_two(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GHOFL_DATA", str(tmp_path / "nothing"))
    monkeypatch.delenv("GHOFL_EMBEDDINGS", raising=False)
    for name in ("main", "nlp", "fisher", "backbones"):
        code, out = run(tmp_path, "table", name)
        assert code == 2
        assert "Nothing could be run here" in (out / f"table-{name}.md").read_text()
    assert "left out:" in capsys.readouterr().out


def test_a_variable_without_a_value_is_like_none(monkeypatch):
    """As a script leaves it that found no folder to put there; the working folder was searched then."""
    found = []
    for change in (lambda name: monkeypatch.delenv(name, raising=False), lambda name: monkeypatch.setenv(name, "")):
        change("GHOFL_DATA")
        change("GHOFL_EMBEDDINGS")
        found.append((data.data_folder(), data.text_folder()))
    folder = data.ROOT.parents[1] / "shared" / "data"
    assert found == [(folder, folder / "text-embeddings")] * 2


def test_an_unknown_set_is_refused(tmp_path, capsys):
    assert run(tmp_path, "table", "main", "--sets", "mnist")[0] == 2
    assert "'mnist' is not a set" in capsys.readouterr().err


def test_without_torch_tables_run_and_name_what_they_leave_out(small_sets, tmp_path, monkeypatch):
    class Absent:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name.split(".")[0] == "torch":
                raise ModuleNotFoundError("No module named 'torch'", name="torch")

    for name in [m for m in sys.modules if m.split(".")[0] == "torch" or m.endswith("baselines.heads")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent, *sys.meta_path])
    code, out = run(tmp_path, "table", "main", "--alphas", "0.5", "--methods", "LDA;Client;DENSE")
    assert code == 0
    result = json.loads((out / "table-main.json").read_text())
    assert {r["method"] for r in result["rows"]} == {"LDA", "Client ensemble"}
    assert any(m["what"] == "torch" for m in result["missing"])


@pytest.mark.slow
def test_methods_with_networks_are_in_the_main_table_and_in_that_of_texts(small_sets, tmp_path):
    wanted = "DENSE;Co-Boosting;FedAvg;FedProx;SCAFFOLD"
    code, out = run(tmp_path, "table", "main", "--alphas", "0.5", "--rounds", "2", "--methods", wanted)
    assert code == 0
    rows = json.loads((out / "table-main.json").read_text())["rows"]
    assert {"DENSE", "Co-Boosting", "FedAvg, 1 round", "FedAvg, 2 rounds", "SCAFFOLD, 2 rounds"} <= {
        r["method"] for r in rows
    }
    sent = {r["method"]: r["bytes_up"] for r in rows}
    assert sent["SCAFFOLD, 2 rounds"] == 2 * sent["FedAvg, 2 rounds"] == 4 * sent["FedAvg, 1 round"]


def test_rows_of_an_earlier_run_stay_unless_they_are_measured_again():
    old = {"rows": [{"method": "x", "accuracy": 1}, {"method": "y", "accuracy": 2}], "missing": [], "notes": ["n"]}
    missing = [{"what": "b", "how": "", "set": "b"}]
    new = {"rows": [{"method": "x", "accuracy": 3}], "missing": missing, "notes": ["n"]}
    both = report.merged(old, new)
    assert [(r["method"], r["accuracy"]) for r in both["rows"]] == [("y", 2), ("x", 3)]
    assert both["notes"] == ["n"]
    assert len(both["missing"]) == 1


@pytest.mark.slow
def test_in_the_partition_ablation_ours_is_one_number_and_baselines_are_not(small_sets, tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "CLIENTS", (10, 20))
    code, out = run(tmp_path, "table", "clients", "--methods", "LDA;Student;Client ensemble")
    assert code == 0
    result = json.loads((out / "table-clients.json").read_text())
    for head in ("LDA", "Student"):
        cells = [r for r in result["rows"] if r["method"] == head]
        assert len(cells) == 10
        assert len({r["accuracy"] for r in cells}) == 1
        assert len({r["total"] for r in cells}) == 1
    assert len({r["accuracy"] for r in result["rows"] if r["method"] == "Client ensemble"}) > 1
    assert any("1 different total(s)" in note for note in result["notes"])


def test_gaussianity_is_that_of_the_rows_on_the_grid():
    rng = np.random.default_rng(0)
    x, y = rng.gamma(2.0, size=(300, 4)).astype(np.float32), np.arange(300, dtype=np.int64) % 2
    rows = Dataset(x, y, x, y, ("a", "b"))
    with powers.registered():
        q = Features.of(gaussianity.recipe_of(rows)).rows(x)[0].astype(np.float64)
    found = gaussianity.measures(rows, ours.parts_of(rows, 5, 0, 0.1))
    for values, oracle in zip(found.values(), (scipy.stats.skew, scipy.stats.kurtosis), strict=True):
        expected = np.stack([oracle(q[y == c], axis=0) for c in range(2)])
        np.testing.assert_allclose(values, expected, rtol=1e-9)
    assert gaussianity.summary(np.array([[-3.0, 1.0], [2.0, np.nan]])) == (2.0, 2.0, pytest.approx(2.8))


def test_lda_in_all_fisher_directions_is_lda_and_energy_only_grows(small_sets, tmp_path):
    code, out = run(tmp_path, "table", "fisher", "--sets", "cifar10")
    assert code == 0
    rows = json.loads((out / "table-fisher.json").read_text())["rows"]
    whole, steps = rows[0], rows[1:]
    rows_ = data.load("cifar10")
    lda = ours.run(rows_, [np.arange(400)], {"LDA": "lda(shrinkage=0.05)"}).heads["LDA"].accuracy
    assert whole["accuracy"] == pytest.approx(100 * lda, abs=0.01)
    assert steps[-1]["k"] == 9
    assert steps[-1]["accuracy"] == whole["accuracy"]
    assert steps[-1]["energy"] == 1.0
    assert [r["energy"] for r in steps] == sorted(r["energy"] for r in steps)


@pytest.mark.slow
def test_the_other_tables_run_on_what_is_there(small_sets, tmp_path):
    for name in ("communication", "dlr", "gaussianity", "backbones", "corruption"):
        code, out = run(tmp_path, "table", name, *(["--methods", "lda;nb"] if name == "backbones" else []))
        assert (out / f"table-{name}.json").is_file(), name
        assert code == 0, name
    rows = json.loads((out / "table-dlr.json").read_text())["rows"]
    assert next(r for r in rows if r["method"] == "nb")["memory"] == 1.0
    assert next(r for r in rows if r["method"] == "qda")["memory"] > 1.0


def test_the_page_is_made_of_stored_results_and_says_what_was_not_run(small_sets, tmp_path):
    _, out = run(tmp_path, "table", "fisher", "--sets", "cifar10")
    drawn = (out / "table-fisher.svg").read_text()
    (out / "table-fisher.svg").write_text("in an older style")
    assert run(tmp_path, "page")[0] == 0
    assert (out / "table-fisher.svg").read_text() == drawn
    page = (out / "TABLES.md").read_text()
    assert TABLES["fisher"] in page
    assert "Not run: `python -m ghofl_benchmarks table nlp`" in page


def test_a_figure_without_its_results_says_what_to_run(tmp_path, capsys):
    assert run(tmp_path, "figure", "convergence")[0] == 2
    assert "gpu_multiround" in capsys.readouterr().err


def test_the_convergence_figure_tells_rounds_bytes_and_seconds_until_fedavg_reaches_ours(tmp_path):
    fedavg = {
        "round": [1, 2, 3],
        "accuracy": [0.2, 0.7, 0.9],
        "seconds": [2.0, 2.0, 2.0],
        "bytes_up": 100,
        "bytes_down": 100,
    }
    assert _reached(fedavg, 85.0) == {"rounds": 3, "bytes_up": 300, "seconds": 6.0, "of": 3}
    assert _reached(fedavg, 95.0) == {"rounds": None, "of": 3, "best": 90.0}
    out = tmp_path / "out"
    out.mkdir()
    found = {
        "rounds": {"0.05": {"fedavg": fedavg}},
        "settings": {"size": "128"},
        "ours": {"lda_of_moments": {"accuracy": 0.85}},
    }
    (out / "multiround.json").write_text(json.dumps(found))
    assert run(tmp_path, "figure", "convergence")[0] == 0
    assert json.loads((out / "figure-convergence.json").read_text())["fedavg_reaches_ours"]["0.05"]["rounds"] == 3
    assert (out / "figure-convergence.svg").is_file()


def test_every_table_has_a_module_with_what_the_command_calls():
    for name in TABLES:
        run_it, draw = load_table(name)
        assert callable(run_it)
        assert callable(draw)
    assert Settings(methods=("FedPFT",)).wants("FedPFT, full")
    assert not Settings(methods=("FedPFT",)).wants("AFL")


def test_an_interrupted_table_keeps_the_rows_it_has(tmp_path, monkeypatch, capsys):
    def stop(settings):
        result = tables.start("main", settings)
        tables.add_row(result, "ours", 0.5, 40.0, set="cifar10", method="LDA", alpha=0.05, space="as they are")
        raise KeyboardInterrupt

    monkeypatch.setattr("ghofl_benchmarks.__main__.load_table", lambda name: (stop, lambda result, path: False))
    code, out = run(tmp_path, "table", "main")
    assert code == 0
    assert [r["difference"] for r in json.loads((out / "table-main.json").read_text())["rows"]] == [10.0]
    assert "1 rows were measured" in capsys.readouterr().err


def test_what_a_file_says_about_its_rows_is_a_note_of_every_table(small_sets, tmp_path):
    path = small_sets / "text-embeddings" / "ag_news.npz"
    with np.load(path) as stored:
        np.savez(path, **{key: stored[key] for key in stored.files}, note="400 of 9,000 training rows")
    _, out = run(tmp_path, "table", "fisher", "--sets", "ag_news")
    assert "AG News: 400 of 9,000 training rows" in json.loads((out / "table-fisher.json").read_text())["notes"]
    _, out = run(tmp_path, "table", "fisher", "--sets", "cifar10", "--fresh")
    assert not any("AG News" in note for note in json.loads((out / "table-fisher.json").read_text())["notes"])


def test_the_page_tells_what_networks_reach_that_are_trained_in_rounds_or_distilled():
    run = {"accuracy": [0.1, 0.25], "bytes_up": 4_000_000, "seconds": [9.0, 1.0]}
    found = {
        "rounds": {"0.05": {"fedavg": run}, "0.5": {}},
        "distillation": {
            "0.5": {"ensemble": {"accuracy": 0.5, "bytes_up": 3_000_000}, "DENSE": {"accuracy": [0.3, 0.4]}}
        },
        "settings": {"size": "96"},
        "machine": {"device": "a GPU"},
        "ours": {"lda_of_moments": {"accuracy": 0.808}},
    }
    text = rounds_table(found)
    assert "| FedAvg, 2 rounds | 8.0 MB | 25.0 | – |" in text
    assert "| Ensemble of the clients | 3.0 MB | – | 50.0 |" in text
    assert "| DENSE | 3.0 MB | – | 40.0 |" in text
    assert "has 80.8" in text


def test_a_long_table_is_closed_until_somebody_opens_it_and_numbers_stand_at_the_right():
    row = {"set": "a", "accuracy": 50.0, "paper": None}
    short, long = ({"rows": [row] * rows} for rows in (report.LONGEST, report.LONGEST + 1))
    assert "|---|---:|" in report.table(short["rows"])
    assert "<details>" not in report.folded(report.table(short["rows"]))
    assert f"<summary>The table, {report.LONGEST + 1} rows</summary>" in report.folded(report.table(long["rows"]))


WIDEST = 620  # points: a page shows up to 648, and letters of a wider picture become smaller than its own


def test_no_stored_picture_is_wider_than_a_page():
    pictures = [*report.RESULTS.glob("*.svg"), *(report.RESULTS.parents[1] / "docs" / "figures").glob("*.svg")]
    wide = {path.name: re.search(r'width="([\d.]+)pt"', path.read_text()[:2000])[1] for path in pictures}
    assert len(wide) > 15
    assert {name: width for name, width in wide.items() if float(width) > WIDEST} == {}
