"""What a recipe's [privacy] section does to moments, at sites and at the server.

::

    at a site      moments → cut to client_rows (unit client) → cut to limits.max_rows (with noise) → rounding
                           → noise: all of it (local) or a share of it (distributed)
    at the server  total   → noise (central) → minimum counts

`Features` has already clipped rows to the radius. What leaves a site, and a total of it, keeps its units: after rounding,
entries are multiples of 2^rounding.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import ceil
from types import MappingProxyType

import numpy as np

from ghofl.features import Features, radius_of
from ghofl.moments import Layout, Moments
from ghofl.privacy.bounds import clip_vector, record_bounds, sketch_norm
from ghofl.privacy.counts import MinCount, apply_min_count
from ghofl.privacy.noise import NoiseStream, reach
from ghofl.privacy.plan import NoisePlan, add_noise, noise_plan
from ghofl.privacy.rounding import restore, round_moments
from ghofl.recipe import Recipe
from ghofl.shapes import Int64

LARGEST = 2**62  # an entry before noise: noise of at most 2^50 per step then never leaves the 64-bit integers


def shifts_of(recipe: Recipe) -> dict[str, int]:
    """The low bits to leave out of each block: privacy.rounding for second moments, none for the others."""
    shift = recipe.privacy.rounding or 0
    return {record.name: shift for record in Layout.of(recipe).records if record.is_rounded} if shift else {}


@lru_cache(maxsize=16)
def plan_of(recipe: Recipe) -> NoisePlan | None:
    """The noise that the recipe promises, or None."""
    if recipe.privacy.epsilon is None or (radius := radius_of(recipe)) is None:
        return None
    layout = Layout.of(recipe)
    return noise_plan(
        layout, radius, recipe.privacy, sketch_norm=_norm_of_sketch(recipe), shifts=shifts_of(recipe) or None
    )


def protect(moments: Moments, recipe: Recipe, stream: NoiseStream | None = None) -> Moments:
    """A site's moments as they leave it: cut, rounded and with the site's noise, as far as the recipe asks for it.

    Examples
    --------
    >>> from ghofl.recipe import Encoder, Privacy
    >>> recipe = Recipe(("a", "b"), Encoder(dim=1), statistics=("D",), privacy=Privacy(rounding=4))
    >>> moments = Moments.of(np.array([[5], [9]]), np.array([0, 1]), Layout.of(recipe))
    >>> protect(moments, recipe).squares.ravel()
    array([32, 80])
    """
    plan, moments = plan_of(recipe), before_noise(moments, recipe)
    return moments if plan is None or plan.mechanism == "central" else draw_noise(moments, recipe, stream)


def before_noise(moments: Moments, recipe: Recipe) -> Moments:
    """A site's moments as they leave it, except for its noise: cut and rounded, as far as the recipe asks for it.

    Under an epsilon, entries beyond what limits.max_rows rows can add up to are cut to that instead of being refused: a
    refusal would be an answer without noise about the number of rows. Cutting each entry to a fixed range brings two
    vectors no further apart, so the sensitivity stays the same.
    """
    plan, shifts = plan_of(recipe), shifts_of(recipe)
    if plan is not None and plan.limit is not None:
        moments = clip_vector(moments, plan.limit, plan.scales)
    if plan is not None:
        most = {name: min(recipe.max_rows * single, LARGEST) for name, single in _entries_of_one_row(recipe).items()}
        blocks = {name: np.clip(block, -most[name], most[name]) for name, block in moments.blocks.items()}
        moments = Moments(moments.layout, blocks)
    return restore(round_moments(moments, shifts), shifts)


def draw_noise(moments: Moments, recipe: Recipe, stream: NoiseStream | None = None) -> Moments:
    """Moments plus one draw of the recipe's noise."""
    plan, shifts = plan_of(recipe), shifts_of(recipe)
    assert plan is not None, "noise is drawn for recipes that have an epsilon"
    return restore(add_noise(round_moments(moments, shifts), plan, stream), shifts)


def without_small_classes(moments: Moments, recipe: Recipe) -> tuple[Moments, MinCount]:
    """A total after the recipe's minimum count, and what that reveals."""
    into = recipe.privacy.merge_into
    return apply_min_count(moments, recipe.privacy.min_count, recipe.classes.index(into) if into else None)


def as_vector(moments: Moments, recipe: Recipe) -> Int64[np.ndarray, " entries"]:
    """What leaves a site as one vector of integers, in steps of the rounding, for secure aggregation."""
    coarse = round_moments(moments, shifts_of(recipe))
    return np.concatenate([block.ravel() for block in coarse.blocks.values()])


def from_vector(vector: Int64[np.ndarray, " entries"], recipe: Recipe) -> Moments:
    """The moments in a vector of `as_vector`, or in a sum of such vectors."""
    layout = Layout.of(recipe)
    ends = np.cumsum([int(np.prod(shape)) for shape in layout.shapes.values()])
    parts = np.split(vector, ends[:-1])
    blocks = {name: part.reshape(layout.shapes[name]) for name, part in zip(layout.shapes, parts, strict=True)}
    return restore(Moments(layout, blocks), shifts_of(recipe))


def entry_bound(recipe: Recipe) -> int:
    """The largest absolute entry that the vector of a site may have in a secure round, noise included.

    It follows from the recipe alone (limits.max_rows, grid, radius, noise), so that everyone computes it and nobody
    chooses it. It is rounded up to a power of two, so that the last digits of a platform do not matter. Noise is
    unbounded and exceeds its part with probability 2⁻¹²⁸.

    >>> from ghofl.recipe import Encoder, Limits
    >>> entry_bound(Recipe(("a", "b"), Encoder(dim=4), limits=Limits(max_rows=10))), 10 * 127**2
    (262144, 161290)
    """
    layout, plan, shifts = Layout.of(recipe), plan_of(recipe), shifts_of(recipe)
    sites_add_noise = plan is not None and plan.mechanism != "central"
    largest = 0
    for name, single in _entries_of_one_row(recipe).items():
        coarse = (recipe.max_rows * single) // 2 ** shifts.get(name, 0) + (1 if name in shifts else 0)
        noise = reach(plan.parameter(name), layout.entries) if sites_add_noise and plan is not None else 0
        largest = max(largest, coarse + noise)
    return 1 << (largest - 1).bit_length()


@lru_cache(maxsize=64)
def allowances(recipe: Recipe, messages: int, is_released: bool = False) -> Mapping[str, int]:
    """How far entries of a message or total may be from those of exact moments, by block.

    It is half a step per message for rounding, and one for a client that was cut; for noise, what it exceeds with
    probability 2⁻¹²⁸; and in a released total, for B and whatever else is not stored per class, the rows of dropped
    classes.
    """
    layout, plan, shifts = Layout.of(recipe), plan_of(recipe), shifts_of(recipe)
    out = {name: messages * 2 ** shifts[name] // 2 if name in shifts else 0 for name in layout.shapes}
    if plan is not None and plan.limit is not None:
        out = {name: value + messages for name, value in out.items()}
    if plan is not None and (plan.mechanism != "central" or is_released):
        for name in out:
            out[name] += 2 ** shifts.get(name, 0) * reach(plan.deviation(name, messages), layout.entries)
    for record in layout.records if is_released else ():
        if not record.is_per_class:
            out[record.name] += record.largest(layout.bound, layout.dim) * recipe.privacy.min_count * layout.classes
    return MappingProxyType(out)


def _entries_of_one_row(recipe: Recipe) -> dict[str, int]:
    """The largest entry that one row adds to each block."""
    layout, radius = Layout.of(recipe), radius_of(recipe)
    bounds = {record.name: record.largest(layout.bound, layout.dim) for record in layout.records}
    if radius is None:
        return bounds
    lengths = record_bounds(layout, radius, _norm_of_sketch(recipe))
    return {name: min(bounds[name], ceil(length)) for name, length in lengths.items()}


@lru_cache(maxsize=16)
def _norm_of_sketch(recipe: Recipe) -> float | None:
    if not Layout.of(recipe).sketch:
        return None
    matrix = Features.of(recipe).sketch
    assert matrix is not None
    return sketch_norm(matrix)
