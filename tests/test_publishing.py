"""What a release is made from agrees with the project: the conda recipe, and the links of the page on PyPI."""

import os
import re
import sys
import tomllib

import pytest

import ghofl
from deadlines import run
from pages import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "publish.yml"


@pytest.mark.skipif(not (ROOT / "conda").exists(), reason="the recipe is not beside the tests")
def test_conda_asks_for_what_pip_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    asked = re.findall(r"^    - (\S+) (\S+)$", recipe.split("  run:\n")[1].split("\n\n")[0], re.MULTILINE)
    wanted = [re.fullmatch(r"([\w-]+)(.+)", each).groups() for each in project["dependencies"]]
    assert asked == [("python", project["requires-python"]), *wanted]
    assert f'summary: "{project["description"]}"' in recipe
    assert f"- ghofl = {project['scripts']['ghofl']}" in recipe


@pytest.mark.skipif(not (ROOT / "conda").exists() or not WORKFLOW.exists(), reason="the files are not beside the tests")
def test_all_that_names_a_version_names_this_one():
    """The changelog's newest release and the citation; the archive, conda and the tag read it from the package."""
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == ghofl.__version__
    assert re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE) == [ghofl.__version__]
    source = "src/ghofl/__init__.py"
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"]["path"] == source
    assert f"../{source}" in (ROOT / "conda" / "meta.yaml").read_text()
    assert source in WORKFLOW.read_text()
    assert re.findall(r'^__version__ = "(.+)"', (ROOT / source).read_text(), re.MULTILINE) == [ghofl.__version__]


@pytest.mark.skipif(not WORKFLOW.exists() or sys.platform != "linux", reason="the workflow is for Linux and a checkout")
def test_the_page_on_pypi_has_no_link_into_the_checkout(tmp_path):
    for name in ("README.md", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    step = WORKFLOW.read_text().split("name: Links that work")[1].split("run: |\n")[1].split("      - run:")[0]
    home = {"HOME_PAGE": "https://example.org/o/r", "GITHUB_SHA": "abc"}
    run("bash", "-euc", step, cwd=tmp_path, env=os.environ | home)
    links = re.findall(r"\]\(([^)]+)\)", (tmp_path / "README.md").read_text())
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["urls"]
    assert set(urls) == {"Source", "Documentation", "Changelog", "Issues"}


@pytest.mark.skipif(not WORKFLOW.exists(), reason="the workflow is not beside the tests")
def test_only_the_job_that_publishes_gets_a_token_and_no_password_is_stored():
    before, publish = WORKFLOW.read_text().split("\n  publish:\n")
    assert "permissions: {}" in before
    assert "id-token" not in before
    assert "id-token: write" in publish
    assert "secrets." not in before + publish
