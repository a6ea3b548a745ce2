"""The folder of a federation at the server: who may read it, who leaves it, what stays, and how its last run came out."""

import json
import logging
import os
import stat

import pytest
from carriers import Killed, without
from typer.testing import CliRunner

from ghofl.classifier import Classifier
from ghofl.cli import app
from ghofl.errors import FederationError, RosterError
from ghofl.flower.server.federation import run
from ghofl.flower.server.folder import RunFolder
from ghofl.flower.server.report import status_of
from ghofl.wire.message import Message
from sites import PLAIN, SECURE, InProcess, exact_total, make_sites, settings


def contents(folder):
    """Every file below a folder but its lock, with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [PLAIN, SECURE], ids=["plain", "secure"])
def test_everything_in_the_folders_of_server_and_sites_is_their_owner_s(tmp_path, recipe):
    """Whatever the umask: messages, totals and the state of a round were readable by everybody on the machine."""
    paths, seen = make_sites(tmp_path, recipe=recipe), set()

    def look(action, node, reply):
        for path in (tmp_path / "run").rglob("*"):
            seen.add(path.name)
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
        return reply

    previous = os.umask(0)
    try:
        run(InProcess(paths, twist=look), recipe, settings(tmp_path / "run"))
        if recipe is PLAIN:
            run(InProcess(paths), recipe, settings(tmp_path / "run", remove=("site-1",)))
    finally:
        os.umask(previous)
    assert ({"round", "state"} if recipe is SECURE else {"messages", "incoming"}) <= seen
    for folder in (tmp_path / "run", *tmp_path.glob("memory-*")):
        for path in (folder, *folder.rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_forgotten_site_leaves_its_name_and_no_moments_and_stays_out(tmp_path, caplog):
    paths = make_sites(tmp_path)
    run(InProcess(paths), PLAIN, settings(tmp_path / "run", heads="lda,nearest_mean"))
    (message,) = (m for m in (tmp_path / "run" / "messages").iterdir() if Message.load(m, PLAIN).site == "site-1")
    sent = message.read_bytes()
    with caplog.at_level(logging.INFO, "flwr"):
        outcome = run(InProcess(paths), PLAIN, settings(tmp_path / "run", remove=("site-1",), forget=True))
    assert "Heads and released totals that were given away" in caplog.text
    assert "backups" in caplog.text
    assert outcome.total.moments == exact_total(tmp_path, without(paths, 1))
    left = contents(tmp_path / "run")
    assert [name for name in left if "old-heads" in name or name.endswith("nearest-mean.ghofl")] == []
    assert not any(sent in data for data in left.values())
    (kept,) = (tmp_path / "run" / "removed").iterdir()
    assert json.loads(kept.read_text()) == {"site": "site-1", "id": message.stem}
    for old in (tmp_path / "memory-1" / "outbox").iterdir():
        old.unlink()  # a message with another id, of the same site
    again = run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    assert len(again.total.roster) == 4
    assert again.sites["site-1"] == "removed"


def test_a_site_that_was_removed_may_be_forgotten_later(tmp_path):
    paths = make_sites(tmp_path)
    run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    run(InProcess(paths), PLAIN, settings(tmp_path / "run", remove=("site-1",)))
    (kept,) = (tmp_path / "run" / "removed").iterdir()
    assert Message.load(kept, PLAIN).site == "site-1"
    assert list((tmp_path / "run" / "old-heads").iterdir())
    run(InProcess(paths), PLAIN, settings(tmp_path / "run", remove=("site-1",), forget=True))
    assert [path.suffix for path in (tmp_path / "run" / "removed").iterdir()] == [".json"]
    assert not list((tmp_path / "run" / "old-heads").iterdir())
    assert (tmp_path / "run" / "heads" / "lda.ghofl").exists()


def test_a_server_that_dies_while_it_forgets_goes_on_forgetting(tmp_path, monkeypatch):
    paths = make_sites(tmp_path)
    run(InProcess(paths), PLAIN, settings(tmp_path / "run"))

    def die(_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "_finish_forgetting", lambda self: None)
        patch.setattr(RunFolder, "forget_old_heads", die)
        with pytest.raises(Killed):
            run(InProcess(paths), PLAIN, settings(tmp_path / "run", remove=("site-1",), forget=True))
    assert len(list((tmp_path / "run" / "removed").iterdir())) == 2
    assert not (tmp_path / "run" / "total.ghofl").exists()
    assert not list((tmp_path / "run" / "heads").iterdir())
    assert status_of(tmp_path / "run").status == "killed"
    outcome = run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    assert [path.suffix for path in (tmp_path / "run" / "removed").iterdir()] == [".json"]
    assert outcome.total.moments == exact_total(tmp_path, without(paths, 1))


def test_a_damaged_word_about_a_forgotten_site_is_told(tmp_path):
    paths = make_sites(tmp_path)
    run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    run(InProcess(paths), PLAIN, settings(tmp_path / "run", remove=("site-1",), forget=True))
    (kept,) = (tmp_path / "run" / "removed").iterdir()
    for text in ("", "[1]", '{"site": 5}', "nonsense"):
        kept.write_text(text)
        with pytest.raises(FederationError, match="does not say which site was removed"):
            run(InProcess(paths), PLAIN, settings(tmp_path / "run"))


def test_heads_that_know_a_site_that_left_are_set_aside_and_told(tmp_path, caplog):
    paths = make_sites(tmp_path)
    run(InProcess(paths), PLAIN, settings(tmp_path / "run", heads="lda,nearest_mean"))
    old = (tmp_path / "run" / "heads" / "nearest-mean.ghofl").read_bytes()
    with caplog.at_level(logging.INFO, "flwr"):
        run(InProcess(paths), PLAIN, settings(tmp_path / "run", remove=("site-1",)))
    assert [path.name for path in (tmp_path / "run" / "heads").iterdir()] == ["lda.ghofl"]
    assert Classifier.load(tmp_path / "run" / "heads" / "lda.ghofl").sites == 4
    assert (tmp_path / "run" / "old-heads" / "nearest-mean.ghofl").read_bytes() == old
    told = json.loads((tmp_path / "run" / "report.json").read_text())["notes"]
    assert any("old-heads/nearest-mean.ghofl" in note and "still contain what was removed" in note for note in told)
    assert "still contain what was removed" in caplog.text
    assert "still contain what was removed" in (tmp_path / "run" / "report.md").read_text()


def test_heads_that_know_a_site_that_left_go_even_when_too_few_are_left(tmp_path):
    paths = make_sites(tmp_path)
    run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    with pytest.raises(FederationError, match="4 sites are in the total and 5 are needed"):
        run(InProcess(paths), PLAIN, settings(tmp_path / "run", remove=("site-1",), min_sites=5))
    assert not list((tmp_path / "run" / "heads").iterdir())
    assert not (tmp_path / "run" / "total.ghofl").exists()
    assert not (tmp_path / "run" / "roster.json").exists()


def test_heads_of_the_same_total_stay_and_those_before_a_late_site_are_set_aside(tmp_path):
    paths = make_sites(tmp_path)
    run(InProcess(paths[:4]), PLAIN, settings(tmp_path / "run", heads="lda"))
    run(InProcess(paths[:4]), PLAIN, settings(tmp_path / "run", heads="nearest_mean"))
    heads = tmp_path / "run" / "heads"
    assert sorted(path.stem for path in heads.iterdir()) == ["lda", "nearest-mean"]
    for name in ("lda", "nearest_mean"):
        run(InProcess(paths), PLAIN, settings(tmp_path / "run", heads=name))
        assert all(Classifier.load(path).sites == 5 for path in heads.iterdir())
    assert sorted(path.stem for path in heads.iterdir()) == ["lda", "nearest-mean"]
    (old,) = (tmp_path / "run" / "old-heads").iterdir()
    assert Classifier.load(old).sites == 4


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"remove": ("nobody",)}, "'nobody' cannot be removed"),
        ({"remove": ("site-1", "nobody")}, "'nobody' cannot be removed"),
        ({"forget": True}, "goes with the names of sites to remove"),
    ],
)
def test_a_removal_that_is_refused_changes_nothing_and_keeps_the_report(tmp_path, changes, why):
    paths = make_sites(tmp_path)
    run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    before = contents(tmp_path / "run")
    engine = InProcess(paths)
    with pytest.raises(RosterError, match=why):
        run(engine, PLAIN, settings(tmp_path / "run", **changes))
    assert engine.asked == []
    after = contents(tmp_path / "run")
    assert why.strip("'").split()[0] in after.pop("refused.json").decode()
    assert after == before
    assert status_of(tmp_path / "run").status == "refused"
    run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    assert status_of(tmp_path / "run").status == "complete"
    assert not (tmp_path / "run" / "refused.json").exists()


def test_a_removal_from_a_secure_total_keeps_its_report(tmp_path):
    paths = make_sites(tmp_path, recipe=SECURE)
    run(InProcess(paths), SECURE, settings(tmp_path / "run"))
    before = contents(tmp_path / "run")
    with pytest.raises(FederationError, match="a secure total hides its parts"):
        run(InProcess(paths), SECURE, settings(tmp_path / "run", remove=("site-1",)))
    after = contents(tmp_path / "run")
    assert "hides its parts" in after.pop("refused.json").decode()
    assert after == before


@pytest.mark.parametrize("forget", [False, True])
def test_a_site_that_was_removed_is_never_told_to_be_counted(tmp_path, caplog, forget):
    paths = make_sites(tmp_path)
    run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    for changes in ({"remove": ("site-1",), "forget": forget}, {}):
        caplog.clear()
        with caplog.at_level(logging.INFO, "flwr"):
            run(InProcess(paths), PLAIN, settings(tmp_path / "run", **changes))
        lines = [record.getMessage() for record in caplog.records if "site-1" in record.getMessage()]
        assert "site-1 was removed and stays out" in lines
        assert not any("counted" in line or "sent their message" in line for line in lines)
        assert "4 of 4 sites sent their message" in caplog.text


def status(*words):
    return CliRunner().invoke(app, ["flower", "status", *map(str, words)])


def test_status_says_how_a_run_came_out_and_exits_accordingly(tmp_path):
    paths = make_sites(tmp_path)
    with pytest.raises(FederationError):
        run(InProcess(paths[:2]), PLAIN, settings(tmp_path / "run", min_sites=4))
    failed = status(tmp_path / "run")
    assert failed.exit_code == 1
    assert "2 sites are in the total" in failed.output
    run(InProcess(paths), PLAIN, settings(tmp_path / "run", min_sites=4))
    done = status(tmp_path / "run", "--json", "-")
    assert done.exit_code == 0
    told = json.loads(done.output)
    assert told["status"] == "complete"
    assert told["counted"] == 5
    assert told["sites"]["site-4"] == "counted"
    with RunFolder(tmp_path / "run", PLAIN):
        working = status(tmp_path / "run")
    assert working.exit_code == 3
    assert "in progress" in working.output
    with pytest.raises(RosterError):
        run(InProcess(paths), PLAIN, settings(tmp_path / "run", remove=("nobody",)))
    refused = status(tmp_path / "run")
    assert refused.exit_code == 1
    assert "nobody" in refused.output


def test_status_of_a_server_that_was_killed_is_not_that_of_the_run_before(tmp_path):
    paths = make_sites(tmp_path)
    run(InProcess(paths[:4]), PLAIN, settings(tmp_path / "run"))

    def die(*_):
        raise Killed

    with pytest.raises(Killed):
        run(InProcess(paths, twist=die), PLAIN, settings(tmp_path / "run"))
    killed = status(tmp_path / "run")
    assert killed.exit_code == 1
    assert "ended without a report" in killed.output
    run(InProcess(paths), PLAIN, settings(tmp_path / "run"))
    assert status(tmp_path / "run").exit_code == 0


@pytest.mark.parametrize(
    "text",
    [
        "", "nonsense", "[]", "{}", '{"status": "great"}', '{"status": ["complete"]}', '{"status": "complete", "sites": 5}',
        '{"status": "complete", "sites": {"a": 1}}', '{"status": "complete", "heads": ["lda"]}',
        '{"status": "complete", "counted": "5"}', '{"status": "complete", "notes": 5}', '{"status": "failed", "why": {}}',
        "\ud800", "[" * 100_000,
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_a_damaged_report_is_an_error_that_says_so(tmp_path, text):
    (tmp_path / "report.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(FederationError, match="is damaged"):
        status_of(tmp_path)


def test_status_of_a_folder_without_a_report_is_an_error(tmp_path):
    with pytest.raises(FederationError, match="has no report.json"):
        status_of(tmp_path)
    with pytest.raises(FederationError, match="is not a folder"):
        status_of(tmp_path / "no")
    for folder in (tmp_path, tmp_path / "no"):
        assert isinstance(status(folder).exception, FederationError)  # the command line ends these with 2


def test_names_of_strangers_cannot_write_to_the_terminal(tmp_path):
    sites = {"north[/x]": "left out: \x1b[2J[bold]", "[red]": "counted"}
    (tmp_path / "report.json").write_text(json.dumps({"status": "complete", "sites": sites}))
    done = status(tmp_path)
    assert done.exit_code == 0, done.exception
    assert "north[/x]" in done.output
    assert "\x1b" not in done.output
    assert "[bold]" in done.output
