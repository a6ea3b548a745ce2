"""Runs of a federation over an engine in this process: totals, failures, journals, and who is named for what."""

import json
from dataclasses import replace

import numpy as np
import pytest
from carriers import Killed, history_of, names_of

from federations import recipe_of
from ghofl import secure
from ghofl.classifier import Classifier
from ghofl.custody.custody import Custody
from ghofl.custody.site import Site
from ghofl.errors import FederationError, MissingStatisticError, SiteError
from ghofl.flower.server.federation import run
from ghofl.flower.server.folder import RunFolder
from ghofl.flower.server.settings import Settings
from ghofl.keeper.answers import answer
from ghofl.moments import Layout, Moments
from ghofl.privacy import entry_bound
from ghofl.recipe import Limits, Privacy, Recipe
from ghofl.wire.letter import Letter
from ghofl.wire.message import Message
from ghofl.wire.total import Total
from sites import PLAIN, SECURE, InProcess, exact_total, invoke, make_sites, reopen, settings


def killing(action, after):
    """A twist that ends the server when the answer number `after` to an action comes."""
    seen = []

    def twist(came, node, reply):
        if came == action:
            seen.append(node)
            if len(seen) == after:
                raise Killed
        return reply

    return twist


def test_novelty_is_learned_where_a_run_asks_for_it_and_refused_where_no_site_sends_what_it_needs(tmp_path):
    paths = make_sites(tmp_path)
    for config in ({}, {"novelty": True}):
        asked = Settings.of_config({"folder": str(tmp_path / "run"), "wait": 0.0, "heads": "lda", **config})
        made = Classifier.load(run(InProcess(paths), PLAIN, asked).heads["lda"])
        assert (made.novelty_rule is not None) == bool(config)
    with pytest.raises(MissingStatisticError, match="novelty needs statistics"):
        run(InProcess(paths), replace(PLAIN, statistics=()), settings(tmp_path / "none", novelty=True))
    assert not (tmp_path / "none").exists(), "nobody was asked"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [PLAIN, SECURE], ids=["plain", "secure"])
def test_the_total_of_a_run_is_the_plain_total_of_the_rows(tmp_path, recipe):
    paths = make_sites(tmp_path, recipe=recipe)
    outcome = run(InProcess(paths), recipe, settings(tmp_path / "run"))
    assert outcome.total.moments == exact_total(tmp_path, paths)
    assert set(outcome.sites.values()) == {"counted"}
    assert Total.load(tmp_path / "run" / "total.ghofl").moments == outcome.total.moments
    assert Classifier.load(outcome.heads["lda"]).recipe == recipe
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["status"] == "complete"
    assert report["counted"] == 5
    assert "site-3" in (tmp_path / "run" / "report.md").read_text()
    assert len(json.loads((tmp_path / "run" / "roster.json").read_text())) == 5
    assert not (tmp_path / "run" / "round").exists()


def test_a_killed_server_goes_on_without_asking_again_and_counts_nobody_twice(tmp_path):
    paths = make_sites(tmp_path)
    with pytest.raises(Killed):
        run(InProcess(paths, twist=killing("message", 4)), PLAIN, settings(tmp_path / "run"))
    kept = {path.name for path in (tmp_path / "run" / "messages").iterdir()}
    assert len(kept) == 3
    sent = []

    def watch(action, node, reply):
        sent.append((node, reply.fields["status"], len(reply.payload) > 0))
        return reply

    outcome = run(InProcess(paths, twist=watch), PLAIN, settings(tmp_path / "run"))
    assert outcome.total.moments == exact_total(tmp_path, paths)
    assert sorted(sent) == [(n, "counted", False) for n in (100, 101, 102)] + [(n, "sent", True) for n in (103, 104)]
    assert sorted(outcome.sites.values()) == ["counted"] * 2 + ["counted before"] * 3


def test_a_site_that_comes_when_a_round_has_begun_waits_for_a_later_run(tmp_path):
    paths = make_sites(tmp_path, recipe=SECURE)
    with pytest.raises(Killed):
        run(InProcess(paths[:4], twist=killing("mask", 2)), SECURE, settings(tmp_path / "run"))
    outcome = run(InProcess(paths), SECURE, settings(tmp_path / "run"))
    assert outcome.total.moments == exact_total(tmp_path, paths[:4])
    assert outcome.sites["site-4"] == "left out: the round had begun without it; a later run includes it"


def test_a_round_whose_total_was_written_is_over_even_if_it_was_not_forgotten(tmp_path, monkeypatch):
    """Killed between the two, with a site that had vanished: the round must not be added a second time."""
    paths = make_sites(tmp_path, recipe=SECURE)

    def die(_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "end_round", die)
        with pytest.raises(Killed):
            run(InProcess(paths, dead={102: "mask"}), SECURE, settings(tmp_path / "run", dropout=0.2))
    assert (tmp_path / "run" / "round" / "state").exists()
    outcome = run(InProcess(paths), SECURE, settings(tmp_path / "run"))
    assert outcome.total.moments == exact_total(tmp_path, [p for i, p in enumerate(paths) if i != 2])
    assert not (tmp_path / "run" / "round").exists()


def test_a_total_with_shared_noise_takes_no_later_sites_and_stays_usable(tmp_path):
    promise = Privacy(radius=4.0, epsilon=8.0, delta=1e-5, secure=True, noise="distributed", min_cohort=2)
    recipe = replace(PLAIN, privacy=promise)
    paths = make_sites(tmp_path, count=8, recipe=recipe)
    names = {100 + i: f"site-{i}" for i in range(8)}
    first = run(InProcess(paths[:4], names=names), recipe, settings(tmp_path / "run"))
    late = InProcess(paths, names=names)
    again = run(late, recipe, settings(tmp_path / "run"))
    assert again.total.moments == first.total.moments
    assert again.sites["site-7"] == "left out: the total has the noise of its own sites, and no site can be added"
    assert again.sites["site-0"] == "counted before"
    assert late.asked == [], "nobody is asked to unmask what cannot be added"


def test_a_message_that_could_make_the_sum_overflow_is_left_out_before_it_is_kept(tmp_path):
    """A claim of almost as many rows as 64 bits hold passes alone; kept, it would stop every later run."""
    recipe = recipe_of(bits=16, limits=Limits(max_rows=8_590_458_904))
    paths, layout = make_sites(tmp_path, recipe=recipe), Layout.of(recipe)
    rows = (2**63 - 1) // layout.bound**2 - 10
    blocks = {**Moments.zeros(layout).blocks, "N": np.full(layout.classes, rows // layout.classes)}
    data = Message(recipe.fingerprint, "0" * 32, "site-4", Moments(layout, blocks)).to_bytes()
    twist = lambda a, node, reply: Letter(reply.fields, data) if node == 104 else reply  # noqa: E731
    first = run(InProcess(paths[:4]), recipe, settings(tmp_path / "run"))
    outcome = run(InProcess(paths, twist=twist), recipe, settings(tmp_path / "run"))
    assert "could overflow 64-bit integers" in outcome.sites["node 104 (as 'site-4')"]
    assert outcome.total.moments == first.total.moments


def test_a_node_that_says_it_is_counted_and_is_not_is_told(tmp_path):
    paths = make_sites(tmp_path)
    twist = lambda a, node, reply: Letter({"status": "counted", "site": "site-4"}) if node == 104 else reply  # noqa: E731
    outcome = run(InProcess(paths, twist=twist), PLAIN, settings(tmp_path / "run"))
    assert "says that it is already counted, but it is not" in outcome.sites["node 104 (as 'site-4')"]


def test_a_site_answers_each_stage_only_once(tmp_path):
    refused = []

    class Again(InProcess):
        def ask(self, action, letters, seconds, size):
            yield from super().ask(action, letters, seconds, size)
            if action == "endorse":
                other = {node: Letter(letter.fields, letter.payload + b"x") for node, letter in letters.items()}
                refused.extend(came.letter.fields["why"] for came in super().ask(action, other, seconds, size))

    run(Again(make_sites(tmp_path, 3, SECURE)), SECURE, settings(tmp_path / "run"))
    assert len(refused) == 3
    assert all("a site answers each stage only once" in why for why in refused)


def test_late_sites_are_added_to_a_finished_total(tmp_path):
    paths = make_sites(tmp_path, count=6)
    first = run(InProcess(paths[:4]), PLAIN, settings(tmp_path / "run"))
    assert first.total.moments == exact_total(tmp_path, paths[:4])
    second = run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    assert second.total.moments == exact_total(tmp_path, paths)
    assert second.sites["site-0"] == "counted before"
    assert second.sites["site-5"] == "counted"


@pytest.mark.slow
def test_late_sites_of_a_secure_federation_come_in_a_round_of_their_own(tmp_path):
    paths = make_sites(tmp_path, count=8, recipe=SECURE)
    run(InProcess(paths[:4]), SECURE, settings(tmp_path / "run"))
    few = run(InProcess(paths[:6]), SECURE, settings(tmp_path / "run"))
    assert len(few.total.roster) == 4
    assert few.sites["site-5"] == "left out: a later secure round needs three new sites"
    outcome = run(InProcess(paths), SECURE, settings(tmp_path / "run"))
    assert outcome.total.moments == exact_total(tmp_path, paths)
    assert len(outcome.total.roster) == 8


def test_a_site_is_removed_exactly_and_stays_out(tmp_path):
    paths = make_sites(tmp_path)
    run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    for changes in ({"remove": ("site-1",)}, {}, {"remove": ("site-1",)}):
        outcome = run(InProcess(paths), PLAIN, settings(tmp_path / "run", **changes))
        assert outcome.total.moments == exact_total(tmp_path, [p for i, p in enumerate(paths) if i != 1])
        assert outcome.sites["site-1"] == "removed"


def test_a_removed_site_that_sends_a_new_message_is_refused(tmp_path):
    paths = make_sites(tmp_path)
    run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    run(InProcess(paths), PLAIN, settings(tmp_path / "run", remove=("site-1",)))
    for path in (tmp_path / "memory-1" / "outbox").iterdir():
        path.unlink()
    outcome = run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    assert len(outcome.total.roster) == 4


def test_sites_sign_no_list_of_too_few_for_a_total_that_is_handed_out(tmp_path):
    recipe = replace(SECURE, privacy=replace(SECURE.privacy, hand_out=True))
    with pytest.raises(FederationError):
        run(InProcess(make_sites(tmp_path, 4, recipe=recipe)), recipe, settings(tmp_path / "run", corruption=0.1))
    assert not (tmp_path / "run" / "total.ghofl").exists()
    assert "the total is handed out" in json.loads((tmp_path / "run" / "report.json").read_text())["sites"]["site-0"]


def broken(tmp_path, paths, name):
    """Spoil one site in a way its name says."""
    site = paths[2]
    if name == "another recipe":
        other = tmp_path / "other.toml"
        Recipe(PLAIN.classes, PLAIN.encoder).save(other)
        site.write_text(site.read_text() + 'recipe = "other.toml"\n')
    elif name == "another class list":
        other = tmp_path / "other.toml"
        Recipe((*PLAIN.classes[:-1], "secret"), PLAIN.encoder).save(other)
        site.write_text(site.read_text() + 'recipe = "other.toml"\n')
    elif name == "unknown labels":
        with np.load(tmp_path / "2.npz") as data:
            x, y = data["x"], data["y"]
        np.savez(tmp_path / "2.npz", x=x, y=y + 7777777)
    elif name == "no data":
        (tmp_path / "2.npz").unlink()
    elif name == "too few rows":
        (tmp_path / "strict.toml").write_text("min_rows = 5000\nany_peers = true\nany_recipe = true\n")
        site.write_text(site.read_text().replace("policy.toml", "strict.toml"))


FAULTS = {
    "another recipe": "another recipe",
    "another class list": "another class list",
    "unknown labels": "EmbeddingsError",
    "no data": "its files could not be read",
    "too few rows": "fewer rows than its policy's min_rows of 5000",
}


@pytest.mark.parametrize("recipe", [PLAIN, SECURE], ids=["plain", "secure"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_site_is_reported_and_left_out_before_it_sends_anything(tmp_path, recipe, fault):
    paths = make_sites(tmp_path, recipe=recipe)
    broken(tmp_path, paths, fault)
    sent = []
    engine = InProcess(
        paths, names={102: "site-2"}, twist=lambda a, n, reply: sent.append((n, len(reply.payload))) or reply
    )
    outcome = run(engine, recipe, settings(tmp_path / "run"))
    assert FAULTS[fault] in outcome.sites["site-2"]
    assert "777777" not in outcome.sites["site-2"]  # labels of rows are nobody's business
    assert sum(size for node, size in sent if node == 102) == 0
    assert outcome.total.moments == exact_total(tmp_path, [p for i, p in enumerate(paths) if i != 2])


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "too few for a message"),
        (b"garbage" * 1000, "not a ghofl message"),
        (bytes(10**6), "this recipe allows"),
    ],
)
def test_hostile_bytes_are_left_out(tmp_path, payload, why):
    paths = make_sites(tmp_path)
    twist = lambda a, node, reply: Letter(reply.fields, payload) if node == 104 else reply  # noqa: E731
    outcome = run(InProcess(paths, twist=twist), PLAIN, settings(tmp_path / "run"))
    assert why in outcome.sites["node 104 (as 'site-4')"]
    assert len(outcome.total.roster) == 4
    assert len(list((tmp_path / "run" / "messages").iterdir())) == 4


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"status": "sent"},
        {"status": "sent", "site": 5},
        {"status": "odd", "site": "a"},
        {"status": "counted", "site": "\x1b[2J" + 100 * "x"},
    ],
)
def test_answers_of_another_app_are_left_out(tmp_path, fields):
    paths = make_sites(tmp_path)
    twist = lambda a, node, reply: Letter(fields, reply.payload) if node == 104 else reply  # noqa: E731
    outcome = run(InProcess(paths, twist=twist), PLAIN, settings(tmp_path / "run"))
    assert any("the node runs another app" in what for what in outcome.sites.values())
    assert len(outcome.total.roster) == 4


def test_a_node_cannot_speak_for_another(tmp_path):
    paths = make_sites(tmp_path)
    names = {100 + i: f"site-{i}" for i in range(5)}
    engine = InProcess([*paths[:4], paths[0]], names=names)
    outcome = run(engine, PLAIN, settings(tmp_path / "run"))
    assert "registered as 'site-4' and its site calls itself 'site-0'" in outcome.sites["site-4"]
    assert outcome.sites["site-0"] == "counted"
    assert outcome.total.moments == exact_total(tmp_path, paths[:4])


def test_two_unnamed_nodes_of_one_site_count_once(tmp_path):
    paths = make_sites(tmp_path)
    outcome = run(InProcess([*paths, paths[0]]), PLAIN, settings(tmp_path / "run"))
    assert outcome.total.moments == exact_total(tmp_path, paths)


def authenticated(tmp_path, **changes):
    paths = make_sites(tmp_path, recipe=SECURE, keys=True)
    pems = {100 + i: (tmp_path / f"key-{i}.pub").read_bytes() for i in range(5)}
    return paths, pems, settings(tmp_path / "run", authenticated=True, **changes)


def test_round_keys_are_vouched_for_by_the_keys_of_the_nodes(tmp_path):
    paths, keys, chosen = authenticated(tmp_path)
    outcome = run(InProcess(paths, keys=keys), SECURE, chosen)
    assert outcome.total.moments == exact_total(tmp_path, paths)


def test_a_site_whose_round_key_another_node_signed_is_left_out(tmp_path):
    paths, keys, chosen = authenticated(tmp_path)
    outcome = run(InProcess(paths, keys={**keys, 103: keys[101]}), SECURE, chosen)
    assert "signed by another key" in outcome.sites["node 103 (as 'site-3')"]
    assert len(outcome.total.roster) == 4


def test_a_site_without_a_node_key_is_left_out_unless_the_run_says_otherwise(tmp_path):
    paths, keys, chosen = authenticated(tmp_path)
    paths[3].write_text(paths[3].read_text().replace('auth_key = "key-3"', ""))
    outcome = run(InProcess(paths, keys=keys), SECURE, chosen)
    assert "not signed by the key that its node is registered with" in outcome.sites["node 103 (as 'site-3')"]


def test_a_folder_belongs_to_one_recipe_and_one_server(tmp_path):
    paths = make_sites(tmp_path)
    run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    with pytest.raises(FederationError, match="give another folder for another recipe"):
        run(InProcess(paths), SECURE, settings(tmp_path / "run"))
    with RunFolder(tmp_path / "run", PLAIN), pytest.raises(FederationError, match="another server is at work"):
        run(InProcess(paths), PLAIN, settings(tmp_path / "run"))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({}, "needs a folder"),
        ({"folder": "x", "colour": 1}, "unknown run-config key colour"),
        ({"folder": "x", "min-sites": 0}, "min-sites is 0"),
        ({"folder": "x", "timeout": 0}, "timeout is 0"),
        ({"folder": "x", "sites": "three"}, "sites is 'three'; it must be a whole number"),
        ({"folder": "x", "peers": "p.toml", "authenticated": False}, "give one of the two"),
    ],
)
def test_settings_that_cannot_work_are_refused(config, why):
    with pytest.raises(SiteError, match=why):
        Settings.of_config(config)


def test_settings_come_from_the_run_configuration():
    config = {"folder": "x", "remove": "a, b", "min-sites": 2, "timeout": 3, "simulated-alpha": 0.1}
    assert Settings.of_config(config) == Settings("x", remove=("a", "b"), min_sites=2, timeout=3.0)


SHARED = replace(
    PLAIN, privacy=Privacy(radius=4.0, epsilon=8.0, delta=1e-5, secure=True, noise="distributed", min_cohort=2)
)


@pytest.mark.slow
def test_a_reveal_is_counted_when_it_leaves_even_if_the_server_never_gets_it(tmp_path):
    paths = make_sites(tmp_path, recipe=SECURE)
    with pytest.raises(Killed):
        run(InProcess(paths, twist=killing("reveal", 1)), SECURE, settings(tmp_path / "run"))
    revealed = [len(history_of(path).reveals) for path in paths]
    assert revealed == [1, 0, 0, 0, 0]
    with pytest.raises(FederationError, match="4 sites joined the secure round, .* at least 5"):
        run(InProcess(paths), SECURE, settings(tmp_path / "other", min_sites=5))
    # All five signed the list of five: with those signatures others may have unmasked it, so four are not shown.
    with pytest.raises(FederationError, match="0 of 4 clients advertised keys"):
        run(InProcess(paths), SECURE, settings(tmp_path / "third"))
    assert reopen(paths[0], tmp_path / "recipe.toml", names_of(paths)).exit_code == 0
    assert len(run(InProcess(paths), SECURE, settings(tmp_path / "fourth")).total.roster) == 5


@pytest.mark.slow
def test_a_reopened_site_reveals_once_more_in_exactly_the_round_that_was_named(tmp_path):
    paths, recipe_file = make_sites(tmp_path, count=6, recipe=SECURE), tmp_path / "recipe.toml"
    run(InProcess(paths[:3]), SECURE, settings(tmp_path / "run"))
    everyone = names_of(paths)
    seen = invoke("check", paths[0], "--recipe", recipe_file)
    assert "does not leave: this folder has already revealed in a round" in seen.output
    for path in paths[:3]:
        shown = invoke("reopen", path, "--recipe", recipe_file, "--cohort", ",".join(everyone), "--json", "-")
        assert json.loads(shown.output)["reopened"] is False
        assert "differ in site-3, site-4, site-5: the difference of the two sums is theirs alone" in shown.output
        done = json.loads(reopen(path, recipe_file, everyone, "--json", "-").output)
        assert done["reopened"] is True
        assert done["recipe"] == SECURE.fingerprint
        assert done["cohort"] == everyone
        assert done["data"] == Site.load(path).count(SECURE).version
    with pytest.raises(FederationError, match="0 of 3 clients advertised keys"):
        run(InProcess(paths[:3]), SECURE, settings(tmp_path / "other"))
    outcome = run(InProcess(paths), SECURE, settings(tmp_path / "again"))
    assert outcome.total.moments == exact_total(tmp_path, paths)
    with pytest.raises(FederationError, match="0 sites joined"):
        run(InProcess(paths), SECURE, settings(tmp_path / "once too often"))


@pytest.mark.slow
def test_a_folder_is_not_reopened_for_a_sum_that_would_show_one_site(tmp_path):
    paths, recipe_file = make_sites(tmp_path, recipe=SECURE), tmp_path / "recipe.toml"
    run(InProcess(paths), SECURE, settings(tmp_path / "run"))
    refused = reopen(paths[0], recipe_file, names_of(paths[:4]))
    assert "would show site-4 by itself; its policy's min_difference is 3" in str(refused.exception)
    policy = tmp_path / "policy.toml"
    policy.write_text(policy.read_text() + "min_difference = 1\n")
    assert reopen(paths[0], recipe_file, names_of(paths[:4])).exit_code == 0


@pytest.mark.slow
def test_reopening_is_for_the_rows_that_were_shown(tmp_path):
    paths, recipe_file = make_sites(tmp_path, count=3, recipe=SECURE), tmp_path / "recipe.toml"
    run(InProcess(paths), SECURE, settings(tmp_path / "run"))
    for path in paths:
        assert reopen(path, recipe_file, names_of(paths)).exit_code == 0
    with np.load(tmp_path / "2.npz") as data:
        x, y = data["x"], data["y"]
    np.savez(tmp_path / "2.npz", x=x[1:], y=y[1:])
    done = invoke("check", paths[2], "--recipe", recipe_file, "--again")
    assert done.exit_code == 4, done.output
    with pytest.raises(FederationError, match="2 sites joined"):
        run(InProcess(paths), SECURE, settings(tmp_path / "again"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cohort", "why"),
    [(["site-1", "site-2", "site-3"], "name all sites of the round"), (["site-0"], "three at least")],
)
def test_what_cannot_be_reopened_is_told(tmp_path, cohort, why):
    paths, recipe_file = make_sites(tmp_path, recipe=SECURE), tmp_path / "recipe.toml"
    assert "join its first round without re-opening" in str(reopen(paths[0], recipe_file, names_of(paths)).exception)
    run(InProcess(paths), SECURE, settings(tmp_path / "run"))
    assert why in str(reopen(paths[0], recipe_file, cohort).exception)
    (tmp_path / "memory-0" / "ledger.jsonl").unlink()
    assert "lines are missing or were changed" in str(reopen(paths[0], recipe_file, names_of(paths)).exception)
    (tmp_path / "memory-0" / "ledger.head").unlink()
    assert "it is missing, and this site revealed" in str(reopen(paths[0], recipe_file, names_of(paths)).exception)


@pytest.mark.slow
def test_every_round_has_noise_of_its_own_and_a_stage_asked_again_gives_the_same_bytes(tmp_path):
    """With noise that stays, the difference of two rounds has that of the sites they do not share, and no more."""
    policy = "max_epsilon = 20.0\nmax_delta = 1e-5\n"
    paths, recipe_file = make_sites(tmp_path, count=4, recipe=SHARED, policy=policy), tmp_path / "recipe.toml"
    masked = []

    def watch(action, node, reply):
        if action == "mask" and reply.fields["status"] == "sent":
            masked.append((node, reply.content))
        return reply

    class Twice(InProcess):
        def ask(self, action, letters, seconds, size):
            list(super().ask(action, letters, seconds, size))
            yield from super().ask(action, letters, seconds, size)

    first = run(Twice(paths, twist=watch), SHARED, settings(tmp_path / "first"))
    assert len(masked) == 8
    assert len(set(masked)) == 4
    for path in paths:
        assert reopen(path, recipe_file, names_of(paths)).exit_code == 0
    second = run(InProcess(paths), SHARED, settings(tmp_path / "second"))
    exact = exact_total(tmp_path, paths, replace(SHARED, privacy=Privacy(radius=4.0)))
    errors = [(total.moments - exact).sums for total in (first.total, second.total)]
    assert np.abs(errors[0]).sum() > 0
    assert not np.array_equal(*errors)


@pytest.mark.slow
def test_a_site_that_dies_between_drawing_its_noise_and_replying_masks_one_vector(tmp_path, monkeypatch):
    paths = make_sites(tmp_path, count=3, recipe=SHARED)
    made, mask = [], secure.mask

    def dying(state, letter, vector):
        made.append(vector.copy())
        if len(made) == 1:
            raise Killed
        return mask(state, letter, vector)

    monkeypatch.setattr(secure, "mask", dying)
    with pytest.raises(Killed):
        run(InProcess(paths), SHARED, settings(tmp_path / "run"))
    run(InProcess(paths), SHARED, settings(tmp_path / "run"))
    assert np.array_equal(made[0], made[1])
    first = Site.load(paths[0])
    assert not np.array_equal(made[0], Custody(first, first.storage()).kept_parcel(SHARED).vector)


@pytest.mark.slow
def test_the_bounds_that_a_server_chooses_teach_it_nothing(tmp_path, monkeypatch):
    """31 rounds that it lets fail would find a site's largest entry exactly, one bit at a time."""
    paths = make_sites(tmp_path, count=3, recipe=SECURE)
    true_bound = entry_bound(SECURE)
    reads = []
    original = Site.count
    monkeypatch.setattr(Site, "count", lambda *a: reads.append(1) or original(*a))
    for bit in range(31):
        monkeypatch.setattr("ghofl.custody.cohorts.entry_bound", lambda _, bit=bit: 2**bit + 1)
        engine = InProcess(paths)
        with pytest.raises(FederationError, match="0 of 3 clients advertised keys"):
            run(engine, SECURE, settings(tmp_path / "run"))
        report = json.loads((tmp_path / "run" / "report.json").read_text())
        assert set(report["sites"].values()) == {
            "left out: the round's bound and length do not follow from the recipe; use those that do."
        }
        assert {action for action, _ in engine.asked} == {"join", "advertise"}
    assert len(reads) == 3, "rows were read when they were packed, and not because of a bound"
    monkeypatch.setattr("ghofl.custody.cohorts.entry_bound", lambda _: true_bound)
    assert len(run(InProcess(paths), SECURE, settings(tmp_path / "run")).total.roster) == 3


def test_a_site_with_more_rows_than_the_recipe_allows_is_left_out_and_told_at_the_site(tmp_path):
    recipe = replace(SECURE, limits=Limits(max_rows=80))
    paths = make_sites(tmp_path, recipe=recipe)
    counts = [Site.load(path).count(recipe).moments.rows for path in paths]
    assert min(sorted(counts)[:3]) <= 80 < max(counts)
    engine = InProcess(paths, names={100 + i: f"site-{i}" for i in range(5)})
    large = int(np.argmax(counts))
    try:
        sites = run(engine, recipe, settings(tmp_path / "run")).sites
    except FederationError:
        sites = json.loads((tmp_path / "run" / "report.json").read_text())["sites"]
    assert sites[f"site-{large}"] == "left out: this site's rows do not fit the recipe's limits."
    told = invoke("check", paths[large], "-r", tmp_path / "recipe.toml")
    assert f"has {counts[large]} rows, and the recipe allows 80" in str(told.exception)


def test_sites_refuse_rounds_of_fewer_than_their_recipe_asks_for(tmp_path, monkeypatch):
    """The server is the one that must not be believed: it plans for three where the recipe says five."""
    recipe = replace(SECURE, privacy=Privacy(secure=True, min_cohort=5))
    paths = make_sites(tmp_path, recipe=recipe)
    monkeypatch.setattr("ghofl.custody.cohorts.check_cohort", lambda *_: None)
    monkeypatch.setattr("ghofl.custody.cohorts.fewest_survivors", lambda _: (0, 0))
    with pytest.raises(FederationError, match="0 of 5 clients advertised keys"):
        run(InProcess(paths), recipe, settings(tmp_path / "run", dropout=0.2))
    assert "of 5 sites 1 may vanish, and a sum covers at least 5" in (tmp_path / "run" / "report.json").read_text()


@pytest.mark.slow
def test_sites_refuse_shared_noise_that_colluders_could_take_away(tmp_path, monkeypatch):
    recipe = replace(SHARED, privacy=replace(SHARED.privacy, min_cohort=4))
    paths = make_sites(tmp_path, recipe=recipe)
    assert len(run(InProcess(paths), recipe, settings(tmp_path / "fine")).total.roster) == 5
    (tmp_path / "other").mkdir()
    paths = make_sites(tmp_path / "other", recipe=recipe)
    monkeypatch.setattr("ghofl.custody.cohorts.check_cohort", lambda *_: None)
    monkeypatch.setattr("ghofl.custody.cohorts.fewest_survivors", lambda _: (0, 0))
    with pytest.raises(FederationError, match="0 of 5 clients advertised keys"):
        run(InProcess(paths), recipe, settings(tmp_path / "run"))
    assert "this site asks for 4 that keep their noise" in (tmp_path / "run" / "report.json").read_text()


def test_the_server_plans_for_fewer_dropouts_where_the_total_would_not_be_used(tmp_path, caplog):
    caplog.set_level("INFO")
    paths = make_sites(tmp_path, recipe=SECURE)
    run(InProcess(paths), SECURE, settings(tmp_path / "run", min_sites=5, dropout=0.4))
    assert (
        "This round of 5 sites can lose none of them, fewer than dropout=0.4 asks for: a sum needs at least 5 sites"
        in caplog.text
    )
    assert "5 sites, of which 0 may vanish and 1 may collude with the server" in caplog.text


def test_a_site_vouches_for_its_key_under_one_recipe_of_a_round(tmp_path):
    """With signatures for two recipes, some sites would mask zeros (a tiny scale) beside the vector of another."""
    site = Site.load(make_sites(tmp_path, recipe=SECURE, keys=True)[0])
    coarse = replace(SECURE, grid=replace(SECURE.grid, scale=1e-9))
    first = Letter({"recipe": SECURE.to_toml(), "round": "a" * 32})
    assert "signature" in answer("join", first, site, site.storage()).fields
    other = answer("join", Letter({"recipe": coarse.to_toml(), "round": "a" * 32}), site, site.storage())
    assert "signature" not in other.fields
    assert "another recipe; a round has one" in other.fields["why"]
    assert answer("join", first, site, site.storage()).fields["status"] == "joined"


@pytest.mark.parametrize("round_id", ["../../outside", "A" * 32, "f" * 31, "é" * 20])
def test_an_agreement_whose_id_is_not_hexadecimal_is_refused_before_it_names_a_file(tmp_path, round_id):
    site = Site.load(make_sites(tmp_path, recipe=SECURE)[0])
    sites = tuple(secure.Participant(f"site-{i}", secure.Identity.fresh().public) for i in range(3))
    agreement = secure.Agreement(round_id, sites, bytes(32), 7, secure.plan(3, 100))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "recipe").write_text(SECURE.to_toml())
    reply = answer("advertise", Letter({}, agreement.to_bytes()), site, site.storage())
    assert "ids are 32 hexadecimal digits" in reply.fields["why"]


@pytest.mark.slow
def test_a_damaged_round_is_forgotten_and_the_next_run_opens_another(tmp_path):
    paths = make_sites(tmp_path, recipe=SECURE)
    with pytest.raises(Killed):
        run(InProcess(paths, twist=killing("mask", 2)), SECURE, settings(tmp_path / "run"))
    (tmp_path / "run" / "round" / "state").write_bytes(b"garbage")
    with pytest.raises(FederationError, match="is damaged; .* The next run opens a new one"):
        run(InProcess(paths), SECURE, settings(tmp_path / "run"))
    assert len(run(InProcess(paths), SECURE, settings(tmp_path / "run")).total.roster) == 5


def test_without_peers_a_site_joins_no_round_unless_it_accepts_anyone(tmp_path):
    paths = make_sites(tmp_path, recipe=SECURE)
    (tmp_path / "policy.toml").write_text("any_recipe = true\n")
    with pytest.raises(FederationError, match="0 sites joined"):
        run(InProcess(paths), SECURE, settings(tmp_path / "run"))
    assert "does not say with whom it joins secure rounds" in (tmp_path / "run" / "report.json").read_text()
    for path in paths:
        path.write_text(path.read_text().replace('policy = "policy.toml"', ""))
    with pytest.raises(FederationError, match="0 sites joined"):
        run(InProcess(paths), SECURE, settings(tmp_path / "run"))


def test_a_file_of_peers_that_names_nobody_is_not_a_word_for_anybody(tmp_path):
    paths = make_sites(tmp_path, recipe=SECURE, policy='peers = "peers.toml"\n')
    (tmp_path / "peers.toml").write_text("# to be filled in\n")
    with pytest.raises(FederationError, match="0 sites joined"):
        run(InProcess(paths), SECURE, settings(tmp_path / "run"))


def test_a_secure_recipe_never_leaves_as_a_message(tmp_path):
    """Asked for a message, a site must not send the vector that a round would hide."""
    site = Site.load(make_sites(tmp_path, recipe=SECURE)[0])
    reply = answer("message", Letter({"recipe": SECURE.to_toml()}), site, site.storage())
    assert reply.fields["status"] == "refused"
    assert reply.payload == b""
    joined = answer("join", Letter({"recipe": PLAIN.to_toml(), "round": "0" * 32}), site, site.storage())
    assert "not for secure rounds" in joined.fields["why"]
