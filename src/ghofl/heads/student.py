"""The quadratic head with heavy tails."""

from dataclasses import dataclass

from ghofl.gaussians import Gaussians
from ghofl.heads.head import Head
from ghofl.heads.options import HeadOptions, option
from ghofl.heads.qda import fit_quadratic
from ghofl.heads.rda import blend_covariances, default_blend
from ghofl.heads.rules import Quadratic


@dataclass(frozen=True)
class StudentOptions(HeadOptions, head="student"):
    """The options of RDA, and how heavy the tails are."""

    blend: float | None = option(
        None, "λ, the share of the shared covariance", between=(0, 1), auto="as for rda, a little less"
    )
    shrinkage: float | None = option(
        None, "γ, the pull towards a sphere", between=(0, 1), auto="0.05, less when there are many rows"
    )
    dof: float = option(100.0, "ν, the degrees of freedom", above=0)


def fit_student(gaussians: Gaussians, options: StudentOptions = StudentOptions()) -> Quadratic:
    """RDA with heavy tails: a multivariate Student t per class instead of a Gaussian.

    ::

        s_c(x) = log π_c − ½ log|Σ_c(λ, γ)| − ½ (ν + d) log(1 + m_c/ν)      m_c = (x − μ_c)ᵀ Σ_c(λ, γ)⁻¹ (x − μ_c)

    Embeddings lie further from their class mean than Gaussian rows do; the logarithm keeps one extreme feature
    from deciding. ν → ∞ is `rda`.
    """
    # With heavy tails, class covariances can have more weight; chosen as the constants of `default_blend` were.
    usual = max(0.0, 1.0 - 1.75 * (1.0 - default_blend(gaussians)))
    blend = usual if options.blend is None else options.blend
    return fit_quadratic(gaussians, blend_covariances(gaussians, blend, options.shrinkage), options.dof)


HEAD = Head(StudentOptions, fit_student, needs=(("S",),))
