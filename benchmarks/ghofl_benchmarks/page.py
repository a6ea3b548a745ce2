"""The results page, from stored JSON files only: what was measured where, beside the paper's figures, and what was not."""

from pathlib import Path

from ghofl_benchmarks import report
from ghofl_benchmarks.tables import TABLES

HEAD = """# The paper's tables, measured again

Written by `python -m ghofl_benchmarks page` from the JSON files beside it, and from nothing else. In every table,
`accuracy` (or the measure named) is ours, measured on the machine that the section names; `paper` is the paper's figure
and `difference` is ours minus it; – is a cell that was not run or that the paper does not have. Kinds: *ours* is this
library, *baseline* another system, *ceiling* one that sees all rows.
"""


def write_page(folder: Path = report.RESULTS) -> Path:
    """Write TABLES.md beside the JSON files; the path."""
    parts = [HEAD]
    for name in TABLES:
        result = report.read(f"table-{name}", folder)
        if result is None:
            parts.append(f"\n## {TABLES[name]}\n\nNot run: `python -m ghofl_benchmarks table {name}`.\n")
        else:
            picture = f"table-{name}.svg"
            text = report.markdown(result, picture if (folder / picture).is_file() else None)
            parts.append("\n#" + text)
    drawn = [
        name for name in ("figure-tradeoff", "figure-convergence", "figure-time") if (folder / f"{name}.svg").is_file()
    ]
    parts += [f"\n## {name.removeprefix('figure-').capitalize()}\n\n![{name}]({name}.svg)\n" for name in drawn]
    path = folder / "TABLES.md"
    path.write_text("".join(parts), encoding="utf-8")
    return path
