"""Configurations of sites and runs: from TOML to checked dataclasses, with errors that name the file."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ghofl.errors import RecipeError, SiteError
from ghofl.recipe.schema import build


def read_toml(path: str | Path) -> dict[str, Any]:
    """The values of a TOML file, or an error that names it."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SiteError(f"{path} is not TOML: {error}") from None


def build_from(cls: type, values: Mapping[str, Any], where: str | Path) -> Any:
    """An instance of a dataclass from plain values, every key and type checked."""
    try:
        return build(cls, values, "")
    except RecipeError as error:
        raise SiteError(f"{where}: {error}") from None
