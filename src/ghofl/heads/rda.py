"""The quadratic head between the class covariances and the shared one."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ghofl.gaussians import Gaussians, linalg
from ghofl.heads.head import Head
from ghofl.heads.options import HeadOptions, option
from ghofl.heads.qda import fit_quadratic
from ghofl.heads.rules import Quadratic
from ghofl.shapes import Float

BLENDED = 0.05  # the usual shrinkage of class covariances that are blended with the shared one


@dataclass(frozen=True)
class RDAOptions(HeadOptions, head="rda"):
    """How class covariances are blended with the shared one, and shrunk."""

    blend: float | None = option(
        None, "λ, the share of the shared covariance", between=(0, 1), auto="from the dimension and the rows per class"
    )
    shrinkage: float | None = option(
        None, "γ, the pull towards a sphere", between=(0, 1), auto="0.05, less when there are many rows"
    )


def fit_rda(gaussians: Gaussians, options: RDAOptions = RDAOptions()) -> Quadratic:
    """Regularised discriminant analysis: class covariances blended with the shared one, then shrunk.

    ::

        Σ_c(λ, γ) = shrink((1 − λ) Σ_c + λ Σ_pool, γ)

    (Friedman 1989.) λ = 0 is `qda` and λ = 1 is `lda`, both with shrinkage γ.
    """
    blend = default_blend(gaussians) if options.blend is None else options.blend
    return fit_quadratic(gaussians, blend_covariances(gaussians, blend, options.shrinkage))


def default_blend(gaussians: Gaussians) -> float:
    """λ from the dimension d and the rows per class n::

        λ = 1 − 128/(d + 128) · n/(n + 150)

    Real embeddings are not Gaussian, and a class covariance is less reliable the more dimensions it has and the
    fewer rows it comes from. The two constants were chosen on held-out training rows of CIFAR-10 and CIFAR-100 over
    d = 64 … 1280 and n = 90 … 4500; within a point of the best λ in each of those sixteen settings.
    """
    n = gaussians.rows / gaussians.present
    return 1.0 - 128.0 / (gaussians.means.shape[1] + 128.0) * n / (n + 150.0)


def blend_covariances(
    gaussians: Gaussians, blend: float, shrinkage: float | None
) -> Callable[[int], Float[np.ndarray, "dim dim"]]:
    """The class covariances Σ_c(λ, γ)."""
    pooled, amount = gaussians.pooled(), gaussians.ease_shrinkage(BLENDED) if shrinkage is None else shrinkage
    return lambda c: linalg.shrink((1.0 - blend) * gaussians.by_class(c) + blend * pooled, amount)


HEAD = Head(RDAOptions, fit_rda, needs=(("S",),))
