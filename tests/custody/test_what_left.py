"""The page about what left a site says what its ledger says, with the bytes that `check` and `audit` state."""

import json
import re
import stat
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from test_cli import ghofl

from ghofl.custody.custody import kept_parcel
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Site
from ghofl.errors import FederationError
from ghofl.flower.server.federation import run
from ghofl.recipe import Privacy
from sites import PLAIN, SECURE, InProcess, make_sites, settings

LOCAL = replace(PLAIN, privacy=Privacy(epsilon=8.0, delta=1e-5, radius=9.0, noise="local"))


@pytest.fixture
def federation(tmp_path, monkeypatch):
    """Runs a federation of five sites in a folder, which becomes the current one; gives the file of its first site."""
    monkeypatch.chdir(tmp_path)

    def start(recipe, policy=""):
        paths = make_sites(tmp_path, recipe=recipe, policy=policy)
        refused = pytest.raises(FederationError) if "min_rows" in policy else nullcontext()
        with refused:
            run(InProcess(paths), recipe, settings(tmp_path / "run"))
        return paths[0]

    return start


def _page(site: Path) -> tuple[str, dict]:
    said = json.loads(ghofl("ledger", site, "-o", "what-left.html", "--force", "--json", "-"))
    return Path("what-left.html").read_text(encoding="utf-8"), said


def test_a_message_has_the_bytes_and_sentences_of_check_and_audit(federation):
    site = federation(PLAIN)
    page, said = _page(site)
    (left,) = said["departures"]
    checked = json.loads(ghofl("flower", "check", site, "-r", "recipe.toml", "--json", "-"))
    parcel = kept_parcel(Site.load(site).storage(), PLAIN.fingerprint)
    Path("message.ghofl").write_bytes(parcel.content)
    audited = json.loads(ghofl("audit", "message.ghofl", "-r", "recipe.toml", "--json", "-"))
    assert left["bytes"] == checked["bytes"] == audited["bytes"]
    assert left["reveals"] == checked["reveals"]
    assert left["sha256"] == parcel.sha256
    assert f"{left['bytes']:,} bytes" in page
    assert parcel.sha256 in page
    assert "the server of the federation" in page
    assert said["guarantee"] in page


def test_a_masked_vector_has_the_bytes_of_check_its_round_and_the_signed_list(federation):
    site = federation(SECURE)
    page, said = _page(site)
    (left,) = said["departures"]
    checked = json.loads(ghofl("flower", "check", site, "-r", "recipe.toml", "--json", "-", code=4))
    assert (left["what"], left["bytes"]) == ("masked vector", checked["bytes"])
    everybody = ", ".join(f"site-{i}" for i in range(5))
    assert f"in a secure round of {everybody}" in page
    assert f"learned the sum over {everybody}" in page
    assert "sites of the signed list" in page


def test_under_noise_the_page_states_the_combined_guarantee_and_the_agreed_recipe(federation):
    page, said = _page(federation(LOCAL))
    assert said["guarantee"].startswith("Together they keep")
    assert "the one agreed on here" in page
    assert "epsilon = 8 by local noise" in page


def test_a_message_that_was_asked_for_twice_left_once_and_one_packed_again_is_another(federation):
    site = federation(PLAIN)
    (once,) = _page(site)[1]["departures"]
    run(InProcess([site]), PLAIN, settings("run-2"))
    page, said = _page(site)
    assert [one["sha256"] for one in said["departures"]] == [once["sha256"]]
    assert "given 2 times" in page
    ghofl("flower", "check", site, "-r", "recipe.toml", "--again")
    run(InProcess([site]), PLAIN, settings("run-3"))
    page, said = _page(site)
    first, second = said["departures"]
    assert first["sha256"] != second["sha256"]
    assert (first["reveals"], bool(second["reveals"])) == ([], True), "sentences are those of what they were said about"


def test_only_its_owner_reads_the_page_and_it_loads_and_runs_nothing(federation):
    site = federation(PLAIN)
    page, _ = _page(site)
    assert stat.S_IMODE(Path("what-left.html").stat().st_mode) == 0o600
    assert "default-src 'none'" in page
    assert "script" not in page.lower()
    assert not re.search(
        r"(src|href)=", page.replace("default-src", "").replace("style-src", "").replace("img-src", "")
    )
    assert "@media print" in page
    assert "exists already" in " ".join(ghofl("ledger", site, "-o", "what-left.html", code=2).split())


def test_names_and_reasons_from_outside_are_escaped(federation):
    site = federation(PLAIN)
    storage, attack = Site.load(site).storage(), "<img src=x onerror='a()'>\x1b[2J"
    ledger = Ledger.load(storage).write(storage, "refused", action="message", why=attack)
    facts = {
        "round": "r" * 32,
        "recipe": PLAIN.fingerprint,
        "data": "d" * 64,
        "cohort": [attack],
        "survivors": [attack],
    }
    ledger.write(storage, "endorsed", **facts).write(storage, "approved", recipe=attack, data="", cohort=[attack])
    page, _ = _page(site)
    assert "<img" not in page
    assert "\x1b" not in page
    assert "&lt;img" in page


def test_a_site_that_sent_nothing_has_a_page_that_says_so_and_a_damaged_ledger_has_none(federation, capsys):
    site = federation(PLAIN, policy="min_rows = 100000\ndisclosure = { class_rows = 7 }\n")
    page, said = _page(site)
    assert said["departures"] == []
    assert "Nothing has left this folder yet." in page
    assert "100,000 rows or more" in page
    assert "if a class has rows, but fewer than 7" in page
    assert "fewer rows than its policy" in page, "what was refused is listed with its reason"
    path = Path("memory-0/ledger.jsonl")
    path.write_bytes(path.read_bytes().replace(b"refused", b"refusal"))
    ghofl("ledger", site, "-o", "other.html", code=2)
    assert "damaged" in " ".join(capsys.readouterr().err.split())
    assert not Path("other.html").exists()
