"""The strongest head that a total allows, by fixed rules.

The rules look at what is there (statistics, sketch, lift) and never at data. They were made from accuracies on held-out
training rows of CIFAR-10 and CIFAR-100 (MobileNetV2, square roots of features).
"""

from dataclasses import dataclass

from ghofl.moments import Layout
from ghofl.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Choice:
    """A head, as a spec, and why it."""

    spec: str
    why: str


def best_head(layout: Layout, recipe: Recipe) -> Choice:
    """The strongest head that moments of this layout allow.

    >>> from ghofl.recipe import Encoder
    >>> recipe = Recipe(("a", "b"), Encoder(dim=4), ("B",))
    >>> best_head(Layout.of(recipe), recipe).spec
    'lda'
    """
    if recipe.sketch is not None and recipe.sketch.kept and layout.has("Z"):
        return Choice("blend(parts=lda+z.student)", "lifted features for LDA, class covariances of the plain ones")
    if layout.has("S"):
        return Choice("student", "class covariances, blended with the shared one, under heavy tails")
    if recipe.sketch is not None and layout.has("Z"):
        return Choice("sketched_qda", "the shared covariance and class covariances of a sketch")
    if layout.has("B"):
        lifted = recipe.lift is not None
        return (
            Choice("blend(parts=lda+ridge)", "both linear rules of lifted features")
            if lifted
            else Choice("lda", "the shared covariance")
        )
    if layout.has("D"):
        return Choice("nb", "class variances only")
    return Choice("nearest_mean", "class means only")
