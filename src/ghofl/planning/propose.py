"""The strongest recipe that a payload budget allows, by fixed rules.

The rules look at what is there (statistics, dimension, classes) and never at data. They were made from accuracies on
held-out training rows of CIFAR-10 and CIFAR-100 (MobileNetV2, square roots of features), which `EXPECTED` keeps.
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ghofl.errors import RecipeError
from ghofl.heads.best import best_head
from ghofl.moments import Layout
from ghofl.recipe import MAX_DIM, MAX_MATRIX, Encoder, Grid, Lift, Projection, Recipe, Sketch, Transform
from ghofl.secure import Ring, RingError

# Points of accuracy on held-out CIFAR-100 rows: LDA of a projection by dimension, what a sketch adds to it, and what a
# lift adds by how many times the dimension it has. Means, or means and variances, are so far below LDA of their space.
EXPECTED = {
    "lda": ((64, 128, 256, 384, 512, 768, 1280), (48.4, 55.7, 59.9, 62.3, 62.7, 63.4, 64.6)),
    "sketch": ((0, 32, 48, 64, 96, 128, 256, 512, 1280), (0.0, 0.9, 1.1, 1.5, 2.2, 2.6, 3.8, 4.8, 6.2)),
    "lift": ((0.0, 1.6, 3.2, 6.4, 12.8), (0.0, 0.0, 0.1, 0.3, 0.7)),
}
MEANS_BELOW_LDA, VARIANCES_BELOW_LDA = 14.6, 12.6
PROJECTIONS = (64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 640, 768)
SKETCHES = (0, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512)
LIFTS = (3.2, 6.4)  # times the dimension: 4,096 and 8,192 of 1,280
LIFTED_FROM = 64  # random features of fewer numbers were not tried
# What a secure round reserves room for in an entry: a million rows per site, and 128 sites in the sum.
MASKED_ROWS, MASKED_SITES = 10**6, 128
ROUND_BYTES = 8_000  # keys and shares for some twenty neighbours


@dataclass(frozen=True, slots=True)
class Proposal:
    """A recipe for a payload budget, the bytes a site is expected to send, and why."""

    recipe: Recipe
    bytes: int
    why: str


def propose(
    budget: int,
    classes: tuple[str, ...],
    dim: int,
    rows: int = 5000,
    encoder: str = "unnamed",
    *,
    bits: int | None = None,
    seed: int = 0,
    secure: bool = False,
    noisy: bool = False,
) -> Proposal:
    """The recipe with the best expected accuracy whose message of a site with `rows` rows fits `budget` bytes.

    `bits` are those of its grid, 8 or 6 unless given, `seed` that of its public matrices. Under `secure` aggregation
    every entry takes the room of the largest. Where the total is going to be `noisy`, class covariances and lifts are
    left out: noise in the covariance of a class is as large as in the shared one, which has the rows of all classes.

    >>> proposal = propose(5_000_000, tuple(map(str, range(100))), 1280)
    >>> proposal.recipe.sketch.dim, proposal.bytes < 5_000_000
    (96, True)
    """
    grids = [Grid(), Grid(bits=6)] if bits is None else [Grid(bits=bits)]
    candidates = (c for grid in grids for c in _candidates(Recipe(classes, Encoder(dim, encoder), grid=grid), seed))
    candidates = (c for c in candidates if not noisy or _is_shared(c))
    size_of = _masked_bytes if secure else _bytes
    found = [(_expected(recipe), -size_of(recipe, rows), recipe) for recipe in candidates]
    within = [candidate for candidate in found if -candidate[1] <= budget]
    if not within:
        least = min(-size for _, size, _ in found)
        raise RecipeError(f"a budget of {budget:,} bytes is too small: {len(classes)} classes need at least {least:,}.")
    _, size, recipe = max(within, key=lambda candidate: candidate[:2])
    head = best_head(Layout.of(recipe), recipe)
    bytes_ = int(-size)
    sent = "in a secure round" if secure else f"for a site of {rows:,} rows of all classes"
    why = f"head {head.spec} ({head.why}); about {bytes_:,} bytes {sent}, of {budget:,} allowed"
    return Proposal(recipe, bytes_, why)


def _candidates(start: Recipe, seed: int) -> list[Recipe]:
    """Every recipe that is weighed, on the grid of `start`."""
    dim = start.encoder.dim
    plain = replace(start, statistics=(), transform=Transform(power=0.5))
    linear = replace(plain, statistics=("B",))
    out = [plain, replace(plain, statistics=("D",)), replace(plain, statistics=("S",))]
    spaces = [linear, *(replace(linear, projection=Projection(dim=k, seed=seed)) for k in PROJECTIONS if k < dim)]
    for space in spaces:
        out += [replace(space, sketch=Sketch(dim=k, seed=seed) if k else None) for k in SKETCHES if k < space.dim]
    sizes = (round(times * dim) for times in LIFTS if LIFTED_FROM <= dim <= MAX_DIM / times)
    for lifted in (size for size in sizes if dim * (dim + size) <= MAX_MATRIX):
        lift, kept = Lift(dim=lifted, seed=seed, keep=True), Sketch(dim=dim, kept=True)
        out.append(replace(linear, lift=lift, sketch=kept))
    return out


def _is_shared(recipe: Recipe) -> bool:
    """Whether second moments are those of all rows together, in a space no larger than the encoder's."""
    return "S" not in recipe.statistics and recipe.sketch is None and recipe.lift is None


def _expected(recipe: Recipe) -> float:
    """Points of expected accuracy; differences between recipes are what counts.

    In one space, more statistics are never expected to be worse.
    """
    dim = min(recipe.dim, recipe.encoder.dim)
    coarse = 0.2 if recipe.grid.bits < 8 else 0.0
    if recipe.statistics == ("N", "A"):
        return _expected_of_lda(dim) - MEANS_BELOW_LDA - coarse
    if recipe.statistics == ("N", "A", "D"):
        return _expected_of_lda(dim) - VARIANCES_BELOW_LDA - coarse
    second = dim if "S" in recipe.statistics else 0 if recipe.sketch is None else recipe.sketch.dim
    if recipe.sketch is not None and recipe.sketch.kept:
        second = dim
    gain = float(np.interp(second, *EXPECTED["sketch"]))
    times = 0.0 if recipe.lift is None else recipe.lift.dim / recipe.encoder.dim
    return _expected_of_lda(dim) + gain + float(np.interp(times, *EXPECTED["lift"])) - coarse


def _expected_of_lda(dim: int) -> float:
    """Between the measured dimensions and below them by the logarithm of the dimension; never more than the largest."""
    dims, points = EXPECTED["lda"]
    if dim >= dims[0]:
        return float(np.interp(np.log(dim), np.log(dims), points))
    slope = (points[1] - points[0]) / np.log(dims[1] / dims[0])
    return float(points[0] + slope * np.log(dim / dims[0]))


def _bytes(recipe: Recipe, rows: int) -> int:
    """What a site with rows of every class sends: whole bytes for entries of the size that sums of this grid reach."""
    layout = Layout.of(recipe)
    typical = recipe.grid.bound / 5.0  # the root mean square of an entry that fills three quarters of the grid at most
    per_class = max(1.0, rows / layout.classes)
    spread = np.sqrt(layout.dim) if recipe.sketch is not None and not recipe.sketch.kept else 1.0
    sizes = 0.0
    for record in layout.records:
        added, feature = per_class if record.is_per_class else rows, typical * (spread if record.is_sketched else 1.0)
        width = _width(added * feature**record.power, signs=1 if record.is_unsigned else 2)
        sizes += prod(layout.shapes[record.name]) * (width + 1 / 256)
    spare = 1.05 if recipe.projection is None else 1.1  # projected entries are less even, and more chunks stand out
    return 2000 + int(spare * sizes)


def _masked_bytes(recipe: Recipe, rows: int) -> float:
    """What a site sends in a secure round: every entry in the whole bytes that the largest could need in a sum."""
    layout = Layout.of(recipe)
    is_kept = recipe.sketch is not None and recipe.sketch.kept  # its features are not sums of others
    reach = 1 if is_kept else layout.dim
    largest = max(layout.bound**2, *(record.largest(layout.bound, reach) for record in layout.records))
    try:
        width = Ring.holding(MASKED_SITES, MASKED_ROWS * largest).width
    except RingError:
        return np.inf
    return ROUND_BYTES + layout.entries * width


def _width(size: float, signs: int) -> float:
    """Bytes of a signed entry of about this size: whole ones, averaged over chunks that are larger than most."""
    widths = [np.ceil((np.log2(spread * size) + signs - 1) / 8.0) for spread in (1.0, 2.5, 6.0, 12.0)]
    return float(np.mean(widths))
