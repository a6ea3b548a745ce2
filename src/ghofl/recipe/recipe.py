"""What all sites of a federation agree on before anything is computed.

A `Recipe` is the only configuration that crosses sites. It is public, it is frozen, and its
fingerprint travels in every message and every head: moments with different fingerprints are never added.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from ghofl import files
from ghofl.errors import RecipeError
from ghofl.names import NAMES_ARE, is_name, shorten
from ghofl.notebook import Printable, abbreviate
from ghofl.recipe import toml
from ghofl.recipe.basis import Basis
from ghofl.recipe.schema import build, coerce, to_canonical, to_plain
from ghofl.recipe.schema import check as _check
from ghofl.recipe.sections import Encoder, Grid, Lift, Limits, Privacy, Projection, Sketch, Transform
from ghofl.recipe.table import Table, check_table
from ghofl.statistics import INT64_MAX, STATISTICS, statistics_to_store

SCHEMA = 1
MAX_CLASSES = 100_000
MAX_MATRIX = 2**28  # entries of a public matrix: 256 MB
MAX_ROWS = 1_000_000  # per site, where the recipe does not say


class _Remembered:
    """A slot beside the fields of a recipe for its fingerprint, which every message needs."""

    __slots__ = ("_fingerprint",)
    _fingerprint: str


@dataclass(frozen=True, slots=True, repr=False)
class Recipe(_Remembered, Printable):
    """The agreement of one federation: classes, encoder, transform, grid, space, statistics, privacy, limits,
    table and basis.

    `statistics` lists what every site sends: always the counts ``N`` and sums ``A`` per class, and any of
    ``D`` (per-class sums of squares), ``B`` (one matrix of second moments), ``S`` (one such matrix per class). B is the
    sum of S over classes and D its diagonal, so a recipe that asks for S does not list them.

    Guarantees
    ----------
    A recipe that exists can be followed: unknown keys and impossible combinations raise `RecipeError` when it
    is made. `Recipe.from_toml(recipe.to_toml()) == recipe`, and equal recipes have equal fingerprints.

    Examples
    --------
    >>> recipe = Recipe(classes=("cat", "dog"), encoder=Encoder(dim=4), statistics=("B",))
    >>> recipe.statistics
    ('N', 'A', 'B')
    >>> Recipe.from_toml(recipe.to_toml()).fingerprint == recipe.fingerprint
    True
    """

    classes: tuple[str, ...]
    encoder: Encoder
    statistics: tuple[str, ...] = ("N", "A", "B")
    transform: Transform = field(default_factory=Transform)
    grid: Grid = field(default_factory=Grid)
    projection: Projection | None = None
    lift: Lift | None = None
    sketch: Sketch | None = None
    privacy: Privacy = field(default_factory=Privacy)
    limits: Limits = field(default_factory=Limits)
    table: Table | None = None
    basis: Basis | None = None

    def __post_init__(self) -> None:
        coerce(self, "")
        object.__setattr__(self, "statistics", statistics_to_store(self.statistics))
        self._check_classes()
        self._check_spaces()
        self._check_powers()
        if self.table is not None:
            check_table(self.table, self.encoder, self.privacy.epsilon is not None)
        if self.basis is not None:
            self.basis.check(self.table, self.encoder, self.transform, self.projection or self.lift)

    def _check_classes(self) -> None:
        _check(
            2 <= len(self.classes) <= MAX_CLASSES,
            f"classes has {len(self.classes)} names; write at least two, and at most {MAX_CLASSES}.",
        )
        _check(all(self.classes), "classes has an empty name; give every class a name.")
        for name in self.classes:
            _check(is_name(name), f"classes has the name {name[:80]!r}; {NAMES_ARE}")
        if len(set(self.classes)) < len(self.classes):
            twice = sorted(name for name, count in Counter(self.classes).items() if count > 1)
            raise RecipeError(f"classes names {', '.join(map(repr, twice[:3]))} more than once; list every class once.")

    def _check_spaces(self) -> None:
        dim = self.encoder.dim
        _check(
            self.privacy.merge_into in ("", *self.classes),
            f"privacy.merge_into is {self.privacy.merge_into!r}, which is not one of the classes; add it to them.",
        )
        for name in ("anchor", "centre"):
            length = len(getattr(self.transform, name))
            _check(
                length in (0, dim),
                f"transform.{name} has {length} numbers and encoder.dim is {dim}; write one number per dimension.",
            )
        _check(
            self.projection is None or self.lift is None,
            "both [projection] and [lift] are given; keep [projection] for a small message or [lift] for accuracy.",
        )
        if self.projection is not None:
            _check(
                self.projection.dim <= dim,
                f"projection.dim is {self.projection.dim} and encoder.dim is {dim}; a projection goes to fewer "
                "dimensions. For more, write [lift].",
            )
            self.projection.given_matrix(dim)
        space = self.projection or self.lift
        for name, rows, section in (("projection or lift", dim, space), ("sketch", self.dim, self.sketch)):
            _check(
                section is None or rows * section.dim <= MAX_MATRIX,
                f"the matrix of the {name} has {rows} × {0 if section is None else section.dim} entries; at most "
                f"{MAX_MATRIX} are computed. Write a smaller dim.",
            )
        if self.sketch is not None:
            _check(
                "B" in self.statistics or "S" in self.statistics,
                f"a sketch is sent together with the full B, and statistics are {', '.join(self.statistics)}; "
                "write statistics = ['B'] with it.",
            )
            _check(
                not self.sketch.kept or (self.lift is not None and self.lift.keep and self.sketch.dim == dim),
                f"sketch.kept needs a [lift] with keep = true and sketch.dim = {dim}, the features before the lift.",
            )
            _check(
                self.sketch.dim < self.dim,
                f"sketch.dim is {self.sketch.dim} and features have {self.dim} dimensions; instead of so large a sketch, "
                "write statistics = ['S'].",
            )

    def _check_powers(self) -> None:
        # Under an epsilon a site cuts each class to max_rows by itself.
        names = (*self.statistics, *(name for name, record in STATISTICS.items() if record.is_sketched and self.sketch))
        for record in map(STATISTICS.__getitem__, names):
            classes = 1 if self.privacy.epsilon is None or record.is_sketched else len(self.classes)
            terms = 1 if self.sketch is not None and self.sketch.kept else self.dim  # of a sum of the sketch
            most = INT64_MAX // record.largest(self.grid.bound, terms)
            _check(
                classes * self.max_rows <= most,
                f"{record.noun} ({record.name}) on a grid of {self.grid.bits} bits overflow 64-bit integers beyond "
                f"{most:,} rows, and one site may have {self.max_rows:,}{'' if classes == 1 else ' per class'}; write fewer "
                f"grid.bits, or a limits.max_rows of at most {most // classes:,}.",
            )

    @property
    def dim(self) -> int:
        """The number of features after projection, lift or basis."""
        if self.basis is not None and self.table is not None:
            return self.encoder.dim + self.basis.width(self.table)
        space = self.projection or self.lift
        kept = self.encoder.dim if self.lift is not None and self.lift.keep else 0
        return self.encoder.dim if space is None else space.dim + kept

    @property
    def max_rows(self) -> int:
        """The maximum rows per site."""
        return MAX_ROWS if self.limits.max_rows is None else self.limits.max_rows

    def __hash__(self) -> int:
        return hash(self.fingerprint)  # worked out once, where the fields would be hashed again for every message

    @property
    def fingerprint(self) -> str:
        """The sha256 of the canonical form, in hexadecimal.

        The canonical form is the line ``ghofl recipe 1`` and a JSON object of every field, with sorted keys, no
        spaces, UTF-8 text and floats written by `float.hex`, so it is the same on every platform.
        """
        if not hasattr(self, "_fingerprint"):
            text = json.dumps(to_canonical(self.to_dict()), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            digest = hashlib.sha256(f"ghofl recipe {SCHEMA}\n{text}".encode()).hexdigest()
            object.__setattr__(self, "_fingerprint", digest)
        return self._fingerprint

    def _facts(self) -> dict[str, object]:
        space = "" if self.dim == self.encoder.dim else f", {self.dim:,} features"
        promise = self.privacy
        noise = (
            ()
            if promise.epsilon is None
            else (f"ε = {promise.epsilon:g} for one {promise.unit}, {promise.noise} noise",)
        )
        asked = (
            *noise,
            *(("secure",) if promise.secure else ()),
            *(("handed out to sites",) if promise.hand_out else ()),
        )
        return {
            "classes": abbreviate(self.classes),
            "encoder": f"{self.encoder.name}, {self.encoder.dim:,} numbers{space}",
            "sends": " ".join(self.statistics) + (f" and a sketch of {self.sketch.dim}" if self.sketch else ""),
            "grid": f"{self.grid.bits} bits at scale {self.grid.scale:g}",
            **({"privacy": ", ".join(asked)} if asked else {}),
            "fingerprint": f"{self.fingerprint[:12]}…",
        }

    def to_dict(self) -> dict[str, Any]:
        """The recipe as plain values, without the fields that are not set."""
        return {"schema": SCHEMA, **to_plain(self)}

    def to_toml(self) -> str:
        """The recipe as a TOML text."""
        return tomli_w.dumps(self.to_dict())

    def save(self, path: str | Path) -> None:
        """Write the recipe to a TOML file."""
        files.write(path, self.to_toml())

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        """A recipe from plain values; unknown keys raise and name the nearest known one."""
        values = dict(values)
        schema = values.pop("schema", SCHEMA)
        _check(
            type(schema) is int and schema == SCHEMA,
            f"this recipe has schema {shorten(repr(schema))} and this ghofl reads schema {SCHEMA}; use the ghofl that wrote it.",
        )
        return build(cls, values, where="")

    @classmethod
    def from_toml(cls, text: str, most: int = toml.MOST_BYTES) -> "Recipe":
        """A recipe from a TOML text of at most `most` characters."""
        try:
            values = toml.parse(text, most)
        except toml.NotTomlError as error:
            raise RecipeError(f"the recipe {error}. 'ghofl recipe' writes a valid one.") from None
        return cls.from_dict(values)

    @classmethod
    def load(cls, path: str | Path) -> "Recipe":
        """A recipe from a TOML file."""
        try:
            return cls.from_dict(toml.read(path))
        except toml.NotTomlError as error:
            raise RecipeError(f"{path} {error}. 'ghofl recipe' writes a valid one.") from None
        except RecipeError as error:
            raise RecipeError(f"{path}: {error}") from None
