"""Heads: one file per head, with its formula in the docstring and its options beside it."""

from collections.abc import Mapping
from types import MappingProxyType

from ghofl.heads import (
    blend,
    fisher_mix,
    hedge,
    lda,
    lda_ridge,
    low_rank_qda,
    naive_bayes,
    nearest_mean,
    proto_hyper,
    qda,
    rda,
    ridge,
    sketched_qda,
    student,
)
from ghofl.heads.head import Head as Head
from ghofl.heads.options import HeadOptions as HeadOptions
from ghofl.heads.options import option as option
from ghofl.heads.rules import Rule as Rule

_MODULES = (
    nearest_mean, naive_bayes, lda, ridge, lda_ridge, blend, sketched_qda, qda, rda, student, hedge, low_rank_qda, fisher_mix,
    proto_hyper,
)  # fmt: skip
HEADS: Mapping[str, Head] = MappingProxyType({module.HEAD.name: module.HEAD for module in _MODULES})
"""ghofl's own heads by their names, those that need least first; any other `Head` is given as the value that it is."""
