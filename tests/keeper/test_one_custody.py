"""One answer sees one policy and one ledger: each is read once, whatever carries the request."""

import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deadlines import beside, until

pytest.importorskip("flwr")

from carriers import Files
from flwr.app import Context, Message, RecordDict

from ghofl.custody.custody import Custody
from ghofl.custody.ledger import LEDGER
from ghofl.custody.site import Site
from ghofl.custody.storage import FolderStorage
from ghofl.flower.client_app import make_app
from ghofl.flower.engine import from_records, to_records
from ghofl.flower.server.asking import Answer
from ghofl.flower.server.federation import run
from ghofl.keeper.answers import answer
from ghofl.keeper.process import Keeper
from ghofl.recipe import toml
from ghofl.wire.letter import Letter
from sites import PLAIN, SECURE, InProcess, exact_total, make_sites, settings, task  # noqa: F401  (a fixture)
from users import shared_folder

pytestmark = pytest.mark.usefixtures("task")


@contextmanager
def keepers(paths):
    """A keeper for every site, in threads of this process; gives their sockets."""
    with ExitStack() as stack:
        for i, path in enumerate(paths):
            path.write_text(path.read_text() + f'socket = "{i}.sock"\n')
            keeper, is_ready = Keeper(path), threading.Event()
            stack.enter_context(beside(keeper.serve, is_ready.set, stop=keeper.stop))
            until(is_ready.is_set, "the keeper answers")
        yield [str(path.with_name(f"{i}.sock")) for i, path in enumerate(paths)]


def through_flower(action, letter, node):
    """What the app at a site answers, with Flower's messages on both sides."""
    query = Message(to_records(letter), dst_node_id=1, message_type=f"query.{action}")
    return from_records(make_app()(query, Context(1, 1, node, RecordDict(), {})).content)


class Apps(InProcess):
    """An engine of client apps; `paths` are their nodes' configurations."""

    def ask(self, action, letters, seconds, size):
        for node, letter in letters.items():
            yield Answer(node, through_flower(action, letter, self.paths[node]))


@contextmanager
def door(name, paths):
    """A way to ask one site, and to hold a round of all of them."""
    with keepers(paths) if name == "keeper" else ExitStack() as sockets:
        nodes = [{"keeper": each} for each in sockets] if name == "keeper" else [{"site": str(path)} for path in paths]

        def ask(action, letter):
            if name == "files":
                site = Site.load(paths[0])
                return answer(action, letter, site, site.storage())
            return through_flower(action, letter, nodes[0])

        def hold(folder):
            if name == "files":
                return Files().hold(folder, SECURE, paths)
            return run(Apps(nodes), SECURE, settings(folder)).total

        yield ask, hold


@pytest.fixture
def folder():
    with shared_folder() as path:  # with a path that is short enough for sockets
        yield path


@pytest.fixture
def reads(monkeypatch):
    """How often each answer read a policy, and the ledger: a counter per answer."""
    answers: list[Counter] = []
    begin, read, get = Custody.__init__, toml.read, FolderStorage.get

    def counted_begin(self, *args):
        answers.append(Counter())
        begin(self, *args)

    def counted_read(path):
        if Path(path).name == "policy.toml":
            answers[-1]["policy"] += 1
        return read(path)

    def counted_get(self, name):
        if name == LEDGER and answers:
            answers[-1]["ledger"] += 1
        return get(self, name)

    def start():
        monkeypatch.setattr(Custody, "__init__", counted_begin)
        monkeypatch.setattr(toml, "read", counted_read)
        monkeypatch.setattr(FolderStorage, "get", counted_get)
        return answers

    return start


@pytest.mark.parametrize("name", ["flower", "files", "keeper"])
def test_an_answer_reads_policy_and_ledger_once(folder, reads, name):
    paths = make_sites(folder, 3, SECURE)
    with door(name, paths) as (_, hold):
        answers = reads()
        total = hold(folder / "run")
    assert total.moments == exact_total(folder, paths, SECURE)
    assert len(answers) == 3 * 6, "three sites join, and answer five stages"
    assert {each["ledger"] for each in answers} == {1}
    assert {each["policy"] for each in answers} == {0, 1}, "a stage that asks nothing of the policy does not read it"
    assert sum(each["policy"] for each in answers) == 3 * 4, "join, advertise, mask and endorse"


@pytest.mark.parametrize("name", ["flower", "files", "keeper"])
@pytest.mark.parametrize("before", ["min_rows = 1\n", "min_rows = 1000000\n"])
def test_a_policy_that_changes_in_the_middle_holds_from_the_next_answer_on(folder, monkeypatch, name, before):
    path, count = make_sites(folder, 1, policy=before)[0], Site.count
    policy, rest = folder / "policy.toml", "any_peers = true\nany_recipe = true\n"
    after = "confirm = true\nmin_rows = 1000000\n" if before == "min_rows = 1\n" else "min_rows = 1\n"

    def count_and_change(self, recipe):
        """The recipe was checked by now; rows, approval and what is recorded come later."""
        policy.write_text(after + rest)
        return count(self, recipe)

    monkeypatch.setattr(Site, "count", count_and_change)
    other = replace(PLAIN, classes=tuple(f"{each}!" for each in PLAIN.classes))
    with door(name, [path]) as (ask, _):
        first = ask("message", Letter({"recipe": PLAIN.to_toml()}))
        second = ask("message", Letter({"recipe": other.to_toml()}))
    if before == "min_rows = 1\n":
        assert first.fields["status"] == "sent"
        assert "has not approved" in second.fields["why"]
    else:
        assert "fewer rows than its policy's min_rows of 1000000" in first.fields["why"]
        assert second.fields["status"] == "sent"
