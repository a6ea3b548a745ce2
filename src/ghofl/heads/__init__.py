"""Heads: one file a family, its formula in the docstring.

`HEADS` maps the name of every head to its class; `PAPER` holds the options of the GH-OFL paper, and the defaults of
each `fit` are ours.
"""

from typing import Any

from ghofl.heads.base import Head
from ghofl.heads.lda import LDA, FedCGS
from ghofl.heads.low_rank_qda import LowRankQDA
from ghofl.heads.naive_bayes import NaiveBayes
from ghofl.heads.nearest_mean import NearestMean, Spherical
from ghofl.heads.quadratic import QDA, RDA
from ghofl.heads.ridge import Ridge
from ghofl.heads.sketched_qda import SketchedQDA

HEADS: dict[str, type[Head]] = {
    head.name: head
    for head in (NearestMean, Spherical, FedCGS, NaiveBayes, LDA, QDA, LowRankQDA, RDA, SketchedQDA, Ridge)
}

PAPER: dict[str, dict[str, Any]] = {
    "nb": {"shrinkage": 0.0},
    "lda": {"shrinkage": 0.05},
    "qda": {"shrinkage": 0.10},
    "low_rank_qda": {"rank": 16, "shrinkage": 0.10},
}

__all__ = [
    "HEADS",
    "LDA",
    "PAPER",
    "QDA",
    "RDA",
    "FedCGS",
    "Head",
    "LowRankQDA",
    "NaiveBayes",
    "NearestMean",
    "Ridge",
    "SketchedQDA",
    "Spherical",
]
