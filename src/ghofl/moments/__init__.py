"""Moments of features: which sums there are (`Layout`), their values (`Moments`), and how rows are added to them."""

from ghofl.moments.layout import Layout
from ghofl.moments.moments import CutBuilder, CutSum, Moments, MomentsBuilder
from ghofl.moments.shape import excess_kurtosis, skewness
from ghofl.statistics import INT64_MAX

__all__ = ["INT64_MAX", "CutBuilder", "CutSum", "Layout", "Moments", "MomentsBuilder", "excess_kurtosis", "skewness"]
