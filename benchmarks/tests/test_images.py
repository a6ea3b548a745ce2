"""Pixels, splits and one message where the library is not installed; and the script that runs rounds on images."""

import json
from io import BytesIO

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ghofl_benchmarks import gpu_multiround  # noqa: E402
from ghofl_benchmarks.one_message import lda_of_moments  # noqa: E402
from ghofl_benchmarks.pixels import PixelsError, dirichlet_rows, look_at, read_pixels  # noqa: E402

from ghofl.heads.lda import fit_lda  # noqa: E402
from ghofl.simulation.partition import dirichlet_by_class  # noqa: E402


def pieces(folder, rows=24):
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        x, y = rng.integers(0, 256, size=(rows, 32, 32, 3), dtype=np.uint8), np.arange(rows, dtype=np.uint8) % 3
        np.save(folder / f"x_{split}_0.npy", x[:10])
        np.save(folder / f"x_{split}_1.npy", x[10:].transpose(0, 3, 1, 2).reshape(rows - 10, -1))
        np.save(folder / f"y_{split}.npy", y)
    return x, y


def test_the_split_is_the_librarys_row_by_row():
    labels = np.random.default_rng(1).integers(0, 7, size=500)
    for alpha in (0.05, 0.5, 1e-9):
        theirs = dirichlet_by_class(labels, 6, alpha, np.random.default_rng(3))
        for own, other in zip(dirichlet_rows(labels, 6, alpha, 3), theirs, strict=True):
            np.testing.assert_array_equal(own, other)


def test_pieces_of_pixels_are_put_together_whatever_way_they_lie(tmp_path):
    x, y = pieces(tmp_path)
    pixels, labels = read_pixels(tmp_path, "test")
    np.testing.assert_array_equal(pixels, x.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(labels, y)
    inputs, targets = look_at(pixels, labels, torch.device("cpu"))(torch.tensor([3]))
    assert inputs.max() <= 1.0
    assert targets.item() == 0


def test_packed_montages_are_read_tile_by_tile(tmp_path):
    image = pytest.importorskip("PIL.Image")
    tiles = np.random.default_rng(0).integers(0, 256, size=(6, 32, 32, 3), dtype=np.uint8)
    montage = tiles.reshape(2, 3, 32, 32, 3).transpose(0, 2, 1, 3, 4).reshape(64, 96, 3)
    content = BytesIO()
    image.fromarray(montage).save(content, "PNG")
    blob = np.frombuffer(content.getvalue(), np.uint8)
    test = np.array([False, False, True, False, True])
    np.savez(
        tmp_path / "a.npz",
        blob=blob,
        lengths=[len(blob)],
        labels=np.arange(5, dtype=np.uint8),
        is_test=test,
        montage=True,
    )
    pixels, labels = read_pixels(tmp_path, "test")
    np.testing.assert_array_equal(pixels, tiles[[2, 4]].transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(labels, [2, 4])


def test_missing_or_odd_pixels_are_refused(tmp_path):
    with pytest.raises(PixelsError, match="is not a folder"):
        read_pixels(tmp_path / "no", "train")
    with pytest.raises(PixelsError, match="has no x_train"):
        read_pixels(tmp_path, "train")
    pieces(tmp_path)
    np.save(tmp_path / "y_train.npy", np.zeros(3))
    with pytest.raises(PixelsError, match="24 images and 3 labels"):
        read_pixels(tmp_path, "train")
    np.save(tmp_path / "x_train_0.npy", np.zeros((2, 32, 32, 3)))
    with pytest.raises(PixelsError, match="pixels are uint8"):
        read_pixels(tmp_path, "train")


def test_lda_of_torch_moments_is_the_librarys():
    from ghofl.gaussians import Gaussians
    from ghofl.moments import Layout, Moments

    rng = np.random.default_rng(0)
    y = np.arange(200, dtype=np.int64) % 4
    x = np.rint(10 * rng.normal(size=(200, 6)) + 20 * np.eye(4, 6)[y]).astype(np.int64)
    theirs = fit_lda(Gaussians.estimate(Moments.of(x, y, Layout(4, 6, ("B",)))))
    weights, bias = lda_of_moments(torch.from_numpy(x).float(), torch.from_numpy(y))
    own = (torch.from_numpy(x).double() @ weights + bias).numpy()
    np.testing.assert_array_equal(own.argmax(axis=1), theirs.predict(x.astype(np.float64)))


@pytest.mark.slow
def test_the_script_leaves_figures_of_every_part_and_goes_on_from_where_it_was(tmp_path):
    pieces(tmp_path)
    small = ["--size", "32", "--clients", "2", "--batch", "8", "--alphas", "0.5", "--rounds", "1", "--more", "2",
             "--distillation-epochs", "1", "--distillation-batch", "4", "--generator-steps", "1", "--student-steps", "1",
             "--local-epochs", "1"]  # fmt: skip
    where = ["--data", str(tmp_path), "--out", str(tmp_path / "out"), *small]
    assert gpu_multiround.main([*where, "--parts", "ours,rounds,distillation", "--methods", "fedavg,scaffold"]) == 0
    assert gpu_multiround.main([*where, "--parts", "more"]) == 0
    found = json.loads((tmp_path / "out" / "multiround.json").read_text())
    assert found["rounds"]["0.5"]["fedavg"]["round"] == [1, 2]
    assert len(found["rounds"]["0.5"]["scaffold"]["accuracy"]) == 1
    assert set(found["distillation"]["0.5"]) == {"ensemble", "DENSE", "Co-Boosting"}
    assert 0.0 <= found["ours"]["lda_of_moments"]["accuracy"] <= 1.0


def test_a_script_without_time_says_what_it_did_not_run(tmp_path):
    pieces(tmp_path)
    where = ["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--size", "32", "--seconds", "0"]
    assert gpu_multiround.main(where) == 0
    found = json.loads((tmp_path / "out" / "multiround.json").read_text())
    assert set(found["not_run"]) == {"ours", "rounds", "distillation", "more"}
    assert gpu_multiround.main(["--data", str(tmp_path / "no"), "--out", str(tmp_path / "out")]) == 2
