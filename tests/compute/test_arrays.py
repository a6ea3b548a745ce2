"""Sums and heads that are larger than memory: the same numbers and bytes, from a file instead of memory."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deadlines import run
from ghofl import Classifier, Encoder, Features, Grid, Layout, Message, Moments, MomentsBuilder, Privacy, Recipe, Total
from ghofl.compute import arrays
from ghofl.errors import GhoflError, MessageError
from ghofl.files import FileBytes
from ghofl.outbox import Embedded, count
from ghofl.wire import head_file
from ghofl.wire.container import load_arrays
from ghofl.wire.total import Aggregator

RECIPE = Recipe(tuple("abcde"), Encoder(dim=40), ("S",), grid=Grid(bits=8, scale=20.0))
SMALL = 4 * 40 * 41 * 5 // 2  # bytes: second moments are beyond it, sums are not


def rows_of(rng: np.random.Generator, classes: int = 5, dim: int = 40) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(60 * classes) % classes
    means = np.random.default_rng(3).normal(size=(classes, dim))
    return np.clip(20 * (means[y] + rng.normal(size=(len(y), dim))), -127, 127).astype(np.int16), y


def message_of(rng: np.random.Generator, site: str) -> Message:
    builder, (x, y) = MomentsBuilder(Layout.of(RECIPE)), rows_of(rng)
    for start in range(0, len(y), 70):
        builder.add(x[start : start + 70], y[start : start + 70])
    return replace(Message.of(builder.moments(), RECIPE, site), id=site.encode().hex() * 16)


@pytest.fixture
def from_files(monkeypatch):
    """Let every array beyond a few kilobytes lie in a file."""
    monkeypatch.setenv(arrays.LIMIT, str(SMALL))


def story(folder: Path, name: str) -> dict[str, object]:
    """All that a federation of two sites leaves behind, bytes and numbers."""
    rng = np.random.default_rng(7)
    messages = []
    for site in "xy":
        message_of(rng, site).save(folder / f"{name}-{site}")
        messages.append(Message.load(folder / f"{name}-{site}", RECIPE))
    total = Total.of(messages, RECIPE)
    total.save(folder / f"{name}-total")
    back = Total.load(folder / f"{name}-total")
    found: dict[str, object] = {"sha256": total.moments.sha256, "less": (back - messages[0]).moments.sha256}
    found["squares"], found["pooled"] = back.moments.squares.tolist(), back.moments.pooled().tolist()
    x = np.random.default_rng(8).normal(size=(30, 40))
    for head in ("lda", "qda", "rda", "student", "low_rank_qda"):
        classifier = Classifier.fit(back, head)
        classifier.save(folder / f"{name}-{head}")
        loaded = Classifier.load(folder / f"{name}-{head}")
        assert loaded == classifier
        assert (folder / f"{name}-{head}").read_bytes() == classifier.to_bytes()
        found[head] = loaded.scores(x).tolist()
    files = sorted(folder.glob(f"{name}-*"))
    return found | {path.name.removeprefix(name): path.read_bytes() for path in files}


@pytest.mark.slow
def test_files_hashes_and_scores_are_the_same_from_memory_and_from_files(tmp_path, monkeypatch):
    in_memory = story(tmp_path, "memory")
    monkeypatch.setenv(arrays.LIMIT, str(SMALL))
    assert arrays.is_mapped(Moments.zeros(Layout.of(RECIPE)).blocks["S"])
    assert story(tmp_path, "file") == in_memory


def test_rounded_sums_are_the_same_from_memory_and_from_files(rng, tmp_path, monkeypatch):
    recipe = replace(RECIPE, privacy=Privacy(rounding=5))
    moments = message_of(rng, "x").moments
    Message.of(moments, recipe, "x").save(tmp_path / "message")
    expected = Message.load(tmp_path / "message", recipe)
    assert expected.moments != moments
    monkeypatch.setenv(arrays.LIMIT, str(SMALL))
    again = Message.of(replace(moments, blocks=arrays.copies(moments.blocks)), recipe, "x")
    found = Message.load(tmp_path / "message", recipe)
    assert arrays.is_mapped(again.moments.blocks["S"])
    assert arrays.is_mapped(found.moments.blocks["S"])
    assert found.moments == again.moments == expected.moments


def test_moments_of_shards_are_added_up_in_files(rng, from_files):
    x, y = rows_of(rng)
    features, x = Features.of(RECIPE), x / 20.0
    whole = sum(count(features, Embedded(x[some], y[some])) for some in (slice(100), slice(100, None)))
    assert arrays.is_mapped(whole.moments.blocks["S"])
    assert whole.moments == count(features, Embedded(x, y)).moments


def test_large_blocks_and_heads_lie_in_files_and_small_ones_do_not(tmp_path, rng, from_files):
    total = Total.of([message_of(rng, "x")], RECIPE)
    total.save(tmp_path / "total")
    blocks = Total.load(tmp_path / "total").moments.blocks
    assert {name: arrays.is_mapped(block) for name, block in blocks.items()} == {"N": False, "A": False, "S": True}
    classifier = Classifier.fit(total, "rda")
    classifier.save(tmp_path / "head")
    for head in (classifier.rule, Classifier.load(tmp_path / "head").rule):
        assert arrays.is_mapped(head.whiteners)
        assert not arrays.is_mapped(head.means)


def test_a_message_that_is_given_away_is_not_copied_and_others_are(rng):
    one, two = (message_of(rng, site) for site in "xy")
    before = one.moments.sha256
    kept, given = Aggregator(RECIPE), Aggregator(RECIPE)
    kept.add(one)
    kept.add(two)
    assert one.moments.sha256 == before
    given.add(one, is_given=True)
    given.add(two, is_given=True)
    assert one.moments == given.finish().moments == kept.total().moments


def test_a_disk_without_room_is_told_before_anything_is_written(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrays.os, "posix_fallocate", full)
    with pytest.raises(
        GhoflError, match="1,600 bytes is too large for memory.*No space.*set TMPDIR to a folder on a larger disk"
    ):
        arrays.zeros((200,), most=1)


def test_a_file_system_that_reserves_no_room_still_holds_arrays(monkeypatch):
    def unsupported(*_):
        raise OSError(arrays.errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(arrays.os, "posix_fallocate", unsupported)
    array = arrays.zeros((200,), most=1)
    array += 1
    assert arrays.is_mapped(array)
    assert array.sum() == 200


def test_a_limit_that_is_not_a_number_is_refused(monkeypatch):
    monkeypatch.setenv(arrays.LIMIT, "2GB")
    with pytest.raises(GhoflError, match="GHOFL_ARRAY_BYTES is '2GB'; write a number of bytes"):
        arrays.limit()


def test_a_container_counts_with_the_memory_it_may_have(monkeypatch, tmp_path):
    monkeypatch.delenv(arrays.LIMIT, raising=False)
    monkeypatch.setattr(arrays, "CONTAINER", tmp_path / "memory.max")
    for text, limit in (("4000\n", 1000), ("max\n", None)):
        (tmp_path / "memory.max").write_text(text)
        arrays._memory.cache_clear()
        found = arrays.limit()
        assert found == limit if limit else found > 2**20
    arrays._memory.cache_clear()


@pytest.mark.parametrize("at", [0.3, 0.9])
def test_a_damaged_head_that_stays_in_its_file_is_refused(tmp_path, rng, from_files, at):
    total = Total.of([message_of(rng, "x")], RECIPE)
    Classifier.fit(total, "qda").save(tmp_path / "head")
    data = bytearray((tmp_path / "head").read_bytes())
    data[int(at * len(data))] ^= 1
    (tmp_path / "head").write_bytes(data)
    with pytest.raises(MessageError, match="do not match the header's sha256"):
        Classifier.load(tmp_path / "head")
    (tmp_path / "head").write_bytes(data[:-8])
    with pytest.raises(MessageError):
        Classifier.load(tmp_path / "head")


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ({"dtype": "F64", "shape": [3, -4], "data_offsets": [0, 96]}, "expected a list of sizes"),
        ({"dtype": "F64", "shape": [2**40, 2**40], "data_offsets": [0, 96]}, "it is damaged"),
        ({"dtype": "F64", "shape": "12", "data_offsets": [0, 96]}, "expected a list of sizes"),
        ({"dtype": "F8_E4M3", "shape": [96], "data_offsets": [0, 96]}, "has dtype F8_E4M3"),
        ({"dtype": ["F64"], "shape": [12], "data_offsets": [0, 96]}, "has dtype"),
        ({"shape": [12], "data_offsets": [0, 96]}, "has dtype None"),
        ({"dtype": "F64", "shape": [12], "data_offsets": [0, 2**60]}, "the file is truncated"),
        ({"dtype": "F64", "shape": [12], "data_offsets": [8, 96]}, "leave a gap"),
    ],
)
def test_a_head_file_that_lies_about_its_tensors_is_refused_before_anything_is_mapped(tmp_path, entry, match):
    header = json.dumps({"__metadata__": {"ghofl": "{}"}, "whiteners": entry}).encode()
    (tmp_path / "head").write_bytes(len(header).to_bytes(8, "little") + header + bytes(96))
    with FileBytes(tmp_path / "head") as data, pytest.raises(MessageError, match=match):
        load_arrays(data, 2**20)


def test_a_mapped_head_is_that_of_the_file_that_was_checked(tmp_path, rng, from_files, monkeypatch):
    """Another file that gets the name meanwhile is not looked at."""
    total = Total.of([message_of(rng, "x")], RECIPE)
    for name in ("qda", "rda"):
        Classifier.fit(total, name).save(tmp_path / name)
    expected, check = Classifier.load(tmp_path / "qda").rule.whiteners.copy(), head_file.check_seal

    def checked(header, data):
        check(header, data)
        (tmp_path / "rda").replace(tmp_path / "qda")

    monkeypatch.setattr(head_file, "check_seal", checked)
    head = Classifier.load(tmp_path / "qda").rule
    assert arrays.is_mapped(head.whiteners)
    assert np.array_equal(head.whiteners, expected)


WHOLE_STORY = """
import sys
from pathlib import Path
import numpy as np
from ghofl import Classifier, Encoder, Grid, Layout, Message, MomentsBuilder, Recipe, Total
from ghofl.wire.total import Aggregator
classes, dim, path = int(sys.argv[1]), 256, Path(sys.argv[2])
recipe = Recipe(tuple(map(str, range(classes))), Encoder(dim=dim), ("S",), grid=Grid(bits=8, scale=20.0))
rng, builder = np.random.default_rng(0), MomentsBuilder(Layout.of(recipe))
for c in range(classes):
    x = rng.normal(size=(40, dim)) + np.random.default_rng(c).normal(size=dim)
    builder.add(np.clip(20 * x, -127, 127).astype(np.int16), np.full(40, c))
Message.of(builder.moments(), recipe, "x").save(path / "message")
del builder
adding = Aggregator(recipe)
adding.add(Message.load(path / "message", recipe), is_given=True)
adding.finish().save(path / "total")
del adding
Classifier.fit(Total.load(path / "total"), "rda").save(path / "head")
head = Classifier.load(path / "head")
assert head.score(x, np.array(["%d" % c] * 40)) > 0.9
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell what a process used")
def test_memory_does_not_grow_with_the_matrices_of_classes(tmp_path):
    """From rows over message and total to a scored head: 400 classes have 290 MB more of matrices than 50."""
    peaks = []
    for classes in (50, 400):
        code = [sys.executable, "-c", WHOLE_STORY, str(classes), str(tmp_path)]
        env = {**arrays.os.environ, arrays.LIMIT: str(4 * 2**20), "OPENBLAS_NUM_THREADS": "1"}
        peaks.append(int(run(*code, env=env).stdout) / 1024)
    assert peaks[1] - peaks[0] < 60, f"{peaks} MB at 50 and 400 classes"
