"""What a client refuses, whatever the server asks."""

from dataclasses import replace

import numpy as np
import pytest

from ghofl.secure import (
    Identity,
    Plan,
    RefusedError,
    RingError,
    RoundRules,
    WireError,
    advertise,
    endorse,
    keys,
    mask,
    plan,
    reveal,
    share,
)
from ghofl.secure.messages import Endorsement, Endorsements, Inbox, KeyList, Survivors, read
from ghofl.secure.wire import to_bytes

ME = "site-01"


def changed(laid, kind, **changes):
    """The letter to site-01 with some fields changed."""
    letter = read(kind, laid.letters[ME], laid.agreement)
    return to_bytes(replace(letter, **{name: change(getattr(letter, name)) for name, change in changes.items()}))


def shown(laid, survivors, vanished=()):
    bitmap = laid.agreement.bitmap
    return to_bytes(Survivors(laid.agreement.digest, bitmap(survivors), bitmap(vanished)))


def join(laid, policy=None, name=ME, used=(), identity=None):
    """What ME says to a round; a policy that is not about corruption takes a plan that withstands none."""
    return advertise(laid.agreement, name, identity or laid.identities[ME], used, policy or RoundRules(corruption=0.0))


def test_a_repeated_round_id_is_refused_and_used_ids_are_carried_along(table):
    laid = table()
    state, _ = join(laid, used=("r0",))
    assert state.used_rounds == ("r0", "r1")
    with pytest.raises(RefusedError, match="'r1': the id was used before"):
        join(laid, used=state.used_rounds)


def test_a_participant_list_without_the_client_or_with_another_key_is_refused(table):
    laid = table()
    with pytest.raises(RefusedError, match="lacks it"):
        join(laid, name="stranger")
    with pytest.raises(RefusedError, match="another key"):
        join(laid, identity=Identity.fresh())


def test_a_participant_list_that_is_too_short_is_refused(table):
    with pytest.raises(RefusedError, match=r"too short: of 5 sites 1 may vanish.*at least 5"):
        join(table(), RoundRules(min_survivors=5))


def test_a_plan_weaker_than_the_client_asks_for_is_refused(table):
    weak = Plan(40, 6, 4, 1, 32, 100, 4, 4)
    with pytest.raises(RefusedError, match="fails with probability up to 1; this site allows 2"):
        join(table(clients=40, agreed=weak), RoundRules())


def test_a_plan_with_too_few_honest_survivors_is_refused(table):
    """Noise that clients share is sized for so many that keep theirs to themselves."""
    laid = table(clients=5, agreed=plan(5, bound=100, dropout=0.2, corruption=0.2))
    assert join(laid, RoundRules(min_survivors=4, min_honest=3))
    with pytest.raises(RefusedError, match="may cover 4 sites of which 1 are corrupted; this site asks for 4"):
        join(laid, RoundRules(min_honest=4))


def test_keys_that_a_neighbour_did_not_sign_are_refused(table):
    laid = table("share")

    def swap(advertisements):
        return (replace(advertisements[0], mask_key=advertisements[1].mask_key), *advertisements[1:])

    with pytest.raises(RefusedError, match="keys that 'site-00' of the participants did not sign"):
        share(laid.clients[ME], changed(laid, KeyList, advertisements=swap))


def test_keys_signed_for_another_round_are_refused(table):
    laid, other = table("share"), table("share", round_id="r2")
    foreign = read(KeyList, other.letters[ME], other.agreement).advertisements
    for advertisements in (foreign, tuple(replace(one, round=laid.agreement.digest) for one in foreign)):
        with pytest.raises(RefusedError, match="did not sign"):
            share(laid.clients[ME], to_bytes(KeyList(laid.agreement.digest, 1, advertisements)))


@pytest.mark.parametrize("seat", [1, 77, 2**63])
def test_keys_of_clients_that_are_no_neighbours_are_refused(table, seat):
    laid = table("share")
    with pytest.raises(RefusedError, match="1 are not of neighbours"):
        share(laid.clients[ME], changed(laid, KeyList, advertisements=lambda a: (*a, replace(a[0], seat=seat))))


def test_keys_that_come_twice_or_are_too_few_are_refused(table):
    laid = table("share")
    with pytest.raises(RefusedError, match="come twice"):
        share(laid.clients[ME], changed(laid, KeyList, advertisements=lambda a: (*a, a[0])))
    with pytest.raises(RefusedError, match="keys of 2 of its circle of 5; 3 are needed"):
        share(laid.clients[ME], changed(laid, KeyList, advertisements=lambda a: a[:1]))


def test_boxes_of_clients_whose_keys_are_not_on_the_signed_list_are_refused(table):
    laid = table("share")
    laid.letters[ME] = changed(laid, KeyList, advertisements=lambda a: a[1:])
    laid.clients[ME], _ = share(laid.clients[ME], laid.letters[ME])
    full = table("mask")
    boxes = read(Inbox, full.letters[ME], full.agreement).boxes
    with pytest.raises(RefusedError, match="1 clients whose keys are not on the signed list"):
        mask(laid.clients[ME], to_bytes(Inbox(laid.agreement.digest, 1, boxes)), laid.vector(ME))


def test_boxes_that_come_twice_or_are_too_few_are_refused(table):
    laid = table("mask")
    with pytest.raises(RefusedError, match="come twice"):
        mask(laid.clients[ME], changed(laid, Inbox, boxes=lambda b: (*b, b[0])), laid.vector(ME))
    with pytest.raises(RefusedError, match="shares of 2 of its circle of 5; 3 are needed"):
        mask(laid.clients[ME], changed(laid, Inbox, boxes=lambda b: b[:1]), laid.vector(ME))


def test_a_vector_of_another_length_or_beyond_the_bound_is_refused(table):
    laid = table("mask")
    with pytest.raises(RefusedError, match="8 entries where 7 were agreed on"):
        mask(laid.clients[ME], laid.letters[ME], np.zeros(8, dtype=np.int64))
    with pytest.raises(RingError, match="bound of 100"):
        mask(laid.clients[ME], laid.letters[ME], np.full(7, 101))


def test_a_request_for_both_the_seed_and_the_key_of_one_peer_is_refused(table):
    laid = table("endorse")
    with pytest.raises(RefusedError, match="both the seed and the key of one client, as is asked for site-03"):
        endorse(laid.clients[ME], shown(laid, range(5), [3]), laid.identities[ME])


def test_a_survivor_list_that_is_too_short_is_refused(table):
    laid = table("endorse")
    with pytest.raises(RefusedError, match="sum of 3 clients: too short a list, 4 are needed"):
        endorse(laid.clients[ME], shown(laid, [0, 1, 2], [3, 4]), laid.identities[ME])


def test_a_survivor_list_that_is_too_thin_somewhere_is_refused(table):
    """A server that picks whom to leave out can cut the ring although enough clients survive."""
    laid = table("endorse", clients=40, agreed=Plan(40, 8, 5, 2, 32, 100, 10, 0))
    order = laid.agreement.graph.order
    me = laid.agreement.participants[order[20]].name
    with pytest.raises(RefusedError, match="fewer than 2 survivors in some 4 consecutive places"):
        endorse(laid.clients[me], shown(laid, order[3:], order[:3]), laid.identities[me])


def test_a_survivor_list_without_the_client_itself_is_refused(table):
    laid = table("endorse")
    with pytest.raises(RefusedError, match="its own vector is not in"):
        endorse(laid.clients[ME], shown(laid, [0, 2, 3, 4], [1]), laid.identities[ME])


def test_a_survivor_list_that_does_not_fit_the_boxes_that_came_is_refused(table):
    laid = table("mask")
    laid.letters[ME] = changed(laid, Inbox, boxes=lambda boxes: boxes[1:])
    laid.clients[ME], _ = laid.answer(ME, "mask")
    with pytest.raises(RefusedError, match="counts 1 neighbours as survivors whose shares never came"):
        endorse(laid.clients[ME], shown(laid, range(5)), laid.identities[ME])
    laid = table("endorse")
    with pytest.raises(RefusedError, match="says nothing of 1 whose shares did"):
        endorse(laid.clients[ME], shown(laid, range(4)), laid.identities[ME])


def test_a_survivor_list_that_neighbours_did_not_sign_is_refused(table):
    laid = table("reveal")
    with pytest.raises(RefusedError, match="2 of its circle signed this survivor list; 3 are needed"):
        reveal(laid.clients[ME], changed(laid, Endorsements, endorsements=lambda e: e[:1]))
    spoilt = changed(laid, Endorsements, endorsements=lambda e: tuple(replace(one, signature=bytes(64)) for one in e))
    with pytest.raises(RefusedError, match="1 of its circle"):
        reveal(laid.clients[ME], spoilt)


def test_one_neighbour_counted_many_times_and_strangers_do_not_make_a_threshold(table):
    laid = table("reveal")
    with pytest.raises(RefusedError, match="2 of its circle"):
        reveal(laid.clients[ME], changed(laid, Endorsements, endorsements=lambda e: e[:1] * 9))
    strangers = changed(laid, Endorsements, endorsements=lambda e: tuple(replace(one, seat=2**60) for one in e))
    with pytest.raises(RefusedError, match="1 of its circle"):
        reveal(laid.clients[ME], strangers)


def test_neighbours_that_were_shown_another_list_do_not_count(table):
    """A server that shows one survivor list to some and another to the rest gets nothing from either."""
    laid = table("endorse")
    split = {
        name: shown(laid, range(5)) if i < 3 else shown(laid, range(1, 5), [0]) for i, name in enumerate(laid.letters)
    }
    signed = []
    for name in ("site-01", "site-02", "site-03", "site-04"):
        laid.clients[name], reply = endorse(laid.clients[name], split[name], laid.identities[name])
        signed.append(read(Endorsement, reply, laid.agreement))
    for name in ("site-01", "site-03"):
        seat = laid.agreement.seat_of(name)
        letter = to_bytes(Endorsements(laid.agreement.digest, seat, tuple(signed)))
        with pytest.raises(RefusedError, match="2 of its circle"):
            reveal(laid.clients[name], letter)


def test_unmasking_twice_is_refused(table):
    laid = table("reveal")
    state, _ = laid.answer(ME, "reveal")
    with pytest.raises(RefusedError, match="it has unmasked, and does so once"):
        reveal(state, laid.letters[ME])
    with pytest.raises(RefusedError, match="it has unmasked"):
        endorse(state, shown(laid, range(1, 5), [0]), laid.identities[ME])


def test_a_second_survivor_list_is_refused_after_one_was_signed(table):
    laid = table("endorse")
    state, _ = laid.answer(ME, "endorse")
    with pytest.raises(RefusedError, match="it has endorsed"):
        endorse(state, shown(laid, range(1, 5), [0]), laid.identities[ME])


def test_a_second_vector_is_never_masked_with_the_same_masks(table):
    laid = table("mask")
    state, _ = laid.answer(ME, "mask")
    with pytest.raises(RefusedError, match="it has masked"):
        mask(state, laid.letters[ME], laid.vector(ME))


def test_letters_for_another_client_are_refused(table):
    laid = table("share")
    with pytest.raises(WireError, match="for seat 0 came to seat 1"):
        share(laid.clients[ME], laid.letters["site-00"])


def test_a_key_of_low_order_is_refused_by_server_and_client(table):
    assert not keys.is_usable(bytes(32))
    assert keys.is_usable(keys.public_key(b"k" * 32))
    with pytest.raises(RefusedError, match="low order"):
        keys.pair_key(keys.private_key(b"k" * 32), bytes(32), b"")
