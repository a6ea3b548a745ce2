"""The two walk-throughs of federations say what the commands take, and what they come to with real processes."""

import functools
import json
import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import pages
from deadlines import run
from federations import blobs
from ghofl.custody.policy import Policy
from ghofl.simulation import partition
from processes import NO_SPACES, Deployment, available, certificates, free_port, key_pair

DOCS = Path(__file__).parents[2] / "docs"
CLIENTS = "how-to-simulate.md#A thousand clients on a laptop"
PAGES = ["how-to-hospitals.md", CLIENTS]
BIN = Path(sys.executable).parent


def text_of(page):
    """A page, or after `#` what stands under one of its headings."""
    name, _, under = page.partition("#")
    return pages.text_of(DOCS / name, under)


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), re.M | re.S)


def lines(page, *starts):
    """Lines of a page that begin with a command, whatever variables are set before it."""
    text = "".join(blocks(page, "sh")).replace("\\\n", " ")
    return [line for line in text.splitlines() if re.sub(r"^([A-Z_]+=\S+ )+", "", line).startswith(starts)]


def parsed(line, **changes):
    """The variables and the words of a line, with texts in it replaced."""
    for before, after in changes.items():
        assert before in line, (before, line)
        line = line.replace(before, after)
    words = shlex.split(line)
    variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    return variables, words[len(variables) :]


@functools.cache
def help_of(*command):
    return run(BIN / command[0], *command[1:], "--help").stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_options_of_the_engine_exist(page):
    found = lines(page, "flower-superlink", "flower-supernode", "flwr run", "flwr supernode register")
    assert found
    for line in found:
        _, words = parsed(line)
        command = words[:1] if words[0] != "flwr" else words[: 3 if words[1] == "supernode" else 2]
        if not (BIN / command[0]).exists():
            pytest.skip("flwr is not installed: pip install 'ghofl[flower]'")
        told = help_of(*command)
        options = [word for word in words if word.startswith("--")]
        assert options
        assert all(option in told for option in options), line


def test_every_key_of_a_policy_is_explained():
    text = (DOCS / "how-to-hospitals.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in Policy.__slots__)


def test_nodes_on_one_machine_have_a_port_each():
    nodes = [parsed(line)[1] for line in lines("how-to-hospitals.md", "flower-supernode") if "127.0.0.1" in line]
    assert len(nodes) == 3
    assert len({words[words.index("--port") + 1] for words in nodes}) == 3


needs_processes = pytest.mark.skipif(
    not available(), reason="needs flwr and /proc: pip install 'ghofl[flower-simulation]' on Linux"
)


class Followed(Deployment):
    """The processes of a page, as its lines start them; `connection` is its section, with a port that is free."""

    def __init__(self, folder, page, old_address, more=""):
        super().__init__(folder, secure=True)
        self.page, self.old_address, self.address = page, old_address, f"127.0.0.1:{self.port}"
        (section,) = (block for block in blocks(page, "toml") if old_address in block)
        text = section.replace(old_address, self.address).replace("/etc/ghofl", str(self.folder))
        (Path(self.environment["FLWR_HOME"]) / "config.toml").write_text(text + more)

    def begin_link(self):
        variables, words = parsed(lines(self.page, "flower-superlink")[0])
        words[words.index("--host") + 1] = "127.0.0.1"
        words[words.index("--port") + 1] = str(self.port)
        self.link = self.start("superlink", *words, **variables)
        self.until(self._listens, 60, "the SuperLink to listen")

    def ghofl(self, *words, code=0):
        """A command of ours in a process of its own; it must end with this code."""
        return run(sys.executable, "-m", *words, cwd=self.folder, env=self.environment, code=code).stdout


@pytest.mark.slow
@needs_processes
@NO_SPACES
def test_the_thousand_clients_page_works_as_written(tmp_path):
    pytest.importorskip("ray", exc_type=ImportError)
    page = CLIENTS
    page_s = Followed(tmp_path / "d", page, "127.0.0.1:8100")
    x, y = blobs(np.random.default_rng(5), rows=300)
    np.savez(page_s.folder / "digits.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    try:
        for line in lines(page, "ghofl recipe", "ghofl flower new"):
            page_s.ghofl(*parsed(line)[1])
        page_s.begin_link()
        changes = {"=1000": "=6", "/tmp/thousand": str(tmp_path / "run"), "/data": str(page_s.folder)}
        run = page_s.start("run", *parsed(lines(page, "flwr run")[0], **changes)[1])
        told = page_s.finish(run)
        expected = json.loads(page_s.ghofl(*parsed(lines(page, "ghofl simulate")[0])[1]))["total_sha256"]
        assert json.loads((tmp_path / "run" / "report.json").read_text())["total_sha256"] == expected, told
        status = parsed(lines(page, "ghofl flower status")[0], **{"/tmp/thousand": str(tmp_path / "run")})[1]
        assert "complete" in page_s.ghofl(*status)
    finally:
        page_s.__exit__()


@pytest.mark.slow
@needs_processes
@NO_SPACES
def test_the_hospitals_page_works_as_written_on_one_machine(tmp_path):
    page, names = "how-to-hospitals.md", ("north", "south", "west")
    there = Followed(tmp_path / "d", page, "server.example.org:8000")
    x, y = blobs(np.random.default_rng(3), rows=300, classes=3, dim=512, spread=1.0)
    classes = np.array(["normal", "pneumonia", "covid"])
    site, policy = (block for block in blocks(page, "toml") if "name =" in block or "class_rows" in block)
    certificates(there.folder)
    try:
        for line in lines(page, "ghofl recipe", "ghofl flower new"):
            there.ghofl(*parsed(line)[1])
        for name, rows in zip(names, partition.split(y, 3, np.random.default_rng(3)), strict=True):
            np.savez(there.folder / f"{name}.npz", x=x[rows], y=classes[y[rows]])
            key_pair(there.folder / name)
            moved = {"/data": str(there.folder), "/etc/ghofl": str(there.folder), "/var/lib/ghofl": f"memory-{name}"}
            (there.folder / f"{name}.toml").write_text(replaced(site.replace("north", name), moved))
        (there.folder / "policy.toml").write_text(policy)
        keys = [f'{name} = "{(there.folder / f"{name}.pub").read_text().strip()}"' for name in names]
        (there.folder / "peers.toml").write_text("\n".join(keys) + "\n")
        there.begin_link()
        (register,) = lines(page, "flwr supernode register")
        nodes = [line for line in lines(page, "flower-supernode") if "127.0.0.1" in line]
        for name, line in zip(names, nodes, strict=True):
            there.flwr(*parsed(register.replace("north", name))[1][1:])
            said = ""
            for check in lines(page, "ghofl flower check"):
                shown = re.search(r"sha256 of what would leave: (\w+)", said)
                moved = {"site.toml": f"{name}.toml", "SHA256": (shown and shown[1]) or ""}
                said = there.ghofl(*parsed(replaced(check, moved), **{"/etc/ghofl": str(there.folder)})[1])
            assert "it is approved" in said
            words = parsed(line, **{"127.0.0.1:8000": there.address})[1]
            words[words.index("--port") + 1] = str(free_port())
            there.start(name, *words)
        moved = {"/srv/ghofl/chest": str(tmp_path / "run")}
        run = there.start("run", *parsed(lines(page, "flwr run")[0], **moved)[1])
        told = there.finish(run)
        status = parsed(lines(page, "ghofl flower status")[0], **moved)[1]
        found = json.loads(there.ghofl(*status, "--json", "-"))
        assert found["status"] == "complete", told
        assert found["sites"] == dict.fromkeys(names, "counted"), told
        os.link(tmp_path / "run" / "heads" / "best.ghofl", there.folder / "best.ghofl")
        np.savez(there.folder / "new.npz", x=x[:10])
        there.ghofl(*parsed(lines(page, "ghofl predict")[0], **{"/data": str(there.folder)})[1])
        assert len((there.folder / "predictions.csv").read_text().splitlines()) == 11

        # What a run is refused for is one line, and flwr ends with 0 whatever happened.
        bad = parsed(lines(page, "flwr run")[0], **moved, **{"heads=": 'remove="nobody" heads='})[1]
        refused = there.start("refused", *bad)
        told = there.finish(refused)
        assert "The run was not completed: nobody cannot be removed" in told
        assert "Traceback" not in told
        assert "nobody cannot be removed" in there.ghofl(*status, code=1).replace("\n", " ")
    finally:
        there.__exit__()


def replaced(text, changes):
    for before, after in changes.items():
        text = text.replace(before, after)
    return text
