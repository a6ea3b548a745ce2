"""The sections of a recipe, each a frozen record that checks itself."""

import base64
import binascii
import math
from dataclasses import dataclass

import numpy as np

from ghofl.errors import RecipeError
from ghofl.names import NAMES_ARE, is_name
from ghofl.recipe.option import check_ranges
from ghofl.recipe.options import MAX_DIM, GridOptions, LimitOptions, PrivacyOptions, TransformOptions
from ghofl.recipe.schema import check as _check
from ghofl.recipe.schema import coerce
from ghofl.shapes import Int


@dataclass(frozen=True, slots=True)
class Encoder:
    """The encoder of the embeddings: its name, the length of a row, and a fingerprint of weights and preprocessing.

    `views` are what an encoder of images averages over, e.g. ``flip 160,224,288``; the fingerprint covers them.
    """

    dim: int
    name: str = "unnamed"
    fingerprint: str = ""
    views: str = ""

    def __post_init__(self) -> None:
        coerce(self, "encoder.")
        _check(1 <= self.dim <= MAX_DIM, f"encoder.dim is {self.dim}; a row has between 1 and {MAX_DIM} numbers.")
        _check(bool(self.name), "encoder.name is empty; name the encoder, e.g. 'torchvision:mobilenet_v2'.")
        for key in ("name", "fingerprint", "views"):
            _check(is_name(getattr(self, key)), f"encoder.{key} is {getattr(self, key)[:80]!r}; {NAMES_ARE}")


@dataclass(frozen=True, kw_only=True)
class Transform(TransformOptions):
    """What happens to a row before the grid: `x − anchor`, `sign(x)|x|^power`, `x − centre`, then unit length."""

    power: float = 1.0
    centre: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        coerce(self, "transform.")
        check_ranges(self)
        for name in ("anchor", "centre"):
            finite = all(map(math.isfinite, getattr(self, name)))
            _check(finite, f"transform.{name} has an entry that is not finite; write finite numbers.")


@dataclass(frozen=True)
class Grid(GridOptions):
    """The fixed-point grid: `q = clip(rint(x · scale), ±(2^(bits−1) − 1))`."""

    bits: int = 8
    scale: float = 16.0

    def __post_init__(self) -> None:
        coerce(self, "grid.")
        check_ranges(self)

    @property
    def bound(self) -> int:
        """The largest absolute value on the grid."""
        return 2 ** (self.bits - 1) - 1


@dataclass(frozen=True, slots=True)
class Projection:
    """A public map to fewer dimensions: Rademacher signs from `seed`, or a given integer `matrix`.

    `matrix` holds little-endian int16 entries, row-major, in base64; `Projection.of_matrix` writes it.
    `shift` is how many low bits are rounded away to return to the grid (None: the default for the dimension).
    """

    dim: int
    seed: int = 0
    shift: int | None = None
    matrix: str = ""

    def __post_init__(self) -> None:
        coerce(self, "projection.")
        _check(1 <= self.dim <= MAX_DIM, f"projection.dim is {self.dim}; write a number from 1 to {MAX_DIM}.")
        _check_seed("projection", self.seed)
        _check_shift("projection", self.shift)

    @classmethod
    def of_matrix(cls, matrix: Int[np.ndarray, "dim projected"], shift: int | None = None) -> "Projection":
        """A projection by a given matrix of integers within ±32767, e.g. made from the encoder's own weights."""
        _check(bool(np.abs(matrix).max(initial=0) <= 32767), "a projection matrix holds integers within ±32767.")
        packed = base64.b64encode(np.ascontiguousarray(matrix, dtype="<i2").tobytes()).decode()
        return cls(dim=matrix.shape[1], shift=shift, matrix=packed)

    def given_matrix(self, rows: int) -> Int[np.ndarray, "rows projected"] | None:
        """The given matrix for rows of length `rows`, or None when the signs come from the seed."""
        if not self.matrix:
            return None
        try:
            raw = base64.b64decode(self.matrix, validate=True)
        except binascii.Error as error:
            raise RecipeError(
                f"projection.matrix is not base64 ({error}); write it with Projection.of_matrix."
            ) from None
        _check(
            len(raw) == 2 * rows * self.dim,
            f"projection.matrix holds {len(raw)} bytes, and {rows} × {self.dim} int16 entries are {2 * rows * self.dim}; "
            "write it with Projection.of_matrix.",
        )
        return np.frombuffer(raw, dtype="<i2").reshape(rows, self.dim).astype(np.int16)


@dataclass(frozen=True, slots=True)
class Lift:
    """Random features: `relu` of a Rademacher projection to `dim`, usually many more than the encoder has.

    `centred` subtracts the mean of each row's entries before projecting (otherwise the features of non-negative
    embeddings would mostly repeat their sum); `keep` puts the original features in front of the lifted ones.
    """

    dim: int
    seed: int = 0
    shift: int | None = None
    centred: bool = True
    keep: bool = False

    def __post_init__(self) -> None:
        coerce(self, "lift.")
        _check(1 <= self.dim <= MAX_DIM, f"lift.dim is {self.dim}; write a number from 1 to {MAX_DIM}.")
        _check_seed("lift", self.seed)
        _check_shift("lift", self.shift)


@dataclass(frozen=True, slots=True)
class Sketch:
    """A public Rademacher map to `dim` dimensions whose class second moments are sent with A and B of the full space.

    When S is sent too, they follow from it and are not sent again. A `kept` sketch is not a random map but the original
    features in front of a lift with `keep`, so that B of the lifted features and the class covariances of the original
    ones travel in one message.
    """

    dim: int
    seed: int = 0
    kept: bool = False

    def __post_init__(self) -> None:
        coerce(self, "sketch.")
        _check(1 <= self.dim <= MAX_DIM, f"sketch.dim is {self.dim}; write a number from 1 to {MAX_DIM}.")
        _check_seed("sketch", self.seed)


@dataclass(frozen=True, kw_only=True)
class Privacy(PrivacyOptions):
    """What the federation promises about rows: clipping radius, (ε, δ), the unit protected, minimum counts.

    `radius` is the greatest length of a feature row, in the units of the embedding. `min_cohort` is the fewest sites whose
    total is released, and for distributed noise the fewest that keep their noise to themselves. Classes with fewer than
    `min_count` rows are dropped, or counted in the class `merge_into`. When whole clients are protected, a client's moments
    are cut to the length of `client_rows` full rows. With the unit ``person`` at most `person_rows` rows of one person
    count at a site, and a promise is about all of them. `rounding` is the number of low bits left out of second moments.
    With `hand_out` the sites in a total get it, exact as it is, for leave-out: less its own sums, it shows each of them the
    sum of the others. In plain rounds the server checks for each of them that no class of the others has few rows; in
    secure rounds nobody can.
    """

    min_cohort: int = 1

    def __post_init__(self) -> None:
        coerce(self, "privacy.")
        check_ranges(self)
        _check(
            (self.epsilon is None) == (self.delta is None),
            "privacy.epsilon and privacy.delta belong together: write both, or neither for no noise.",
        )
        _check(
            self.epsilon is None or self.radius is not None,
            f"privacy.epsilon = {self.epsilon} needs privacy.radius: the size of the noise follows from the longest row "
            "allowed.",
        )
        _check(
            self.noise != "distributed" or self.secure,
            "privacy.noise = 'distributed' hides shares of noise inside secure aggregation: write secure = true too.",
        )
        self._check_unit()
        self._check_hand_out()
        _check(
            not self.merge_into or self.min_count > 0,
            f"privacy.merge_into = {self.merge_into!r} is for the rows of small classes: write min_count too.",
        )

    def _check_hand_out(self) -> None:
        object.__setattr__(self, "hand_out", self.hand_out or None)  # false and left out are one recipe
        _check(
            not self.hand_out or (self.epsilon is None and not self.min_count),
            "privacy.hand_out gives sites the exact total, and privacy.epsilon or privacy.min_count promise that nobody but the "
            "server sees it; write one of them.",
        )

    def _check_unit(self) -> None:
        _check(
            (self.unit == "client" if self.client_rows else self.epsilon is None or self.unit != "client"),
            "privacy.unit = 'client' and privacy.client_rows belong together: a client's moments are cut to that many "
            "full rows. Write both, or neither to protect single records.",
        )
        _check(
            (self.unit == "person") == (self.person_rows is not None),
            "privacy.unit = 'person' and privacy.person_rows belong together: at most that many rows of one person "
            "count. Write both, or neither to protect single records.",
        )
        _check(
            not self.rounding or self.unit == "record",
            "privacy.rounding is for the unit 'record' only: a client's moments are cut last, which undoes rounding, and "
            "each of a person's rows may be rounded another way. Leave rounding out.",
        )


@dataclass(frozen=True, kw_only=True)
class Limits(LimitOptions):
    """How much one site may contribute: the most rows.

    `max_rows` is one million by default. A message that claims more is refused, and it bounds a site's entries in a
    secure round: the smaller it is, the fewer bits a masked entry takes.
    """

    def __post_init__(self) -> None:
        coerce(self, "limits.")
        check_ranges(self)


def _check_seed(section: str, seed: int) -> None:
    _check(0 <= seed < 2**63, f"{section}.seed is {seed}; write a whole number from 0 to 2^63 − 1.")


def _check_shift(section: str, shift: int | None) -> None:
    _check(
        shift is None or 0 <= shift <= 40, f"{section}.shift is {shift}; write a number from 0 to 40, or leave it out."
    )
