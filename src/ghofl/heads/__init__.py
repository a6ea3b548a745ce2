"""Heads: one file per head, with its formula in the docstring and its options beside it.

`HEADS` maps the name of every head to its record: the `HEAD` of each module here, and the heads of other distributions.
"""

from ghofl.heads.head import Head as Head
from ghofl.heads.options import HeadOptions as HeadOptions
from ghofl.heads.options import option as option
from ghofl.heads.plugins import Heads
from ghofl.heads.rules import Rule as Rule

HEADS = Heads()
