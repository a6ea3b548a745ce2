"""Configurations of sites and runs: from TOML to checked dataclasses, with errors that name the file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ghofl.errors import RecipeError, SiteError
from ghofl.recipe import toml
from ghofl.recipe.schema import build


def read_toml(path: str | Path) -> dict[str, Any]:
    """The values of a TOML file, or an error that names it."""
    try:
        return toml.read(path)
    except toml.NotTomlError as error:
        raise SiteError(f"{path} {error}") from None


def build_from(cls: type, values: Mapping[str, Any], where: str | Path) -> Any:
    """An instance of a dataclass from plain values, every key and type checked."""
    try:
        return build(cls, values, "")
    except RecipeError as error:
        raise SiteError(f"{where}: {error}") from None
