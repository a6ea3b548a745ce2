"""Many simulations in one go: every combination, one tidy table, and no run twice."""

import itertools
import json
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

import ghofl
from federations import blobs
from ghofl.cli import app
from ghofl.errors import DatasetError, HeadError, PartitionError, RecipeError
from ghofl.recipe import RecipeOptions
from ghofl.simulation import sweep as module
from ghofl.simulation.runs import FORMATS, Runs
from ghofl.simulation.simulate import Dataset, recipe_for, simulate
from ghofl.simulation.sweep import Experiment, combinations, read_axes, run_all, sweep


@pytest.fixture
def data(rng):
    x, y = blobs(rng)
    return Dataset(x, y, x, y, tuple("abcd"))


@pytest.fixture
def counted(monkeypatch):
    """The clients of every simulation that was run."""
    seen = []

    def counting(data, parts, *others, **more):
        seen.append(len(parts))
        return simulate(data, parts, *others, **more)

    monkeypatch.setattr(module, "simulate", counting)
    return seen


def test_every_combination_is_one_run_and_every_head_one_row(data):
    runs = sweep(data, "nb,lda", clients=[2, 5], alpha=[0.1, None], seed=range(3))
    assert len(runs.rows) == 2 * 2 * 3 * 2
    assert len(runs.ids) == 12
    assert {(r["clients"], r["alpha"], r["seed"], r["head"]) for r in runs.rows} == {
        (k, a, s, h) for k in (2, 5) for a in (0.1, None) for s in range(3) for h in ("nb", "lda")
    }
    assert set(runs.varied) == {"clients", "alpha", "seed", "head"}


def test_a_row_has_the_measures_of_a_simulation_alone(data):
    from ghofl import HeadSpec
    from ghofl.simulation.partition import split

    (row,) = sweep(data, "lda", clients=3, alpha=0.5, seed=7, recipes=RecipeOptions(power=0.5)).rows
    specs = HeadSpec.parse_list("lda")
    recipe = recipe_for(data, specs.values(), power=0.5, seed=7)
    alone = simulate(data, split(data.y_train, 3, np.random.default_rng(7), 0.5), recipe, specs)
    told = alone.to_dict()
    assert row["total_sha256"] == told["total_sha256"]
    assert row["recipe"] == recipe.fingerprint
    for name in ("accuracy", "balanced_accuracy", "macro_f1", "log_loss", "brier", "ece", "payload_bytes"):
        assert row[name] == told["heads"]["lda"][name]
    assert [row["accuracy_low"], row["accuracy_high"]] == told["heads"]["lda"]["accuracy_interval"]
    assert all(isinstance(value, int | float | str | None) for value in row.values())
    assert (row["power"], row["bits"], row["clients"], row["rows"]) == (0.5, 8, 3, len(data.y_train))
    assert {"ghofl", "numpy", "python", "date", "data_sha256"} <= set(row)


def test_a_head_of_equal_totals_is_fitted_once(data, monkeypatch):
    fitted = []
    judge = module.judge_head
    monkeypatch.setattr(module, "judge_head", lambda *what: fitted.append(what[1].name) or judge(*what))
    runs = sweep(data, "lda", clients=[2, 3, 4], seed=[0, 1])
    assert fitted == ["lda"]
    assert len({row["total_sha256"] for row in runs.rows}) == 1
    sweep(data, "lda", clients=[2, 3], recipes=[RecipeOptions(project=k) for k in (2, 3)])
    assert fitted == ["lda"] * 3


@pytest.mark.parametrize("ending", FORMATS)
def test_runs_come_back_from_a_file_as_they_were(data, tmp_path, ending):
    path = tmp_path / f"runs{ending}"
    runs = sweep(data, "nb,lda", clients=[2, 5], alpha=[0.1, None], output=path)
    assert Runs.load(path) == runs


@pytest.mark.parametrize("ending", FORMATS)
def test_a_stopped_sweep_goes_on_where_it_stopped(data, tmp_path, counted, monkeypatch, ending):
    path = tmp_path / f"runs{ending}"
    axes = {"clients": [2, 3, 4, 5], "seed": [0, 1]}

    def stop_at_the_fifth(what, done, of):
        if (what, done) == ("runs", 5):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(data, output=path, progress=stop_at_the_fifth, **axes)
    assert len(Runs.load(path).ids) == len(counted) == 5
    whole = sweep(data, output=path, **axes)
    assert len(counted) == len(whole.ids) == 8
    assert sweep(data, output=path, **axes) == whole
    assert len(counted) == 8
    sweep(data, output=path, fresh=True, clients=2)
    assert len(Runs.load(path).ids) == 1


def test_other_rows_other_heads_and_another_version_are_other_runs(data, tmp_path, counted, monkeypatch):
    path = tmp_path / "runs.csv"
    sweep(data, output=path)
    other = Dataset(data.x_train + 1, data.y_train, data.x_test, data.y_test, data.classes)
    sweep(other, output=path)
    sweep(data, "nb", output=path)
    monkeypatch.setattr("ghofl.__version__", "999")
    assert len(sweep(data, output=path).ids) == len(counted) == 4


def test_options_of_a_recipe_are_parameters_that_vary_like_every_other(data):
    by_name = sweep(data, ["nb", "lda"], clients=2, project=[2, 3], statistics=("S",))
    recipes = [RecipeOptions(project=k, statistics=("S",)) for k in (2, 3)]
    assert {row["recipe"] for row in by_name.rows} == {
        row["recipe"] for row in sweep(data, "nb,lda", clients=2, recipes=recipes).rows
    }
    assert by_name.varied == ("project", "head")
    one = ghofl.simulate(data, 2, heads=["nb"], project=3)
    assert one.total.recipe.projection.dim == 3
    assert repr(one).startswith("<Simulation: clients 2; rows 300; heads 1 (nb); best nb, accuracy ")


def test_all_heads_may_have_baselines_beside_them(data):
    every = Experiment("all,fedavg(rounds=2)").methods(RecipeOptions())
    assert list(every) == [*Experiment("all").methods(RecipeOptions()), "fedavg(rounds=2)"]


@pytest.mark.usefixtures("as_users_run_it")
def test_parameters_that_cannot_be_are_told_in_words_of_python(data):
    for more, error, text in (
        ({"projct": 3}, DatasetError, "there is no parameter 'projct'; .* options of a recipe: .*project"),
        ({"recipes": {"project": 3}}, RecipeError, r"recipes are \{'project': 3\}; give RecipeOptions\(project=64\)"),
        ({"heads": ghofl.HeadSpec("lda")}, HeadError, "is not a list of texts"),
    ):
        with pytest.raises(error, match=text):
            sweep(data, **{"clients": 2, **more})
    with pytest.raises(RecipeError, match="project is an option of a recipe, and a recipe is given"):
        simulate(data, 2, RecipeOptions(), project=3)


def test_no_schema_is_drafted_from_rows_under_an_epsilon():
    table = {"a": [1.0, 2.0, 3.0] * 20, "sort": ["x", "y", "x"] * 20}
    for more in ({"epsilon": 1.0}, {"recipe": RecipeOptions(epsilon=1.0)}):
        with pytest.raises(RecipeError, match="a schema drafted from rows reveals"):
            simulate(table, 2, label_column="sort", **more)


def test_splits_by_alpha_and_by_classes_are_one_beside_the_other():
    found = list(combinations({"clients": [4, 8], "alpha": [0.1], "classes_per_client": [1, 2]}))
    assert [(s.clients, s.alpha, s.classes_per_client) for s in found] == [
        (4, 0.1, None), (8, 0.1, None), (4, None, 1), (8, None, 1), (4, None, 2), (8, None, 2)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("axes", "error", "text"),
    [
        ({"client": [3]}, RecipeError, "did you mean sweep.clients"),
        ({"clients": ["ten"]}, RecipeError, "sweep.clients is 'ten'; it must be a whole number"),
        ({"clients": []}, RecipeError, "sweep.clients has no values"),
        ({"projct": [3]}, RecipeError, "did you mean sweep.project"),
        ({"clients": 0}, PartitionError, "0 clients"),
        ({"project": 500}, RecipeError, "500"),
        ({"heads": "sketched_qda"}, HeadError, "needs a sketch; give `sketch`"),
    ],
)
def test_a_setting_that_cannot_be_is_named(data, axes, error, text):
    with pytest.raises(error, match=text):
        run_all(
            data,
            list(combinations({k: v for k, v in axes.items() if k != "heads"})),
            Experiment(axes.get("heads", "lda")),
        )


def test_a_file_of_settings_is_read_with_none_for_leaving_out(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text('clients = [2, 5]\nclasses-per-client = 1\nalpha = ["none", 0.1]\nheads = ["nb", "lda"]\n')
    assert read_axes(path) == {
        "clients": [2, 5], "classes_per_client": [1], "alpha": [None, 0.1], "heads": ["nb", "lda"]
    }  # fmt: skip
    path.write_text("clients = [2,")
    with pytest.raises(RecipeError, match="is not TOML"):
        read_axes(path)


def test_a_file_that_is_no_table_of_runs_is_refused_and_left_alone(data, tmp_path):
    for name, text in {"a.csv": "x,y\n1,2\n", "b.json": "{}", "c.json": "[1]", "d.json": "["}.items():
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(DatasetError, match="is not a table of runs"):
            sweep(data, output=path)
        assert path.read_text() == text
    with pytest.raises(DatasetError, match="ends in '.xls'"):
        sweep(data, output=tmp_path / "runs.xls")


def test_means_over_seeds_have_the_spread_of_the_accuracy():
    rows = [{"run": str(s), "head": "lda", "seed": s, "accuracy": a, "log_loss": 2.0} for s, a in enumerate((0.5, 0.7))]
    (line,) = Runs(tuple(rows)).summary()
    assert (line["seeds"], line["accuracy"], line["log_loss"]) == (2, 0.6, 2.0)
    assert line["accuracy_sd"] == pytest.approx(0.1414, abs=1e-4)


@pytest.fixture
def drawn(rng):
    """Runs over clients, splits and seeds."""
    pytest.importorskip("matplotlib")
    axes = itertools.product((2, 5, 9), (0.1, None), range(3), ("nb", "lda"))
    return Runs(
        tuple(
            {"run": f"{k} {a} {s}", "clients": k, "alpha": a, "seed": s, "head": head, "bits": 8}
            | {"accuracy": rng.uniform(0.5, 0.9), "payload_bytes": rng.uniform(1e3, 1e6)}
            for k, a, s, head in axes
        )
    )


def legend_of(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_a_legend_has_what_varied_once_and_nothing_that_is_the_same_for_all(drawn):
    assert legend_of(drawn.plot()) == ["nb", "lda", "alpha 0.1", "alpha none"]
    assert legend_of(drawn.plot(x="alpha")) == ["nb", "lda", "clients 2", "clients 5", "clients 9"]
    alone = Runs(tuple(row for row in drawn.rows if row["alpha"] is None))
    assert legend_of(alone.plot()) == ["nb", "lda"]
    assert legend_of(Runs(tuple(row for row in alone.rows if row["head"] == "nb")).plot()) == []


def test_a_method_has_one_colour_and_every_point_the_interval_of_its_mean_over_seeds(drawn):
    (axes,) = drawn.plot().axes
    drawn_lines = [container.lines for container in axes.containers]
    assert len(drawn_lines) == 4
    assert len({line.get_color() for line, _, _ in drawn_lines}) == 2
    for row in (r for r in drawn.rows if r["head"] == "nb" and r["alpha"] == 0.1 and r["seed"] == 0):
        values = [
            100 * r["accuracy"]
            for r in drawn.rows
            if (r["head"], r["alpha"], r["clients"]) == ("nb", 0.1, row["clients"])
        ]
        reach = 4.302653 * np.std(values, ddof=1) / 3**0.5  # Student's t of two degrees of freedom
        place = [2, 5, 9].index(row["clients"])
        line, _, (bars,) = drawn_lines[0]
        assert line.get_ydata()[place] == pytest.approx(np.mean(values))
        assert bars.get_segments()[place][:, 1] == pytest.approx([np.mean(values) - reach, np.mean(values) + reach])
    assert reach > 0
    assert axes.get_ylabel() == "accuracy %\n(95 % interval over 3 seeds)"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "5", "9"]


def test_an_axis_of_shares_ends_near_100_per_cent_wherever_intervals_of_few_seeds_reach(drawn):
    (axes,) = Runs(tuple({**row, "accuracy": 0.99 if row["seed"] else 0.1} for row in drawn.rows)).plot().axes
    assert axes.get_ylim() == (-1.0, 101.0)


def test_methods_alone_are_points_with_names_of_their_own(drawn):
    (axes,) = Runs(tuple(r for r in drawn.rows if (r["clients"], r["alpha"]) == (2, 0.1))).plot().axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["nb", "lda"]
    assert axes.get_xlabel() == ""


@pytest.mark.parametrize(("ending", "start"), [("pdf", b"%PDF-"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_picture_is_a_valid_file_the_same_every_time_and_one_column_wide(drawn, tmp_path, ending, start):
    paths = [tmp_path / f"{name}.{ending}" for name in ("one", "two")]
    figure, _ = (drawn.plot(path, y="payload_bytes") for path in paths)
    assert paths[0].read_bytes().startswith(start)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert figure.get_size_inches()[0] <= 3.5
    assert figure._repr_html_().startswith("<svg")
    if ending == "svg":
        texts = {element.text for element in ElementTree.parse(paths[0]).iter("{http://www.w3.org/2000/svg}text")}
        assert {"nb", "lda", "alpha 0.1", "alpha none", "clients", "sent per client"} <= texts
    if ending == "pdf":
        assert paths[0].read_bytes().rstrip().endswith(b"%%EOF")


def test_a_picture_that_cannot_be_is_refused_in_a_sentence(drawn):
    for more, text in (({"y": "speed"}, "cannot draw 'speed'"), ({"path": "runs.gif"}, "ends in '.gif'; a picture of")):
        with pytest.raises(DatasetError, match=text):
            drawn.plot(**more)


@pytest.fixture
def folder(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("all.npz", x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test)
    return tmp_path


def command_line(*arguments, code=0):
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_repeated_options_are_a_sweep_that_the_command_goes_on_with(folder):
    command = ["simulate", "--embeddings", "all.npz", "--heads", "nb,lda", "-o", "runs.csv"]
    command += ["--clients", 2, "--clients", 4, "--alpha", 0.1, "--alpha", 1, "--seed", 0, "--seed", 1]
    assert "8 runs" in command_line(*command)
    before = (folder / "runs.csv").read_text()
    told = json.loads(command_line(*command, "--json", "-"))["runs"]
    assert (folder / "runs.csv").read_text() == before
    assert len(told) == 16
    assert {row["data"] for row in told} == {"all.npz"}


def test_a_file_of_settings_and_options_make_one_sweep(folder):
    (folder / "sweep.toml").write_text('heads = ["nb", "lda"]\nclients = [2, 4]\nproject = [2, "none"]\n')
    command = ["simulate", "--embeddings", "all.npz", "--sweep", "sweep.toml", "--alpha", 0.1, "--power", 0.5]
    rows = json.loads(command_line(*command, "-o", "runs.json", "--json", "-"))["runs"]
    assert {(r["clients"], r["project"], r["head"], r["power"]) for r in rows} == {
        (k, p, h, 0.5) for k in (2, 4) for p in (2, None) for h in ("nb", "lda")
    }
    assert "both set clients" in command_line(*command, "--clients", 3, code=2)
    assert "ends in '.txt'" in str(CliRunner().invoke(app, [*map(str, command), "-o", "runs.txt"]).exception)


def test_a_sweep_of_a_table_splits_it_anew_for_every_seed(folder, data):
    lines = ["a,b,label", *(f"{x[0]},{x[1]},{'abcd'[y]}" for x, y in zip(data.x_train, data.y_train, strict=True))]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    command = [
        "simulate",
        "--embeddings",
        "rows.csv",
        "--label-column",
        "label",
        "--clients",
        2,
        "--seed",
        0,
        "--seed",
        1,
    ]
    rows = json.loads(command_line(*command, "--json", "-"))["runs"]
    assert len({row["data_sha256"] for row in rows}) == 2


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
    (row,) = ghofl.sweep(given, "lda", clients=3, **more).rows
    (expected,) = sweep(data, "lda", clients=3).rows
    for name in ("recipe", "total_sha256", "accuracy", "log_loss", "payload_bytes"):
        assert row[name] == expected[name]
    assert row["data"] == ("all.npz" if door == "a file" else "")
    one = ghofl.simulate(given, 3, heads="lda", **more)
    assert one.total.moments.sha256 == row["total_sha256"]
    assert one.total.recipe.classes == data.classes
    assert recipe_for(given, "lda", **more).fingerprint == row["recipe"]


def test_embeddings_and_labels_alone_are_split_anew_for_every_seed(data):
    x = (
        data.x_train * np.where(np.arange(len(data.y_train)) < 5, 40.0, 1.0)[:, None]
    )  # long rows, for training or for the test
    runs = sweep((x, np.array(data.classes)[data.y_train]), "lda", clients=2, seed=range(8))
    assert len({row["scale"] for row in runs.rows}) > 1
    assert len({row["data_sha256"] for row in runs.rows}) == 8
    assert {row["rows"] + row["test_rows"] for row in runs.rows} == {len(data.y_train)}
    assert runs.varied == ("seed",)
    assert len(runs.summary()) == 1, "a grid that is fitted to other rows is not another setting"
    assert runs.rows[0]["test_rows"] == pytest.approx(0.3 * len(data.y_train), abs=4)


def test_a_frame_with_its_label_column_is_the_table_in_a_file(data, tmp_path):
    import pandas

    frame = pandas.DataFrame(data.x_train, columns=[f"c{i}" for i in range(data.x_train.shape[1])]).round(3)
    frame["sort"] = np.array(data.classes)[data.y_train]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    (row,) = sweep(frame, "lda", clients=2, label_column="sort").rows
    (read,) = sweep(str(tmp_path / "rows.csv"), "lda", clients=2, label_column="sort").rows
    assert [row[key] for key in ("recipe", "total_sha256")] == [read[key] for key in ("recipe", "total_sha256")]
    schema = ghofl.schema_for(frame, "sort")
    assert schema.classes == data.classes
    told = ghofl.simulate(frame, 2, heads="lda", label_column="sort", schema=schema)
    assert told.total.recipe.table.columns == schema.table.columns
    assert ghofl.schema_for(tmp_path / "rows.csv", "sort", ["c0"]).table.features == tuple(frame.columns[1:-1])
    with pytest.raises(RecipeError, match="give one with `schema`"):
        sweep(frame, "lda", clients=2, label_column="sort", recipes=RecipeOptions(epsilon=1.0))


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
            sweep(given, "lda", clients=2, **more)


def test_runs_print_as_one_line_and_as_a_table_of_means(data):
    runs = sweep(data, "nb,lda", clients=[2, 5], seed=range(2))
    assert repr(runs).startswith("<Runs: runs 4; heads 2 (nb, lda); varied clients, seed; best ")
    assert "\n" not in repr(runs)
    names, *lines = str(runs).splitlines()
    assert names.split("  ")[0] == "clients"
    assert "sent per client" in names
    assert len(lines) == 4
    assert all(len(line) <= 80 for line in lines)
    assert [line[:2] for line in runs.table()[1:]] == [["2", "nb"], ["2", "lda"], ["5", "nb"], ["5", "lda"]]
    shown = Runs(({**runs.rows[0], "head": "<b>"},))._repr_html_()
    assert shown.count("<tr>") == 2
    assert "&lt;b&gt;" in shown
    assert str(Runs()) == repr(Runs()) == "<Runs: runs 0; heads 0>"
