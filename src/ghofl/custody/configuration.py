"""Configurations of sites and runs: from TOML to checked dataclasses, with errors that name the file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ghofl.errors import RecipeError, SiteError
from ghofl.names import shorten
from ghofl.recipe import toml
from ghofl.recipe.schema import build

ENGINE_KEYS = frozenset(
    {"partition-id", "num-partitions"}
)  # that Flower's simulation writes into a node's configuration


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


def check_given(values: Mapping[str, Any], keys: Sequence[str], where: str | Path) -> None:
    """Raise where a key is there with an empty text, such as that of a variable that nobody set."""
    for key in keys:
        if isinstance(values.get(key), str) and not values[key].strip():
            raise SiteError(f"{where}: {key} is empty; write the file that it names, or leave {key} out.")


def own_keys(node: Mapping[str, Any]) -> dict[str, Any]:
    """What a node's configuration says for us, with ``auth-key`` as ``auth_key``: all but Flower's own keys.

    >>> own_keys({"auth-key": "/k", "partition-id": 3, "simulate": False})
    {'auth_key': '/k'}
    """
    out: dict[str, Any] = {}
    for key, value in node.items():
        name = key.replace("-", "_")
        if name in out:
            raise SiteError(f"--node-config has {name} twice, as {key} and with a hyphen or underscore; write it once.")
        if key not in ENGINE_KEYS and (key, value) != ("simulate", False):
            out[name] = value
    return out


def check_alone(key: str, node: Mapping[str, Any]) -> None:
    """Raise where a node's configuration says more than this key, as nothing would follow it."""
    what, why = _ALONE[key]
    other = ", ".join(shorten(name, 40) for name in sorted(own_keys(node)) if name != key)
    if other:
        raise SiteError(f"--node-config has {what} and {other}; leave those out, as {why}.")


_ALONE = {
    "site": ("a site file", "only that file says what holds at the site; write them there"),
    "keeper": ("a keeper", "only the keeper knows the site"),
    "simulate": ("a simulated site", "it has no configuration of its own"),
}
