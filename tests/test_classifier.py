import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load

from federations import blobs, recipe_of, total_of
from ghofl import Classifier, HeadSpec, Projection
from ghofl.envelope import sealed
from ghofl.errors import HeadError, MessageError, NotPositiveDefiniteError

GOLDEN = Path(__file__).parent / "golden" / "schema-2"


@pytest.fixture
def saved(rng):
    return Classifier.fit(total_of(recipe_of(), *blobs(rng)), "lda").to_bytes()


def rewritten(data: bytes, header=None, tensors=None) -> bytes:
    size = int.from_bytes(data[:8], "little")
    old = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["ghofl"])
    return sealed({**load(data), **(tensors or {})}, {**old, **(header or {})})


def test_a_spec_has_options_in_brackets():
    assert HeadSpec.parse(" rda( blend = 0.9 , shrinkage=0.05) ").options == {"blend": 0.9, "shrinkage": 0.05}
    assert list(HeadSpec.parse_list("lda, rda(blend=1,shrinkage=0.5),nb")) == [
        "lda",
        "rda(blend=1,shrinkage=0.5)",
        "nb",
    ]


def test_a_preset_fills_in_what_is_not_written():
    assert HeadSpec.parse("lda", "paper").options == {"shrinkage": 0.05}
    assert HeadSpec.parse("lda(shrinkage=0.2)", "paper").options == {"shrinkage": 0.2}
    assert HeadSpec.parse("lda").options == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ldaa", "head 'ldaa' is unknown; known are nearest_mean"),
        ("lda(", "is not a head"),
        ("lda(shrink=0.1)", "head 'lda' has no option 'shrink'; it has shrinkage"),
        ("spherical(x=1)", "it has none"),
        ("lda(shrinkage=some)", "option shrinkage=some of head 'lda' is a text"),
        ("lda(shrinkage)", "is not of the form name=value"),
        ("proto_hyper(base=3)", "option base=3 of head 'proto_hyper' is a number; its default is 'lda'"),
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


def test_raw_embeddings_go_in_through_the_recipe(rng):
    x, y = blobs(rng, spread=8.0, dim=40)
    recipe = recipe_of(dim=40, projection=Projection(dim=10))
    classifier = Classifier.fit(total_of(recipe, x, y), "lda")
    assert np.mean(classifier.predict(x) == y) > 0.9


def test_options_reach_the_head(rng):
    x, y = blobs(rng)
    total = total_of(recipe_of(), x, y)
    assert not np.allclose(
        Classifier.fit(total, "lda(shrinkage=0.9)").scores(x), Classifier.fit(total, "lda").scores(x)
    )


def test_a_fit_that_cannot_be_done_says_what_to_change(rng):
    x, y = blobs(rng, rows=20)
    with pytest.raises(NotPositiveDefiniteError, match="Use a shrinkage above 0"):
        Classifier.fit(total_of(recipe_of(), x, y), "qda(shrinkage=0)")
    with pytest.raises(ValueError, match="blend is 2"):
        Classifier.fit(total_of(recipe_of(), x, y), "rda(blend=2)")
    with pytest.raises(ValueError, match="rank is -1"):
        Classifier.fit(total_of(recipe_of(), x, y), "low_rank_qda(rank=-1)")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"header": {"head": "svm"}}, "head 'svm' is unknown"),
        ({"header": {"kind": "total"}}, "this file is a 'total'"),
        ({"header": {"schema": 3}}, "newer"),
        ({"header": {"recipe_toml": "x"}}, "damaged"),
        ({"header": {"options": 3}}, "metadata is damaged"),
        ({"tensors": {"weights": np.zeros((4, 5))}}, "its weights have shape"),
        ({"tensors": {"weights": np.zeros((3, 6))}}, "its weights have shape"),
        ({"tensors": {"weights": np.full((4, 6), np.nan)}}, "something other than numbers"),
        ({"tensors": {"more": np.zeros(3)}}, "and such a head has"),
    ],
)
def test_a_damaged_head_is_refused(saved, change, says):
    with pytest.raises(MessageError, match=says):
        Classifier.from_bytes(rewritten(saved, **change))


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
