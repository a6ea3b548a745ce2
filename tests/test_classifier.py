import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load

from federations import blobs, recipe_of, total_of
from ghofl import HEADS, Classifier, HeadSpec, Privacy
from ghofl.errors import CalibrationWarning, EmptyClassWarning, HeadError, MessageError, NotPositiveDefiniteError
from ghofl.wire.envelope import Tensor, seal

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def saved(rng):
    return Classifier.fit(total_of(recipe_of(), *blobs(rng)), "lda").to_bytes()


def rewritten(data: bytes, header=None, tensors=None) -> bytes:
    size = int.from_bytes(data[:8], "little")
    old = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["ghofl"])
    arrays = {**load(data), **(tensors or {})}
    return seal({name: Tensor.of(array) for name, array in arrays.items()}, {**old, **(header or {})})


def test_a_spec_has_options_in_brackets():
    assert HeadSpec.parse(" rda( blend = 0.9 , shrinkage=0.05) ").options == {"blend": 0.9, "shrinkage": 0.05}
    assert list(HeadSpec.parse_list("lda, rda(blend=1,shrinkage=0.5),nb")) == [
        "lda",
        "rda(blend=1,shrinkage=0.5)",
        "nb",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ldaa", "head 'ldaa' is unknown; known are nearest_mean"),
        ("lda(", "is not a head"),
        ("lda(shrink=0.1)", "head 'lda' has no option 'shrink'; it has shrinkage"),
        ("nearest_mean(x=1)", "it has none"),
        ("lda(shrinkage=some)", "shrinkage is some; option shrinkage of head 'lda' is a number between 0 and 1"),
        ("lda(shrinkage)", "is not of the form name=value"),
        ("proto_hyper(base=3)", "base is 3; option base of head 'proto_hyper' is one of nb, lda, qda"),
        ("best(x=1)", "'best' takes no options"),
    ],
)
def test_a_bad_spec_says_what_to_write(text, says):
    with pytest.raises(HeadError, match=says.replace("(", r"\(")):
        HeadSpec.parse(text)


def test_an_unknown_preset_and_an_empty_list_are_refused():
    with pytest.raises(HeadError, match="known are default, paper"):
        HeadSpec.parse("lda", "papers")
    with pytest.raises(HeadError, match="no head"):
        HeadSpec.parse_list(" , ")


def test_a_fit_that_cannot_be_done_says_what_to_change(rng):
    x, y = blobs(rng, rows=20)
    with pytest.raises(NotPositiveDefiniteError, match="Use a shrinkage above 0"):
        Classifier.fit(total_of(recipe_of(), x, y), "qda(shrinkage=0)")


def test_a_head_file_with_degrees_of_freedom_that_would_give_nan_scores_is_damaged(rng):
    saved = Classifier.fit(total_of(recipe_of(), *blobs(rng)), "student").to_bytes()
    with pytest.raises(MessageError, match="dof is -1"):
        Classifier.from_bytes(rewritten(saved, tensors={"dof": np.asarray(-1.0)}))


@pytest.mark.parametrize(
    ("name", "options"), [("student", {"dof": 1e-320}), ("nb", {"floor": 1e-320, "shrinkage": 0.0})]
)
def test_options_that_make_scores_of_no_size_are_refused(name, options, rng):
    x, y = blobs(rng)
    x[y == 0] = 1.0
    with np.errstate(all="ignore"), pytest.raises(HeadError, match=f"head '{name}' with .* not finite numbers"):
        Classifier.fit(total_of(recipe_of(), x, y), HeadSpec(name, options))


def test_names_of_classes_without_a_row_are_quoted(rng):
    x, y = blobs(rng)
    recipe = replace(recipe_of(classes=5), classes=("a", "b", "c", "d", "north[/x] 'q'"))
    with pytest.warns(EmptyClassWarning, match=r"1 class has no row .*: \"north\[/x\] 'q'\"\."):
        Classifier.fit(total_of(recipe, x, y), "lda")


def test_classes_that_a_minimum_count_dropped_are_told_once(rng):
    """`revealed` tells of them; a warning would repeat it."""
    x, y = blobs(rng)
    recipe = recipe_of(classes=6, privacy=Privacy(min_count=5))
    classifier = Classifier.fit(total_of(recipe, x, y).release(), "lda")
    assert "classes 4, 5 has fewer than 5 rows" in classifier.revealed


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"header": {"head": "svm 9"}}, "metadata is damaged"),
        ({"header": {"head": 9}}, "metadata is damaged"),
        ({"header": {"rule": "quadratic"}}, "such a head has"),
        ({"header": {"rule": ["summed"]}}, "its rule is .*not known here"),
        ({"header": {"thresholds": {"class 0": 0.0}}}, "threshold"),
        ({"header": {"thresholds": {"class 9": 0.5}}}, "threshold"),
        ({"header": {"thresholds": {"class 0": "0.5"}}}, "threshold"),
        ({"header": {"thresholds": [0.5]}}, "threshold"),
        ({"header": {"kind": "total"}}, "this file is a 'total'"),
        ({"header": {"schema": 3}}, "newer"),
        ({"header": {"recipe_toml": "x"}}, "damaged"),
        ({"header": {"options": 3}}, "metadata is damaged"),
        ({"header": {"colour": "red"}}, "has the fields .*colour"),
        ({"tensors": {"weights": np.zeros((4, 5))}}, "its weights have shape"),
        ({"tensors": {"weights": np.zeros((3, 6))}}, "its weights have shape"),
        ({"tensors": {"weights": np.full((4, 6), np.nan)}}, "something other than numbers"),
        ({"tensors": {"more": np.zeros(3)}}, "and such a head has"),
    ],
)
def test_a_damaged_head_is_refused(saved, change, says):
    with pytest.raises(MessageError, match=says):
        Classifier.from_bytes(rewritten(saved, **change))


def test_a_damaged_head_is_not_for_a_site_to_send_again(saved):
    """A head comes from the server."""
    flipped = bytearray(saved)
    flipped[-1] ^= 1
    with pytest.raises(MessageError, match="the head was damaged .* make it again with 'ghofl head'"):
        Classifier.from_bytes(bytes(flipped))
    with pytest.raises(MessageError, match="; make the head again with 'ghofl head'"):
        Classifier.from_bytes(rewritten(saved, header={"recipe_toml": "x"}))


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_one_changed_byte_of_a_head_is_refused_wherever_it_is(position, change):
    """A flipped bit in a weight, a shape or an option would give other predictions without a word."""
    data = bytearray(Path(GOLDEN, "head-lda.safetensors").read_bytes())
    data[position % len(data)] ^= change
    with pytest.raises(MessageError):
        Classifier.from_bytes(bytes(data))


def test_truncated_bytes_are_not_a_head(saved):
    for cut in (0, 5, 100, len(saved) - 1):
        with pytest.raises(MessageError):
            Classifier.from_bytes(saved[:cut])


@pytest.mark.parametrize("statistics", [(), ("D",), ("B",), ("S",)])
def test_every_head_takes_classes_of_one_row_again_and_again(statistics):
    """Within classes nothing varies: heads compare distances from the means, and say that nothing was calibrated."""
    x, y = (
        np.repeat(np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [1.0, 1.0, 9.0]]), 5, axis=0),
        np.repeat(np.arange(3), 5),
    )
    total = total_of(recipe_of(3, 3, statistics), x, y)
    for name in ("best", *HEADS):
        if not HeadSpec(name).is_possible(total.moments.layout, total.recipe):
            continue
        told: list[Warning] = []
        classifier = Classifier.fit(total, name, warn=told.append)
        assert np.array_equal(classifier.predict_numbers(x), y), name
        assert classifier.calibration.source == "none"
        assert classifier.novelty_rule is None
        assert [type(each) for each in told] == [CalibrationWarning]


@pytest.mark.parametrize("is_file", [False, True], ids=["bytes", "file"])
def test_an_array_of_a_type_that_heads_do_not_have_is_told_in_a_sentence(tmp_path, rng, is_file):
    """A small file took another reader than a large one, and such an array was a bare KeyError."""
    data = Classifier.fit(total_of(recipe_of(), *blobs(rng)), "lda").to_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    head = data[:end].replace(b'"F64"', b'"C64"', 1)
    given = json.loads(json.loads(head[8:])["__metadata__"]["ghofl"])["sha256"].encode()
    digest = hashlib.sha256(data[end:] + head.replace(given, b"0" * 64)).hexdigest().encode()
    forged = head.replace(given, digest) + data[end:]
    (tmp_path / "head.safetensors").write_bytes(forged)
    with pytest.raises(MessageError, match="has dtype C64; heads have"):
        _ = Classifier.load(tmp_path / "head.safetensors") if is_file else Classifier.from_bytes(forged)
