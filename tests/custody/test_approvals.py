"""An approval is for the bytes that were shown, and nothing else leaves under it."""

import json
import signal

import numpy as np
import pytest
from test_cli import ghofl

from ghofl.custody.custody import Custody
from ghofl.custody.inspection import inspect
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Site
from ghofl.errors import FederationError, PolicyError
from ghofl.flower.server.federation import run
from ghofl.keeper.answers import answer
from ghofl.wire.letter import Letter
from sites import PLAIN, SECURE, InProcess, confirmed, exact_total, invoke, make_sites, settings

NAMED = ("--cohort", "site-2,site-0,site-1")


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_sites(tmp_path, 1, policy="confirm = true\n")[0]


def shown_by(path, *more):
    """The sha256 that `flower check` shows."""
    return json.loads(invoke("check", path, "-r", "recipe.toml", "--json", "-", *more).output)["sha256"]


def decisions(path):
    return [(line.what, dict(line.facts)) for line in Ledger.load(Site.load(path).storage()).of("approved", "declined")]


def answered(path):
    site = Site.load(path)
    return answer("message", Letter({"recipe": PLAIN.to_toml()}), site, site.storage())


def without_a_row(path):
    with np.load(path.with_suffix(".npz")) as rows:
        x, y = rows["x"][1:], rows["y"][1:]
    np.savez(path.with_suffix(".npz"), x=x, y=y)


@pytest.mark.parametrize("recipe", [PLAIN, SECURE], ids=["plain", "secure"])
@pytest.mark.parametrize("choice", ["approved", "declined"])
def test_a_decision_is_a_line_of_the_ledger(tmp_path, monkeypatch, recipe, choice):
    monkeypatch.chdir(tmp_path)
    path = make_sites(tmp_path, 1, recipe=recipe, policy="confirm = true\n")[0]
    more = NAMED if recipe.privacy.secure else ()
    shown = inspect(Site.load(path), recipe).parcel
    words = ("--confirm", shown.sha256) if choice == "approved" else ("--decline",)
    ghofl("flower", "check", path, "-r", "recipe.toml", *words, *more, code=0 if choice == "approved" else 4)
    facts = {"recipe": recipe.fingerprint, "data": shown.data, "parcel": shown.sha256}
    if choice == "approved":
        facts |= {"cohort": ["site-0", "site-1", "site-2"] if more else []}
    assert decisions(path) == [(choice, facts)]


@pytest.mark.parametrize("again", [(), ("--again",)], ids=["as it was packed", "packed again"])
def test_rows_that_changed_since_they_were_shown_are_not_approved(path, capsys, again):
    shown = shown_by(path)
    without_a_row(path)
    now = shown_by(path, *again)
    assert (now == shown) == (not again)
    ghofl("flower", "check", path, "-r", "recipe.toml", "--confirm", shown, code=2)
    said = capsys.readouterr().err
    assert now in said
    assert (shown in said, "--again" in said) == (True, not again), "what to do is said"
    assert decisions(path) == []
    assert answered(path).fields["status"] == "refused"
    assert confirmed("check", path, "-r", "recipe.toml").exit_code == (0 if again else 1)
    assert shown_by(path, "--again") != now


@pytest.mark.parametrize("cut", [slice(12), slice(0), slice(None, None, -1)], ids=["short", "empty", "another"])
def test_only_the_whole_sha256_is_confirmed(path, capsys, cut):
    shown = shown_by(path)
    ghofl("flower", "check", path, "-r", "recipe.toml", "--confirm", shown[cut], code=2)
    said = capsys.readouterr().err
    assert shown in said
    assert f"'{shown[cut]}' was confirmed" in said
    assert "nothing was approved" in said
    assert decisions(path) == []


def test_what_was_not_shown_is_not_approved(path):
    """A first look and its approval in one command would approve what nobody has seen."""
    ghofl("flower", "check", path, "-r", "recipe.toml", "--confirm", code=2)
    ghofl("flower", "check", path, "-r", "recipe.toml", "--confirm", "0" * 64, code=2)
    said = ghofl("flower", "check", path, "-r", "recipe.toml", "--again", "--confirm", "0" * 64, code=2)
    assert "nobody has seen" in " ".join(said.split())
    said = ghofl("flower", "check", path, "-r", "recipe.toml", "--decline", "--confirm", "0" * 64, code=2)
    assert "give one of them" in said
    assert decisions(path) == []


def test_an_approval_is_for_the_bytes_that_were_shown(path):
    confirmed("check", path, "-r", "recipe.toml")
    site = Site.load(path)
    assert Custody(site, site.storage()).parcel_to_send(PLAIN).rows
    assert "waits for --confirm" in invoke("check", path, "-r", "recipe.toml", "--again").output
    with pytest.raises(PolicyError, match="has not approved"):
        Custody(site, site.storage()).parcel_to_send(PLAIN)


@pytest.mark.slow
def test_what_has_left_may_be_approved_and_reopened_again_whatever_the_rows_are_now(tmp_path, monkeypatch):
    """The difference of sums of other rows would be what changed."""
    monkeypatch.chdir(tmp_path)
    paths = make_sites(tmp_path, 3, SECURE, "confirm = true\nmin_difference = 1\n")
    for path in paths:
        assert confirmed("check", path, "-r", "recipe.toml").exit_code == 0
    exact = exact_total(tmp_path, paths)
    run(InProcess(paths), SECURE, settings(tmp_path / "1"))
    without_a_row(paths[0])
    cohort = ("--cohort", "site-0,site-1,site-2")
    refused = invoke("reopen", paths[0], "-r", "recipe.toml", *cohort, "--confirm", "0" * 64)
    assert "nothing was approved" in str(refused.exception)
    with pytest.raises(FederationError):
        run(InProcess(paths), SECURE, settings(tmp_path / "2"))
    for path in paths:
        assert confirmed("check", path, "-r", "recipe.toml", *cohort).exit_code in (0, 4)
        assert confirmed("reopen", path, "-r", "recipe.toml", *cohort).exit_code == 0
    assert run(InProcess(paths), SECURE, settings(tmp_path / "3")).total.moments == exact


def test_a_cohort_that_cannot_be_is_refused_before_anything_is_approved(path, capsys):
    shown = shown_by(path)
    ghofl("flower", "check", path, "-r", "recipe.toml", "--cohort", "a,b,c", "--confirm", shown, code=2)
    assert "only secure rounds have a cohort" in capsys.readouterr().err
    assert decisions(path) == []


@pytest.mark.parametrize("choice", ["approved", "declined"])
def test_ctrl_c_before_the_line_leaves_none_and_after_it_the_command_says_what_it_wrote(path, monkeypatch, choice):
    words = ("--confirm", shown_by(path)) if choice == "approved" else ("--decline",)

    def interrupted(method):
        before = getattr(Custody, method)

        def at(*values):
            signal.raise_signal(signal.SIGINT)
            return before(*values)

        return at

    with monkeypatch.context() as patch:
        patch.setattr(Custody, "kept_parcel", interrupted("kept_parcel"))
        ghofl("flower", "check", path, "-r", "recipe.toml", *words, code=130)
    assert decisions(path) == []
    with monkeypatch.context() as patch:
        for method in ("allow", "decline"):
            patch.setattr(Custody, method, interrupted(method))
        said = ghofl("flower", "check", path, "-r", "recipe.toml", *words, code=0 if choice == "approved" else 4)
    assert [line for line, _ in decisions(path)] == [choice]
    assert f"it is {choice}" in said
