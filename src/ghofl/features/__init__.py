"""From embeddings to integers, each row on its own: grid, projection or lift, radius."""

from ghofl.features.features import Features, transform
from ghofl.features.fitting import clipping_of, fit_grid, flat_features, usual_length
from ghofl.features.grid import TOLERATED_CLIPPING, ClipCount, Clipping, radius_of, shift_of, unit_of, unit_scale
from ghofl.features.radius import clip_rows, grid_radius
from ghofl.features.signs import exact_product, rademacher

__all__ = [
    "TOLERATED_CLIPPING",
    "ClipCount",
    "Clipping",
    "Features",
    "clip_rows",
    "clipping_of",
    "exact_product",
    "fit_grid",
    "flat_features",
    "grid_radius",
    "rademacher",
    "radius_of",
    "shift_of",
    "transform",
    "unit_of",
    "unit_scale",
    "usual_length",
]
