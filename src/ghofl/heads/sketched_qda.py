"""A quadratic head for the price of a linear one and a small sketch."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from ghofl.errors import HeadError
from ghofl.gaussians import Gaussians
from ghofl.heads.base import Head
from ghofl.heads.lda import LDA
from ghofl.heads.quadratic import RDA, default_blend, quadratic_scores, student_scores
from ghofl.statistics.triangles import apply


@dataclass(frozen=True, eq=False)
class SketchedQDA(Head):
    """Class covariances of a k-dimensional public sketch z = Rᵀx only; everything else shared.

    Of all distributions with these moments, the one of largest entropy keeps x given z as the shared Gaussian, so
    three closed forms add up::

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
    >>> gaussians, of_z = Gaussians.estimate(moments), Gaussians.estimate(moments.of_sketch(sketch))
    >>> SketchedQDA.fit(gaussians, of_z, sketch).predict(np.array([[2.0, 1.0], [7.0, 1.0]]))
    array([0, 1])
    """

    name: ClassVar[str] = "sketched_qda"
    needs: ClassVar[tuple[tuple[str, ...], ...]] = (("B", "Z"),)
    weights: Float[np.ndarray, "classes dim"]
    bias: Float[np.ndarray, " classes"]
    sketch: Int[np.ndarray, "dim k"]
    means: Float[np.ndarray, "classes k"]
    whiteners: Float[np.ndarray, "classes k k"]
    offsets: Float[np.ndarray, " classes"]
    dof: Float[np.ndarray, ""]

    def __post_init__(self) -> None:
        if not 0 <= self.dof < np.inf:
            raise HeadError(f"dof is {self.dof}; it is positive and finite, e.g. 100, or 0 for Gaussian tails.")

    @classmethod
    def fit(  # type: ignore[override]  # the one head of two spaces: rows and their sketch
        cls,
        gaussians: Gaussians,
        of_sketch: Gaussians,
        sketch: Int[np.ndarray, "dim k"],
        blend: float | None = None,
        shrinkage: float = 0.05,
        dof: float = 100.0,
    ) -> "SketchedQDA":
        """The head of the Gaussians of x and of z = Rᵀx; `blend`, `shrinkage` and `dof` are λ, γ and ν in z."""
        blend = default_blend(of_sketch) if blend is None else blend
        linear = LDA.fit(gaussians)
        linear_z = LDA.fit(of_sketch, shrinkage)
        quadratic_z = RDA.fit(of_sketch, blend, shrinkage)
        # LDA_z is linear in x too: fold it, and its prior, into the weights of LDA_x.
        weights = linear.weights - linear_z.weights @ sketch.T
        present = gaussians.counts > 0
        bias = np.where(present, linear.bias - np.where(present, linear_z.bias, 0.0), -np.inf)
        own = (quadratic_z.means, quadratic_z.whiteners, quadratic_z.offsets)
        return cls(weights, bias, sketch, *own, np.asarray(float(dof)))

    def scores(self, x: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n classes"]:
        """Log posteriors up to a term common to all classes."""
        of_z = quadratic_scores if self.dof == 0 else partial(student_scores, dof=float(self.dof))
        quadratic = of_z(apply(x, self.sketch), self.means, self.whiteners, self.offsets)
        return x @ self.weights.T + self.bias + quadratic
