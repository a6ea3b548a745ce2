"""The approval page over real HTTP: what it shows, what it records, and what attackers on the machine get from it."""

import http.client
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from queue import Queue
from urllib.parse import urlencode

import pytest
from test_cli import ghofl
from typer.main import get_command

from ghofl.cli import app, console
from ghofl.cli import flower as commands
from ghofl.custody.custody import Custody
from ghofl.custody.inspection import inspect
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Site
from ghofl.report.approval_service import fields_of
from sites import PLAIN, SECURE, make_sites

HOSTILE = "</p><img src=x onerror=alert(1)>"


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_sites(tmp_path, 1, policy="confirm = true\n")[0]


@contextmanager
def opened(path, *more, code=0):
    """The command with its page, in a thread of this process: the place, and the code that it printed."""
    told: Queue[tuple[str, str]] = Queue()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "_show_address", lambda *address: told.put(address))
        words = ("flower", "check", path, "-r", "recipe.toml", "--port", 0, "--json", "-", *more)
        ended: list[int | None] = []  # a runner of click's would swap standard output under the thread of the test

        def run():
            try:
                with console.report_errors():
                    ended.append(get_command(app).main(list(map(str, words)), standalone_mode=False))
            except SystemExit as end:
                ended.append(end.code)

        thread = threading.Thread(target=run)
        thread.start()
        url, secret = told.get(timeout=30)
        place = url.removeprefix("http://").removesuffix("/")
        try:
            yield place, secret
        finally:
            with suppress(OSError):  # of a page that was decided, and has ended or is ending
                post(place, code=secret, decision="decline")
            thread.join(30)
            assert [value or 0 for value in ended] == [code]


def ask(place, method, path="/", body=b"", **headers):
    """The status, headers and text of an answer."""
    name, port = place.split(":")
    link = http.client.HTTPConnection(name, int(port), timeout=30)
    try:
        link.request(method, path, body, headers)
        answer = link.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        link.close()


def post(place, headers=None, **fields):
    sent = {"Origin": f"http://{place}", "Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
    return ask(place, "POST", body=urlencode(fields).encode(), **{k: v for k, v in sent.items() if v is not None})


def decisions(path):
    return [(line.what, dict(line.facts)) for line in Ledger.load(Site.load(path).storage()).of("approved", "declined")]


def by_command(path, choice, more):
    ghofl("flower", "check", path, "-r", "recipe.toml", f"--{choice}", *more, code=0 if choice == "confirm" else 4)


def by_page(path, choice, more):
    with opened(path, *more, code=0 if choice == "confirm" else 4) as (place, code):
        status, _, text = post(place, code=code, decision={"confirm": "approve"}.get(choice, choice))
    assert status == 200
    assert ("Approved" if choice == "confirm" else "Declined") in text


@pytest.mark.parametrize("decide", [by_command, by_page])
@pytest.mark.parametrize("choice", ["confirm", "decline"])
@pytest.mark.parametrize("recipe", [PLAIN, SECURE], ids=["plain", "secure"])
def test_a_decision_is_the_same_line_of_the_ledger_through_both_doors(tmp_path, monkeypatch, recipe, choice, decide):
    monkeypatch.chdir(tmp_path)
    path = make_sites(tmp_path, 1, recipe=recipe, policy="confirm = true\n")[0]
    more = ("--cohort", "site-2,site-0,site-1", "--rounds", "2") if recipe.privacy.secure else ()
    decide(path, choice, more)
    shown = inspect(Site.load(path), recipe).parcel
    facts = {"recipe": recipe.fingerprint, "data": shown.data, "parcel": shown.sha256}
    if choice == "confirm":
        facts |= {"cohort": ["site-0", "site-1", "site-2"] if more else [], "rounds": 2 if more else 1}
    what = "approved" if choice == "confirm" else "declined"
    assert decisions(path) == [(what, facts)]
    ghofl("ledger", "report", path, "-o", "what-left.html")
    assert f">{what}</td>" in (tmp_path / "what-left.html").read_text()


def test_the_page_says_what_check_says_and_nothing_before_the_code_is_given(path, tmp_path):
    said = ghofl("flower", "check", path, "-r", "recipe.toml")
    found = inspect(Site.load(path), PLAIN)
    with opened(path, code=4) as (place, code):
        status, headers, text = ask(place, "GET")
        assert (status, "site-0" in text, found.recipe.fingerprint[:8] in text) == (200, False, False)
        status, _, shown = post(place, code=code)
        assert status == 200
        for sentence in found.sentences:
            assert sentence in said
            assert sentence.replace("'", "&#x27;") in shown
        assert f"{found.bytes:,} bytes" in shown
        assert found.parcel.sha256 in shown
        assert "Nothing leaves before you approve it." in shown
        assert "No server has asked for it yet." in shown
        assert decisions(path) == []
    assert "script" not in re.sub("data-src|script-src", "", shown)
    policy = headers["content-security-policy"]
    for part in ("default-src 'none'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert part in policy
    assert (headers["cache-control"], headers["set-cookie"], headers["server"]) == ("no-store", None, None)
    assert stat.S_IMODE(os.stat(tmp_path / "memory-0").st_mode) == 0o700


def test_who_has_no_code_or_comes_from_another_page_sees_and_decides_nothing(path):
    """Another user of the machine, a page on the web, a name that was made to point to this machine."""
    with opened(path, code=4) as (place, code):
        port = place.split(":")[1]
        attempts = [
            (403, post(place, code="x" * 22, decision="approve")),
            (403, post(place, code="", decision="approve")),
            (403, post(place, code="é" * 22, decision="approve")),
            (403, post(place, {"Origin": "http://evil.example"}, code=code, decision="approve")),
            (403, post(place, {"Origin": "null"}, code=code, decision="approve")),
            (403, post(place, {"Origin": f"http://127.0.0.1:{int(port) ^ 1}"}, code=code, decision="approve")),
            (403, post(place, {"Origin": None}, code=code, decision="approve")),
            (403, post(place, code=code, decision="approve", more="1")),
            (403, post(place, code=code, decision="Approve")),
            (403, ask(place, "PUT", body=urlencode({"code": code}).encode(), Origin=f"http://{place}")),
            (413, post(place, code=code, decision="approve", more="x" * 10_000)),
            (404, ask(place, "GET", f"/{code}")),
            (200, ask(place, "GET", f"/?code={code}&decision=approve")),
        ]
        for host in (f"evil.example:{port}", f"localhost:{port}", f"[::1]:{port}", "127.0.0.1", ""):
            attempts.append((421, ask(place, "GET", Host=host)))
            same = {"Host": host, "Origin": f"http://{host}"}
            attempts.append((421, post(place, same, code=code, decision="approve")))
        for expected, (status, _, text) in attempts:
            assert status == expected
            assert "site-0" not in text
            assert code not in text
        assert decisions(path) == []
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", int(port)), timeout=5)
        assert post(place, code=code)[0] == 200, "it still answers"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"code",
        b"code=a&code=b",
        b"code=a&decision=approve&decision=decline",
        b"code=%ff",
        b"code=\xff",
        b"a=1;code=2",
        b"code=a&more=1",
    ],
)
def test_what_is_not_the_form_has_no_fields(body):
    assert fields_of(body) is None


def test_what_was_packed_again_since_it_was_shown_is_not_approved(path):
    with opened(path, code=2) as (place, code):
        assert post(place, code=code)[0] == 200
        inspect(Site.load(path), PLAIN, again=True)
        status, _, text = post(place, code=code, decision="approve")
    assert (status, decisions(path)) == (409, [])
    assert "was packed again since it was shown" in text


def test_of_two_decisions_at_once_the_first_is_recorded(path):
    with opened(path) as (place, code):
        pair = [
            threading.Thread(target=post, args=(place,), kwargs={"code": code, "decision": "approve"}) for _ in "ab"
        ]
        for thread in pair:
            thread.start()
        for thread in pair:
            thread.join(30)
    assert [what for what, _ in decisions(path)] == ["approved"]


def test_names_in_a_recipe_become_neither_markup_nor_facts_about_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    liar = "b. What protects it: epsilon = 1 by local noise; in secure rounds only."
    recipe = replace(PLAIN, classes=(HOSTILE, liar, *PLAIN.classes[2:]), encoder=replace(PLAIN.encoder, name=HOSTILE))
    path = make_sites(tmp_path, 1, recipe=recipe, policy="confirm = true\n")[0]
    with opened(path, code=4) as (place, code):
        _, _, text = post(place, code=code)
    assert "<img" not in text
    assert "<li>What protects it: no noise; as plain messages.</li>" in text
    assert f"<code>{liar}</code>" in text


def test_a_cohort_that_cannot_be_and_a_port_that_is_taken_are_told_before_a_page_opens(path, capsys):
    words = ("flower", "check", path, "-r", "recipe.toml", "--port")
    ghofl(*words, 0, "--cohort", "a,b,c", code=2)
    assert "only secure rounds have a cohort" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ghofl(*words, taken.getsockname()[1], code=2)
    assert "choose another --port" in capsys.readouterr().err
    assert "give one of them" in " ".join(ghofl(*words, 0, "--decline", code=2).split())
    assert decisions(path) == []


@pytest.mark.slow
@pytest.mark.parametrize("pressed", [False, True], ids=["undecided", "approved while the folder is busy"])
def test_ctrl_c_ends_the_page_without_a_decision(path, pressed):
    """Approved while another process had the folder, stopped, and recorded after the command had said that it stopped."""
    command = [sys.executable, "-m", "ghofl", "flower", "check", path, "-r", "recipe.toml", "--port", "0"]
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True) as process:
        place, code = re.search(r"http://(\S+)/ .* code (\S+)\. ", process.stderr.readline()).groups()
        with Site.load(path).storage().lock():
            asking = threading.Thread(target=post, args=(place,), kwargs={"code": code, "decision": "approve"})
            if pressed:
                asking.start()
                time.sleep(0.5)  # for the lock, which nobody sees it wait for
            assert ask(place, "GET")[0] == 200
            process.send_signal(signal.SIGINT)
            assert "Nothing was left half-written" in process.communicate(timeout=60)[1]
        if pressed:
            asking.join(30)
    assert process.returncode == 130
    assert decisions(path) == []


@pytest.mark.parametrize("what", ["--confirm", "--decline"])
def test_ctrl_c_before_the_line_leaves_none_and_after_it_the_command_says_what_it_wrote(path, monkeypatch, what):
    words = ("flower", "check", path, "-r", "recipe.toml", what)

    def interrupted(method):
        before = getattr(Custody, method)

        def at(*values):
            signal.raise_signal(signal.SIGINT)
            return before(*values)

        return at

    with monkeypatch.context() as patch:
        patch.setattr(Custody, "kept_parcel", interrupted("kept_parcel"))
        ghofl(*words, code=130)
    assert decisions(path) == []
    with monkeypatch.context() as patch:
        for method in ("allow", "decline"):
            patch.setattr(Custody, method, interrupted(method))
        said = ghofl(*words, code=0 if what == "--confirm" else 4)
    assert [line for line, _ in decisions(path)] == ["approved" if what == "--confirm" else "declined"]
    assert f"it is {decisions(path)[0][0]}" in said


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (400, "dark")])
def test_in_a_browser_somebody_gives_the_code_reads_and_approves(path, browser, width, scheme):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.expected_conditions import title_is
    from selenium.webdriver.support.wait import WebDriverWait

    wait = WebDriverWait(browser, 60, 0.05)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    with opened(path) as (place, code):
        browser.get(f"http://{place}/")
        browser.find_element(By.NAME, "code").send_keys(code)
        browser.find_element(By.TAG_NAME, "button").click()
        wait.until(title_is("What would leave the site site-0"))
        assert browser.current_url == f"http://{place}/"
        assert browser.get_cookies() == []
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        browser.find_element(By.CSS_SELECTOR, "button.yes").click()
        wait.until(title_is("Approved"))
    assert [what for what, _ in decisions(path)] == ["approved"]
    assert [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]] == []
