"""Whole rounds: the sum of the survivors comes out to the bit, or nothing does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rounds import check, fixed, play_elsewhere, some_drops, vectors_of

from ghofl.secure import (
    STAGES,
    Agreement,
    Participant,
    Plan,
    PlanError,
    RefusedError,
    RoundFailedError,
    WireError,
    advance,
    finish,
    plan,
    receive,
    simulate_round,
)


@pytest.mark.parametrize("stages", [*[(stage,) for stage in STAGES], STAGES], ids=[*STAGES, "mixed"])
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("clients", [3, 10])
def test_the_secure_total_is_the_plain_total_of_the_survivors(clients, fraction, stages):
    vectors = vectors_of(clients)
    drops = some_drops(vectors, max(fraction, 0.34 if clients == 3 and fraction else 0), stages)
    agreed = plan(clients, bound=1000, dropout=0.34, corruption=0.0)
    check(vectors, simulate_round(vectors, 1000, drops, agreed), drops)


@pytest.mark.slow
def test_a_hundred_clients_on_the_ring_that_was_planned_for_them_give_the_plain_total():
    vectors = vectors_of(100)
    agreed = plan(100, bound=1000, dropout=0.1, corruption=0.02)
    assert not agreed.is_complete
    drops = some_drops(vectors, 0.1, STAGES)
    check(vectors, simulate_round(vectors, 1000, drops, agreed), drops)


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.3])
def test_a_hundred_clients_survive_dropouts_at_any_one_stage_and_at_all(fraction):
    schedules = [*[(stage,) for stage in STAGES], STAGES] if fraction == 0.3 else [STAGES]
    assert play_elsewhere(100, fraction, *schedules) == len(schedules)


@pytest.mark.slow
def test_a_thousand_clients_give_the_plain_total_though_three_hundred_vanish():
    assert play_elsewhere(1000, 0.3, STAGES) == 1


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(3, 9), st.data())
def test_any_schedule_of_dropouts_gives_the_survivors_sum_or_nothing(clients, data):
    vectors = vectors_of(clients, entries=3)
    schedule = st.sampled_from([None, None, None, *STAGES])
    drops = {name: stage for name in vectors if (stage := data.draw(schedule)) is not None}
    agreed = plan(clients, bound=1000, dropout=0.34, corruption=0.0)
    if len(drops) <= agreed.dropped:
        check(vectors, simulate_round(vectors, 1000, drops, agreed), drops)
        return
    try:
        outcome = simulate_round(vectors, 1000, drops, agreed)
    except RoundFailedError:
        return  # more vanished than was planned for: no sum is revealed
    check(vectors, outcome, drops)


@pytest.mark.parametrize("bound", [10**3, 10**9, 10**12, 10**14, 10**17])
def test_every_ring_gives_the_exact_total_at_the_extremes(bound):
    names = [f"site-{i}" for i in range(5)]
    vectors = {name: np.array([bound, -bound, 0, i]) for i, name in enumerate(names)}
    outcome = simulate_round(vectors, bound, {"site-4": "mask"}, plan(5, bound, dropout=0.2))
    assert outcome.total.tolist() == [4 * bound, -4 * bound, 0, 6]


@pytest.mark.parametrize("stage", STAGES)
def test_below_the_threshold_nothing_is_released_and_the_counts_are_named(stage):
    vectors = vectors_of(10)
    drops = dict.fromkeys(list(vectors)[:5], stage)
    with pytest.raises(RoundFailedError, match=r"'simulated' fails: 5 .*and (6|8) are needed.*no sum is revealed"):
        simulate_round(vectors, 1000, drops, plan(10, bound=1000, dropout=0.2))


def test_the_server_stops_when_a_stretch_of_the_ring_is_too_thin(table):
    agreed = Plan(40, 8, 5, 2, 32, 100, 10, 0)
    laid = table("mask", clients=40, agreed=agreed)
    gap = laid.agreement.names_of(laid.agreement.graph.order[:3])
    with pytest.raises(RoundFailedError, match="1 clients in some 4 consecutive places"):
        laid.play("mask", absent=gap)


def test_processes_may_restart_between_all_stages():
    vectors = vectors_of(6)
    drops = {"site-0001": "mask", "site-0004": "reveal"}
    agreed = plan(6, bound=1000, dropout=0.34, corruption=0.0)
    whole = simulate_round(vectors, 1000, drops, agreed, entropy=fixed(1))
    restarted = simulate_round(vectors, 1000, drops, agreed, entropy=fixed(1), restarts=True)
    assert np.array_equal(whole.total, restarted.total)
    assert (whole.sent, whole.received) == (restarted.sent, restarted.received)
    check(vectors, restarted, drops)


@pytest.mark.parametrize("stage", STAGES[1:])
def test_a_stage_run_again_from_the_same_state_sends_the_same_bytes(table, stage):
    laid = table(stage)
    assert laid.answer("site-01", stage)[1] == laid.answer("site-01", stage)[1]


def test_a_message_that_comes_twice_or_too_late_changes_nothing(table):
    laid = table("advertise")
    laid.clients["site-00"], reply = laid.answer("site-00", "advertise")
    state = receive(laid.server, "site-00", reply)
    with pytest.raises(WireError, match="second Advertisement of 'site-00'"):
        receive(state, "site-00", reply)
    laid = table("share")
    laid.play("share", absent=("site-02",))
    laid.letters["site-02"] = laid.letters["site-01"]
    other = table("mask", round_id="r1")
    with pytest.raises(WireError):
        receive(laid.server, "site-02", other.answer("site-02", "mask")[1])


def test_a_changed_share_is_left_out_and_its_holder_named(table):
    laid = table("reveal", clients=7, agreed=plan(7, bound=100, dropout=0.3, corruption=0.0))
    for name in laid.letters:
        laid.clients[name], reply = laid.answer(name, "reveal")
        if name == "site-03":
            reply = reply[:-40] + bytes([reply[-40] ^ 1]) + reply[-39:]
        laid.server = receive(laid.server, name, reply)
    release = finish(laid.server)
    assert [blame.name for blame in release.blamed] == ["site-03"]
    assert "not the one" in release.blamed[0].what
    assert np.array_equal(release.total, sum(laid.vector(name) for name in laid.identities))


def test_too_many_changed_shares_release_nothing_and_name_who_sent_them(table):
    laid = table("reveal", clients=5)
    for name in laid.letters:
        laid.clients[name], reply = laid.answer(name, "reveal")
        if name in ("site-01", "site-02", "site-03"):
            reply = reply[:-40] + bytes([reply[-40] ^ 1]) + reply[-39:]
        laid.server = receive(laid.server, name, reply)
    with pytest.raises(RoundFailedError, match="Wrong shares involve site-01, site-02, site-03"):
        finish(laid.server)


def test_a_dealer_whose_shares_are_of_another_key_is_named(table, monkeypatch):
    from ghofl.secure import client

    laid = table("share", clients=5)
    honest = client._shares

    def cheating(state, secret, kind, holders):
        return honest(state, b"x" * 32 if kind == "key" and state.seat == 2 else secret, kind, holders)

    monkeypatch.setattr(client, "_shares", cheating)
    laid.play("share")
    laid.play("mask", absent=("site-02",))
    laid.play("endorse")
    laid.play("reveal")
    with pytest.raises(RoundFailedError, match="'site-02' dealt shares of another key"):
        finish(laid.server)


class Outside:
    """A share whose 33 bytes hold a number that the field does not."""

    content = b"\xff" * 33


def dealing_outside(monkeypatch, kind):
    """Let the third client deal such a share to the first one."""
    from ghofl.secure import client

    honest = client._shares

    def cheating(state, secret, what, holders):
        shares = honest(state, secret, what, holders)
        return (Outside(), *shares[1:]) if what == kind and state.seat == 2 else shares

    monkeypatch.setattr(client, "_shares", cheating)
    return client


@pytest.mark.parametrize("kind", ["seed", "key"])
def test_a_dealer_of_a_share_outside_the_field_is_named_and_ends_the_round(table, monkeypatch, kind):
    """It fits its commitment, so no holder is at fault, and this one does not look at what it was dealt."""
    laid = table("share", clients=5)
    client = dealing_outside(monkeypatch, kind)
    monkeypatch.setattr(client, "is_share", lambda content: True)
    laid.play("share")
    laid.play("mask", absent=("site-02",) if kind == "key" else ())
    laid.play("endorse")
    laid.play("reveal")
    with pytest.raises(RoundFailedError, match="'site-02' dealt a share that is not a number of the field"):
        finish(laid.server)


@pytest.mark.parametrize("kind", ["seed", "key"])
def test_whoever_is_dealt_something_else_than_a_share_sends_no_vector(table, monkeypatch, kind):
    laid = table("share", clients=5)
    dealing_outside(monkeypatch, kind)
    laid.play("share")
    with pytest.raises(RefusedError, match="'site-00' refuses, .* to mask beside 'site-02', who dealt it something"):
        laid.answer("site-00", "mask")
    for name in ("site-01", "site-03", "site-04"):
        assert laid.answer(name, "mask")[1]


def test_a_round_that_fails_at_unmasking_names_who_revealed(table):
    laid = table("reveal", clients=5)
    with pytest.raises(RoundFailedError, match="Nobody has revealed anything in it"):
        finish(laid.server)
    laid.play("reveal", absent=("site-01", "site-03", "site-04"))
    with pytest.raises(RoundFailedError, match="revealed shares in it are site-00, site-02; all others may join"):
        finish(laid.server)


def test_a_box_that_cannot_be_opened_is_reported_and_the_sum_still_comes_out(table):
    laid = table("share", clients=5)
    for name in laid.letters:
        laid.clients[name], reply = laid.answer(name, "share")
        if name == "site-00":
            reply = reply[:-70] + bytes([reply[-70] ^ 1]) + reply[-69:]  # the box or its commitment for the last holder
        laid.server = receive(laid.server, name, reply)
    laid.server, laid.letters = advance(laid.server)
    for stage in STAGES[2:]:
        laid.play(stage)
    release = finish(laid.server)
    assert [blame.name for blame in release.blamed] == ["site-00"]
    assert "'site-04'" in release.blamed[0].what
    assert np.array_equal(release.total, sum(laid.vector(name) for name in laid.identities))


def test_a_round_cannot_be_finished_early_or_advanced_beyond_its_end(table):
    with pytest.raises(RoundFailedError, match="still masking"):
        finish(table("mask").server)
    with pytest.raises(RoundFailedError, match="finish"):
        advance(table("reveal").server)


def test_the_server_keeps_one_accumulator_and_no_vectors(table):
    laid = table("mask", clients=6)
    before = len(laid.server.to_bytes())
    laid.play("mask")
    assert len(laid.server.to_bytes()) - before <= 6 * 8 + 16  # the seats of those that sent, and a stage name


def test_agreements_that_cannot_work_are_refused(table):
    fine = table().agreement
    sites = fine.participants
    for changes, text in [
        ({"participants": sites[:4]}, "4 sites take part"),
        ({"participants": (*sites[:4], sites[0])}, "duplicates"),
        ({"participants": (*sites[:4], Participant("other", sites[0].key))}, "4 identity keys"),
        ({"seed": bytes(31)}, "31 bytes"),
        ({"entries": 0}, "0 entries"),
        ({"round_id": ""}, "round id"),
        ({"round_id": "line\nbreak"}, "printable"),
    ]:
        values = {name: getattr(fine, name) for name in ("round_id", "participants", "seed", "entries", "plan")}
        with pytest.raises(PlanError, match=text):
            Agreement(**(values | changes))
    with pytest.raises(PlanError, match="31 bytes"):
        Participant("ann", bytes(31))
    with pytest.raises(PlanError, match="0 bytes"):
        Participant("", bytes(32))


def test_agreements_that_differ_in_anything_have_different_digests(table):
    fine = table().agreement
    values = {name: getattr(fine, name) for name in ("round_id", "participants", "seed", "entries", "plan")}
    changes = [{"round_id": "r2"}, {"seed": bytes(32)}, {"entries": 8}, {"participants": fine.participants[::-1]}]
    digests = {Agreement(**(values | change)).digest for change in changes}
    assert len(digests | {fine.digest}) == 5
    assert Agreement.from_bytes(fine.to_bytes()).digest == fine.digest


def test_simulations_that_make_no_sense_are_refused():
    vectors = vectors_of(3)
    with pytest.raises(PlanError, match="nobody"):
        simulate_round(vectors, 1000, {"nobody": "mask"})
    with pytest.raises(PlanError, match="lunch"):
        simulate_round(vectors, 1000, {"site-0000": "lunch"})
    with pytest.raises(PlanError, match="one length"):
        simulate_round(vectors | {"site-0000": np.zeros(2, dtype=np.int64)}, 1000)
