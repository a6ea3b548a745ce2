"""A quadratic head that needs the message of a linear one and a small sketch."""

from dataclasses import dataclass
from math import inf

import numpy as np

from ghofl.gaussians import Gaussians
from ghofl.heads.head import Head
from ghofl.heads.lda import LDAOptions, fit_lda
from ghofl.heads.options import HeadOptions, option
from ghofl.heads.qda import fit_quadratic
from ghofl.heads.rda import BLENDED, blend_covariances, default_blend
from ghofl.heads.rules import Linear, Mapped, Summed


@dataclass(frozen=True)
class SketchedQDAOptions(HeadOptions, head="sketched_qda"):
    """The options of RDA in the sketch, and how heavy its tails are."""

    blend: float | None = option(
        None, "λ, the share of the shared covariance", between=(0, 1), auto="from the dimension and the rows per class"
    )
    shrinkage: float | None = option(
        None, "γ, the pull towards a sphere", between=(0, 1), auto="0.05, less when there are many rows"
    )
    dof: float = option(100.0, "ν, the degrees of freedom; 0 for Gaussian tails", between=(0, inf))


def fit_sketched_qda(gaussians: Gaussians, options: SketchedQDAOptions = SketchedQDAOptions()) -> Summed:
    """Class covariances of a k-dimensional public sketch z = Rᵀx; everything else is shared.

    Of all distributions with these moments, in the one of largest entropy x given z is the shared Gaussian, so three
    closed forms add up::

        s_c(x) = LDA_x(x) − LDA_z(z) + RDA_z(z)

    and, as real embeddings have heavier tails than Gaussians, RDA_z is by default the `student` of the same λ and γ
    (``dof=0`` for the Gaussian).

    The message is B and C k(k+1)/2 numbers instead of C d(d+1)/2. Means and shared covariance of z follow from A
    and B.

    Guarantees
    ----------
    With blend 1 and dof 0 the sketch adds nothing and the head is `lda`.
    """
    sketch, of_z = gaussians.sketched().matrix, gaussians.sketched().gaussians
    linear = fit_lda(gaussians)
    amount = of_z.ease_shrinkage(BLENDED) if options.shrinkage is None else options.shrinkage
    linear_z = fit_lda(of_z, LDAOptions(amount))
    blend = default_blend(of_z) if options.blend is None else options.blend
    quadratic_z = fit_quadratic(of_z, blend_covariances(of_z, blend, amount), options.dof)
    # LDA_z is linear in x too: fold it, and its prior, into the weights of LDA_x.
    weights = linear.weights - linear_z.weights @ sketch.T
    present = gaussians.counts > 0
    bias = np.where(present, linear.bias - np.where(present, linear_z.bias, 0.0), -np.inf)
    return Summed((("", Linear(weights, bias)), ("", Mapped(sketch, quadratic_z))))


HEAD = Head(SketchedQDAOptions, fit_sketched_qda, needs=(("B", "Z"),))
