"""Hinges and cosines of a table's columns: public, bounded, the same integers everywhere, and the default where rows allow."""

import hashlib
import json
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import ghofl
from ghofl import Classifier, Features, Grid, HeadSpec, Lift, Moments, Recipe, Total, Transform
from ghofl.cli import app
from ghofl.custody.disclosure import PRESETS
from ghofl.encoders.from_schema import table_rows
from ghofl.encoders.from_table import TableEncoder
from ghofl.errors import RecipeError
from ghofl.features.basis import Expansion, cosine_table, public_phases, public_weights
from ghofl.moments import Layout
from ghofl.planning.assembly import assemble
from ghofl.planning.breaks import draft_breaks
from ghofl.planning.drafting import schema_of_dictionary, schema_of_rows
from ghofl.recipe import Basis, Column, RecipeOptions, Schema, Table, usual_basis
from ghofl.recipe.basis import SATURATION
from ghofl.simulation.dataset import table_dataset
from ghofl.wire.message import Message

AGE = Column("age", "number", low=0, high=100, breaks=(20, 35, 50, 80))
TABLE = Table(
    (
        AGE,
        Column("dose", "log", low=1, high=1000, breaks=(3, 40), missing="indicator"),
        Column("income", "quantiles", breaks=(0, 10, 1000)),
        Column("ward", "category", levels=("a", "b")),
        Column("smoker", "yes/no"),
    ),
    label="sick",
    site_rows=600,
)
CLASSES, BASIS = ("no", "yes"), Basis(3, 40, seed=7)
GOLDEN = {
    "weights": "8b35ba9edd9b968b1e2e48b7365fa9e623f52d725095a7abfb047c64fc9b37bd",
    "phases": "c4dbaabf24086f996945dee7843ea071819c436fe300386df6cba8d68d1636eb",
    "cosines": "9454f7758f461f6daad3110a7fa6d64d300a91685ff16eef1b11703b979d2c0a",
}


def recipe_of(table: Table = TABLE, basis: Basis | None = BASIS, **changes: object) -> Recipe:
    given = {"statistics": ("B",), "grid": Grid(12, 2047.0)} | changes
    return Recipe(CLASSES, table.encoder, table=table, basis=basis, **given)  # type: ignore[arg-type]


def rows_of(rng: np.random.Generator, n: int) -> np.ndarray:
    """Embeddings as the table's encoder would give them, and some that it never would."""
    x = rng.uniform(-1.3, 1.3, size=(n, TABLE.dim)).astype(np.float32)
    x[: n // 2] = np.round(x[: n // 2], 1)  # knots and ends are among them
    return x


def test_hinges_are_what_the_formula_says(rng):
    x = rows_of(rng, 300)
    expansion = Expansion.of(recipe_of())
    q = Features.of(recipe_of()).rows(x)[0]
    clipped = np.clip(x.astype(np.float64), -1, 1)
    assert recipe_of().dim == TABLE.dim + 3 + 2 + 40
    for k, (entry, knot) in enumerate(Basis(3).knots(TABLE)):
        expected = np.maximum(0, clipped[:, entry] - knot) * min(1.0, 1 / (1 - knot)) * 2047
        assert np.abs(q[:, TABLE.dim + k] - expected).max() <= 0.5
    assert len(expansion.knots) == 5


def test_ranks_are_those_of_a_column_of_kind_quantiles():
    """The breaks of a number with its ends, as the breaks of quantiles, give the same scale from −127 to 127."""
    values = np.linspace(0, 100, 1001).tolist()
    quantiles = Table((Column("age", "quantiles", breaks=(0, 20, 35, 50, 80, 100)),))
    expected = TableEncoder(quantiles).embed({"age": values}).x[:, 0]
    table = Table((AGE,), site_rows=600)
    x = TableEncoder(table).embed({"age": values}).x.astype(np.float64)
    ranks = Expansion.of(recipe_of(table)).ranks(x)[:, 0]
    assert np.abs(ranks - 127 * expected).max() <= 0.5 + 127 / 64 / 5 + 1e-3  # parts of a segment are rounded first
    assert (np.diff(ranks) >= 0).all()
    assert ranks[[0, -1]].tolist() == [-127, 127]


def test_ranks_of_many_columns_with_many_breaks_take_little_memory(rng):
    """A recipe of half a megabyte would ask for almost a gigabyte."""
    breaks = tuple(np.linspace(1, 99, 64).round(3).tolist())
    table = Table(tuple(Column(f"c{i}", "number", low=0, high=100, breaks=breaks) for i in range(300)))
    expansion, x = Expansion.of(recipe_of(table, Basis(1))), rng.uniform(-1, 1, size=(256, 300))
    alone = np.vstack([expansion.ranks(row[None]) for row in x[:5]])
    tracemalloc.start()
    try:
        ranks = expansion.ranks(x)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16 * 2**20
    assert np.array_equal(ranks[:5], alone)


def test_cosines_are_those_of_random_fourier_features(rng):
    """cos(π/2 · Σ_j (r_j/127) w_j/(4√d) + 2πb/4096), up to one entry of the table and one step of the grid."""
    x = np.clip(rows_of(rng, 400).astype(np.float64), -1, 1)
    expansion = Expansion.of(recipe_of())
    w = expansion.weights / (4 * math.sqrt(TABLE.dim))
    angle = math.pi / 2 * expansion.ranks(x) / 127 @ w + 2 * math.pi * expansion.phases / 4096
    found = expansion.rows(x)[:, len(expansion.knots) :] / 2047
    assert np.abs(found - np.cos(angle)).max() < 2 * math.pi / 4096 + 1 / 2047


def test_weights_phases_and_cosines_are_these_bytes():
    """Public numbers that every platform must have: a change makes heads of old totals wrong."""
    digests = {
        "weights": hashlib.sha256(public_weights(5, 7, 11).astype("<i2").tobytes()).hexdigest(),
        "phases": hashlib.sha256(public_phases(5, 11).astype("<i2").tobytes()).hexdigest(),
        "cosines": hashlib.sha256(cosine_table(2047.0, 2047).astype("<i2").tobytes()).hexdigest(),
    }
    assert digests == GOLDEN


def test_no_cosine_is_near_enough_to_a_half_for_a_library_of_cosines_to_matter():
    wave = np.cos(2.0 * np.pi * np.arange(4096) / 4096) * 2047.0
    assert np.abs(np.abs(wave - np.floor(wave)) - 0.5).min() > 1e-6


def test_features_of_a_row_do_not_depend_on_other_rows_and_stay_on_the_grid(rng):
    x, features = rows_of(rng, 1500), Features.of(recipe_of())
    q = features.rows(x)[0]
    alone = np.vstack([features.rows(x[i : i + 1])[0] for i in range(0, 1500, 97)])
    assert np.array_equal(q[::97], alone)
    assert np.abs(q).max() <= features.recipe.grid.bound


def test_totals_are_the_same_for_every_split_and_every_door(rng, tmp_path):
    """Messages of Python, of the command line, and moments of the rows themselves."""
    columns = {
        "age": rng.integers(0, 101, 120).tolist(), "dose": rng.uniform(1, 900, 120).round(2).tolist(),
        "income": rng.uniform(0, 1000, 120).round(1).tolist(), "ward": rng.choice(["a", "b"], 120).tolist(),
        "smoker": rng.choice(["yes", "no"], 120).tolist(), "sick": rng.choice(["yes", "no"], 120).tolist(),
    }  # fmt: skip
    recipe = recipe_of()
    recipe.save(tmp_path / "recipe.toml")
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    words = ["moments", "rows.csv", "--recipe", "recipe.toml", "--site", "north", "-o", "north.ghofl"]
    words = [str(tmp_path / word) if "." in word else word for word in words]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    parts = ({name: values[start : start + 40] for name, values in columns.items()} for start in (0, 40, 80))
    sent = [ghofl.message(recipe, f"site {i}", part, part["sick"]) for i, part in enumerate(parts)]
    loaded = table_rows(columns, TABLE, "sick")
    q = Features.of(recipe).rows(loaded.x)[0]
    y = (np.array(columns["sick"]) == "yes").astype(np.int64)
    direct = Moments.of(q, y, Layout.of(recipe))
    assert ghofl.total(sent).moments == direct
    assert Message.load(tmp_path / "north.ghofl", recipe).moments == direct


def test_a_recipe_with_a_basis_survives_toml_and_has_its_own_fingerprint():
    recipe = recipe_of()
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    others = {recipe_of(basis=b).fingerprint for b in (None, Basis(3, 40), Basis(2, 40, 7), Basis(3, 41, 7))}
    others.add(recipe_of(replace(TABLE, columns=(replace(AGE, breaks=(20, 35)), *TABLE.columns[1:]))).fingerprint)
    assert len(others | {recipe.fingerprint}) == 6


def test_breaks_do_not_change_a_columns_own_number():
    rows = {"age": [0, 33, 100]}
    one, other = (TableEncoder(Table((column,))).embed(rows).x for column in (AGE, replace(AGE, breaks=())))
    assert np.array_equal(one, other)


HOSTILE_COLUMNS = [
    ({"breaks": tuple(range(1, 66))}, "has 65 breaks"),
    ({"breaks": (0.0, 5.0)}, "all between 0.0 and 100.0"),
    ({"breaks": (5.0, 100.0)}, "all between 0.0 and 100.0"),
    ({"breaks": (5.0, 5.0)}, "each above the last"),
    ({"breaks": (math.nan,)}, "each above the last"),
    ({"breaks": (math.inf,)}, "each above the last"),
    ({"breaks": (50.0, 50.0 + 1e-9)}, "does not tell apart"),
    ({"breaks": (0.0,), "low": -1.7e308, "high": 1.7e308}, "too small or too large to scale"),
]


@pytest.mark.parametrize(("values", "what"), HOSTILE_COLUMNS)
def test_breaks_that_cannot_be_are_refused(values, what):
    with pytest.raises(RecipeError, match=what):
        replace(AGE, **values)


@pytest.mark.parametrize(
    ("table", "basis", "what"),
    [
        (TABLE, {"hinges": 17}, "basis.hinges is 17"),
        (TABLE, {"cosines": 10**12}, "basis.cosines is 1000000000000"),
        (TABLE, {"cosines": -1}, "basis.cosines is -1"),
        (TABLE, {"seed": 2**63}, "basis.seed is"),
        (TABLE, {"cosines": 400}, "600 rows per site .* carry 198"),
        (replace(TABLE, site_rows=None), {"cosines": 20}, "does not say whether sites have rows"),
        ("wide", {"cosines": 4096}, "more than are computed"),
    ],
)
def test_more_features_than_rows_or_memory_carry_are_refused_before_anything_is_computed(table, basis, what):
    if table == "wide":
        table = Table(tuple(replace(AGE, name=f"c{i}") for i in range(9_000)), site_rows=2**40)
    with pytest.raises(RecipeError, match=what):
        recipe_of(table, Basis(**basis))


def test_a_basis_needs_a_table_as_it_is():
    plain = recipe_of(basis=None)
    with pytest.raises(RecipeError, match=r"columns of a \[table\], and there is none"):
        Recipe(CLASSES, ghofl.Encoder(dim=3), basis=Basis())
    for changes in ({"lift": Lift(dim=20)}, {"transform": Transform(power=0.5)}):
        with pytest.raises(RecipeError, match=r"\[basis\] is made of the columns as they are"):
            replace(plain, basis=Basis(), **changes)


@given(st.integers(1, 5000), st.integers(1, 30), st.integers(0, 15))
def test_the_usual_basis_is_never_more_than_the_rows_of_a_site_carry(rows, columns, breaks):
    inner = tuple(float(10 + 5 * i) for i in range(breaks))
    table = Table(tuple(replace(AGE, name=f"c{i}", breaks=inner) for i in range(columns)), site_rows=rows)
    basis = usual_basis(table)
    if basis is not None:
        dim = recipe_of(table, basis).dim  # which a recipe checks too
        assert columns < dim <= SATURATION * rows
        assert basis.cosines == 0 or 20 <= basis.cosines <= 400
    assert usual_basis(replace(table, site_rows=None)) is None


def test_the_share_of_features_is_the_custodians_rule():
    assert PRESETS["usual"]["saturation"] == PRESETS["strict"]["saturation"] == SATURATION


@pytest.mark.parametrize(
    ("options", "has_basis"),
    [
        ({}, True),
        ({"secure": True}, True),
        ({"budget": 10**6}, True),
        ({"budget": 3_000}, False),
        ({"site_rows": 20}, False),
        ({"statistics": ("B",)}, False),
        ({"lift": 64}, False),
        ({"power": 0.5}, False),
        ({"unit_length": True}, False),
        ({"epsilon": 1.0}, False),
    ],
)
def test_a_table_gets_features_where_nothing_is_against_them(options, has_basis):
    recipe = assemble(RecipeOptions(**options), CLASSES, TABLE.encoder, table=TABLE).recipe
    assert (recipe.basis is not None) == has_basis
    if has_basis:
        assert recipe.statistics == ("N", "A", "B")
        assert recipe.table == TABLE


def test_every_door_gives_a_table_the_same_features(tmp_path):
    Schema(TABLE, CLASSES).save(tmp_path / "schema.toml")
    assembled = assemble(RecipeOptions(site_rows=900), CLASSES, TABLE.encoder, table=TABLE).recipe
    words = ["recipe", str(tmp_path / "recipe.toml"), "--schema", str(tmp_path / "schema.toml"), "--site-rows", "900"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert Recipe.load(tmp_path / "recipe.toml") == assembled
    assert ghofl.recipe_for(schema=tmp_path / "schema.toml", site_rows=900) == assembled
    assert assembled.basis == usual_basis(replace(TABLE, site_rows=900))


def bent_csv(tmp_path, rng, n=900):
    x = rng.uniform(-2, 2, size=(n, 2))
    y = np.where(np.abs(x[:, 0]) + np.abs(x[:, 1]) < 1.6, "in", "out")  # no plane divides these
    text = "".join(f"{a:.3f},{b:.3f},{c}\n" for (a, b), c in zip(x, y, strict=True))
    (tmp_path / "bent.csv").write_text("a,b,where\n" + text)
    return tmp_path / "bent.csv"


def test_simulations_of_tables_get_features_for_the_rows_that_clients_have(tmp_path, rng):
    words = [
        "simulate",
        "--embeddings",
        bent_csv(tmp_path, rng),
        "--label-column",
        "where",
        "--clients",
        3,
        "--json",
        "-",
    ]
    found = CliRunner().invoke(app, [*map(str, words)])
    assert found.exit_code == 0, found.output
    plain = CliRunner().invoke(app, [*map(str, words), "--heads", "lda"])
    accuracy, of_plane = (next(iter(json.loads(r.stdout)["heads"].values()))["accuracy"] for r in (found, plain))
    assert accuracy > 0.85
    assert of_plane < 0.7


def test_lda_ridge_bends_with_features_and_its_probabilities_are_honest(tmp_path, rng):
    data, table = table_dataset(bent_csv(tmp_path, rng, 3000), "where")
    table = replace(table, site_rows=700)
    recipe = assemble(RecipeOptions(), data.classes, table.encoder, table=table).recipe
    moments = Moments.of(Features.of(recipe).rows(data.x_train)[0], data.y_train, Layout.of(recipe))
    total = Total.of([Message.of(moments, recipe, "north")], recipe)
    p = Classifier.fit(total, HeadSpec("lda_ridge")).predict_proba(data.x_test)
    assert np.mean(p.argmax(axis=1) == data.y_test) > 0.9
    assert -np.log(p[np.arange(len(p)), data.y_test]).mean() < 0.3
    assert p.min() > 1e-6  # no class is ever impossible


def test_a_draft_gives_numbers_rounded_quantiles_with_enough_rows_between_them(rng):
    values = rng.normal(170, 10, 160).round(3)
    breaks = draft_breaks(values.tolist(), 130, 210, rare=10)
    assert 12 <= len(breaks) <= 15
    assert all(round(b) == b for b in breaks)  # the span is 30 to 40, of which two digits are ones
    assert min(np.histogram(values, [130, *breaks, 210])[0]) >= 5  # rounding moves a few rows over a break
    assert draft_breaks([1.0, 2.0, 3.0] * 6, 0, 4, rare=10) == ()
    assert draft_breaks([0.0, 1.0] * 100, 0, 1, rare=10) == ()


@given(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=400), st.integers(2, 30))
def test_every_draft_of_breaks_is_one_that_a_column_takes(values, rare):
    schema_of_rows({"x": [f"{v!r}" for v in [*values, 1e-3, 1e6]]}, rare=rare)


def test_a_draft_says_how_many_rows_there_were_rounded_down():
    assert schema_of_rows({"x": list(range(1759))}).table.site_rows == 1700
    assert schema_of_rows({"x": list(range(37))}).table.site_rows == 37


def test_a_dictionary_gives_breaks_inside_a_range():
    facts = {"name": ["age", "income"], "min": ["0", ""], "max": ["100", ""], "breaks": ["20|50", "0|10|99"]}
    age, income = schema_of_dictionary(facts).table.columns
    assert (age.kind, age.breaks, income.kind) == ("number", (20.0, 50.0), "quantiles")
