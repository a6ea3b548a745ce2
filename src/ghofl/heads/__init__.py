"""Heads: one file per family, with its formula in the docstring and its options beside it.

`HEADS` maps the name of every head to its class, including heads that other distributions offer.
"""

from ghofl.heads.base import Head as Head
from ghofl.heads.options import HeadOptions as HeadOptions
from ghofl.heads.options import option as option
from ghofl.heads.plugins import Heads

# isort: off
# One line per head, in the order in which heads are listed: a new head is one more line.
from ghofl.heads.nearest_mean import NearestMean as NearestMean
from ghofl.heads.nearest_mean import Spherical as Spherical
from ghofl.heads.lda import FedCGS as FedCGS
from ghofl.heads.naive_bayes import NaiveBayes as NaiveBayes
from ghofl.heads.lda import LDA as LDA
from ghofl.heads.quadratic import QDA as QDA
from ghofl.heads.low_rank_qda import LowRankQDA as LowRankQDA
from ghofl.heads.quadratic import RDA as RDA
from ghofl.heads.quadratic import Student as Student
from ghofl.heads.sketched_qda import SketchedQDA as SketchedQDA
from ghofl.heads.ridge import Ridge as Ridge
from ghofl.heads.fisher_mix import FisherMix as FisherMix
from ghofl.heads.proto_hyper import ProtoHyper as ProtoHyper
from ghofl.heads.blend import Blend as Blend
# isort: on

HEADS = Heads(
    {value.name: value for value in list(vars().values()) if isinstance(value, type) and Head in value.__mro__[1:]}
)
