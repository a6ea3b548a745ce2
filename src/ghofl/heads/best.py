"""The strongest head that a total allows, by fixed rules.

The rules depend on what is there (statistics, sketch, lift), on the number of rows and on how many directions they vary
in. They were chosen on 52 tables and sets of vectors and on held-out training rows of CIFAR-10, CIFAR-100, BANKING77 and
CLINC150 (`ghofl.heads.hedge`).
"""

from dataclasses import dataclass

from ghofl.gaussians import Gaussians
from ghofl.moments import Layout
from ghofl.recipe import Recipe

FEW = 5.0  # rows per effective dimension, below which angles with the means help
FEW_VARIANCES = 1.25  # rows per dimension, below which variances alone are not reliable


@dataclass(frozen=True, slots=True)
class Choice:
    """A head, as a spec, and the reason for it."""

    spec: str
    why: str


def best_head(layout: Layout, recipe: Recipe, gaussians: Gaussians | None = None) -> Choice:
    """The strongest head for moments of this layout; without their Gaussians, for many rows.

    >>> from ghofl.recipe import Encoder
    >>> recipe = Recipe(("a", "b"), Encoder(dim=4), ("B",))
    >>> best_head(Layout.of(recipe), recipe).spec
    'lda'
    """
    if recipe.basis is not None and layout.has("B"):
        return Choice("lda_ridge", "LDA and ridge of hinges and cosines")
    is_few = gaussians is not None and recipe.lift is None and _are_few(gaussians)
    if layout.has("B"):
        if is_few:
            part = "hedge" if layout.has("S") else "lda"
            return Choice(f"blend(parts={part}+nearest_mean)", "few rows: covariances, and angles with the means")
        return _of_covariances(layout, recipe)
    if layout.has("D") and not is_few:
        return Choice("nb", "class variances only")
    return Choice("nearest_mean", "few rows: angles with the means" if layout.has("D") else "class means only")


def _of_covariances(layout: Layout, recipe: Recipe) -> Choice:
    if layout.has("S"):
        return Choice("hedge", "LDA, and a share of what class covariances add")
    if recipe.sketch is not None and layout.has("Z"):
        if recipe.sketch.kept:
            return Choice("blend(parts=lda+z.hedge)", "LDA of lifted features, and class covariances of the plain ones")
        return Choice("hedge", "LDA, and a share of what class covariances of a sketch add")
    if recipe.lift is not None:
        return Choice("blend(parts=lda+ridge)", "both linear rules of lifted features")
    return Choice("lda", "the shared covariance")


def _are_few(gaussians: Gaussians) -> bool:
    """Whether rows are too few for a covariance of the directions they vary in."""
    if not gaussians.has_shared_covariance:
        return gaussians.rows < FEW_VARIANCES * gaussians.means.shape[1]
    return gaussians.has_spread and gaussians.rows < FEW * gaussians.effective_dim
