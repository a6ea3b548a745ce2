"""A site: its name, where its rows are, and what would leave it under a recipe.

The configuration is a TOML file, or the same keys on the SuperNode's command line::

    flower-supernode … --node-config 'site="/etc/ghofl/site.toml"'
    flower-supernode … --node-config 'name="north" embeddings="/data/north.npz" folder="/var/lib/ghofl"'
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ghofl import datasets, diagnostics, encoders, partition
from ghofl.embed import moments_of_samples
from ghofl.embeddings import class_numbers, load_rows, refuse_encoder
from ghofl.encoders import Runtime
from ghofl.envelope import safetensors_header
from ghofl.errors import MessageError, PolicyError, RecipeError, SiteError
from ghofl.features import Features
from ghofl.flower.memory import FolderMemory, Memory
from ghofl.flower.policy import Policy, read_toml
from ghofl.message import MAX_HEADER as MAX_MESSAGE_HEADER
from ghofl.message import Message
from ghofl.moments import Moments
from ghofl.plain import build
from ghofl.privacy import as_vector, leaving, plan_of
from ghofl.recipe import Recipe
from ghofl.simulate import site_moments

PATHS = ("embeddings", "folder", "recipe", "auth_key", "policy", "weights")


@dataclass(frozen=True, slots=True)
class Site:
    """A site's own configuration; nothing in it comes from the server.

    Rows are `embeddings` (with `split`), or `data` samples through an `encoder`. `folder` is what the site remembers:
    the message it sent, approvals, the state of a secure round. `recipe` is its own copy of what was agreed on: any
    other is refused. `auth_key` is the private key its SuperNode is registered with, and `policy` a file of what it
    insists on.
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

    def __post_init__(self) -> None:
        if not self.name:
            raise SiteError('a site needs a name; write name = "north".')
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
        """Read a site's configuration from a TOML file; paths in it start from that file's folder."""
        values = read_toml(path)
        for key in PATHS:
            if isinstance(values.get(key), str) and values[key]:
                values[key] = str(Path(path).parent / values[key])
        if isinstance(values.get("data"), str) and (Path(path).parent / values["data"]).exists():
            values["data"] = str(Path(path).parent / values["data"])
        return _built(values, str(path))

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> "Site":
        """The site of a SuperNode's configuration."""
        if "site" in config:
            return cls.load(str(config["site"]))
        known = {f.name for f in dataclasses.fields(cls)}
        values = {key.replace("-", "_"): value for key, value in config.items()}
        return _built({key: value for key, value in values.items() if key in known}, "--node-config")

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
        if self.embeddings:
            rows = load_rows(self.embeddings, self.split)
            assert rows.y is not None
            refuse_encoder(rows.encoder, recipe, self.embeddings)
            return site_moments(Features.of(recipe), rows.x, class_numbers(rows.y, recipe.classes))[0]
        columns = datasets.Columns(self.text_column, self.path_column, "", self.label_column)
        samples, runtime = datasets.load(self.data, self.split, columns), Runtime(self.device)
        encoder = encoders.load(
            self.encoder, runtime, weights=self.weights or None, pooling=self.pooling or None, fit=self.fit or None
        )
        refuse_encoder(encoders.identity(encoder), recipe, self.data)
        return moments_of_samples(samples, encoder, Features.of(recipe), runtime=runtime)[0]


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
        path = str(run.get("simulated-embeddings", ""))
        if not path:
            raise SiteError(
                "a simulation needs rows: flwr run … --run-config 'simulated-embeddings=\"/data/rows.npz\"', with "
                "x_train and y_train."
            )
        alpha = float(run.get("simulated-alpha", 0.0))
        number, clients = int(node["partition-id"]), int(node["num-partitions"])
        return cls(path, number, clients, alpha or None, int(run.get("simulated-seed", 0)))

    @property
    def name(self) -> str:
        """The name that `ghofl simulate` gives this client."""
        return f"client-{self.number:05d}"

    def conditions(self) -> Policy:
        """Simulated sites insist on nothing, not even rows: skewed splits have empty clients."""
        return Policy(min_rows=0, min_survivors=2)

    def check_recipe(self, recipe: Recipe) -> None:
        """Any recipe will do."""

    def moments(self, recipe: Recipe) -> Moments:
        """The moments of this client's rows."""
        x, y, parts = _dealt(self.embeddings, recipe.classes, self.clients, self.alpha, self.seed)
        rows = parts[self.number]
        return site_moments(Features.of(recipe), x[rows], y[rows])[0]


@lru_cache(maxsize=2)
def _dealt(
    path: str, classes: tuple[str, ...], clients: int, alpha: float | None, seed: int
) -> tuple[np.ndarray, np.ndarray, partition.Parts]:
    """Training rows, class numbers and who has which; kept, because one process plays many clients."""
    rows = load_rows(path, "train")
    assert rows.y is not None
    y = class_numbers(rows.y, classes)
    return rows.x, y, partition.split(y, clients, np.random.default_rng(seed), alpha)


@dataclass(frozen=True, slots=True, eq=False)
class Parcel:
    """What would leave a site under one recipe: a message, or the vector that a secure round hides.

    `sentences` say what it would reveal to someone who reads it.
    """

    content: bytes = field(repr=False)
    is_message: bool
    rows: int
    sentences: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """What an approval names."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def message_id(self) -> str:
        """The id of the message, empty for a vector."""
        if not self.is_message:
            return ""
        return str(safetensors_header(self.content, "message", MAX_MESSAGE_HEADER)["id"])

    @property
    def vector(self) -> np.ndarray:
        """The vector to hide."""
        assert not self.is_message
        return np.frombuffer(self.content, dtype="<i8").astype(np.int64, copy=False)


def pack(site: Site | SimulatedSite, recipe: Recipe) -> Parcel:
    """What would leave the site now, after its policy agreed to recipe and rows. Local noise is drawn here, once."""
    site.check_recipe(recipe)
    moments = site.moments(recipe)
    site.conditions().check_moments(moments)
    plan, is_secure = plan_of(recipe), recipe.privacy.secure
    has_noise = plan is not None and plan.mechanism == "local"
    if is_secure:
        left, content = leaving(moments, recipe), b""
        content = as_vector(left, recipe).astype("<i8").tobytes()
    else:
        message = Message.of(moments, recipe, site.name)
        left, content = message.moments, message.to_bytes()
    sentences: tuple[str, ...] = ()
    if isinstance(site, Site):
        guarantee = plan.guarantee if has_noise and plan is not None else None
        sentences = tuple(diagnostics.audit(left, recipe, guarantee).sentences())
    if is_secure:
        sentences += ("It leaves masked: the server learns the sum over all sites of the round, not these numbers.",)
    return Parcel(content, not is_secure, moments.rows, sentences)


def remembered(memory: Memory, recipe: Recipe) -> Parcel | None:
    """The parcel that was packed for this recipe before, if the memory holds one."""
    told, content = memory.get(_key(recipe, "json")), memory.get(_key(recipe, "bin"))
    if told is None or content is None:
        return None
    values = json.loads(told)
    if hashlib.sha256(content).hexdigest() != values["sha256"]:
        raise MessageError(
            "the message kept in this site's folder is damaged; remove it there and let it be made again."
        )
    return Parcel(content, values["is_message"], values["rows"], tuple(values["sentences"]))


def remember(memory: Memory, recipe: Recipe, parcel: Parcel) -> None:
    """Keep a parcel, so that a second query gets the very same bytes: same id, same noise."""
    told = {
        "is_message": parcel.is_message,
        "rows": parcel.rows,
        "sentences": parcel.sentences,
        "sha256": parcel.sha256,
    }
    memory.put(_key(recipe, "bin"), parcel.content)
    memory.put(_key(recipe, "json"), json.dumps(told, indent=1, ensure_ascii=False).encode())


def ready(site: Site | SimulatedSite, recipe: Recipe, memory: Memory) -> Parcel:
    """The parcel that leaves, packed once and approved where the policy asks for it."""
    site.check_recipe(recipe)
    parcel = remembered(memory, recipe) if memory.is_lasting else None
    if parcel is None:
        parcel = pack(site, recipe)
        if memory.is_lasting:
            remember(memory, recipe, parcel)
    if site.conditions().confirm and memory.get(_approval(recipe)) != parcel.sha256.encode():
        raise PolicyError(
            f"this site's administrator has not approved recipe {recipe.fingerprint[:12]}… yet: "
            "ghofl flower check SITE.toml --recipe RECIPE.toml --confirm."
        )
    return parcel


def approve(memory: Memory, recipe: Recipe, parcel: Parcel) -> None:
    """Note that an administrator has seen this parcel and lets it go."""
    memory.put(_approval(recipe), parcel.sha256.encode())


def is_approved(memory: Memory, recipe: Recipe, parcel: Parcel) -> bool:
    """Whether an administrator approved this very parcel."""
    return memory.get(_approval(recipe)) == parcel.sha256.encode()


def _key(recipe: Recipe, suffix: str) -> str:
    return f"outbox/{recipe.fingerprint}.{suffix}"


def _approval(recipe: Recipe) -> str:
    return f"approved/{recipe.fingerprint}"


def _built(values: Mapping[str, Any], where: str) -> Site:
    try:
        return build(Site, values, "")
    except RecipeError as error:
        raise SiteError(f"{where}: {error}") from None
