"""A simulated site, whose rows are a part of one file."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ghofl.custody.policy import Policy
from ghofl.errors import SiteError
from ghofl.features import Features
from ghofl.names import shorten
from ghofl.outbox import Counted, Embedded, Outgoing, count
from ghofl.recipe import Recipe
from ghofl.rows import load_rows
from ghofl.simulation import partition

RUN_KEYS = ("simulated-embeddings", "simulated-alpha", "simulated-seed")  # of a run's configuration


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """One of many sites of a simulation: its part of the training rows of one file, split as by `ghofl simulate`."""

    embeddings: str
    number: int
    clients: int
    alpha: float | None = None
    seed: int = 0
    auth_key: str = ""

    @classmethod
    def of_config(cls, node: Mapping[str, Any], run: Mapping[str, Any]) -> "SimulatedSite":
        """The site with a node's partition number, with its part of the run's rows."""
        unknown = sorted(key for key in run if key.startswith("simulated-") and key not in RUN_KEYS)
        if unknown:
            raise SiteError(f"unknown run-config key {shorten(unknown[0], 40)}; known are {', '.join(RUN_KEYS)}.")
        path = run.get("simulated-embeddings", "")
        if not isinstance(path, str) or not path or "\0" in path:
            raise SiteError(
                f"simulated-embeddings is {shorten(repr(path))}, and a simulation needs rows: flwr run … "
                "--run-config 'simulated-embeddings=\"/data/rows.npz\"', with "
                "x_train and y_train."
            )
        number, clients = node.get("partition-id"), node.get("num-partitions")
        if type(number) is not int or type(clients) is not int or not 0 <= number < clients:
            raise SiteError(
                f"partition-id is {number!r} and num-partitions is {clients!r}; give a number from 0 to below the latter."
            )
        alpha, seed = run.get("simulated-alpha", 0.0), run.get("simulated-seed", 0)
        if type(alpha) not in (int, float) or not 0 <= alpha < float("inf"):
            raise SiteError(f"simulated-alpha is {alpha!r}; write a number, 0 for an even split.")
        if type(seed) is not int or seed < 0:
            raise SiteError(f"simulated-seed is {seed!r}; write a whole number, 0 or more.")
        return cls(path, number, clients, float(alpha) or None, seed)

    @property
    def name(self) -> str:
        """The name that `ghofl simulate` gives this client."""
        return f"client-{self.number:05d}"

    def load_policy(self) -> Policy:
        """A policy without conditions; not even rows are needed, as skewed splits have empty clients."""
        return Policy(min_rows=0, any_peers=True, min_survivors=2, corruption=0.0)

    def check_recipe(self, recipe: Recipe, policy: Policy) -> None:
        """Any recipe will do."""

    def count(self, recipe: Recipe) -> Counted:
        """The exact moments of this client's rows."""
        x, y, parts = _split_file(self.embeddings, recipe.classes, self.clients, self.alpha, self.seed)
        own = parts[self.number]
        return count(Features.of(recipe), Embedded(x[own], y[own]))

    def audit(self, left: Outgoing) -> tuple[str, ...]:
        """No sentences: nobody reads them for a simulated site."""
        return ()


@lru_cache(maxsize=2)
def _split_file(
    path: str, classes: tuple[str, ...], clients: int, alpha: float | None, seed: int
) -> tuple[np.ndarray, np.ndarray, partition.Parts]:
    """Training rows, class numbers and the rows of each client; cached, because one process simulates many clients."""
    rows = load_rows(path, "train")
    y = rows.numbers(classes)
    return rows.x, y, partition.split(y, clients, np.random.default_rng(seed), alpha)
