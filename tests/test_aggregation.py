import itertools
import os
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadlines import run
from federations import KEEP_MEMORY, blobs, moments_of, recipe_of, split_datasets, total_of
from ghofl import Aggregator, Encoder, Layout, Limits, Message, Moments, Recipe, Total
from ghofl.errors import MessageError, MomentsOverflowError, RosterError
from ghofl.privacy import as_vector
from ghofl.recipe import Privacy
from ghofl.wire import roster
from ghofl.wire.envelope import encode
from ghofl.wire.roster import Entry

RECIPE = recipe_of()


@pytest.fixture
def messages(rng):
    x, y = blobs(rng)
    parts = np.array_split(np.arange(len(y)), 5)
    return [Message.of(moments_of(RECIPE, x[p], y[p]), RECIPE, f"site-{i}") for i, p in enumerate(parts)]


def test_the_total_does_not_depend_on_the_order_of_messages(messages):
    totals = [Total.of(order, RECIPE) for order in itertools.islice(itertools.permutations(messages), 0, 120, 17)]
    assert all(total == totals[0] for total in totals)
    assert len({total.to_bytes() for total in totals}) == 1


def test_the_total_is_the_total_of_the_union(rng):
    x, y = blobs(rng)
    assert total_of(RECIPE, x, y, sites=1).moments == total_of(RECIPE, x, y, sites=7).moments


def test_a_message_is_counted_once(messages):
    aggregator = Aggregator(RECIPE)
    aggregator.add(messages[0])
    before = aggregator.total()
    with pytest.raises(RosterError, match="'site-0' .* is already in the total"):
        aggregator.add(messages[0])
    assert aggregator.total() == before


def test_a_site_that_sends_a_second_message_is_refused(messages):
    again = Message.of(messages[1].moments, RECIPE, "site-0")
    with pytest.raises(RosterError, match="subtract its earlier message"):
        Total.of([messages[0], again], RECIPE)


def test_sites_without_a_name_are_told_apart_by_their_message(messages):
    anonymous = [Message.of(m.moments, RECIPE) for m in messages]
    total = Total.of(anonymous, RECIPE)
    assert len(total.roster) == 5
    with pytest.raises(RosterError):
        total + anonymous[0]


def test_unlearning_a_site_is_exact(messages):
    total = Total.of(messages, RECIPE)
    without = Total.of(messages[:2] + messages[3:], RECIPE)
    assert total - messages[2] == without
    assert (total - messages[2]).to_bytes() == without.to_bytes()
    assert total - messages[2] + messages[2] == total


@pytest.mark.parametrize("way", ["add", "add_file"])
def test_nothing_is_added_to_a_sum_that_is_finished(messages, way, tmp_path):
    """The site entered the roster, and its moments were lost."""
    messages[1].save(tmp_path / "1.ghofl")
    aggregator = Aggregator(RECIPE)
    aggregator.add(messages[0])
    total = aggregator.finish()
    with pytest.raises(MessageError, match="is finished"):
        getattr(aggregator, way)(messages[1] if way == "add" else tmp_path / "1.ghofl")
    for after in (aggregator.total, aggregator.finish):
        with pytest.raises(MessageError, match="is finished"):
            after()
    assert total == Total.of(messages[:1], RECIPE)


def test_a_late_joiner_gives_the_total_of_all(messages):
    early = Total.of(messages[:4], RECIPE)
    assert early + messages[4] == Total.of(messages, RECIPE)
    assert len(early.roster) == 4


def test_a_total_given_out_does_not_change_when_more_is_added(messages):
    aggregator = Aggregator(RECIPE)
    aggregator.add(messages[0])
    first = aggregator.total()
    digest = first.moments.sha256
    aggregator.add(messages[1])
    assert first.moments.sha256 == digest


def test_a_site_that_is_not_inside_cannot_be_subtracted(messages):
    total = Total.of(messages[:2], RECIPE)
    with pytest.raises(RosterError, match=r"'site-3' .* is not in this total, which holds 'site-0', 'site-1'"):
        total - messages[3]
    with pytest.raises(RosterError, match="which holds nobody"):
        Total.of([], RECIPE) - messages[3]


def test_a_message_with_a_known_id_and_other_moments_cannot_be_subtracted(messages):
    forged = Message(messages[0].fingerprint, messages[0].id, messages[0].site, messages[1].moments)
    with pytest.raises(RosterError, match="the very message that was added"):
        Total.of(messages, RECIPE) - forged


def test_messages_of_other_recipes_are_refused(messages):
    other = recipe_of(scale=33.0)
    with pytest.raises(MessageError, match="give this site that file"):
        Total.of(messages, other)
    with pytest.raises(MessageError, match="made with recipe"):
        Total.of([], other) - messages[0]


def test_a_total_that_could_overflow_is_refused():
    recipe = recipe_of(bits=16, statistics=("D",), limits=Limits(max_rows=2**33))
    moments = Moments.zeros(Layout.of(recipe))
    moments.counts[0] = 2**33
    message = Message.of(moments, recipe, "huge")
    with pytest.raises(MomentsOverflowError, match="adding 'other' gives"):
        Total.of([message, Message.of(moments, recipe, "other")], recipe)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"recipe_toml": "classes = 3"}, "a recipe that does not work"),
        ({"recipe": "00" * 32}, "made with recipe 0000"),
        ({"roster": "everyone"}, "roster is damaged"),
        ({"roster": [["a", "b"]]}, "roster is damaged"),
        ({"roster": [["a", "b", 1, "", None]]}, "roster is damaged"),
        ({"roster": [["a" * 32, "b\x1b[2J", 300, "", None]]}, "roster is damaged"),
        ({"roster": [["a" * 32, "b", 300, "", 2.0]]}, "roster is damaged"),
        ({"roster": [["a" * 32, "b", True, "", None]]}, "roster is damaged"),
        ({"roster": [["a" * 32, "b", 1, "", None]]}, "does not account for its rows"),
        ({"roster": [["a" * 32, "b", 150, "", None], ["a" * 32, "c", 150, "", None]]}, "does not account for its rows"),
        ({"guarantee": {"epsilon": "1"}}, "guarantee in the file is damaged"),
        ({"guarantee": [1]}, "guarantee in the file is damaged"),
        (
            {"small_classes": {"threshold": "5", "small": [], "merged_into": None, "is_pooled_whole": True}},
            "small classes",
        ),
        (
            {"small_classes": {"threshold": 5, "small": [9], "merged_into": None, "is_pooled_whole": True}},
            "small classes",
        ),
        ({"kind": "message"}, "this file is a 'message'"),
    ],
)
def test_a_damaged_total_is_refused(messages, values, says):
    total = Total.of(messages, RECIPE)
    header = {
        "kind": "total",
        "recipe": RECIPE.fingerprint,
        "recipe_toml": RECIPE.to_toml(),
        "roster": [[e.id, e.site, e.rows, e.sha256, e.clipped] for e in total.roster],
    }
    with pytest.raises(MessageError, match=says):
        Total.from_bytes(encode(total.moments, {**header, **values}))


@pytest.mark.slow
def test_a_total_that_brings_its_own_recipe_may_not_unpack_to_far_more_than_it_has():
    """Slabs of zeros take 13 bytes for half a megabyte: a small file could ask for gigabytes."""
    recipe = Recipe(tuple(map(str, range(30_000))), Encoder(dim=128), ("D",))
    bomb = Total(recipe, Moments.zeros(Layout.of(recipe))).to_bytes()
    assert len(bomb) < 10**6
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roster, "SMALL", 2**20)
        patch.setattr(roster, "EXPANSION", 16)
        with pytest.raises(MessageError, match="by the recipe inside it"):
            Total.from_bytes(bomb)
        assert Total.from_bytes(bomb, recipe).moments.rows == 0, "with the recipe at hand its size is known"


def test_the_clipped_share_of_sites_is_told_by_exact_totals_and_not_by_released_ones(messages):
    clipped = replace(messages[0], clipped=0.25)
    total = Total.of([clipped, *messages[1:]], RECIPE)
    assert [entry.site for entry in total.clipped()] == [clipped.site]
    assert Total.from_bytes(total.to_bytes()) == total
    assert total - clipped == Total.of(messages[1:], RECIPE)
    small = replace(RECIPE, privacy=Privacy(min_count=1))
    told = Total.of([replace(clipped, fingerprint=small.fingerprint)], small)
    assert [entry.clipped for entry in told.release().roster] == [None]


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "x = " + "1" * 10_000], ids=["deep", "long"])
def test_a_recipe_that_python_cannot_read_is_told_as_a_damaged_total(messages, text):
    data = encode(messages[0].moments, {"kind": "total", "recipe": "", "recipe_toml": text, "roster": []})
    with pytest.raises(MessageError, match="nested too deeply or has a number that is too long"):
        Total.from_bytes(data)


def test_what_a_promise_rests_on_is_not_for_the_file_to_say():
    recipe = replace(RECIPE, privacy=Privacy(radius=5.0, epsilon=1.0, delta=1e-5))
    released = Total.of([Message.of(Moments.zeros(Layout.of(recipe)), recipe, "north")], recipe).release()
    assert released.guarantee is not None
    forged = replace(released, guarantee=replace(released.guarantee, assumptions=("Nothing at all.\x1b[2J",)))
    read = Total.from_bytes(forged.to_bytes()).guarantee
    assert read is not None
    assert read.assumptions == released.guarantee.assumptions


TEN_THOUSAND = """
import resource, sys
import numpy as np
from ghofl import Encoder, Grid, Layout, Message, Moments, Recipe, Total

recipe = Recipe(classes=tuple("abcdefghij"), encoder=Encoder(dim=256), statistics=("B",), grid=Grid(bits=8))
layout, rng = Layout.of(recipe), np.random.default_rng(0)
distinct = [
    Moments.of(rng.integers(-127, 128, size=(10, 256)), rng.integers(10, size=10), layout) for _ in range(20)
]

def arriving(count):
    for i in range(count):
        yield Message.from_bytes(Message.of(distinct[i % 20], recipe, f"site-{i}").to_bytes(), recipe)

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
Total.of(arriving(100), recipe)
before = peak()
total = Total.of(arriving(10_000), recipe)
once = sum(distinct, start=Moments.zeros(layout))
assert all(np.array_equal(total.moments.blocks[k], 500 * once.blocks[k]) for k in layout.shapes)
assert len(total.roster) == 10_000
print((peak() - before) / (8 * layout.entries))
"""


@pytest.mark.slow
def test_ten_thousand_messages_are_totalled_without_holding_them():
    """10 classes, 256 dimensions, LDA's statistics, in a process of its own: memory grows by the roster, not by them."""
    environment = {**os.environ, **KEEP_MEMORY}
    grown = float(run(sys.executable, "-c", TEN_THOUSAND, env=environment, seconds=240).stdout)
    assert grown < 100, "in units of one set of moments, of which 10,000 went by"


@pytest.mark.slow
@given(st.integers(1, 4), st.integers(0, 2**32 - 1), st.sampled_from([None, 3]))
def test_messages_in_files_add_up_to_the_same_total_as_messages_in_memory(tmp_path_factory, sites, seed, rounding):
    rng, folder = np.random.default_rng(seed), tmp_path_factory.mktemp("files")
    recipe = recipe_of(dim=23, privacy=Privacy(rounding=rounding))
    x, y = blobs(rng, rows=40, dim=23)
    messages = [Message.of(moments_of(recipe, x[i::sites], y[i::sites]), recipe, f"site-{i}") for i in range(sites)]
    aggregator = Aggregator(recipe)
    for message in messages:
        message.save(folder / message.id)
        entry = aggregator.add_file(folder / message.id)
        assert entry == Entry.of(message)
        with pytest.raises(RosterError, match="each is counted once"):
            aggregator.add_file(folder / message.id)
    assert aggregator.finish() == Total.of(messages, recipe)


def test_a_total_is_written_in_pieces_as_it_is_in_memory(tmp_path, rng):
    recipe = recipe_of(dim=97, classes=5)
    total = total_of(recipe, *blobs(rng, classes=5, dim=97), sites=3)
    total.save(tmp_path / "total.ghofl")
    assert (tmp_path / "total.ghofl").read_bytes() == total.to_bytes()
    assert Total.load(tmp_path / "total.ghofl") == total


def test_a_damaged_file_is_not_added(tmp_path, rng):
    recipe = recipe_of()
    message = Message.of(moments_of(recipe, *blobs(rng)), recipe, "north")
    data = bytearray(message.to_bytes())
    data[-3] ^= 1
    (tmp_path / "north").write_bytes(data)
    aggregator = Aggregator(recipe)
    with pytest.raises(MessageError, match="do not match the header's sha256"):
        aggregator.add_file(tmp_path / "north")
    assert aggregator.total() == Aggregator(recipe).total()


def test_totals_of_two_secure_rounds_are_joined_once(rng):
    recipe = recipe_of(privacy=Privacy(secure=True))
    x, y = blobs(rng)
    parts = [as_vector(moments_of(recipe, x[i::2], y[i::2]), recipe) for i in range(2)]
    early, late = (Total.of_round(vector, recipe, [name]) for vector, name in zip(parts, "ab", strict=True))
    both = early.join(late)
    assert both == early + late
    assert both.moments == moments_of(recipe, x, y)
    assert [entry.site for entry in both.roster] == ["a", "b"]
    with pytest.raises(RosterError, match="'a' are in both totals"):
        both.join(early)


def test_files_of_messages_and_totals_never_lie_in_memory_as_a_whole(tmp_path, rng):
    """A message of many matrices is added, and the total written, in the memory of the total and a few slabs."""
    recipe = recipe_of(dim=500, classes=60, bits=8, scale=20.0)
    x, y = rng.normal(size=(2400, 500)) + 1.0, np.arange(2400) % 60
    Message.of(moments_of(recipe, x, y), recipe, "north").save(tmp_path / "north")
    whole = 8 * Layout.of(recipe).entries
    assert (tmp_path / "north").stat().st_size > whole / 5
    aggregator = Aggregator(recipe)
    tracemalloc.start()
    try:
        aggregator.add_file(tmp_path / "north")
        total = aggregator.finish()
        total.save(tmp_path / "total")
        assert tracemalloc.get_traced_memory()[1] - whole < 30e6 < whole / 2
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert Total.load(tmp_path / "total") == total
        assert tracemalloc.get_traced_memory()[1] - before < whole + 35e6
    finally:
        tracemalloc.stop()


@given(split_datasets(), st.integers(1, 5))
def test_a_tree_of_partial_totals_is_the_total_of_all(dataset, width):
    layout, _, x, y, parts = dataset
    recipe = recipe_of(classes=max(2, layout.classes), dim=layout.dim)
    plain = Layout.of(recipe)
    x = np.clip(x, -plain.bound, plain.bound)
    messages = [Message.of(Moments.of(x[p], y[p], plain), recipe, f"site-{i}") for i, p in enumerate(parts)]
    level = [Total.of(messages[i : i + width], recipe) for i in range(0, len(messages), width)]
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [pair[0].join(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    whole = Total.of(messages, recipe)
    assert level[0].moments.sha256 == whole.moments.sha256
    assert level[0] == whole


def test_totals_that_share_a_message_are_not_joined():
    recipe = recipe_of()
    nameless = Message.of(Moments.zeros(Layout.of(recipe)), recipe)
    with pytest.raises(RosterError, match="in both totals"):
        Total.of([nameless], recipe).join(Total.of([nameless], recipe))
