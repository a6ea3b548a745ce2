"""A real SuperNode under another OS user than the site's keeper: the app relays letters, and a hostile one gets no more."""

import json
from pathlib import Path

import numpy as np
import pytest

from ghofl.flower.new import write_app
from processes import BIN, Deployment, available, free_port
from sites import PLAIN, exact_total, make_sites
from users import GROUP, KEEPER, NODE, WHY_NOT, give, interpreter, shared_folder, start_as

pytestmark = [
    pytest.mark.slow,
    pytest.mark.seconds(600),
    pytest.mark.skipif(not available(), reason="needs flwr and /proc: pip install 'ghofl[flower]' on Linux"),
    pytest.mark.skipif(interpreter() is None, reason=WHY_NOT),
]

CLIENT = """
import json, os, pickle, socket
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from ghofl.keeper import unix_socket
from ghofl.wire.letter import Letter

app = ClientApp()

@app.query("message")
def steal(message, context):
    plan, found = json.loads(message.content["plan"]["text"]), {}
    for path in plan["files"]:
        try:
            found[path] = os.listdir(path) if os.path.isdir(path) else Path(path).read_bytes()[:40].hex()
        except OSError as error:
            found[path] = type(error).__name__
    where = context.node_config["keeper"]
    for name, content in {"pickle": pickle.dumps(os.getcwd), "http": b"GET / HTTP/1.1\\r\\n\\r\\n"}.items():
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(20)
            link.connect(where)
            try:
                link.sendall(content)
                link.shutdown(socket.SHUT_WR)
                found[name] = link.recv(1000).hex()
            except OSError:
                found[name] = ""
    for action in ("rows", "key", "eval", "message"):
        reply = unix_socket.ask(where, action, Letter({"recipe": plan["recipe"]}))
        found["asked " + action] = f"{reply.fields['status']} {len(reply.content)}"
    found["user"] = os.getuid()
    return Message(RecordDict({"found": ConfigRecord({"text": json.dumps(found)})}), reply_to=message)
"""
SERVER = """
import json, time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    plan, out = Path(context.run_config["folder"]).read_text(), Path(context.run_config["folder"] + ".out")
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.2)
    records = RecordDict({"plan": ConfigRecord({"text": plan})})
    query = [Message(records, dst_node_id=nodes[0], message_type="query.message")]
    (reply,) = grid.send_and_receive(query, timeout=120)
    out.write_text(reply.content["found"]["text"] if reply.has_content() else "ERROR " + str(reply.error))
"""


class Guarded(Deployment):
    """A SuperLink, the keeper of one site under its own user, and a SuperNode under another."""

    def __enter__(self):
        super().__enter__()
        (path,) = make_sites(self.folder, 1, keys=True)
        self.expected = exact_total(self.folder, [path])
        self.home, run = self.folder / "site", self.folder / "run"
        self.home.mkdir()
        path.write_text(
            path.read_text()
            + f'recipe = "recipe.toml"\nsocket = "{run}/k.sock"\nsocket_group = "{GROUP}"\nallow = ["{NODE}"]\n'
        )
        for name in ("0.toml", "0.npz", "key-0", "policy.toml", "recipe.toml"):
            (self.folder / name).rename(self.home / name)
            give(self.home / name, KEEPER)
        give(self.home, KEEPER, 0o700)
        run.mkdir()
        give(run, KEEPER, 0o711)
        self.socket = run / "k.sock"
        self.folder.chmod(0o711)
        command = (interpreter(), "-m", "ghofl", "keeper", str(self.home / "0.toml"))
        self.keeper = start_as(KEEPER, *command, groups=[GROUP], log=self.folder / "keeper.log")
        self.processes.append(self.keeper)
        self.until(self.socket.exists, 120, "the keeper's socket")
        self._start_node()
        return self

    def _start_node(self):
        """A SuperNode as another user, with the engine's commands for a Python that this user may run."""
        home, commands = self.folder / "node", self.folder / "bin"
        home.mkdir()
        commands.mkdir()
        give(home, NODE, 0o700)
        for path in BIN.iterdir():
            if path.name.startswith(("flwr", "flower")):
                _, _, rest = path.read_text().partition("\n")
                (commands / path.name).write_text(f"#!{interpreter()}\n{rest}")
                (commands / path.name).chmod(0o755)
        config = {"FLWR_HOME": str(home), "HOME": str(home), "PATH": f"{commands}:/usr/bin:/bin"}
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        node = start_as(
            NODE, str(commands / "flower-supernode"), "--insecure", "--superlink", f"127.0.0.1:{self.port}",
            "--port", str(free_port()), "--node-config", f'keeper="{self.socket}"',
            groups=[GROUP], log=self.folder / "node.log", **config, **quiet,
        )  # fmt: skip
        self.processes.append(node)


@pytest.fixture(scope="module")
def guarded():
    with shared_folder() as folder, Guarded(folder / "d", secure=False) as running:
        yield running


def hostile_app(folder):
    write_app(folder, PLAIN, "hostile")
    (folder / "federation" / "client_app.py").write_text(CLIENT)
    (folder / "federation" / "server_app.py").write_text(SERVER)
    return folder


def test_the_app_relays_letters_of_a_keeper_that_runs_as_another_user(guarded):
    app = guarded.folder / "plain"
    write_app(app, PLAIN, "plain")
    out = guarded.folder / "server"
    lines = guarded.finish(guarded.run(app, folder=str(out), sites=1, heads="lda", wait=60.0, timeout=120.0))
    found = json.loads((out / "report.json").read_text())
    assert found["total_sha256"] == guarded.expected.sha256, lines + guarded.logs()
    assert found["sites"] == {"site-0": "counted"}


def test_a_hostile_app_gets_no_row_no_key_and_no_answer_that_the_policy_forbids(guarded):
    app, plan = hostile_app(guarded.folder / "hostile"), guarded.folder / "plan.json"
    home, pid = guarded.home, guarded.keeper.pid
    names = ("0.toml", "0.npz", "key-0", "policy.toml", "memory-0", "memory-0/ledger.jsonl", "memory-0/outbox", "")
    files = [*(str(home / name) for name in names), *(f"/proc/{pid}/{name}" for name in ("mem", "environ", "fd"))]
    other = PLAIN.to_toml().replace("scale = 32.0", "scale = 33.0")
    assert other != PLAIN.to_toml()
    plan.write_text(json.dumps({"files": files, "recipe": other}))
    lines = guarded.finish(guarded.run(app, folder=str(plan)))
    out = Path(f"{plan}.out")
    assert out.exists(), lines + guarded.logs()
    found = json.loads(out.read_text())
    assert found["user"] == NODE
    assert {found[path] for path in files} == {"PermissionError"}
    assert (found["pickle"], found["http"]) == ("", "")
    assert {found[f"asked {action}"] for action in ("rows", "key", "eval", "message")} == {"refused 0"}
    assert guarded.keeper.poll() is None
    with np.load(home / "0.npz") as rows:
        assert rows["x"].tobytes()[:8].hex() not in out.read_text()
