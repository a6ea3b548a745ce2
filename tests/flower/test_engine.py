"""Letters through Flower's records, and answers through its grid."""

import json
import logging
import stat

import numpy as np
import pytest

pytest.importorskip("flwr")
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from hypothesis import given
from hypothesis import strategies as st

from ghofl.errors import BusyError, EmbeddingsError, MessageError, PrivacyError, RecipeError, SiteError
from ghofl.files import FileBytes
from ghofl.flower import engine
from ghofl.flower.client_app import SIMULATION, ContextStorage, is_simulated, keeper_of, make_app
from ghofl.flower.engine import GridEngine, from_records, to_records
from ghofl.flower.new import _pyproject
from ghofl.flower.server.asking import Node
from ghofl.flower.server.settings import Settings
from ghofl.keeper.answers import ACTIONS
from ghofl.wire.letter import Letter
from ghofl.wire.message import Message as SiteMessage
from sites import PLAIN, SECURE, make_sites, task  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("task")


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
    assert from_records(RecordDict({"ghofl": ConfigRecord({"a": 1}), "ghofl.letter": ConfigRecord()})) == Letter()
    assert from_records(RecordDict({"ghofl.letter": ArrayRecord()})) == Letter()


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
    assert by_node[5].error == "the engine did not accept its query"


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


@pytest.fixture
def rows(tmp_path):
    """A file that is none of the submitter's business."""
    path = tmp_path / "private.npz"
    np.savez(path, x_train=np.full((40, 6), 1.5), y_train=np.array(PLAIN.classes)[np.arange(40) % 4])
    return path


def asked(node, run, action="message"):
    query = Message(
        to_records(Letter({"recipe": PLAIN.to_toml(), "counted": []})), dst_node_id=1, message_type=f"query.{action}"
    )
    return from_records(make_app()(query, Context(1, 1, node, RecordDict(), run)).content)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_run_cannot_make_a_real_node_simulate_and_read_a_file_for_it(rows, monkeypatch, action):
    """A node with a partition number and no site took rows and conditions from whoever submitted the run."""
    monkeypatch.delenv(SIMULATION, raising=False)
    hostile = {"simulated-embeddings": str(rows), "simulate": True, SIMULATION: 1}
    letter = asked({"partition-id": 0, "num-partitions": 1}, hostile, action)
    assert letter.fields["status"] == "refused"
    assert "was not started for simulations" in letter.fields["why"]
    assert letter.payload == b""
    assert "private.npz" not in str(letter)


@pytest.mark.parametrize("value", ["", "0", "yes", "true"])
def test_the_environment_says_yes_to_simulations_in_one_way_only(rows, monkeypatch, value):
    monkeypatch.setenv(SIMULATION, value)
    letter = asked({"partition-id": 0, "num-partitions": 1}, {"simulated-embeddings": str(rows)})
    assert "was not started for simulations" in letter.fields["why"]


@pytest.mark.parametrize("how", ["environment", "node"])
def test_a_simulation_is_asked_for_by_the_node_s_own_machine(rows, monkeypatch, how):
    node = {"partition-id": 1, "num-partitions": 2}
    if how == "environment":
        monkeypatch.setenv(SIMULATION, "1")
    else:
        monkeypatch.delenv(SIMULATION, raising=False)
        node["simulate"] = True
    letter = asked(node, {"simulated-embeddings": str(rows)})
    assert letter.fields["status"] == "sent"
    assert SiteMessage.from_bytes(letter.content, PLAIN).rows == 20


def test_a_node_with_a_site_never_simulates(tmp_path, rows, monkeypatch):
    monkeypatch.setenv(SIMULATION, "1")
    site = {"site": str(make_sites(tmp_path)[0]), "partition-id": 0, "num-partitions": 1}
    sent = asked(site, {"simulated-embeddings": str(rows)})
    assert SiteMessage.from_bytes(sent.content, PLAIN).site == "site-0"
    both = asked({**site, "simulate": True}, {"simulated-embeddings": str(rows)})
    assert both.fields["status"] == "refused"
    assert both.payload == b""
    with pytest.raises(SiteError, match="write simulate=true"):
        is_simulated({"simulate": "false", "partition-id": 0})


SITE = {"name": "n", "embeddings": "/rows.npz", "folder": "/f"}


@pytest.mark.parametrize(
    ("how", "values", "why"),
    [
        ("node", {**SITE, "polcy": "/p.toml"}, "unknown key polcy; did you mean policy"),
        ("node", {**SITE, "nam": "m"}, "unknown key nam; did you mean name"),
        ("node", {**SITE, "partition_id": 0}, "unknown key partition_id"),
        ("node", {**SITE, "auth-key": "/k", "auth_key": "/l"}, "has auth_key twice"),
        ("node", {"site": "/site.toml", "policy": "/p.toml"}, "a site file and policy; leave those out"),
        ("node", {"keeper": "/k.sock", "policy": "/p.toml"}, "a keeper and policy; leave those out"),
        ("node", {"simulate": True, "partition-id": 0, "polcy": "/p.toml"}, "a simulated site and polcy"),
        ("node", {**SITE, "policy": ""}, "--node-config: policy is empty"),
        ("file", {**SITE, "polcy": "/p.toml"}, "unknown key polcy; did you mean policy"),
        ("file", {**SITE, "policy": " "}, "policy is empty"),
        ("file", {**SITE, "recipe": ""}, "recipe is empty"),
        ("file", {**SITE, "partition-id": 0}, "unknown key partition-id"),
    ],
)  # fmt: skip
def test_a_key_that_nobody_knows_is_refused_in_every_way_to_configure_a_site(tmp_path, caplog, how, values, why):
    """A typing error in `policy` must not mean that there is none."""
    if how == "file":
        path = tmp_path / "site.toml"
        path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
        values = {"site": str(path)}
    assert asked(values, {"simulated-embeddings": "/rows.npz"}).fields["status"] == "refused"
    assert why in caplog.text


SECRET = "row 7 is patient Smith"


class OddError(Exception):
    """An error whose every part has something of a row."""

    def __init__(self):
        super().__init__(SECRET, {"label": SECRET})
        self.add_note(SECRET)

    def __repr__(self):
        return SECRET


ODD = [
    KeyError(SECRET), json.JSONDecodeError(SECRET, SECRET, 0), UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, SECRET),
    ValueError(SECRET), OSError(2, SECRET, SECRET), PermissionError(13, SECRET, SECRET), AssertionError(SECRET),
    StopIteration(SECRET), MemoryError(SECRET), RecursionError(SECRET), ImportError(SECRET, name=SECRET),
    ExceptionGroup(SECRET, [ValueError(SECRET)]), EmbeddingsError(SECRET), SiteError(SECRET), MessageError(SECRET),
    BusyError(SECRET), RecipeError(SECRET), PrivacyError(SECRET), OddError(),
]  # fmt: skip
PLACES = {
    "the configuration": "ghofl.flower.client_app.Site.of_config",
    "the memory": "ghofl.custody.site.Site.storage",
    "the lock": "ghofl.custody.storage.FolderStorage.lock",
    "reading the query": "ghofl.flower.client_app.from_records",
    "the recipe": "ghofl.keeper.answers.Recipe.from_toml",
    "the rows": "ghofl.custody.site.Site.count",
    "the policy": "ghofl.custody.site.Site.load_policy",
    "what is kept": "ghofl.custody.storage.FolderStorage.get",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_whatever_a_site_s_code_raises_leaves_as_its_kind_alone(tmp_path, monkeypatch, error, place):
    def broken(*_, **__):
        raise error

    path = make_sites(tmp_path, count=1, recipe=SECURE)[0]
    for action in ACTIONS:
        with monkeypatch.context() as patch:
            patch.setattr(PLACES[place], broken)
            query = Message(
                to_records(Letter({"recipe": PLAIN.to_toml(), "round": "0" * 32}, b"letter")),
                dst_node_id=1, message_type=f"query.{action}",
            )  # fmt: skip
            reply = make_app()(query, Context(1, 1, {"site": str(path)}, RecordDict(), {}))
        assert not reply.has_error(), "Flower would send the text of an error that reaches it"
        letter = from_records(reply.content)
        assert letter.fields["status"] == "refused", (place, action)
        assert letter.payload == b""
        assert "Smith" not in str(dict(letter.fields))


def test_a_site_logs_under_its_own_name_and_flower_s_log_shows_it(tmp_path, monkeypatch):
    class Shown(logging.Handler):
        def __init__(self):
            super().__init__(logging.INFO)
            self.records = []

        def emit(self, record):
            self.records.append(record)

    shown = Shown()
    for name in ("flwr", "ghofl"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [shown] if name == "flwr" else [])
    monkeypatch.setattr(logging.getLogger("flwr"), "level", logging.INFO)
    asked({"site": str(make_sites(tmp_path)[0])}, {})
    asked({"name": "n"}, {})
    assert {record.name for record in shown.records} == {"ghofl.keeper.answers"}
    assert [record.levelname for record in shown.records if "does not answer" in record.getMessage()] == ["ERROR"]
    assert any("What they would reveal" in record.getMessage() for record in shown.records)


def test_an_answer_that_cannot_be_written_leaves_as_a_kind(tmp_path, monkeypatch):
    path, real = make_sites(tmp_path)[0], engine.to_records

    def broken(letter):
        if letter.fields["status"] != "refused":
            raise TypeError(SECRET)
        return real(letter)

    monkeypatch.setattr("ghofl.flower.client_app.to_records", broken)
    letter = asked({"site": str(path)}, {})
    assert letter.fields["status"] == "refused"
    assert "TypeError" in letter.fields["why"]
    assert "Smith" not in str(dict(letter.fields))


def test_a_query_that_is_not_ours_is_answered_with_a_kind(tmp_path):
    path = make_sites(tmp_path)[0]
    for records in (RecordDict(), RecordDict({"ghofl": ConfigRecord({"recipe": [1, 2], "counted": 5.0})})):
        for action in ACTIONS:
            query = Message(records, dst_node_id=1, message_type=f"query.{action}")
            reply = make_app()(query, Context(1, 1, {"site": str(path)}, RecordDict(), {}))
            assert from_records(reply.content).fields["status"] == "refused"


def hostile(fields=None, pieces=()):
    head = Letter(fields or {"status": "sent", "site": "a"}, b"".join(pieces)).head
    arrays = {f"{i:06d}": engine._array(piece) for i, piece in enumerate((head, *pieces))}
    return RecordDict({"ghofl.letter": ArrayRecord(arrays)})


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (hostile(pieces=[bytes(2**20)] * 3), "a payload of over 2,097,152 bytes came"),
        (hostile(pieces=[b"x"] * 5000), "a payload in 5,000 pieces came"),
        (hostile({f"key-{i}": 1 for i in range(1000)}), "a letter with 1000 fields came"),
        (hostile({"site": "x" * 10**6}), "bytes in its fields"),
        (hostile({"x" * 10**6: 1}), "bytes in its fields"),
        (hostile({"signature": bytes(10**6)}), "bytes in its fields"),
        (hostile({"list": ["x" * 100] * 10**4}), "bytes in its fields"),
    ],
)
def test_an_answer_that_is_too_large_is_stopped_before_it_is_put_together(tmp_path, monkeypatch, records, why):
    class Hostile(FakeGrid):
        def pull_messages(self, message_ids):
            return [Message(records, reply_to=self.pushed[message_id]) for message_id in message_ids]

    def refuse(*_):
        raise AssertionError("the answer was written to a file")

    monkeypatch.setattr(engine.files, "open_to_replace", refuse)
    (answer,) = GridEngine(Hostile(), tmp_path).ask("message", {1: Letter()}, 5.0, 2 * 2**20)
    assert why in answer.error
    assert answer.letter == Letter()
    assert list(tmp_path.iterdir()) == []


def test_an_answer_as_large_as_is_allowed_is_taken_in(tmp_path):
    class Large(FakeGrid):
        def pull_messages(self, message_ids):
            letter = to_records(Letter({"status": "sent"}, bytes(9 * 2**20)))
            return [Message(letter, reply_to=self.pushed[message_id]) for message_id in message_ids]

    (answer,) = GridEngine(Large(), tmp_path).ask("message", {1: Letter()}, 5.0, 9 * 2**20)
    assert len(answer.letter.payload) == 9 * 2**20
    assert stat.S_IMODE(answer.letter.payload.path.stat().st_mode) == 0o600
    answer.letter.payload.close()


def test_what_flower_says_of_a_node_is_printable(monkeypatch):
    class Failing(FakeGrid):
        def pull_messages(self, message_ids):
            return [Message(Error(5, "\x1b[2Jgone\n"), reply_to=self.pushed[i]) for i in message_ids]

    (answer,) = GridEngine(Failing()).ask("message", {1: Letter()}, 5.0, 100)
    assert answer.error == "its node failed or is gone: [2Jgone"


def test_a_simulated_site_remembers_in_its_context():
    context = Context(1, 1, {}, RecordDict(), {})
    memory = ContextStorage(context)
    memory.put("round/1/identity", b"secret")
    assert ContextStorage(context).get("round/1/identity") == b"secret"
    memory.forget("round")
    assert memory.get("round/1/identity") is None


def test_the_app_lists_every_setting_with_its_default():
    import tomllib

    config = tomllib.loads(_pyproject("name", PLAIN))["tool"]["flwr"]["app"]["config"]
    assert Settings.of_config({**config, "folder": "x"}) == Settings("x")
    assert {key.replace("-", "_") for key in config if not key.startswith("simulated-")} == set(Settings.__slots__)


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ({"keeper": "/run/k.sock", "site": "/etc/site.toml"}, "a keeper and site; leave those out"),
        ({"keeper": "/run/k.sock", "simulate": True}, "a keeper and simulate"),
        ({"keeper": 5}, "keeper is 5"),
        ({"keeper": "/" + "x" * 200}, "systems take 107"),
        ({"keeper": ""}, "is not the path of a socket"),
    ],
)
def test_a_node_with_a_keeper_names_its_socket_and_nothing_of_the_site(node, why):
    with pytest.raises(SiteError, match=why):
        keeper_of(node)
    assert keeper_of({"site": "/etc/site.toml"}) is None


def test_the_app_of_a_node_with_a_keeper_reads_no_site_file(monkeypatch):
    """It carries bytes: the question as it came, the answer as the keeper gave it."""
    carried = []

    def ask(path, action, query):
        carried.append((path, action, query))
        return Letter({"status": "sent", "site": "north"}, b"bytes")

    def refuse(*_):
        raise AssertionError("the app looked for a site")

    monkeypatch.setattr("ghofl.keeper.unix_socket.ask", ask)
    monkeypatch.setattr("ghofl.flower.client_app.Site.of_config", refuse)
    letter = asked({"keeper": "/run/k.sock"}, {})
    assert (letter.fields["status"], letter.payload) == ("sent", b"bytes")
    assert carried[0][:2] == ("/run/k.sock", "message")
