"""From samples to embeddings in one call, and from samples to predictions in one command."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pandas
import pytest
from PIL import Image
from typer.testing import CliRunner

import ghofl
from ghofl import encoders
from ghofl.cli import app
from ghofl.encoders import Precomputed, identity, streaming
from ghofl.errors import EncoderError, RecipeError, SampleError
from ghofl.evaluation import Confusion
from ghofl.recipe.labels import class_numbers
from ghofl.rows import load_rows

TEXTS = ["the cat sat", "a dog ran on the very long road far away home", "cat", "dog ran", "the mat", "on a road"]
LABELS = ["cat", "dog", "cat", "dog", "cat", "dog"]


def invoke(*words, code=0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert (done.exit_code == 0) == (code == 0), f"{done.output} {done.exception!r}"
    return f"{done.output} {done.exception}"


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# Encoding in one call


def test_images_of_every_kind_give_the_same_rows_as_the_command(of_photos, images, tmp_path):
    spec, expected = of_photos, ghofl.encode(images, of_photos)
    assert (expected.dtype, expected.shape) == (np.float32, (4, 64))
    paths = [tmp_path / "photos" / "all" / f"{i}.png" for i in range(4)]
    paths[0].parent.mkdir(parents=True)
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    invoke(
        "embed",
        "--encoder",
        spec,
        "--data",
        tmp_path / "photos",
        "-o",
        tmp_path / "rows.npz",
    )
    assert np.array_equal(load_rows(tmp_path / "rows.npz").x, expected)
    loaded = encoders.load(spec)
    given = {
        "paths": paths,
        "texts of paths": [str(path) for path in paths],
        "Pillow": [Image.fromarray(image) for image in images],
        "bytes": [path.read_bytes() for path in paths],
        "a folder": tmp_path / "photos",
        "the text of a folder": str(tmp_path / "photos"),
        "a column": pandas.Series([str(path) for path in paths]),
    }
    for kind, samples in given.items():
        assert np.array_equal(ghofl.encode(samples, loaded), expected), kind
    grey = images[0][:, :, 0]
    assert np.array_equal(ghofl.encode([grey], loaded), ghofl.encode([np.stack([grey] * 3, axis=2)], loaded))
    assert np.array_equal(ghofl.encode(np.stack([images[0], images[2]]), loaded), expected[[0, 2]])


def test_texts_give_the_same_rows_as_the_command(language_model, tmp_path):
    pandas.DataFrame({"text": TEXTS, "label": LABELS}).to_csv(tmp_path / "texts.csv", index=False)
    spec, out = f"hf:{language_model}", tmp_path / "rows.npz"
    invoke(
        "embed",
        "--encoder",
        spec,
        "--data",
        tmp_path / "texts.csv",
        "-o",
        out,
        "--pooling",
        "cls",
    )
    for samples in (TEXTS, tuple(TEXTS), pandas.Series(TEXTS), np.array(TEXTS), tmp_path / "texts.csv"):
        assert np.array_equal(ghofl.encode(samples, spec, pooling="cls"), load_rows(out).x)
    assert ghofl.encode([], spec).shape == (0, 32)


def test_rows_go_through_as_they_are():
    assert ghofl.encode([[1.0, 2.0]], Precomputed.of("clip", 2)).tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        ([np.zeros((4, 4, 3), np.int64)], "sample 0 is not an image .*its pixels are int64; expected uint8"),
        ([np.zeros((4, 4, 4), np.uint8)], r"the shape \(4, 4, 4\); expected \(height, width\) for grey"),
        (["nowhere.png"], "nowhere.png does not exist"),
        ([b"odd"], "sample 0 is not an image"),
        (b"odd", "samples are a single bytes; give a list"),
    ],
)
def test_what_is_not_an_image_is_named(of_photos, samples, told):
    with pytest.raises(SampleError, match=told):
        ghofl.encode(samples, of_photos)


def test_what_cannot_be_encoded_is_refused(language_model):
    spec = f"hf:{language_model}"
    with pytest.raises(SampleError, match="single str; give a list of them, or a pathlib.Path"):
        ghofl.encode("texts.csv", spec)
    with pytest.raises(SampleError, match="sample 1 is an empty text"):
        ghofl.encode(["cat", " "], spec)
    with pytest.raises(EncoderError, match="encoder 'cats' is unknown"):
        ghofl.encode(["cat"], "cats")
    with pytest.raises(RecipeError, match="is already loaded; give pooling when loading it"):
        ghofl.encode(["cat"], encoders.load(spec), pooling="cls")


def test_the_encoder_of_a_recipe_is_the_one_that_made_the_rows(language_model):
    spec = f"hf:{language_model}"
    x = ghofl.encode(TEXTS, spec)
    recipe = ghofl.recipe_for(LABELS, x, encoder=spec, statistics=("B",))
    assert recipe.encoder == identity(encoders.load(spec))
    assert recipe == ghofl.recipe_for(LABELS, x, encoder=encoders.load(spec), statistics=("B",))


class Unsigned:
    """An encoder of images that gives brightnesses, which are never negative."""

    name, kind, dim, fingerprint, sample_bytes = "mine", "image", 6, "f" * 64, 1000

    def encode(self, batches):
        for batch in batches:
            yield np.stack([image.reshape(-1)[:6] / np.float32(255) for image in batch])


def test_without_rows_an_encoder_itself_shows_whether_square_roots_are_taken(
    language_model, of_photos, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert (encoders.example_rows(Unsigned()) >= 0).all()
    assert encoders.example_rows(Precomputed.of("clip", 2)) is None
    for encoder, power in ((Unsigned(), 0.5), (f"hf:{language_model}", 1.0), (of_photos, 1.0)):
        assert ghofl.recipe_for(["a", "b"], encoder=encoder).transform.power == power
        assert ghofl.recipe_for(["a", "b"], encoder=encoder, power=0.7).transform.power == 0.7
    invoke("recipe", "r.toml", "--classes", "a,b", "--encoder", f"hf:{language_model}")
    assert ghofl.Recipe.load("r.toml").transform.power == 1.0


# Predictions of samples


@pytest.fixture
def text_head(language_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = ghofl.encode(TEXTS, f"hf:{language_model}")
    recipe = ghofl.recipe_for(("cat", "dog"), x, encoder=f"hf:{language_model}", statistics=("D",))
    total = ghofl.total([ghofl.message(recipe, "north", x, LABELS)])
    total.save("total.ghofl")
    ghofl.fit(total, "nb").save("head.safetensors")
    return f"hf:{language_model}"


def test_texts_of_every_kind_of_table_are_predicted_a_block_at_a_time(text_head, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "SAMPLES", 4)
    frame = pandas.DataFrame({"ticket": [f"t{i}" for i in range(6)], "text": TEXTS, "label": LABELS})
    frame.to_csv("new.csv", index=False)
    frame.to_json("new.jsonl", orient="records", lines=True)
    frame.rename(columns={"text": "said"}).to_parquet("new.parquet")
    frame.to_csv("test.csv", index=False)
    expected = ghofl.Classifier.load("head.safetensors").predict(ghofl.encode(TEXTS, text_head)).tolist()
    for words in (["new.csv"], ["new.jsonl"], ["new.parquet", "--text-column", "said"], [".", "--split", "test"]):
        invoke(
            "predict",
            "head.safetensors",
            *words,
            "-o",
            "out.csv",
            "--force",
            "--encoder",
            text_head,
            "--id-column",
            "ticket",
        )
        found = table("out.csv")
        assert [row["ticket"] for row in found] == frame["ticket"].tolist()
        assert [row["label"] for row in found] == expected
        assert [row["row"] for row in found] == list("012345")


def test_a_text_that_cannot_be_read_is_named_by_its_row_or_left_out(text_head, monkeypatch):
    monkeypatch.setattr(streaming, "SAMPLES", 4)
    lines = [*TEXTS[:5], " "]
    pandas.DataFrame({"text": lines}).to_csv("new.csv", index=False)
    command = ("predict", "head.safetensors", "new.csv", "-o", "out.csv", "--encoder", text_head)
    assert "new.csv, row 6 is an empty text" in invoke(*command, code=2)
    invoke(*command, "--skip-bad", "--json", "said.json")
    assert [row["row"] for row in table("out.csv")] == list("01234")
    with open("said.json") as file:
        assert json.load(file)["left_out"] == [{"row": 5, "reason": "new.csv, row 6 is an empty text."}]


def test_the_recipe_s_own_encoder_is_loaded_where_none_is_named_and_another_one_is_refused(
    text_head, language_model, tmp_path
):
    pandas.DataFrame({"text": TEXTS}).to_csv("new.csv", index=False)
    classifier = ghofl.Classifier.load("head.safetensors")
    named = classifier.recipe.encoder.name.removeprefix("hf:")
    if not (tmp_path / named).exists():  # the recipe names the folder, not where it lies
        shutil.copytree(language_model, tmp_path / named)
    invoke("predict", "head.safetensors", "new.csv", "-o", "own.csv")
    pandas.DataFrame({"text": TEXTS, "label": LABELS}).to_csv("old.csv", index=False)
    classifier.recipe.save("recipe.toml")
    for sent, more in (("own.ghofl", ()), ("named.ghofl", ("--encoder", text_head))):
        invoke("moments", "--data", "old.csv", "-r", "recipe.toml", "--site", "north", "-o", sent, *more)
    assert (
        ghofl.total(["own.ghofl"], classifier.recipe).moments == ghofl.total(["named.ghofl"], classifier.recipe).moments
    )
    assert [row["label"] for row in table("own.csv")] == classifier.predict(ghofl.encode(TEXTS, text_head)).tolist()
    said = invoke(
        "predict", "head.safetensors", "new.csv", "-o", "no.csv", "--encoder", text_head, "--pooling", "cls", code=2
    )
    assert "other weights, preprocessing or pooling" in said
    other = ("--data", "old.csv", "--encoder", text_head, "--pooling", "cls", "-o", "no.ghofl")
    assert "other weights, preprocessing or pooling" in invoke("moments", *other, "-r", "recipe.toml", code=2)
    unnamed = ghofl.recipe_for(("cat", "dog"), ghofl.encode(TEXTS, text_head), statistics=("D",))
    total = ghofl.total([ghofl.message(unnamed, "north", ghofl.encode(TEXTS, text_head), LABELS)])
    ghofl.fit(total, "nb").save("unnamed.safetensors")
    said = invoke("predict", "unnamed.safetensors", "new.csv", "-o", "no.csv", code=2)
    assert "calls its encoder 'unnamed', which cannot be loaded by that" in said
    unnamed.save("unnamed.toml")
    said = invoke("moments", "--data", "old.csv", "-r", "unnamed.toml", "-o", "no.ghofl", code=2)
    assert "which cannot be loaded by that name; give it with `encoder`" in said


@pytest.fixture
def image_head(of_photos, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = of_photos
    for i in range(6):
        (tmp_path / "photos" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.roll(images[i % 4], i, axis=0)).save(tmp_path / "photos" / "ab"[i % 2] / f"{i}.png")
    x = ghofl.encode(tmp_path / "photos", spec)
    recipe = ghofl.recipe_for(("a", "b"), x, encoder=spec, statistics=("D",))
    total = ghofl.total([ghofl.message(recipe, "north", x, list("aaabbb"))])
    total.save("total.ghofl")
    ghofl.fit(total, "nb").save("head.safetensors")
    return spec


def test_an_image_folder_is_predicted_with_the_names_of_its_files(image_head, tmp_path):
    invoke("predict", "head.safetensors", "photos", "-o", "out.csv", "--encoder", image_head)
    found = table("out.csv")
    assert [row["file"] for row in found] == ["a/0.png", "a/2.png", "a/4.png", "b/1.png", "b/3.png", "b/5.png"]
    x = ghofl.encode(tmp_path / "photos", image_head)
    assert [row["label"] for row in found] == ghofl.Classifier.load("head.safetensors").predict(x).tolist()
    said = invoke(
        "predict", "head.safetensors", "photos", "-o", "no.csv", "--encoder", image_head, "--id-column", "x", code=2
    )
    assert "has no columns, so no ids 'x'" in said


def test_files_named_in_a_table_are_predicted_under_the_table_s_own_names(image_head):
    pandas.DataFrame({"path": ["photos/a/2.png", "photos/b/1.png"]}).to_csv("list.csv", index=False)
    invoke("predict", "head.safetensors", "list.csv", "-o", "out.csv", "--encoder", image_head)
    assert [row["path"] for row in table("out.csv")] == ["photos/a/2.png", "photos/b/1.png"]


def test_an_image_that_cannot_be_read_is_named_or_left_out(image_head, tmp_path):
    (tmp_path / "photos" / "a" / "2.png").write_bytes(b"odd")
    command = ("predict", "head.safetensors", "photos", "-o", "out.csv", "--encoder", image_head)
    assert "2.png is not an image that can be read" in invoke(*command, code=2)
    assert not (tmp_path / "out.csv").exists()
    invoke(*command, "--skip-bad")
    assert [row["row"] for row in table("out.csv")] == list("02345")
    assert "a/2.png" not in [row["file"] for row in table("out.csv")]


# Heads judged on samples


def by_evaluate(*words, code=0):
    said = invoke("evaluate", "head.safetensors", *words, "--json", "found.json", "--force", code=code)
    return said if code else json.loads(Path("found.json").read_text())["confusion"]


def by_report(data, *words, code=0):
    command = ("report", "total.ghofl", "--head", "head.safetensors", "--data", data, "-o", "page.html", "--force")
    said = invoke(*command, *words, code=code)
    if code:
        return said
    text = Path("page.html").read_text()
    values = text.partition('<script id="data" type="application/json">')[2].partition("</script>")[0]
    return json.loads(values)["judged"]["counts"]


judging = pytest.mark.parametrize("judge", [by_evaluate, by_report])


def counts(labels, predicted, classes):
    return Confusion.of(*(class_numbers(np.array(names), classes) for names in (labels, predicted)), 2).counts.tolist()


@judging
def test_a_head_is_judged_on_texts_of_every_kind_of_table(text_head, judge):
    frame = pandas.DataFrame({"text": TEXTS, "label": [*LABELS[:5], "cat"]})
    frame.to_csv("test.csv", index=False)
    frame.rename(columns={"text": "said", "label": "kind"}).to_parquet("new.parquet")
    predicted = ghofl.Classifier.load("head.safetensors").predict(ghofl.encode(TEXTS, text_head))
    expected = counts(frame["label"], predicted, ("cat", "dog"))
    named = ("--text-column", "said", "--label-column", "kind")
    for words in (["test.csv"], ["new.parquet", *named], [".", "--split", "test"]):
        assert judge(*words, "--encoder", text_head) == expected
    frame.drop(columns="label").to_csv("bare.csv", index=False)
    assert "bare.csv has no labels; put images" in judge("bare.csv", "--encoder", text_head, code=2)
    assert "other weights, preprocessing" in judge("test.csv", "--encoder", text_head, "--pooling", "cls", code=2)


@judging
def test_a_head_is_judged_on_a_folder_of_photos_and_bad_ones_are_left_out(image_head, judge, tmp_path):
    predicted = ghofl.Classifier.load("head.safetensors").predict(ghofl.encode(tmp_path / "photos", image_head))
    assert judge("photos", "--encoder", image_head) == counts(list("aaabbb"), predicted, ("a", "b"))
    (tmp_path / "photos" / "a" / "2.png").write_bytes(b"odd")
    assert "2.png is not an image that can be read" in judge("photos", "--encoder", image_head, code=2)
    kept = np.delete(np.arange(6), 1)
    found = judge("photos", "--encoder", image_head, "--skip-bad")
    assert found == counts(np.array(list("aaabbb"))[kept], predicted[kept], ("a", "b"))


@judging
def test_a_head_is_judged_on_files_that_a_table_names(image_head, judge):
    pandas.DataFrame({"path": ["photos/a/2.png", "photos/b/1.png"], "label": ["a", "b"]}).to_csv(
        "list.csv", index=False
    )
    assert np.sum(judge("list.csv", "--encoder", image_head)) == 2


# Own rows that are samples


def test_rows_are_left_out_of_a_total_and_a_personal_head_is_made_from_texts_with_persons(text_head):
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS, "who": list("aabbcc")})
    frame.to_csv("own.csv", index=False)
    read = ("total.ghofl", "own.csv", "--encoder", text_head, "--person", "who", "--leave-out", "3", "--json", "-")
    assert json.loads(invoke("evaluate", *read, "--heads", "nb").rpartition("}")[0] + "}")["rows"] == 6
    made = json.loads(invoke("personal", *read, "--head", "nb", "-o", "own.safetensors").rpartition("}")[0] + "}")
    assert made["rows"] == 6


def test_own_rows_without_labels_are_refused(image_head):
    command = ("personal", "total.ghofl", "photos/a", "--encoder", image_head, "-o", "own.safetensors", "--head", "nb")
    assert "photos/a has no labels" in invoke(*command, "--new-site", code=2)
