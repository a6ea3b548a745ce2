"""Bytes from anyone: a value, or the package's error, and never anything else."""

import struct
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghofl.secure import STAGES, Agreement, ClientState, SecureError, ServerState, WireError, messages, receive
from ghofl.secure.messages import read
from ghofl.secure.wire import from_bytes, to_bytes

LETTERS = {"share": "KeyList", "mask": "Inbox", "endorse": "Survivors", "reveal": "Endorsements"}
REPLIES = dict(zip(STAGES, ("Advertisement", "Shares", "MaskedVector", "Endorsement", "Reveal"), strict=True))


@dataclass(frozen=True)
class Inner:
    flag: bool
    text: str


@dataclass(frozen=True)
class Outer:
    number: int
    content: bytes
    inner: tuple[Inner, ...]


inners = st.builds(Inner, st.booleans(), st.text(max_size=5))
outers = st.builds(Outer, st.integers(0, 2**64 - 1), st.binary(max_size=9), st.lists(inners, max_size=3).map(tuple))


@given(outers)
def test_a_value_comes_back_from_its_bytes(value):
    assert from_bytes(Outer, to_bytes(value), limit=1000) == value


@given(outers, st.integers(0, 200))
def test_every_truncation_and_every_extension_is_refused(value, cut):
    data = to_bytes(value)
    with pytest.raises(WireError):
        from_bytes(Outer, data[: min(cut, len(data) - 1)], limit=1000)
    with pytest.raises(WireError, match="do not belong"):
        from_bytes(Outer, data + b"\0", limit=1000)


@given(st.binary(max_size=80))
def test_random_bytes_after_a_good_header_give_a_value_or_the_package_error(noise):
    try:
        value = from_bytes(Outer, b"ghofl-secure/1 Outer\n" + noise, limit=1000)
    except WireError:
        return
    assert to_bytes(value) == b"ghofl-secure/1 Outer\n" + noise


@pytest.mark.parametrize("length", [2**32, 2**63, 2**64 - 1])
def test_a_length_far_beyond_the_bytes_is_refused_before_anything_is_allocated(length):
    header = b"ghofl-secure/1 Outer\n" + bytes(8)
    with pytest.raises(WireError, match=str(length)):
        from_bytes(Outer, header + struct.pack("<Q", length), limit=1000)
    with pytest.raises(WireError, match=str(length)):
        from_bytes(Outer, header + bytes(8) + struct.pack("<Q", length), limit=1000)


def test_too_many_bytes_are_refused_unread():
    with pytest.raises(WireError, match="1001 bytes came; at most 1000"):
        from_bytes(Outer, bytes(1001), limit=1000)


def reply_of(laid, stage):
    return laid.answer("site-01", stage)[1]


@pytest.mark.parametrize("stage", STAGES)
def test_the_server_refuses_every_reply_that_is_truncated_padded_too_large_or_of_another_kind(table, stage):
    laid = table(stage)
    reply = reply_of(laid, stage)
    receive(laid.server, "site-01", reply)
    for cut in {0, 10, 40, len(reply) // 2, len(reply) - 1}:
        with pytest.raises(WireError):
            receive(laid.server, "site-01", reply[:cut])
    other = reply_of(table("share" if stage == "mask" else "mask"), "share" if stage == "mask" else "mask")
    for bad in (reply + b"\0", reply + bytes(2**20), other, b"", b"{}"):
        with pytest.raises(WireError):
            receive(laid.server, "site-01", bad)


@pytest.mark.parametrize("stage", STAGES)
def test_the_server_refuses_replies_of_another_round_and_of_unknown_seats(table, stage):
    laid, other = table(stage), table(stage, round_id="another")
    with pytest.raises(WireError, match="another round"):
        receive(laid.server, "site-01", reply_of(other, stage))
    reply = reply_of(laid, stage)
    at = reply.index(laid.agreement.digest) + 32
    for seat in (5, 2**64 - 1):
        with pytest.raises(WireError, match="names seat"):
            receive(laid.server, "site-01", reply[:at] + struct.pack("<Q", seat) + reply[at + 8 :])


@pytest.mark.parametrize("stage", STAGES)
def test_the_server_refuses_a_reply_that_came_over_the_connection_of_another_client(table, stage):
    laid = table(stage)
    with pytest.raises(WireError, match="of 'site-01' came from 'site-02'"):
        receive(laid.server, "site-02", reply_of(laid, stage))


@pytest.mark.parametrize("stage", STAGES[1:])
def test_a_client_refuses_every_letter_that_is_truncated_padded_or_of_another_round_or_kind(table, stage):
    laid, other = table(stage), table(stage, round_id="another")
    letter = laid.letters["site-01"]
    laid.answer("site-01", stage, letter)
    for bad in (b"", letter[:30], letter[:-1], letter + b"\0", letter + bytes(2**20), reply_of(laid, stage)):
        with pytest.raises(WireError):
            laid.answer("site-01", stage, bad)
    with pytest.raises(WireError, match="another round"):
        laid.answer("site-01", stage, other.letters["site-01"])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(STAGES), st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_anywhere_gives_a_value_or_the_package_error(stages, stage, where, change):
    laid, reply = stages[stage]
    data = bytearray(reply)
    data[where % len(data)] ^= change
    try:
        receive(laid.server, "site-01", bytes(data))
    except SecureError:
        return


@pytest.fixture(scope="module")
def stages(table):
    """One table a stage with a good reply to it, laid once because hypothesis asks many times."""
    return {stage: (laid, reply_of(laid, stage)) for stage in STAGES for laid in [table(stage)]}


@pytest.mark.parametrize("kind", [*LETTERS.values(), *REPLIES.values()])
def test_every_message_kind_refuses_noise(table, kind):
    rng = np.random.default_rng(7)
    agreement = table().agreement
    for size in (0, 1, 8, 100, 1000):
        noise = f"ghofl-secure/1 {kind}\n".encode() + rng.bytes(size)
        with pytest.raises(WireError):
            read(getattr(messages, kind), noise, agreement)


@pytest.mark.parametrize("stage", STAGES[1:])
def test_states_come_back_from_their_bytes_and_refuse_others(table, stage):
    laid = table(stage)
    state, saved = laid.clients["site-01"], laid.clients["site-01"].to_bytes()
    assert ClientState.from_bytes(saved) == state
    assert ServerState.from_bytes(laid.server.to_bytes()).to_bytes() == laid.server.to_bytes()
    assert Agreement.from_bytes(laid.agreement.to_bytes()) == laid.agreement
    for kind, data in ((ClientState, saved), (ServerState, laid.server.to_bytes()), (Agreement, saved)):
        for bad in (b"", data[:-1], data + b"\0", data[: len(data) // 2], bytes(100)):
            with pytest.raises(WireError):
                kind.from_bytes(bad)


def test_states_that_do_not_fit_their_round_are_refused(table):
    laid = table("mask")
    client, server = laid.clients["site-01"].to_bytes(), laid.server.to_bytes()
    with pytest.raises(WireError, match="damaged"):
        ClientState.from_bytes(client.replace(b"\6\0\0\0\0\0\0\0shared", b"\6\0\0\0\0\0\0\0sharks"))
    with pytest.raises(WireError, match="damaged"):
        ServerState.from_bytes(server.replace(b"masking", b"fasting"))


def test_an_announced_round_with_impossible_numbers_is_refused_as_bad_bytes(table):
    agreement = table().agreement
    data = agreement.to_bytes()
    at = data.index(agreement.seed) + 32
    with pytest.raises(WireError, match="0 entries"):
        Agreement.from_bytes(data[:at] + bytes(8) + data[at + 8 :])
    with pytest.raises(WireError, match="came with"):
        Agreement.from_bytes(data[: at + 8] + struct.pack("<Q", 4) + data[at + 16 :])


def test_sets_of_clients_with_unknown_seats_or_another_length_are_refused(table):
    agreement = table().agreement
    assert agreement.marks(agreement.bitmap([1, 4])).tolist() == [False, True, False, False, True]
    with pytest.raises(WireError, match="beyond the 5"):
        agreement.marks(b"\xff")
    with pytest.raises(WireError, match="in 2 bytes"):
        agreement.marks(b"\0\0")
