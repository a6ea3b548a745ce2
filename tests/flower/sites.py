"""Sites and engines that the tests of federations share; everything but the engine is real."""

import json
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from typer.testing import CliRunner

from federations import blobs, recipe_of
from ghofl.cli import app
from ghofl.custody.site import Site
from ghofl.flower.server.asking import Answer, Node
from ghofl.flower.server.settings import Settings
from ghofl.keeper.answers import answer
from ghofl.recipe import Privacy
from ghofl.simulation import partition
from ghofl.wire.letter import Letter
from ghofl.wire.message import Message
from ghofl.wire.total import Total

PLAIN = recipe_of()
SECURE = replace(PLAIN, privacy=Privacy(secure=True))


@pytest.fixture
def task(monkeypatch):
    """Messages say which run and node they are of; a process of the engine is told so when it starts."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        if hasattr(TaskIdentity, name):
            monkeypatch.setattr(TaskIdentity, name, 1)


def key_pair(path):
    """A node's key as ssh-keygen writes it: the private half at `path`, the public one beside it."""
    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key()
    path.with_suffix(".pub").write_bytes(public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def make_sites(folder, count=5, recipe=PLAIN, policy="", keys=False, seed=3):
    """Sites on disk with a share of some rows each, as a list of their TOML files."""
    x, y = blobs(np.random.default_rng(seed))
    recipe.save(folder / "recipe.toml")
    policy += "" if "peers" in policy else "any_peers = true\n"
    has_copy = (
        recipe.privacy.epsilon is not None and "any_recipe" not in policy
    )  # under an epsilon not every recipe will do
    (folder / "policy.toml").write_text(policy + ("" if "any_recipe" in policy or has_copy else "any_recipe = true\n"))
    paths = []
    for i, rows in enumerate(partition.split(y, count, np.random.default_rng(seed), 0.5)):
        np.savez(folder / f"{i}.npz", x=x[rows], y=y[rows])
        lines = [f'name = "site-{i}"', f'embeddings = "{i}.npz"', f'folder = "memory-{i}"', 'policy = "policy.toml"']
        lines += ["labels_are_numbers = true", *(['recipe = "recipe.toml"'] if has_copy else [])]
        if keys:
            key_pair(folder / f"key-{i}")
            lines.append(f'auth_key = "key-{i}"')
        (folder / f"{i}.toml").write_text("\n".join(lines) + "\n")
        paths.append(folder / f"{i}.toml")
    return paths


def exact_total(folder, paths, recipe=PLAIN):
    """The total of the sites' rows without any engine."""
    plain = replace(recipe, privacy=Privacy())
    moments = [Site.load(path).count(plain).moments for path in paths]
    return Total.of((Message.of(m, plain, f"site-{i}") for i, m in enumerate(moments)), plain).moments


class InProcess:
    """An engine without a network. `dead` says at which action a node is gone; `twist` changes an answer on its way."""

    def __init__(self, paths, dead=None, twist=None, keys=None, names=None):
        self.paths = dict(enumerate(paths, start=100))
        self.dead, self.twist, self.asked = dead or {}, twist, []
        self.keys, self.names = keys or {}, names or {}

    def nodes(self):
        return [Node(node, self.names.get(node, ""), self.keys.get(node, b"")) for node in self.paths]

    def ask(self, action, letters, seconds, size):
        for node, letter in letters.items():
            self.asked.append((action, node))
            if self.dead.get(node) == action:
                self.dead[node] = "everything"
            if self.dead.get(node) == "everything":
                yield Answer(node, error="its node failed or is gone: killed")
                continue
            site = Site.load(self.paths[node])
            reply = answer(action, Letter(dict(letter.fields), letter.payload), site, site.storage())
            yield Answer(node, self.twist(action, node, reply) if self.twist else reply)


def invoke(*words):
    """How a command of `ghofl flower` ends."""
    return CliRunner().invoke(app, ["flower", *map(str, words)])


def confirmed(*words):
    """How `flower check` or `flower reopen` ends when the sha256 that it shows is confirmed; as it ends where it shows none."""
    shown = invoke(*words, "--json", "-")
    if not shown.output.startswith("{"):
        return shown
    return invoke(*words, "--confirm", json.loads(shown.output)["sha256"])


def reopen(path, recipe_file, names, *more):
    """How `flower reopen` for a cohort of these names ends when the sha256 that it shows is confirmed."""
    return confirmed("reopen", path, "--recipe", recipe_file, "--cohort", ",".join(names), *more)


def settings(folder, **changes):
    values = {"folder": str(folder), "wait": 0.0, "timeout": 5.0, "heads": "lda", "authenticated": False}
    return Settings(**{**values, **changes})
