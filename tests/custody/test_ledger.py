"""The ledger of a site: a chain of lines that cannot be changed, moved, left out or lost without being noticed."""

import json
import signal
import stat
import sys

import pytest
from carriers import Killed
from typer.testing import CliRunner

from deadlines import Process
from ghofl.cli import app
from ghofl.custody.history import History
from ghofl.custody.inspection import inspect
from ghofl.custody.ledger import HEAD, LEDGER, START, Ledger
from ghofl.custody.site import Site
from ghofl.custody.storage import FolderStorage
from ghofl.errors import SiteError
from ghofl.flower.server.federation import run
from ghofl.keeper.answers import answer
from ghofl.wire.letter import Letter
from sites import PLAIN, SECURE, InProcess, make_sites, settings


@pytest.fixture
def memory(tmp_path):
    memory = FolderStorage(tmp_path / "memory")
    ledger = Ledger()
    for i in range(4):
        ledger = ledger.write(memory, "refused", why=f"reason {i}")
    return memory


def lines_of(memory):
    return memory.get(LEDGER).splitlines(keepends=True)


def test_every_line_names_the_one_before_it_and_only_its_owner_reads_them(memory):
    ledger = Ledger.load(memory)
    assert [line.facts["why"] for line in ledger.lines] == [f"reason {i}" for i in range(4)]
    assert [line.before for line in ledger.lines] == [START, *(line.sha256 for line in ledger.lines[:-1])]
    assert json.loads(lines_of(memory)[2])["number"] == 3
    assert stat.S_IMODE((memory.folder / LEDGER).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "what", ["changed", "left out", "moved", "end lost", "all lost", "written anew", "not JSON", "deep"]
)
def test_a_ledger_that_was_tampered_with_is_refused(memory, what):
    lines = lines_of(memory)
    if what == "changed":
        lines[1] = lines[1].replace(b"reason 1", b"reason 9")
    elif what == "left out":
        del lines[1]
    elif what == "moved":
        lines[1], lines[2] = lines[2], lines[1]
    elif what == "end lost":
        del lines[-1]
    elif what == "not JSON":
        lines[2] = b"nonsense\n"
    elif what == "deep":
        lines[2] = b"[" * 100_000 + b"\n"
    elif what == "written anew":
        other = FolderStorage(memory.folder.parent / "other")
        ledger = Ledger()
        for _ in range(4):
            ledger = ledger.write(other, "answered")
        lines = lines_of(other)
    (memory.folder / LEDGER).write_bytes(b"".join(lines))
    if what == "all lost":
        (memory.folder / LEDGER).unlink()
    with pytest.raises(SiteError, match="is damaged: line"):
        Ledger.load(memory)


def test_a_last_line_that_was_half_written_is_recognised_and_cut_off(memory):
    with open(memory.folder / LEDGER, "ab") as file:
        file.write(b'{"number": 5, "time"')
    torn = Ledger.load(memory)
    assert (len(torn.lines), torn.torn) == (4, 20)
    after = torn.write(memory, "answered", status="sent")
    assert [line.what for line in after.lines] == ["refused"] * 4 + ["torn", "answered"]
    assert Ledger.load(memory) == after


def test_a_line_that_was_written_before_a_crash_and_is_not_in_the_head_yet_counts(memory):
    (memory.folder / HEAD).write_text(f"3 {Ledger.load(memory).lines[2].sha256}\n")
    assert len(Ledger.load(memory).lines) == 4


def test_nothing_leaves_a_site_whose_ledger_is_damaged_or_cannot_be_written(tmp_path, monkeypatch):
    site = Site.load(make_sites(tmp_path)[0])
    query = Letter({"recipe": PLAIN.to_toml()})

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(FolderStorage, "append", full)
        reply = answer("message", query, site, site.storage())
        assert (reply.fields["status"], reply.payload) == ("refused", b"")
    assert answer("message", query, site, site.storage()).fields["status"] == "sent"
    (tmp_path / "memory-0" / LEDGER).write_bytes(b"nonsense\n")
    reply = answer("message", query, site, site.storage())
    assert (reply.fields["status"], reply.payload) == ("refused", b"")
    assert "nonsense" not in str(reply)


def test_every_question_is_a_line_with_what_came_of_it(tmp_path):
    site = Site.load(make_sites(tmp_path)[0])
    memory = site.storage()
    sent = answer("message", Letter({"recipe": PLAIN.to_toml()}), site, memory)
    answer("message", Letter({"recipe": PLAIN.to_toml()}), site, memory)
    answer("join", Letter({"recipe": SECURE.to_toml(), "round": "no id \ud800"}), site, memory)
    answer("message", Letter({"recipe": "hostile [["}), site, memory)
    ledger = Ledger.load(memory)
    assert [line.what for line in ledger.lines] == ["packed", "sent", "answered", "answered", "refused", "refused"]
    first, again = ledger.lines[1].facts, ledger.lines[3].facts
    assert (first["recipe"], first["guarantee"]) == (PLAIN.fingerprint, None)
    assert (again["action"], again["status"], again["bytes"]) == ("message", "sent", len(sent.payload))
    assert ledger.lines[4].facts["recipe"] == SECURE.fingerprint
    assert len(History.of(ledger).releases) == 1, "the same message asked for again is no second release"


def invoke(*words):
    return CliRunner().invoke(app, ["ledger", *map(str, words)])


def test_an_administrator_reads_verifies_and_exports_the_ledger(tmp_path):
    path = make_sites(tmp_path)[0]
    assert isinstance(invoke(path).exception, SiteError)
    site = Site.load(path)
    answer("message", Letter({"recipe": PLAIN.to_toml()}), site, site.storage())
    seen = invoke(path)
    assert seen.exit_code == 0, seen.output
    assert "No differential privacy covers them: 1 of 1 left without noise" in seen.output
    told = json.loads(invoke(path, "--json", "-").output)
    assert [line["what"] for line in told["lines"]][-1] == "answered"
    head = told["head"]
    assert f"each in its place. Head: {head}" in seen.output
    assert invoke(path, head).exit_code == 0
    assert "was rewritten" in str(invoke(path, "ab" * 32).exception)
    done = invoke(path, "--output", tmp_path / "copy.jsonl")
    assert done.exit_code == 0, done.output
    assert Ledger.from_bytes((tmp_path / "copy.jsonl").read_bytes()).head == head
    assert "name a copy .jsonl, or a page .html" in " ".join(invoke(path, "-o", tmp_path / "copy.csv").output.split())
    (tmp_path / "memory-0" / LEDGER).write_bytes(b"")
    assert "is damaged" in str(invoke(path).exception)


def lose(folder, how, copy):
    """Take lines of a ledger away; `copy` has an earlier state of it."""
    ledger, head = folder / LEDGER, folder / HEAD
    lines = ledger.read_bytes().splitlines(keepends=True)
    if how in ("all", "head", "head and end", "all but one line"):
        head.unlink()
    if how == "all":
        ledger.unlink()
    elif how == "head and end":
        ledger.write_bytes(b"".join(lines[:-3]))
    elif how == "all but one line":
        ledger.write_bytes(lines[0])
    elif how == "an old copy":
        for path, content in copy.items():
            path.write_bytes(content)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("all", "it is missing, and this site revealed in round"),
        ("head", "ledger.head is missing"),
        ("head and end", "ledger.head is missing"),
        ("all but one line", "lines are missing, and this site revealed in round"),
        ("an old copy", "lines are missing, and this site revealed in round"),
    ],
)
def test_a_site_whose_ledger_lost_lines_that_its_folder_shows_stops(tmp_path, caplog, how, why):
    paths = make_sites(tmp_path, 3, SECURE)
    folder, site = tmp_path / "memory-0", Site.load(paths[0])
    inspect(site, SECURE)
    copy = {path: path.read_bytes() for path in (folder / LEDGER, folder / HEAD)}
    run(InProcess(paths), SECURE, settings(tmp_path / "run"))
    lose(folder, how, copy)
    left = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for action in ("join", "message"):
        query = Letter({"recipe": (SECURE if action == "join" else PLAIN).to_toml(), "round": "1" * 32})
        reply = answer(action, query, site, site.storage())
        assert (reply.fields["status"], reply.payload) == ("refused", b"")
    assert why in caplog.text
    assert "Restore it from a copy" in caplog.text
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == left, "nothing starts afresh"


@pytest.mark.parametrize(
    ("put", "why"),
    [
        ("outbox/{}.bin", "packed what leaves under recipe"),
        ("outbox/{}.sent", "sent its message under recipe"),
        ("used-rounds", "joined round"),
        ("round/{}/reply/mask", "sent its masked vector in round"),
        ("round/{}/reply/endorse", "signed a survivor list of round"),
        ("round/{}/reply/reveal", "revealed in round"),
    ],
)
@pytest.mark.parametrize("lines", [0, 4])
def test_every_file_that_shows_an_act_needs_its_line(tmp_path, memory, put, why, lines):
    memory = memory if lines else FolderStorage(tmp_path / "empty")
    memory.put(put.format("ab" * 16), b"ab" * 16)
    with pytest.raises(SiteError, match=why):
        Ledger.load(memory)


def test_a_ledger_whose_first_line_was_written_before_its_head_counts(tmp_path):
    memory = FolderStorage(tmp_path / "memory")
    Ledger().write(memory, "refused", why="x")
    (memory.folder / HEAD).unlink()
    assert len(Ledger.load(memory).write(memory, "answered").lines) == 2
    assert len(Ledger.load(memory).lines) == 2


def test_a_site_whose_head_could_not_be_written_goes_on_when_it_can_be(tmp_path, monkeypatch):
    memory, put = FolderStorage(tmp_path / "memory"), FolderStorage.put

    def full(self, name, content):
        if name == HEAD:
            raise OSError(28, "No space left on device")
        put(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(FolderStorage, "put", full)
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                Ledger.load(memory).write(memory, "refused", why="x")
    assert len(Ledger.load(memory).write(memory, "answered").lines) == 2
    assert len(Ledger.load(memory).lines) == 2


def dying(monkeypatch, at):
    """Let a site die before its write number `at` (an even one), or after it (an odd one)."""
    count = []

    def wrap(act):
        def dying_act(self, *what):
            count.append(what)
            if at == 2 * len(count):
                raise Killed
            act(self, *what)
            if at == 2 * len(count) + 1:
                raise Killed

        return dying_act

    for name in ("put", "append", "forget"):
        monkeypatch.setattr(FolderStorage, name, wrap(getattr(FolderStorage, name)))


@pytest.mark.slow
def test_a_site_that_dies_at_any_write_is_not_taken_for_one_that_lost_its_ledger(tmp_path, monkeypatch):
    query, later = (Letter({"recipe": SECURE.to_toml(), "round": digit * 32}) for digit in "01")
    deaths = 0
    for at in range(2, 60):
        folder = tmp_path / str(at)
        folder.mkdir()
        site = Site.load(make_sites(folder, 3, SECURE)[0])
        with monkeypatch.context() as patch:
            dying(patch, at)
            try:
                assert answer("join", query, site, site.storage()).fields["status"] == "joined"
            except Killed:
                deaths += 1
        assert answer("join", later, site, site.storage()).fields["status"] == "joined"
        if deaths < at - 1:
            break
    assert deaths >= 20


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_writes_leaves_a_ledger_that_can_be_read(tmp_path):
    script = (
        "import sys\nfrom ghofl.custody.ledger import Ledger\nfrom ghofl.custody.storage import FolderStorage\n"
        "m = FolderStorage(sys.argv[1])\nledger = Ledger.load(m)\nprint('go', flush=True)\n"
        "while True:\n    ledger = ledger.write(m, 'answered', status='sent', padding='x' * 500)\n"
    )
    counts, path = [0], tmp_path / "m" / LEDGER
    for _ in range(3):

        def has_more(wanted=600 * counts[-1] + 3000):
            return path.exists() and path.stat().st_size >= wanted

        with Process(sys.executable, "-c", script, tmp_path / "m") as process:
            process.says("go")
            process.until(has_more, "the ledger has grown")
            process.send(signal.SIGKILL)
            process.finish()
        counts.append(len(Ledger.load(FolderStorage(tmp_path / "m")).lines))
    assert counts == sorted(set(counts))
