"""The two walk-throughs of federations say what the commands take."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ghofl.cli import app
from ghofl.flower.policy import Policy
from ghofl.flower.site import Site
from ghofl.recipe import Recipe

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["how-to-hospitals.md", "how-to-thousand-clients.md"]
BIN = Path(sys.executable).parent


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.M | re.S)


def lines(page, *starts):
    text = "".join(blocks(page, "sh")).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.startswith(starts)]


@pytest.mark.parametrize("page", PAGES)
def test_options_of_the_engine_exist(page):
    found = lines(page, "flower-superlink", "flower-supernode", "flwr run", "flwr supernode register")
    assert found
    for line in found:
        words = shlex.split(line)
        command = words[:1] if words[0] != "flwr" else words[: 3 if words[1] == "supernode" else 2]
        if not (BIN / command[0]).exists():
            pytest.skip("flwr is not installed: pip install 'ghofl[flower]'")
        told = subprocess.run([BIN / command[0], *command[1:], "--help"], capture_output=True, text=True).stdout
        options = [word for word in words if word.startswith("--")]
        assert options
        assert all(option in told for option in options), line


@pytest.mark.parametrize("page", PAGES)
def test_our_commands_run_up_to_the_app(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("digits.npz", x_train=rng.normal(size=(60, 5)), y_train=np.arange(60) % 3)
    for line in lines(page, "ghofl recipe", "ghofl flower new"):
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, (line, done.output, done.exception)
    assert Recipe.load("recipe.toml").privacy.secure == ("hospitals" in page)
    assert len(list(Path().rglob("server_app.py"))) == 1


def test_the_configurations_shown_are_ones_that_work(tmp_path):
    site, policy = (
        block for block in blocks("how-to-hospitals.md", "toml") if "name =" in block or "min_count" in block
    )
    (tmp_path / "site.toml").write_text(site)
    (tmp_path / "policy.toml").write_text(policy)
    assert Site.load(tmp_path / "site.toml").conditions() == Policy.load(tmp_path / "policy.toml")
    assert Policy.load(tmp_path / "policy.toml").confirm


def test_every_key_of_a_policy_is_explained():
    text = (DOCS / "how-to-hospitals.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in Policy.__slots__)
