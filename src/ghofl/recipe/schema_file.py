"""Schema files, which `ghofl schema` drafts, people correct, and `ghofl recipe` puts into a recipe."""

from dataclasses import dataclass
from pathlib import Path

import tomli_w

from ghofl import files
from ghofl.errors import RecipeError
from ghofl.names import shorten
from ghofl.recipe import toml
from ghofl.recipe.schema import to_plain
from ghofl.recipe.table import Table


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema file: the table that goes into a recipe, the classes, and the columns left out with the reason."""

    table: Table
    classes: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()

    def save(self, path: str | Path) -> None:
        """Write the schema as a TOML file for people to read and correct."""
        notes = "".join(f"# left out: {name!r}: {why}\n" for name, why in self.left_out)
        classes = {"classes": list(self.classes)} if self.classes else {}
        files.write(path, notes + tomli_w.dumps(classes | to_plain(self.table)))

    @classmethod
    def load(cls, path: str | Path) -> "Schema":
        """Read a schema file."""
        try:
            values = toml.read(path)
            classes = values.pop("classes", [])
            if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
                raise RecipeError(
                    f"classes is {shorten(classes, 60)}; write a list of names, e.g. classes = ['ill', 'well']."
                )
            return cls(Table.from_dict(values), tuple(classes))
        except toml.NotTomlError as error:
            raise RecipeError(f"{path} {error}; 'ghofl schema' writes a valid one.") from None
        except RecipeError as error:
            raise RecipeError(f"{path}: {error}") from None
