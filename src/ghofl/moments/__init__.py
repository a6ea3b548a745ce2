"""Moments of features: which sums there are (`Layout`), their values (`Moments`), and how rows are added to them."""

from ghofl.moments.layout import Layout
from ghofl.moments.moments import CutBuilder, Moments, MomentsBuilder
from ghofl.statistics import INT64_MAX

__all__ = ["INT64_MAX", "CutBuilder", "Layout", "Moments", "MomentsBuilder"]
