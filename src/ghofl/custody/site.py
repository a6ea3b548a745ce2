"""A site: its name, where its rows are, and what would leave it under a recipe.

The configuration is a TOML file, or the same keys on the SuperNode's command line::

    flower-supernode … --node-config 'site="/etc/ghofl/site.toml"'
    flower-supernode … --node-config 'name="north" embeddings="/data/north.npz" folder="/var/lib/ghofl"'
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ghofl.custody.configuration import build_from, check_alone, check_given, own_keys, read_toml
from ghofl.custody.policy import Policy
from ghofl.custody.storage import FolderStorage, Storage
from ghofl.encoders import Runtime
from ghofl.errors import PolicyError, SiteError
from ghofl.features import Features
from ghofl.names import WHY_NO_SITE_NAME, is_site_name
from ghofl.outbox import Counted, Embedded, Encodable, Outgoing, count
from ghofl.outbox.row_version import RowVersion
from ghofl.outbox.site_rows import limit_persons, load_embedded, load_encodable
from ghofl.privacy import plan_of
from ghofl.privacy.audit import audit
from ghofl.recipe import Recipe
from ghofl.rows import Columns


@runtime_checkable
class Custodian(Protocol):
    """Whoever answers for rows: a site with its own configuration, or a simulated one."""

    @property
    def name(self) -> str: ...
    @property
    def auth_key(self) -> str: ...
    def load_policy(self) -> Policy: ...
    def check_recipe(self, recipe: Recipe, policy: Policy) -> None: ...
    def count(self, recipe: Recipe) -> Counted: ...
    def audit(self, left: Outgoing) -> tuple[str, ...]: ...


PATHS = ("embeddings", "folder", "recipe", "auth_key", "policy", "weights", "socket")
GUARDS = ("policy", "recipe")  # files without which a site refuses less


@dataclass(frozen=True, slots=True)
class Site:
    """A site's own configuration; nothing in it comes from the server.

    Rows are `embeddings` (with `split`), or `data` samples through an `encoder`. `folder` is where the site remembers
    the message it sent, approvals and the state of a secure round. `recipe` is its own copy of the agreed recipe: any
    other is refused. `auth_key` is the private key its SuperNode is registered with, and `policy` the file of its
    conditions. `labels_are_numbers` says that whole-number labels are positions in the recipe's list of classes, from 0.
    `socket` is where its keeper answers, `socket_group` the group that may connect, and `allow` the users that may ask.
    `person` is the column that says who a row is about; at most `rows_per_person` rows of one person count, or the
    recipe's number where that is smaller.
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
    socket: str = ""
    socket_group: str = ""
    allow: tuple[str, ...] = ()
    person: str = ""
    rows_per_person: int | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise SiteError('a site needs a name; write name = "north".')
        if not is_site_name(self.name):
            raise SiteError(f"site name {self.name[:80]!r} is not allowed: {WHY_NO_SITE_NAME}")
        for key in ("embeddings", "data", "encoder", *PATHS):
            if "\0" in getattr(self, key):
                raise SiteError(f"{key} is {getattr(self, key)[:80]!r}; a path must not contain a zero character.")
        if bool(self.embeddings) == bool(self.data) or bool(self.data) != bool(self.encoder):
            raise SiteError(
                f'site {self.name!r} needs its rows: write embeddings = "rows.npz", or both data = "samples" and '
                'encoder = "onnx:model.onnx".'
            )
        if not self.folder:
            raise SiteError(
                f"site {self.name!r} needs its own folder, where it keeps what it sent and approved; write "
                'folder = "/var/lib/ghofl".'
            )

    @classmethod
    def load(cls, path: str | Path) -> "Site":
        """Read a site's configuration from a TOML file; paths in it are relative to that file's folder.

        So is the file of ``encoder = "onnx:FILE"``, and so are samples and ``hf:`` folders that exist there; otherwise
        they may be names on the hub.
        """
        values = read_toml(path)
        check_given(values, GUARDS, path)
        site: Site = build_from(cls, values, path)
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
        """The site of a SuperNode's configuration; a key that is neither the site's nor Flower's own is refused."""
        own = own_keys(config)
        if "site" in own:
            check_alone("site", own)
            path = own["site"]
            if not isinstance(path, str) or not path or "\0" in path:
                raise SiteError(f'site is {path!r} in --node-config; write site="/etc/ghofl/site.toml".')
            return cls.load(path)
        check_given(own, GUARDS, "--node-config")
        return build_from(cls, own, "--node-config")

    def storage(self) -> Storage:
        """The site's storage, on disk."""
        return FolderStorage(self.folder)

    def load_policy(self) -> Policy:
        """The site's policy, read from its file; without a policy file, one that asks only for a row."""
        return Policy.load(self.policy) if self.policy else Policy()

    def check_recipe(self, recipe: Recipe, policy: Policy) -> None:
        """Raise `PolicyError` unless the recipe is the one this site agreed on and its `policy` allows it."""
        if self.recipe:
            agreed = Recipe.load(self.recipe)
            if agreed.fingerprint != recipe.fingerprint:
                theirs, ours = recipe.fingerprint[:12], agreed.fingerprint[:12]
                what = "class list" if agreed.classes != recipe.classes else "recipe"
                raise PolicyError(
                    f"the server's recipe {theirs}… is not the one agreed on here, {ours}…: it has another {what}. "
                    "Give server and sites the same recipe file."
                )
        else:
            policy.check_agreed(recipe)
        policy.check_recipe(recipe)

    def count(self, recipe: Recipe) -> Counted:
        """The exact moments of this site's rows, with the version of those rows."""
        return count(Features.of(recipe), self._rows(recipe), version=RowVersion(recipe.classes))

    def audit(self, left: Outgoing) -> tuple[str, ...]:
        """What leaves, in sentences about what it would reveal to someone who reads it."""
        plan = plan_of(left.recipe)
        guarantee = plan.guarantee if plan is not None and plan.mechanism == "local" else None
        return tuple(audit(left.moments, left.recipe, guarantee).sentences())

    def _rows(self, recipe: Recipe) -> Embedded | Encodable:
        numbers = self.labels_are_numbers
        if self.embeddings:
            found = load_embedded(
                recipe, self.embeddings, self.split, label=self.label_column, labels_are_numbers=numbers
            )
            return limit_persons(found, recipe, self.embeddings, self.split, self.person, self.rows_per_person)
        columns = Columns(self.text_column, self.path_column, self.label_column)
        rows = load_encodable(
            recipe, self.data, self.encoder, self.split, columns=columns, runtime=Runtime(self.device),
            weights=self.weights or None, pooling=self.pooling or None, fit=self.fit or None, labels_are_numbers=numbers,
        )  # fmt: skip
        return limit_persons(rows, recipe, self.data, self.split, self.person, self.rows_per_person)
