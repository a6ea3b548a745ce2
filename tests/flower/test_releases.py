"""Noisy totals that a server draws are counted and composed: in a run's folder, and beside a total file."""

import json
import shutil
import stat
import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from federations import blobs, total_of
from ghofl import files
from ghofl.cli import app
from ghofl.errors import BusyError, FederationError
from ghofl.flower.server.federation import run
from ghofl.flower.server.report import load_used_total, write_html
from ghofl.privacy import compose, plan_of
from ghofl.recipe import Privacy
from ghofl.wire.total import Total
from sites import PLAIN, InProcess, make_sites, settings

CENTRAL = replace(PLAIN, privacy=Privacy(radius=4.0, epsilon=1.0, delta=1e-6))


def told(folder):
    return json.loads((folder / "guarantee.json").read_text())


def test_four_releases_of_a_run_s_folder_are_four_and_compose(tmp_path):
    paths, promised = make_sites(tmp_path, 5, CENTRAL), plan_of(CENTRAL).guarantee
    for number, sites in enumerate((2, 3, 4, 5), start=1):
        run(InProcess(paths[:sites]), CENTRAL, settings(tmp_path / "run"))
        found = told(tmp_path / "run")["guarantee"]
        assert found["releases"] == number
        assert found["epsilon"] == pytest.approx(compose([promised] * number).epsilon)
        assert Total.load(tmp_path / "run" / "released.ghofl").guarantee.releases == number
    assert "in 4 releases" in (tmp_path / "run" / "report.md").read_text()
    assert json.loads((tmp_path / "run" / "report.json").read_text())["guarantee"]["releases"] == 4
    run(InProcess(paths), CENTRAL, settings(tmp_path / "run"))
    assert told(tmp_path / "run")["guarantee"]["releases"] == 4, "the same total again is the same release"
    (tmp_path / "run" / "total.ghofl").unlink()
    run(InProcess(paths), CENTRAL, settings(tmp_path / "run"))
    assert told(tmp_path / "run")["guarantee"]["releases"] == 4


def test_the_page_of_a_run_shows_the_noisy_total_and_what_all_releases_promise(tmp_path):
    pytest.importorskip("matplotlib")
    paths = make_sites(tmp_path, 3, CENTRAL)
    for sites in (2, 3):
        run(InProcess(paths[:sites]), CENTRAL, settings(tmp_path / "run"))
    assert "shows this run in a browser" in write_html(tmp_path / "run")
    text = (tmp_path / "run" / "report.html").read_text()
    assert "in 2 releases" in text
    assert stat.S_IMODE((tmp_path / "run" / "report.html").stat().st_mode) == 0o600
    exact, (shown, _) = Total.load(tmp_path / "run" / "total.ghofl"), load_used_total(tmp_path / "run")
    assert shown.is_released
    assert shown.moments != exact.moments
    words = ["report", str(tmp_path / "run"), "-o", str(tmp_path / "again.html")]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert "in 2 releases" in (tmp_path / "again.html").read_text()


def test_a_failed_run_leaves_no_page_of_the_run_before(tmp_path):
    paths = make_sites(tmp_path, 3)
    run(InProcess(paths[:2]), PLAIN, settings(tmp_path / "run"))
    (tmp_path / "run" / "report.html").write_text("of the run before")
    with pytest.raises(FederationError):
        run(InProcess(paths[:2]), PLAIN, settings(tmp_path / "run", min_sites=3))
    assert not (tmp_path / "run" / "report.html").exists()


def test_without_the_report_extra_a_run_says_how_to_get_its_page(tmp_path, monkeypatch):
    for name in ("ghofl.report.page", "ghofl.report.charts"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run(InProcess(make_sites(tmp_path, 2)), PLAIN, settings(tmp_path / "run"))
    assert "pip install 'ghofl[report]'" in write_html(tmp_path / "run")
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_journal_of_releases_that_is_damaged_stops_the_run(tmp_path):
    paths = make_sites(tmp_path, 3, CENTRAL)
    run(InProcess(paths), CENTRAL, settings(tmp_path / "run"))
    (tmp_path / "run" / "releases.jsonl").write_text("nonsense\n")
    with pytest.raises(FederationError, match=r"releases\.jsonl is damaged"):
        run(InProcess(paths), CENTRAL, settings(tmp_path / "run"))


def test_a_release_whose_journal_was_lost_is_counted(tmp_path):
    paths = make_sites(tmp_path, 3, CENTRAL)
    run(InProcess(paths[:2]), CENTRAL, settings(tmp_path / "run"))
    (tmp_path / "run" / "releases.jsonl").unlink()
    run(InProcess(paths), CENTRAL, settings(tmp_path / "run"))
    assert told(tmp_path / "run")["guarantee"]["releases"] == 2


def test_an_exact_total_is_no_release_under_epsilon(tmp_path):
    run(InProcess(make_sites(tmp_path, 3)), PLAIN, settings(tmp_path / "run"))
    assert told(tmp_path / "run")["guarantee"] is None
    assert not (tmp_path / "run" / "releases.jsonl").exists()


@pytest.mark.parametrize("where", ["beside.ghofl", "elsewhere/total.ghofl"])
def test_a_copied_total_goes_on_counting_its_releases(tmp_path, where):
    total_of(CENTRAL, *blobs(np.random.default_rng(0))).save(tmp_path / "total.ghofl")
    copy = tmp_path / where
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(tmp_path / "total.ghofl", copy)
    for number, path in enumerate((tmp_path / "total.ghofl", copy, tmp_path / "total.ghofl", copy), start=1):
        done = CliRunner().invoke(app, ["release", str(path), "-o", str(tmp_path / f"{number}.out"), "--json", "-"])
        assert json.loads(done.output)["composed"]["releases"] == number
        assert Total.load(tmp_path / f"{number}.out").guarantee.releases == number
    other = total_of(CENTRAL, *blobs(np.random.default_rng(1)))
    other.save(tmp_path / "other.ghofl")
    done = CliRunner().invoke(app, ["release", str(tmp_path / "other.ghofl"), "-o", str(tmp_path / "o"), "--json", "-"])
    assert json.loads(done.output)["composed"]["releases"] == 1, "another total has a count of its own"


def test_a_copy_of_a_run_s_total_knows_of_the_run_s_release(tmp_path):
    run(InProcess(make_sites(tmp_path, 3, CENTRAL)), CENTRAL, settings(tmp_path / "run"))
    shutil.copy(tmp_path / "run" / "total.ghofl", tmp_path / "copy.ghofl")
    done = CliRunner().invoke(
        app, ["release", str(tmp_path / "copy.ghofl"), "-o", str(tmp_path / "out"), "--json", "-"]
    )
    assert json.loads(done.output)["composed"]["releases"] == 2


def test_where_copies_cannot_be_counted_the_command_stops_and_a_run_says_so(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    run(InProcess(make_sites(tmp_path, 3, CENTRAL)), CENTRAL, settings(tmp_path / "run"))
    assert "Set XDG_STATE_HOME to a folder of yours" in caplog.text
    assert told(tmp_path / "run")["guarantee"]["releases"] == 1
    words = ["release", str(tmp_path / "run" / "total.ghofl"), "-o", str(tmp_path / "out")]
    assert isinstance(CliRunner().invoke(app, words).exception, FederationError)
    assert not (tmp_path / "out").exists()


def test_a_release_waits_for_another_one_so_that_both_are_counted(tmp_path, monkeypatch):
    total_of(CENTRAL, *blobs(np.random.default_rng(0))).save(tmp_path / "total.ghofl")
    monkeypatch.setattr("ghofl.cli.server.WAIT", 0.0)
    words = ["release", str(tmp_path / "total.ghofl"), "-o", str(tmp_path / "released.ghofl")]
    with files.lock(tmp_path):
        assert isinstance(CliRunner().invoke(app, words).exception, BusyError)
    assert not (tmp_path / "released.ghofl").exists()
    assert CliRunner().invoke(app, words).exit_code == 0
    assert len((tmp_path / "total.ghofl.releases.jsonl").read_text().splitlines()) == 1


def test_a_total_of_another_recipe_is_not_released_where_its_file_could_not_be_read(tmp_path):
    path, words = tmp_path / "total.ghofl", ["release", str(tmp_path / "total.ghofl"), "-o"]
    for name, epsilon in (("first", 1.0), ("second", 2.0)):
        recipe = replace(CENTRAL, privacy=replace(CENTRAL.privacy, epsilon=epsilon))
        total_of(recipe, *blobs(np.random.default_rng(0))).save(path)
        done = CliRunner().invoke(app, [*words, str(tmp_path / f"{name}.ghofl")])
    assert isinstance(done.exception, FederationError)
    assert "counts releases under another recipe" in str(done.exception)
    assert Total.load(tmp_path / "first.ghofl").guarantee.epsilon <= 1.0
    assert not (tmp_path / "second.ghofl").exists()
    assert len((tmp_path / "total.ghofl.releases.jsonl").read_text().splitlines()) == 1
