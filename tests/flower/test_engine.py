"""Letters through Flower's records, and answers through its grid."""

import numpy as np
import pytest

pytest.importorskip("flwr")
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given
from hypothesis import strategies as st

from ghofl.files import FileBytes
from ghofl.flower import engine
from ghofl.flower.asking import Node
from ghofl.flower.client_app import ContextMemory, make_app
from ghofl.flower.engine import GridEngine, from_records, to_records
from ghofl.flower.letter import Letter
from ghofl.flower.new import _pyproject
from ghofl.flower.settings import Settings
from ghofl.message import Message as SiteMessage
from sites import PLAIN, make_sites


@given(st.binary(max_size=300), st.integers(1, 64))
def test_a_letter_survives_the_engine_whatever_the_size_of_its_pieces(payload, piece):
    engine.PIECE, before = piece, engine.PIECE
    try:
        letter = Letter({"status": "sent", "list": ["a", "b"], "key": b"\0\1"}, payload)
        assert from_records(to_records(letter)) == letter
    finally:
        engine.PIECE = before


def test_large_payloads_go_through_a_file(tmp_path):
    payload = np.random.default_rng(0).bytes(3 * 2**20)
    letter = from_records(to_records(Letter({"a": 1}, payload)), tmp_path)
    assert isinstance(letter.payload, FileBytes)
    assert letter.content == payload
    letter.payload.close()


def test_records_of_another_app_are_an_empty_letter():
    assert from_records(RecordDict()) == Letter()
    assert from_records(RecordDict({"ghofl": ArrayRecord()})) == Letter()
    assert from_records(RecordDict({"ghofl": ConfigRecord({"a": 1}), "ghofl.payload": ConfigRecord()})) == Letter(
        {"a": 1}
    )


@pytest.fixture(autouse=True)
def task(monkeypatch):
    """Messages say which run and node they are of; a process of the engine is told so when it starts."""
    for name in ("_run_id", "_node_id", "_task_id"):
        if hasattr(TaskIdentity, name):
            monkeypatch.setattr(TaskIdentity, name, 1)


class FakeGrid(Grid):
    """A grid whose nodes answer at the second look; node 3 fails, node 4 never answers, node 5 is not taken."""

    def __init__(self):
        self.pushed, self.looks = {}, 0

    def set_run(self, run):
        raise NotImplementedError

    run = property(set_run)

    def create_message(self, *_):
        raise NotImplementedError

    def get_node_ids(self):
        return [1, 2]

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError

    def push_messages(self, messages):
        ids = []
        for message in messages:
            ids.append("" if message.metadata.dst_node_id == 5 else f"id-{message.metadata.dst_node_id}")
            message.metadata.__dict__["_message_id"] = ids[-1]
            self.pushed[ids[-1]] = message
        return ids

    def pull_messages(self, message_ids):
        self.looks += 1
        if self.looks < 2:
            return []
        out = []
        for message_id in message_ids:
            asked = self.pushed[message_id]
            node = asked.metadata.dst_node_id
            if node == 3:
                out.append(Message(Error(5, "gone\nfor good"), reply_to=asked))
            elif node != 4:
                out.append(Message(to_records(Letter({"node": node})), reply_to=asked))
        return out


def test_nodes_without_a_registration_have_an_id_alone():
    assert GridEngine(FakeGrid()).nodes() == [Node(1), Node(2)]


def test_every_node_that_is_asked_has_one_answer_or_one_reason(monkeypatch):
    monkeypatch.setattr(engine, "LATER", 0.05)
    answers = list(GridEngine(FakeGrid()).ask("message", dict.fromkeys(range(1, 6), Letter()), 0.5, 100))
    assert sorted(answer.node for answer in answers) == [1, 2, 3, 4, 5]
    by_node = {answer.node: answer for answer in answers}
    assert by_node[1].letter.fields == {"node": 1}
    assert by_node[3].error == "its node failed or is gone: gone for good"
    assert by_node[4].error == "no answer within 0.5 seconds"
    assert by_node[5].error == "the engine did not take its query"


def test_the_client_app_answers_queries_from_its_node_configuration(tmp_path, caplog):
    path = make_sites(tmp_path)[0]
    query = Message(
        to_records(Letter({"recipe": PLAIN.to_toml(), "counted": []})), dst_node_id=1, message_type="query.message"
    )
    reply = make_app()(query, Context(1, 1, {"site": str(path)}, RecordDict(), {}))
    letter = from_records(reply.content)
    assert letter.fields["status"] == "sent"
    assert SiteMessage.from_bytes(letter.content, PLAIN).site == "site-0"
    lost = make_app()(query, Context(1, 1, {"name": "n"}, RecordDict(), {}))
    assert from_records(lost.content).fields["status"] == "refused"
    assert "does not answer" in caplog.text


def test_a_simulated_site_remembers_in_its_context():
    context = Context(1, 1, {}, RecordDict(), {})
    memory = ContextMemory(context)
    memory.put("round/1/identity", b"secret")
    assert ContextMemory(context).get("round/1/identity") == b"secret"
    memory.forget("round")
    assert memory.get("round/1/identity") is None


def test_the_app_lists_every_setting_with_its_default():
    import tomllib

    config = tomllib.loads(_pyproject("name", "ghofl", PLAIN))["tool"]["flwr"]["app"]["config"]
    assert Settings.of_config({**config, "folder": "x"}) == Settings("x")
    assert {key.replace("-", "_") for key in config if not key.startswith("simulated-")} == set(Settings.__slots__)
