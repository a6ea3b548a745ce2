"""The strongest recipe that a payload budget allows, by fixed rules.

The rules use statistics, dimension and classes, never data. They come from accuracies on held-out training rows of
CIFAR-10 and CIFAR-100 (MobileNetV2, square roots of features), which are in `EXPECTED`.
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ghofl.errors import RecipeError
from ghofl.heads.best import best_head
from ghofl.moments import Layout
from ghofl.recipe import MAX_DIM, MAX_MATRIX, Encoder, Grid, Lift, Projection, Recipe, Sketch, Table, usual_basis
from ghofl.recipe.options import SITE_ROWS
from ghofl.secure import Ring, RingError
from ghofl.statistics import INT64_MAX, STATISTICS

# Points of accuracy on held-out CIFAR-100 rows: LDA of a projection by its dimension, what a sketch adds by its
# dimension, and what a lift adds by its size relative to the encoder's. Means, or means and variances, are below LDA of
# the same space by the two constants. "public" are principal directions of another set, CIFAR-10, scaled by its
# covariance within classes.
EXPECTED = {
    "lda": ((64, 128, 256, 384, 512, 768, 1280), (48.4, 55.7, 59.9, 62.3, 62.7, 63.4, 64.6)),
    "sketch": ((0, 32, 48, 64, 96, 128, 256, 512, 1280), (0.0, 0.9, 1.1, 1.5, 2.2, 2.6, 3.8, 4.8, 6.2)),
    "public lda": ((32, 64, 128, 256, 512, 1280), (47.1, 55.6, 60.2, 62.8, 63.4, 64.6)),
    "public means": ((32, 64, 128, 256, 512, 1280), (46.9, 55.0, 59.0, 60.8, 61.1, 61.6)),
    "lift": ((0.0, 1.6, 3.2, 6.4, 12.8), (0.0, 0.0, 0.1, 0.3, 0.7)),
}
MEANS_BELOW_LDA, VARIANCES_BELOW_LDA = 14.6, 12.6
PROJECTIONS = (64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 640, 768)
SMALL_PROJECTIONS = (32, 48)  # worth sending where directions are public ones
# Under noise in a public space, B is worth sending from this ε on and up to this many dimensions; at a small ε, sums of
# many classes, which have few rows each, only up to fewer.
B_FROM_EPSILON, LARGEST_NOISY, LARGEST_NOISY_BY_CLASS, MANY_CLASSES, SMALL_EPSILON = 4.0, 256, 128, 50, 2.0
SKETCHES = (0, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512)
LIFTS = (3.2, 6.4)  # times the dimension: 4,096 and 8,192 of 1,280
LIFTED_FROM = (
    64  # lifts of fewer dimensions were not tried; nor is one taken where a site has fewer rows than it has features
)
# A masked entry has room for a million rows per site, and 128 sites in the sum.
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
    rows: int = SITE_ROWS,
    encoder: str = "unnamed",
    *,
    bits: int | None = None,
    seed: int = 0,
    secure: bool = False,
    noisy: bool = False,
    public: bool = False,
    epsilon: float | None = None,
    known: int | None = None,
) -> Proposal:
    """The recipe with the best expected accuracy whose message of a site with `rows` rows fits `budget` bytes.

    `bits` are those of its grid, 8 or 6 unless given, `seed` that of its public matrices. Under `secure` aggregation
    every entry takes as many bytes as the largest. If the total will be `noisy`, class covariances and lifts are
    left out: noise in the covariance of a class is as large as in the shared one, which has the rows of all classes.
    With `public` rows, projections use their directions, which makes small spaces and means alone worth more;
    `epsilon` then limits the size of the space. A lift has at most as many features as a site has rows, or as there are
    rows at all where `known` says how many.

    >>> proposal = propose(5_000_000, tuple(map(str, range(100))), 1280)
    >>> proposal.recipe.sketch.dim, proposal.bytes < 5_000_000
    (96, True)
    """
    grids = [Grid(), Grid(bits=6)] if bits is None else [Grid(bits=bits)]
    starts = (Recipe(classes, Encoder(dim, encoder), grid=grid) for grid in grids)
    candidates = (c for start in starts for c in _candidates(start, seed, public))
    candidates = (c for c in candidates if c.lift is None or c.lift.dim <= min(rows, rows if known is None else known))
    candidates = (c for c in candidates if not noisy or (_is_shared(c) and (not public or _survives_noise(c, epsilon))))
    size_of = _masked_bytes if secure else _bytes
    found = [(_expected(recipe, public), -size_of(recipe, rows), recipe) for recipe in candidates]
    within = [candidate for candidate in found if -candidate[1] <= budget]
    if not within:
        least = min(-size for _, size, _ in found)
        raise RecipeError(
            f"a budget of {budget:,} bytes is too small: {len(classes)} classes need at least {least:,}; raise `budget`."
        )
    _, size, recipe = max(within, key=lambda candidate: candidate[:2])
    return _proposal(recipe, int(-size), budget, rows, secure)


def propose_basis(
    budget: int, classes: tuple[str, ...], table: Table, bits: int, *, seed: int = 0, secure: bool = False
) -> Proposal | None:
    """The recipe with the usual hinges and cosines of a table's columns, which linear heads of one B make the most of.

    None where the schema has no breaks, or does not say that sites have rows for them, or the message is over `budget`.
    """
    basis = usual_basis(table, seed)
    if basis is None:
        return None
    recipe = Recipe(classes, table.encoder, ("B",), grid=Grid(bits=bits), table=table, basis=basis)
    assert table.site_rows is not None
    size = (_masked_bytes if secure else _bytes)(recipe, table.site_rows)
    return _proposal(recipe, int(size), budget, table.site_rows, secure) if size <= budget else None


def _proposal(recipe: Recipe, bytes_: int, budget: int, rows: int, secure: bool) -> Proposal:
    head = best_head(Layout.of(recipe), recipe)
    sent = "in a secure round" if secure else f"for a site of {rows:,} rows of all classes"
    why = f"head {head.spec} from enough rows ({head.why}); about {bytes_:,} bytes {sent}, of {budget:,} allowed"
    return Proposal(recipe, bytes_, why)


def _candidates(start: Recipe, seed: int, public: bool) -> list[Recipe]:
    """Every recipe that is considered, on the grid of `start`."""
    dim = start.encoder.dim
    means = replace(start, statistics=())
    linear = replace(means, statistics=("B",))
    out = [means, replace(means, statistics=("D",)), replace(means, statistics=("S",))]
    dims = [k for k in (*(SMALL_PROJECTIONS if public else ()), *PROJECTIONS) if k < dim]
    if public:
        out += [replace(means, projection=Projection(dim=k, seed=seed)) for k in dims]
    spaces = [linear, *(replace(linear, projection=Projection(dim=k, seed=seed)) for k in dims)]
    largest = STATISTICS["Z"].largest
    for space in (s for s in spaces if s.max_rows * largest(s.grid.bound, s.dim) <= INT64_MAX):
        out += [replace(space, sketch=Sketch(dim=k, seed=seed) if k else None) for k in SKETCHES if k < space.dim]
    sizes = (round(times * dim) for times in LIFTS if LIFTED_FROM <= dim <= MAX_DIM / times)
    for lifted in (size for size in sizes if dim * (dim + size) <= MAX_MATRIX):
        lift, kept = Lift(dim=lifted, seed=seed, keep=True), Sketch(dim=dim, kept=True)
        out.append(replace(linear, lift=lift, sketch=kept))
    return out


def _is_shared(recipe: Recipe) -> bool:
    """Whether second moments are those of all rows together, in a space no larger than the encoder's."""
    return "S" not in recipe.statistics and recipe.sketch is None and recipe.lift is None


def _survives_noise(recipe: Recipe, epsilon: float | None) -> bool:
    """Whether what this recipe sends, in a public space, is still useful under noise."""
    if recipe.dim > LARGEST_NOISY or "D" in recipe.statistics:
        return False
    if epsilon is None or epsilon < SMALL_EPSILON:
        is_small = recipe.dim <= LARGEST_NOISY_BY_CLASS or len(recipe.classes) < MANY_CLASSES
        return recipe.statistics == ("N", "A") and is_small
    return recipe.statistics == ("N", "A") or epsilon >= B_FROM_EPSILON


def _expected(recipe: Recipe, public: bool = False) -> float:
    """Points of expected accuracy, of which only the differences between recipes matter.

    In one space, more statistics are never expected to be worse.
    """
    dim = min(recipe.dim, recipe.encoder.dim)
    coarse = 0.2 if recipe.grid.bits < 8 else 0.0
    if public and recipe.statistics in (("N", "A"), ("N", "A", "D")):  # variances add nothing to the metric
        return _expected_in(dim, "public means") - coarse
    linear = _expected_in(dim, "public lda" if public and recipe.projection is not None else "lda")
    if recipe.statistics == ("N", "A"):
        return linear - MEANS_BELOW_LDA - coarse
    if recipe.statistics == ("N", "A", "D"):
        return linear - VARIANCES_BELOW_LDA - coarse
    second = dim if "S" in recipe.statistics else 0 if recipe.sketch is None else recipe.sketch.dim
    if recipe.sketch is not None and recipe.sketch.kept:
        second = dim
    gain = float(np.interp(second, *EXPECTED["sketch"]))
    times = 0.0 if recipe.lift is None else recipe.lift.dim / recipe.encoder.dim
    return linear + gain + float(np.interp(times, *EXPECTED["lift"])) - coarse


def _expected_in(dim: int, table: str) -> float:
    """Points at a dimension: interpolated in its logarithm, extrapolated below the table, constant above it."""
    dims, points = EXPECTED[table]
    if dim >= dims[0]:
        return float(np.interp(np.log(dim), np.log(dims), points))
    slope = (points[1] - points[0]) / np.log(dims[1] / dims[0])
    return float(points[0] + slope * np.log(dim / dims[0]))


def _bytes(recipe: Recipe, rows: int) -> int:
    """The bytes that a site with rows of every class sends, estimated from the usual size of its sums."""
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
    """The bytes that a site sends in a secure round, where every entry has room for the largest possible sum."""
    layout = Layout.of(recipe)
    is_kept = recipe.sketch is not None and recipe.sketch.kept  # its features are not sums of others
    reach = 1 if is_kept else layout.dim
    largest = max(layout.bound**2, *(record.largest(layout.bound, reach) for record in layout.records))
    try:
        width = Ring.for_sum(MASKED_SITES, MASKED_ROWS * largest).width
    except RingError:
        return np.inf
    return ROUND_BYTES + layout.entries * width


def _width(size: float, signs: int) -> float:
    """Bytes of an entry of about this size, as a mean over chunks whose largest entries are several times larger."""
    widths = [np.ceil((np.log2(spread * size) + signs - 1) / 8.0) for spread in (1.0, 2.5, 6.0, 12.0)]
    return float(np.mean(widths))
