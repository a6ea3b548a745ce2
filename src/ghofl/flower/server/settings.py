"""How a run is conducted, from Flower's run configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ghofl.custody.configuration import build_from
from ghofl.errors import SiteError
from ghofl.heads.spec import DEFAULT_HEAD
from ghofl.secure import CORRUPTION, DROPOUT

_LEAST = {"sites": 0, "min_sites": 1, "wait": 0, "timeout": 1}


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run is conducted; everything that sites have to agree on is in the recipe instead.

    The run waits for `sites` nodes, `wait` seconds at most; a query waits `timeout` seconds for its answers. A total of
    fewer than `min_sites` is not used. With `novelty` the heads also recognise rows of none of the classes. Sites in
    `remove` are taken out of a plain total, and with `forget` their message is deleted. In secure rounds `dropout` and
    `corruption` are the shares of sites that may vanish or collude with the server, both rounded up (see `secure.plan`),
    and `authenticated` asks every site for the signature of its node's key. `peers` is a file of the names and keys that
    may take part.
    """

    folder: str
    sites: int = 0
    min_sites: int = 1
    wait: float = 60.0
    timeout: float = 600.0
    heads: str = DEFAULT_HEAD
    novelty: bool = False
    remove: tuple[str, ...] = ()
    forget: bool = False
    dropout: float = DROPOUT
    corruption: float = CORRUPTION
    authenticated: bool = True
    peers: str = ""

    def __post_init__(self) -> None:
        if not self.folder:
            raise SiteError("the run needs a folder at the server; give --run-config 'folder=\"/srv/ghofl/run\"'.")
        if self.peers and not self.authenticated:
            raise SiteError(
                f"peers = {self.peers!r}: peers are recognised by their keys, which authenticated=false does "
                "not check; give one of the two."
            )
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise SiteError(f"{name.replace('_', '-')} is {getattr(self, name)}; write {least} or more.")

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> "Settings":
        """The settings in a run's configuration; keys that begin with 'simulated-' are for simulated sites."""
        values: dict[str, Any] = {"folder": ""}
        for key, value in config.items():
            name = key.replace("-", "_")
            if key.startswith("simulated-"):
                continue
            if name not in cls.__slots__:
                raise SiteError(f"unknown run-config key {key}; known are {', '.join(cls.__slots__)}.")
            values[name] = _names(value) if name == "remove" else value
        return build_from(cls, values, "run-config")


def _names(text: Any) -> list[str]:
    """Names separated by commas, as Flower's configuration has no lists."""
    return [name for name in map(str.strip, str(text).split(",")) if name]
