"""A quadratic head that needs the message of a linear one and a small sketch."""

from dataclasses import dataclass
from math import inf

import numpy as np

from ghofl.errors import HeadError
from ghofl.gaussians import Gaussians
from ghofl.heads.base import Head
from ghofl.heads.lda import LDA, LDAOptions
from ghofl.heads.options import HeadOptions, option
from ghofl.heads.quadratic import BLENDED, RDA, RDAOptions, quadratic_scores
from ghofl.shapes import Float, Int
from ghofl.statistics.triangles import apply


@dataclass(frozen=True)
class SketchedQDAOptions(HeadOptions, head="sketched_qda"):
    """The options of RDA in the sketch, and how heavy its tails are."""

    blend: float | None = option(
        None, "λ, the share of the shared covariance", between=(0, 1), auto="from the dimension and the rows per class"
    )
    shrinkage: float | None = option(
        None, "γ, the pull towards a sphere", between=(0, 1), auto="0.05, less where rows abound"
    )
    dof: float = option(100.0, "ν, the degrees of freedom; 0 for Gaussian tails", between=(0, inf))


@dataclass(frozen=True, eq=False, repr=False)
class SketchedQDA(Head):
    """Class covariances of a k-dimensional public sketch z = Rᵀx; everything else is shared.

    Of all distributions with these moments, in the one of largest entropy x given z is the shared Gaussian, so three
    closed forms add up::

        s_c(x) = LDA_x(x) − LDA_z(z) + RDA_z(z)

    and, as real embeddings have heavier tails than Gaussians, RDA_z is by default the `Student` of the same λ and γ
    (``dof=0`` for the Gaussian).

    The message is B and C k(k+1)/2 numbers instead of C d(d+1)/2. Means and shared covariance of z follow from A
    and B.

    Guarantees
    ----------
    With blend 1 and dof 0 the sketch adds nothing and the head is `LDA`.

    Examples
    --------
    >>> from ghofl.moments import Layout, Moments
    >>> x, y = np.array([[0, 1], [1, 0], [8, 0], [9, 1]]), np.array([0, 0, 1, 1])
    >>> sketch = np.array([[1], [-1]])
    >>> moments = Moments.of(x, y, Layout(2, 2, ("B",), sketch=1), sketch)
    >>> gaussians = Gaussians.estimate(moments, sketch=sketch)
    >>> SketchedQDA.fit(gaussians).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """

    name = "sketched_qda"
    needs = (("B", "Z"),)
    Options = SketchedQDAOptions
    weights: Float[np.ndarray, "classes dim"]
    bias: Float[np.ndarray, " classes"]
    sketch: Int[np.ndarray, "dim k"]
    means: Float[np.ndarray, "classes k"]
    whiteners: Float[np.ndarray, "classes k k"]
    offsets: Float[np.ndarray, " classes"]
    dof: Float[np.ndarray, ""]

    def __post_init__(self) -> None:
        if not 0 <= self.dof < np.inf:
            raise HeadError(f"dof is {self.dof}; give a positive finite number, e.g. 100, or 0 for Gaussian tails.")

    @classmethod
    def fit(cls, gaussians: Gaussians, options: SketchedQDAOptions = SketchedQDAOptions()) -> "SketchedQDA":
        """The head of the Gaussians of x and of its sketch z."""
        sketch, of_z = gaussians.sketched().matrix, gaussians.sketched().gaussians
        linear = LDA.fit(gaussians)
        amount = of_z.ease_shrinkage(BLENDED) if options.shrinkage is None else options.shrinkage
        linear_z = LDA.fit(of_z, LDAOptions(amount))
        quadratic_z = RDA.fit(of_z, RDAOptions(options.blend, amount))
        # LDA_z is linear in x too: fold it, and its prior, into the weights of LDA_x.
        weights = linear.weights - linear_z.weights @ sketch.T
        present = gaussians.counts > 0
        bias = np.where(present, linear.bias - np.where(present, linear_z.bias, 0.0), -np.inf)
        own = (quadratic_z.means, quadratic_z.whiteners, quadratic_z.offsets)
        return cls(weights, bias, sketch, *own, np.asarray(float(options.dof)))

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """Log posteriors up to a term common to all classes."""
        linear = x @ self.weights.T + (self.bias + self.offsets)
        return quadratic_scores(apply(x, self.sketch), self.means, self.whiteners, linear, float(self.dof) or np.inf)
