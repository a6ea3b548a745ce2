"""Rows and recipes of one size for every measure of heads and messages."""

import numpy as np

from ghofl import Encoder, Features, Grid, Layout, Message, Moments, Recipe, Sketch, Total

CLASSES, DIM, ROWS = 20, 512, 12_000


def rows(rng: np.random.Generator, count: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Float rows around the means of their classes, which overlap."""
    y = np.arange(count) % CLASSES
    return (rng.normal(size=(count, DIM)) + 0.2 * rng.normal(size=(CLASSES, DIM))[y]).astype(np.float32), y


def recipe(statistics: tuple[str, ...], sketch: Sketch | None = None) -> Recipe:
    """A recipe of eight bits for such rows."""
    grid = Grid(bits=8, scale=24.0)
    return Recipe(tuple(map(str, range(CLASSES))), Encoder(dim=DIM), statistics, grid=grid, sketch=sketch)


def moments(agreed: Recipe, x: np.ndarray, y: np.ndarray) -> Moments:
    """The moments of rows by a recipe."""
    features, layout = Features.of(agreed), Layout.of(agreed)
    return Moments.of(features.rows(x)[0], y, layout, features.sketch if layout.sketch else None)


def total(agreed: Recipe, x: np.ndarray, y: np.ndarray) -> Total:
    """The total of one site that has all rows."""
    return Total.of([Message.of(moments(agreed, x, y), agreed, "north")], agreed)
