"""The file of a head: safetensors with a sealed header, as plain values that no head has to be known for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ghofl import files
from ghofl.errors import MessageError, RecipeError
from ghofl.files import FileBytes
from ghofl.names import is_hex, shorten
from ghofl.privacy import Guarantee
from ghofl.recipe import Recipe
from ghofl.wire.container import load_arrays
from ghofl.wire.envelope import Tensor, check_fingerprint, check_seal, safetensors_header, seal, write_sealed
from ghofl.wire.roster import guarantee_in

MAX_HEADER = 256 * 2**20
FIELDS = {
    "schema", "kind", "sha256", "head", "rule", "options", "sites", "rows", "recipe", "recipe_toml", "guarantee", "revealed",
    "temperature",
}  # fmt: skip
NAME = re.compile("[a-z_]{1,40}")  # of a head
OPTIONAL = {"calibration", "thresholds", "personal", "total_sha256"}


@dataclass(frozen=True, slots=True, eq=False)
class HeadFile:
    """What the file of a head says: the head by its name, the form of its rule, its arrays, and all that is recorded of it.

    `calibration` are the header's fields about probabilities, which like `rule` and `thresholds` are whoever uses them to check.
    """

    head: str
    rule: Any
    arrays: Mapping[str, np.ndarray] = field(repr=False)
    recipe: Recipe
    options: dict[str, Any]
    sites: int
    rows: int
    guarantee: Guarantee | None
    revealed: str
    calibration: Mapping[str, Any]
    thresholds: Any
    personal: str
    total: str = ""

    def to_bytes(self) -> bytes:
        """The bytes of the file."""
        return seal(self._tensors(), self._header())

    def write(self, path: str | Path) -> None:
        """Write the same bytes to a file, a piece at a time where they are more than memory; a personal head for its owner."""
        mode = files.PRIVATE if self.personal else 0o666
        with files.open_to_replace(path, mode) as file:
            write_sealed(file, self._tensors(), self._header())

    def _tensors(self) -> dict[str, Tensor]:
        return {name: Tensor.of(array) for name, array in self.arrays.items()}

    def _header(self) -> dict[str, Any]:
        return {
            "kind": "head", "head": self.head, "rule": self.rule, "options": self.options,
            "sites": self.sites, "rows": self.rows,
            "recipe": self.recipe.fingerprint, "recipe_toml": self.recipe.to_toml(),
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "revealed": self.revealed, **self.calibration,
            **({"thresholds": self.thresholds} if self.thresholds else {}),
            **({"personal": self.personal} if self.personal else {}),
            **({"total_sha256": self.total} if self.total else {}),
        }  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes | FileBytes) -> "HeadFile":
        """What some bytes say, in memory or in a file; raises `MessageError` where they are not the file of a head."""
        header = safetensors_header(data, "head", MAX_HEADER)
        check_seal(header, data)
        if set(header) - OPTIONAL != FIELDS:
            raise MessageError(
                f"the head file has the fields {shorten(sorted(header), 400)}; expected {sorted(FIELDS)}, and perhaps "
                f"{sorted(OPTIONAL)}. Make the head again with 'ghofl head'."
            )
        try:
            recipe = Recipe.from_toml(str(header["recipe_toml"]))
            check_fingerprint(header, recipe)
        except RecipeError as error:
            raise damage(error) from None
        arrays = load_arrays(data, MAX_HEADER)
        head, options, sites, rows = header["head"], header["options"], header["sites"], header["rows"]
        total = header.get("total_sha256", "")
        is_known = (total == "" or is_hex(total, 64)) and isinstance(head, str) and NAME.fullmatch(head)
        if not isinstance(options, dict) or type(sites) is not int or type(rows) is not int or not is_known:
            got = shorten(f"head {head!r}, options {options!r}, sites {sites!r}, rows {rows!r}, total {total!r}", 120)
            raise MessageError(f"the head file's metadata is damaged ({got}); make the head again with 'ghofl head'.")
        guarantee, personal = guarantee_in(header, recipe), shorten(header.get("personal", ""), 300)
        if personal and guarantee is not None:
            raise MessageError("the head is one site's own and promises an epsilon, which it cannot; make it again.")
        calibration = {name: header[name] for name in ("temperature", "calibration") if name in header}
        return cls(
            head, header["rule"], arrays, recipe, options, sites, rows, guarantee, str(header["revealed"]),
            calibration, header.get("thresholds", {}), personal, total,
        )  # fmt: skip

    @classmethod
    def read(cls, path: str | Path) -> "HeadFile":
        """What a file says; arrays that are too large for memory stay in it, so leave it in its place."""
        with FileBytes(path) as data:
            return cls.from_bytes(data)


def damage(error: Exception) -> MessageError:
    """The error to raise where something in the file of a head is not what it should be."""
    why = shorten(error, 300).rstrip(".")
    return MessageError(f"the head file is damaged: {why}; make the head again with 'ghofl head'.")
