"""The Gaussians that a total describes, the operations on them that heads share, and draws from them."""

from ghofl.gaussians.covariances import ClassCovariances
from ghofl.gaussians.fisher import Fisher
from ghofl.gaussians.gaussians import Gaussians, Sketched
from ghofl.gaussians.sums import Sums
from ghofl.gaussians.synthesis import METHODS, Draws, draw

__all__ = ["METHODS", "ClassCovariances", "Draws", "Fisher", "Gaussians", "Sketched", "Sums", "draw"]
