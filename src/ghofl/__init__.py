"""One-shot federated learning from exact integer moments: one message per site, one classifier."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ghofl.classifier import Classifier as Classifier
    from ghofl.errors import GhoflError as GhoflError
    from ghofl.features import Features as Features
    from ghofl.gaussians import Fisher as Fisher
    from ghofl.gaussians import Gaussians as Gaussians
    from ghofl.heads import HEADS as HEADS
    from ghofl.heads import Head as Head
    from ghofl.heads.spec import HeadSpec as HeadSpec
    from ghofl.moments import Layout as Layout
    from ghofl.moments import Moments as Moments
    from ghofl.moments import MomentsBuilder as MomentsBuilder
    from ghofl.recipe import Encoder as Encoder
    from ghofl.recipe import Grid as Grid
    from ghofl.recipe import Lift as Lift
    from ghofl.recipe import Limits as Limits
    from ghofl.recipe import Privacy as Privacy
    from ghofl.recipe import Projection as Projection
    from ghofl.recipe import Recipe as Recipe
    from ghofl.recipe import Sketch as Sketch
    from ghofl.recipe import Transform as Transform
    from ghofl.short import encode as encode
    from ghofl.short import fit as fit
    from ghofl.short import message as message
    from ghofl.short import recipe_for as recipe_for
    from ghofl.short import schema_for as schema_for
    from ghofl.short import total as total
    from ghofl.simulation.simulate import simulate as simulate
    from ghofl.wire.message import Message as Message
    from ghofl.wire.total import Aggregator as Aggregator
    from ghofl.wire.total import Total as Total

__version__ = "0.2.0"

# Where each public name lives: it is imported when it is first used, so that `ghofl --version` imports none of them.
_PLACES = {
    "classifier": ("Classifier",),
    "errors": ("GhoflError",),
    "features": ("Features",),
    "gaussians": ("Fisher", "Gaussians"),
    "heads": ("HEADS", "Head"),
    "heads.spec": ("HeadSpec",),
    "moments": ("Layout", "Moments", "MomentsBuilder"),
    "recipe": ("Encoder", "Grid", "Lift", "Limits", "Privacy", "Projection", "Recipe", "Sketch", "Transform"),
    "short": ("encode", "fit", "message", "recipe_for", "schema_for", "total"),
    "simulation.simulate": ("simulate",),
    "wire.message": ("Message",),
    "wire.total": ("Aggregator", "Total"),
}
_PLACE_OF = {name: f"{__name__}.{place}" for place, names in _PLACES.items() for name in names}

__all__ = sorted(_PLACE_OF)  # type: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """A public name from its module, or a subpackage such as `ghofl.heads`."""
    if name in _PLACE_OF:
        value = getattr(importlib.import_module(_PLACE_OF[name]), name)
        globals()[name] = value
        return value
    inside = f"{__name__}.{name}"
    if not name.startswith("_") and importlib.util.find_spec(inside) is not None:
        return importlib.import_module(inside)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
