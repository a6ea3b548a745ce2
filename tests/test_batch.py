"""Many messages read and added at once are those read and added one by one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_message import (
    HOSTILE_BYTES,
    HOSTILE_HEADERS,
    HOSTILE_MOMENTS,
    HOSTILE_TENSORS,
    RECIPE,
    changed,
    message_of,
    with_moments,
)

from federations import STATISTICS, blobs, integer_rows, moments_of, recipe_of, sketched_recipe
from ghofl import Aggregator, Layout, Limits, Message, Moments, Total
from ghofl.errors import GhoflError, MessageError, MomentsOverflowError, RosterError
from ghofl.recipe import Privacy
from ghofl.wire import batch
from ghofl.wire.batch import Batch, batches
from ghofl.wire.plausible import check_many, check_plausible, check_possible, check_rows

LOCAL = Privacy(epsilon=8.0, delta=1e-6, radius=4.0, noise="local")
RECIPES = {
    **{"".join(names) or "A": recipe_of(statistics=names) for names in STATISTICS},
    "sketch": sketched_recipe(),
    "radius": recipe_of(privacy=Privacy(radius=40.0)),
    "rounding": recipe_of(privacy=Privacy(rounding=4)),
    "local noise": recipe_of(bits=8, statistics=("B",), privacy=LOCAL),
    "cut": recipe_of(bits=8, privacy=replace(LOCAL, noise="central", unit="client", client_rows=5)),
}


def saved(folder, recipe, sites=7, rows=60):
    """Messages of some sites in files, some of which have few classes."""
    x, y = blobs(np.random.default_rng(5), rows)
    parts = np.array_split(np.argsort(y), sites)
    messages = [Message.of(moments_of(recipe, x[p], y[p]), recipe, f"site {i}") for i, p in enumerate(parts)]
    paths = [folder / f"{i}.ghofl" for i in range(sites)]
    for path, message in zip(paths, messages, strict=True):
        message.save(path)
    return paths, messages


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("entries", [1, 500, 10**6], ids=["one by one", "some at a time", "all at once"])
def test_messages_added_in_batches_give_the_total_of_messages_added_one_by_one(tmp_path, monkeypatch, recipe, entries):
    monkeypatch.setattr(batch, "AT_ONCE", entries)
    paths, messages = saved(tmp_path, recipe)
    aggregator = Aggregator(recipe)
    for some in batches(paths, recipe):
        aggregator.add_batch(Batch.load(some, recipe))
    assert aggregator.finish() == Total.of(messages, recipe)


def test_only_so_many_messages_are_read_together_however_small_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "MOST", 3)
    paths, _ = saved(tmp_path, RECIPES["A"])
    assert [len(some) for some in batches(paths, RECIPES["A"])] == [3, 3, 1]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        *((edit(message_of().to_bytes()), says) for _, edit, says in HOSTILE_BYTES),
        *((changed(message_of().to_bytes(), lambda h, v=v: h.update(v)), says) for _, v, says in HOSTILE_HEADERS),
        *((changed(message_of().to_bytes(), edit_tensors=edit), says) for _, edit, says in HOSTILE_TENSORS),
        *((with_moments(edit), says) for _, edit, says in HOSTILE_MOMENTS),
    ],
    ids=[case[0] for cases in (HOSTILE_BYTES, HOSTILE_HEADERS, HOSTILE_TENSORS, HOSTILE_MOMENTS) for case in cases],
)
def test_one_hostile_message_among_others_is_refused_by_name(tmp_path, data, says):
    paths = [tmp_path / f"{i}.ghofl" for i in range(5)]
    for i, path in enumerate(paths):
        path.write_bytes(data if i == 3 else message_of().to_bytes())
    with pytest.raises(MessageError, match=says) as caught:
        Batch.load(paths, RECIPE)
    assert str(caught.value).startswith(str(paths[3]))


def test_a_file_that_is_too_large_is_refused_by_name_and_a_missing_one_too(tmp_path):
    paths, _ = saved(tmp_path, RECIPES["B"])
    (tmp_path / "0.ghofl").write_bytes(bytes(10**6))
    with pytest.raises(MessageError, match=r"0\.ghofl has more than"):
        Batch.load(paths, RECIPES["B"])
    with pytest.raises(FileNotFoundError):
        Batch.load([paths[1], tmp_path / "nobody.ghofl"], RECIPES["B"])


def test_more_rows_than_one_site_may_have_are_refused_by_name(tmp_path):
    wide, narrow = recipe_of(), recipe_of(limits=Limits(max_rows=9))
    paths, messages = saved(tmp_path, wide, sites=6)
    for path, message in zip(paths, messages, strict=True):
        replace(message, fingerprint=narrow.fingerprint).save(path)
    with pytest.raises(MessageError, match=r"0\.ghofl: the message counts 10 rows"):
        Batch.load(paths, narrow)


def test_a_refused_message_leaves_those_before_it_inside(tmp_path):
    recipe = RECIPES["S"]
    paths, messages = saved(tmp_path, recipe)
    Message.of(messages[5].moments, recipe, "site 1").save(paths[4])
    aggregator = Aggregator(recipe)
    with pytest.raises(RosterError, match=r"4\.ghofl: site 'site 1' is already in the total"):
        aggregator.add_batch(Batch.load(paths, recipe))
    assert aggregator.total() == Total.of(messages[:4], recipe)
    aggregator.add_batch(Batch.load(paths[5:], recipe))
    assert aggregator.finish() == Total.of([*messages[:4], *messages[5:]], recipe)


def test_two_of_one_batch_may_not_be_one_site(tmp_path):
    paths, messages = saved(tmp_path, RECIPES["B"], sites=2)
    Message.of(messages[1].moments, RECIPES["B"], "site 0").save(paths[1])
    with pytest.raises(RosterError, match=r"1\.ghofl"):
        Aggregator(RECIPES["B"]).add_batch(Batch.load(paths, RECIPES["B"]))


def test_a_batch_of_another_recipe_is_refused(tmp_path):
    paths, _ = saved(tmp_path, RECIPES["B"])
    with pytest.raises(MessageError, match="made with recipe"):
        Aggregator(RECIPES["S"]).add_batch(Batch.load(paths, RECIPES["B"]))


def test_sums_that_could_leave_the_integers_are_refused_within_a_batch(tmp_path):
    recipe = recipe_of(dim=1, classes=2, statistics=("D",), bits=16, limits=Limits(max_rows=2**32))
    layout, paths = Layout.of(recipe), [tmp_path / f"{i}.ghofl" for i in range(9)]
    rows = (2**63 - 1) // layout.largest // 8
    blocks = {name: np.zeros(shape, dtype=np.int64) for name, shape in layout.shapes.items()}
    blocks["N"][0] = rows
    for i, path in enumerate(paths):
        Message.of(Moments(layout, blocks), recipe, f"site {i}").save(path)
    aggregator = Aggregator(recipe)
    with pytest.raises(MomentsOverflowError, match=f"gives {9 * rows} rows"):
        aggregator.add_batch(Batch.load(paths, recipe))
    assert aggregator.total().moments.rows == 8 * rows


@pytest.mark.parametrize("name", ["S", "B"])
def test_a_count_below_zero_that_cutting_would_allow_is_refused_beside_exact_sums(name):
    recipe = replace(RECIPES["cut"], statistics=(name,))
    moments = Message.of(moments_of(recipe, *blobs(np.random.default_rng(1))), recipe).moments
    moments.blocks["N"][2] = -1
    with pytest.raises(MessageError, match="a count of -1"):
        check_possible(moments, recipe)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.sampled_from(["A", "D", "B", "DB", "S", "sketch", "radius", "rounding", "cut"]), st.data())
def test_moments_are_refused_together_exactly_when_one_of_them_is_refused_alone(name, data):
    """Changes of all sizes to entries, some of which rows could have made and some not."""
    recipe = RECIPES[name]
    layout, rng = Layout.of(recipe), np.random.default_rng(data.draw(st.integers(0, 2**32)))
    all_moments = [
        moments_of(recipe, *blobs(rng, rows)) for rows in data.draw(st.lists(st.integers(0, 30), max_size=5))
    ]
    all_moments.append(
        Moments.of(*integer_rows(rng, replace(layout, bound=20, sketch=0), 9), replace(layout, sketch=0))
    )
    all_moments = [m for m in all_moments if m.layout == layout] or [moments_of(recipe, *blobs(rng, 9))]
    for _ in range(data.draw(st.integers(0, 2))):
        chosen = all_moments[data.draw(st.integers(0, len(all_moments) - 1))]
        block = chosen.blocks[data.draw(st.sampled_from(list(layout.shapes)))].reshape(-1)
        block[data.draw(st.integers(0, len(block) - 1))] += data.draw(
            st.sampled_from([-(2**20), -9, -1, 1, 9, 2**12, 2**50])
        )
    stacked = {name: np.stack([m.blocks[name] for m in all_moments]) for name in layout.shapes}
    assert _is_refused(check_many, layout, stacked, recipe) == any(_is_refused_alone(m, recipe) for m in all_moments)


def _is_refused_alone(moments, recipe):
    return any(_is_refused(check, moments, recipe) for check in (check_rows, check_plausible, check_possible))


def _is_refused(check, *given):
    try:
        check(*given)
    except GhoflError:
        return True
    return False
