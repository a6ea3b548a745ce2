"""The paper's comparisons that are heads: rules of a total like ghofl's own, given as values where those are named."""

from dataclasses import dataclass

import scipy

from ghofl import Gaussians, Head, HeadSpec
from ghofl.heads import HeadOptions
from ghofl.heads.rules import Linear
from ghofl.heads.spec import split_list

SMALLEST = 1e-12  # the least σ², relative to the variance between classes


@dataclass(frozen=True)
class SphericalOptions(HeadOptions, head="spherical"):
    """No options: the variance follows from the total."""


def fit_spherical(gaussians: Gaussians, options: SphericalOptions = SphericalOptions()) -> Linear:
    """The nearest mean under one variance for all classes and features, with priors.

    ::

        s_c(x) = log π_c − ‖x − μ_c‖² / 2σ²  (up to a term common to all classes)      σ² = tr Σ_pool / d

    The paper's tables after the first call this rule FedCGS; `fit_fedcgs` is the published one.
    """
    variance = float(gaussians.pooled_variances().mean())
    apart = float(gaussians.between().trace()) / len(gaussians.centre)
    # Where no class has two rows that differ, the nearest mean alone decides: σ² → 0, within what floats hold.
    variance = max(variance, SMALLEST * apart) or 1.0
    return Linear.of_means(gaussians.means / variance, gaussians.means, gaussians.log_priors)


@dataclass(frozen=True)
class FedCGSOptions(HeadOptions, head="fedcgs"):
    """No options: the head is as published."""


def fit_fedcgs(gaussians: Gaussians, options: FedCGSOptions = FedCGSOptions()) -> Linear:
    """FedCGS as published: a linear head whose covariance is that of all rows, classes ignored, without shrinkage.

    ::

        w_c = T⁺ μ_c      b_c = log π_c − ½ μ_c·w_c      T = (B − N m mᵀ) / N

    T⁺ is the pseudo-inverse, so constant features are ignored instead of making the fit fail.
    """
    inverse = scipy.linalg.pinvh(gaussians.total_covariance(), check_finite=False)
    return Linear.of_means(gaussians.means @ inverse, gaussians.means, gaussians.log_priors)


SPHERICAL = Head(SphericalOptions, fit_spherical, needs=(("D",), ("B",)))
FEDCGS = Head(FedCGSOptions, fit_fedcgs, needs=(("B",),))
COMPARED = {head.name: head for head in (SPHERICAL, FEDCGS)}


def spec_of(text: str, preset: str = "default") -> HeadSpec:
    """One of ghofl's heads, with options, or one of these by its name."""
    return HeadSpec.of(COMPARED.get(text, text), preset)


def specs_of(text: str, preset: str = "default") -> dict[str, HeadSpec]:
    """Such heads from a list separated by commas, each under the text it is written as."""
    return {part: spec_of(part, preset) for part in split_list(text)}
