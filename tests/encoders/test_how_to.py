"""The page on embedding is run line by line."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_cli import ghofl

from ghofl import cli

PAGE = Path(__file__).parents[2] / "docs" / "how-to-embed.md"


@pytest.mark.slow
@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not beside the tests")
def test_the_walk_through_of_embedding_runs_line_by_line(checkpoint, language_model, tmp_path, monkeypatch, capsys):
    """A line that ends in `# refused: TEXT` must fail, and say TEXT."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cli.console.err, "width", 1000, raising=False)
    shutil.copy(checkpoint, "mobilenet_v2.safetensors")
    shutil.copytree(language_model, "minilm")
    rng = np.random.default_rng(0)
    for i in range(6):
        folder = tmp_path / "photos" / ("cat", "dog")[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(256, size=(32, 32, 3)).astype(np.uint8)).save(folder / f"{i}.png")
    shutil.copytree("photos", "photos-with-a-broken-one")
    (tmp_path / "photos-with-a-broken-one" / "dog" / "broken.png").write_bytes(b"broken")
    (tmp_path / "letters.csv").write_text("text,label\nthe cat sat,cat\na dog ran,dog\n")
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("ghofl ")]
    assert len(lines) == 15
    for line in lines:
        command, _, refusal = line.partition("# refused: ")
        said = ghofl(*shlex.split(command)[1:], code=2 if refusal else 0) + capsys.readouterr().err
        assert refusal in " ".join(said.split()), f"{command} said {said}"
