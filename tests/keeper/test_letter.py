"""A letter's bytes: one codec for a network, a socket and a file."""

import contextlib
import json
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghofl.errors import MessageError
from ghofl.flower.engine import from_records, to_records
from ghofl.keeper import unix_socket
from ghofl.wire import letter as letters
from ghofl.wire.letter import MAGIC, MOST_FIELDS, SIZES, Letter

pytest.importorskip("flwr")
VALUES = st.one_of(st.text(max_size=9), st.integers(), st.booleans(), st.binary(max_size=9))
LETTERS = st.builds(
    Letter,
    st.dictionaries(st.text(max_size=9), st.one_of(VALUES, st.lists(VALUES, max_size=4)), max_size=5),
    st.binary(max_size=200),
)
WHOLE = Letter({"a": "text", "b": b"\x00\xff", "c": [b"1", b""], "d": True, "e": 7, "f": []}, b"payload")


def through_a_socket(letter):
    here, there = socket.socketpair()
    with here, there:
        unix_socket.send(here, letter)  # a small one: the system holds it until it is read
        return Letter.of(*unix_socket.receive(there, 2**20, time.monotonic() + 30))


class Forged(Letter):
    """A letter with whatever fields somebody writes into its bytes."""

    @property
    def head(self):
        text = json.dumps(self.fields).encode()
        return MAGIC + SIZES.pack(len(text), len(self.payload)) + text


DOORS = {
    "bytes": lambda letter: Letter.from_bytes(letter.to_bytes()),
    "file": lambda letter: letters.of_file(letters.to_file(letter)),
    "socket": through_a_socket,
    "network": lambda letter: from_records(to_records(letter)),
}


@pytest.mark.parametrize("door", DOORS)
@given(letter=LETTERS)
def test_a_letter_comes_back_as_it_was_sent_by_every_door(door, letter):
    came = DOORS[door](letter)
    assert came == letter
    assert [type(value) for value in came.fields.values()] == [type(letter.fields[key]) for key in came.fields]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "odd", [{"x": None}, {"x": 1.5}, {"x": {"bytes": "a", "y": 1}}, {"x": {"other": "a"}}, {"x": [["a"]]},
            {str(i): 1 for i in range(MOST_FIELDS + 1)}], ids=range(6),
)  # fmt: skip
def test_fields_of_another_kind_and_too_many_are_refused_by_every_door(door, odd):
    with pytest.raises(MessageError, match="of a letter is neither|at most 32 are allowed"):
        DOORS[door](Forged(odd))


@pytest.mark.parametrize("odd", [None, 1.5, ("a",), [["a"]], [None], {"bytes": "a"}])
def test_a_letter_that_could_not_be_read_is_not_written(odd):
    with pytest.raises(MessageError, match="holds texts, whole numbers, bytes, or a list"):
        Letter({"x": odd}).to_bytes()


@given(st.data())
def test_bytes_that_are_cut_longer_or_changed_are_refused_or_another_letter_s(data):
    whole = WHOLE.to_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    for spoilt in (whole[:cut], whole + b"x", whole[:cut] + bytes([whole[cut] ^ 1]) + whole[cut + 1 :]):
        if len(spoilt) != len(whole):
            with pytest.raises(MessageError):
                Letter.from_bytes(spoilt)
        else:
            with contextlib.suppress(MessageError):  # and nothing else is raised
                Letter.from_bytes(spoilt)


@pytest.mark.parametrize("data", [b"", b"x" * 100, MAGIC + b"\xff" * 60, MAGIC + SIZES.pack(2, 0) + b"[]"])
def test_what_is_not_a_letter_is_said_not_to_be_one(data):
    for read in (Letter.from_bytes, letters.of_file):
        with pytest.raises(MessageError):
            read(data)


def test_a_file_that_was_damaged_is_told():
    data = bytearray(letters.to_file(WHOLE))
    data[40] ^= 1
    with pytest.raises(MessageError, match=r"north.letter was damaged on its way"):
        letters.of_file(bytes(data), "north.letter")
