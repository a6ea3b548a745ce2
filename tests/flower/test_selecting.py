"""The second phase of a run: sites get the total and judge heads of it, and the best one is built."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from test_federation import Killed, killing

from ghofl.classifier import Classifier
from ghofl.custody.departures import REPORT, departures
from ghofl.custody.handing_out import HandOuts
from ghofl.custody.history import History
from ghofl.custody.inspection import inspect
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Site
from ghofl.errors import FederationError, HeadError, PolicyError
from ghofl.evaluation.leave_out import cross_validate
from ghofl.evaluation.selection import Report, best_of
from ghofl.flower.server.federation import run
from ghofl.keeper.answers import answer
from ghofl.recipe import Privacy
from ghofl.report.what_left import protection_of, what_left
from ghofl.wire.letter import Letter
from ghofl.wire.message import Message
from ghofl.wire.total import Total
from sites import PLAIN, InProcess, exact_total, make_sites, settings

OPEN = replace(PLAIN, privacy=Privacy(hand_out=True, min_cohort=5))
HIDDEN = replace(PLAIN, privacy=Privacy(hand_out=True, secure=True))
NAMES = {100 + i: f"site-{i}" for i in range(6)}
HEADS = "best,nearest_mean"


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """Where the journal of hand-outs is; every test has its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def engine_of(paths, **more):
    return InProcess(paths, names=NAMES, **more)


def choosing(folder, **more):
    return settings(folder, select=HEADS, corruption=0.1, **more)


def selection_in(folder):
    return json.loads((folder / "selection.json").read_text())


def lines_of(path):
    return [line.what for line in Ledger.load(Site.load(path).storage()).lines]


@pytest.mark.parametrize("recipe", [OPEN, HIDDEN], ids=["plain", "secure"])
def test_a_run_selects_the_head_that_pooled_cross_validation_would_and_builds_it(tmp_path, recipe):
    paths = make_sites(tmp_path, recipe=recipe)
    engine = engine_of(paths)
    outcome = run(engine, recipe, choosing(tmp_path / "run"))
    assert [asked for asked in engine.asked if asked[0] == "judge"] == [("judge", node) for node in engine.paths]
    plain = replace(recipe, privacy=Privacy())
    total = replace(outcome.total, recipe=plain, moments=exact_total(tmp_path, paths))
    reports = []
    for entry, path in zip(total.roster, paths, strict=True):
        x, y = Site.load(path).rows(plain)
        known = replace(entry, sha256=Site.load(path).count(plain).moments.sha256)
        alone = replace(total, roster=tuple(known if e == entry else replace(e, sha256="") for e in total.roster))
        reports += [Report.of_left_out(one) for one in cross_validate(alone, x, y, HEADS).values()]
    expected, found = best_of(reports), selection_in(tmp_path / "run")
    assert [each["confusion"] for each in found["heads"]] == [each.confusion.counts.tolist() for each in expected]
    assert (found["sites"], found["left_out"]) == (sorted(NAMES.values())[:5], {})
    assert set(outcome.heads) == {"lda", expected[0].head}
    made = Classifier.load(outcome.heads[expected[0].head])
    assert made.total == outcome.total.moments.sha256 == found["total_sha256"]
    assert any(
        f"Selected by 5 folds at each of 5 sites: {expected[0].head}" in note for note in report_of(tmp_path)["notes"]
    )
    for path in paths:
        assert lines_of(path)[-3:] == ["received", "reported", "answered"], "in the ledger before it leaves"
    handed = [json.loads(line)["to"] for line in (tmp_path / "run" / "handed-out.jsonl").read_text().splitlines()]
    assert handed == found["sites"]
    assert all(
        p.stat().st_mode & 0o077 == 0 for p in (tmp_path / "run").rglob("*") if p.is_file() and p.name != ".lock"
    )


def test_both_ways_of_handing_a_total_out_keep_one_journal(tmp_path, monkeypatch):
    """A total from a run, and then one without a site from a file, would show that site to whoever has both."""
    paths = make_sites(tmp_path, 6, recipe=OPEN)
    run(engine_of(paths), OPEN, choosing(tmp_path / "run", sites=6))
    messages = [Message.load(path, OPEN) for path in sorted((tmp_path / "run" / "messages").iterdir())]
    fewer, one = Total.of(messages[1:], OPEN), messages[1]
    counts = {message.id: message.moments.counts for message in messages}
    with pytest.raises(PolicyError, match="would have one over 1 site;"):
        HandOuts.of_user(OPEN).hand_out(fewer, one.site, counts)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    assert HandOuts.of_user(OPEN).hand_out(fewer, one.site, counts).moments == fewer.moments


def test_the_site_s_page_of_what_left_has_the_report_its_server_got_and_the_total_that_came(tmp_path):
    paths = make_sites(tmp_path, recipe=OPEN)
    total = run(engine_of(paths), OPEN, choosing(tmp_path / "run")).total
    site = Site.load(paths[0])
    ledger = Ledger.load(site.storage())
    (report,) = [one for one in departures(ledger, History.of(ledger), site.storage()) if one.kind == REPORT]
    sent = (tmp_path / "run" / "judged" / f"{total.roster[0].id}.json").read_bytes()
    assert (report.bytes, report.key) == (len(sent), hashlib.sha256(sent).hexdigest())
    page = what_left(site, ledger, "site.toml")
    assert "a file, for whoever" not in page
    assert f">{total.moments.sha256[:12]}…</td>" in page
    assert protection_of(OPEN) == "no noise; as plain messages; the sites in the exact total get it"


def report_of(folder):
    return json.loads((folder / "run" / "report.json").read_text())


@pytest.mark.parametrize("recipe", [OPEN, HIDDEN], ids=["plain", "secure"])
def test_a_server_that_was_killed_in_the_second_phase_asks_only_who_has_not_reported(tmp_path, recipe):
    paths = make_sites(tmp_path, recipe=recipe)
    with pytest.raises(Killed):
        run(engine_of(paths, twist=killing("judge", 3)), recipe, choosing(tmp_path / "run"))
    assert len(list((tmp_path / "run" / "judged").iterdir())) == 2
    again = engine_of(paths)
    run(again, recipe, choosing(tmp_path / "run"))
    assert [node for action, node in again.asked if action == "judge"] == [102, 103, 104]
    assert len(selection_in(tmp_path / "run")["sites"]) == 5
    assert [lines_of(path).count("reported") for path in paths] == [1] * 5, "the same answer again is no second report"
    third = engine_of(paths)
    run(third, recipe, choosing(tmp_path / "run"))
    assert not [node for action, node in third.asked if action == "judge"]


def test_sites_that_refuse_fail_or_lie_are_named_and_left_out(tmp_path):
    paths = make_sites(tmp_path, count=6, recipe=OPEN)
    (tmp_path / "strict.toml").write_text("any_recipe = true\nmin_rows = 1\ndisclosure = { class_rows = 1000 }\n")

    def twist(action, node, reply):
        if action == "message" and node == 101:  # after its message has left, the administrator has second thoughts
            paths[1].write_text(paths[1].read_text().replace("policy.toml", "strict.toml"))
        if action == "judge" and node == 102:
            values = json.loads(reply.content)
            values["heads"][0]["confusion"][0][0] += 1000
            return Letter(reply.fields, json.dumps(values).encode())
        if action == "judge" and node == 103:
            return Letter({"status": "sent", "site": "site-3"}, b"[" * 1000)
        return reply

    outcome = run(engine_of(paths, twist=twist, dead={100: "judge"}), OPEN, choosing(tmp_path / "run"))
    found = selection_in(tmp_path / "run")
    assert found["sites"] == ["site-4", "site-5"]
    said = found["left_out"]
    assert "gone" in said["site-0"]
    assert "fewer rows than this site's policy allows" in said["site-1"]
    assert "do not count the rows that it has in the total" in said["site-2"]
    assert "is not a report" in said["site-3"]
    assert set(outcome.sites.values()) == {"counted"}, "they stay in the total"
    assert sum(note.startswith("site-") for note in report_of(tmp_path)["notes"]) == 4


def test_only_nodes_that_are_registered_as_a_site_of_the_total_get_it(tmp_path):
    """A node may call itself what it likes."""
    paths = make_sites(tmp_path, recipe=OPEN)
    engine = InProcess(paths, names={100: "site-0", 101: "", 102: ""})
    outcome = run(engine, OPEN, choosing(tmp_path / "run"))
    assert [node for action, node in engine.asked if action == "judge"] == [100]
    assert "not connected under the name" in selection_in(tmp_path / "run")["left_out"]["site-1"]
    nobody = InProcess(paths)
    outcome = run(nobody, OPEN, choosing(tmp_path / "second"))
    assert set(outcome.heads) == {"lda"}
    assert "none was selected" in " ".join(json.loads((tmp_path / "second" / "report.json").read_text())["notes"])


def test_a_total_that_would_show_its_recipients_too_few_sites_goes_to_none_of_them(tmp_path):
    """Of five sites two may collude with the recipient, which leaves two."""
    paths = make_sites(tmp_path, recipe=OPEN)
    engine = engine_of(paths)
    run(engine, OPEN, settings(tmp_path / "run", select=HEADS, corruption=0.4))
    assert not [node for action, node in engine.asked if action == "judge"]
    found = selection_in(tmp_path / "run")
    assert all("3 beside 2 that may collude with it" in why for why in found["left_out"].values())
    assert not (tmp_path / "run" / "handed-out.jsonl").exists()


def test_in_a_secure_round_sites_sign_no_list_of_too_few_for_a_total_that_is_handed_out(tmp_path):
    paths = make_sites(tmp_path, count=4, recipe=HIDDEN)
    with pytest.raises(FederationError):
        run(engine_of(paths), HIDDEN, choosing(tmp_path / "run"))
    assert not (tmp_path / "run" / "total.ghofl").exists()
    assert "the total is handed out" in report_of(tmp_path)["sites"]["site-0"]


@pytest.mark.parametrize(
    ("recipe", "heads", "said"), [(PLAIN, "lda", "does not hand it out"), (OPEN, "what", "unknown")]
)
def test_a_selection_that_cannot_be_made_is_refused_before_anybody_is_asked(tmp_path, recipe, heads, said):
    engine = engine_of(make_sites(tmp_path, recipe=recipe))
    with pytest.raises((FederationError, HeadError), match=said):
        run(engine, recipe, settings(tmp_path / "run", select=heads))
    assert engine.asked == []


@pytest.fixture
def after_a_run(tmp_path):
    """A site, its total, and a way to ask it to judge heads."""
    paths = make_sites(tmp_path, recipe=OPEN)
    run(engine_of(paths), OPEN, settings(tmp_path / "run"))
    total, site = Total.load(tmp_path / "run" / "total.ghofl"), Site.load(paths[0])

    def ask(total=total, recipe=OPEN, **fields):
        letter = Letter({"recipe": recipe.to_toml(), "heads": "lda", "folds": 5, **fields}, total.to_bytes())
        return answer("judge", letter, site, site.storage())

    return ask, total, paths[0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"folds": 1}, "from 2 to 20"), ({"folds": 10**6}, "from 2 to 20"), ({"folds": "5"}, "from 2 to 20"),
        ({"heads": 3}, "heads are a text"), ({"heads": "x" * 2000}, "heads are a text"), ({"heads": "what"}, "HeadError"),
        ({"heads": ",".join(f"lda(shrinkage=0.{i})" for i in range(1, 10))}, "9 heads are asked for"),
        ({"recipe": PLAIN}, "does not hand the exact total out"),
    ],
)  # fmt: skip
def test_a_question_that_is_none_is_refused(after_a_run, fields, said):
    ask, _, path = after_a_run
    reply = ask(**fields)
    assert reply.fields["status"] == "refused"
    assert said in reply.fields["why"]
    assert "reported" not in lines_of(path)


def test_totals_that_the_site_is_not_in_or_that_were_made_up_are_refused(after_a_run):
    ask, total, path = after_a_run
    less = replace(total, roster=total.roster[1:])
    empty = replace(
        total, moments=total.moments - total.moments, roster=tuple(replace(e, rows=None) for e in total.roster)
    )
    other = replace(total, roster=(replace(total.roster[0], id="0" * 32), *total.roster[1:]))
    for made_up, why in ((less, "not in the roster"), (other, "not in the roster"), (empty, "MessageError")):
        made_up = replace(made_up, roster=tuple(replace(e, rows=None) for e in made_up.roster))
        reply = ask(made_up)
        assert why in reply.fields.get("why", ""), reply.fields
    assert ask(replace(total, recipe=PLAIN)).fields["status"] == "refused"
    assert "reported" not in lines_of(path)


def test_a_site_answers_the_same_again_and_few_questions_in_all(after_a_run):
    """A made-up total is a question of its own, so there are not many of them."""
    ask, _, path = after_a_run
    first = [ask(heads=head) for head in ("lda", "nearest_mean", "ridge")]
    assert {reply.fields["status"] for reply in first} == {"sent"}
    assert "or reported on them, 3 times" in ask(heads="rda").fields["why"]
    assert ask(heads="lda").content == first[0].content
    assert lines_of(path).count("reported") == 3


def test_under_a_recipe_that_was_declined_no_report_leaves_not_even_again(after_a_run):
    ask, _, path = after_a_run
    assert ask().fields["status"] == "sent"
    inspect(Site.load(path), OPEN, confirm=False)
    for heads in ("lda", "ridge"):
        assert "has declined recipe" in ask(heads=heads).fields["why"]


def test_rows_that_changed_since_they_were_sent_are_not_judged(after_a_run, tmp_path):
    ask, _, path = after_a_run
    with np.load(tmp_path / "0.npz") as file:
        np.savez(tmp_path / "0.npz", x=file["x"] + 1.0, y=file["y"])
    assert "RosterError" in ask().fields["why"]
    assert "reported" not in lines_of(path)


def test_an_approval_covers_what_was_sent_and_no_parcel_that_was_packed_since(tmp_path):
    paths = make_sites(tmp_path, recipe=OPEN, policy="confirm = true\n")
    for path in paths:
        inspect(Site.load(path), OPEN, confirm=True)
    run(engine_of(paths), OPEN, settings(tmp_path / "run"))
    inspect(Site.load(paths[0]), OPEN, again=True)
    run(engine_of(paths), OPEN, choosing(tmp_path / "run"))
    found = selection_in(tmp_path / "run")
    assert found["sites"] == ["site-1", "site-2", "site-3", "site-4"]
    assert "approved something else than what was sent" in found["left_out"]["site-0"]


def test_refusals_do_not_tell_a_server_the_sums_of_a_site_whose_vector_was_masked(tmp_path):
    """A made-up total is refused where the site has more rows than it: asked often enough, that would be its count."""
    paths = make_sites(tmp_path, recipe=HIDDEN)
    outcome, site = run(engine_of(paths), HIDDEN, settings(tmp_path / "run")), Site.load(paths[0])
    counts = site.count(HIDDEN).moments.counts

    def refused(rows):
        made_up = outcome.total.moments - outcome.total.moments
        made_up.blocks["N"][0] = rows
        total = replace(outcome.total, moments=made_up)
        letter = Letter({"recipe": HIDDEN.to_toml(), "heads": "lda", "folds": 5}, total.to_bytes())
        return answer("judge", letter, site, site.storage()).fields["why"]

    said = [refused(rows) for rows in range(int(counts[0]) + 4)]
    assert len({*said[:3]}) == 1, "what is wrong with a total is not said"
    assert all("3 times" in why for why in said[3:]), "and a question counts, whether it is answered or not"
