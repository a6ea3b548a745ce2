"""The whole story in a few lines, with loops and nothing fast: what the rest of the package does, to read first.

Each function is one stage, and `story` calls them in order. The tests compare it with the real package: the same total
to the bit, the same scores up to rounding. It knows only the grid and one matrix of second moments per class.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from ghofl.recipe import Recipe
from ghofl.shapes import Float, Int64

Sums = tuple[Int64[np.ndarray, " classes"], Int64[np.ndarray, "classes dim"], Int64[np.ndarray, "classes dim dim"]]


def story(
    recipe: Recipe, sites: Iterable[tuple[np.ndarray, Sequence[str]]], new: np.ndarray, shrinkage: float = 0.1
) -> list[str]:
    """The class names of new embeddings, from the embeddings and labels of some sites, by linear discriminants."""
    messages = [message(recipe, x, labels) for x, labels in sites]  # at each site
    found = scores(total(messages), integers(recipe, new), shrinkage)  # at the server, and wherever rows are new
    return [recipe.classes[c] for c in found.argmax(axis=1)]


def integers(recipe: Recipe, x: Float[np.ndarray, "n dim"]) -> Int64[np.ndarray, "n dim"]:
    """Embeddings as small whole numbers on the public grid."""
    steps = np.rint(x * recipe.grid.scale)
    return np.clip(steps, -recipe.grid.bound, recipe.grid.bound).astype(np.int64)


def message(recipe: Recipe, x: Float[np.ndarray, "n dim"], labels: Sequence[str]) -> Sums:
    """What one site sends, once: per class the number of rows, their sum, and the sum of their squares and products."""
    classes, dim = len(recipe.classes), recipe.dim
    n, a, s = np.zeros(classes, int), np.zeros((classes, dim), int), np.zeros((classes, dim, dim), int)
    for q, label in zip(integers(recipe, x), labels, strict=True):
        c = recipe.classes.index(label)
        n[c] += 1
        a[c] += q
        s[c] += np.outer(q, q)
    return n, a, s


def total(messages: Sequence[Sums]) -> Sums:
    """The sums over the rows of all sites: the server needs nothing else, and sees no row."""
    n, a, s = (np.sum(parts, axis=0) for parts in zip(*messages, strict=True))
    return n, a, s


def scores(sums: Sums, x: Int64[np.ndarray, "n dim"], shrinkage: float) -> Float[np.ndarray, "n classes"]:
    """How well each class explains each row: Gaussians with one covariance for all classes."""
    n, a, s = sums
    means = a / n[:, None]
    scatter = sum(s_c - n_c * np.outer(m, m) for s_c, n_c, m in zip(s, n, means, strict=True))
    covariance = scatter / (n.sum() - len(n))
    sphere = np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    weights = np.linalg.solve((1 - shrinkage) * covariance + shrinkage * sphere, means.T)
    return x @ weights + np.log(n / n.sum()) - 0.5 * np.einsum("cd,dc->c", means, weights)
