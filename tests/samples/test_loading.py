"""Samples of every origin, and what is said about those that cannot be read."""

import io
import json
import shutil
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from ghofl import datasets
from ghofl.datasets import FAMILIES, Columns, Corruption, corruptions
from ghofl.datasets.huggingface import NAMED
from ghofl.datasets.samples import decoded
from ghofl.errors import DatasetError, MissingExtraError, SampleError

ALL = [name for names in FAMILIES.values() for name in names]


def picture(seed, size=(32, 32)):
    """A smooth image with an edge, so that every corruption has something to harm."""
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
    samples = datasets.load(str(photos), "train")
    assert samples.labels.tolist() == ["cat"] * 3 + ["dog"] * 3
    assert [name.split("/")[-2:] for name in samples.names[:2]] == [["cat", "0.png"], ["cat", "1.png"]]
    assert np.array_equal(samples.read(4), picture(11))
    assert samples.classes() == ("cat", "dog")
    assert datasets.load(str(photos / "train")).digest == samples.digest


def test_images_without_folders_have_no_labels(photos):
    samples = datasets.load(str(photos / "test" / "cat"))
    assert samples.labels is None
    assert len(samples) == 2


def test_greyscale_palette_and_transparent_images_become_rgb(tmp_path):
    for mode in ("L", "P", "RGBA", "1", "CMYK"):
        suffix = "jpg" if mode == "CMYK" else "png"
        Image.fromarray(picture(0)).convert(mode).save(tmp_path / f"{mode}.{suffix}")
    assert {image.shape for image in everything(datasets.load(str(tmp_path)))} == {(32, 32, 3)}


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
    for samples in (datasets.load(str(path)), datasets.load(str(tmp_path), "train")):
        assert everything(samples) == [text for text, _ in ROWS]
        assert samples.labels.tolist() == ["cat", "dog", "cat"]
        assert samples.kind == "text"


def test_a_table_may_name_image_files_beside_it(photos):
    lines = ["file,kind", "train/cat/0.png,cat", "train/dog/1.png,dog"]
    (photos / "list.csv").write_text("\n".join(lines))
    samples = datasets.load(str(photos / "list.csv"), columns=Columns(path="file", label="kind"))
    assert samples.kind == "image"
    assert samples.labels.tolist() == ["cat", "dog"]
    assert np.array_equal(samples.read(1), picture(11))


def test_whole_numbers_are_class_numbers_where_the_file_has_types(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": 3}\n{"text": "y", "label": 0}\n')
    assert datasets.load(str(tmp_path / "a.jsonl")).labels.tolist() == [3, 0]


def test_rows_that_are_embeddings_already_are_samples_too(tmp_path, rng):
    import pyarrow as pa
    from pyarrow import parquet
    from safetensors.numpy import save_file

    x, y = rng.normal(size=(4, 3)).astype(np.float32), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.save(tmp_path / "b.npy", x)
    np.save(tmp_path / "b.labels.npy", y)
    save_file({"x": x, "y": y}, tmp_path / "c.safetensors")
    parquet.write_table(pa.table({"vector": x.tolist(), "label": y.tolist()}), tmp_path / "d.parquet")
    for name in ("a.npz", "b.npy", "c.safetensors", "d.parquet"):
        columns = Columns(row="vector") if name == "d.parquet" else None
        samples = datasets.load(str(tmp_path / name), columns=columns)
        assert samples.kind == "row"
        assert np.allclose(everything(samples), x)
        assert samples.labels.tolist() == y.tolist()


def test_the_digest_changes_when_the_samples_do(photos, tmp_path):
    before = datasets.load(str(photos), "train").digest
    assert datasets.load(str(photos), "train").digest == before
    Image.fromarray(picture(99)).save(photos / "train" / "cat" / "0.png")
    assert datasets.load(str(photos), "train").digest != before
    one = datasets.load(str(write_table(tmp_path, ".csv")))
    assert one.digest == datasets.load(str(write_table(tmp_path, ".jsonl"))).digest
    assert one.only(np.array([1, 0])).digest != one.digest


# ---------------------------------------------------------------------------------------------------- hostile files


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is empty"),
        (b"not an image", "cannot identify"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "is not an image that can be read"),
    ],
)
def test_a_broken_image_is_a_bad_sample_that_names_its_file(photos, content, says):
    (photos / "train" / "cat" / "1.png").write_bytes(content)
    samples = datasets.load(str(photos), "train")
    with pytest.raises(SampleError, match=rf"cat/1.png is not an image that can be read.*{says}|{says}"):
        samples.read(1)
    assert samples.read(0).shape == (32, 32, 3)


@pytest.mark.parametrize("cut", [20, 60, 200])
def test_a_truncated_image_is_a_bad_sample(photos, cut):
    path = photos / "train" / "dog" / "2.png"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(SampleError, match="dog/2.png is not an image"):
        datasets.load(str(photos), "train").read(5)


def test_a_decompression_bomb_is_a_bad_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    Image.fromarray(picture(0)).save(tmp_path / "bomb.png")
    with pytest.raises(SampleError, match="bomb.png is not an image that can be read"):
        datasets.load(str(tmp_path)).read(0)


def a_bomb(picture):
    return encoded(picture, "PNG")  # where a hundred pixels are many


def a_palette_with_transparency(picture):
    return encoded(picture.convert("P"), "PNG", transparency=bytes(range(200)))


def a_damaged_exif(picture):
    tags = Image.Exif()
    tags[0x010E] = "a description that is long enough to be kept outside of the directory"
    return encoded(picture, "JPEG", exif=tags.tobytes()[:40])


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


WARNED = {a_bomb: "decompression bomb", a_palette_with_transparency: "Transparency", a_damaged_exif: "([Tt]ag|EXIF)"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("damage", WARNED, ids=lambda damage: damage.__name__)
def test_what_pillow_only_warns_of_is_a_bad_sample_in_every_thread(damage, monkeypatch):
    """Filters belong to the process: threads that set them left an `error` behind, for all code that came after."""
    data = damage(Image.fromarray(picture(0)))
    good = encoded(Image.fromarray(picture(1, (9, 9))), "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 800 if damage is a_bomb else 10_000)
    before = list(warnings.filters)
    started = threading.Barrier(8)

    def read(worker):
        started.wait()
        found = []
        for i in range(25):
            found.append(decoded(good, "good.png").shape)
            with pytest.raises(SampleError, match=rf"bad-{worker}-{i} is not an image .*{WARNED[damage]}"):
                decoded(data, f"bad-{worker}-{i}")
        return found

    with ThreadPoolExecutor(8) as pool:
        assert [shape for found in pool.map(read, range(8)) for shape in found] == [(9, 9, 3)] * 200
    assert list(warnings.filters) == before


def test_pillow_warns_all_others_as_ever(monkeypatch):
    """Its warnings are errors where samples are decoded, and only there."""
    data = encoded(Image.fromarray(picture(0)), "PNG")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 800)
    with pytest.raises(SampleError, match="decompression bomb"):
        decoded(data, "bomb.png")
    with pytest.warns(Image.DecompressionBombWarning):
        Image.open(io.BytesIO(data)).close()


def test_published_corruptions_that_are_not_arrays_are_refused(tmp_path):
    (tmp_path / "fog.npy").write_bytes(b"no array")
    (tmp_path / "labels.npy").write_bytes(b"no array")
    with pytest.raises(DatasetError, match="fog.npy or labels.npy beside it is not an .npy of plain numbers"):
        datasets.load(str(tmp_path), corruption=Corruption("fog", 1))


def test_an_image_that_a_table_names_and_nobody_has_is_a_bad_sample(tmp_path):
    (tmp_path / "t.csv").write_text("path,label\nmissing.png,cat\n")
    with pytest.raises(SampleError, match="missing.png is not there"):
        datasets.load(str(tmp_path / "t.csv")).read(0)


def test_an_empty_text_is_a_bad_sample_that_names_its_row(tmp_path):
    (tmp_path / "t.csv").write_text('text,label\nhello,cat\n"  ",dog\n')
    samples = datasets.load(str(tmp_path / "t.csv"))
    with pytest.raises(SampleError, match=r"t.csv, row 2 is an empty text"):
        samples.read(1)
    (tmp_path / "t.jsonl").write_text('{"text": null, "label": "a"}\n')
    with pytest.raises(SampleError, match="row 1 is None, not a text"):
        datasets.load(str(tmp_path / "t.jsonl")).read(0)


TABLES = [
    ("a.csv", "words,label\nx,y\n", "has the columns words, label; name the one to read by --text-column"),
    ("a.csv", "text,label\nx\n", "line 2 has 1 fields and the header names 2"),
    ("a.csv", "", "a.csv is empty"),
    ("a.csv", "text,label\nx,\n", "row 1 has the label ''; expected a class name or number"),
    ("a.csv", 'text,label\n"x,y\n', "repair the quotes"),
    ("a.csv", "text,label\n", "holds no samples"),
    ("a.jsonl", "{", "record 1 is not JSON"),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}', "record 2 has other fields"),
    ("a.jsonl", '{"text": "a", "label": 1.5}', "row 1 has the label 1.5"),
    ("a.jsonl", '{"text": "a", "label": null}', "row 1 has the label None"),
    ("a.parquet", "nonsense", "is not a parquet file"),
    ("a.docx", "x", "is no kind of file that is known"),
]


@pytest.mark.parametrize(("name", "content", "says"), TABLES, ids=[f"{n} {s[:30]}" for n, _, s in TABLES])
def test_a_table_that_cannot_be_read_says_why_and_what_to_do(tmp_path, name, content, says):
    (tmp_path / name).write_text(content)
    with pytest.raises(DatasetError, match=says):
        datasets.load(str(tmp_path / name))


def test_a_table_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes("text,label\ncafé,x\n".encode("latin-1"))
    with pytest.raises(DatasetError, match="is not UTF-8 text"):
        datasets.load(str(tmp_path / "a.csv"))


@pytest.mark.parametrize("column", ["text", "label"])
def test_a_column_that_is_not_there_is_refused(tmp_path, column):
    (tmp_path / "a.csv").write_text("text,label\nx,y\n")
    with pytest.raises(DatasetError, match="has the columns text, label and not 'other'"):
        datasets.load(str(tmp_path / "a.csv"), columns=Columns(**{column: "other"}))


def test_folders_that_cannot_be_read_say_what_they_hold(photos, tmp_path):
    with pytest.raises(DatasetError, match="holds the splits test, train; choose one by --split"):
        datasets.load(str(photos))
    with pytest.raises(DatasetError, match="has no split 'dev'; it holds test, train"):
        datasets.load(str(photos), "dev")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="holds no image"):
        datasets.load(str(tmp_path / "empty"))
    shutil.copy(photos / "train" / "cat" / "0.png", photos / "train" / "stray.png")
    with pytest.raises(DatasetError, match="holds stray.png beside folders of classes"):
        datasets.load(str(photos), "train")
    with pytest.raises(DatasetError, match="is neither a file or folder here nor one of cifar10, "):
        datasets.load("no-such-thing")
    write_table(tmp_path / "empty", ".csv")
    with pytest.raises(DatasetError, match="holds train.csv; choose one by --split"):
        datasets.load(str(tmp_path / "empty"))
    with pytest.raises(DatasetError, match="is one table and has no split"):
        datasets.load(str(tmp_path / "empty" / "train.csv"), "train")


# ----------------------------------------------------------------------------------------------------- hugging face


def test_a_folder_of_the_datasets_library_is_read(tmp_path, photos):
    import datasets as library

    features = library.Features({"text": library.Value("string"), "label": library.ClassLabel(names=["no", "yes"])})
    texts = library.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    library.DatasetDict({"train": texts}).save_to_disk(tmp_path / "texts")
    samples = datasets.load(str(tmp_path / "texts"), "train")
    assert everything(samples) == ["a", "b"]
    assert samples.labels.tolist() == ["yes", "no"]
    with pytest.raises(DatasetError, match="holds the splits train; choose one"):
        datasets.load(str(tmp_path / "texts"))
    paths = [str(photos / "train" / "cat" / f"{i}.png") for i in range(2)]
    images = library.Dataset.from_dict({"img": paths, "label": [5, 7]}).cast_column("img", library.Image())
    images.save_to_disk(tmp_path / "images")
    samples = datasets.load(str(tmp_path / "images"))
    assert samples.kind == "image"
    assert np.array_equal(samples.read(1), picture(1))
    assert samples.labels.tolist() == [5, 7]
    with pytest.raises(DatasetError, match="has the columns img, label; name those to read"):
        datasets.load(str(tmp_path / "images"), columns=Columns(text="words"))


def test_the_paper_s_nine_are_known_and_each_asks_the_hub_for_its_own_split(monkeypatch):
    import datasets as library

    assert len(datasets.NAMES) == 9
    asked = []

    def load_dataset(repository, configuration, split):
        asked.append((repository, configuration, split))
        source = next(s for s in NAMED.values() if s.repository == repository)
        column = [Image.fromarray(picture(0))] if source.sample in ("img", "image") else ["a text"]
        return library.Dataset.from_dict({source.sample: column, source.label: [0]})

    monkeypatch.setattr(library, "load_dataset", load_dataset)
    for name in NAMED:
        assert len(datasets.load(name, "test")) == 1
    assert ("stanfordnlp/sst2", None, "validation") in asked
    assert ("clinc/clinc_oos", "plus", "test") in asked
    assert len({repository for repository, _, _ in asked}) == 8


@pytest.mark.parametrize("name", ["cifar10", "banking77"])
def test_a_dataset_that_cannot_be_reached_is_one_clear_line(name, monkeypatch, tmp_path, capfd):
    import datasets as library

    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DatasetError) as caught:
        datasets.load(name, "test")
    assert "\n" not in str(caught.value)
    assert f"the dataset '{name}' (" in str(caught.value)
    assert "Connect once, or give a folder or file of your own with --data." in str(caught.value)
    assert "Retrying" not in capfd.readouterr().err


def test_a_missing_library_is_told_with_the_line_that_installs_it(monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"needs datasets.*: pip install 'ghofl\[datasets\]'"):
        datasets.load("cifar10")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(MissingExtraError, match="needs pyarrow"):
        datasets.load(str(tmp_path / "a.parquet"))


# ------------------------------------------------------------------------------------------------------ corruptions


def test_there_are_nineteen_corruptions_in_four_families():
    assert [len(FAMILIES[f]) for f in ("noise", "blur", "weather", "digital")] == [4, 5, 5, 5]
    assert len(set(ALL)) == 19


@pytest.mark.parametrize("name", ALL)
def test_a_corruption_harms_more_as_it_grows_and_depends_on_its_generator_alone(name):
    def damage(severity):
        out = [corruptions.apply(name, picture(i), severity, np.random.default_rng(i)) for i in range(6)]
        assert {o.shape for o in out} == {(32, 32, 3)}
        assert {o.dtype for o in out} == {np.dtype(np.uint8)}
        return np.mean([np.abs(o.astype(float) - picture(i)).mean() for i, o in enumerate(out)])

    assert 0 < damage(1) < damage(5) or name == "saturate"  # which takes colour away first and adds it later
    assert damage(3) == damage(3)


@pytest.mark.parametrize("name", ["glass_blur", "snow", "pixelate", "elastic_transform", "fog"])
@pytest.mark.parametrize("size", [(64, 48), (1, 1), (7, 33)])
def test_a_corruption_takes_images_of_any_size(name, size):
    out = corruptions.apply(name, picture(0, size), 5, np.random.default_rng(0))
    assert out.shape == (*size, 3)


def test_corrupted_samples_do_not_depend_on_what_is_read_before_them(photos):
    samples = datasets.load(str(photos), "train", corruption=Corruption("snow", 2))
    last = samples.read(5)
    everything(samples)
    assert np.array_equal(samples.read(5), last)
    assert not np.array_equal(last, datasets.load(str(photos), "train").read(5))
    others = [Corruption("snow", 3), Corruption("fog", 2), Corruption("snow", 2, seed=1)]
    digests = {datasets.load(str(photos), "train", corruption=c).digest for c in others}
    assert len(digests | {samples.digest}) == 4


def test_published_arrays_are_read_by_severity(tmp_path):
    images = np.stack([picture(i) for i in range(10)])  # two images, five severities
    np.save(tmp_path / "fog.npy", images)
    np.save(tmp_path / "labels.npy", np.tile([3, 4], 5))
    samples = datasets.load(str(tmp_path), corruption=Corruption("fog", 4))
    assert np.array_equal(everything(samples), images[6:8])
    assert samples.labels.tolist() == [3, 4]
    with pytest.raises(DatasetError, match="say which with --corruption"):
        datasets.load(str(tmp_path))
    with pytest.raises(DatasetError, match=r"has no snow.npy"):
        datasets.load(str(tmp_path), corruption=Corruption("snow"))


def test_statistics_never_come_from_corrupted_test_images_by_accident(monkeypatch):
    with pytest.raises(DatasetError, match="come from the clean cifar100, never from these"):
        datasets.load("cifar100-c")


def test_corruptions_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="corruption 'rain' is unknown; known are noise: gaussian_noise"):
        Corruption("rain")
    with pytest.raises(DatasetError, match="severity is 6"):
        Corruption("fog", 6)
    with pytest.raises(DatasetError, match="is for images and the data holds texts"):
        datasets.load(str(write_table(tmp_path, ".csv")), corruption=Corruption("fog"))
