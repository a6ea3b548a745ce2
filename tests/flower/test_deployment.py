"""Real processes on loopback: a SuperLink with TLS and node authentication, five SuperNodes, and what can go wrong."""

import json
import os
import signal

import numpy as np
import pytest

from federations import blobs
from ghofl.classifier import Classifier, HeadSpec
from ghofl.flower.new import write_app
from ghofl.recipe import Recipe
from ghofl.simulation import partition
from ghofl.simulation.simulate import Dataset, simulate
from processes import Deployment, available, key_pair
from sites import PLAIN, SECURE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.seconds(600),
    pytest.mark.skipif(not available(), reason="needs flwr and /proc: pip install 'ghofl[flower]' on Linux"),
]
NAMES = [f"site-{i}" for i in range(5)]


class Hospitals(Deployment):
    """Five sites with keys, registered by name, and the apps of a plain and of a secure recipe."""

    def __enter__(self):
        super().__enter__()
        x, y = blobs(np.random.default_rng(3))
        parts = partition.split(y, len(NAMES), np.random.default_rng(3), 0.5)
        classes = PLAIN.classes
        data = Dataset(x, y, x, y, classes)
        self.expected = simulate(data, parts, PLAIN, HeadSpec.parse_list("lda")).total.moments.sha256
        self.memories, self.policy = 0, self.folder / "policy.toml"
        self.policy.write_text("any_peers = true\nany_recipe = true\n")
        self.sizes = {name: len(rows) for name, rows in zip(NAMES, parts, strict=True)}
        for name, rows in zip(NAMES, parts, strict=True):
            np.savez(self.folder / f"{name}.npz", x=x[rows], y=y[rows])
            self.register(name)
            self.configure(name)
            self.node(name, self.folder / f"{name}.toml")
        self.apps = {"plain": self.folder / "plain", "secure": self.folder / "secure"}
        write_app(self.apps["plain"], PLAIN, "plain")
        write_app(self.apps["secure"], SECURE, "secure")
        return self

    def configure(self, name, more=""):
        text = f'name = "{name}"\nembeddings = "{name}.npz"\nfolder = "memory-{name}-{self.memories}"\n'
        text += f'auth_key = "{name}"\npolicy = "policy.toml"\nlabels_are_numbers = true\n{more}'
        (self.folder / f"{name}.toml").write_text(text)

    def forget(self, policy="any_peers = true\nany_recipe = true\n"):
        """New folders for all sites: one that has revealed does so once."""
        self.memories += 1
        self.policy.write_text(policy)
        for name in NAMES:
            self.configure(name)

    def begin(self, app, folder, **config):
        values = {"folder": str(folder), "sites": 5, "heads": "lda", "timeout": 40.0, "wait": 60.0}
        return self.run(self.apps[app], **{**values, **config})

    def restart(self, name):
        """A killed node again, with a new key: its old place is free only after a minute without heartbeats."""
        self.unregister(name)
        self.register(name)
        self.configure(name)
        self.node(name, self.folder / f"{name}.toml")


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    with Hospitals(tmp_path_factory.mktemp("deployment") / "d") as running:
        yield running
    assert running.pids() == []


def report(folder):
    return json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize("app", ["plain", "secure"])
def test_the_total_over_tls_is_the_simulated_one_to_the_bit(hospitals, tmp_path, app):
    hospitals.forget()
    lines = hospitals.finish(hospitals.begin(app, tmp_path / "run"))
    found = report(tmp_path / "run")
    assert found["total_sha256"] == hospitals.expected, lines
    assert found["sites"] == dict.fromkeys(NAMES, "counted")
    for name in NAMES:
        assert f"sites {'sent their message' if app == 'plain' else 'revealed shares'}: {name}" in lines
    with np.load(hospitals.folder / "site-0.npz") as rows:
        head = Classifier.load(tmp_path / "run" / "heads" / "lda.ghofl")
        assert (head.predict_numbers(rows["x"]) == rows["y"]).mean() > 0.8


def test_a_dead_node_a_wrong_recipe_and_a_stranger_do_not_stop_the_others(hospitals, tmp_path):
    hospitals.forget()  # a folder that revealed in a round sends no plain message any more
    Recipe((*PLAIN.classes[:-1], "another"), PLAIN.encoder).save(hospitals.folder / "another.toml")
    hospitals.configure("site-3", 'recipe = "another.toml"\n')
    key_pair(hospitals.folder / "stranger")
    np.savez(hospitals.folder / "stranger.npz", x=np.ones((4, 6)), y=np.arange(4))
    hospitals.configure("stranger")
    stranger = hospitals.node("stranger", hospitals.folder / "stranger.toml")
    run = hospitals.begin("plain", tmp_path / "run", timeout=15.0)
    hospitals.until((tmp_path / "run" / ".lock").exists, 60, "the server app to begin")
    hospitals.kill("site-4")
    try:
        hospitals.finish(run)
        sites = report(tmp_path / "run")["sites"]
        assert {name: sites[name] for name in NAMES[:3]} == dict.fromkeys(NAMES[:3], "counted")
        assert "another class list" in sites["site-3"]
        assert sites["site-4"].startswith("left out: ")
        assert set(sites) == set(NAMES), "the stranger was not even asked"
        assert report(tmp_path / "run")["rows"] == sum(hospitals.sizes[name] for name in NAMES[:3])
        assert not list(hospitals.folder.glob("memory-stranger*"))
        assert stranger.poll() not in (None, 0), "an unregistered node is turned away"
    finally:
        hospitals.kill("stranger")
        hospitals.restart("site-4")
        hospitals.configure("site-3")
    later = hospitals.finish(hospitals.begin("plain", tmp_path / "run"))
    found = report(tmp_path / "run")
    assert found["total_sha256"] == hospitals.expected, later
    assert [found["sites"][name] for name in NAMES] == ["counted before"] * 3 + ["counted"] * 2


def test_nodes_killed_in_a_round_are_named_and_the_rest_completes(hospitals, tmp_path):
    """One before its numbers came and one after; every other stage is killed over an engine without processes."""
    round_folder, victims = tmp_path / "run" / "round", {"closed-sharing": "site-1", "closed-revealing": "site-4"}
    hospitals.forget("any_peers = true\nany_recipe = true\ncorruption = 0.0\n")
    run = hospitals.begin("secure", tmp_path / "run", timeout=15.0, dropout=0.4, corruption=0.0)
    for begun, name in victims.items():
        hospitals.until((round_folder / begun).exists, 120, f"{begun!r} to be there")
        hospitals.kill(name)
    try:
        lines = hospitals.finish(run)
        found = report(tmp_path / "run")
        assert found["status"] == "complete", lines
        assert {name for name, what in found["sites"].items() if what == "counted"} == set(NAMES) - {"site-1"}, lines
        assert found["sites"]["site-1"].startswith("left out: ")
        assert found["rows"] == sum(hospitals.sizes[name] for name in set(NAMES) - {"site-1"})
        for name in victims.values():
            assert f"{name} is left out of" in lines
    finally:
        for name in victims.values():
            hospitals.restart(name)


def test_a_killed_server_app_goes_on_from_its_journal(hospitals, tmp_path):
    hospitals.forget()
    slow = ["site-2", "site-3"]
    for name in slow:
        os.killpg(hospitals.nodes[name].pid, signal.SIGSTOP)
    messages = tmp_path / "run" / "messages"
    try:
        run = hospitals.begin("plain", tmp_path / "run")
        hospitals.until(lambda: len(list(messages.glob("*.ghofl"))) == 3, 90, "three messages")
        for pid in hospitals.server_app():
            os.kill(pid, signal.SIGKILL)
        kept = {path.name: path.read_bytes() for path in messages.glob("*.ghofl")}
        run.end()
    finally:
        for name in slow:
            os.killpg(hospitals.nodes[name].pid, signal.SIGCONT)
    assert not (tmp_path / "run" / "total.ghofl").exists()
    # A node that was handed half a query by the dead server waits a while for the rest of it.
    lines = hospitals.finish(hospitals.begin("plain", tmp_path / "run", timeout=200.0), timeout=400)
    found = report(tmp_path / "run")
    assert found["total_sha256"] == hospitals.expected, lines
    assert {n for n, what in found["sites"].items() if what == "counted before"} == set(NAMES) - set(slow)
    assert all((messages / name).read_bytes() == data for name, data in kept.items())
