"""What a run leaves for people to read: roster, guarantee, and a report in Markdown and JSON."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ghofl.aggregation import Total
from ghofl.recipe import Recipe

if TYPE_CHECKING:
    from ghofl.flower.folder import RunFolder


def write(
    folder: "RunFolder", exact: Total, released: Total, heads: Mapping[str, Path], sites: Mapping[str, str]
) -> None:
    """Write roster, guarantee and report of a run that was completed."""
    roster = [{"site": e.site, "id": e.id, "rows": e.rows, "sha256": e.sha256} for e in released.roster]
    folder.write("roster.json", roster)
    guarantee = None if released.guarantee is None else released.guarantee.to_dict()
    folder.write("guarantee.json", {"guarantee": guarantee, "in_words": _promise(released)})
    values: dict[str, Any] = {
        "status": "complete",
        "recipe": exact.recipe.fingerprint,
        "total_sha256": exact.moments.sha256 if released is exact else None,
        "sites": dict(sites),
        "counted": len(exact.roster),
        "rows": released.moments.rows,
        "heads": {name: str(path.relative_to(folder.path)) for name, path in heads.items()},
        "guarantee": guarantee,
    }
    folder.write("report.json", values)
    folder.write("report.md", _page(exact, released, heads, sites, folder.path))


def write_failure(folder: "RunFolder", recipe: Recipe, sites: Mapping[str, str], why: str) -> None:
    """Write the report of a run that was not completed."""
    values = {"status": "failed", "why": why, "recipe": recipe.fingerprint, "sites": dict(sites)}
    folder.write("report.json", values)
    lines = ["# The run was not completed", "", why, "", *_table(sites)]
    folder.write("report.md", "\n".join(lines) + "\n")


def _page(exact: Total, released: Total, heads: Mapping[str, Path], sites: Mapping[str, str], folder: Path) -> str:
    recipe = exact.recipe
    lines = [
        f"# {len(exact.roster)} sites, {released.moments.rows:,} rows, {len(recipe.classes)} classes",
        "",
        f"Recipe `{recipe.fingerprint}`, {recipe.dim} features of `{recipe.encoder.name}`, "
        f"statistics {', '.join(recipe.statistics)}"
        + (
            ", secure aggregation: of sites that check their peers, the server saw the sum and no part."
            if recipe.privacy.secure
            else "."
        ),
        "",
        _promise(released),
        "",
        "## Heads",
        "",
        *(f"- `{name}`: `{path.relative_to(folder)}`" for name, path in heads.items()),
        "",
        "## Sites",
        "",
        *_table(sites),
    ]
    return "\n".join(lines) + "\n"


def _table(sites: Mapping[str, str]) -> list[str]:
    rows = [f"| {_cell(name)} | {_cell(what)} |" for name, what in sorted(sites.items())]
    return ["| site | what happened |", "|---|---|", *rows]


def _cell(text: str) -> str:
    """A text of a stranger inside a table: no markup, no line breaks."""
    safe = "".join(c if c.isprintable() else " " for c in text)
    return "".join("\\" + c if c in "\\|`*_<>[]#" else c for c in safe)


def _promise(total: Total) -> str:
    if total.guarantee is None:
        return "No noise was added: the total is exact, and there is no differential privacy."
    return str(total.guarantee).splitlines()[0]
