import numpy as np
import pytest

from ghofl.embeddings import class_numbers, load_rows
from ghofl.errors import EmbeddingsError


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
        ({"x": np.array([[{}]]), "y": np.zeros(1)}, "plain arrays"),
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
    assert class_numbers(np.array([1, 0], dtype=np.uint8), ("a", "b")).tolist() == [1, 0]
    assert class_numbers(np.array(["b", "a"]), ("a", "b")).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (np.array([0, 2]), "label .*2.* of row 1 is not in the recipe's 2 classes"),
        (np.array([-1]), "of row 0"),
        (np.array(["a", "c", "c"]), "label .*'c'.* of row 1 .* 2 rows"),
        (np.array([0.0]), "dtype float64"),
    ],
)
def test_unknown_labels_are_named(labels, says):
    with pytest.raises(EmbeddingsError, match=says):
        class_numbers(labels, ("a", "b"))
