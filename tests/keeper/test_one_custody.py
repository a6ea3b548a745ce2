"""One answer sees one policy, whatever carries the request."""

import threading
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest

from deadlines import beside, until

pytest.importorskip("flwr")

from flwr.app import Context, Message, RecordDict

from ghofl.custody.site import Site
from ghofl.flower.client_app import make_app
from ghofl.flower.engine import from_records, to_records
from ghofl.keeper.answers import answer
from ghofl.keeper.process import Keeper
from ghofl.wire.letter import Letter
from sites import PLAIN, make_sites, task  # noqa: F401  (a fixture)
from users import shared_folder

pytestmark = pytest.mark.usefixtures("task")


@contextmanager
def keeper_of(path):
    """A keeper of a site, in a thread of this process; gives its socket."""
    path.write_text(path.read_text() + 'socket = "k.sock"\n')
    keeper, is_ready = Keeper(path), threading.Event()
    with beside(keeper.serve, is_ready.set, stop=keeper.stop):
        until(is_ready.is_set, "the keeper answers")
        yield str(path.with_name("k.sock"))


def through_flower(action, letter, node):
    """What the app at a site answers, with Flower's messages on both sides."""
    query = Message(to_records(letter), dst_node_id=1, message_type=f"query.{action}")
    return from_records(make_app()(query, Context(1, 1, node, RecordDict(), {})).content)


@contextmanager
def door(name, path):
    """A way to ask a site."""

    def ask(action, letter):
        if name == "files":
            site = Site.load(path)
            return answer(action, letter, site, site.storage())
        return through_flower(action, letter, node)

    with keeper_of(path) if name == "keeper" else nullcontext() as socket:
        node = {"keeper": socket} if name == "keeper" else {"site": str(path)}
        yield ask


@pytest.fixture
def folder():
    with shared_folder() as path:  # with a path that is short enough for sockets
        yield path


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
    with door(name, path) as ask:
        first = ask("message", Letter({"recipe": PLAIN.to_toml()}))
        second = ask("message", Letter({"recipe": other.to_toml()}))
    if before == "min_rows = 1\n":
        assert first.fields["status"] == "sent"
        assert "has not approved" in second.fields["why"]
    else:
        assert "fewer rows than its policy's min_rows of 1000000" in first.fields["why"]
        assert second.fields["status"] == "sent"
