"""Results as files: JSON that says how it came about, Markdown made from it, and a picture.

A result is a dictionary: `rows`, each with the fields that name it, `accuracy` (or another measure), what the paper has
(`paper`), and what it is (`kind`: ours, baseline or ceiling); `missing`, what could not be run and how it could be;
and where it was measured. Rows of an earlier run stay unless they are measured again.
"""

import json
import os
import platform
import shlex
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ghofl_benchmarks import made
from ghofl_benchmarks.data import ROOT

RESULTS = ROOT / "results"
PACKAGES = ("ghofl", "numpy", "scipy", "torch", "flwr")
LONGEST = 12  # rows of a table that is open on a page
Row = dict[str, Any]
NAMES = ("set", "encoder", "method", "space", "alpha", "split", "clients", "k", "projection", "measure")


def new_result(name: str, title: str, seed: int, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """A result without rows."""
    return {
        "name": name, "title": title, "command": _command(arguments), "seed": seed,
        "date": datetime.now(UTC).date().isoformat(), "machine": machine(), "rows": [], "missing": [], "notes": [],
    }  # fmt: skip


def _command(arguments: Sequence[str]) -> str:
    """The command without where its results went."""
    kept, skip = [], False
    for argument in arguments:
        if not skip and argument != "--out" and not argument.startswith("--out="):
            kept.append(argument)
        skip = argument == "--out"
    return shlex.join(["python", "-m", "ghofl_benchmarks", *kept])


def machine() -> dict[str, Any]:
    """Processor, cores and versions."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
    }


def add_row(
    result: dict[str, Any], kind: str, accuracy: float | None, paper: float | None = None, **fields: Any
) -> Row:
    """A row of percentages: what was measured, what the paper has, and the difference in points."""
    row: Row = {
        **fields,
        "kind": kind,
        "accuracy": None if accuracy is None else round(100 * accuracy, 2),
        "paper": paper,
    }
    row["difference"] = round(row["accuracy"] - paper, 2) if accuracy is not None and paper is not None else None
    result["rows"].append(row)
    print("  ", {k: v for k, v in row.items() if v is not None}, flush=True)
    return row


def merged(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """The new result, with the rows of the old one that were not measured again."""
    if old is None:
        return new
    names = {name_of(row) for row in new["rows"]}
    kept = [row for row in old["rows"] if name_of(row) not in names]
    seen = {str(row.get("set")) for row in [*kept, *new["rows"]]}
    missing = [m for m in [*old["missing"], *new["missing"]] if m.get("set") not in seen]
    notes = list(dict.fromkeys([*old["notes"], *new["notes"]]))
    unique = list({json.dumps(m, sort_keys=True): m for m in missing}.values())
    return {**new, "rows": [*kept, *new["rows"]], "missing": unique, "notes": notes}


def name_of(row: Row) -> tuple:
    """The fields that tell a row from others."""
    return tuple(str(row.get(name)) for name in NAMES)


def read(name: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """A stored result, if there is one."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write(
    result: dict[str, Any], folder: Path, draw: Callable[[dict, Path], bool] | None = None, has_older_rows: bool = False
) -> list[Path]:
    """JSON, Markdown and the picture of a result; the paths that were written."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['name']}.json"
    _write(path, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    made.record(path, has_older_rows)
    return [path, *show(result, folder, draw)]


def show(result: dict[str, Any], folder: Path, draw: Callable[[dict, Path], bool] | None = None) -> list[Path]:
    """Markdown and the picture of a stored result; the paths that were written."""
    page, picture = (folder / f"{result['name']}{ending}" for ending in (".md", ".svg"))
    paths = [page, picture] if draw is not None and result["rows"] and draw(result, picture) else [page]
    _write(page, markdown(result, picture.name if picture in paths else None))
    for path in paths:
        made.record(path)
    return paths


def markdown(result: dict[str, Any], picture: str | None = None) -> str:
    """A result as a page."""
    where = result["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in where["versions"].items())
    lines = [
        f"# {result['title']}\n",
        f"`{result['command']}`, {result['date']}; {where['processor']}, {where['cores']} cores; Python "
        f"{where['python']}, {versions}; seed {result['seed']}.\n",
    ]
    lines += [f"![{result['title']}]({picture})\n"] if picture else []
    lines += [f"{note}\n" for note in result["notes"]]
    lines += [folded(table(result["rows"]))] if result["rows"] else ["Nothing could be run here."]
    if result["missing"]:
        lines += ["\nNot run:\n", *(f"- {m['what']}. {m['how']}" for m in result["missing"])]
    return "\n".join(lines) + "\n"


def table(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table, with every field that any of them has."""
    fields = list(dict.fromkeys(key for row in rows for key in row))
    fields = [f for f in fields if any(row.get(f) is not None for row in rows)]
    ends = ("---:" if all(isinstance(row.get(f), int | float | None) for row in rows) else "---" for f in fields)
    lines = ["| " + " | ".join(fields) + " |", "|" + "|".join(ends) + "|"]
    lines += ["| " + " | ".join(_shown(row.get(f)) for f in fields) + " |" for row in rows]
    return "\n".join(lines)


def folded(table: str) -> str:
    """A table, closed until somebody opens it where it is long."""
    rows = len(table.strip().splitlines()) - 2
    return (
        table
        if rows <= LONGEST
        else f"<details><summary>The table, {rows} rows</summary>\n\n{table.strip()}\n\n</details>"
    )


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:,}"
    return f"{value:.2f}" if isinstance(value, float) and value == round(value, 2) else str(value)


def _write(path: Path, text: str) -> None:
    """All of the text or nothing of it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as spare:
        spare.write(text)
    Path(spare.name).chmod(0o644)
    Path(spare.name).replace(path)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
