"""A real deployment on loopback: SuperLink and SuperNodes as processes, TLS with a certificate authority, node keys."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest

from deadlines import Process, descendants, run, until

BIN = Path(sys.executable).parent
WALK_THROUGH = Path(__file__).parents[2] / "docs" / "how-to-hospitals.md"
# What every Python process of a deployment reads at its start. Nodes of the engine look every three seconds whether there
# is a message for them, which no setting changes, and a round asks them six times: here they look four times a second.
# Each answer is a new process, which imports the engine and ghofl for two seconds and answers in a tenth of one: here a
# node's first answer starts a process that imports them and then is copied for every answer, itself untouched by any.
START = """
import gc, sys, time

def sleep(seconds, _sleep=time.sleep):
    _sleep(0.25 if seconds == 3 else seconds)

time.sleep = sleep
gc.set_threshold(50_000)
if any(word.endswith("/flower-superexec") for word in sys.orig_argv):
    import json, os, subprocess

    class Popen(subprocess.Popen):
        answering = None

        def __new__(cls, args, *more, **options):
            if args[0] != "flwr-clientapp":
                return super().__new__(cls)
            if Popen.answering is None:
                command = [sys.executable, os.path.join(os.path.dirname(__file__), "answering.py")]
                Popen.answering = subprocess.Popen(command, stdin=subprocess.PIPE)
            Popen.answering.stdin.write(json.dumps(args).encode() + b"\\n")
            Popen.answering.stdin.flush()

    subprocess.Popen = Popen
"""
# The process that is copied; each line it reads is the command of an answer. It ends with the process that asks.
ANSWERING = """
import gc, json, os, signal, sys, types

unused = types.ModuleType("flwr.supernode.cli.flower_supernode")  # a database and all, and never called
unused.flower_supernode = None
sys.modules[unused.__name__] = unused
from flwr.supernode.cli import flwr_clientapp
import ghofl.flower.client_app

gc.freeze()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while line := sys.stdin.buffer.readline():
    if not os.fork():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = json.loads(line)
        sys.exit(flwr_clientapp())
"""


def certificates(folder):
    """A certificate authority and a server certificate for 127.0.0.1, by the commands of the walk-through."""
    _follow("# certificates", folder, SERVER="127.0.0.1", SERVER_NAME="IP:127.0.0.1")


def key_pair(path):
    """A node's key, by the command of the walk-through: the private half at `path`, the public one beside it."""
    path.unlink(missing_ok=True)
    path.with_suffix(".pub").unlink(missing_ok=True)
    _follow("# keys", path.parent, NAME=path.name)


def _follow(mark, folder, **values):
    """Run the block of the walk-through that begins with a mark."""
    blocks = re.findall(r"^```sh\n(.*?)^```", WALK_THROUGH.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (script,) = (block for block in blocks if block.startswith(mark))
    run("sh", "-e", "-c", script, cwd=folder, env={**os.environ, **values})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Deployment:
    """A SuperLink and its SuperNodes; leaving it ends every process that any of them started."""

    def __init__(self, folder, secure=True, more=()):
        self.folder, self.secure, self.port, self.more = Path(folder), secure, free_port(), more
        self.processes, self.nodes, self.ids = [], {}, {}
        self.folder.mkdir(parents=True, exist_ok=True)
        home = self.folder / "flwr"
        home.mkdir()
        trust = f'root-certificates = "{self.folder / "ca.crt"}"' if secure else "insecure = true"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "test"\n\n[superlink.test]\naddress = "127.0.0.1:{self.port}"\n{trust}\n'
        )
        start = self.folder / "start"
        start.mkdir()
        (start / "sitecustomize.py").write_text(START)
        (start / "answering.py").write_text(ANSWERING)
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(start), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # instead of 1 second
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        if "--simulation" in more:
            self.environment["GHOFL_SIMULATION"] = "1"

    def __enter__(self):
        if self.secure:
            certificates(self.folder)
            names = {"ca-certfile": "ca.crt", "certfile": "server.pem", "keyfile": "server.key"}
            trust = [word for n, path in names.items() for word in (f"--ssl-{n}", str(self.folder / path))]
            trust.append("--enable-supernode-auth")
        else:
            trust = ["--insecure"]
        self.link = self.start(
            "superlink", "flower-superlink", *trust, "--host", "127.0.0.1", "--port", str(self.port),
            "--disable-runtime-dependency-installation", *self.more,
        )  # fmt: skip
        self.until(lambda: self._listens(), 60, "the SuperLink to listen")
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.end()
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.until(lambda: not self.pids(), 20, "every process to end")

    def pids(self):
        """Every process of this deployment, wherever it went: all of them have its home in their environment."""
        home, found = f"FLWR_HOME={self.environment['FLWR_HOME']}".encode(), []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdigit() and home in (path / "environ").read_bytes():
                    found.append(int(path.name))
        return found

    def start(self, name, *command, **variables):
        log, environment = self.folder / f"{name}.log", {**self.environment, **variables}
        self.processes.append(Process(BIN / command[0], *command[1:], log=log, env=environment, cwd=self.folder))
        return self.processes[-1]

    def register(self, name):
        """A key for a node, and its public half registered at the SuperLink under the node's name."""
        key_pair(self.folder / name)
        words = ("supernode", "register", str(self.folder / f"{name}.pub"), "test", "--name", name)
        self.ids[name] = str(json.loads(self.flwr(*words, "--format", "json"))["node-id"])

    def unregister(self, name):
        """Take a node off the SuperLink's list, which would keep the place of a killed one for a minute."""
        self.flwr("supernode", "unregister", self.ids.pop(name), "test")

    def node(self, name, site):
        """Start the SuperNode of a site's configuration file."""
        trust = ["--insecure"]
        if self.secure:
            trust = ["--root-certificates", str(self.folder / "ca.crt")]
            trust += ["--auth-supernode-private-key", str(self.folder / name)]
        self.nodes[name] = self.start(
            name, "flower-supernode", *trust, "--superlink", f"127.0.0.1:{self.port}", "--port", str(free_port()),
            "--node-config", f'site="{site}"',
        )  # fmt: skip
        return self.nodes[name]

    def kill(self, name):
        """End a SuperNode and whatever it started, at once and without a word."""
        self.nodes.pop(name).end()

    def flwr(self, *arguments, timeout=120, check=True):
        code = 0 if check else None
        return run(BIN / "flwr", *arguments, env=self.environment, cwd=self.folder, seconds=timeout, code=code).stdout

    def run(self, app, federation=None, **config):
        """Start a run of an app; `log` of what comes back is the file its lines go to."""
        words = []
        for key, value in config.items():
            value = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else value
            words.append(f"{key.replace('_', '-')}={value}")
        name = f"run-{len(self.processes)}"
        more = ["--federation-config", " ".join(f"{k}={v}" for k, v in federation.items())] if federation else []
        return self.start(name, "flwr", "run", str(app), "test", "--stream", "--run-config", " ".join(words), *more)

    def finish(self, process, timeout=240):
        """Wait for a run and return its lines."""
        self.until(lambda: process.poll() is not None, timeout, "a run to end")
        return process.log.read_text(errors="replace")

    def until(self, claim, seconds, what):
        """Wait until something is so."""
        until(claim, what, seconds, lambda why: f"{why}:\n{self.logs()}")

    def server_app(self):
        """The process ids of server apps that the SuperLink runs."""
        return [pid for pid in descendants(self.link.pid) if b"flwr-serverapp" in command_line(pid)]

    def logs(self, lines=15):
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
            for path in sorted(self.folder.glob("*.log"))
        )

    def _listens(self):
        if self.link.poll() is not None:
            raise AssertionError(f"the SuperLink ended with {self.link.poll()}:\n{self.logs()}")
        with socket.socket() as probe:
            probe.settimeout(0.2)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""


# Alembic, which makes the tables of a SuperLink's database, splits its folder at spaces, and so does Ray the command of a worker.
NO_SPACES = pytest.mark.skipif(
    " " in sys.prefix,
    reason=f"Flower and Ray do not work from {sys.prefix}, whose path has a space; check out elsewhere",
)


def available():
    """Whether processes can be watched here, and the engine and what makes keys are installed."""
    tools = all(shutil.which(name) for name in ("openssl", "ssh-keygen"))
    return tools and Path("/proc/self/stat").exists() and (BIN / "flower-superlink").exists()
