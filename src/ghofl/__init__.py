"""One-shot federated learning from exact integer moments: one message per site, one classifier."""

from ghofl.classifier import Classifier, HeadSpec
from ghofl.errors import GhoflError
from ghofl.features import Features
from ghofl.gaussians import Fisher, Gaussians
from ghofl.heads import HEADS, Head
from ghofl.moments import Layout, Moments, MomentsBuilder
from ghofl.recipe import Encoder, Grid, Lift, Limits, Privacy, Projection, Recipe, Sketch, Transform
from ghofl.short import encode, fit, message, recipe_for, total
from ghofl.wire.message import Message
from ghofl.wire.total import Aggregator, Total

__version__ = "0.1.0"

__all__ = [
    "HEADS",
    "Aggregator",
    "Classifier",
    "Encoder",
    "Features",
    "Fisher",
    "Gaussians",
    "GhoflError",
    "Grid",
    "Head",
    "HeadSpec",
    "Layout",
    "Lift",
    "Limits",
    "Message",
    "Moments",
    "MomentsBuilder",
    "Privacy",
    "Projection",
    "Recipe",
    "Sketch",
    "Total",
    "Transform",
    "encode",
    "fit",
    "message",
    "recipe_for",
    "total",
]
