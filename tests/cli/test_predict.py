"""`ghofl predict`: every kind of rows, ids that join back, every kind of table, and bounded memory."""

import csv
import json
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from pyarrow import feather
from safetensors.numpy import save_file
from typer.testing import CliRunner

import ghofl
from federations import blobs, recipe_of
from ghofl.cli import app
from ghofl.encoders import streaming as streams
from ghofl.encoders.streaming import open_stream
from ghofl.errors import ClippingWarning
from ghofl.evaluation.predictions import Extras, predict_stream
from ghofl.recipe import Column, Encoder, Schema, Table
from ghofl.rows import Rows, save_rows

NAMES = np.array([f"class {c}" for c in range(4)])


@pytest.fixture
def folder(tmp_path, rng, monkeypatch):
    """A folder with a head and 50 new rows, in blocks of 16."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(streams, "BLOCK", 16)
    x, y = blobs(rng, rows=350)
    total = ghofl.total([ghofl.message(recipe_of(), "north", x[:300], NAMES[y[:300]])])
    ghofl.fit(total, "lda", novelty=True).save("head.safetensors")
    np.save("new.npy", x[300:])
    return tmp_path


def new_rows():
    return np.load("new.npy")


def predict(*words, head="head.safetensors", code=0):
    done = CliRunner().invoke(app, ["predict", head, *map(str, words)])
    assert done.exit_code == code or (code and done.exception is not None), f"{done.output} {done.exception!r}"
    return f"{done.output} {done.exception}" if code else done.output


def table(path="out.csv"):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def classifier():
    return ghofl.Classifier.load("head.safetensors")


def test_embeddings_in_every_kind_of_file_give_the_same_predictions(folder):
    x = new_rows()
    np.savez("new.npz", x=x)
    np.savez("split.npz", x_train=x[:3], x_test=x)
    np.savez_compressed("small.npz", x=x)
    save_file({"x": x}, "new.safetensors")
    polars.DataFrame({"embedding": x.tolist(), "name": [f"n{i}" for i in range(50)]}).write_parquet("new.parquet")
    rows = pyarrow.table({"x": x.tolist()})
    feather.write_feather(rows, "new.arrow", compression="uncompressed")
    feather.write_feather(rows, "new.feather", chunksize=7)
    expected = classifier().predict(x).tolist()
    for words in (
        ["new.npy"],
        ["new.npz"],
        ["split.npz", "--split", "test"],
        ["small.npz"],
        ["new.safetensors"],
        ["new.parquet"],
        ["new.arrow"],
        ["new.feather"],
    ):
        predict(*words, "-o", "out.csv", "--force")
        found = table()
        assert [row["label"] for row in found] == expected, words
        assert [int(row["row"]) for row in found] == list(range(50))
        assert list(found[0]) == ["row", "label", "probability"]


@pytest.mark.parametrize("numbers", [False, True], ids=["texts", "numbers"])
def test_ids_beside_embeddings_join_back(folder, numbers):
    x, ids = new_rows(), np.arange(100, 150) if numbers else np.array([f"patient {i}" for i in range(50)])
    np.savez("new.npz", x=x, patient=ids)
    save_file({"x": x, "patient": ids} if numbers else {"x": x, "patient": np.arange(50)}, "new.safetensors")
    polars.DataFrame({"embedding": x.tolist(), "patient": ids.tolist()}).write_parquet("new.parquet")
    feather.write_feather(pyarrow.table({"embedding": x.tolist(), "patient": ids.tolist()}), "new.arrow")
    expected = classifier().predict(x)
    for source in ("new.npz", "new.parquet", "new.arrow", *(["new.safetensors"] if numbers else [])):
        predict(source, "-o", "out.parquet", "--id-column", "patient", "--force")
        found = pandas.read_parquet("out.parquet")
        own = pandas.DataFrame({"patient": ids.tolist(), "own": expected})
        joined = own.merge(found, on="patient")
        assert len(joined) == 50
        assert (joined["own"] == joined["label"]).all()


def test_the_table_comes_as_csv_tsv_json_lines_parquet_and_on_standard_output(folder):
    x = new_rows()
    ways = {name: predict("new.npy", "-o", name) for name in ("a.csv", "a.tsv", "a.jsonl", "a.parquet", "-")}
    labels, probabilities = classifier().predict(x), classifier().predict_proba(x).max(axis=1)
    lines = [json.loads(line) for line in Path("a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["label"] for line in lines] == labels.tolist()
    assert [line["probability"] for line in lines] == probabilities.tolist()
    found = pandas.read_parquet("a.parquet")
    assert found["label"].tolist() == labels.tolist()
    assert found["probability"].tolist() == probabilities.tolist()
    assert found["row"].dtype == np.int64
    assert (
        ways["-"]
        == Path("a.csv").read_text(encoding="utf-8")
        == Path("a.tsv").read_text(encoding="utf-8").replace("\t", ",")
    )
    assert [f"{p:.6f}" for p in probabilities] == [row["probability"] for row in table("a.csv")]


def test_the_most_probable_classes_and_all_probabilities_are_columns(folder):
    predict("new.npy", "-o", "out.csv", "--top", "2")
    found, p = table(), classifier().predict_proba(new_rows())
    assert list(found[0]) == ["row", "label", "probability", "label_1", "probability_1", "label_2", "probability_2"]
    predict("new.npy", "-o", "every.csv", "--top", "all")
    every = table("every.csv")
    assert list(every[0]) == ["row", "label", "probability", *(f"p_class {c}" for c in range(4))]
    for i, row in enumerate(found):
        first, second = np.argsort(-p[i], kind="stable")[:2]
        assert (row["label_1"], row["label_2"]) == (NAMES[first], NAMES[second])
        assert row["probability_2"] == f"{p[i, second]:.6f}"
        assert [every[i][f"p_class {c}"] for c in range(4)] == [f"{value:.6f}" for value in p[i]]
    predict("new.npy", "-o", "no.csv", "--top", "-1", code=2)
    predict("new.npy", "-o", "all.csv", "--top", "9")
    assert "label_4" in table("all.csv")[0]
    assert "label_5" not in table("all.csv")[0]


def test_priors_thresholds_and_rejection_work_as_in_python(folder):
    x, head = new_rows(), classifier()
    np.save("strange.npy", np.vstack([x, x[:5] + 60.0]))
    said = predict("strange.npy", "-o", "out.csv", "--reject", "0.01", "--json", "said.json")
    found = table()
    assert [row["label"] for row in found] == head.predict(np.load("strange.npy"), reject=0.01).tolist()
    assert found[-1]["label"] == ""
    assert float(found[-1]["novelty"]) > head.novelty_threshold(0.01)
    without = sum(row["label"] == "" for row in found)
    assert json.loads(Path("said.json").read_text()) == {
        "file": "out.csv", "rows": 55, "head": "lda", "without_label": without, "left_out": [],
    }  # fmt: skip
    assert f"{without} of them without a label" in said
    predict("new.npy", "-o", "p.csv", "--priors", "class 0=1", "--threshold", "class 1=0.2")
    own = head.with_priors({"class 0": 1.0}).with_thresholds({"class 1": 0.2})
    assert [row["label"] for row in table("p.csv")] == own.predict(x).tolist()


def test_no_rows_give_a_header_and_nothing_else(folder):
    np.save("none.npy", new_rows()[:0])
    for name in ("none.csv", "none.jsonl", "none.parquet"):
        predict("none.npy", "-o", name, "--top", "1")
    assert Path("none.csv").read_text(encoding="utf-8") == "row,label,probability,label_1,probability_1\n"
    assert Path("none.jsonl").read_text(encoding="utf-8") == ""
    assert pandas.read_parquet("none.parquet").shape == (0, 5)


def test_rows_of_another_encoder_are_refused_and_nothing_is_written(folder):
    x = new_rows()
    recipe = recipe_of()
    known = ghofl.Recipe(recipe.classes, Encoder(6, "timm:one", "a" * 64), recipe.statistics, grid=recipe.grid)
    total = ghofl.total([ghofl.message(known, "north", x, NAMES[np.arange(50) % 4])])
    ghofl.fit(total, "lda").save("known.safetensors")
    save_rows("own.npz", {"": Rows(x)}, Encoder(6, "timm:one", "a" * 64))
    save_rows("other.npz", {"": Rows(x)}, Encoder(6, "timm:two", "b" * 64))
    predict("own.npz", "-o", "out.csv", head="known.safetensors")
    assert "the encoder is timm:two" in predict("other.npz", "-o", "no.csv", head="known.safetensors", code=2)
    assert not (folder / "no.csv").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["new.npy", "-o", "out.xlsx"], "has no known suffix; write to .csv"),
        (["new.npy", "-o", "out.csv", "--label-column", "y"], "ghofl evaluate"),
        (["new.npy", "-o", "out.csv", "--text-column", "t"], "new.npy holds arrays, x and y, and no column 't'"),
        (["new.npy", "-o", "out.csv", "--precision", "bf16"], "needs no encoder; leave out"),
        (["new.npy", "-o", "-", "--json", "-"], "both --output and --json are '-'"),
        (["new.npy", "-o", "out.csv", "--id-column", "who"], "holds x but no ids 'who'; check --id-column"),
        (["new.npz", "-o", "out.csv", "--id-column", "wide"], "expected one text or whole number per row, 50"),
        (["new.npz", "-o", "out.csv", "--id-column", "label"], "ids are called 'label', as is a column"),
        (["wrong.npz", "-o", "out.csv"], "wrong.npz is damaged"),
        (["objects.npz", "-o", "out.csv"], "objects"),
        (["narrow.npy", "-o", "out.csv"], "the recipe expects rows of 6 numbers"),
        (["nan.npy", "-o", "out.csv"], "nan.npy row 20 holds a number that is not finite"),
        (["nowhere", "-o", "out.csv"], "is not a file or folder here"),
        (["ragged.parquet", "-o", "out.csv"], "does not hold lists of one length"),
        (["text.arrow", "-o", "out.csv"], "text.arrow holds samples, and the recipe calls its encoder"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(folder, words, told):
    x = new_rows()
    np.savez("new.npz", x=x, wide=x, label=np.arange(50))
    data = (folder / "new.npz").read_bytes()
    at = data.index(x[30].tobytes())  # a flipped bit in a row, which only the checksum tells
    (folder / "wrong.npz").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    np.savez("objects.npz", x=np.array([[{}]], dtype=object))
    np.save("narrow.npy", x[:, :3])
    np.save("nan.npy", np.where(np.arange(50)[:, None] == 20, np.nan, x))
    polars.DataFrame({"embedding": [[1.0] * 6, [1.0] * 5, [1.0] * 7]}).write_parquet("ragged.parquet")
    feather.write_feather(pyarrow.table({"text": ["a"]}), "text.arrow")
    told_now = " ".join(predict(*words, code=2).replace("│", " ").split())
    assert told in told_now, told_now
    assert not (folder / "out.csv").exists()


def test_rows_that_are_not_finite_are_left_out_where_that_is_asked_for(folder, capsys):
    np.savez("nan.npz", x=np.where(np.arange(50)[:, None] == 20, np.nan, new_rows()), who=np.arange(50))
    predict("nan.npz", "-o", "out.csv", "--skip-bad", "--id-column", "who", "--json", "said.json")
    assert [int(row["row"]) for row in table()] == [i for i in range(50) if i != 20]
    assert [row["who"] for row in table()] == [row["row"] for row in table()]
    assert json.loads(Path("said.json").read_text())["left_out"] == [
        {"row": 20, "reason": "nan.npz row 20 holds a number that is not finite"}
    ]


# Tables by a schema


def ward(rows=45):
    rng = np.random.default_rng(3)
    sick = np.arange(rows) % 2
    return pandas.DataFrame(
        {
            "patient": [f"p{i}" for i in range(rows)],
            "age": rng.normal(40 + 30 * sick, 5).round(1),
            "sick": np.array(["no", "yes"])[sick],
        }
    )


@pytest.fixture
def table_head(folder):
    schema = Schema(Table((Column("age", "number", low=0, high=120),), "sick"), ("no", "yes"))
    recipe = ghofl.recipe_for(schema=schema, statistics=("B",))
    total = ghofl.total([ghofl.message(recipe, "north", ward())])
    total.save("table.ghofl")
    ghofl.fit(total).save("table.safetensors")
    return folder


def test_a_table_goes_through_the_schema_a_block_at_a_time_with_its_ids(table_head):
    frame = ward()
    frame.to_csv("new.csv", index=False)
    frame.to_csv("new.tsv", index=False, sep="\t")
    frame.to_parquet("new.parquet")
    frame.to_json("new.jsonl", orient="records", lines=True)
    expected = ghofl.Classifier.load("table.safetensors").predict(frame).tolist()
    for suffix in ("csv", "tsv", "parquet", "jsonl"):
        predict(f"new.{suffix}", "-o", "out.csv", "--id-column", "patient", "--force", head="table.safetensors")
        assert [row["patient"] for row in table()] == frame["patient"].tolist()
        assert [row["label"] for row in table()] == expected


def test_a_row_of_a_table_that_breaks_the_schema_is_named_by_its_line_or_left_out(table_head):
    frame = ward().astype({"age": object})
    frame.loc[33, "age"] = "old"
    frame.to_csv("new.csv", index=False)
    said = predict("new.csv", "-o", "out.csv", head="table.safetensors", code=2)
    assert "new.csv, line 35: column 'age' has the value 'old'" in said
    predict("new.csv", "-o", "out.csv", "--skip-bad", head="table.safetensors")
    assert [int(row["row"]) for row in table()] == [i for i in range(45) if i != 33]
    frame.loc[33, "age"], frame.loc[2, "age"] = 500, -3
    frame.to_csv("far.csv", index=False)
    with pytest.warns(ClippingWarning, match=r"2 values are outside .* age \(2\)"):
        predict("far.csv", "-o", "far-out.csv", head="table.safetensors")


EVALUATE = ("evaluate", "table.safetensors", "new.csv", "--json", "-")
REPORT = ("report", "table.ghofl", "--head", "table.safetensors", "--data", "new.csv", "-o", "page.html", "--json", "-")


@pytest.mark.parametrize("words", [EVALUATE, REPORT], ids=["evaluate", "report"])
def test_a_head_is_judged_on_a_table_and_rows_that_break_the_schema_are_left_out(table_head, words):
    frame = ward().astype({"age": object})
    frame.to_csv("new.csv", index=False)
    whole = CliRunner().invoke(app, [*words])
    assert whole.exit_code == 0, whole.output
    frame.loc[33, "age"] = "old"
    frame.to_csv("new.csv", index=False)
    refused = CliRunner().invoke(app, [*words, "--force"])
    assert "line 35" in str(refused.exception)
    assert "`skip_bad`" in str(refused.exception)
    with pytest.warns(ClippingWarning, match="left out: new.csv, line 35"):
        done = CliRunner().invoke(app, [*words, "--skip-bad", "--force"])
    assert done.exit_code == 0, done.output
    if words is EVALUATE:
        assert (json.loads(whole.stdout)["rows"], json.loads(done.stdout)["rows"]) == (45, 44)
    else:
        text = Path("page.html").read_text()
        for told in ("<h2>Thresholds</h2>", "rows flagged, %", "precision, %", "average precision", "<h2>Classes</h2>"):
            assert told in text


def test_a_report_takes_heads_and_rows_together_and_heads_of_its_total(table_head):
    ward().to_csv("new.csv", index=False)
    for words in (["--head", "table.safetensors"], ["--data", "new.csv"]):
        done = CliRunner().invoke(app, ["report", "table.ghofl", "-o", "page.html", *words])
        assert (done.exit_code, "both --head and --data" in " ".join(done.output.replace("│", " ").split())) == (
            2,
            True,
        )
    words = ["report", "table.ghofl", "-o", "page.html", "--data", "new.csv", "--head", "head.safetensors"]
    assert "another recipe than the total's" in str(CliRunner().invoke(app, words).exception)


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.parquet"])
def test_ids_that_no_utf_8_text_can_hold_are_written_out(table_head, name):
    Path("new.jsonl").write_text('{"age": 30, "patient": "p\\ud800"}\n')
    predict("new.jsonl", "-o", name, "--id-column", "patient", head="table.safetensors")
    read = {"out.csv": pandas.read_csv, "out.parquet": pandas.read_parquet}.get(name)
    found = read(name) if read else pandas.read_json(name, lines=True)
    assert found["patient"].tolist() == ["p\\ud800"]


# Memory and progress


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet", ".arrow", ".safetensors"])
def test_a_file_larger_than_memory_would_allow_is_read_a_block_at_a_time(tmp_path, rng, suffix):
    dim, rows = 64, 40_000  # 20 MB of rows
    x = rng.normal(size=(rows, dim))
    path = tmp_path / f"large{suffix}"
    if suffix == ".npy":
        np.save(path, x)
    elif suffix == ".npz":
        np.savez(path, x=x)
    elif suffix == ".parquet":
        polars.DataFrame({"embedding": x}).write_parquet(path, row_group_size=2048)
    elif suffix == ".arrow":
        feather.write_feather(pyarrow.table({"x": list(x)}), str(path), compression="uncompressed")
    else:
        save_file({"x": x}, path)
    recipe = recipe_of(dim=dim, classes=2, statistics=("B",))
    y = np.array(["class 0", "class 1"])[np.arange(500) % 2]
    head = ghofl.fit(ghofl.total([ghofl.message(recipe, "north", x[:500], y)]), "lda")
    written = []
    del x
    tracemalloc.start()
    with open_stream(recipe, str(path)) as stream:
        counts = predict_stream(head, stream, lambda columns: written.append(len(columns["row"])), Extras())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counts == (rows, 0)
    assert max(written) <= 2048
    assert peak < 14e6, f"{peak / 1e6:.1f} MB at the peak"


def test_an_archive_that_goes_on_after_its_rows_is_damaged(folder):
    np.savez("new.npz", x=new_rows())
    with zipfile.ZipFile("new.npz") as archive, zipfile.ZipFile("more.npz", "w") as out:
        out.writestr("x.npy", archive.read("x.npy") + b"more")
    assert "has more bytes after its last row" in predict("more.npz", "-o", "out.csv", code=2)


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-4, 6), }", "the impossible shape (-4, 6)"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976, 6), }", "impossible shape"),
        (
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1099511627776), }",
            "holds rows of 1099511627776 numbers",
        ),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (9000, 6), }", "ends before its last row"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (50, 6), }", "holds objects"),
        ("{'descr': '<f8', 'shape': (50, 6), }", "is not an .npz of plain arrays"),
        ("__import__('os')", "is not an .npz of plain arrays"),
    ],
)
def test_a_header_that_lies_is_refused_before_anything_is_made_of_it(folder, header, told):
    text = header.encode().ljust(117) + b"\n"
    with zipfile.ZipFile("odd.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + new_rows().tobytes())
    assert told in predict("odd.npz", "-o", "out.csv", code=2)
    assert not (folder / "out.csv").exists()
