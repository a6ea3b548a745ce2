import io
import zipfile

import numpy as np
import pytest

from ghofl import Encoder, Features, Recipe
from ghofl.compute import arrays
from ghofl.errors import EmbeddingsError
from ghofl.outbox import Embedded, count
from ghofl.outbox.site_rows import load_embedded
from ghofl.rows import Rows, class_numbers, classes_of, drop_bad, embeddings, from_arrays, load_rows


def test_rows_are_read_by_split(tmp_path, rng):
    x = rng.normal(size=(5, 3))
    np.savez(tmp_path / "a.npz", x_train=x, y_train=np.arange(5), x_test=x[:2], y_test=np.array(["b", "a"]))
    assert np.array_equal(load_rows(tmp_path / "a.npz").x, x)
    assert load_rows(tmp_path / "a.npz", "test").y.tolist() == ["b", "a"]
    assert load_rows(tmp_path / "a.npz", "test", labelled=False).y is None


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"embeddings": np.zeros((2, 2))}, "holds embeddings; expected an array x"),
        ({"x": np.zeros((2, 2))}, "without its labels y"),
        ({"x": np.zeros(2), "y": np.zeros(2)}, r"shape \(2,\)"),
        ({"x": np.array([["a", "b"]]), "y": np.zeros(1)}, "expected numbers"),
        ({"x": np.zeros((2, 2)), "y": np.zeros(3)}, r"labels have shape \(3,\) for 2 rows"),
        ({"x": np.array([[{}]]), "y": np.zeros(1)}, "array 'x' holds objects of Python"),
    ],
)
def test_a_file_that_does_not_fit_says_how_to_write_one(tmp_path, arrays, says):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(EmbeddingsError, match=says):
        load_rows(tmp_path / "a.npz")


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"not an archive")
    with pytest.raises(EmbeddingsError, match="plain arrays"):
        load_rows(tmp_path / "a.npz")
    np.save(tmp_path / "b.npy", np.zeros((2, 2)))
    with pytest.raises(EmbeddingsError, match="one bare array"):
        load_rows(tmp_path / "b.npy")


def test_a_parquet_file_cut_or_damaged_anywhere_is_told(tmp_path, rng):
    """A page that cannot be unpacked is an OSError of pyarrow's, like a missing file, and is not one."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"x": rng.normal(size=(50, 4)).tolist(), "y": list(range(50))}), path)
    whole = path.read_bytes()
    assert load_rows(path).x.shape == (50, 4)
    for content in (b"", whole[:200], whole[:4] + bytes(200) + whole[204:]):
        path.write_bytes(content)
        with pytest.raises(EmbeddingsError, match="is not a parquet file that can be read"):
            load_rows(path)
    with pytest.raises(FileNotFoundError):
        load_rows(tmp_path / "missing.parquet")


def test_labels_become_class_numbers():
    assert class_numbers(np.array(["b", "a"]), ("a", "b")).tolist() == [1, 0]
    assert class_numbers(np.array(["b", "a"], dtype=object), ("a", "b")).tolist() == [1, 0]
    assert class_numbers(np.array(["b", "a"], dtype=np.dtypes.StringDType()), ("a", "b")).tolist() == [1, 0]


def test_whole_numbers_are_places_where_classes_are_called_so_or_the_caller_says_so():
    """A list of names in another order would make other classes of the same numbers."""
    numbers = np.array([1, 0], dtype=np.uint8)
    assert class_numbers(numbers, ("0", "1", "2")).tolist() == [1, 0]
    assert class_numbers(numbers, ("a", "b"), labels_are_numbers=True).tolist() == [1, 0]
    assert class_numbers(numbers, ("1", "0")).tolist() == [0, 1], "1 is the class called 1"
    for classes in (("a", "b"), ("0", "2"), ("00", "01")):
        with pytest.raises(EmbeddingsError, match="`labels_are_numbers`, or labels_are_numbers = true in the site"):
            class_numbers(numbers, classes)


def test_classes_follow_from_labels():
    assert classes_of(np.array([2, 0])) == ("0", "1", "2")
    assert classes_of(np.array(["b", "a", "b"], dtype=object)) == ("a", "b")
    with pytest.raises(EmbeddingsError, match="dtype float64"):
        classes_of(np.array([0.5]))


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (["a", None], "label None of row 1 is a NoneType"),
        (["a", "b", 3], "label 3 of row 2 is a int"),
        ([float("nan")], "label nan of row 0 is a float"),
        (["a", "c"], "label 'c' of row 1 is not in the recipe's 2 classes"),
    ],
)
def test_objects_that_are_not_class_names_are_named_with_their_row(labels, says):
    """What pandas gives for a column of texts is an array of objects, some of which may be missing."""
    with pytest.raises(EmbeddingsError, match=says):
        class_numbers(np.array(labels, dtype=object), ("a", "b"))


def test_rows_with_numbers_that_are_not_finite_can_be_left_out(rng):
    x = rng.normal(size=(5, 3))
    x[1, 2], x[4, 0] = np.nan, -np.inf
    rows, bad = drop_bad(Rows(x, np.arange(5)))
    assert rows.y.tolist() == [0, 2, 3]
    assert [number for number, _ in bad] == [1, 4]
    whole = Rows(np.zeros((2, 2), dtype=np.uint8))
    assert drop_bad(whole) == (whole, [])


def test_a_bare_array_needs_labels_only_where_they_are_asked_for(tmp_path, rng):
    x = rng.normal(size=(5, 3))
    np.save(tmp_path / "a.npy", x)
    for labelled in (False, None):
        rows = load_rows(tmp_path / "a.npy", labelled=labelled)
        assert np.array_equal(rows.x, x)
        assert rows.y is None
    np.save(tmp_path / "a.labels.npy", np.arange(5))
    assert load_rows(tmp_path / "a.npy").y.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (np.array(["a", "2"]), "label .*2.* of row 1 is not in the recipe's 2 classes"),
        (np.array(["a", "c", "c"]), "label .*'c'.* of row 1 .* 2 rows"),
        (np.array(["a", "d", "e", "c", "d"]), r"'d' of row 1 .*\(a, b\), nor 'e', 'c'; 4 rows have such a label"),
        (np.array(["A"]), "; 1 row has such a label"),
        (np.array([0.0]), "dtype float64"),
    ],
)
def test_unknown_labels_are_named(labels, says):
    with pytest.raises(EmbeddingsError, match=says):
        class_numbers(labels, ("a", "b"))


def test_numbers_outside_the_list_of_classes_are_named():
    with pytest.raises(EmbeddingsError, match="label 2 of row 1 is not in the recipe's 2 classes"):
        class_numbers(np.array([0, 2]), ("a", "b"), labels_are_numbers=True)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
@pytest.mark.parametrize("in_memory", [2**28, 100])
def test_rows_of_columnar_files_are_read_in_batches_into_memory_or_a_mapped_file(
    tmp_path, rng, monkeypatch, suffix, in_memory
):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    monkeypatch.setattr(embeddings, "IN_MEMORY", in_memory)
    monkeypatch.setattr(embeddings, "BATCH", 32)
    x, y, path = rng.normal(size=(100, 4)).astype(np.float16), rng.integers(3, size=100), tmp_path / f"rows{suffix}"
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 4)
    table = pa.table({"embedding": lists, "label": y, "note": ["-"] * 100})
    if suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table, max_chunksize=32)
    rows = load_rows(path)
    assert np.array_equal(rows.x, x)
    assert rows.x.dtype == np.float16
    assert np.array_equal(rows.y, y)
    assert arrays.is_mapped(rows.x) is (in_memory < 2**20)
    recipe = Recipe(tuple("012"), Encoder(dim=4))
    assert load_embedded(recipe, path).y.tolist() == y.tolist()
    counted = count(Features.of(recipe), load_embedded(recipe, path))
    assert counted.moments == count(Features.of(recipe), Embedded(x, y)).moments


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"x": [[1.0, 2.0], [3.0]]}, "lists of one length"),
        ({"x": [[1.0, None], [3.0, 4.0]]}, "lists of one length"),
        ({"x": [1.0, 2.0]}, "lists of one length"),
        ({"z": [[1.0]]}, "has the columns z; expected a column 'embedding'"),
    ],
)
@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_columns_that_are_not_rows_are_told(tmp_path, suffix, columns, says):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table, path = pa.table(columns), tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)
    with pytest.raises(EmbeddingsError, match=says):
        load_rows(path, labelled=None)


def test_an_arrow_file_cut_anywhere_is_told(tmp_path):
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "rows.arrow"
    table = pa.table({"x": [[1.0, 2.0]] * 20, "y": [0] * 20})
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    whole = path.read_bytes()
    for cut in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(EmbeddingsError, match="is not an Arrow file that can be read"):
            load_rows(path)


def test_rows_of_a_mapped_file_are_added_up_a_few_at_a_time(tmp_path, rng):
    """What is left of the file in memory after a block is given back, so that the peak does not grow with the file."""
    x, y = rng.normal(size=(30_000, 16)).astype(np.float32), rng.integers(3, size=30_000)
    np.save(tmp_path / "rows.npy", x)
    np.save(tmp_path / "rows.labels.npy", y)
    recipe = Recipe(tuple("012"), Encoder(dim=16))
    mapped = load_embedded(recipe, tmp_path / "rows.npy")
    assert isinstance(mapped.x, np.memmap)
    assert count(Features.of(recipe), mapped).moments == count(Features.of(recipe), Embedded(x, y)).moments
    assert np.array_equal(mapped.x, x)


@pytest.mark.parametrize(
    ("offsets", "instead"),
    [((0, 8, 16, 24), (0, 800, 1600, 2400)), ((0, 3, 6, 9), (0, 3, 6, 2))],
    ids=["rows", "labels"],
)
def test_an_arrow_file_whose_offsets_point_out_of_it_is_refused_and_not_followed(tmp_path, offsets, instead):
    pa = pytest.importorskip("pyarrow")
    path, table = tmp_path / "rows.arrow", pa.table({"x": [[0.5] * 8] * 3, "y": ["cat", "dog", "cat"]})
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    assert load_rows(path).x.shape == (3, 8)
    right, wrong = (np.array(each, dtype="<i4").tobytes() for each in (offsets, instead))
    assert path.read_bytes().count(right) == 1
    path.write_bytes(path.read_bytes().replace(right, wrong))
    with pytest.raises(EmbeddingsError, match="is not an Arrow file that can be read"):
        load_rows(path)


@pytest.mark.parametrize("claimed", [1, 63])
def test_a_parquet_file_that_says_another_number_of_rows_than_it_holds_is_refused(tmp_path, claimed):
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"x": [[0.5] * 8] * 3}), path, compression="none")
    data = bytearray(path.read_bytes())
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    place = data.index(b"\x16\x06", start) + 1  # the footer's own count: a whole number, 3, in zigzag
    data[place] = 2 * claimed
    path.write_bytes(data)
    with pytest.raises(EmbeddingsError, match=f"says that it has {claimed} rows and holds 3"):
        load_rows(path, labelled=False)


def _announced(shape, descr="<f4"):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": descr, "fortran_order": False, "shape": shape})
    return out.getvalue()


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"x": _announced((2**45, 8))}, "ends before its last row"),
        ({"x": _announced((10**30, 8))}, "is not an .npz of plain arrays"),
        ({"x": b"hello"}, "is not an .npz of plain arrays"),
        (
            {"x": _announced((0, 8)), "y": _announced((2**45,), "<U3")},
            r"labels have shape \(35184372088832,\) for 0 rows",
        ),
        ({"x": _announced((0, 8)), "y": b"hello"}, "is not an .npz of plain arrays"),
    ],
)
def test_an_archive_that_announces_what_it_does_not_hold_is_told(tmp_path, members, says):
    with zipfile.ZipFile(tmp_path / "rows.npz", "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    with pytest.raises(EmbeddingsError, match=says):
        load_rows(tmp_path / "rows.npz", labelled=None)


@pytest.mark.parametrize("size", [0, 2, 7])
def test_an_array_stored_column_by_column_is_read_like_any_other(tmp_path, rng, size):
    x = np.asfortranarray(rng.normal(size=(7, 3)))
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(7))
    assert np.array_equal(load_rows(tmp_path / "a.npz").x, x)
    with embeddings.open_rows(tmp_path / "a.npz", size) as file:
        assert np.array_equal(np.concatenate([some for some, _, _ in file.blocks]), x)


def test_an_archive_larger_than_what_is_read_at_once_is_put_together(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(from_arrays, "MOST_AT_ONCE", 100)
    x, y = rng.normal(size=(50, 3)), np.array(["a", "bc"] * 25)
    np.savez_compressed(tmp_path / "a.npz", x=x, y=y)
    rows = load_rows(tmp_path / "a.npz")
    assert np.array_equal(rows.x, x)
    assert rows.y.tolist() == y.tolist()
