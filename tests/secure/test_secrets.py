"""Keys, seeds and shares stay out of every text, and come from the generator they are asked from."""

import os
from inspect import signature

import pytest

from ghofl.secure import (
    STAGES,
    Identity,
    SecureError,
    Share,
    advertise,
    combine,
    keys,
    receive,
    split,
)
from ghofl.secure.keys import Secrets


def spellings(secret: bytes) -> list[str]:
    """The ways in which a secret could be written into a text."""
    numbers = [str(int.from_bytes(secret, order)) for order in ("little", "big")]
    return [repr(secret)[2:-1], secret.hex(), *numbers, *(hex(int(number))[2:] for number in numbers)]


def secrets_of(laid) -> list[bytes]:
    own = [getattr(state.secrets, name) for state in laid.clients.values() for name in Secrets.__slots__]
    return own + [identity.secret for identity in laid.identities.values()]


@pytest.mark.parametrize("stage", STAGES)
def test_no_state_or_message_shows_a_secret(table, stage):
    laid = table(stage)
    laid.play(stage)
    texts = [repr(laid.clients), str(laid.clients), repr(laid.server), repr(laid.identities), repr(laid.agreement)]
    for secret in secrets_of(laid):
        for spelling in spellings(secret):
            assert not any(spelling in text for text in texts)


def test_no_share_and_no_identity_shows_its_secret():
    share = split(b"s" * 32, [1, 2], 2)[0]
    assert str(share.value) not in repr(share)
    assert repr(share) == "Share(holder=1)"
    assert repr(Identity(b"k" * 32)) == "Identity()"
    assert repr(Secrets(*[b"k" * 32] * 4)) == "Secrets()"


@pytest.mark.parametrize("stage", STAGES)
def test_no_error_text_shows_a_secret_or_what_was_sent(table, stage):
    laid = table(stage)
    replies = {name: laid.answer(name, stage) for name in laid.identities}
    laid.clients |= {name: state for name, (state, _) in replies.items()}
    texts = []
    for name, (_, reply) in replies.items():
        for bad in (reply[:-1], reply[:-30] + bytes(30), reply + b"\0", reply[:60]):
            with pytest.raises(SecureError) as caught:
                receive(receive(laid.server, name, bad), name, reply)
            texts.append(str(caught.value))
        if stage != "advertise":
            with pytest.raises(SecureError) as caught:
                laid.answer(name, stage)
            texts.append(str(caught.value))
    for secret in secrets_of(laid):
        assert not any(spelling in text for spelling in spellings(secret) for text in texts)


def test_errors_about_secrets_say_how_long_they_are_and_not_what(table):
    for call in (
        lambda: Identity(b"secret"),
        lambda: Secrets(b"secret", *[bytes(32)] * 3),
        lambda: split(b"secret", [1], 1),
        lambda: Share(1, 2**257 + 12345),
        lambda: Share.of_content(1, b"secret"),
        lambda: combine([Share(1, 2**256 + 5)], 1),
    ):
        with pytest.raises(SecureError) as caught:
            call()
        assert "secret'" not in str(caught.value)
        assert "12345" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_secrets_come_from_the_operating_system_unless_told_otherwise():
    for function in (Identity.fresh, Secrets.fresh, split, advertise):
        assert signature(function).parameters["entropy"].default is os.urandom


def test_two_rounds_of_one_client_share_no_secret(table):
    first, second = (table("share").clients["site-01"].secrets for _ in range(2))
    values = [getattr(one, name) for one in (first, second) for name in Secrets.__slots__]
    assert len(set(values)) == 8


def test_signatures_bind_content_and_identity():
    ann, bob = Identity(b"a" * 32), Identity(b"b" * 32)
    assert keys.is_signed(ann.public, ann.sign(b"x"), b"x")
    assert not keys.is_signed(ann.public, ann.sign(b"x"), b"y")
    assert not keys.is_signed(bob.public, ann.sign(b"x"), b"x")
    assert not keys.is_signed(b"short", ann.sign(b"x"), b"x")


def test_a_box_opens_only_with_its_key_and_its_context():
    box = keys.seal(b"k" * 32, b"content", b"ann to bob")
    assert keys.unseal(b"k" * 32, box, b"ann to bob") == b"content"
    assert keys.unseal(b"k" * 32, box, b"ann to eva") is None
    assert keys.unseal(b"j" * 32, box, b"ann to bob") is None
    assert keys.unseal(b"k" * 32, b"", b"ann to bob") is None
