"""Parts of a site's rows, added up apart, make the message of one process; a part itself never passes for a message."""

import os
import stat

import hostile
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cli import folder, ghofl  # noqa: F401

from ghofl import Encoder, Features, Grid, Lift, Message, Recipe, Total
from ghofl.errors import EmbeddingsError, GhoflError, MessageError, MomentsOverflowError, PrivacyError, RosterError
from ghofl.outbox import Counted, Embedded, count, outgoing
from ghofl.outbox.partial_sums import Part, Place, check_own_rows, merge, part_of
from ghofl.recipe import Limits, Privacy

RECIPE = Recipe(tuple("abc"), Encoder(dim=4), ("S",), grid=Grid(bits=6, scale=20.0))


def rows_of(rng, rows=60, dim=4):
    return Embedded(rng.normal(size=(rows, dim)), rng.integers(3, size=rows))


def parts_of(rows, parts, recipe=RECIPE):
    for number in range(1, parts + 1):
        some, source = part_of(rows, Place(number, parts))
        yield Part.of(recipe, some, Place(number, parts), source)


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.integers(0, 40), st.integers(1, 6), st.booleans())
def test_merged_parts_are_the_moments_of_one_process_in_any_order(seed, rows, parts, is_lifted):
    recipe = Recipe(tuple("abc"), Encoder(dim=4), ("B",), lift=Lift(dim=6)) if is_lifted else RECIPE
    rng = np.random.default_rng(seed)
    given_rows = rows_of(rng, rows)
    whole, found = count(Features.of(recipe), given_rows), list(parts_of(given_rows, parts, recipe))
    read = [Part.from_bytes(part.to_bytes(), recipe) for part in rng.permutation(np.array(found, dtype=object))]
    merged = merge(read, recipe)
    assert merged.moments.sha256 == whole.moments.sha256
    assert merged.clipping == whole.clipping


@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_places_share_out_every_row_once(rows, parts):
    spans = [Place(number, parts).of_rows(rows) for number in range(1, parts + 1)]
    assert [span.start for span in spans[1:]] == [span.stop for span in spans[:-1]]
    assert (spans[0].start, spans[-1].stop) == (0, rows)
    assert max(s.stop - s.start for s in spans) - min(s.stop - s.start for s in spans) <= 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "1/2/3", "-1/2", "1/1000000", "١/٢", " 1/2"])
def test_a_place_that_is_not_there_is_refused(text):
    with pytest.raises(EmbeddingsError, match="part"):
        Place.parse(text)


def test_a_part_that_is_missing_or_comes_twice_or_is_of_other_rows_is_refused(rng):
    rows = rows_of(rng)
    first, second, third = parts_of(rows, 3)
    with pytest.raises(RosterError, match="2 of 3 parts came; missing are 2"):
        merge([first, third], RECIPE)
    with pytest.raises(RosterError, match="part 1 of 3 came twice"):
        merge([first, second, first, third], RECIPE)
    with pytest.raises(RosterError, match="are of different divisions"):
        merge([first, next(parts_of(rows, 4))], RECIPE)
    other = Embedded(rows.x, (rows.y + 1) % 3)
    with pytest.raises(RosterError, match="other rows"):
        merge([first, list(parts_of(other, 3))[1]], RECIPE)
    with pytest.raises(RosterError, match="there are no parts"):
        merge([], RECIPE)
    with pytest.raises(MessageError, match="recipe"):
        merge([first], Recipe(tuple("abc"), Encoder(dim=4), ("B",)))


def test_sums_of_parts_that_would_leave_the_integers_are_refused():
    recipe = Recipe(("a", "b"), Encoder(dim=1), ("D",), grid=Grid(bits=16), limits=Limits(max_rows=2**32))
    rows = np.full((5, 1), 1e9)
    parts = list(parts_of(Embedded(rows, np.zeros(5, dtype=np.int64)), 2, recipe))
    many = [Part(p.fingerprint, p.place, Counted(p.counted.moments, p.counted.clipping), p.source) for p in parts]
    for part in many:
        for block in part.counted.moments.blocks.values():
            block *= 2**31
    with pytest.raises(MomentsOverflowError, match="part 2"):
        merge(many, recipe)


def test_a_part_is_refused_wherever_a_message_is_read(rng, tmp_path):
    part = next(parts_of(rows_of(rng), 1))
    part.save(tmp_path / "part.ghofl")
    says = "this file is a 'part'.*must not leave its site.*ghofl merge"
    with pytest.raises(MessageError, match=says):
        Message.load(tmp_path / "part.ghofl", RECIPE)
    with pytest.raises(MessageError, match=says):
        Total.load(tmp_path / "part.ghofl")
    message = outgoing(RECIPE, part.counted, "north").message
    with pytest.raises(MessageError, match="this file is a 'message', and a 'part' was expected"):
        Part.from_bytes(message.to_bytes(), RECIPE)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_its_owner_may_read_a_part(rng, tmp_path):
    next(parts_of(rows_of(rng), 1)).save(tmp_path / "part.ghofl")
    assert stat.S_IMODE((tmp_path / "part.ghofl").stat().st_mode) == 0o600


def test_changed_parts_are_refused_or_are_parts_all_the_same(rng):
    """Of bytes that somebody changed none is accepted, and of rewritten headers only those that survive."""
    whole, accepted = next(parts_of(rows_of(rng), 2)).to_bytes(), 0
    for i in range(500):
        is_rewritten = bool(i % 2)
        data = (hostile.rewritten if is_rewritten else hostile.changed)(whole, rng)
        try:
            part = Part.from_bytes(data, RECIPE)
        except GhoflError as error:
            if not str(error).isprintable():
                raise AssertionError(f"an error with control characters: {error!r}") from error
            continue
        accepted += 1
        if is_rewritten:
            assert Part.from_bytes(part.to_bytes(), RECIPE).to_bytes() == part.to_bytes()
        else:
            assert data == whole
    assert accepted < 100


def test_moments_that_no_rows_have_are_refused_in_a_part(rng):
    part = next(parts_of(rows_of(rng), 1))
    part.counted.moments.blocks["S"][0, 0] = -1
    with pytest.raises(MessageError):
        Part.from_bytes(part.to_bytes(), RECIPE)


def test_parts_with_files_of_their_own_are_refused_where_persons_are_counted():
    counted = Recipe(("a", "b"), Encoder(dim=4), ("B",), privacy=Privacy(unit="person", person_rows=2))
    with pytest.raises(PrivacyError, match="--own-file"):
        check_own_rows(counted, "")
    with pytest.raises(PrivacyError, match="--own-file"):
        check_own_rows(RECIPE, "patient")
    check_own_rows(RECIPE, "")


def test_the_commands_give_the_message_of_one_process(folder, capsys):  # noqa: F811
    ghofl("recipe", "r.toml", "--embeddings", "all.npz", "--statistics", "S")
    ghofl("moments", "all.npz", "-r", "r.toml", "-o", "whole.ghofl", "--site", "north")
    for number in (1, 2, 3):
        said = ghofl("moments", "all.npz", "-r", "r.toml", "--part", f"{number}/3", "-o", f"part-{number}.ghofl")
        assert "Keep it at this site" in " ".join(said.split())
    ghofl("sum", "part-1.ghofl", "-r", "r.toml", "-o", "total.ghofl", code=2)
    assert "ghofl merge" in " ".join(capsys.readouterr().err.split())
    names = [f"part-{number}.ghofl" for number in (3, 1, 2)]
    ghofl("merge", *names[:2], "-r", "r.toml", "-o", "merged.ghofl", code=2)
    ghofl("merge", *names, "-r", "r.toml", "-o", "merged.ghofl", "--site", "north")
    recipe = Recipe.load("r.toml")
    whole, merged = Message.load("whole.ghofl", recipe), Message.load("merged.ghofl", recipe)
    assert merged.moments.sha256 == whole.moments.sha256
    assert (merged.site, merged.clipped) == (whole.site, whole.clipped)


def test_parts_with_files_of_their_own_give_the_message_of_all_files(folder):  # noqa: F811
    ghofl("recipe", "r.toml", "--embeddings", "all.npz")
    ghofl("moments", "all.npz", "-r", "r.toml", "-o", "whole.ghofl")
    ghofl("moments", "north.npz", "-r", "r.toml", "--part", "1/2", "--own-file", "-o", "1.ghofl")
    ghofl("moments", "south.npz", "-r", "r.toml", "--part", "2/2", "--own-file", "-o", "2.ghofl")
    ghofl("merge", "1.ghofl", "2.ghofl", "-r", "r.toml", "-o", "merged.ghofl")
    recipe = Recipe.load("r.toml")
    assert Message.load("merged.ghofl", recipe).moments == Message.load("whole.ghofl", recipe).moments
    ghofl("moments", "north.npz", "-r", "r.toml", "--own-file", "-o", "3.ghofl", code=2)


def test_noise_is_drawn_when_the_message_is_made_and_not_for_its_parts(folder):  # noqa: F811
    common = ("--embeddings", "all.npz", "--epsilon", "1", "--noise", "local", "--radius", "1", "--unit-length")
    ghofl("recipe", "r.toml", *common)
    for number in (1, 2):
        ghofl("moments", "all.npz", "-r", "r.toml", "--part", f"{number}/2", "-o", f"{number}.ghofl")
    recipe = Recipe.load("r.toml")
    with np.load("all.npz") as arrays:
        exact = count(Features.of(recipe), Embedded(arrays["x_train"], arrays["y_train"].astype(np.int64)))
    assert merge([Part.load(f"{n}.ghofl", recipe) for n in (1, 2)], recipe).moments == exact.moments
    for name in ("one", "two"):
        ghofl("merge", "1.ghofl", "2.ghofl", "-r", "r.toml", "-o", f"{name}.ghofl")
    one, two = Message.load("one.ghofl", recipe), Message.load("two.ghofl", recipe)
    assert one.moments != exact.moments
    assert one.moments != two.moments


def test_parts_of_two_files_that_have_the_same_labels_are_refused(rng):
    x, y = rng.normal(size=(300, 4)), rng.integers(2, size=300)
    recipe = Recipe(("a", "b"), Encoder(dim=4))
    first, second = (list(parts_of(Embedded(rows, y), 2, recipe)) for rows in (x, x + 1.0))
    assert merge(first, recipe).moments.rows == 300
    with pytest.raises(RosterError, match="part 2 of 2 was cut from other rows than part 1"):
        merge([first[0], second[1]], recipe)


def test_parts_with_rows_of_their_own_are_not_merged_where_persons_are_counted(rng):
    recipe = Recipe(("a", "b"), Encoder(dim=4), ("B",), privacy=Privacy(unit="person", person_rows=2))
    rows = Embedded(rng.normal(size=(20, 4)), rng.integers(2, size=20), rows_per_person=2)
    cut = [
        Part.of(recipe, *[part_of(rows, Place(n, 2))[0], Place(n, 2), part_of(rows, Place(n, 2))[1]]) for n in (1, 2)
    ]
    assert merge(cut, recipe).moments.rows == 20
    with pytest.raises(PrivacyError, match="does not see the person's rows"):
        merge([Part.of(recipe, rows, Place(1, 1))], recipe)


def test_what_is_about_the_message_is_not_taken_for_a_part(folder):  # noqa: F811
    ghofl("recipe", "r.toml", "--embeddings", "all.npz")
    ghofl("moments", "all.npz", "-r", "r.toml", "--part", "1/2", "--site", "north", "-o", "1.ghofl", code=2)
    assert not os.path.exists("1.ghofl")
