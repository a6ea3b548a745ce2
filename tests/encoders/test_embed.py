"""From samples to a file of embeddings: to the byte after a kill, cached, in order, and never past a bad sample."""

import io
import json
import os
import signal
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image

from deadlines import Process, run
from ghofl.encoders import Precomputed, Runtime
from ghofl.encoders.embed import batch_size_for, embed
from ghofl.encoders.journal import Journal
from ghofl.errors import DatasetError, EmbeddingsError, EncoderError, SampleError
from ghofl.features import Features
from ghofl.outbox import Embedded, Encodable, count
from ghofl.recipe import Encoder, Grid, Recipe
from ghofl.rows import base, images, load_rows, load_samples


@dataclass(frozen=True)
class Counting:
    """An encoder of texts whose rows are lengths; it counts its batches and may be told to fail at one."""

    calls: list
    fails_at: int = -1
    name: str = "counting"
    kind: str = "text"
    dim: int = 2
    fingerprint: str = "f" * 64
    sample_bytes: int = 8

    def encode(self, batches):
        for batch in batches:
            if len(self.calls) == self.fails_at:
                raise KeyboardInterrupt
            self.calls.append(list(batch))
            yield np.array([[len(text), 1.0] for text in batch], dtype=np.float32).reshape(-1, 2)


def texts(count=50, bad=()):
    values = ["" if i in bad else "x" * (i + 1) for i in range(count)]
    return base.of_texts(values, np.array([f"c{i % 3}" for i in range(count)]), [f"row {i}" for i in range(count)])


def test_rows_are_in_the_order_of_the_samples_with_their_labels(tmp_path):
    done = embed(texts(), Counting([]), tmp_path, batch_size=8)
    assert done.rows.x[:, 0].tolist() == list(range(1, 51))
    assert done.rows.y.tolist() == [f"c{i % 3}" for i in range(50)]
    assert done.rows.encoder == Encoder(dim=2, name="counting", fingerprint="f" * 64)


@pytest.mark.parametrize("stop", range(7))
def test_a_run_that_stopped_goes_on_without_redoing_or_losing_a_row(tmp_path, stop):
    whole = embed(texts(), Counting([]), tmp_path / "other", batch_size=8)
    first, second = Counting([], fails_at=stop), Counting([])
    with pytest.raises(KeyboardInterrupt):
        embed(texts(), first, tmp_path, batch_size=8)
    done = embed(texts(), second, tmp_path, batch_size=8)
    assert np.asarray(done.rows.x).tobytes() == np.asarray(whole.rows.x).tobytes()
    assert len(first.calls) == stop
    assert first.calls + second.calls == [[texts().read(i) for i in range(s, min(s + 8, 50))] for s in range(0, 50, 8)]
    assert done.resumed == 8 * stop


def test_a_finished_run_is_read_from_the_cache_and_another_encoder_s_is_not(tmp_path):
    embed(texts(), Counting([]), tmp_path, batch_size=8)
    again = Counting([])
    assert embed(texts(), again, tmp_path, batch_size=8).resumed == 50
    assert again.calls == []
    for other in (Counting([], fingerprint="e" * 64), Counting([], name="the same weights elsewhere")):
        embed(texts(), other, tmp_path, batch_size=8)
        assert len(other.calls) == 7
    other = Counting([])
    embed(texts(51), other, tmp_path, batch_size=8)
    assert len(other.calls) == 7
    embed(texts(), again, tmp_path, batch_size=8, runtime=Runtime(precision="bf16"))
    assert len(again.calls) == 7


def test_the_cache_is_its_owner_s_whatever_the_umask_and_whatever_it_was_before(tmp_path):
    previous = os.umask(0)
    try:
        embed(texts(), Counting([]), tmp_path / "cache" / "embeddings", batch_size=8)
    finally:
        os.umask(previous)
    made = list((tmp_path / "cache").rglob("*"))
    assert {path.name for path in made if path.is_file()} == {"rows.f32", "batches.jsonl", "plan.json"}
    for path in (tmp_path / "cache", *made):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    for path in made:
        path.chmod(0o755 if path.is_dir() else 0o644)  # as an earlier version left it
    embed(texts(), Counting([]), tmp_path / "cache" / "embeddings", batch_size=8)
    (rows,) = (tmp_path / "cache").rglob("rows.f32")
    assert stat.S_IMODE(rows.stat().st_mode) == 0o600
    assert stat.S_IMODE(rows.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("cut", [1, 3, 30, 65])
@pytest.mark.parametrize("name", ["rows.f32", "batches.jsonl"])
def test_a_torn_file_is_cut_to_its_last_whole_batch(tmp_path, name, cut):
    whole = embed(texts(), Counting([]), tmp_path, batch_size=8)
    expected = np.asarray(whole.rows.x).copy()
    (file,) = tmp_path.rglob(name)
    os.truncate(file, file.stat().st_size - cut)
    again = Counting([])
    done = embed(texts(), again, tmp_path, batch_size=8)
    assert np.array_equal(done.rows.x, expected)
    assert 1 <= len(again.calls) <= 6


def test_a_changed_byte_in_the_cache_is_found_and_everything_after_it_made_again(tmp_path):
    expected = np.asarray(embed(texts(), Counting([]), tmp_path, batch_size=8).rows.x).copy()
    (file,) = tmp_path.rglob("rows.f32")
    data = bytearray(file.read_bytes())
    data[2 * 4 * 8 * 3 + 5] ^= 1  # in the fourth batch
    file.write_bytes(data)
    again = Counting([])
    assert np.array_equal(embed(texts(), again, tmp_path, batch_size=8).rows.x, expected)
    assert len(again.calls) == 4


@pytest.mark.parametrize(
    "line", [b"\n", b"null\n", b"{}\n", b'{"rows": -1, "crc32": 0, "bad": []}\n', b"\xff\n", b"[1]\n"]
)
def test_nonsense_in_the_journal_is_forgotten(tmp_path, line):
    with Journal(tmp_path, {"batch_size": 1}, dim=2) as journal:
        journal.append(np.ones((3, 2), np.float32), [])
    with open(tmp_path / "batches.jsonl", "ab") as file:
        file.write(line)
    with Journal(tmp_path, {"batch_size": 1}, dim=2) as journal:
        assert len(journal.batches) == 1
        journal.append(np.zeros((1, 2), np.float32), [(3, "gone")])
    with Journal(tmp_path, {"batch_size": 1}, dim=2) as journal:
        assert journal.rows().tolist() == [[1, 1]] * 3 + [[0, 0]]
        assert journal.bad == [(3, "gone")]


def test_two_processes_do_not_write_into_one_folder(tmp_path):
    with (
        Journal(tmp_path, {}, dim=2),
        pytest.raises(EmbeddingsError, match="another process is at work in .*; wait for it, or choose another"),
    ):
        Journal(tmp_path, {}, dim=2)


def test_the_batch_size_a_run_was_begun_with_is_kept(tmp_path, monkeypatch):
    """A machine with more memory, or another version, must not tear a half-finished file apart."""
    monkeypatch.setattr("ghofl.encoders.embed.batch_size_for", lambda *_: 8)
    with pytest.raises(KeyboardInterrupt):
        embed(texts(), Counting([], fails_at=2), tmp_path)
    monkeypatch.setattr("ghofl.encoders.embed.batch_size_for", lambda *_: 16)
    second = Counting([])
    embed(texts(), second, tmp_path)
    assert [len(batch) for batch in second.calls] == [8, 8, 8, 8, 2]


def test_bad_samples_stop_the_run_unless_they_may_be_left_out(tmp_path):
    with pytest.raises(SampleError, match="row 20 is an empty text. 1 more .* leave such samples out with --skip-bad"):
        embed(texts(bad=(20, 21, 40)), Counting([]), tmp_path, batch_size=8)
    second = Counting([])
    done = embed(texts(bad=(20, 21, 40)), second, tmp_path, batch_size=8, skip_bad=True)
    assert done.bad == [
        (20, "row 20 is an empty text."),
        (21, "row 21 is an empty text."),
        (40, "row 40 is an empty text."),
    ]
    assert done.resumed == 16
    assert done.rows.x[:, 0].tolist() == [i + 1 for i in range(50) if i not in (20, 21, 40)]
    assert done.rows.y.tolist() == [f"c{i % 3}" for i in range(50) if i not in (20, 21, 40)]
    with pytest.raises(SampleError, match="row 20"):
        embed(texts(bad=(20, 21, 40)), Counting([]), tmp_path, batch_size=8)


def test_an_encoder_that_gives_no_numbers_is_told(tmp_path):
    class Broken(Counting):
        def encode(self, batches):
            for batch in batches:
                yield np.full((len(batch), 2), np.nan, np.float32)

    with pytest.raises(EmbeddingsError, match="counting gave numbers that are not finite"):
        embed(texts(), Broken([]), tmp_path)


def test_samples_of_another_kind_are_refused(tmp_path):
    with pytest.raises(EncoderError, match="precomputed:x takes rows of embeddings and the data holds texts"):
        embed(texts(), Precomputed.of("x", 2), tmp_path)


def test_moments_of_samples_are_those_of_their_embeddings(tmp_path):
    recipe = Recipe(classes=("c0", "c1", "c2"), encoder=Encoder(dim=2), grid=Grid(scale=1.0), statistics=("S",))
    rows = embed(texts(bad=(5,)), Counting([]), tmp_path, batch_size=8, skip_bad=True).rows
    y = np.array([int(label[1]) for label in rows.y])
    expected = count(Features.of(recipe), Embedded(np.asarray(rows.x), y)).moments
    for size in (1, 7, 64):
        samples = Encodable(texts(bad=(5,)), Counting([]), batch_size=size, skip_bad=True)
        found = count(Features.of(recipe), samples)
        assert found.moments == expected
        assert found.bad == ((5, "row 5 is an empty text."),)
    unlabelled = base.of_texts(["a"], None, ["a"])
    with pytest.raises(DatasetError, match="the data has no labels"):
        count(Features.of(recipe), Encodable(unlabelled, Counting([])))
    other = base.of_texts(["a"], np.array(["c9"]), ["a"])
    with pytest.raises(EmbeddingsError, match="label 'c9' of row 0 is not in the recipe's 3 classes"):
        count(Features.of(recipe), Encodable(other, Counting([])))


def test_batches_fit_into_memory_and_two_runs_choose_alike(monkeypatch):
    monkeypatch.setattr("ghofl.encoders.embed.cores", lambda: 2)

    def chosen(sample_bytes, memory, device="cpu"):
        monkeypatch.setattr("ghofl.encoders.embed._memory", lambda _: memory)
        return batch_size_for(Counting([], sample_bytes=sample_bytes, kind="image"), device)

    assert chosen(2**26, 2**34) == 32
    assert chosen(2**26, 2**31) == 4
    assert chosen(2**40, 2**31) == 1
    assert chosen(2**26, 2**37, "cuda") == 256
    assert chosen(1, 2**31) == 32
    monkeypatch.setattr("ghofl.encoders.embed.cores", lambda: 64)
    assert chosen(1, 2**31) == 512, "every core has images"


# --------------------------------------------------------------------------------------------------- real processes


def make_photos(folder, count):
    rng = np.random.default_rng(0)
    for i in range(count):
        (folder / f"class {i % 4}").mkdir(exist_ok=True)
        Image.fromarray(rng.integers(256, size=(32, 32, 3)).astype(np.uint8)).save(
            folder / f"class {i % 4}" / f"{i}.png"
        )
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return make_photos(tmp_path_factory.mktemp("photos"), 64)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A network quick enough to embed and slow enough to be killed in the middle."""
    import torch
    from safetensors.torch import save_file
    from torchvision import models

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_file(models.mobilenet_v2(weights=None).state_dict(), path)
    return path


IN_TWOS = "from ghofl import cli; from ghofl.encoders import embed; embed.batch_size_for = lambda *_: 2; cli.main()"


def command(photos, network, output, *more):
    """`ghofl embed` with batches of two."""
    return [
        sys.executable, "-c", IN_TWOS, "embed", "--encoder", "torchvision:mobilenet_v2", "--weights", str(network),
        "--data", str(photos), "--views", "quick", "-o", str(output), *more,
    ]  # fmt: skip


@pytest.mark.slow
def test_after_kill_nine_the_file_is_the_same_to_the_byte(photos, network, tmp_path, monkeypatch):
    run(*command(photos, network, tmp_path / "whole.npz"))
    killed, cache = 0, tmp_path / "killed"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for wanted in (3, 9, 20):

        def are_embedded(wanted=wanted):
            return any(file.read_bytes().count(b"\n") >= wanted for file in cache.rglob("batches.jsonl"))

        with Process(*command(photos, network, tmp_path / "killed.npz")) as running:
            running.until(are_embedded, f"{wanted} batches are embedded")
            running.send(signal.SIGKILL)
            killed += running.finish() == -signal.SIGKILL
        assert not (tmp_path / "killed.npz").exists()
    assert killed == 3
    done = run(*command(photos, network, tmp_path / "killed.npz", "--json", "-"))
    assert json.loads(done.stdout)["resumed"] >= 40
    assert (tmp_path / "killed.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_the_command_says_what_is_wrong_and_leaves_no_file(tmp_path, monkeypatch, capsys):
    from test_cli import ghofl

    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", x=np.ones((3, 2)), y=np.array(["a", "b", "a"]))
    ghofl("embed", "--encoder", "precomputed:mine", "--data", "rows.npz", "-o", "out.npz")
    assert load_rows("out.npz").encoder.name == "precomputed:mine"
    ghofl("embed", "--encoder", "precomputed:", "--data", "out.npz", "-o", "again.npz")
    assert load_rows("again.npz").encoder == load_rows("out.npz").encoder
    (tmp_path / "t.csv").write_text('text,label\nhello,a\n"",b\n')
    before = sorted(os.listdir())
    for arguments, says in (
        (["--encoder", "nonsense:x", "--data", "t.csv"], "encoder 'nonsense:x' is unknown"),
        (["--encoder", "precomputed:x", "--data", "t.csv"], "takes rows as they are"),
        (["--encoder", "precomputed:x", "--data", "missing.csv"], "'missing.csv' is not a file or folder here"),
        (["--encoder", "precomputed:x", "--data", "rows.npz", "--precision", "int4"], "precision is 'int4'"),
    ):
        ghofl("embed", *arguments, "-o", "bad.npz", code=2)
        assert says in " ".join(capsys.readouterr().err.split())
    assert sorted(os.listdir()) == before


def test_bad_samples_are_listed_by_the_command(tmp_path, monkeypatch, capsys):
    from test_cli import ghofl

    monkeypatch.chdir(tmp_path)
    x = np.ones((4, 2))
    x[2] = np.inf
    np.savez("rows.npz", x=x, y=np.array(["a", "b", "a", "b"]))
    arguments = ["embed", "--encoder", "precomputed:mine", "--data", "rows.npz", "-o", "out.npz"]
    ghofl(*arguments, code=2)
    assert "rows.npz row 2 holds a number that is not finite. Repair" in " ".join(capsys.readouterr().err.split())
    said = ghofl(*arguments, "--skip-bad", "--json", "out.json")
    result = json.loads((tmp_path / "out.json").read_text())
    assert [entry["sample"] for entry in result["bad"]] == ["rows.npz row 2"]
    assert result["rows"] == {"": 3}
    assert "Left out: rows.npz row 2" in " ".join((said + capsys.readouterr().err).split())


def test_several_splits_go_into_one_file(tmp_path, monkeypatch):
    from test_cli import ghofl

    monkeypatch.chdir(tmp_path)
    np.savez(
        "rows.npz", x_train=np.ones((3, 2)), y_train=np.arange(3) % 2, x_test=np.zeros((2, 2)), y_test=np.arange(2)
    )
    ghofl(
        "embed", "--encoder", "precomputed:mine", "--data", "rows.npz", "--split", "train,test", "-o", "out.npz",
    )  # fmt: skip
    assert load_rows("out.npz", "test").y.tolist() == [0, 1]
    assert load_rows("out.npz", "train").x.shape == (3, 2)
    assert load_samples("out.npz", "test").kind == "row"


def test_threads_that_read_their_first_image_together_do_not_load_the_readers_together(monkeypatch):
    """While two loaded them, an image that is not damaged seemed to be."""
    file, loading, init = io.BytesIO(), [], Image.init
    Image.new("RGB", (2, 2)).save(file, "PNG")

    def slow():
        loading.append(1)
        time.sleep(0.02)
        init()
        assert loading == [1]
        loading.pop()

    monkeypatch.setattr(Image, "init", slow)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: images.decode(file.getvalue(), str(i)), range(4)))
    assert [image.shape for image in found] == [(2, 2, 3)] * 4
