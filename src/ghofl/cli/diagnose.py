"""The command that says which site does not fit the others, `diagnose`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, overload

import typer
from rich.table import Table

from ghofl.cli import console
from ghofl.cli.arguments import Force, Json, RecipeFile
from ghofl.evaluation import diagnosis
from ghofl.evaluation.diagnosis import Diagnosis, Part
from ghofl.recipe import Recipe
from ghofl.wire.envelope import peek
from ghofl.wire.message import Message
from ghofl.wire.total import Total


class PartFiles(Sequence[Part]):
    """Messages of sites, or totals of disjoint cohorts, read one at a time when they are needed."""

    def __init__(self, paths: Sequence[Path], recipe: Recipe) -> None:
        self._paths, self._recipe = list(paths), recipe

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, index: int) -> Part: ...
    @overload
    def __getitem__(self, index: slice) -> list[Part]: ...
    def __getitem__(self, index: int | slice) -> Part | list[Part]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        path = self._paths[index]
        with console.errors_about(path):
            header = peek(path)
            if header is not None and header.get("kind") == "total":
                return Part.of(Total.load(path, self._recipe), path.stem)
            return Part.of(Message.load(path, self._recipe))

    def __iter__(self) -> Iterator[Part]:
        return (self[i] for i in range(len(self)))


def diagnose(
    files: Annotated[list[Path], typer.Argument(help="Message files of sites, or totals of disjoint cohorts.")],
    recipe: RecipeFile,
    force: Force = False,
    json: Json = None,
) -> None:
    """At the server: say which site's message does not fit the others', and why. The exit code is 3 if one does not.

    Example: ghofl diagnose north.ghofl south.ghofl west.ghofl --recipe recipe.toml
    """
    console.check_outputs(json, force)
    agreed = Recipe.load(recipe)
    with console.err.status("comparing sites"):
        found = diagnosis.diagnose(PartFiles(files, agreed), agreed)
    console.show(found.to_dict(), _table(found), json, is_private=True)
    if json != "-":
        for sentence in found.sentences():
            console.out.print(console.printable(sentence), soft_wrap=True)
    if found.flagged:
        raise typer.Exit(console.FLAGGED)


def _table(found: Diagnosis) -> Table:
    table = console.titled(f"{console.count(len(found.sites), 'site')}, {len(found.flagged)} flagged")
    table.add_column("site")
    for name in ("rows (share)", "labels", "features", "width", "clipped", "head changes"):
        table.add_column(name, justify="right")
    for site in sorted(found.sites, key=lambda s: (not s.flags, -max(s.labels, s.features))):
        cells = (
            f"{site.rows:,} ({site.share:.0%})", f"{site.labels:.2f}", f"{site.features:.2f}",
            "–" if site.width is None else f"{site.width:.2f}", "–" if site.clipped is None else f"{site.clipped:.2%}",
            f"{site.head_change:.2%}",
        )  # fmt: skip
        table.add_row(site.name, *cells, style="bold" if site.flags else None)
    return table
