"""A site: its name, where its rows are, and what would leave it under a recipe.

The configuration is a TOML file, or the same keys on the SuperNode's command line::

    flower-supernode … --node-config 'site="/etc/ghofl/site.toml"'
    flower-supernode … --node-config 'name="north" embeddings="/data/north.npz" folder="/var/lib/ghofl"'
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ghofl import encoders, partition
from ghofl.encoders import Runtime
from ghofl.errors import PolicyError, SiteError
from ghofl.features import Clipping, Features
from ghofl.flower.configuration import built, read_toml
from ghofl.flower.memory import FolderMemory, Memory
from ghofl.flower.policy import Policy
from ghofl.moments import Moments
from ghofl.names import NAMES_ARE, SITE_LENGTH, is_site_name
from ghofl.recipe import Recipe
from ghofl.samples import Columns, check_encoder, class_numbers, load_rows, load_samples
from ghofl.samples.embed import moments_of_samples
from ghofl.simulate import site_moments

PATHS = ("embeddings", "folder", "recipe", "auth_key", "policy", "weights")


@dataclass(frozen=True, slots=True)
class Site:
    """A site's own configuration; nothing in it comes from the server.

    Rows are `embeddings` (with `split`), or `data` samples through an `encoder`. `folder` is what the site remembers:
    the message it sent, approvals, the state of a secure round. `recipe` is its own copy of what was agreed on: any
    other is refused. `auth_key` is the private key its SuperNode is registered with, and `policy` a file of what it
    insists on. `labels_are_numbers` says that whole-number labels are places in the recipe's list of classes, from 0.
    """

    name: str
    embeddings: str = ""
    split: str = ""
    data: str = ""
    encoder: str = ""
    weights: str = ""
    pooling: str = ""
    fit: str = ""
    device: str = "cpu"
    text_column: str = ""
    path_column: str = ""
    label_column: str = ""
    folder: str = ""
    recipe: str = ""
    auth_key: str = ""
    policy: str = ""
    labels_are_numbers: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise SiteError('a site needs a name; write name = "north".')
        if not is_site_name(self.name):
            raise SiteError(
                f"site name {self.name[:80]!r} is not allowed; write up to {SITE_LENGTH} characters. {NAMES_ARE}"
            )
        for key in ("embeddings", "data", "encoder", *PATHS):
            if "\0" in getattr(self, key):
                raise SiteError(f"{key} is {getattr(self, key)[:80]!r}; no path has a zero character in it.")
        if bool(self.embeddings) == bool(self.data) or bool(self.data) != bool(self.encoder):
            raise SiteError(
                f'site {self.name!r} needs its rows: write embeddings = "rows.npz", or both data = "samples" and '
                'encoder = "onnx:model.onnx".'
            )
        if not self.folder:
            raise SiteError(
                f"site {self.name!r} needs a folder of its own, where it keeps what it sent and approved; write "
                'folder = "/var/lib/ghofl".'
            )

    @classmethod
    def load(cls, path: str | Path) -> "Site":
        """Read a site's configuration from a TOML file; paths in it start from that file's folder.

        So do the file of ``encoder = "onnx:FILE"``, and samples and ``hf:`` folders where they are there: both may
        also be names that are known elsewhere.
        """
        site: Site = built(cls, read_toml(path), path)
        folder = Path(path).parent
        moved = {key: str(folder / getattr(site, key)) for key in PATHS if getattr(site, key)}
        if site.data and (folder / site.data).exists():
            moved["data"] = str(folder / site.data)
        family, _, rest = site.encoder.partition(":")
        if rest and (family == "onnx" or (family == "hf" and (folder / rest).is_dir())):
            moved["encoder"] = f"{family}:{folder / rest}"
        return dataclasses.replace(site, **moved)

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> "Site":
        """The site of a SuperNode's configuration."""
        if "site" in config:
            path = config["site"]
            if not isinstance(path, str) or not path or "\0" in path:
                raise SiteError(f'site is {path!r} in --node-config; write site="/etc/ghofl/site.toml".')
            return cls.load(path)
        known = {f.name for f in dataclasses.fields(cls)}
        values = {key.replace("-", "_"): value for key, value in config.items()}
        return built(cls, {key: value for key, value in values.items() if key in known}, "--node-config")

    def memory(self) -> Memory:
        """What the site remembers, on disk."""
        return FolderMemory(self.folder)

    def conditions(self) -> Policy:
        """What the site insists on; nothing but rows without a policy file."""
        return Policy.load(self.policy) if self.policy else Policy()

    def check_recipe(self, recipe: Recipe) -> None:
        """Raise `PolicyError` unless the recipe is the one this site agreed on and its policy allows it."""
        if self.recipe:
            agreed = Recipe.load(self.recipe)
            if agreed.fingerprint != recipe.fingerprint:
                theirs, ours = recipe.fingerprint[:12], agreed.fingerprint[:12]
                what = "class list" if agreed.classes != recipe.classes else "recipe"
                raise PolicyError(
                    f"the server's recipe {theirs}… is not the one agreed on here, {ours}…: another {what}. "
                    "Give server and sites one recipe file."
                )
        self.conditions().check_recipe(recipe)

    def moments(self, recipe: Recipe) -> Moments:
        """The exact moments of this site's rows."""
        return self.moments_and_clipping(recipe)[0]

    def moments_and_clipping(self, recipe: Recipe) -> tuple[Moments, Clipping]:
        """The exact moments of this site's rows, and how much of them fell outside the grid."""
        if self.embeddings:
            rows = load_rows(self.embeddings, self.split)
            assert rows.y is not None
            check_encoder(rows.encoder, recipe, self.embeddings)
            y = class_numbers(rows.y, recipe.classes, self.labels_are_numbers)
            return site_moments(Features.of(recipe), rows.x, y)
        columns = Columns(self.text_column, self.path_column, "", self.label_column)
        samples, runtime = load_samples(self.data, self.split, columns), Runtime(self.device)
        encoder = encoders.load(
            self.encoder, runtime, weights=self.weights or None, pooling=self.pooling or None, fit=self.fit or None
        )
        check_encoder(encoders.identity(encoder), recipe, self.data)
        numbers = self.labels_are_numbers
        return moments_of_samples(samples, encoder, Features.of(recipe), runtime=runtime, labels_are_numbers=numbers)[
            :2
        ]


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """One of many sites of a simulation: its share of the training rows of one file, as `ghofl simulate` deals them."""

    embeddings: str
    number: int
    clients: int
    alpha: float | None = None
    seed: int = 0

    @classmethod
    def of_config(cls, node: Mapping[str, Any], run: Mapping[str, Any]) -> "SimulatedSite":
        """The site with a node's partition number, of the rows that the run is about."""
        path = run.get("simulated-embeddings", "")
        if not isinstance(path, str) or not path or "\0" in path:
            raise SiteError(
                "a simulation needs rows: flwr run … --run-config 'simulated-embeddings=\"/data/rows.npz\"', with "
                "x_train and y_train."
            )
        number, clients = node.get("partition-id"), node.get("num-partitions")
        if type(number) is not int or type(clients) is not int or not 0 <= number < clients:
            raise SiteError(
                f"partition-id is {number!r} of num-partitions {clients!r}; a simulated node has a number below theirs."
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

    def conditions(self) -> Policy:
        """Simulated sites insist on nothing, not even rows: skewed splits have empty clients."""
        return Policy(min_rows=0, any_peers=True, min_survivors=2, corruption=0.0)

    def check_recipe(self, recipe: Recipe) -> None:
        """Any recipe will do."""

    def moments(self, recipe: Recipe) -> Moments:
        """The moments of this client's rows."""
        return self.moments_and_clipping(recipe)[0]

    def moments_and_clipping(self, recipe: Recipe) -> tuple[Moments, Clipping]:
        """The moments of this client's rows, and how much of them fell outside the grid."""
        x, y, parts = _dealt(self.embeddings, recipe.classes, self.clients, self.alpha, self.seed)
        rows = parts[self.number]
        return site_moments(Features.of(recipe), x[rows], y[rows])


@lru_cache(maxsize=2)
def _dealt(
    path: str, classes: tuple[str, ...], clients: int, alpha: float | None, seed: int
) -> tuple[np.ndarray, np.ndarray, partition.Parts]:
    """Training rows, class numbers and who has which; kept, because one process plays many clients."""
    rows = load_rows(path, "train")
    assert rows.y is not None
    y = class_numbers(rows.y, classes)
    return rows.x, y, partition.split(y, clients, np.random.default_rng(seed), alpha)
