import json
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from federations import blobs, layouts, moments_of, recipe_of, sketched_recipe
from ghofl import Encoder, Features, Grid, Layout, Limits, Message, Moments, Privacy, Projection, Recipe
from ghofl.errors import MessageError
from ghofl.outbox import counting
from ghofl.privacy import allowances, as_vector
from ghofl.wire.envelope import Tensor, peek, seal, size_limit
from ghofl.wire.message import MAX_HEADER
from ghofl.wire.packing import HEAD, unpack
from ghofl.wire.plausible import check_plausible, check_possible

RECIPE = recipe_of(statistics=("D", "B"))


def message_of(recipe=RECIPE, site="north") -> Message:
    x, y = blobs(np.random.default_rng(0))
    return Message.of(moments_of(recipe, x, y), recipe, site)


def changed(data: bytes, edit_header=None, edit_tensors=None) -> bytes:
    """The message written again with other contents, by a sender who knows the format."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["ghofl"])
    tensors = load(data)
    if edit_header:
        edit_header(header)
    if edit_tensors:
        tensors = edit_tensors(dict(tensors))
    return seal({name: Tensor.of(array) for name, array in tensors.items()}, header)


def with_moments(edit, recipe=RECIPE) -> bytes:
    """A well-formed message of moments that no rows could have made."""
    moments = message_of(recipe).moments
    blocks = {name: block.copy() for name, block in moments.blocks.items()}
    edit(blocks)
    return Message(recipe.fingerprint, "0" * 32, "evil", Moments(moments.layout, blocks)).to_bytes()


@pytest.mark.parametrize(
    "recipe",
    [recipe_of(statistics=s) for s in ((), ("D",), ("B",), ("D", "B"), ("S",))]
    + [sketched_recipe(), recipe_of(projection=Projection(dim=2))],
    ids=lambda r: ",".join(r.statistics),
)
def test_a_message_survives_bytes(recipe):
    message = message_of(recipe)
    assert Message.from_bytes(message.to_bytes(), recipe) == message


def test_a_message_survives_a_file(tmp_path):
    message = message_of()
    message.save(tmp_path / "north.ghofl")
    assert Message.load(tmp_path / "north.ghofl", RECIPE) == message
    assert peek(tmp_path / "north.ghofl")["site"] == "north"


def test_two_messages_of_the_same_moments_have_different_ids():
    assert message_of().id != message_of().id


def test_a_message_is_a_plain_safetensors_file():
    message = message_of()
    (entries,) = load(message.to_bytes()).values()
    assert np.array_equal(unpack(entries, message.moments.layout.entries), as_vector(message.moments, RECIPE))


def headed(text, encoding="utf-8"):
    """A file of nothing but a header."""
    header = text.encode(encoding)
    return len(header).to_bytes(8, "little") + header


def bomb(squeezed: int) -> np.ndarray:
    """A slab of bytes whose stream of so many bytes inflates to a thousand times as many."""
    stream = zlib.compress(bytes(1000 * squeezed), 9)
    assert len(stream) < 1.1 * squeezed
    return np.frombuffer(bytes([1]) + len(stream).to_bytes(HEAD - 1, "little") + stream, np.uint8)


HOSTILE_BYTES = [
    ("nothing", lambda d: b"", "too few"),
    ("truncated header", lambda d: d[:100], "truncated"),
    ("truncated body", lambda d: d[:-1], "truncated"),
    ("huge header", lambda d: (2**62).to_bytes(8, "little") + d[8:], "but another kind of file"),
    ("header longer than the file", lambda d: (60_000).to_bytes(8, "little") + d[8:500], "of a file of"),
    ("text", lambda d: b"Dear server, please find attached our data.", "not a ghofl message"),
    ("not JSON", lambda d: d[:8] + b"{" * 50 + d[58:], "not JSON"),
    ("flipped bit in the body", lambda d: d[:-1] + bytes([d[-1] ^ 1]), "sha256"),
    ("too long", lambda d: d + bytes(10**6), "this recipe allows"),
    ("zstd", lambda d: b"\x28\xb5\x2f\xfd" + d, "but another kind of file"),
    ("bytes behind the tensors", lambda d: d + b"x", "1 bytes belong to no tensor"),
    ("other metadata", lambda d: save(load(d), metadata={"x": "y"}), "without ghofl's metadata"),
    ("no metadata", lambda d: save(load(d)), "without ghofl's metadata"),
    (
        "half a character in the metadata",
        lambda d: headed(r'{"__metadata__":{"ghofl":"\ud800"}}'),
        "metadata is not JSON",
    ),
    (
        "a header in another encoding",
        lambda d: headed('{"__metadata__":{"ghofl":"{}"}}', "utf-16"),
        "header is not JSON",
    ),
]
HOSTILE_HEADERS = [
    ("an unknown field", {"weight": 7}, "has the fields"),
    ("newer schema", {"schema": 99}, "schema 99 is newer than 2"),
    (
        "older schema",
        {"schema": 1},
        "schema 1 is older than 2, the one this ghofl reads; ask the site to send it again",
    ),
    ("strange schema", {"schema": "1"}, "not a version"),
    ("a total", {"kind": "total"}, "this file is a 'total'"),
    ("other recipe", {"recipe": "ab" * 32}, "made with recipe ababab"),
    ("no recipe", {"recipe": None}, "made with recipe None"),
    ("path as id", {"id": "../../etc/passwd"}, "not 32 hexadecimal digits"),
    ("id of another type", {"id": 3}, "not 32 hexadecimal digits"),
    ("control characters in the site", {"site": "a\x1b[2J"}, "names are printable"),
    ("long site", {"site": "a" * 65}, "names of up to 64 characters"),
    ("other layout", {"layout": {"classes": 3}}, "form 'None'"),
    ("square matrices", {"layout": {"matrices": "full"}}, "travel as their 'upper triangle'"),
    ("wrong row count", {"rows": 10**9}, "header counts 1000000000 rows"),
    ("a name in two directions", {"site": "north\u202egnp"}, "names are printable"),
    ("an invisible character", {"site": "no\u200brth"}, "names are printable"),
    ("a surrogate", {"site": "\ud800"}, "names are printable"),
    ("a name not in normal form", {"site": "Zu\u0308rich"}, "names are printable"),
    ("a share beyond one", {"clipped": 1.5}, "share of clipped entries is 1.5"),
    ("a share of another type", {"clipped": True}, "share of clipped entries is True"),
]
HOSTILE_TENSORS = [
    ("float tensor", lambda t: {"entries": np.zeros(3, np.float32)}, "dtype F32"),
    ("matrix tensor", lambda t: {"entries": np.zeros((2, 2), np.uint8)}, "packed integers are one vector"),
    ("missing tensor", lambda t: {}, r"has the tensors \[\]; expected one, 'entries'"),
    ("extra tensor", lambda t: {**t, "S": np.zeros(3, np.uint8)}, "has the tensors"),
    ("too few entries", lambda t: {"entries": t["entries"][:-1]}, "are not there"),
    (
        "bytes behind the entries",
        lambda t: {"entries": np.append(t["entries"], np.uint8(0))},
        "1 bytes follow the last",
    ),
    ("a stream that inflates to more", lambda t: {"entries": bomb(300)}, "inflate to more than"),
    ("a stream longer than any", lambda t: {"entries": bomb(3000)}, "which cannot be"),
]
HOSTILE_MOMENTS = [
    ("negative count", lambda b: b["N"].__setitem__(0, -1), "count of -1"),
    ("count beyond the ring", lambda b: b["N"].__setitem__(0, 2**60), "the recipe allows 1,000,000 of one site"),
    ("sum beyond its count", lambda b: b["A"].__setitem__((0, 0), 10**12), "an entry of A"),
    ("square beyond its count", lambda b: b["D"].__setitem__((0, 0), 10**15), "an entry of D"),
    ("negative square", lambda b: b["D"].__setitem__((0, 0), -1), "squares in D"),
    ("squares under the sums", lambda b: b["D"].__setitem__((0, 0), 1), "squares in D"),
    ("second moment beyond its count", lambda b: b["B"].__setitem__(1, 10**15), "an entry of B"),
    ("negative diagonal", lambda b: b["B"].__setitem__(0, -5), "squares in B"),
    ("rows of a class without rows", lambda b: b["N"].__setitem__(2, 0), "an entry of A"),
]


@pytest.mark.parametrize(("edit", "says"), [c[1:] for c in HOSTILE_BYTES], ids=[c[0] for c in HOSTILE_BYTES])
def test_hostile_bytes_give_one_clear_error(edit, says):
    with pytest.raises(MessageError, match=says):
        Message.from_bytes(edit(message_of().to_bytes()), RECIPE)


@pytest.mark.parametrize(("values", "says"), [c[1:] for c in HOSTILE_HEADERS], ids=[c[0] for c in HOSTILE_HEADERS])
def test_a_hostile_header_gives_one_clear_error(values, says):
    with pytest.raises(MessageError, match=says):
        Message.from_bytes(changed(message_of().to_bytes(), lambda h: h.update(values)), RECIPE)


@pytest.mark.parametrize(("edit", "says"), [c[1:] for c in HOSTILE_TENSORS], ids=[c[0] for c in HOSTILE_TENSORS])
def test_hostile_tensors_give_one_clear_error(edit, says):
    with pytest.raises(MessageError, match=says):
        Message.from_bytes(changed(message_of().to_bytes(), edit_tensors=edit), RECIPE)


@pytest.mark.parametrize(("edit", "says"), [c[1:] for c in HOSTILE_MOMENTS], ids=[c[0] for c in HOSTILE_MOMENTS])
def test_moments_that_no_rows_could_have_made_are_refused(edit, says):
    with pytest.raises(MessageError, match=says):
        Message.from_bytes(with_moments(edit), RECIPE)


@pytest.mark.parametrize("name", ["S", "Z"])
def test_class_second_moments_beyond_their_count_are_refused(name):
    recipe = recipe_of(statistics=("S",)) if name == "S" else sketched_recipe()
    with pytest.raises(MessageError, match=f"an entry of {name}"):
        Message.from_bytes(with_moments(lambda b: b[name].__setitem__((0, 1), 10**16), recipe), recipe)


@given(layouts(), st.integers(0, 2**32))
def test_moments_of_any_rows_on_the_grid_are_plausible(layout, seed):
    rng = np.random.default_rng(seed)
    x = rng.choice([-layout.bound, 0, layout.bound], size=(20, layout.dim))
    check_plausible(Moments.of(x, rng.integers(layout.classes, size=20), layout))


@given(st.binary(max_size=400))
def test_random_bytes_never_crash_the_reader(data):
    with pytest.raises(MessageError):
        Message.from_bytes(data, RECIPE)


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_one_changed_byte_is_refused_wherever_it_is(position, change):
    data = bytearray(message_of().to_bytes())
    data[position % len(data)] ^= change
    with pytest.raises(MessageError):
        Message.from_bytes(bytes(data), RECIPE)


@pytest.mark.parametrize("field", ["site", "id", "clipped", "rows"])
def test_the_checksum_covers_the_header(field):
    data = message_of().to_bytes()
    size = int.from_bytes(data[:8], "little")
    text = data[8 : 8 + size].decode()
    start = text.index(f'\\"{field}\\": ') + len(field) + 6
    at = start + next(i for i, c in enumerate(text[start:]) if c.isalnum())
    other = text[:at] + ("1" if text[at] != "1" else "2") + text[at + 1 :]
    with pytest.raises(MessageError):
        Message.from_bytes(data[:8] + other.encode() + data[8 + size :], RECIPE)


@pytest.mark.parametrize("statistics", [("B",), ("S",), ("Z",)], ids="".join)
def test_second_moments_that_no_rows_have_are_refused_on_arrival(statistics, rng):
    """Every entry within its count, and yet no scatter: a negative variance in some direction."""
    recipe = sketched_recipe() if statistics == ("Z",) else recipe_of(statistics=statistics)

    def twist(blocks):
        block = blocks[statistics[0]].reshape(-1, blocks[statistics[0]].shape[-1])
        dim = 3 if statistics == ("Z",) else 6
        on = np.cumsum([0, *range(dim, 1, -1)])
        middle = np.sqrt(block[0, on[0]].astype(float) * block[0, on[1]])
        block[0, 1] = int(1.5 * middle)  # a correlation of 1.5 between the first two features

    hostile = with_moments(twist, recipe)
    with pytest.raises(MessageError, match=f"second moments in {statistics[0]}"):
        Message.from_bytes(hostile, recipe)
    assert Message.from_bytes(hostile, recipe, is_own=True).site == "evil", "nobody tries what a process made itself"


@pytest.mark.parametrize("rounding", [None, 6, 12])
@pytest.mark.parametrize("statistics", [("B",), ("S",), ("Z",)], ids="".join)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_second_moments_of_any_rows_are_possible(statistics, rounding, seed, rows):
    """Constant features, one row, fewer rows than dimensions, rows at the edge of the grid: all pass."""
    privacy = Privacy(rounding=rounding)
    recipe = (
        sketched_recipe(privacy=privacy) if statistics == ("Z",) else recipe_of(statistics=statistics, privacy=privacy)
    )
    rng = np.random.default_rng(seed)
    x = rng.choice([-99.0, 0.0, 0.3, 99.0], size=(rows, 6)) * rng.integers(0, 2, size=6)
    message = Message.of(moments_of(recipe, x, rng.integers(4, size=rows)), recipe)
    assert Message.from_bytes(message.to_bytes(), recipe) == message


def test_second_moments_that_were_cut_for_whole_clients_are_possible(rng):
    privacy = Privacy(radius=4.0, epsilon=1.0, delta=1e-5, unit="client", client_rows=2)
    recipe = recipe_of(statistics=("B",), privacy=privacy)
    for _ in range(20):
        message = Message.of(moments_of(recipe, *blobs(rng, rows=int(rng.integers(1, 60)))), recipe)
        assert Message.from_bytes(message.to_bytes(), recipe) == message


@pytest.mark.parametrize("name", ["S", "B"])
def test_a_count_below_zero_that_cutting_would_allow_is_refused_beside_exact_sums(rng, name):
    privacy = Privacy(radius=4.0, epsilon=8.0, delta=1e-6, unit="client", client_rows=5)
    recipe = recipe_of(bits=8, statistics=(name,), privacy=privacy)
    moments = Message.of(moments_of(recipe, *blobs(rng)), recipe).moments
    moments.blocks["N"][2] = -1
    with pytest.raises(MessageError, match="a count of -1"):
        check_possible(moments, recipe)


@pytest.mark.parametrize("classes", [2, 10, 30])
@pytest.mark.parametrize("client_rows", [1, 5, 20, 50])
@pytest.mark.parametrize("each", [2, 5, 10])
def test_cut_second_moments_of_many_classes_that_hardly_vary_are_possible(rng, classes, client_rows, each):
    """Counts are rounded in every class, each in the direction of the mean that all of them share."""
    privacy = Privacy(radius=1.2, epsilon=1.0, delta=1e-5, unit="client", client_rows=client_rows)
    names = tuple(f"c{i}" for i in range(classes))
    recipe = Recipe(names, Encoder(dim=8), ("B",), grid=Grid(8, 100.0), privacy=privacy)
    shared = np.abs(rng.normal(size=8))
    x = shared / np.linalg.norm(shared) + 0.01 * np.repeat(rng.normal(size=(classes, 8)), each, axis=0)
    rows = Features.of(recipe).rows(x)[0]
    moments = Moments.of(rows, np.repeat(np.arange(classes), each), Layout.of(recipe))
    sent = Message.of(moments, recipe, "north")
    assert Message.from_bytes(sent.to_bytes(), recipe) == sent


def test_a_message_of_more_rows_than_one_site_may_have_is_neither_made_nor_read():
    few = replace(RECIPE, limits=Limits(max_rows=299))
    with pytest.raises(MessageError, match="300 rows are more than the 299"):
        message_of(few)
    data = Message(few.fingerprint, "0" * 32, "evil", message_of().moments).to_bytes()
    with pytest.raises(MessageError, match="counts 300 rows and the recipe allows 299"):
        Message.from_bytes(data, few)
    assert message_of(replace(RECIPE, limits=Limits(max_rows=300))).rows == 300


def test_rows_that_are_too_many_are_refused_before_they_are_added_up(monkeypatch):
    """A million rows take minutes, and their site should not wait for a refusal."""
    few = replace(RECIPE, limits=Limits(max_rows=3))
    rows = counting.Embedded(np.zeros((4, RECIPE.encoder.dim)), np.zeros(4, dtype=np.int64))
    monkeypatch.setattr(counting, "count", lambda *_: pytest.fail("the rows were added up"))
    with pytest.raises(MessageError, match="4 rows are more than the 3"):
        counting.outgoing(few, rows, "north")


def test_under_an_epsilon_more_rows_than_a_site_may_have_are_cut_and_not_refused():
    """A refusal would be an answer without noise about the number of rows."""
    local = Privacy(radius=20.0, epsilon=1.0, delta=1e-5, noise="local")
    few = replace(RECIPE, privacy=local, limits=Limits(max_rows=50))
    message = message_of(few)
    assert Message.from_bytes(message.to_bytes(), few) == message
    assert message.rows < 4 * (50 + allowances(few, 1)["N"])


def test_the_share_of_clipped_entries_travels_unless_there_is_noise(rng):
    x, y = blobs(rng)
    local = Privacy(radius=4.0, epsilon=1.0, delta=1e-5, noise="local")
    for recipe, told in ((RECIPE, True), (replace(RECIPE, privacy=local), False)):
        q, clipping = Features.of(recipe).rows(10 * x)
        moments = Moments.of(q, y, Layout.of(recipe))
        message = Message.of(moments, recipe, "north", clipping=clipping)
        again = Message.from_bytes(message.to_bytes(), recipe)
        assert clipping.share > 0.1
        assert again.clipped == (clipping.share if told else None)


@pytest.mark.parametrize("kind", ["stream", "header"])
def test_a_bomb_is_refused_without_a_large_allocation(kind):
    recipe = recipe_of(dim=256)
    data = (10**12).to_bytes(8, "little") + b"{}" * 1000
    if kind == "stream":
        data = Message.of(Moments.zeros(Layout.of(recipe)), recipe).to_bytes()
        data = changed(data, edit_tensors=lambda t: {"entries": bomb(200_000)})
    tracemalloc.start()
    with pytest.raises(MessageError):
        Message.from_bytes(data, recipe)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * size_limit(Layout.of(recipe), MAX_HEADER) < 10**7


def test_a_file_too_large_for_the_recipe_is_not_read(tmp_path):
    with open(tmp_path / "big", "wb") as file:
        file.truncate(10**10)  # sparse: takes no disk
    with pytest.raises(MessageError, match="more than the"):
        Message.load(tmp_path / "big", RECIPE)


def test_a_duplicate_key_in_the_header_is_refused():
    data = message_of().to_bytes()
    size = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + size].rstrip()
    doubled = header[:-1] + b',"entries":' + json.dumps(json.loads(header)["entries"]).encode() + b"}"
    with pytest.raises(MessageError, match="not JSON"):
        Message.from_bytes(len(doubled).to_bytes(8, "little") + doubled + data[8 + size :], RECIPE)


def test_moments_of_another_recipe_make_no_message():
    with pytest.raises(MessageError, match="are not of this recipe"):
        Message.of(Moments.zeros(Layout(2, 2)), RECIPE)
    with pytest.raises(MessageError, match="site name"):
        Message.of(message_of().moments, RECIPE, "tab\there")
