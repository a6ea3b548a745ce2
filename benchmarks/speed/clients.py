"""What a site does: features of embeddings, and the sums of them."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from ratios import Measure
from timing import against

from ghofl import Encoder, Features, Grid, Layout, Lift, Moments, Projection, Recipe, Sketch
from ghofl.features import fit_grid
from speed import described

FEWER = 10  # the loops of the description run on so many times fewer rows


def measures(rng: np.random.Generator) -> Iterator[Measure]:
    """Features and statistics of a site's rows."""
    yield from _statistics(rng)
    yield from _features(rng)


def _statistics(rng: np.random.Generator) -> Iterator[Measure]:
    """A hundred classes of 1,280-dimensional rows: the size of CIFAR-100 under MobileNetV2."""
    x, y = rng.random((50_000, 1280), np.float32), rng.integers(100, size=50_000)
    recipe = Recipe(tuple(map(str, range(100))), Encoder(dim=1280), ("S",), grid=Grid(bits=8))
    q, layout = Features.of(fit_grid(recipe, x)).rows(x)[0], Layout.of(recipe)
    yield against(
        "statistics",
        "S of 50,000 × 1280 rows, 100 classes",
        lambda: Moments.of(q, y, layout),
        "bare float64 products of the rows of each class",
        lambda: _bare_products(q, y),
        repeats=3,
    )
    some = x[: len(x) // FEWER], y[: len(y) // FEWER]
    yield against(
        "statistics_described",
        "S of 50,000 × 1280 rows, 100 classes: a tenth of its time",
        lambda: Moments.of(q, y, layout),
        "the paper's sums of 5,000 rows, a loop over batches and classes",
        lambda: described.client_statistics(*some, 100),
        repeats=3,
        rows=FEWER,
    )
    few, of_few, pooled = q[:20_000], y[:20_000], replace(layout, statistics=("B",))
    yield against(
        "moments_of_b",
        "B of 20,000 × 1280 rows, 100 classes",
        lambda: Moments.of(few, of_few, pooled),
        "one bare float64 product of the rows",
        lambda: _bare_product(few),
        repeats=3,
    )
    diagonal = replace(layout, statistics=("D",))
    yield against(
        "moments_of_d",
        "D of 20,000 × 1280 rows, 100 classes",
        lambda: Moments.of(few, of_few, diagonal),
        "the rows as float64, squared and summed, all in one",
        lambda: np.square(few.astype(np.float64)).sum(axis=0),
        repeats=3,
    )
    sketch = replace(recipe, statistics=("B",), sketch=Sketch(dim=64), grid=Grid(bits=8, scale=100.0))
    through, sketched = Features.of(sketch).sketch, Layout.of(sketch)
    yield against(
        "moments_of_z",
        "B and a sketch of 64 of 20,000 × 1280 rows, 100 classes",
        lambda: Moments.of(few, of_few, sketched, through),
        "one bare float64 product of the rows",
        lambda: _bare_product(few),
        repeats=3,
    )


def _bare_products(q: np.ndarray, y: np.ndarray) -> None:
    """The least that float64 statistics cost: rows sorted by class, one product per class, nothing kept."""
    order = np.argsort(y, kind="stable")
    for part in np.split(q[order].astype(np.float64), np.searchsorted(y[order], np.arange(1, 100))):
        part.T @ part


def _bare_product(q: np.ndarray) -> np.ndarray:
    x = q.astype(np.float64)
    return x.T @ x


def _features(rng: np.random.Generator) -> Iterator[Measure]:
    x = rng.random((8_000, 1280), np.float32)
    plain = Recipe(("a", "b"), Encoder(dim=1280), grid=Grid(bits=8, scale=100.0))
    yield against(
        "features_plain",
        "features of 8,000 × 1280 embeddings",
        lambda: Features.of(plain).rows(x),
        "numpy scales, rounds, clips and casts them in blocks",
        lambda: _on_grid(x),
    )
    for name, space in (("projection", Projection(dim=256)), ("lift", Lift(dim=2048))):
        features = Features.of(fit_grid(replace(plain, **{name: space}), x))
        matrix = np.ones((1280, space.dim), np.float32)
        yield against(
            f"features_{name}",
            f"features of 8,000 × 1280 embeddings, {name} to {space.dim}",
            lambda features=features: features.rows(x),
            "a bare float32 product of that size",
            lambda matrix=matrix: x @ matrix,
        )


def _on_grid(x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape, np.int16)
    for start in range(0, len(x), 4096):
        block = slice(start, start + 4096)
        out[block] = np.clip(np.rint(x[block].astype(np.float64) * 100.0), -127, 127)
    return out
