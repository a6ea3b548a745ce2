"""Heads: one file a family, its formula in the docstring.

`HEADS` maps the name of every head to its class; `PAPER` holds the options of the GH-OFL paper, and the defaults of
each `fit` are ours.
"""

from typing import Any

from ghofl.heads.base import Head
from ghofl.heads.blend import Blend
from ghofl.heads.fisher_mix import FisherMix
from ghofl.heads.lda import LDA, FedCGS
from ghofl.heads.low_rank_qda import LowRankQDA
from ghofl.heads.naive_bayes import NaiveBayes
from ghofl.heads.nearest_mean import NearestMean, Spherical
from ghofl.heads.proto_hyper import ProtoHyper
from ghofl.heads.quadratic import QDA, RDA, Student
from ghofl.heads.ridge import Ridge
from ghofl.heads.sketched_qda import SketchedQDA

HEADS: dict[str, type[Head]] = {
    head.name: head
    for head in (
        NearestMean,
        Spherical,
        FedCGS,
        NaiveBayes,
        LDA,
        QDA,
        LowRankQDA,
        RDA,
        Student,
        SketchedQDA,
        Ridge,
        FisherMix,
        ProtoHyper,
        Blend,
    )
}

PAPER: dict[str, dict[str, Any]] = {
    "nb": {"shrinkage": 0.0},
    "lda": {"shrinkage": 0.05},
    "qda": {"shrinkage": 0.10},
    "low_rank_qda": {"rank": 16, "shrinkage": 0.10},
    "fisher_mix": {
        "per_class": 4000,
        "dispersion": 0.9,
        "extra": 0,
        "warm": 0,
        "epochs": 40,
        "batch": 2048,
        "learning_rate": 8e-4,
        "weight_decay": 3e-4,
        "method": "matched",
        "energy": 1.0,
        "centred": 0,
        "prior": 0,
    },
    "proto_hyper": {
        "base": "nb",
        "rank": 16,
        "teacher": 0.3,
        "temperature": 4.0,
        "alpha": 0.4,
        "per_class": 4000,
        "dispersion": 0.9,
        "extra": 0,
        "epochs": 40,
        "batch": 1024,
        "learning_rate": 1e-3,
        "weight_decay": 5e-4,
        "method": "plain",
        "energy": 1.0,
    },
}

__all__ = [
    "HEADS",
    "LDA",
    "PAPER",
    "QDA",
    "RDA",
    "Blend",
    "FedCGS",
    "FisherMix",
    "Head",
    "LowRankQDA",
    "NaiveBayes",
    "NearestMean",
    "ProtoHyper",
    "Ridge",
    "SketchedQDA",
    "Spherical",
    "Student",
]
