"""The page on Python is run from its first line to its last."""

import re
import shutil
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to-python.md"


@pytest.mark.slow
@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not beside the tests")
def test_the_page_on_python_runs_from_top_to_bottom(language_model, of_photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(language_model, "minilm")
    shutil.copy(of_photos.removeprefix("onnx:"), "photos.onnx")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 11
    names: dict = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
    said = capsys.readouterr().out.splitlines()
    shown = re.findall(r"^print\(\w+\) +# (.*?)…$", blocks[-1], re.MULTILINE)
    assert len(shown) == len(said) == 2
    for line, beginning in zip(said, shown, strict=True):
        assert line.startswith(beginning.strip())
