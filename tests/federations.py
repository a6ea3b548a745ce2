"""Small federations and strategies that many tests draw from."""

import numpy as np
from hypothesis import strategies as st

from ghofl import Encoder, Features, Gaussians, Grid, Layout, Message, Moments, Recipe, Sketch, Total

# For the environment of a process in which large arrays come and go. An allocator that gives each back to the system at
# once gets it back as pages that are cleared again, for a fifth of the time.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}

STATISTICS = [(), ("D",), ("B",), ("D", "B"), ("S",)]


def blobs(rng, rows=300, classes=4, dim=6, spread=3.0):
    """Gaussian blobs with unequal covariances, as float rows and class numbers."""
    y = rng.integers(classes, size=rows)
    centres = spread * rng.normal(size=(classes, dim))
    mixing = rng.normal(size=(classes, dim, dim)) / np.sqrt(dim) + np.eye(dim)
    x = centres[y] + np.einsum("nd,nde->ne", rng.normal(size=(rows, dim)), mixing[y])
    return x, y


def recipe_of(dim=6, classes=4, statistics=("S",), bits=10, scale=32.0, **parts) -> Recipe:
    return Recipe(
        classes=tuple(f"class {c}" for c in range(classes)),
        encoder=Encoder(dim=dim),
        statistics=statistics,
        grid=Grid(bits=bits, scale=scale),
        **parts,
    )


def moments_of(recipe: Recipe, x, y) -> Moments:
    features, layout = Features.of(recipe), Layout.of(recipe)
    return Moments.of(features.rows(x)[0], y, layout, features.sketch if layout.sketch else None)


def total_of(recipe: Recipe, x, y, sites=1) -> Total:
    parts = np.array_split(np.arange(len(y)), sites)
    return Total.of(
        (Message.of(moments_of(recipe, x[p], y[p]), recipe, f"site-{i}") for i, p in enumerate(parts)), recipe
    )


def gaussians_of(recipe: Recipe, x, y) -> Gaussians:
    return Gaussians.estimate(moments_of(recipe, x, y), Features.of(recipe).unit)


def integer_rows(rng, layout: Layout, rows: int):
    return rng.integers(-layout.bound, layout.bound + 1, size=(rows, layout.dim)), rng.integers(
        layout.classes, size=rows
    )


@st.composite
def layouts(draw, sketches=False):
    dim = draw(st.integers(2, 9))
    statistics = draw(st.sampled_from(STATISTICS))
    sketch = draw(st.integers(0, dim - 1)) if sketches and "B" in statistics else 0
    bound = draw(st.sampled_from([1, 7, 127, 32767]))
    return Layout(draw(st.integers(2, 5)), dim, statistics, sketch, bound)


@st.composite
def split_datasets(draw):
    """A layout with sketch matrix, integer rows, labels, and a cut of the rows into parts in a shuffled order."""
    layout = draw(layouts(sketches=True))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x, y = integer_rows(rng, layout, draw(st.integers(0, 40)))
    sketch = rng.choice([-1, 1], size=(layout.dim, layout.sketch)) if layout.sketch else None
    owner = rng.integers(draw(st.integers(1, 6)), size=len(y))
    parts = [np.flatnonzero(owner == p) for p in rng.permutation(6)]
    return layout, sketch, x, y, parts


def sketched_recipe(**overrides) -> Recipe:
    return recipe_of(statistics=("B",), sketch=Sketch(dim=3), **overrides)
