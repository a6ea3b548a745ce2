"""The keeper of a site: what it answers, whom, and what is left when it ends; real processes under different OS users."""

import json
import os
import pickle
import signal
import socket
import stat
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
from typer.testing import CliRunner

from deadlines import Process, beside, until
from ghofl import Recipe
from ghofl.cli import app
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Site
from ghofl.custody.storage import FolderStorage
from ghofl.errors import BusyError, MessageError, SiteError
from ghofl.flower.server.asking import Answer
from ghofl.flower.server.federation import run
from ghofl.keeper import process as room
from ghofl.keeper import unix_socket
from ghofl.keeper.answers import answer
from ghofl.keeper.process import Keeper, Rate, allowed_users
from ghofl.wire import letter
from ghofl.wire.letter import Letter
from sites import PLAIN, SECURE, InProcess, exact_total, make_sites, settings
from users import GROUP, KEEPER, NODE, STRANGER, WHY_NOT, give, interpreter, run_as, shared_folder, start_as

QUERY = Letter({"recipe": PLAIN.to_toml(), "counted": []})


@pytest.fixture
def folder():
    with shared_folder() as path:
        yield path


def with_keeper(path, name="k.sock", more=""):
    """A site file with a keeper's socket beside it."""
    path.write_text(path.read_text() + f'socket = "{name}"\n{more}')
    return path


@contextmanager
def running(path, **options):
    """A keeper in a thread of this process."""
    keeper, is_ready = Keeper(path, **options), threading.Event()
    with beside(keeper.serve, is_ready.set, stop=keeper.stop):
        until(is_ready.is_set, "the keeper answers")
        yield keeper


def test_a_keeper_gives_the_answer_that_the_site_would_give(folder):
    path = with_keeper(make_sites(folder)[0])
    with running(path) as keeper:
        place = folder / "k.sock"
        assert stat.S_ISSOCK(place.stat().st_mode)
        assert stat.S_IMODE(place.stat().st_mode) == 0o660
        reply = unix_socket.ask(keeper.site.socket, "message", QUERY)
        assert reply.fields == {"status": "sent", "site": "site-0"}
        assert reply.content == answer("message", QUERY, Site.load(path), Site.load(path).storage()).content
        for action in ("rows", "", "__init__", "message "):
            refused = unix_socket.ask(keeper.site.socket, action, QUERY)
            assert "this site answers only" in refused.fields["why"]
    assert not place.exists()


def raw(path, content):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(10)
        link.connect(path)
        try:
            link.sendall(content)
            link.shutdown(socket.SHUT_WR)
            return link.recv(1000)
        except (ConnectionResetError, BrokenPipeError):
            return b""


def framed(head, payload=b"", size=None, length=None):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    lengths = letter.SIZES.pack(len(text) if size is None else size, len(payload) if length is None else length)
    return letter.MAGIC + lengths + text + payload


@pytest.mark.parametrize(
    "content",
    [
        b"", b"GET / HTTP/1.1\r\n\r\n", pickle.dumps({"action": "message"}), framed({"action": "message"}, size=2**31),
        framed({"action": "message"}, length=2**40), framed({"action": "message"}, b"x", length=10), b"\0" * 100,
    ],
    ids=range(7),
)  # fmt: skip
def test_what_is_not_a_letter_gets_no_word(folder, content):
    with running(with_keeper(make_sites(folder)[0])) as keeper:
        assert raw(keeper.site.socket, content) == b""
        assert unix_socket.ask(keeper.site.socket, "message", QUERY).fields["status"] == "sent"


@pytest.mark.parametrize(
    "fields",
    [
        {"recipe": {"a": 1}}, {"recipe": [[1]]}, {"recipe": {"bytes": "z"}}, {"recipe": {"bytes": 5}}, {"recipe": None},
        {"recipe": 1.5}, 5, b"[1, 2]", b"{", b"[" * 100_000, {str(i): 1 for i in range(1000)},
    ],
    ids=range(11),
)  # fmt: skip
def test_fields_of_another_kind_are_refused_by_kind(folder, fields):
    fields = {"action": "message", **fields} if isinstance(fields, dict) else fields
    with running(with_keeper(make_sites(folder)[0])) as keeper:
        said = raw(keeper.site.socket, framed(fields))
        assert b'"refused"' in said
        assert b"MessageError" in said


@pytest.mark.parametrize(
    ("action", "fields", "says"),
    [
        ("message", {}, "has no recipe"),
        ("join", {"round": "0" * 32}, "has no recipe"),
        ("message", {"recipe": PLAIN.to_toml(), "counted": 5}, "counted of a request is not a list"),
        ("advertise", {"signatures": 5}, "signatures of a request is not a list"),
        ("advertise", {"known": "x"}, "known of a request is not a list"),
    ],
)
def test_a_field_that_is_missing_or_not_a_list_is_refused_in_words_and_in_the_ledger(folder, action, fields, says):
    site = Site.load(make_sites(folder)[0])
    reply = answer(action, Letter(fields), site, site.storage())
    assert says in reply.fields["why"]
    assert len(Ledger.load(site.storage()).lines) == 1


def test_more_questions_than_the_rate_allows_are_refused_until_later():
    now = [0.0]
    rate = Rate(burst=3, per_minute=60, clock=lambda: now[0])
    assert [rate.allows() for _ in range(5)] == [True, True, True, False, False]
    now[0] = 2.0
    assert [rate.allows() for _ in range(3)] == [True, True, False]


def test_a_keeper_refuses_more_than_its_rate_in_words(folder):
    with running(with_keeper(make_sites(folder)[0]), rate=Rate(burst=1, per_minute=1)) as keeper:
        assert unix_socket.ask(keeper.site.socket, "message", QUERY).fields["status"] == "sent"
        assert "ask again later" in unix_socket.ask(keeper.site.socket, "message", QUERY).fields["why"]


def connected(path):
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(30)
    link.connect(path)
    return link


def drip(link, pieces):
    """Send a letter byte by byte until the other side has had enough; whether it had."""
    try:
        for _ in range(pieces):
            link.sendall(b"G")
            time.sleep(0.02)
    except OSError:
        return True
    return False


def test_a_letter_has_one_deadline_however_many_bytes_of_it_came(folder, monkeypatch):
    monkeypatch.setattr(room, "LETTER_TIME", 0.2)
    with running(with_keeper(make_sites(folder, 1)[0])) as keeper:
        with connected(keeper.site.socket) as slow:
            slow.sendall(letter.MAGIC + letter.SIZES.pack(unix_socket.FIELD_BYTES, 0))
            assert drip(slow, 500)
        assert unix_socket.ask(keeper.site.socket, "message", QUERY).fields["status"] == "sent"


def test_an_answer_that_is_not_read_has_a_deadline_too():
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(TimeoutError):
        unix_socket.send(ours, Letter({}, bytes(2**24)), time.monotonic() + 0.1)


def test_a_slow_letter_and_too_many_connections_keep_nobody_else_waiting(folder):
    with running(with_keeper(make_sites(folder, 1)[0])) as keeper:
        idle = [connected(keeper.site.socket) for _ in range(room.AT_ONCE)]
        try:
            for link in idle:
                link.sendall(letter.MAGIC)
            assert unix_socket.ask(keeper.site.socket, "message", QUERY, patience=0).fields["status"] == "sent"
            assert idle[0].recv(1) == b"", "the one that waited longest is closed"
        finally:
            for link in idle:
                link.close()


def test_a_question_that_is_being_answered_does_not_give_way():
    links, pairs = room.Links(2), [socket.socketpair() for _ in range(3)]
    ends = [ours for ours, _ in pairs]
    try:
        assert links.admit(ends[0])
        assert links.admit(ends[1])
        with links.answering(ends[0]), links.answering(ends[1]):
            assert not links.admit(ends[2])
        assert links.admit(ends[2])
        links.leave(ends[2])
        links.leave(ends[1])
        assert all(links.admit(end) for end in ends[1:]), "what is over has left its place"
    finally:
        for end in (end for pair in pairs for end in pair):
            end.close()


class Watched(FolderStorage):
    """A memory that knows whether it is locked."""

    is_locked = False

    @contextmanager
    def lock(self):
        with super().lock():
            self.is_locked = True
            yield
            self.is_locked = False


@pytest.mark.parametrize(
    "text", [PLAIN.to_toml() + "\n# ours\n", "a." * 30_000 + "a = 1", "x = 3", "x ="], ids=range(4)
)
def test_a_recipe_is_read_before_the_site_is_locked(folder, monkeypatch, text):
    site, read, states = Site.load(make_sites(folder, 1)[0]), Recipe.from_toml, []
    memory = Watched(site.folder)

    def parse(text, *more):
        states.append(memory.is_locked)
        return read(text, *more)

    monkeypatch.setattr(Recipe, "from_toml", parse)
    status = answer("message", Letter({"recipe": text}), site, memory).fields["status"]
    assert status == ("sent" if "ours" in text else "refused")
    assert states == [False]
    assert Ledger.load(memory).lines[-1].what == ("answered" if status == "sent" else "refused")


def test_a_recipe_that_is_the_site_s_own_copy_is_not_parsed_again(folder, monkeypatch):
    path = make_sites(folder, 1)[0]
    path.write_text(path.read_text() + 'recipe = "recipe.toml"\n')
    site, own = Site.load(path), (folder / "recipe.toml").read_text()
    monkeypatch.setattr(Recipe, "from_toml", lambda *_: pytest.fail("a text from outside was parsed"))
    assert answer("message", Letter({"recipe": own}), site, site.storage()).fields["status"] == "sent"
    longer = answer("message", Letter({"recipe": "#" * 10**6 + "\n" + own}), site, site.storage())
    assert "much longer" in longer.fields["why"]


FORGED = "\x1b[2J\n2026-01-01 INFO all is well"


@pytest.mark.parametrize(
    ("action", "query"),
    [
        ("message", Letter({"recipe": f'"key{FORGED}" = 1'.replace("\x1b", "\\u001b").replace("\n", "\\n")})),
        ("message", Letter({"recipe": f"x = '{FORGED}'"})),
        ("message", Letter({"recipe": PLAIN.to_toml(), "counted": 5})),
    ],
    ids=["a key of a recipe", "a broken recipe", "an unexpected error"],
)
def test_what_comes_from_outside_writes_no_lines_of_its_own_into_the_log(folder, caplog, action, query):
    site = Site.load(make_sites(folder, 1)[0])
    assert answer(action, query, site, site.storage()).fields["status"] == "refused"
    first, *others = caplog.messages[-1].splitlines()
    assert "does not answer" in first
    assert all(line.startswith("  ") for line in others), "only the steps of a traceback"
    assert "\x1b" not in caplog.messages[-1]


def test_a_second_keeper_of_a_folder_is_refused_and_the_first_goes_on(folder):
    path = with_keeper(make_sites(folder)[0])
    other = folder / "other.toml"
    other.write_text(path.read_text().replace("k.sock", "l.sock"))
    with running(path) as keeper:
        for again in (path, other):
            with pytest.raises(BusyError, match="another keeper is at work"):
                Keeper(again).serve()
        assert not (folder / "l.sock").exists()
        assert unix_socket.ask(keeper.site.socket, "message", QUERY).fields["status"] == "sent"
    with running(other):
        pass


def test_a_socket_of_another_keeper_or_another_file_is_not_replaced(folder):
    paths = make_sites(folder)
    with running(with_keeper(paths[0])), pytest.raises(BusyError, match="another process answers"):
        Keeper(with_keeper(paths[1])).serve()
    (folder / "k.sock").write_text("mine")
    with pytest.raises(SiteError, match="exists and is not a socket"):
        Keeper(paths[0]).serve()
    assert (folder / "k.sock").read_text() == "mine"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("", "names no socket"),
        (f'socket = "/tmp/{"x" * 120}"\n', "systems take 107"),
        ('socket = "k.sock"\nallow = ["nobody-of-this-name"]\n', "who does not exist on this machine"),
    ],
)
def test_a_keeper_that_cannot_work_says_why(folder, more, why):
    path = make_sites(folder)[0]
    path.write_text(path.read_text() + more)
    with pytest.raises(SiteError, match=why):
        Keeper(path)


def test_a_request_that_no_keeper_would_read_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(unix_socket, "REQUEST_BYTES", 3)
    with pytest.raises(MessageError, match="4 bytes came, and a keeper reads 3"):
        unix_socket.ask("nobody.sock", "message", Letter({}, b"four"))


def test_users_are_allowed_by_name_or_number():
    assert allowed_users(("root", "12345")) == {os.getuid(), 0, 12345}


def test_a_damaged_ledger_keeps_a_keeper_from_beginning(folder):
    path = with_keeper(make_sites(folder)[0])
    Site.load(path).storage().put("ledger.jsonl", b"nonsense\n")
    with pytest.raises(SiteError, match="is damaged"):
        Keeper(path).serve()
    assert not (folder / "k.sock").exists()


def test_the_site_file_may_change_while_a_keeper_runs_but_not_into_another_site(folder):
    path = with_keeper(make_sites(folder)[0])
    with running(path) as keeper:
        (folder / "policy.toml").write_text("secure = true\nany_recipe = true\n")
        assert "only under secure aggregation" in unix_socket.ask(keeper.site.socket, "message", QUERY).fields["why"]
        path.write_text(path.read_text().replace("memory-0", "memory-9"))
        assert unix_socket.ask(keeper.site.socket, "message", QUERY).fields["status"] == "refused"
    assert not (folder / "memory-9").exists()


def test_a_keeper_that_is_not_there_is_told(folder):
    with pytest.raises(MessageError, match=r"no keeper answers at .*ghofl keeper SITE.toml"):
        unix_socket.ask(str(folder / "none.sock"), "message", QUERY, patience=0.3)


def test_a_keeper_that_takes_no_connection_is_not_waited_for_without_end(folder):
    """One that is stopped, say; asking it waited for a place in its queue, and a second keeper did before it began."""
    place = folder / "k.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, ExitStack() as waiting:
        listener.bind(str(place))
        listener.listen(0)
        waiting.enter_context(connected(str(place)))
        with pytest.raises(MessageError, match="no keeper answers at .*BlockingIOError"):
            unix_socket.ask(str(place), "message", QUERY, patience=0.3)
        with pytest.raises(BusyError, match="another process answers"):
            Keeper(with_keeper(make_sites(folder)[0])).serve()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_keeper_that_is_told_to_end_leaves_no_socket_behind(folder, number):
    path = with_keeper(make_sites(folder)[0])
    with Process(sys.executable, "-m", "ghofl", "keeper", path) as process:
        assert unix_socket.ask(str(folder / "k.sock"), "message", QUERY).fields["status"] == "sent"
        process.send(number)
        assert process.finish() == 0
    assert not (folder / "k.sock").exists()


def test_the_command_shows_what_it_would_do(folder):
    path = with_keeper(make_sites(folder)[0], more='allow = ["12345"]\n')
    seen = CliRunner().invoke(app, ["keeper", str(path), "--check", "--json", "-"])
    assert json.loads(seen.output)["allowed"] == sorted({os.getuid(), 12345})
    assert not (folder / "k.sock").exists()


class Kept(InProcess):
    """An engine whose first site is behind a keeper; `kill` is called before a stage is asked for."""

    def __init__(self, paths, sock, before):
        super().__init__(paths)
        self.socket, self.before = sock, before

    def ask(self, action, letters, seconds, size):
        self.before(action)
        others = {node: letter for node, letter in letters.items() if node != 100}
        yield from super().ask(action, others, seconds, size)
        if 100 in letters:
            yield Answer(100, unix_socket.ask(self.socket, action, letters[100]))


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["share", "endorse", "reveal"])
def test_a_keeper_that_is_killed_goes_on_with_its_round(folder, stage):
    paths = make_sites(folder, 3, SECURE)
    with_keeper(paths[0])
    started = []

    def start():
        started.append(Process(sys.executable, "-m", "ghofl", "keeper", paths[0]))

    def before(action):
        if action == stage:
            started[-1].end()
            assert (folder / "k.sock").exists(), "a killed keeper leaves its socket, which the next one replaces"
            start()

    start()
    try:
        outcome = run(Kept(paths, str(folder / "k.sock"), before), SECURE, settings(folder / "run"))
        assert outcome.total.moments == exact_total(folder, paths)
        assert len(started) == 2
        ledger = Ledger.load(Site.load(paths[0]).storage())
        kinds = [line.what for line in ledger.lines if line.what != "answered"]
        assert kinds == ["packed", "joined", "masked", "endorsed", "revealed"]
    finally:
        for process in started:
            process.end()


ASK = """
import sys
from ghofl.keeper import unix_socket
from ghofl.wire import letter
from ghofl.wire.letter import Letter
reply = unix_socket.ask(sys.argv[1], "message", Letter({"recipe": open(sys.argv[2]).read()}), patience=float(sys.argv[3]))
print(reply.fields["status"], len(reply.content))
"""
STEAL = """
import os, sys
for path in sys.argv[1:]:
    try:
        what = os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
        print("READ", path)
    except PermissionError:
        print("closed")
"""


@pytest.mark.slow
@pytest.mark.skipif(interpreter() is None, reason=WHY_NOT)
def test_other_users_may_ask_where_they_are_allowed_and_read_nothing(folder):
    path = make_sites(folder, 1, keys=True)[0]
    home = folder / "site"
    home.mkdir()
    for name in ("0.toml", "0.npz", "key-0", "policy.toml"):
        (folder / name).rename(home / name)
        give(home / name, KEEPER)
    path = with_keeper(home / "0.toml", "../run/k.sock", f'socket_group = "{GROUP}"\nallow = ["{NODE}"]\n')
    give(path, KEEPER)
    give(home, KEEPER, 0o700)
    (folder / "run").mkdir()
    give(folder / "run", KEEPER, 0o711)
    (folder / "recipe.toml").chmod(0o644)
    sock, python = folder / "run" / "k.sock", interpreter()
    with start_as(KEEPER, python, "-m", "ghofl", "keeper", str(path), groups=[GROUP]) as process:
        asking = [python, "-c", ASK, str(sock), str(folder / "recipe.toml")]
        process.until(sock.exists, "the keeper's socket is there")
        sent = run_as(NODE, *asking, "60", groups=[GROUP])
        assert sent.stdout.startswith("sent "), sent.stderr
        stranger = run_as(STRANGER, *asking, "1", groups=[GROUP], check=False)
        assert "no keeper answers" in stranger.stderr
        outside = run_as(NODE, *asking, "1", check=False)
        assert "PermissionError" in outside.stderr
        inner = [
            home / name for name in ("0.toml", "0.npz", "key-0", "policy.toml", "memory-0", "memory-0/ledger.jsonl")
        ]
        kept = [*inner, home, f"/proc/{process.pid}/mem", f"/proc/{process.pid}/environ", f"/proc/{process.pid}/fd"]
        stolen = run_as(NODE, python, "-c", STEAL, *map(str, kept), groups=[GROUP])
        assert stolen.stdout.split() == ["closed"] * len(kept)
        process.says("is not in `allow` of the site file")
        process.send(signal.SIGTERM)
        process.finish()
    assert not sock.exists()
