"""What a secure round promises, over each carrier: who is in the sum, who is left out, and what a killed server does."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
from carriers import CARRIERS, Killed, history_of, killing, names_of, without

from ghofl import secure
from ghofl.custody.history import History
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Site
from ghofl.errors import FederationError, GhoflError, MessageError, PolicyError, RosterError
from ghofl.federation.round import ACTIONS, Options, Round
from ghofl.flower.server.federation import run
from ghofl.mail.round_folder import RoundFolder
from ghofl.secure import PlanError
from ghofl.wire import letter as letters
from ghofl.wire.letter import Letter
from sites import PLAIN, SECURE, InProcess, confirmed, exact_total, invoke, make_sites, settings


@pytest.fixture(params=CARRIERS)
def carrier(request):
    return CARRIERS[request.param]()


def write_peers(folder, names, publics):
    """A file of peers: these names with these sites' public keys."""
    lines = [f'{name} = "{(folder / f"key-{i}.pub").read_text()}"' for name, i in zip(names, publics, strict=True)]
    (folder / "peers.toml").write_text("\n".join(lines) + "\n")
    return folder / "peers.toml"


def with_peers(folder, count):
    """Sites that know each other's keys, and join rounds with nobody else."""
    paths = make_sites(folder, count, SECURE, 'peers = "peers.toml"\n', keys=True)
    write_peers(folder, names_of(paths), range(count))
    return paths


def reopen(paths, cohort):
    """Let administrators re-open sites for one more round of a cohort."""
    for path in paths:
        named = ",".join(names_of(cohort))
        done = confirmed("reopen", path, "--recipe", path.parent / "recipe.toml", "--cohort", named)
        assert done.exit_code == 0, done.exception


def test_the_total_of_a_round_is_the_plain_one_to_the_bit(tmp_path, carrier):
    paths = make_sites(tmp_path, 4, SECURE)
    total = carrier.hold(tmp_path / "run", SECURE, paths)
    assert total.moments == exact_total(tmp_path, paths)
    assert sorted(entry.site for entry in total.roster) == names_of(paths)
    assert carrier.asked == [(action, name) for action in ACTIONS for name in names_of(paths)]
    assert not (tmp_path / "run" / "state").exists()
    assert not (tmp_path / "run" / "round").exists()


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
def test_a_site_that_vanishes_at_any_stage_is_named_and_the_round_completes(tmp_path, carrier, action):
    paths = make_sites(tmp_path, recipe=SECURE)
    total = carrier.hold(tmp_path / "run", SECURE, paths, vanish={"site-2": action}, dropout=0.2)
    is_inside = action in ("endorse", "reveal")
    inside = paths if is_inside else without(paths, 2)
    assert total.moments == exact_total(tmp_path, inside)
    assert sorted(entry.site for entry in total.roster) == names_of(inside)
    told = {"its node failed or is gone: killed", "left out: its node failed or is gone: killed", "no letter came"}
    assert carrier.left_out["site-2"] in told | ({"counted"} if is_inside else set())


def test_more_dropouts_than_planned_for_give_nothing_and_the_next_round_is_free(tmp_path, carrier):
    paths, place = make_sites(tmp_path, recipe=SECURE), tmp_path / "run"
    with pytest.raises(
        FederationError, match="3 of 5 clients sent a masked vector and 4 are needed; no sum is revealed"
    ):
        carrier.hold(place, SECURE, paths, vanish={"site-0": "mask", "site-1": "mask"}, dropout=0.2)
    assert not (place / "total.ghofl").exists()
    assert len(carrier.hold(carrier.after(place), SECURE, paths).roster) == 5


@pytest.mark.parametrize("action", ["advertise", "share", "mask"])
def test_a_round_of_three_sites_survives_no_loss_and_says_so(tmp_path, carrier, caplog, action):
    paths = make_sites(tmp_path, 3, SECURE)
    with caplog.at_level("INFO", "ghofl"), pytest.raises(FederationError, match="2 of 3 clients"):
        carrier.hold(tmp_path / "run", SECURE, paths, vanish={"site-2": action})
    assert "3 sites, of which 0 may vanish" in caplog.text
    assert not (tmp_path / "run" / "total.ghofl").exists()


@pytest.mark.parametrize(("count", "fewest", "needed"), [(2, 1, 3), (4, 5, 5)])
def test_too_few_sites_to_hide_among_begin_no_round(tmp_path, carrier, count, fewest, needed):
    paths = make_sites(tmp_path, count, SECURE)
    text = f"{count} sites joined the secure round, and it needs at least {needed}"
    with pytest.raises(FederationError, match=text):
        carrier.hold(tmp_path / "run", SECURE, paths, min_sites=fewest)
    assert {action for action, _ in carrier.asked} == {"join"}


@pytest.mark.slow
@pytest.mark.parametrize("stage", secure.STAGES)
def test_a_killed_server_goes_on_with_its_round_where_it_stood(tmp_path, carrier, stage):
    """It is killed twice: before any answer of the stage was taken, and in the middle of them."""
    paths = make_sites(tmp_path, 4, SECURE)
    for after in (1, 3):
        with killing(stage, after), pytest.raises(Killed):
            carrier.hold(tmp_path / "run", SECURE, paths)
    total = carrier.hold(tmp_path / "run", SECURE, paths)
    assert total.moments == exact_total(tmp_path, paths)
    before = secure.STAGES[: secure.STAGES.index(stage)]
    assert not {action for action, _ in carrier.asked} & set(before)


def test_a_second_different_answer_is_left_out_and_the_first_one_counts(tmp_path, carrier):
    paths = make_sites(tmp_path, 4, SECURE)

    def second(action, name, reply):
        return Letter(reply.fields, reply.content[:-1] + b"\x55") if action != "join" and name == "site-1" else None

    total = carrier.hold(tmp_path / "run", SECURE, paths, echo=second)
    assert total.moments == exact_total(tmp_path, paths)
    assert "a second, different" in carrier.left_out["site-1"] or carrier.left_out["site-1"] == "counted"


def test_a_round_counts_every_answer_once_and_takes_none_too_early_or_too_late(tmp_path):
    """The driver that both carriers share."""
    here, keys = Round.open(tmp_path, SECURE, Options()), {name: secure.Identity.fresh() for name in "abc"}
    for name, identity in keys.items():
        assert here.receive(name, "join", Letter({"key": identity.public}))
        assert not here.receive(name, "join", Letter({"key": identity.public}))
    with pytest.raises(RosterError, match="a second, different 'join' of 'a'"):
        here.receive("a", "join", Letter({"key": bytes(32)}))
    with pytest.raises(RosterError, match="uses the key of another site"):
        here.receive("d", "join", Letter({"key": keys["a"].public}))
    with pytest.raises(MessageError, match="the answer to 'mask', and the round is at 'join'"):
        here.receive("a", "mask", Letter())
    with pytest.raises(PolicyError, match="what a participant says about earlier sums is damaged"):
        here.receive("d", "join", Letter({"key": bytes(32), "known": "nonsense"}))
    with pytest.raises(PolicyError, match="what a participant says about earlier sums is damaged"):
        here.receive("d", "join", Letter({"key": bytes(32), "known": b"nonsense"}))
    with pytest.raises(PlanError, match="keys have 32"):
        here.receive("d", "join", Letter({"key": b"short"}))
    for odd in ({"key": "text"}, {}, {"key": bytes(32), "signature": 5}):
        with pytest.raises(MessageError, match="is not bytes"):
            here.receive("d", "join", Letter(odd))
    here.close()
    with pytest.raises(MessageError, match="the answer to 'join', and the round is at 'advertise'"):
        here.receive("d", "join", Letter({"key": bytes(32)}))
    assert Round(tmp_path).letters() == here.letters()
    assert Round(tmp_path).missing == {"a", "b", "c"}


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"round": 5}', '{"round": "a", "options": {"x": 1}}'])
def test_a_damaged_round_is_told_in_a_sentence(tmp_path, text):
    Round.open(tmp_path, SECURE, Options())
    (tmp_path / "round.json").write_text(text)
    with pytest.raises(FederationError, match="is damaged"):
        Round(tmp_path)


@pytest.mark.parametrize("name", ["../../outside", "/tmp/outside", "a\\b", "..", "north\n"])
def test_nothing_is_written_where_a_joiner_s_name_says(tmp_path, carrier, name):
    """It overwrote the letters of another round."""
    paths, place = make_sites(tmp_path, 3, SECURE), tmp_path / "deep" / "run"
    place.parent.mkdir()
    if isinstance(carrier, CARRIERS["flower"]):
        joins = lambda action, node, reply: Letter({**reply.fields, "site": name}) if node == 102 else reply  # noqa: E731
        with pytest.raises(FederationError, match="2 sites joined"):
            run(InProcess(paths, twist=joins), SECURE, settings(place))
    else:
        opened, identity = RoundFolder.open(place, SECURE, Options()), secure.Identity.fresh()
        fields = {"action": "join", "round": opened.round_id, "site": name, "key": identity.public}
        (tmp_path / "join.letter").write_bytes(letters.to_file(letters.sign_letter(Letter(fields), identity)))
        with pytest.raises(MessageError, match="without / and"):
            opened.take([tmp_path / "join.letter"])
    outside = [path.name for path in tmp_path.rglob("*outside*")]
    assert outside == []


def test_a_server_with_peers_takes_nobody_else(tmp_path, carrier):
    paths = make_sites(tmp_path, 5, SECURE, keys=True)
    peers = write_peers(tmp_path, ["site-0", "site-1", "site-2", "site-3"], [0, 1, 2, 4])  # site-3 has another key
    total = carrier.hold(tmp_path / "run", SECURE, paths, peers=peers, min_sites=3)
    assert total.moments == exact_total(tmp_path, paths[:3])
    assert all("is not in the file of peers" in carrier.left_out[name] for name in ("site-3", "site-4"))


@pytest.mark.parametrize("text", ["", "# to be filled in"])
def test_a_server_whose_file_of_peers_names_nobody_takes_nobody(tmp_path, carrier, text):
    paths = make_sites(tmp_path, 3, SECURE, keys=True)
    (tmp_path / "peers.toml").write_text(text)
    with pytest.raises(FederationError, match="0 sites joined"):
        carrier.hold(tmp_path / "run", SECURE, paths, peers=tmp_path / "peers.toml")


def test_a_site_that_signs_nothing_is_not_a_peer(tmp_path, carrier):
    paths = make_sites(tmp_path, 4, SECURE, keys=True)
    peers = write_peers(tmp_path, names_of(paths), range(4))
    paths[3].write_text(paths[3].read_text().replace('auth_key = "key-3"', ""))
    assert len(carrier.hold(tmp_path / "run", SECURE, paths, peers=peers).roster) == 3
    assert "is not in the file of peers" in carrier.left_out["site-3"]


@pytest.mark.slow
def test_sites_with_peers_refuse_a_round_with_a_stranger(tmp_path, carrier):
    paths, place = with_peers(tmp_path, 5), tmp_path / "run"
    write_peers(tmp_path, names_of(paths[:4]), range(4))
    with pytest.raises(FederationError, match="0 of 5 clients advertised keys"):
        carrier.hold(place, SECURE, paths)
    assert "'site-4' is not one of this site's peers" in carrier.left_out["site-0"]
    assert len(carrier.hold(carrier.after(place), SECURE, paths[:4]).roster) == 4


def agreeing(monkeypatch, change):
    """Let the server agree with sites on something else than it should."""
    agree = secure.Agreement
    monkeypatch.setattr("ghofl.federation.round.Agreement", lambda *parts: agree(*change(*parts)))


def test_a_server_that_swaps_a_round_key_is_refused_by_sites_with_peers(tmp_path, carrier, monkeypatch):
    """A server that puts a key of its own under a site's name could unmask; the site's signature shows it."""
    paths, forged = with_peers(tmp_path, 3), secure.Identity.fresh().public

    def swap(name, sites, _, entries, plan):
        sites = (*sites[:2], replace(sites[2], key=forged))
        return name, sites, secure.public_seed(name, sites), entries, plan

    agreeing(monkeypatch, swap)
    with pytest.raises(FederationError, match="0 of 3 clients advertised keys"):
        carrier.hold(tmp_path / "run", SECURE, paths)
    assert "'site-2' is not one of this site's peers, or did not sign its key" in carrier.left_out["site-0"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda name, sites, _, entries, plan: (name, sites, bytes(32), entries, plan), "participants' keys"),
        (lambda name, sites, seed, entries, plan: (name, sites, seed, entries + 1, plan), "bound and length"),
    ],
    ids=["seed", "length"],
)
def test_what_the_server_chose_and_sites_can_compute_is_refused(tmp_path, carrier, monkeypatch, change, why):
    paths = make_sites(tmp_path, 3, SECURE)
    agreeing(monkeypatch, change)
    with pytest.raises(FederationError, match="0 of 3 clients advertised keys"):
        carrier.hold(tmp_path / "run", SECURE, paths)
    assert why in carrier.left_out["site-0"]


@pytest.mark.slow
def test_five_sites_minus_four_of_them_are_never_shown(tmp_path, carrier):
    """Two rounds of other cohorts: the difference of their exact sums is the rows of one site."""
    paths = make_sites(tmp_path, recipe=SECURE)
    carrier.hold(tmp_path / "run", SECURE, paths)
    other = replace(SECURE, grid=replace(SECURE.grid, scale=2 * SECURE.grid.scale))
    for recipe in (SECURE, other):
        with pytest.raises(FederationError, match="0 sites joined the secure round"):
            carrier.hold(tmp_path / f"second-{recipe.fingerprint[:4]}", recipe, paths[:4])
        assert {action for action, _ in carrier.asked} == {"join"}
        assert all("has already revealed in a round" in why for why in carrier.left_out.values())


@pytest.mark.slow
@pytest.mark.parametrize("keys", [False, True], ids=["any peers", "peers with keys"])
def test_three_cohorts_of_which_every_site_knows_two_do_not_show_two_sites(tmp_path, carrier, keys):
    """{0,1,2,3} + {0,1,4,5} − {2,3,4,5} is twice {0,1}; administrators re-open, each for what seems harmless."""
    paths = with_peers(tmp_path, 6) if keys else make_sites(tmp_path, 6, SECURE)
    first, second, third = ([paths[i] for i in cohort] for cohort in ((0, 1, 2, 3), (0, 1, 4, 5), (2, 3, 4, 5)))
    assert len(carrier.hold(tmp_path / "1", SECURE, first).roster) == 4
    reopen(first[:2], second)
    assert len(carrier.hold(tmp_path / "2", SECURE, second).roster) == 4
    reopen(third[:2], third)
    for path in third[2:]:  # these were told of the first sum; had they not been, the others would still refuse
        with pytest.raises(AssertionError, match="would show site-0, site-1"):
            reopen([path], third)
        memory, names = Site.load(path).storage(), names_of(third)
        last = History.of(Ledger.load(memory)).reveals[-1]
        Ledger.load(memory).write(memory, "reopened", recipe=last.recipe, data=last.data, cohort=names)
    with pytest.raises(FederationError, match="0 of 4 clients advertised keys"):
        carrier.hold(tmp_path / "3", SECURE, third)
    assert len(carrier.left_out) == 4
    assert all("would show site-0, site-1 by themselves" in why for why in carrier.left_out.values())


@pytest.mark.slow
def test_three_cohorts_of_which_the_last_saw_one_do_not_show_a_site_of_the_first(tmp_path, carrier):
    """{0,1,2,3} − {0,1,2,4,5,6} + {4,5,6} is {3}; 4, 5 and 6 were told of the first sum when they were in the second."""
    paths = make_sites(tmp_path, 7, SECURE)
    first, second, third = ([paths[i] for i in cohort] for cohort in ((0, 1, 2, 3), (0, 1, 2, 4, 5, 6), (4, 5, 6)))
    carrier.hold(tmp_path / "1", SECURE, first)
    reopen(first[:3], second)
    assert len(carrier.hold(tmp_path / "2", SECURE, second).roster) == 6
    for path in third:
        with pytest.raises(AssertionError, match="would show site-3 by itself"):
            reopen([path], third)


@pytest.mark.slow
def test_peers_with_keys_hold_a_second_round_and_refuse_one_whose_server_leaves_out_what_they_know(tmp_path, carrier):
    """By files no second round could succeed: the signatures covered what was not sent."""
    paths = with_peers(tmp_path, 3)
    peers = tmp_path / "peers.toml"
    carrier.hold(tmp_path / "1", SECURE, paths, peers=peers)
    reopen(paths, paths)

    def forget(letter):
        return Letter({key: value for key, value in letter.fields.items() if key != "known"}, letter.payload)

    with pytest.raises(FederationError, match="0 of 3 clients advertised keys"):
        carrier.hold(tmp_path / "2", SECURE, paths, ask=forget)
    assert "did not sign its key" in carrier.left_out["site-0"]
    assert len(carrier.hold(tmp_path / "3", SECURE, paths, peers=peers).roster) == 3


@pytest.mark.slow
def test_a_site_that_vanishes_on_purpose_is_not_what_the_others_show(tmp_path, carrier):
    """Re-opened for all five, one vanishes: the others' sum would be that one's, by difference, so they do not sign."""
    paths = make_sites(tmp_path, 5, SECURE, "corruption = 0.0\n")
    plan = {"dropout": 0.2, "corruption": 0.0}
    carrier.hold(tmp_path / "1", SECURE, paths, **plan)
    reopen(paths, paths)
    with pytest.raises(FederationError, match="0 of 5 clients signed"):
        carrier.hold(tmp_path / "2", SECURE, paths, vanish={"site-4": "mask"}, **plan)
    assert all("would show site-4 by itself" in carrier.left_out[name] for name in names_of(paths[:4]))


class Outside:
    """A share whose 33 bytes hold a number that the field does not."""

    content = b"\xff" * 33


@contextlib.contextmanager
def dealing(monkeypatch, cheat):
    """While the block runs, the third site deals shares that `cheat` makes of a secret and its shares."""
    from ghofl.secure import client

    honest = client._shares

    def cheating(state, secret, kind, holders):
        shares = honest(state, secret, kind, holders)
        is_cheat = kind == "seed" and state.seat == 2
        return cheat(shares, lambda other: honest(state, other, kind, holders)) if is_cheat else shares

    with monkeypatch.context() as patch:
        patch.setattr(client, "_shares", cheating)
        yield


@pytest.mark.slow
def test_a_dealer_outside_the_field_leaves_out_whom_it_dealt_to_and_the_round_goes_on(tmp_path, carrier, monkeypatch):
    paths = make_sites(tmp_path, recipe=SECURE)
    with dealing(monkeypatch, lambda shares, _: (Outside(), *shares[1:])):
        total = carrier.hold(tmp_path / "run", SECURE, paths)
    assert {entry.site for entry in total.roster} == {f"site-{i}" for i in range(1, 5)}
    assert "to mask beside 'site-2', who dealt it something that is not a share" in carrier.left_out["site-0"]


@pytest.mark.slow
def test_a_dealer_of_no_shares_costs_nobody_a_reveal_and_the_others_go_on_without_it(tmp_path, carrier, monkeypatch):
    """It is noticed before a vector leaves, so nothing is revealed, signed or spent, and nobody has to be re-opened."""
    paths, place = make_sites(tmp_path, recipe=SECURE), tmp_path / "run"
    with (
        dealing(monkeypatch, lambda shares, _: tuple(Outside() for _ in shares)),
        pytest.raises(FederationError, match="1 of 5 clients sent a masked vector"),
    ):
        carrier.hold(place, SECURE, paths)
    honest = without(paths, 2)
    for path in honest:
        history = history_of(path)
        assert (history.reveals, history.lists, history.releases) == ((), (), ())
    assert carrier.hold(carrier.after(place), SECURE, honest).moments == exact_total(tmp_path, honest)


@pytest.mark.slow
def test_a_round_that_failed_at_unmasking_costs_a_reopening_only_where_something_was_revealed(
    tmp_path, carrier, monkeypatch
):
    """Shares of another seed fit their commitments: only who puts them together sees it, when shares have left."""
    paths, place = make_sites(tmp_path, recipe=SECURE), tmp_path / "run"
    cheat, why = lambda _, deal: deal(b"x" * 32), "'site-2' dealt shares of another seed"
    with dealing(monkeypatch, cheat), pytest.raises(FederationError, match=why) as failed:
        carrier.hold(place, SECURE, paths, vanish={"site-4": "reveal"})
    assert "revealed shares in it are site-0, site-1, site-2, site-3; all others may join" in str(failed.value)
    assert "administrators re-open them" in str(failed.value)
    revealed = history_of(paths[0]).reveals[0].round[:8]
    told = invoke("reopen", paths[4], "-r", tmp_path / "recipe.toml", "--cohort", ",".join(names_of(paths))).exception
    assert f"It revealed in none of its rounds: {revealed} (it signed the list of sites)." in str(told)
    with pytest.raises(FederationError, match="1 sites joined the secure round"):
        carrier.hold(tmp_path / "second", SECURE, paths)
    said = carrier.left_out.values()
    assert sum(f"has already revealed in a round ({revealed})" in what for what in said) == 4
    reopen(paths[:4], paths)
    assert len(carrier.hold(tmp_path / "third", SECURE, paths).roster) == 5


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyError, secure.SharingError, secure.WireError])
@pytest.mark.parametrize("step", ["advance", "finish"])
def test_no_error_of_a_round_keeps_the_next_one_from_beginning(tmp_path, carrier, monkeypatch, step, error):
    paths, place = make_sites(tmp_path, 3, SECURE), tmp_path / "run"

    def broken(*_):
        raise error("bytes of a stranger")

    with monkeypatch.context() as patch:
        patch.setattr(secure, step, broken)
        with pytest.raises(FederationError):
            carrier.hold(place, SECURE, paths)
    if step == "finish":
        reopen(paths, paths)
    assert len(carrier.hold(carrier.after(place), SECURE, paths).roster) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "error"), [*((stage, KeyError) for stage in secure.STAGES), ("mask", secure.SharingError)]
)
def test_a_site_whose_bytes_cannot_be_taken_in_is_left_out(tmp_path, carrier, monkeypatch, stage, error):
    paths, receive = make_sites(tmp_path, 5, SECURE), secure.receive

    def broken(state, sender, data):
        if sender == "site-2" and state.stage == secure.SERVER_STAGES[secure.STAGES.index(stage)]:
            raise error("bytes of a stranger")
        return receive(state, sender, data)

    monkeypatch.setattr(secure, "receive", broken)
    total = carrier.hold(tmp_path / "run", SECURE, paths, dropout=0.2)
    assert len(total.roster) == (5 if stage in ("endorse", "reveal") else 4)


@pytest.mark.slow
@pytest.mark.parametrize("stage", secure.STAGES)
def test_hostile_bytes_at_any_stage_leave_a_site_out_or_end_the_round(tmp_path, carrier, stage):
    rng, paths, place = np.random.default_rng(5), make_sites(tmp_path, 5, SECURE), tmp_path / "run"

    def spoil(action, name, reply):
        if action != stage or name != "site-1":
            return reply
        data = bytearray(reply.content)
        for at in rng.integers(0, len(data), 3):
            data[at] ^= 1 << int(rng.integers(0, 8))
        return Letter(reply.fields, bytes(data))

    with contextlib.suppress(GhoflError):  # a spoilt vector makes a spoilt sum, of which no head may come
        carrier.hold(place, SECURE, paths, twist=spoil)
    assert not (place / "round").exists()


@pytest.mark.slow
def test_a_sum_that_no_rows_have_is_not_kept(tmp_path, carrier):
    """A site that lies can spoil a sum; kept, such a total could not be read by any later run."""
    paths, place = make_sites(tmp_path, recipe=SECURE), tmp_path / "run"

    def spoil(action, name, reply):
        is_it = action == "mask" and name == "site-1"
        return Letter(reply.fields, reply.content[:-100] + 100 * b"\x5f") if is_it else reply

    with pytest.raises(FederationError, match="administrators re-open them"):
        carrier.hold(place, SECURE, paths, twist=spoil)
    assert not (place / "total.ghofl").exists()
    carrier.after(place)


def test_a_recipe_that_is_not_secure_has_no_rounds(tmp_path):
    with pytest.raises(FederationError, match="privacy.secure = false"):
        Round.open(tmp_path, PLAIN, Options())
