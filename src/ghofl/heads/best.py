"""The strongest head that a total allows, by fixed rules.

The rules depend on what is there (statistics, sketch, lift, number of rows) and never on data. They follow from
accuracies on held-out training rows of CIFAR-10 and CIFAR-100 (MobileNetV2, square roots of features), and those for few
rows on CIFAR-10, BANKING77 and digits.
"""

from dataclasses import dataclass

from ghofl.moments import Layout
from ghofl.recipe import Recipe

FEW = 1.25  # rows per dimension, below which covariances alone are not reliable
LEAST = 5  # rows per class, up to which they never are


@dataclass(frozen=True, slots=True)
class Choice:
    """A head, as a spec, and the reason for it."""

    spec: str
    why: str


def best_head(layout: Layout, recipe: Recipe, rows: int | None = None) -> Choice:
    """The strongest head for moments of this layout and number of rows; None stands for many rows.

    >>> from ghofl.recipe import Encoder
    >>> recipe = Recipe(("a", "b"), Encoder(dim=4), ("B",))
    >>> best_head(Layout.of(recipe), recipe).spec
    'lda'
    >>> best_head(Layout.of(recipe), recipe, rows=4).spec
    'blend(parts=lda+nearest_mean)'
    """
    if rows is not None and rows < max(FEW * recipe.dim, 1 + LEAST * len(recipe.classes)) and recipe.lift is None:
        few = _of_few_rows(layout)
        if few is not None:
            return few
    if recipe.sketch is not None and recipe.sketch.kept and layout.has("Z"):
        return Choice("blend(parts=lda+z.student)", "lifted features for LDA, class covariances of the plain ones")
    if layout.has("S"):
        return Choice("student", "class covariances, blended with the shared one, under heavy tails")
    if recipe.sketch is not None and layout.has("Z"):
        return Choice("sketched_qda", "the shared covariance and class covariances of a sketch")
    if layout.has("B"):
        if recipe.lift is not None:
            return Choice("blend(parts=lda+ridge)", "both linear rules of lifted features")
        return Choice("lda", "the shared covariance")
    if layout.has("D"):
        return Choice("nb", "class variances only")
    return Choice("nearest_mean", "class means only")


def _of_few_rows(layout: Layout) -> Choice | None:
    """The head where covariances come from fewer rows than dimensions, so that angles with the means help."""
    if layout.has("S"):
        return Choice("blend(parts=nearest_mean+student)", "few rows: class covariances, and angles with the means")
    if layout.has("B"):
        return Choice("blend(parts=lda+nearest_mean)", "few rows: the shared covariance, and angles with the means")
    return Choice("nearest_mean", "few rows: angles with the means") if layout.has("D") else None
