"""Executed notebooks as pages: a page says `<!-- notebook: FILE -->` where its cells and outputs go.

`python docs/notebooks.py` runs those in examples/ and stores their outputs again, without what libraries warn of.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = re.compile(r"^<!-- notebook: (\S+) -->$", re.MULTILINE)


def with_notebooks(text: str, folder: Path) -> str:
    """A page's Markdown with its notebook in the place of the mark."""
    return MARK.sub(lambda found: markdown(json.loads((folder / found[1]).read_text(encoding="utf-8"))), text)


def markdown(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown: its title is left to the page, code stays code, outputs follow it."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\A# .*\n", "", source))
        else:
            parts.append(f"```python\n{source}\n```")
            parts += [shown for output in cell["outputs"] for shown in _shown(output)]
    return "\n\n".join(parts)


def _shown(output: dict[str, Any]) -> Iterator[str]:
    """The richest form of an output that a page can show."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        image = "".join(data["image/png"]).replace("\n", "")
        yield f'<img class="notebook-output" alt="Picture drawn by the cell above" src="data:image/png;base64,{image}">'
    elif "text/html" in data:
        html = re.sub(r"\n\s*", "", "".join(data["text/html"]))
        yield f'<div class="notebook-output">{html}</div>'
    else:
        yield f"```text\n{''.join(data['text/plain']).rstrip()}\n```"


def execute(path: Path) -> None:
    """Run a notebook and store it with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=900, kernel_name="python3", record_timing=False, coalesce_streams=True).execute()
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for found in sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb")):
        execute(found)
