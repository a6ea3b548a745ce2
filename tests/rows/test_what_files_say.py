"""Commands on strange files: what they count is what the file says, or a sentence says why not and what to do."""

import builtins
import csv
import json
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import feather, parquet
from typer.testing import CliRunner

import ghofl
from ghofl.cli import app, console
from ghofl.encoders.from_schema import columns_of
from ghofl.encoders.streaming import Encoding, load_whole
from ghofl.errors import ClippingWarning, EmbeddingsError, GhoflError
from ghofl.recipe import Encoder, Recipe, Schema
from ghofl.rows import load_samples
from ghofl.wire.message import Message


class Lengths:
    """An encoder of texts and images without weights, whose embeddings are two lengths of a sample."""

    name, dim, fingerprint, sample_bytes = "stub", 2, "5" * 64, 8

    def __init__(self, kind):
        self.kind = kind

    def encode(self, batches):
        for batch in batches:
            rows = [(len(each), sum(map(ord, each)) % 97 if isinstance(each, str) else each.mean()) for each in batch]
            yield np.array(rows, dtype=np.float32).reshape(len(batch), 2) / 100


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty folder, and encoders of texts and images without weights."""
    load = ghofl.encoders.load
    kinds = {"hf:stub": "text", "torchvision:stub": "image"}
    monkeypatch.setattr(
        ghofl.encoders, "load", lambda spec, *a, **o: Lengths(kinds[spec]) if spec in kinds else load(spec, *a, **o)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(words, *paths, code=0):
    """A command as people type it; what it says on both streams, on one line."""
    arguments = [*words.split(), *map(str, paths)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["ghofl", *arguments])
        result = CliRunner().invoke(app, arguments)
    said, ended = result.output, result.exit_code
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        said, ended = f"{said} {console.in_options(str(result.exception))}", 2
        assert isinstance(result.exception, GhoflError | OSError), result.exception
    assert (ended == 0) == (code == 0), said
    return " ".join(said.split())


def recipe(classes=("cat", "dog"), **more):
    made = Recipe(tuple(classes), Encoder(dim=2), **more)
    made.save("recipe.toml")
    return made


def save_head(classes=("cat", "dog")):
    message = ghofl.message(recipe(classes), "north", X, [*classes] * 3)
    ghofl.fit(ghofl.total([message])).save("head.safetensors")


def counts():
    return Message.load("out.ghofl", Recipe.load("recipe.toml")).moments.counts.tolist()


def write(name, columns):
    """A table of any kind."""
    path, table = Path(name), pa.table(columns)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        cells = [["" if cell is None else str(cell) for cell in row.values()] for row in rows]
        path.write_text("".join(",".join(row) + "\n" for row in [list(columns), *cells]))
    elif path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, path)
    return path


X = np.array([[0.5, 1.0], [2.0, 0.0], [1.0, 1.0], [0.0, 0.5], [1.5, 2.0], [0.0, 0.0]])


# Labels that are missing


def missing_in_files():
    names = {"x": X.tolist(), "label": ["cat", "dog", None, "dog", "cat", "cat"]}
    numbers = {"x": X.tolist(), "label": [0, 1, None, 1, 0, 0]}
    floats = {"x": X.tolist(), "label": pa.array([0.0, 1.0, float("nan"), 1.0, 0.0, 0.0])}
    return {"names.parquet": names, "numbers.parquet": numbers, "numbers.feather": numbers, "floats.parquet": floats}


@pytest.mark.parametrize("name", [*missing_in_files(), "rows.npz", "texts.npz"])
def test_a_row_without_a_label_is_named_or_left_out(name):
    if name.endswith(".npz"):
        y = np.array([0, 1, -1, 1, 0, 0]) if name == "rows.npz" else np.array(["cat", "dog", "", "dog", "cat", "cat"])
        np.savez(name, x=X, y=y)
    else:
        write(name, missing_in_files()[name])
    recipe(("cat", "dog") if name[0] in "nt" and "numbers" not in name else ("0", "1"))
    assert "row 2 has no label" in run(f"moments {name} --recipe recipe.toml -o out.ghofl", code=2)
    assert "row 2 has no label" in run(f"moments {name} --recipe recipe.toml -o out.ghofl --skip-bad")
    assert counts() == [3, 2]
    assert "row 2 has no label" in run(f"recipe other.toml --embeddings {name} --scale 16", code=2)
    assert "row 2 has no label" in run(f"recipe other.toml --dim 2 --classes a,b --public {name}", code=2)


@pytest.mark.parametrize("labels", [["cat", "dog", None], [1, 0, -1], [1, 0, None], [1, 0, float("nan")]])
def test_python_names_the_row_without_a_label(labels):
    made = recipe(("cat", "dog") if "cat" in labels else ("0", "1"))
    with pytest.raises(EmbeddingsError, match="row 2 has no label"):
        ghofl.message(made, "north", X[:3], labels)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".feather"])
@pytest.mark.parametrize("labels", [["cat", None, "dog"], [0, None, 1], [0, -1, 1]])
def test_a_text_without_a_label_is_named_or_left_out(labels, suffix):
    if suffix == ".csv" and -1 in labels:
        pytest.skip("cells of a CSV are names")
    table = write(f"texts{suffix}", {"text": ["one", "three", "seven"], "label": labels})
    made = ("cat", "dog") if "cat" in labels else ("0", "1")
    recipe(made)
    for command in (
        "moments --recipe recipe.toml -o out.ghofl --encoder hf:stub --data",
        "embed -o out.npz --encoder hf:stub --force --data",
    ):
        assert f"{table}, row 2 has no label." in run(command, table, code=2)
        assert f"{table}, row 2 has no label." in run(f"{command} {table} --skip-bad")
    assert counts() == [1, 1]
    assert np.load("out.npz")["x"].shape == (2, 2)
    table.unlink()
    write(f"texts{suffix}", {"text": ["one", "three", "seven"], "label": [labels[0], labels[2], labels[2]]})
    run("embed -o out.npz --encoder hf:stub --force --data", table)
    assert np.load("out.npz")["x"].shape == (3, 2), "a label that was added since is seen"


def hugging_face(labels):
    import datasets as library

    features = library.Features(
        {"text": library.Value("string"), "label": library.ClassLabel(names=["cat", "dog", "owl"])}
    )
    rows = {"text": [f"text {i}" for i in range(len(labels))], "label": labels}
    library.Dataset.from_dict(rows, features=features).save_to_disk("data")


def test_a_hidden_label_of_a_data_set_is_not_its_last_class():
    """−1 counted from the end of the list of names."""
    hugging_face([0, -1, 2, None])
    embed = "embed --encoder hf:stub --data data -o out.npz --force"
    assert "data row 1 has no label" in run(embed, code=2)
    assert "2 samples left out" in run(f"{embed} --skip-bad")
    assert np.load("out.npz")["y"].tolist() == ["cat", "owl"]


def test_a_split_whose_labels_are_all_hidden_can_be_embedded_and_predicted():
    hugging_face([-1, -1])
    run("embed --encoder hf:stub --data data -o out.npz")
    assert sorted(set(np.load("out.npz")) & {"x", "y"}) == ["x"]
    save_head()
    assert "has no labels" in run("moments --recipe recipe.toml -o out.ghofl --encoder hf:stub --data data", code=2)
    hugging_face([-1, 2])
    assert "2 predictions" in run("predict head.safetensors data --encoder hf:stub -o out.csv")


# Numbers as labels


def test_years_are_two_classes_and_not_two_thousand():
    labels = np.array([2023, 2024, 2024, 2023, 2024, 2023])
    np.savez("rows.npz", x=X, y=labels)
    assert "2 classes" in run("recipe recipe.toml --embeddings rows.npz --scale 16")
    assert Recipe.load("recipe.toml").classes == ("2023", "2024")
    run("moments rows.npz --recipe recipe.toml -o out.ghofl")
    assert counts() == [3, 3]
    made = ghofl.recipe_for(labels.tolist(), X)
    assert made.classes == ("2023", "2024")
    message = ghofl.message(made, "north", X, labels)
    assert message.moments.counts.tolist() == [3, 3]
    head = ghofl.fit(ghofl.total([message]))
    assert head.score(X, labels) == head.score(X, labels.astype(str))
    private = ghofl.recipe_for(labels, X, epsilon=5.0, unit_length=True)
    assert private.classes == ("2023", "2024")


def test_a_site_that_lacks_a_class_makes_the_same_recipe_and_a_large_number_takes_no_memory():
    assert ghofl.recipe_for([0, 2, 3], X).classes == ghofl.recipe_for([0, 1, 2, 3], X).classes == tuple("0123")
    assert ghofl.recipe_for([3, 10**9], X).classes == ("3", "1000000000")
    tracemalloc.start()
    with pytest.raises(EmbeddingsError, match="200,000 different numbers, and a recipe has at most 100,000 classes"):
        ghofl.recipe_for(np.arange(200_000) + 10**9, X)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 2**24


def test_a_number_is_looked_up_as_the_name_of_a_class():
    made = recipe(("10", "20"))
    assert ghofl.message(made, "a", X[:3], [20, 10, 20]).moments.counts.tolist() == [1, 2]
    with pytest.raises(
        EmbeddingsError, match=r"label 1 of row 0 is not in the recipe's 2 classes \(10, 20\).* `labels_are_numbers`"
    ):
        ghofl.message(made, "a", X[:3], [1, 0, 1])
    assert ghofl.message(made, "a", X[:3], [1, 0, 1], labels_are_numbers=True).moments.counts.tolist() == [1, 2]


@pytest.mark.parametrize("epsilon", [None, 3.0])
def test_the_version_of_texts_follows_their_labels(epsilon):
    """Numbers that are names had none, so that a corrected label was not seen."""
    from ghofl.features import Features
    from ghofl.outbox.counting import count
    from ghofl.outbox.row_version import RowVersion
    from ghofl.outbox.site_rows import load_encodable

    made, found = recipe(("2023", "2024")), []
    for labels in ([2023, 2024, 2023], [2023, 2023, 2023]):
        table = write("texts.jsonl", {"text": ["one", "three", "seven"], "label": labels})
        version = RowVersion(made.classes)
        count(Features.of(made), load_encodable(made, str(table), "hf:stub"), version=version)
        found.append(version.text)
    assert found[0] != found[1]


# Which part of a file is read


def test_a_head_is_judged_on_the_test_part_of_a_file_and_that_is_said():
    np.savez("cifar.npz", x_train=X[:4], y_train=[0, 0, 1, 1], x_test=X[4:], y_test=[1, 1])
    save_head(("0", "1"))
    said = run("evaluate head.safetensors cifar.npz --json out.json")
    assert "Reading: the part 'test' of cifar.npz; --split names another." in said
    assert json.loads(Path("out.json").read_text())["rows"] == 2
    said = run("evaluate head.safetensors cifar.npz --split train --json out.json --force")
    assert "Reading" not in said
    assert json.loads(Path("out.json").read_text())["rows"] == 4
    assert "2 predictions" in (said := run("predict head.safetensors cifar.npz -o out.csv"))
    assert "Reading: the part 'test'" in said
    np.savez("plain.npz", x=X, y=[0, 1] * 3, x_test=X[:2], y_test=[0, 1])
    assert "Reading" not in run("predict head.safetensors plain.npz -o out.csv --force")


def test_any_split_of_embeddings_can_be_embedded_under_a_name():
    np.savez("rows.npz", x_val=X, y_val=[0, 1] * 3)
    for encoder in ("precomputed:mine", "precomputed:"):
        run(f"embed --encoder {encoder} --data rows.npz --split val -o out.npz --force")
        assert np.array_equal(np.load("out.npz")["x"], X)


# Columns


@pytest.mark.parametrize("option", ["text", "path", "label"])
def test_a_mistyped_column_lists_the_columns(option):
    """A mistyped column of texts was a column of files."""
    table = write("texts.csv", {"path": ["a.png", "b.png"], "words": ["one", "two"], "label": ["cat", "dog"]})
    recipe()
    for command in (
        "moments --recipe recipe.toml -o out.ghofl --encoder hf:stub --data",
        "embed -o out.npz --encoder hf:stub --data",
    ):
        said = run(f"{command} {table} --{option}-column wurds", code=2)
        assert "has the columns path, words, label but not 'wurds' (perhaps 'words'?)" in said
    said = run(f"embed -o out.npz --encoder hf:stub --data {table} --text-column words --path-column path", code=2)
    assert "texts in 'words' or files in 'path'; name one" in said


def test_columns_of_what_has_none_are_refused():
    np.savez("rows.npz", x=X, y=["cat", "dog"] * 3)
    recipe()
    said = run("moments rows.npz --recipe recipe.toml -o out.ghofl --label-column kind", code=2)
    assert "rows.npz holds arrays, x and y, and no column 'kind'" in said
    Path("photos/cat").mkdir(parents=True)
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save("photos/cat/a.png")
    assert "no column 'kind'" in run(
        "embed --encoder torchvision:stub --data photos -o o.npz --label-column kind", code=2
    )


def test_the_columns_of_a_table_are_listed_where_labels_or_persons_are_not_found():
    rows = {"age": list(range(20, 60)), "ill": ["no", "yes"] * 20, "who": [f"p{i}" for i in range(40)]}
    write("rows.csv", rows)
    schema = ghofl.schema_for("rows.csv", "ill", without=["who"])
    ghofl.recipe_for(None, None, schema=schema).save("recipe.toml")
    moments = "moments rows.csv --recipe recipe.toml -o out.ghofl"
    assert "has the columns age, ill, who but not 'sick'" in run(f"{moments} --label-column sick", code=2)
    assert "has the columns age, ill, who but not 'whom'" in run(f"{moments} --person whom --person-rows 1", code=2)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".arrow", ".feather"])
def test_texts_of_every_kind_of_file_are_predicted_evaluated_and_embedded(suffix):
    table = write(f"texts{suffix}", {"text": ["one", "three", "seven", "two"], "label": ["cat", "dog", "cat", "dog"]})
    save_head()
    assert "4 predictions" in run("predict head.safetensors --encoder hf:stub -o out.csv", table)
    run("evaluate head.safetensors --encoder hf:stub --json out.json", table)
    assert json.loads(Path("out.json").read_text())["rows"] == 4
    run("embed --encoder hf:stub -o out.npz --data", table)
    assert np.load("out.npz")["y"].tolist() == ["cat", "dog", "cat", "dog"]
    run("moments --recipe recipe.toml -o out.ghofl --encoder hf:stub --data", table)
    assert counts() == [2, 2]


# Folders say what the classes are


def test_classes_come_from_folders_and_moments_take_the_folder():
    for name in ("dog", "cat", "an owl"):
        Path("photos", name).mkdir(parents=True)
        for i in range(2):
            Image.fromarray(np.full((4, 4, 3), 50 * i, np.uint8)).save(Path("photos", name, f"{i}.png"))
    assert "3 classes" in run("recipe recipe.toml --dim 2 --classes photos")
    assert Recipe.load("recipe.toml").classes == ("an owl", "cat", "dog")
    run("moments photos --recipe recipe.toml -o out.ghofl --encoder torchvision:stub")
    assert counts() == [2, 2, 2]


# What a file is called


@pytest.mark.parametrize(
    "command",
    [
        "moments rows.xlsx --recipe recipe.toml -o out.ghofl",
        "recipe other.toml --embeddings rows.xlsx",
        "recipe other.toml --embeddings rows.xlsx --label-column ill",
        "schema rows.xlsx -o out.toml",
        "embed --encoder hf:stub --data rows.xlsx -o out.npz",
        "predict head.safetensors rows.xlsx -o out.csv",
    ],
)
def test_a_spreadsheet_is_called_one(command):
    """It was a damaged archive of arrays, or text that is not UTF-8."""
    save_head()
    Path("rows.xlsx").write_bytes(b"PK\x03\x04" + bytes(100))
    assert "rows.xlsx has no known suffix; save the sheet as .csv." in run(command, code=2)


@pytest.mark.parametrize("name", ["rows.npz", "rows.npy"])
def test_labels_that_pandas_made_are_told_how_to_become_texts(name):
    labels = np.array(["cat", "dog"] * 3, dtype=object)
    recipe()
    for fixed, told in ((labels, "holds objects of Python, which are never loaded"), (labels.astype(str), "")):
        if name == "rows.npz":
            np.savez(name, x=X, y=fixed)
        else:
            np.save(name, X)
            np.save("rows.labels.npy", fixed)
        said = run(f"moments {name} --recipe recipe.toml -o out.ghofl", code=2 if told else 0)
        assert not told or (told in said and ".astype(str)" in said and "damaged" not in said)
    assert counts() == [3, 3]


def test_a_category_of_0_and_1_stays_one():
    Path("dictionary.csv").write_text("name,kind,levels\nsmoker,category,0|1\nill,,0|1\n")
    assert "2 columns of dictionary, 3 numbers per row" in run("schema dictionary.csv -o out.toml")
    kinds = [(column.kind, column.levels) for column in Schema.load("out.toml").table.columns]
    assert kinds == [("category", ("0", "1")), ("yes/no", ())]
    Path("dictionary.csv").write_text("name,min,max\nage,0,120\n")
    assert "1 column of dictionary, 1 number per row" in run("schema dictionary.csv -o out.toml --force")


# Seconds and memory


@pytest.fixture
def opened(monkeypatch):
    """How often each file is opened."""
    found, own = {}, builtins.open

    def count(file, *more, **named):
        found[str(file)] = found.get(str(file), 0) + 1
        return own(file, *more, **named)

    monkeypatch.setattr(builtins, "open", count)
    return found


def test_bad_rows_of_a_csv_are_found_in_one_reading(opened):
    """Each was looked for from the beginning: 4,000 took 2.9 seconds."""
    ages = [str(20 + i % 60) if i % 2 else "old" for i in range(600)]
    write("rows.csv", {"age": ages, "ill": ["no", "yes", "no", "yes", ""] * 120})
    schema = ghofl.schema_for({"age": list(range(20, 80)), "ill": ["no", "yes"] * 30}, "ill")
    ghofl.recipe_for(None, None, schema=schema).save("recipe.toml")
    with pytest.warns(ClippingWarning, match="left out: rows.csv, line"):
        run("moments rows.csv --recipe recipe.toml -o out.ghofl --skip-bad")
    assert sum(counts()) == 240
    assert opened["rows.csv"] < 12


def test_a_table_is_parsed_once_per_simulation(opened):
    rng = np.random.default_rng(0)
    write("rows.csv", {"age": rng.integers(20, 80, size=200).tolist(), "ill": ["no", "yes"] * 100})
    ghofl.schema_for("rows.csv", "ill")
    once = opened.pop("rows.csv")
    ghofl.simulate("rows.csv", 2, heads="lda", label_column="ill")
    assert opened["rows.csv"] == once


def test_embeddings_stay_as_short_as_the_encoder_made_them():
    table = write("texts.csv", {"text": ["one", "three"], "label": ["cat", "dog"]})
    rows, _ = load_whole(recipe(), str(table), encoding=Encoding("hf:stub"))
    assert rows.x.dtype == np.float32


def test_a_mapped_file_is_not_copied_into_memory_unless_somebody_asks_for_its_digest():
    np.save("rows.npy", np.zeros((1000, 8000), dtype=np.float32))
    tracemalloc.start()
    samples = load_samples("rows.npy")
    assert tracemalloc.get_traced_memory()[1] < 2**21, "the file has 32 MB"
    tracemalloc.stop()
    before = samples.digest()
    changed = np.load("rows.npy")
    changed[-1, -1] = 1
    np.save("rows.npy", changed)
    assert load_samples("rows.npy").digest() != before


def test_a_csv_may_have_long_fields_and_the_limit_of_the_process_stays(tmp_path):
    (tmp_path / "long.csv").write_text("text,label\n" + "".join(f"{'word ' * 40_000}{i},a\n" for i in range(3)))
    before = csv.field_size_limit()
    found = columns_of(tmp_path / "long.csv")
    assert [len(text) for text in found["text"]] == [200_001] * 3
    assert csv.field_size_limit() == before
