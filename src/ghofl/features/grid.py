"""The grid: the worth of one step, and how many entries of some rows fell outside it."""

import warnings
from dataclasses import dataclass

import numpy as np

from ghofl.errors import ClippingWarning
from ghofl.features.radius import grid_radius
from ghofl.recipe import Grid, Lift, Projection, Recipe

TOLERATED_CLIPPING = 1e-3
SPACES = ("grid", "projection", "lift")  # each has its own grid


@dataclass(frozen=True, slots=True)
class ClipCount:
    """How many of some entries fell outside one grid, and how far the largest reached (1 = the edge of the grid)."""

    entries: int = 0
    clipped: int = 0
    reach: float = 0.0

    def __add__(self, other: "ClipCount") -> "ClipCount":
        return ClipCount(self.entries + other.entries, self.clipped + other.clipped, max(self.reach, other.reach))

    @property
    def share(self) -> float:
        """The clipped share of all entries."""
        return self.clipped / self.entries if self.entries else 0.0


@dataclass(frozen=True, slots=True)
class Clipping:
    """The clipping on the grid, and on the grid of a projection or lift after it.

    `entries`, `clipped`, `share` and `reach` are those of `space`, the one with the larger clipped share.

    Guarantees
    ----------
    ``+`` is associative and commutative, and ``Clipping()`` adds nothing: any order of blocks and sites gives the
    same counts.

    Examples
    --------
    >>> some = Clipping(grid=ClipCount(1000, 2, 1.5)) + Clipping(grid=ClipCount(1000, 0, 0.5), lift=ClipCount(50, 0, 0.9))
    >>> some.space, some.entries, some.clipped, some.share
    ('grid', 2000, 2, 0.001)
    """

    grid: ClipCount = ClipCount()
    projection: ClipCount = ClipCount()
    lift: ClipCount = ClipCount()

    def __add__(self, other: "Clipping") -> "Clipping":
        return Clipping(*(getattr(self, name) + getattr(other, name) for name in SPACES))

    @property
    def space(self) -> str:
        """Where the larger share was clipped: ``grid``, ``projection`` or ``lift``."""

        def how_bad(name: str) -> tuple[float, bool]:
            of_space: ClipCount = getattr(self, name)
            return of_space.share, of_space.entries > 0

        return max(SPACES, key=how_bad)

    @property
    def entries(self) -> int:
        """How many entries went through that space."""
        return self._worst.entries

    @property
    def clipped(self) -> int:
        """How many of them fell outside its grid."""
        return self._worst.clipped

    @property
    def reach(self) -> float:
        """How far the largest of them reached; 1 is the edge of the grid."""
        return self._worst.reach

    @property
    def share(self) -> float:
        """The clipped share of them."""
        return self._worst.share

    @property
    def _worst(self) -> ClipCount:
        return getattr(self, self.space)

    def advice(self, recipe: Recipe) -> str:
        """The setting of the recipe that would clip none of these rows."""
        if self.space == "grid":
            return f"grid.scale = {round_down(recipe.grid.scale / max(self.reach, 1e-300)):g} clips none of these rows"
        space = recipe.projection or recipe.lift
        more = max(1, int(np.ceil(np.log2(max(self.reach, 1.0)))))
        assert space is not None, "only a projected space clips outside the grid"
        return f"{self.space}.shift = {shift_of(space, recipe.encoder.dim) + more} clips none of these rows"

    def warn(self, recipe: Recipe) -> None:
        """Issue a `ClippingWarning` when more than one entry in a thousand was clipped."""
        if self.share > TOLERATED_CLIPPING:
            warnings.warn(
                f"{self.share:.2%} of the entries fell outside the {recipe.grid.bits}-bit {self.space} "
                f"(up to {TOLERATED_CLIPPING:.1%} is harmless); {self.advice(recipe)}.",
                ClippingWarning,
                stacklevel=3,
            )


def shift_of(space: Projection | Lift, dim: int) -> int:
    """The bits rounded away after a projection from `dim` dimensions: those of the recipe, or ⌊½ log₂ dim⌋."""
    return int(np.log2(dim) / 2) if space.shift is None else space.shift


def unit_of(recipe: Recipe) -> float:
    """What one integer step of a feature is worth in the units of the embedding."""
    space, step = recipe.projection or recipe.lift, 1.0 / recipe.grid.scale
    if space is None or (recipe.lift is not None and recipe.lift.keep):
        return step  # kept and lifted features share the grid's step
    # Signs divided by √dim keep the size of entries on average, as the paper's randn(d, k)/√d does.
    return step * 2.0 ** shift_of(space, recipe.encoder.dim) / float(np.sqrt(recipe.encoder.dim))


def radius_of(recipe: Recipe) -> int | None:
    """privacy.radius in steps of the grid, rounded down, or None where the recipe has none."""
    return None if recipe.privacy.radius is None else grid_radius(recipe.privacy.radius, unit_of(recipe))


def unit_scale(grid: Grid, dim: int) -> float:
    """A grid scale for rows of length 1, chosen without rows: the grid ends at eight times the size of an average entry.

    >>> unit_scale(Grid(bits=8), 1280)
    560.0
    """
    return round_down(grid.bound * float(np.sqrt(dim)) / 8.0, digits=2)


def round_down(value: float, digits: int = 3) -> float:
    """A number rounded down to its first few digits."""
    if value <= 0:
        return value
    power = 10.0 ** (digits - 1 - int(np.floor(np.log10(value))))
    return float(np.floor(value * power) / power)
