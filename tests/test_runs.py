"""Lists of settings: every combination, one tidy table, and nothing made twice."""

import itertools
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import ghofl
from federations import blobs
from ghofl import HEADS
from ghofl.cli import app
from ghofl.errors import DatasetError, HeadError, PartitionError, RecipeError
from ghofl.recipe import RecipeOptions
from ghofl.report.runs import draw_runs
from ghofl.simulation import federation, results
from ghofl.simulation import runs as module
from ghofl.simulation.dataset import Dataset
from ghofl.simulation.federation import Simulation
from ghofl.simulation.runs import Runs
from ghofl.simulation.simulate import recipe_for, simulate


@pytest.fixture
def data(rng):
    x, y = blobs(rng)
    return Dataset(x, y, x, y, tuple("abcd"))


@pytest.fixture
def trained(monkeypatch):
    """How often a baseline was trained."""
    seen, judge = [], federation.judge_baseline
    monkeypatch.setattr(federation, "judge_baseline", lambda *what: seen.append(what[0].name) or judge(*what))
    return seen


@pytest.fixture
def fitted(monkeypatch):
    """The names of the heads that were fitted."""
    seen, judge = [], results.judge_head
    monkeypatch.setattr(results, "judge_head", lambda *what: seen.append(what[1].name) or judge(*what))
    return seen


def test_one_value_for_every_setting_is_one_simulation_and_a_list_is_many(data):
    assert isinstance(simulate(data, 2, heads="lda", statistics=("S",)), Simulation)
    assert isinstance(simulate(data, [np.arange(200), np.arange(200, 300)], heads="lda"), Simulation)
    runs = simulate(data, [2, 5], heads="nb,lda", alpha=[0.1, None], seed=range(3))
    assert {(r["clients"], r.get("alpha"), r["seed"], r["head"]) for r in runs.rows} == set(
        itertools.product((2, 5), (0.1, None), range(3), ("nb", "lda"))
    )
    assert len({row["id"] for row in runs.rows}) == len(runs.rows) == 24
    assert set(runs.varied) == {"clients", "alpha", "seed", "head"}
    assert len(simulate(data, 2, heads="lda", epsilon=[4.0, 8.0], unit_length=True).rows) == 2
    assert len(simulate(data, 2, heads="best", statistics=[("B",), ("S",)]).rows) == 2


def test_a_row_has_the_measures_of_a_simulation_alone(data):
    (row,) = simulate(data, [3], heads="lda", alpha=0.5, seed=7, power=0.5, statistics=("B",)).rows
    told = simulate(data, 3, heads="lda", alpha=0.5, seed=7, power=0.5, statistics=("B",)).to_dict()
    for name in ("total_sha256", "recipe", "clipped_share"):
        assert row[name] == told[name]
    for name in ("accuracy", "balanced_accuracy", "macro_f1", "log_loss", "brier", "ece", "payload_bytes"):
        assert row[name] == told["heads"]["lda"][name]
    assert [row["accuracy_low"], row["accuracy_high"]] == told["heads"]["lda"]["accuracy_interval"]
    assert all(isinstance(value, int | float | str) for value in row.values())
    assert (row["power"], row["statistics"], row["clients"], row["rows"]) == (0.5, "B", 3, len(data.y_train))


def test_the_table_is_tidy_and_has_no_column_that_no_run_used(data):
    frame = simulate(data, [2, 5], heads="nb,lda", epsilon=[None, 8.0], unit_length=True, name="blobs").to_frame()
    assert len(frame) == 8
    assert not frame.isna().all().any()
    assert set(frame["data"]) == {"blobs"}
    assert frame.groupby("epsilon", dropna=False).size().tolist() == [4, 4]
    assert not {"alpha", "project", "delta", "noise"} & set(frame.columns)
    assert len(frame.columns) <= 32


def test_a_head_of_equal_totals_is_fitted_once(data, fitted):
    runs = simulate(data, [2, 3, 4], heads="lda", seed=[0, 1])
    assert fitted == ["lda"]
    assert len({row["total_sha256"] for row in runs.rows}) == 1
    simulate(data, [2, 3], heads="lda", project=[2, 3])
    assert fitted == ["lda"] * 3


def test_what_a_file_has_is_made_once_and_nothing_else_is_taken_for_it(data, tmp_path, trained, fitted, monkeypatch):
    """Another list of heads over the same file once trained baselines again, and counted six seeds where three were."""
    path, over = tmp_path / "runs.json", {"seed": [0, 1, 2], "alpha": 0.3, "output": tmp_path / "runs.json"}
    first = simulate(data, 4, heads="lda,fedavg(rounds=2)", **over)
    again = simulate(data, 4, heads=["qda", "fedavg(rounds=2)", "lda"], **over)
    assert trained == ["fedavg"] * 3
    assert fitted == ["lda", "qda"]
    assert {row["id"] for row in first.rows} < {row["id"] for row in again.rows}
    assert [line[1] for line in Runs.load(path).table()[1:]] == ["3"] * 3, "seeds"
    other = Dataset(data.x_train + 1, data.y_train, data.x_test, data.y_test, data.classes)
    by_hospital = np.array_split(np.arange(300), 4)
    for given, clients, more in (
        (other, 4, {}), (data, 3, {}), (data, by_hospital, {}), (data, 4, {"power": 0.5}), (data, 4, {"preset": "paper"}),
        (data, 4, {"heads": HEADS["lda"](shrinkage=0.3)}), (data, 4, {"heads": "lda(shrinkage=0.2)"}),
    ):  # fmt: skip
        before = len(Runs.load(path).rows)
        assert len(simulate(given, clients, **{"heads": "lda", **over, **more}).rows) == 3
        assert len(Runs.load(path).rows) == before + 3
    monkeypatch.setattr(module, "VERSIONS", "ghofl 999")
    assert not {row["id"] for row in simulate(data, 4, heads="lda", **over).rows} & {row["id"] for row in again.rows}
    assert len(simulate(data, 4, heads="lda", fresh=True, output=path).rows) == len(Runs.load(path).rows) == 1


def test_under_noise_a_head_beside_others_is_not_the_head_alone(data, tmp_path):
    asked = {"epsilon": 8.0, "unit_length": True, "output": tmp_path / "runs.json"}
    alone, beside = (simulate(data, 2, heads=heads, **asked).rows for heads in ("nb", "nb,lda"))
    assert alone[0]["id"] != beside[0]["id"]


def test_a_stopped_call_goes_on_where_it_stopped(data, tmp_path, trained):
    path, axes = tmp_path / "runs.json", {"clients": [2, 3, 4, 5], "seed": [0, 1], "heads": "lda,fedavg(rounds=1)"}

    def stop_at_the_fifth(what, done, of):
        if (what, done) == ("runs", 5):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(data, output=path, progress=stop_at_the_fifth, **axes)
    assert len(Runs.load(path).rows) // 2 == len(trained) == 5
    whole = simulate(data, output=path, **axes)
    assert simulate(data, output=path, **axes) == whole
    assert len(trained) == len(whole.rows) // 2 == 8
    assert [each.name for each in tmp_path.iterdir()] == ["runs.json"]


def test_a_file_that_is_no_table_of_runs_is_refused_and_left_alone(data, tmp_path):
    path = tmp_path / "runs.json"
    for text in ("{}", "[1]", "[", '[{"id": "a"}]'):
        path.write_text(text)
        with pytest.raises(DatasetError, match="is not a file of runs"):
            simulate(data, output=path)
        assert path.read_text() == text
    with pytest.raises(DatasetError, match="ends in '.csv'; .* runs.json"):
        simulate(data, output=tmp_path / "runs.csv")


def test_all_heads_may_have_baselines_beside_them(data):
    found = simulate(data, 2, heads="all,fedavg(rounds=2)").heads
    assert list(found) == [*simulate(data, 2, heads="all").heads, "fedavg(rounds=2)"]


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        ({"projct": 3}, DatasetError, "there is no parameter 'projct'; .* options of a recipe: .*project"),
        ({"clients": ["ten"]}, RecipeError, "clients is 'ten'; it must be a whole number"),
        ({"clients": []}, RecipeError, r"clients is \[\], a list without values"),
        ({"clients": 0}, PartitionError, "0 clients"),
        ({"project": [3, 500]}, RecipeError, "500"),
        ({"heads": "sketched_qda"}, HeadError, "needs a sketch; give `sketch`"),
        ({"recipe": RecipeOptions(), "project": 3}, RecipeError, "project is an option of a recipe, and a recipe is given"),
        ({"alpha": [0.1], "classes_per_client": 2}, PartitionError, "exclude each other"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("as_users_run_it")
def test_a_setting_that_cannot_be_is_named(data, asked, error, text):
    with pytest.raises(error, match=text):
        simulate(data, **asked)


def test_no_schema_is_drafted_from_rows_under_an_epsilon():
    table = {"a": [1.0, 2.0, 3.0] * 20, "sort": ["x", "y", "x"] * 20}
    for more in ({"epsilon": 1.0}, {"epsilon": [None, 1.0]}, {"recipe": RecipeOptions(epsilon=1.0)}):
        with pytest.raises(RecipeError, match="a schema drafted from rows reveals"):
            simulate(table, 2, label_column="sort", **more)


def test_means_over_seeds_have_the_spread_over_seeds_and_the_error_of_the_test_rows():
    """Where every seed had the same test rows, and so the same accuracy, the interval was of width zero."""
    asked = {"head": "lda", "accuracy_low": 0.4, "accuracy_high": 0.6}
    rows = [{"id": str(s), "seed": s, "accuracy": a, **asked} for s, a in enumerate((0.5, 0.5, 0.5))]
    assert module.reach(rows, "accuracy") == pytest.approx(0.1)
    rows[0]["accuracy"], rows[1]["accuracy"] = 0.4, 0.6
    assert module.reach(rows, "accuracy") == pytest.approx(np.hypot(0.1, 4.302653 * 0.1 / 3**0.5))
    assert Runs(tuple(rows)).table() == [["head", "seeds", "accuracy %", "± 95 %"], ["lda", "3", "50.00", "26.78"]]


def test_runs_print_as_one_line_and_as_a_table_of_means(data):
    runs = simulate(data, [2, 5], heads="nb,lda", seed=range(2))
    assert repr(runs) == "<Runs: rows 8; heads 2 (nb, lda); varied clients, seed>"
    names, *lines = str(runs).splitlines()
    assert names.split()[:2] == ["clients", "head"]
    assert [line.split()[:2] for line in lines] == [["2", "nb"], ["2", "lda"], ["5", "nb"], ["5", "lda"]]
    assert all(len(line) <= 80 for line in (names, *lines))
    assert str(Runs()) == "head  seeds  accuracy %  ± 95 %"


@pytest.fixture
def drawn(rng):
    """What `draw_runs` draws, of runs over clients, splits and seeds."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    over = itertools.product((2, 5, 9), (0.1, None), range(3), ("nb", "lda"))
    rows = [{"id": "", "clients": k, "seed": s, "head": head} | ({"alpha": a} if a else {}) for k, a, s, head in over]
    runs = Runs(tuple({**row, "accuracy": rng.uniform(0.5, 0.9), "payload_bytes": 10 * row["clients"]} for row in rows))

    def draw(some=runs.rows, **more):
        _, axes = pyplot.subplots()
        draw_runs(axes, Runs(tuple(some)), **more)
        pyplot.close("all")
        return axes

    return runs, draw


def test_a_plot_has_a_line_per_head_and_what_else_varied_with_the_interval_of_every_mean(drawn):
    runs, draw = drawn
    axes = draw()
    assert axes.get_legend_handles_labels()[1] == [f"{h}, alpha {a}" for a in ("0.1", "none") for h in ("nb", "lda")]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "5", "9"]
    assert axes.get_ylabel() == "accuracy %, and 95 % interval"
    line, _, (bars,) = axes.containers[0].lines
    for place, clients in enumerate((2, 5, 9)):
        rows = [r for r in runs.rows if (r["clients"], r.get("alpha"), r["head"]) == (clients, 0.1, "nb")]
        middle, reach = (100 * f(rows, "accuracy") for f in (module.mean, module.reach))
        assert line.get_ydata()[place] == pytest.approx(middle)
        assert bars.get_segments()[place][:, 1] == pytest.approx([middle - reach, middle + reach])
    alone = [r for r in runs.rows if (r["clients"], r.get("alpha")) == (2, 0.1)]
    assert [label.get_text() for label in draw(alone).get_xticklabels()] == ["nb", "lda"]
    sent = draw(y="payload_bytes", x="alpha").containers[0].lines[0]
    assert sent.get_ydata().tolist() == [20.0, 20.0]
    with pytest.raises(DatasetError, match="cannot draw 'speed' against 'clients'"):
        draw(y="speed")


def test_repeated_options_are_lists_and_the_command_goes_on_with_its_file(data, tmp_path, monkeypatch):
    def command_line(*more, code=0):
        words = ["simulate", "--embeddings", "all.npz", "--heads", "nb,lda", "-o", "runs.json", *more]
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == code, done.output
        return done.output

    monkeypatch.chdir(tmp_path)
    np.savez("all.npz", x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test)
    over = ("--clients", 2, "--clients", 4, "--seed", 0, "--seed", 1, "--epsilon", 4, "--epsilon", 8, "--unit-length")
    assert command_line(*over).splitlines()[0].split()[:3] == ["clients", "epsilon", "head"]
    before = (tmp_path / "runs.json").read_text()
    told = json.loads(command_line(*over, "--json", "-"))["runs"]
    assert (tmp_path / "runs.json").read_text() == before
    assert {(r["clients"], r["seed"], r["epsilon"], r["head"]) for r in told} == set(
        itertools.product((2, 4), (0, 1), (4.0, 8.0), ("nb", "lda"))
    )
    assert {row["data"] for row in told} == {"all.npz"}
    assert len(json.loads(command_line("--clients", 2, "--json", "-"))["runs"]) == 2
    assert "is about one run" in " ".join(command_line("--clients", 2, "--report", "page.html", code=2).split())
    assert "create it first" in command_line("--clients", 2, "-o", "no/x.json", code=2)


def test_a_table_is_read_once_and_split_anew_for_every_seed(data, tmp_path, monkeypatch):
    from ghofl.encoders import from_schema
    from ghofl.simulation import dataset

    lines = ["a,b,label", *(f"{x[0]},{x[1]},{'abcd'[y]}" for x, y in zip(data.x_train, data.y_train, strict=True))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    read, columns_of = [], dataset.columns_of
    for place in (dataset, from_schema):
        monkeypatch.setattr(place, "columns_of", lambda data: read.append(data) or columns_of(data))
    runs = simulate(tmp_path / "rows.csv", [2, 3], heads="lda", label_column="label", seed=[0, 1])
    assert len(read) == 1
    assert len({(row["seed"], row["total_sha256"]) for row in runs.rows}) == 2


def data_doors(data, folder):
    """The rows of one experiment as users have them, with the other parameters of a call."""
    import pandas
    import polars

    names = np.array(data.classes)
    arrays = {"x_train": data.x_train, "y_train": data.y_train, "x_test": data.x_test, "y_test": data.y_test}
    np.savez(folder / "all.npz", **arrays)
    rows = ((data.x_train, names[data.y_train]), (data.x_test, names[data.y_test]))
    frame = pandas.DataFrame(data.x_train)
    return {
        "names": (rows, {}),
        "lists": (tuple((x.tolist(), y.tolist()) for x, y in rows), {}),
        "numbers": (((data.x_train, data.y_train), (data.x_test, data.y_test)), {"classes": data.classes}),
        "by name": (arrays, {"classes": data.classes}),
        "a file": (folder / "all.npz", {"classes": data.classes}),
        "pandas": (((frame, pandas.Series(rows[0][1])), (frame, pandas.Series(rows[1][1]))), {}),
        "polars": (tuple((polars.DataFrame(x), polars.Series(y.tolist())) for x, y in rows), {}),
    }


@pytest.mark.parametrize("door", ["names", "lists", "numbers", "by name", "a file", "pandas", "polars"])
def test_rows_are_the_same_whatever_a_user_has_them_in(data, tmp_path, door):
    given, more = data_doors(data, tmp_path)[door]
    one = ghofl.simulate(given, 3, heads="lda", **more)
    expected = simulate(data, 3, heads="lda")
    assert one.total.moments == expected.total.moments
    assert one.heads["lda"].metrics.to_dict() == expected.heads["lda"].metrics.to_dict()
    assert one.total.recipe.classes == data.classes
    assert recipe_for(given, "lda", **more) == one.total.recipe


def test_embeddings_and_labels_alone_are_split_anew_for_every_seed(data):
    long = np.where(np.arange(len(data.y_train)) < 5, 40.0, 1.0)[:, None]  # a few rows, for training or for the test
    runs = simulate((data.x_train * long, np.array(data.classes)[data.y_train]), 2, heads="lda", seed=range(8))
    assert len({row["total_sha256"] for row in runs.rows}) == 8
    assert len({row["recipe"] for row in runs.rows}) > 1
    assert runs.varied == ("seed",)
    assert len(runs.table()) == 2, "a grid that is fitted to other rows is not another setting"
    assert runs.rows[0]["rows"] == pytest.approx(0.7 * len(data.y_train), abs=4)


def test_a_frame_with_its_label_column_is_the_table_in_a_file(data, tmp_path):
    import pandas

    frame = pandas.DataFrame(data.x_train, columns=[f"c{i}" for i in range(data.x_train.shape[1])]).round(3)
    frame["sort"] = np.array(data.classes)[data.y_train]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    given, read = (simulate(d, 2, heads="lda", label_column="sort") for d in (frame, tmp_path / "rows.csv"))
    assert (given.total.moments, given.total.recipe) == (read.total.moments, read.total.recipe)
    schema = ghofl.schema_for(frame, "sort")
    assert schema.classes == data.classes
    told = simulate(frame, 2, heads="lda", label_column="sort", schema=schema)
    assert told.total.recipe.table.columns == schema.table.columns
    assert ghofl.schema_for(tmp_path / "rows.csv", "sort", ["c0"]).table.features == tuple(frame.columns[1:-1])


@pytest.mark.usefixtures("as_users_run_it")
def test_data_that_cannot_be_is_told_in_words_of_python(data, tmp_path):
    import pandas

    frame = pandas.DataFrame({"a": [1.0, 2.0], "sort": ["x", "y"]})
    (tmp_path / "rows.csv").write_text("a,sort\n1,x\n")
    x, y = data.x_train, data.y_train
    for given, more, text in (
        (frame, {}, "data is a table; name its column of labels in `label_column`"),
        (tmp_path / "rows.csv", {}, "is a table; name its column of labels in `label_column`"),
        (frame, {"label_column": "kind"}, "has the columns a, sort but not 'kind'; check `label_column`"),
        ((x, y, x, y), {}, r"data is tuple of 4; give \(x, y\)"),
        ((x, y[:5]), {}, "5 labels for .* rows"),
        (((x, y), (x, y[:5])), {}, "5 labels for .* test rows"),
        ((x, y), {"schema": "schema.toml"}, "name the column in `label_column` beside schema"),
        (frame, {"label_column": "sort", "classes": ["x", "y"]}, "leave out `classes`"),
    ):
        with pytest.raises(ghofl.GhoflError, match=text):
            simulate(given, 2, heads="lda", **more)
