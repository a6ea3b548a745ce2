"""The short path from rows to class names: every kind of rows and labels, no privacy option lost, one line to look at."""

import html
import re
import sys
from dataclasses import replace

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from typer.testing import CliRunner

import ghofl
from deadlines import run
from federations import blobs, recipe_of
from ghofl import Encoder, Gaussians, Message, Privacy, Recipe
from ghofl.cli import app
from ghofl.errors import (
    ClippingWarning,
    EmbeddingsError,
    HeadError,
    MessageError,
    PrivacyError,
    RecipeError,
    RosterError,
    SampleError,
)
from ghofl.features import Features
from ghofl.planning.assembly import assemble
from ghofl.privacy import NoiseStream
from ghofl.recipe import Column, RecipeOptions, Schema, Table
from ghofl.recipe.labels import labels_of

CLASSES = ("class 0", "class 1", "class 2", "class 3")
NAMES = np.array(CLASSES)


@pytest.fixture
def rows(rng):
    x, y = blobs(rng, rows=240)
    return x, y


def sent(x, y, recipe=None, **more):
    return ghofl.message(recipe or recipe_of(), "north", x, y, **more)


def test_four_lines_go_from_rows_to_class_names(rows):
    x, y = rows
    recipe = ghofl.recipe_for(NAMES[y], x)
    messages = [
        ghofl.message(recipe, "north", x[:150], NAMES[y[:150]]),
        ghofl.message(recipe, "south", x[150:], NAMES[y[150:]]),
    ]
    classifier = ghofl.fit(ghofl.total(messages), "best")
    assert classifier.predict(x).dtype.kind == "U"
    assert classifier.score(x, NAMES[y]) == np.mean(classifier.predict(x) == NAMES[y]) > 0.9
    assert classifier.classes_.tolist() == list(CLASSES)
    assert classifier.predict_proba(x).shape == (len(x), 4)
    assert np.array_equal(classifier.classes_[classifier.predict_numbers(x)], classifier.predict(x))


def test_a_message_is_the_one_that_the_command_line_writes_of_the_same_rows(rows, tmp_path):
    x, y = rows
    recipe = recipe_of()
    recipe.save(tmp_path / "recipe.toml")
    np.savez(tmp_path / "north.npz", x=x, y=NAMES[y])
    at = [str(tmp_path / name) for name in ("north.npz", "recipe.toml", "north.ghofl")]
    done = CliRunner().invoke(app, ["moments", at[0], "--recipe", at[1], "--site", "north", "-o", at[2]])
    assert done.exit_code == 0, done.output
    theirs, ours = Message.load(at[2], recipe), sent(x, NAMES[y])
    assert (ours.moments, ours.site, ours.clipped) == (theirs.moments, "north", theirs.clipped)


KINDS = {
    "list of lists": lambda x: x.tolist(),
    "pandas": pandas.DataFrame,
    "pandas of nullable numbers": lambda x: pandas.DataFrame(x).astype("Float64"),
    "polars": lambda x: polars.DataFrame(x, orient="row"),
    "pyarrow": lambda x: pyarrow.table({f"f{i}": x[:, i] for i in range(x.shape[1])}),
    "columns by name": lambda x: {f"f{i}": x[:, i].tolist() for i in range(x.shape[1])},
    "pandas column of lists": lambda x: pandas.Series(list(x)),
    "polars column of lists": lambda x: polars.DataFrame({"embedding": x.tolist()}),
    "objects": lambda x: x.astype(object),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_kind_give_the_same_message_and_predictions(kind, rows):
    x, y = rows
    expected, given = sent(x, NAMES[y]), KINDS[kind](x)
    assert sent(given, NAMES[y]).moments == expected.moments
    classifier = ghofl.fit(ghofl.total([expected]), "lda")
    assert np.array_equal(classifier.predict_proba(given), classifier.predict_proba(x))
    assert classifier.score(given, NAMES[y]) == classifier.score(x, NAMES[y])


LABELS = {
    "list": lambda names: names.tolist(),
    "objects": lambda names: names.astype(object),
    "pandas": pandas.Series,
    "pandas categories": lambda names: pandas.Series(names).astype("category"),
    "polars": lambda names: polars.Series(names.tolist()),
    "pyarrow": lambda names: pyarrow.chunked_array([names.tolist()]),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_kind_give_the_same_message(kind, rows):
    x, y = rows
    assert sent(x, LABELS[kind](NAMES[y])).moments == sent(x, NAMES[y]).moments


def test_class_numbers_are_taken_where_they_can_mean_only_one_thing(rows):
    x, y = rows
    numbered = replace(recipe_of(), classes=("0", "1", "2", "3"))
    for labels in (y, y.astype(object), y.tolist(), pandas.Series(y), polars.Series(y.tolist())):
        assert sent(x, labels, numbered).moments == sent(x, NAMES[y]).moments
        assert sent(x, labels, labels_are_numbers=True).moments == sent(x, NAMES[y]).moments
        with pytest.raises(
            EmbeddingsError, match="label 3 of row 0 is not in the recipe's 4 classes .*`labels_are_numbers`"
        ):
            sent(x, labels)
    classifier = ghofl.fit(ghofl.total([sent(x, y, numbered)]), "lda")
    assert classifier.score(x, y) > 0.9
    assert set(classifier.predict(x)) <= {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("zebra", "label 'zebra' of row 3 is not in the recipe's 4 classes"),
        (None, "row 3 has no label (None)"),
        (float("nan"), "row 3 has no label (nan)"),
        (True, "label True of row 3 is of type bool"),
    ],
)
def test_a_label_that_the_recipe_does_not_know_is_named(label, told, rows):
    x, y = rows
    labels = NAMES[y].tolist()
    labels[3] = label
    with pytest.raises(EmbeddingsError, match=re.escape(told)):
        sent(x, labels)
    classifier = ghofl.fit(ghofl.total([sent(x, NAMES[y])]), "lda")
    with pytest.raises(EmbeddingsError, match=re.escape(told)):
        classifier.score(x, labels)


def test_labels_and_persons_may_be_columns_of_the_frame(rows):
    x, y = rows
    person = np.arange(len(y)) % 50
    for frame in (pandas.DataFrame(x), polars.DataFrame(x, orient="row").to_pandas()):
        frame.columns = [f"f{i}" for i in range(6)]
        frame = frame.assign(kind=NAMES[y], patient=person)
        for given in (frame, polars.from_pandas(frame), dict(frame)):
            taken = sent(given, "kind", person="patient", rows_per_person=2)
            assert taken.moments == sent(x[:100], NAMES[y[:100]]).moments
        with pytest.raises(EmbeddingsError, match=r"without a column 'species'"):
            sent(frame, "species")
        with pytest.raises(EmbeddingsError, match=r"column 'kind' holds .*numbers. Leave it out"):
            sent(frame.drop(columns="patient"), NAMES[y])
    with pytest.raises(EmbeddingsError, match="rows are a ndarray, without a column 'kind'"):
        sent(x, "kind")


@pytest.mark.parametrize(
    ("x", "told"),
    [
        ([1.0, 2.0], "an array of two dimensions"),
        ([[1.0], [1.0, 2.0]], "as many in each row as in the first"),
        (np.zeros((2, 3)), "the recipe expects rows of 6 numbers"),
        (np.full((2, 6), np.nan), "row 0 holds a number that is not finite"),
        (polars.LazyFrame({"a": [1.0]}), "a list of rows or a DataFrame"),
        (pandas.DataFrame({"a": ["x", "y"], "b": [1, 2]}), "column 'a' holds"),
    ],
)
def test_rows_that_are_not_embeddings_are_refused_with_what_to_do(x, told, as_users_run_it):
    with pytest.raises(EmbeddingsError, match=told):
        sent(x, ["class 0", "class 1"])


def test_every_row_needs_a_label_and_every_label_a_row(rows):
    x, y = rows
    with pytest.raises(EmbeddingsError, match="239 labels for 240 rows"):
        sent(x, NAMES[y][1:])
    with pytest.raises(EmbeddingsError, match="there are no labels"):
        sent(x, None)
    classifier = ghofl.fit(ghofl.total([sent(x, NAMES[y])]), "lda")
    with pytest.raises(EmbeddingsError, match="239 labels for 240 rows"):
        classifier.score(x, NAMES[y][1:])


def test_the_message_warns_of_rows_that_fall_outside_the_grid(rows):
    x, y = rows
    with pytest.warns(ClippingWarning, match="fell outside the 10-bit grid"):
        sent(1000.0 * x, NAMES[y])


@pytest.mark.parametrize(("action", "told"), [("default", 1), ("always", 3)])
def test_warnings_of_clipped_entries_heed_pythons_filters(action, told):
    program = """
import ghofl
recipe = ghofl.Recipe(("cat", "dog"), ghofl.Encoder(dim=1))
for _ in range(3):
    ghofl.message(recipe, "north", [[1e9], [0.0]], ["cat", "dog"])
"""
    done = run(sys.executable, "-W", action, "-c", program)
    assert done.stderr.count("<string>:5: ClippingWarning") == told, done.stderr


def test_values_outside_a_schema_are_named_with_their_columns():
    frame = {"age": [30, 300, 50, 60], "ward": list("abab"), "sick": ["no", "yes", "no", "yes"]}
    recipe = ghofl.recipe_for(schema=SCHEMA)
    with pytest.warns(ClippingWarning, match=r"age \(1\)") as told:
        north = ghofl.message(recipe, "north", frame)
    assert len(told) == 1
    with pytest.warns(ClippingWarning, match=r"age \(1\)"):
        assert len(ghofl.fit(ghofl.total([north]), "lda").predict(frame)) == 4


# A recipe with a table


SCHEMA = Schema(
    Table((Column("age", "number", low=0, high=120), Column("ward", "category", levels=("a", "b"))), "sick"),
    ("no", "yes"),
)


def ward_frame(rng, rows=200):
    sick = rng.random(rows) < 0.4
    return pandas.DataFrame(
        {
            "ward": np.where(rng.random(rows) < 0.3 + 0.5 * sick, "a", "b"),
            "age": np.clip(rng.normal(40 + 30 * sick, 8), 0, 120).round(1),
            "sick": np.where(sick, "yes", "no"),
        }
    )


def test_a_recipe_with_a_table_takes_a_frame_with_its_columns_in_any_order(rng, tmp_path):
    frame = ward_frame(rng)
    SCHEMA.save(tmp_path / "schema.toml")
    recipe = ghofl.recipe_for(schema=tmp_path / "schema.toml", statistics=("S",))
    assert recipe == ghofl.recipe_for(schema=SCHEMA, statistics=("S",))
    assert recipe.classes == ("no", "yes")
    own = ghofl.message(recipe, "north", frame)  # the schema names the column of labels
    for given in (frame, polars.from_pandas(frame), frame[["age", "sick", "ward"]], dict(frame)):
        assert ghofl.message(recipe, "north", given).moments == own.moments
        assert ghofl.message(recipe, "north", given, frame["sick"]).moments == own.moments
    classifier = ghofl.fit(ghofl.total([own]), novelty=True)
    assert classifier.score(frame, frame["sick"]) > 0.9
    unlabelled = polars.from_pandas(frame.drop(columns="sick"))
    assert np.array_equal(classifier.predict(unlabelled), classifier.predict(frame))
    assert classifier.novelty(unlabelled).shape == (len(frame),)


def test_a_row_that_breaks_the_schema_is_named(rng):
    frame = ward_frame(rng).astype({"age": object})
    recipe = ghofl.recipe_for(schema=SCHEMA, statistics=("B",))
    classifier = ghofl.fit(ghofl.total([ghofl.message(recipe, "north", frame)]))
    frame.loc[7, "age"] = "old"
    for call in (lambda: ghofl.message(recipe, "north", frame), lambda: classifier.predict(frame)):
        with pytest.raises(SampleError, match="row 7: column 'age' has the value 'old'"):
            call()
    with pytest.raises(ghofl.GhoflError, match="but not 'age'"):
        classifier.predict(frame.drop(columns="age"))


# Privacy


def test_local_noise_is_in_the_message(rows):
    x, y = rows
    recipe = recipe_of(statistics=("B",), privacy=Privacy(epsilon=1.0, delta=1e-5, radius=8.0, noise="local"))
    noisy, again = (sent(x, NAMES[y], recipe, stream=NoiseStream(b"a test")) for _ in range(2))
    exact = sent(x, NAMES[y], replace(recipe, privacy=Privacy(radius=8.0)))
    assert noisy.moments == again.moments
    assert noisy.moments.blocks["A"].tolist() != exact.moments.blocks["A"].tolist()
    assert ghofl.total([noisy]).guarantee.epsilon <= 1.0


def test_a_recipe_with_central_noise_gives_a_head_only_of_a_released_total(rows):
    x, y = rows
    recipe = recipe_of(statistics=("B",), privacy=Privacy(epsilon=10.0, delta=1e-5, radius=8.0))
    total = ghofl.total([sent(x, NAMES[y], recipe)])
    with pytest.raises(PrivacyError, match="Total.release"):
        ghofl.fit(total)
    assert ghofl.fit(total.release(NoiseStream(b"a test")), "lda").guarantee.epsilon <= 10.0


def test_a_recipe_about_persons_needs_to_know_them_and_limits_their_rows(rows):
    x, y = rows
    promise = Privacy(epsilon=1.0, delta=1e-5, radius=8.0, unit="person", person_rows=2)
    recipe = recipe_of(statistics=("B",), privacy=promise)
    with pytest.raises(PrivacyError, match="at most 2 rows of one person"):
        sent(x, NAMES[y], recipe)
    who = np.arange(len(y)) % 60
    kept = sent(x, NAMES[y], recipe, person=who)
    assert kept.moments == sent(x[:120], NAMES[y[:120]], recipe, person=[f"p{i}" for i in who[:120]]).moments
    assert sent(x, NAMES[y], recipe, person=who, rows_per_person=1).rows == 60
    with pytest.raises(EmbeddingsError, match="1 persons for 240 rows"):
        sent(x, NAMES[y], recipe, person=["p"])
    with pytest.warns(ClippingWarning, match="1 rows do not fit the recipe"):  # under an epsilon no row refuses
        assert sent(x[:2], NAMES[y[:2]], recipe, person=["p", None]).rows == 1
    with pytest.raises(EmbeddingsError, match="row 1 has no person"):
        sent(x[:2], NAMES[y[:2]], recipe_of(statistics=("B",)), person=["p", None], rows_per_person=2)
    with pytest.raises(EmbeddingsError, match="rows without a person"):
        sent(x[:2], NAMES[y[:2]], recipe_of(statistics=("B",)), person=["p", ""], rows_per_person=2)
    with pytest.raises(EmbeddingsError, match="give person too"):
        sent(x, NAMES[y], recipe, rows_per_person=1)


# Totals


def test_messages_come_as_they_are_as_bytes_and_as_files(rows, tmp_path):
    x, y = rows
    recipe = recipe_of()
    messages = [ghofl.message(recipe, f"site-{i}", x[i::4], NAMES[y[i::4]]) for i in range(4)]
    for message in messages:
        message.save(tmp_path / f"{message.site}.ghofl")
    expected = ghofl.total(messages)
    mixed = [messages[0], messages[1].to_bytes(), tmp_path / "site-2.ghofl", str(tmp_path / "site-3.ghofl")]
    assert ghofl.total(mixed) == expected
    assert ghofl.total(iter(mixed)) == expected
    assert ghofl.total(tmp_path.glob("*.ghofl"), recipe) == expected
    with pytest.raises(MessageError, match=r"no recipe is known: give it as total\(messages, recipe\)"):
        ghofl.total([messages[1].to_bytes(), messages[0]])


def test_a_message_whose_site_comes_before_the_recipe_is_told_the_order(rows, as_users_run_it):
    with pytest.raises(
        RecipeError, match=r"recipe is a str; give the recipe first: ghofl.message\(recipe, site, x, y\)"
    ):
        ghofl.message("north", recipe_of(), *rows)


def test_what_cannot_be_a_list_of_messages_is_refused(rows, tmp_path, as_users_run_it):
    x, y = rows
    message = sent(x, NAMES[y])
    (tmp_path / "odd.ghofl").write_bytes(b"odd")
    for given, told in (
        (message, "single Message; give a list"),
        (message.to_bytes(), "single bytes; give a list"),
        (str(tmp_path), "single str; give a list"),
        ([], "there are no messages"),
        ([message, 3], "a message is a int"),
        ([ghofl.total([message])], "a Total came where a message belongs; totals are added with"),
        ([message, tmp_path / "odd.ghofl"], "odd.ghofl: "),
    ):
        with pytest.raises(MessageError, match=told):
            ghofl.total(given)
    with pytest.raises(RosterError, match="each is counted once"):
        ghofl.total([message, message])
    with pytest.raises(MessageError, match="all sites use one recipe file"):
        ghofl.total([message, sent(x, NAMES[y], recipe_of(bits=11))])


# Recipes


def test_a_recipe_in_one_line_is_the_one_that_assembly_makes(rows):
    x, y = rows
    expected = assemble(
        RecipeOptions(statistics=("S",), power=0.5, max_rows=1000), CLASSES, Encoder(dim=6), protected=x
    ).recipe
    options = {"statistics": ("S",), "power": 0.5, "max_rows": 1000}
    for classes in (CLASSES, list(CLASSES), NAMES[y], pandas.Series(NAMES[y])):
        assert ghofl.recipe_for(classes, pandas.DataFrame(x), **options) == expected
    assert ghofl.recipe_for(["b", "a"], x).classes == ("b", "a")  # names keep their order
    assert ghofl.recipe_for(["b", "a", "b"], x).classes == ("a", "b")  # labels have none
    assert ghofl.recipe_for(y, x).classes == ("0", "1", "2", "3")
    smaller = ghofl.recipe_for(CLASSES, encoder=Encoder(dim=2000, name="large"), budget=100_000)
    assert (smaller.encoder.name, smaller.dim < 2000) == ("large", True)


def test_under_an_epsilon_a_recipe_does_not_depend_on_the_rows(rows):
    x, _ = rows
    promise = {"epsilon": 1.0, "unit_length": True}
    one, other = (ghofl.recipe_for(CLASSES, rows, **promise) for rows in (x, 50.0 * x))
    assert one == other
    assert one.privacy.epsilon == 1.0
    with pytest.raises(PrivacyError, match="grid fitted to the training rows would tell about them"):
        ghofl.recipe_for(CLASSES, x, epsilon=1.0, statistics=("B",))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"classes": CLASSES, "x": [[1.0]], "bitz": 8}, "no option 'bitz'; choose from anchor, bits"),
        ({"x": [[1.0]]}, "no classes are given"),
        ({"classes": CLASSES}, "give x, encoder=Encoder"),
        ({"classes": CLASSES, "x": [[1.0]], "budget": 10**6, "lift": 8}, "leave one of them out"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused_with_what_to_do(given, told):
    with pytest.raises(RecipeError, match=told):
        ghofl.recipe_for(**given)


# Looking at values


def test_rows_of_none_of_the_classes_get_an_empty_name(rows):
    x, y = rows
    classifier = ghofl.fit(ghofl.total([sent(x, NAMES[y])]), "lda", novelty=True)
    found = classifier.predict(np.vstack([x[:3], 40.0 + 0.0 * x[:2]]), reject=0.001)
    assert found.tolist()[3:] == ["", ""]
    every = classifier.with_thresholds(dict.fromkeys(CLASSES, 1.0))
    assert set(every.predict(x)) <= {"", *CLASSES}


def looked_at(rows):
    x, y = rows
    recipe = recipe_of()
    message = sent(x, NAMES[y], recipe)
    total = ghofl.total([message])
    gaussians = Gaussians.of_total(total, Features.of(recipe))
    return [recipe, message, total, total.moments, gaussians, ghofl.fit(total)]


def test_every_value_shows_itself_on_one_line_and_as_a_small_table(rows):
    for value in looked_at(rows):
        line, table = repr(value), value._repr_html_()
        assert len(line) < 260, line
        assert "\n" not in line
        assert line.startswith(f"<{type(value).__name__}: ")
        assert table.startswith("<table>")
        assert len(table) < 4000
    assert "class 0, class 1, class 2, …" in repr(value)
    assert "240 rows of 1 site<" in value._repr_html_()


def test_names_of_strangers_are_text_in_a_notebook_and_nothing_else():
    odd = ("<script>alert(1)</script>", "b'\"&", "c")
    recipe = Recipe(classes=odd, encoder=Encoder(dim=2, name="<b>x</b>"))
    message = ghofl.message(recipe, "<i>site<i>", [[1.0, 2.0], [2.0, 1.0], [0.0, 1.0]], list(odd))
    total = ghofl.total([message])
    for value in (recipe, message, total):
        shown = value._repr_html_()
        assert not re.search(r"<(script|b>x|i>)", shown)
        assert "&lt;" in shown
    assert shown.count("<rect") == 3
    assert html.escape("b'\"&") in shown


def test_labels_that_are_one_text_or_a_table_are_refused(as_users_run_it):
    for given in ("cat", 3, np.array([["a"]])):
        with pytest.raises(EmbeddingsError, match="one label per row"):
            labels_of(given)


@pytest.mark.usefixtures("as_users_run_it")
def test_what_is_no_list_of_messages_no_total_and_no_head_is_named(rng):
    x, y = blobs(rng)
    recipe = recipe_of()
    one = ghofl.total([ghofl.message(recipe, "north", x, NAMES[y])])
    with pytest.raises(MessageError, match="messages are not a list but int; give a list of messages"):
        ghofl.total(3)  # type: ignore[arg-type]
    with pytest.raises(MessageError, match=r"not to a NoneType; give ghofl.total\(messages\)"):
        ghofl.fit(None)  # type: ignore[arg-type]
    with pytest.raises(HeadError, match="'None' is not a head; write a name such as 'lda'"):
        ghofl.fit(one, None)  # type: ignore[arg-type]


def test_a_preset_sets_the_options_that_are_not_given(rows):
    x, y = rows
    total = ghofl.total([ghofl.message(recipe_of(), "north", x, NAMES[y])])
    assert ghofl.fit(total, "lda", preset="paper").options == {"shrinkage": 0.05}
    assert ghofl.fit(total, "lda(shrinkage=0.2)", preset="paper").options == {"shrinkage": 0.2}
    with pytest.raises(HeadError, match="preset 'papers' is unknown"):
        ghofl.fit(total, "lda", preset="papers")
