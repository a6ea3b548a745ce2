"""Tables: a schema in the recipe, and rows that follow it or are named."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ghofl import Recipe
from ghofl.cli import app
from ghofl.encoders import SampleEncoder
from ghofl.encoders.from_schema import columns_of, rows_for, table_rows
from ghofl.encoders.from_table import TableEncoder
from ghofl.errors import ClippingWarning, DatasetError, EmbeddingsError, IdentifierWarning, RecipeError, SampleError
from ghofl.features import Features
from ghofl.planning.assembly import assemble
from ghofl.planning.drafting import IDENTIFIER, is_dictionary, round_outwards, schema_of_dictionary, schema_of_rows
from ghofl.recipe import Column, RecipeOptions, Schema, Table
from ghofl.recipe.schema import to_plain
from ghofl.simulation.dataset import table_dataset

AGE = Column("age", "number", unit="years", low=0, high=100)
WARD = Column("ward", "category", levels=("a", "b"))
TABLE = Table((AGE, WARD, Column("smoker", "yes/no", missing="indicator")), label="sick")
CSV = "age,ward,smoker,sick,note\n50,a,yes,no,x\n100,b,,yes,x\n25,a,no,no,x\n"


def recipe_of(table: Table, **options: object) -> Recipe:
    asked = RecipeOptions(**{"statistics": ("B",), **options})  # type: ignore[arg-type]
    return assemble(asked, ("no", "yes"), table.encoder, table=table).recipe


@pytest.fixture
def ward_csv(tmp_path: Path) -> Path:
    path = tmp_path / "ward.csv"
    path.write_text(CSV)
    return path


def invoke(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, f"{result.output} {result.exception!r}"
    return result.output


def test_each_kind_of_column_becomes_numbers_as_documented():
    table = Table(
        (
            AGE,
            Column("dose", "log", low=1, high=100),
            Column("income", "quantiles", breaks=(0, 10, 1000)),
            WARD,
            Column("smoker", "yes/no"),
        )
    )
    x = TableEncoder(table).embed(
        {"age": [25, "75"], "dose": ["10", 1], "income": [10.0, "505"], "ward": ["b", "c"], "smoker": ["Yes", 0]}
    )
    assert x.x.tolist() == [[-0.5, 0.0, 0.0, 0.0, 1.0, 1.0], [0.5, -1.0, 0.5, 0.0, 0.0, -1.0]]
    assert x.outside == {"ward": 1}
    assert table.features == ("age", "dose", "income", "ward=a", "ward=b", "smoker")


def test_missing_values_follow_the_stated_rule():
    neutral = replace(AGE, missing="neutral", neutral=75.0)
    table = Table((neutral, replace(WARD, missing="indicator")), missing_words=("-9",))
    x = TableEncoder(table).embed({"age": ["", "-9", float("nan")], "ward": [None, "a", "NA"]}).x
    assert x.tolist() == [[0.5, 0.0, 0.0, 1.0], [0.5, 1.0, 0.0, 0.0], [0.5, 0.0, 0.0, 1.0]]
    with pytest.raises(SampleError, match="row 1: column 'age' has the value ''; it is missing"):
        table_rows({"age": ["3", ""]}, Table((AGE,)), labelled=False)


def test_a_level_called_na_is_a_level():
    table = Table((Column("metal", "category", levels=("NA", "K"), missing="indicator"),))
    assert TableEncoder(table).embed({"metal": ["NA", ""]}).x.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]


@given(
    st.lists(
        st.one_of(st.floats(), st.integers(), st.none(), st.booleans(), st.text(max_size=8)), min_size=1, max_size=8
    )
)
def test_every_entry_lies_between_minus_one_and_one_whatever_the_cells_hold(cells):
    columns = (
        replace(AGE, missing="indicator"),
        Column("b", "log", low=0.1, high=9, missing="neutral"),
        Column("c", "quantiles", breaks=(-1, 0, 5), missing="indicator"),
        Column("d", "category", levels=("x", "0"), missing="indicator"),
        Column("e", "yes/no", missing="neutral"),
    )
    done = TableEncoder(Table(columns)).embed({column.name: cells for column in columns})
    assert np.isfinite(done.x).all()
    assert np.abs(done.x).max() <= 1


def test_a_row_that_breaks_the_schema_is_named_by_line_column_and_value(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('note,age\n"two\nlines",50\nx,fifty\nx,sixty\n')
    with pytest.raises(
        SampleError, match=r"rows.csv, line 4: column 'age' has the value 'fifty'; it is not a number. 1 more"
    ):
        table_rows(path, Table((AGE,)), labelled=False)


def test_bad_rows_are_left_out_with_a_word_where_that_was_asked_for():
    with pytest.warns(ClippingWarning, match="left out: row 1: column 'age' has the value 'fifty'"):
        rows = table_rows({"age": [1, "fifty", 3], "label": "abc"}, Table((AGE,)), skip_bad=True)
    assert rows.y is not None
    assert rows.y.tolist() == ["a", "c"]


def test_rows_without_a_label_are_refused_with_a_way_out_or_left_out_and_named():
    columns = {"age": [1, "fifty", 3, 4], "label": ["a", "b", "", "c"]}
    with pytest.raises(SampleError, match=r"row 2: column 'label' has no label.*leave such rows out with `skip_bad`"):
        table_rows({**columns, "age": [1, 2, 3, 4]}, Table((AGE,)))
    with pytest.warns(ClippingWarning) as told:
        rows = table_rows(columns, Table((AGE,)), skip_bad=True)
    assert rows.y.tolist() == ["a", "c"]
    assert len(rows.x) == 2
    assert ["has no label" in str(one.message) for one in told] == [False, True]


@pytest.mark.parametrize("cell", ["1_000", "inf", "1,250", True, [3]])
def test_cells_that_only_look_like_numbers_are_refused(cell):
    assert TableEncoder(Table((AGE,))).embed({"age": [cell]}).bad[0][1].endswith("it is not a number.")


def test_values_outside_are_moved_to_the_nearest_end_and_counted():
    with pytest.warns(ClippingWarning, match=r"2 values are outside .*age \(2\)"):
        rows = table_rows({"age": [-5, 50, 130, 20, 30]}, Table((AGE,)), labelled=False)
    assert rows.x[:, 0].tolist() == pytest.approx([-1.0, 0.0, 1.0, -0.6, -0.4])


def test_values_outside_are_refused_where_the_schema_says_so():
    strict = Table((replace(AGE, outside="refuse"), replace(WARD, outside="refuse")))
    bad = dict(TableEncoder(strict).embed({"age": [130, 1], "ward": ["a", "z"]}).bad)
    assert bad == {
        0: "column 'age' has the value 130; the range is 0 to 100 years.",
        1: "column 'ward' has the value 'z'; the levels are a, b.",
    }


def test_a_column_that_is_mostly_outside_is_another_unit_and_refused():
    with pytest.raises(DatasetError, match="30 of 40 values of column 'age' are outside.*Check its unit"):
        TableEncoder(Table((AGE,))).embed({"age": [360] * 30 + [36] * 10})


def test_csv_parquet_json_lines_and_data_frames_give_the_same_rows(tmp_path, ward_csv):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.read_csv(ward_csv)
    frame.to_parquet(tmp_path / "ward.parquet")
    ages, wards, smokers, sick = (50, 100, 25), "aba", (True, None, False), ("no", "yes", "no")
    keys = ("age", "ward", "smoker", "sick")
    lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in zip(ages, wards, smokers, sick, strict=True)]
    (tmp_path / "ward.jsonl").write_text("\n".join(lines))
    expected = table_rows(ward_csv, TABLE)
    for data in (tmp_path / "ward.parquet", tmp_path / "ward.jsonl", frame):
        rows = table_rows(data, TABLE)
        assert np.array_equal(rows.x, expected.x), data
        assert rows.y is not None
        assert rows.y.tolist() == ["no", "yes", "no"]


def test_the_encoder_keeps_the_promises_of_encoders():
    encoder = TableEncoder(TABLE)
    assert isinstance(encoder, SampleEncoder)
    rows = [{"age": 50, "ward": "a", "smoker": "yes"}, {"age": 100, "ward": "b", "smoker": ""}]
    whole, apart = next(encoder.encode([rows])), np.vstack(list(encoder.encode([rows[:1], rows[1:]])))
    assert np.array_equal(whole, apart)
    assert whole.shape == (2, encoder.dim)
    with pytest.raises(SampleError, match="values by column"):
        next(encoder.encode([["no row"]]))


def test_a_recipe_with_a_table_survives_toml_and_has_its_own_fingerprint():
    recipe = recipe_of(TABLE)
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    other = replace(TABLE, columns=(replace(AGE, high=120), *TABLE.columns[1:]))
    assert recipe_of(other).fingerprint != recipe.fingerprint
    assert recipe_of(other).encoder.fingerprint != recipe.encoder.fingerprint


def test_the_label_column_and_where_ranges_come_from_do_not_change_embeddings():
    assert replace(TABLE, label="", from_rows=True).fingerprint == TABLE.fingerprint


def test_the_grid_ends_where_embeddings_of_tables_end():
    recipe = recipe_of(TABLE)
    q, clipping = Features.of(recipe).rows(np.array([[1.0, -1.0, 0.5, 0.0, 1.0]]))
    assert recipe.grid.bits == 12
    assert q.max() == recipe.grid.bound
    assert clipping.clipped == 0


@pytest.mark.parametrize("space", [{"lift": 200, "keep": True}, {"lift": 200}, {"project": 32}])
def test_the_grid_of_a_lifted_table_follows_from_the_schema_and_clips_next_to_nothing(space, rng):
    """Even where every column of every row lies at an end of its range; 3 to 7 % were clipped."""
    table = Table(tuple(Column(f"c{i}", "number", low=-1, high=1) for i in range(70)))
    x = rng.choice([-1.0, 1.0], size=(300, 70))
    recipe = recipe_of(table, **space)
    assert Features.of(recipe).rows(x)[1].share < 1e-3
    assert recipe.grid.scale > recipe.grid.bound / 8  # and the grid is not wasted
    again = assemble(RecipeOptions(**space), ("no", "yes"), table.encoder, protected=x, table=table).recipe
    assert again == recipe  # a simulation, which has rows, gets the same


def test_a_recipe_whose_encoder_is_not_its_table_is_refused():
    recipe = recipe_of(TABLE)
    with pytest.raises(RecipeError, match="make the recipe again"):
        replace(recipe, table=replace(TABLE, columns=(AGE,)))


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"kind": "number"}, "goes from None to None"),
        ({"kind": "log", "low": 0, "high": 1}, "above 0"),
        ({"kind": "quantiles", "breaks": [1, 1]}, "each above the last"),
        ({"kind": "category"}, "without levels"),
        ({"kind": "category", "levels": ["a", "a"]}, "more than once"),
        ({"kind": "category", "levels": ["a"], "rest": "b", "outside": "refuse"}, "no level is outside"),
        ({"kind": "yes/no", "rest": "b"}, "has no rest"),
        ({"kind": "yes/no", "low": 0}, "has no low"),
        ({"kind": "number", "low": 0, "high": 1, "neutral": 0.5}, "stands for missing values"),
        ({"kind": "number", "low": 0, "high": 1, "missing": "guess"}, "write one of"),
        ({"kind": "nummer", "low": 0, "high": 1}, "write one of 'number'"),
        (
            {"kind": "number", "low": -1e308, "high": 1e308},
            "too small or too large to scale",
        ),  # every entry would be NaN
        ({"kind": "log", "low": 1e300, "high": 1e300 * (1 + 2e-16)}, "too small or too large to scale"),
        ({"kind": "quantiles", "breaks": [0, 1e-310, 2e-310]}, "too small or too large to scale"),
        ({"kind": "quantiles", "breaks": [-1e308, 1e308]}, "too small or too large to scale"),
        ({"kind": "number", "lo": 0}, "did you mean table.columns.low"),
    ],
)
def test_columns_that_cannot_work_are_refused(values, what):
    with pytest.raises(RecipeError, match=what):
        Table.from_dict({"columns": [{"name": "x", **values}]})


def test_columns_of_different_lengths_are_refused():
    """A column of one value would count for every row, and labels would belong to other rows."""
    table = Table((AGE, Column("b", "number", low=0, high=1)))
    for columns in ({"age": [1, 2], "b": [1], "y": ["n", "y"]}, {"age": [1, 2], "b": [1, 0], "y": ["n", "y", "n"]}):
        with pytest.raises(EmbeddingsError, match="columns have different numbers of values"):
            table_rows(columns, table, "y")


def test_a_label_that_is_a_column_too_is_refused():
    with pytest.raises(RecipeError, match="must not predict itself"):
        Table((AGE,), label="age")


def test_a_schema_read_off_rows_is_refused_under_epsilon_and_one_from_a_dictionary_is_not():
    with pytest.raises(RecipeError, match="somebody's value"):
        recipe_of(replace(TABLE, from_rows=True), epsilon=1.0)
    recipe = recipe_of(TABLE, epsilon=1.0)
    assert recipe.privacy.radius == pytest.approx(np.sqrt(3))
    longest = np.array([[1.0, 1.0, 0.0, 1.0, 0.0]])
    kept, bound = Features.of(recipe).rows(longest)[0], recipe.grid.bound
    assert np.abs(kept - bound * longest).max() <= 1  # a step is lost where the length is rounded down to whole steps


def test_a_draft_rounds_ranges_outwards_and_leaves_rare_levels_identifiers_and_constants_out():
    rng = np.random.default_rng(0)
    columns = {
        "age": [*range(17, 97), ""],
        "dose": np.exp(rng.normal(size=81) * 2).tolist(),
        "ward": ["a"] * 40 + ["b"] * 38 + ["rare"] * 3,
        "smoker": ["yes", "no", "no"] * 27,
        "id": [f"p{i}" for i in range(81)],
        "site": ["north"] * 81,
        "sick": ["no", "yes", "no"] * 27,
    }
    made = schema_of_rows(columns, "sick")
    age, dose, ward, smoker = made.table.columns
    assert (age.low, age.high, age.missing) == (10.0, 100.0, "indicator")
    assert (dose.kind, ward.levels, smoker.kind) == ("log", ("a", "b"), "yes/no")
    assert dose.low is not None
    assert 0 < dose.low <= min(columns["dose"])
    assert dict(made.left_out).keys() == {"id", "site"}
    assert made.table.from_rows
    assert made.classes == ("no", "yes")


CELLS = st.one_of(
    st.floats(), st.integers(), st.none(), st.booleans(), st.sampled_from(["a", "b", "yes", "no", "1", "1.0", "NA", "?"]),
    st.text(max_size=3), st.floats(5e-324, 1e-300),
)  # fmt: skip


@example([5e-324, 1e-310, 3.0] + [1e-320] * 3)
@example([-1.7e308, 1.7e308, 0.0])
@example(["1", "1.0"])
@example([123456789012345.7, 123456789012346.9])
@example([1e-305, 1e305])
@given(st.lists(CELLS, min_size=1, max_size=12))
def test_a_draft_takes_the_rows_it_was_made_from(cells):
    columns = {"cells": cells, "": cells}
    columns["age"] = [*range(len(cells) - 1), 1000]
    columns["more"] = ["p", "q"] * (len(cells) // 2) + ["p"] * (len(cells) % 2)
    try:
        schema = schema_of_rows(columns, rare=2)
    except DatasetError:  # no column could be drafted
        return
    assert "" in dict(schema.left_out)
    done = TableEncoder(schema.table).embed(columns)
    assert (done.bad, done.outside) == ((), {})


ODD = {
    "no column": ("label\na\nb\n", "there is none beside the labels"),
    "no rows": ("x,label\n", "there are no rows below the names of the 2 columns"),
    "no value": ("x,label\n,a\nNA,b\n", "'x': all values are missing"),
    "one value": ("x,label\n1,a\n1,b\n", "'x': all values are the same"),
    "a blank line": ("x,label\n1,a\n\n2,b\n", "line 3 has 0 fields .* remove lines without anything"),
    "a label that cannot be shown": ("x,label\n1,a\u200b\n2,b\n", r"a label is 'a\\u200b'; names are printable"),
}


@pytest.mark.parametrize("case", ODD)
def test_a_table_without_anything_to_learn_from_is_refused_with_the_reason(case, tmp_path):
    content, says = ODD[case]
    (tmp_path / "odd.csv").write_text(content)
    with pytest.raises(DatasetError, match=says):
        schema_of_rows(columns_of(tmp_path / "odd.csv"), "label")


def test_a_label_that_no_file_can_hold_is_refused_before_a_schema_is_written(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"x": 1, "y": "\\ud800"}\n{"x": 2, "y": "\\ud800"}\n')
    arguments = ["schema", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "s.toml"), "--label-column", "y"]
    refused = CliRunner().invoke(app, arguments).exception
    assert isinstance(refused, DatasetError)
    assert not (tmp_path / "s.toml").exists()


@given(st.lists(CELLS, min_size=1, max_size=12), st.lists(CELLS, min_size=1, max_size=6))
def test_a_draft_takes_the_rows_beside_those_it_was_made_from(cells, more):
    try:
        schema = schema_of_rows({"cells": cells}, rare=2, beside={"cells": cells + more})
    except DatasetError:
        return
    assert TableEncoder(schema.table).embed({"cells": cells + more}).bad == ()


def test_rare_levels_share_one_level_at_every_site_and_nothing_is_outside():
    """More than half of a column in levels of under ten rows: the draft refused the very file it was made from."""
    tires = ["175/70"] * 12 + ["185/70"] * 11 + [f"{i}/60" for i in range(40)]
    table = schema_of_rows({"tires": tires}).table
    assert table.features == ("tires=175/70", "tires=185/70", "tires=other levels")
    rows = table_rows({"tires": tires}, table, labelled=False)
    assert rows.x.sum(axis=0).tolist() == [12, 11, 40]
    elsewhere = table_rows({"tires": ["999/99", "175/70"] * 20}, table, labelled=False)  # a new level, and no refusal
    assert elsewhere.x.sum(axis=0).tolist() == [20, 0, 20]
    assert Table.from_dict(to_plain(table)) == table


def test_a_listed_level_can_be_the_one_for_the_rest_and_words_for_missing_still_mean_missing():
    ward = Column("ward", "category", levels=("a", "other"), rest="other", missing="indicator")
    assert TableEncoder(Table((ward,))).embed({"ward": ["a", "b", "other", "NA"]}).x.tolist() == [
        [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0],
    ]  # fmt: skip
    made = schema_of_dictionary({"name": ["ward"], "levels": ["a|b"], "rest": ["other"]})
    assert made.table.columns[0].all_levels == ("a", "b", "other")


@example(-5e-324, 10.0)
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_rounded_ranges_hold_what_they_were_made_from(low, width):
    high = low + width
    down, up = round_outwards(low, high)
    assert down <= low
    assert up >= high
    assert up - down <= 4 * width + 1e-6


def test_a_data_dictionary_becomes_a_schema():
    columns = {
        "Variable": ["age", "sex", "dose", "smoker", "sick"],
        "Type": ["integer", "", "log", "boolean", "label"],
        "Unit": ["years", "", "mg", "", ""],
        "Min": ["0", "", "0.1", "", ""],
        "Max": ["120", "", "100", "", ""],
        "Levels": ["", "f|m|d", "", "", "no|yes"],
        "Missing": ["", "yes", "", "neutral", ""],
    }
    assert is_dictionary(columns)
    assert not is_dictionary({"name": [], "age": []})
    made = schema_of_dictionary(columns)
    assert [c.kind for c in made.table.columns] == ["number", "category", "log", "yes/no"]
    assert [c.missing for c in made.table.columns] == ["refuse", "indicator", "refuse", "neutral"]
    assert (made.table.label, made.classes, made.table.from_rows) == ("sick", ("no", "yes"), False)


def test_rows_whose_columns_are_called_as_in_a_dictionary_are_rows_where_a_label_is_named(tmp_path):
    lines = [f"n{i % 2},{i},{i + 3},{'yn'[i % 2]}" for i in range(40)]
    (tmp_path / "rows.csv").write_text("\n".join(["name,min,max,y", *lines]))
    at = ["schema", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "schema.toml"), "--label-column", "y"]
    done = CliRunner().invoke(app, at)
    assert done.exit_code == 0, done.output
    assert Schema.load(tmp_path / "schema.toml").table.label == "y"


def test_a_dictionary_without_a_range_says_which_column_lacks_it():
    with pytest.raises(DatasetError, match="column 'age': it has no range"):
        schema_of_dictionary({"name": ["age"], "min": [""], "max": ["3"]})


def test_a_schema_file_survives_and_says_what_is_wrong_with_it(tmp_path):
    path = tmp_path / "schema.toml"
    Schema(TABLE, ("no", "yes"), (("id", "an identifier"),)).save(path)
    assert Schema.load(path) == Schema(TABLE, ("no", "yes"))
    assert path.read_text().startswith("# left out: 'id'")
    path.write_text("columns = 3")
    with pytest.raises(RecipeError, match=r"schema.toml: table.columns is 3; write a list"):
        Schema.load(path)
    path.write_text("classes = [1]")
    with pytest.raises(RecipeError, match="list of names"):
        Schema.load(path)


def test_a_file_of_embeddings_is_still_read_under_a_recipe_with_a_table(tmp_path):
    np.savez(tmp_path / "rows.npz", x=np.zeros((2, TABLE.dim)), y=np.array(["no", "yes"]))
    assert rows_for(recipe_of(TABLE), tmp_path / "rows.npz").x.shape == (2, 5)


def test_a_column_named_twice_is_refused(tmp_path):
    (tmp_path / "twice.csv").write_text("age,age\n1,2\n")
    with pytest.raises(DatasetError, match="names a column twice"):
        table_rows(tmp_path / "twice.csv", Table((AGE,)), labelled=False)


def test_a_split_of_a_table_gives_every_class_the_same_share(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("age,sick\n" + "".join(f"{i % 90},{'yes' if i % 4 == 0 else 'no'}\n" for i in range(200)))
    data, table = table_dataset(path, "sick", test_share=0.2)
    assert np.bincount(data.y_test).tolist() == [30, 10]
    assert np.bincount(data.y_train).tolist() == [120, 40]
    assert table.from_rows
    with pytest.raises(RecipeError, match="data dictionary"):
        table_dataset(path, "sick", is_private=True)


@pytest.mark.parametrize("values", [range(100, 160), [f"p{i:03}" for i in range(60)]], ids=["numbers", "texts"])
@pytest.mark.parametrize(
    "name", ["id", "ID", "patient_id", "PatientID", "record uuid", "MRN", "index", "row", "Unnamed: 0"]
)
def test_a_column_called_like_an_identifier_whose_values_all_differ_is_left_out(name, values):
    schema = schema_of_rows({name: list(values), "age": [20 + i % 50 for i in range(60)]})
    assert [column.name for column in schema.table.columns] == ["age"]
    assert dict(schema.left_out)[name] == IDENTIFIER


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("id", [i % 40 for i in range(60)]),  # a group, not a row
        ("index", [1.5 + i / 7 for i in range(60)]),  # a measurement
        ("acid", range(60)),
        ("rows", range(60)),
    ],
)
def test_a_column_that_is_only_called_so_or_only_differs_stays(name, values):
    schema = schema_of_rows({name: list(values), "age": [20 + i % 50 for i in range(60)]})
    assert name in [column.name for column in schema.table.columns]


def test_simulate_warns_of_identifiers_and_leaves_out_what_it_is_told_to(tmp_path):
    path = tmp_path / "rows.csv"
    lines = [f"{1000 + i},{i % 9},{i % 7},{'ab'[i % 2]}" for i in range(60)]
    path.write_text("\n".join(["patient_id,x,z,label", *lines]) + "\n")
    with pytest.warns(IdentifierWarning, match=r"rows.csv: column 'patient_id' is left out: its name and values"):
        _, table = table_dataset(path, "label")
    assert table.features == ("x", "z")
    arguments = ["simulate", "--embeddings", str(path), "--label-column", "label", "--clients", "2", "--heads", "lda"]
    done = CliRunner().invoke(app, [*arguments, "--without", "z, patient_id", "--json", "-"])
    assert done.exit_code == 0, done.output
    assert table_dataset(path, "label", without=["z", "patient_id"])[1].features == ("x",)
    for extra, text in ((["--schema", str(path)], "is about a draft"), (["--label-column", ""], "beside without")):
        assert text in str(CliRunner().invoke(app, [*arguments, "--without", "z", *extra]).exception)
    unknown = CliRunner().invoke(app, [*arguments, "--without", "height"])
    assert "but not 'height'; check the names" in str(unknown.exception)


def test_a_table_without_rows_makes_a_message_that_asks_to_check_the_file(tmp_path):
    full, bare, recipe = tmp_path / "full.csv", tmp_path / "bare.csv", tmp_path / "recipe.toml"
    full.write_text("x,label\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(40)))
    bare.write_text("x,label\n")
    assert "they come from rows" in " ".join(
        invoke("recipe", recipe, "--embeddings", full, "--label-column", "label").split()
    )
    said = " ".join(invoke("moments", bare, "-r", recipe, "-o", tmp_path / "bare.ghofl").split())
    assert "It has no rows" in said
    assert "Send this file" not in said


def test_a_draft_takes_values_that_are_missing_later():
    rows = {"n": [1, 2, 3, 4] * 10, "c": ["a", "b"] * 20, "q": ["yes", "no"] * 20, "m": [1, "n/a", 3, "-"] * 10}
    table = schema_of_rows(rows).table
    assert [column.missing for column in table.columns] == ["neutral", "neutral", "neutral", "indicator"]
    done = TableEncoder(table).embed({"n": ["", "4"], "c": ["n/a", "a"], "q": ["-", "no"], "m": ["?", "1"]})
    assert done.bad == ()
    assert done.outside == {}
    assert done.x[0].tolist() == [0, 0, 0, 0, 0, 1], "the middle, no level, neither yes nor no, and missing"


@pytest.mark.parametrize("mark", [";", "\t"], ids=["semicolons", "tabs"])
def test_a_csv_with_other_marks_and_decimal_commas_is_drafted_and_read(tmp_path, mark):
    lines = [f"{i % 7},{i % 10};{'north' if i % 2 else 'south, west'};{'ab'[i % 3 > 0]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["size;place;label", *lines, ""]).replace(";", mark))
    columns = columns_of(tmp_path / "t.csv")
    schema = schema_of_rows(columns, "label")
    assert schema.classes == ("a", "b")
    assert [column.kind for column in schema.table.columns] == ["number", "category"]
    assert schema.table.columns[1].levels == ("north", "south, west")
    rows = table_rows(tmp_path / "t.csv", schema.table)
    assert rows.x[1, 0] == pytest.approx(2 * 1.1 / schema.table.columns[0].high - 1)
    (tmp_path / "bad.csv").write_text("size;place;label\n1,5;north;a\n1,500;north;b\n".replace(";", mark))
    with pytest.raises(SampleError, match=r"bad.csv, line 3: column 'size' has the value '1,500'; it is not a number"):
        table_rows(tmp_path / "bad.csv", schema.table)
