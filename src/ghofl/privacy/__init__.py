"""Bounding what leaks: clip, sensitivity, noise, `Guarantee`, repair, minimum counts, rounding.

::

    rows      →  clip_rows            no row is longer than the radius
    radius    →  sensitivity          so no record moves the moments by more than this
    budget    →  noise_plan           so this much noise, block by block, keeps (ε, δ)
    moments   →  add_noise            on the total (central), in shares (distributed), or on every message (local)
    plan      →  Guarantee            what is promised, to whom, and on what it rests
    total     →  apply_min_count      small classes are dropped or merged
    total     →  repair               counts, sums and covariances that some rows could have

`release` does all of this according to a recipe.
"""

from ghofl.features.radius import clip_rows, grid_radius
from ghofl.privacy.bounds import (
    Sensitivity,
    clip_vector,
    length,
    record_bounds,
    sensitivity,
    sketch_norm,
)
from ghofl.privacy.counts import MinCount, SiteWarning, apply_min_count, site_warning
from ghofl.privacy.errors import CompositionError, PrivacyError
from ghofl.privacy.guarantee import Guarantee, compose, delta_of, epsilon_of, sigma_for
from ghofl.privacy.lattice import lattice_sigma, share_sigma, slack
from ghofl.privacy.noise import NoiseStream, discrete_gaussian, reach
from ghofl.privacy.plan import NoisePlan, add_noise, noise_plan
from ghofl.privacy.release import (
    allowances,
    as_vector,
    before_noise,
    draw_noise,
    entry_bound,
    from_vector,
    plan_of,
    protect,
    shifts_of,
    without_small_classes,
)
from ghofl.privacy.repair import diagonal_shrinkage, noise_shrinkage, repair
from ghofl.privacy.rounding import restore, round_moments

__all__ = [  # noqa: RUF022 in story order
    "grid_radius",
    "clip_rows",
    "clip_vector",
    "sketch_norm",
    "record_bounds",
    "length",
    "Sensitivity",
    "sensitivity",
    "sigma_for",
    "epsilon_of",
    "delta_of",
    "lattice_sigma",
    "share_sigma",
    "slack",
    "NoisePlan",
    "noise_plan",
    "NoiseStream",
    "discrete_gaussian",
    "reach",
    "add_noise",
    "Guarantee",
    "compose",
    "round_moments",
    "restore",
    "site_warning",
    "SiteWarning",
    "apply_min_count",
    "MinCount",
    "plan_of",
    "shifts_of",
    "protect",
    "draw_noise",
    "without_small_classes",
    "allowances",
    "before_noise",
    "entry_bound",
    "as_vector",
    "from_vector",
    "repair",
    "noise_shrinkage",
    "diagonal_shrinkage",
    "PrivacyError",
    "CompositionError",
]
