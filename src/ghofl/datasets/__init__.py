"""Samples of any origin, in one fixed order: `load` by name, folder or file; `Samples` is what comes of it."""

from ghofl.datasets.corruptions import FAMILIES
from ghofl.datasets.loading import NAMES, Columns, Corruption, corrupted, load
from ghofl.datasets.samples import Samples

__all__ = ["FAMILIES", "NAMES", "Columns", "Corruption", "Samples", "corrupted", "load"]
