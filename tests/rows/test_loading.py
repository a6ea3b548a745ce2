"""Samples of every origin, and what is said about those that cannot be read."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from ghofl.errors import DatasetError, MissingExtraError, SampleError
from ghofl.rows import Columns, load_samples


def picture(seed, size=(32, 32)):
    """A smooth image with an edge, so that no two seeds look alike."""
    rng = np.random.default_rng(seed)
    rows, columns = np.indices(size) / max(size)
    x = np.stack([rows, columns, rows * columns], axis=-1) * rng.uniform(60, 200, size=3) + rng.uniform(0, 50, size=3)
    x[size[0] // 3 : size[0] // 2] += 60
    return np.clip(x, 0, 255).astype(np.uint8)


@pytest.fixture
def photos(tmp_path):
    """FOLDER/SPLIT/CLASS/NAME.png"""
    for split, count in (("train", 3), ("test", 2)):
        for c, name in enumerate(("cat", "dog")):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(picture(10 * c + i)).save(folder / f"{i}.png")
    return tmp_path / "photos"


def everything(samples):
    return [samples.read(i) for i in range(len(samples))]


# ------------------------------------------------------------------------------------------------------- own files


def test_an_image_folder_is_read_in_the_order_of_names_with_its_folders_as_labels(photos):
    samples = load_samples(str(photos), "train")
    assert samples.labels.tolist() == ["cat"] * 3 + ["dog"] * 3
    assert [name.split("/")[-2:] for name in samples.names[:2]] == [["cat", "0.png"], ["cat", "1.png"]]
    assert np.array_equal(samples.read(4), picture(11))
    assert samples.classes() == ("cat", "dog")
    assert load_samples(str(photos / "train")).digest() == samples.digest()


def test_images_without_folders_have_no_labels(photos):
    samples = load_samples(str(photos / "test" / "cat"))
    assert samples.labels is None
    assert len(samples) == 2


ROWS = [("the cat, sat", "cat"), ('a "dog"', "dog"), ("two\nlines", "cat")]


def write_table(folder, suffix):
    import csv

    import pyarrow as pa
    from pyarrow import parquet

    path = folder / f"train{suffix}"
    texts, labels = [list(column) for column in zip(*ROWS, strict=True)]
    if suffix in (".csv", ".tsv"):
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter="," if suffix == ".csv" else "\t").writerows([("text", "label"), *ROWS])
    elif suffix == ".jsonl":
        path.write_text("\n".join(json.dumps({"text": t, "label": c}) for t, c in ROWS), encoding="utf-8")
    else:
        parquet.write_table(pa.table({"text": texts, "label": labels}), path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_kind_of_table_gives_the_same_samples(tmp_path, suffix):
    path = write_table(tmp_path, suffix)
    for samples in (load_samples(str(path)), load_samples(str(tmp_path), "train")):
        assert everything(samples) == [text for text, _ in ROWS]
        assert samples.labels.tolist() == ["cat", "dog", "cat"]
        assert samples.kind == "text"


def test_a_table_may_name_image_files_beside_it(photos):
    lines = ["file,kind", "train/cat/0.png,cat", "train/dog/1.png,dog"]
    (photos / "list.csv").write_text("\n".join(lines))
    samples = load_samples(str(photos / "list.csv"), columns=Columns(path="file", label="kind"))
    assert samples.kind == "image"
    assert samples.labels.tolist() == ["cat", "dog"]
    assert np.array_equal(samples.read(1), picture(11))


def test_whole_numbers_are_class_numbers_where_the_file_has_types(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": 3}\n{"text": "y", "label": 0}\n')
    assert load_samples(str(tmp_path / "a.jsonl")).labels.tolist() == [3, 0]


def test_rows_that_are_embeddings_already_are_samples_too(tmp_path, rng):
    from safetensors.numpy import save_file

    x, y = rng.normal(size=(4, 3)).astype(np.float32), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.save(tmp_path / "b.npy", x)
    np.save(tmp_path / "b.labels.npy", y)
    save_file({"x": x, "y": y}, tmp_path / "c.safetensors")
    for name in ("a.npz", "b.npy", "c.safetensors"):
        samples = load_samples(str(tmp_path / name))
        assert samples.kind == "row"
        assert np.allclose(everything(samples), x)
        assert samples.labels.tolist() == y.tolist()


def test_the_digest_changes_when_the_samples_do(photos, tmp_path):
    before = load_samples(str(photos), "train").digest()
    assert load_samples(str(photos), "train").digest() == before
    Image.fromarray(picture(99)).save(photos / "train" / "cat" / "0.png")
    assert load_samples(str(photos), "train").digest() != before
    one = load_samples(str(write_table(tmp_path, ".csv")))
    assert one.digest() == load_samples(str(write_table(tmp_path, ".jsonl"))).digest()
    assert one.only(np.array([1, 0])).digest() != one.digest()


# ---------------------------------------------------------------------------------------------------- hostile files


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is empty"),
        (b"not an image", "it is of no known format"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "is not an image that can be read"),
    ],
)
def test_a_broken_image_is_a_bad_sample_that_names_its_file(photos, content, says):
    (photos / "train" / "cat" / "1.png").write_bytes(content)
    samples = load_samples(str(photos), "train")
    with pytest.raises(SampleError, match=rf"cat/1.png is not an image that can be read.*{says}|{says}"):
        samples.read(1)
    assert samples.read(0).shape == (32, 32, 3)


def test_an_image_that_a_table_names_and_nobody_has_is_a_bad_sample(tmp_path):
    (tmp_path / "t.csv").write_text("path,label\nmissing.png,cat\n")
    with pytest.raises(SampleError, match="missing.png does not exist"):
        load_samples(str(tmp_path / "t.csv")).read(0)


def test_an_empty_text_is_a_bad_sample_that_names_its_row(tmp_path):
    (tmp_path / "t.csv").write_text('text,label\nhello,cat\n"  ",dog\n')
    samples = load_samples(str(tmp_path / "t.csv"))
    with pytest.raises(SampleError, match=r"t.csv, row 2 is an empty text"):
        samples.read(1)
    (tmp_path / "t.jsonl").write_text('{"text": null, "label": "a"}\n')
    with pytest.raises(SampleError, match="row 1 is None, which is not a text"):
        load_samples(str(tmp_path / "t.jsonl")).read(0)


TABLES = [
    ("a.csv", "words,label\nx,y\n", "has the columns words, label; name the one to read with --text-column"),
    ("a.csv", "text,label\nx\n", "line 2 has 1 fields and the header names 2"),
    ("a.csv", "", "a.csv is empty"),
    ("a.csv", 'text,label\n"x,y\n', "repair the quotes"),
    ("a.csv", "text,label\n", "holds no samples"),
    ("a.jsonl", "{", "record 1 is not JSON"),
    ("a.jsonl", '{"text": ' + "[" * 100_000, "record 1 is not JSON that can be read: maximum recursion"),
    (
        "a.jsonl",
        '{"text": "a", "label": ' + "9" * 5000 + "}",
        "record 1 is not JSON that can be read: Exceeds the limit",
    ),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}', "record 2 has other fields"),
    ("a.jsonl", '{"text": "a", "label": 1.5}', "row 1 has the label 1.5"),
    ("a.parquet", "nonsense", "is not a parquet file"),
    ("a.csv", "text,label\nit cost 3,50,x\n", "line 2 has 3 fields .* hold the delimiter, such as decimal commas"),
    ("a.JPG", "x", "a.JPG is one image; give the folder that it is in"),
    ("a.docx", "x", "a.docx has no known suffix; give one of .csv"),
]


@pytest.mark.parametrize(("name", "content", "says"), TABLES, ids=[f"{n} {s[:30]}" for n, _, s in TABLES])
def test_a_table_that_cannot_be_read_says_why_and_what_to_do(tmp_path, name, content, says):
    (tmp_path / name).write_text(content)
    with pytest.raises(DatasetError, match=says):
        load_samples(str(tmp_path / name))


def test_a_table_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes("text,label\ncafé,x\n".encode("latin-1"))
    with pytest.raises(DatasetError, match="is not UTF-8 text"):
        load_samples(str(tmp_path / "a.csv"))


@pytest.mark.parametrize("column", ["text", "label"])
def test_a_column_that_is_not_there_is_refused(tmp_path, column):
    (tmp_path / "a.csv").write_text("text,label\nx,y\n")
    with pytest.raises(DatasetError, match="has the columns text, label but not 'other'"):
        load_samples(str(tmp_path / "a.csv"), columns=Columns(**{column: "other"}))


def test_folders_that_cannot_be_read_say_what_they_hold(photos, tmp_path):
    with pytest.raises(DatasetError, match="holds the splits test, train; choose one with --split"):
        load_samples(str(photos))
    with pytest.raises(DatasetError, match="has no split 'dev'; it holds test, train"):
        load_samples(str(photos), "dev")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="holds no image"):
        load_samples(str(tmp_path / "empty"))
    shutil.copy(photos / "train" / "cat" / "0.png", photos / "train" / "stray.png")
    with pytest.raises(DatasetError, match="holds stray.png beside folders of classes"):
        load_samples(str(photos), "train")
    with pytest.raises(DatasetError, match="'no-such-thing' is not a file or folder here; check the path"):
        load_samples("no-such-thing")
    write_table(tmp_path / "empty", ".csv")
    with pytest.raises(DatasetError, match="holds train.csv; choose one with --split"):
        load_samples(str(tmp_path / "empty"))
    with pytest.raises(DatasetError, match="is one table and has no split"):
        load_samples(str(tmp_path / "empty" / "train.csv"), "train")


# ----------------------------------------------------------------------------------------------------- hugging face


def test_a_folder_of_the_datasets_library_is_read(tmp_path, photos):
    import datasets as library

    features = library.Features({"text": library.Value("string"), "label": library.ClassLabel(names=["no", "yes"])})
    texts = library.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    library.DatasetDict({"train": texts}).save_to_disk(tmp_path / "texts")
    samples = load_samples(str(tmp_path / "texts"), "train")
    assert everything(samples) == ["a", "b"]
    assert samples.labels.tolist() == ["yes", "no"]
    with pytest.raises(DatasetError, match="holds the splits train; choose one"):
        load_samples(str(tmp_path / "texts"))
    paths = [str(photos / "train" / "cat" / f"{i}.png") for i in range(2)]
    images = library.Dataset.from_dict({"img": paths, "label": [5, 7]}).cast_column("img", library.Image())
    images.save_to_disk(tmp_path / "images")
    samples = load_samples(str(tmp_path / "images"))
    assert samples.kind == "image"
    assert np.array_equal(samples.read(1), picture(1))
    assert samples.labels.tolist() == [5, 7]
    with pytest.raises(DatasetError, match="has the columns img, label; name those to read"):
        load_samples(str(tmp_path / "images"), columns=Columns(text="words"))


def test_any_set_of_the_hub_is_asked_for_by_its_name_split_and_configuration(monkeypatch):
    import datasets as library

    asked = []

    def load_dataset(repository, configuration, split):
        asked.append((repository, configuration, split))
        return library.Dataset.from_dict({"utterance": ["a text", "another"], "mood": [1, 0]})

    monkeypatch.setattr(library, "load_dataset", load_dataset)
    samples = load_samples("hf:someone/moods", columns=Columns(label="mood"))
    assert everything(samples) == ["a text", "another"]
    assert samples.labels.tolist() == [1, 0]
    assert load_samples("hf:someone/moods:short", "test").labels is None
    assert asked == [("someone/moods", None, "train"), ("someone/moods", "short", "test")]
    for columns in (Columns(text="words"), Columns(label="words")):
        with pytest.raises(DatasetError, match="hf:someone/moods has the columns utterance, mood; name those to read"):
            load_samples("hf:someone/moods", columns=columns)


def test_the_hub_is_asked_for_nothing_but_what_is_written_as_its_own(monkeypatch):
    """A path with a typing error would tell the hub how a site names its files."""
    import datasets as library

    monkeypatch.setattr(library, "load_dataset", lambda *_, **__: pytest.fail("the hub was asked"))
    for name in ("cifar10", "patients/2024", "./photos"):
        with pytest.raises(DatasetError, match=r"is not a file or folder here; .* write hf:OWNER/NAME"):
            load_samples(name)


@pytest.mark.parametrize("name", ["hf:uoft-cs/cifar10", "hf:legacy-datasets/banking77"])
def test_a_dataset_that_cannot_be_reached_is_one_clear_line(name, monkeypatch, tmp_path, capfd):
    import datasets as library

    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DatasetError) as caught:
        load_samples(name, "test")
    assert "\n" not in str(caught.value)
    assert f"the data set '{name}' could not be loaded from the Hugging Face hub: " in str(caught.value)
    assert "Connect once, or give your own folder or file with --data." in str(caught.value)
    assert "Retrying" not in capfd.readouterr().err


def test_a_missing_library_is_told_with_the_line_that_installs_it(monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"needs datasets.*: pip install 'ghofl\[datasets\]'"):
        load_samples("hf:uoft-cs/cifar10")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(MissingExtraError, match="needs pyarrow"):
        load_samples(str(tmp_path / "a.parquet"))
