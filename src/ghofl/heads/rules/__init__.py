"""Rules: what fitted heads are, few and composable; each knows its scores, its arrays and its ONNX operations."""

from ghofl.heads.rules.averaged import Averaged as Averaged
from ghofl.heads.rules.base import Graph as Graph
from ghofl.heads.rules.base import Rule as Rule
from ghofl.heads.rules.composed import Mapped as Mapped
from ghofl.heads.rules.composed import Standardised as Standardised
from ghofl.heads.rules.composed import Summed as Summed
from ghofl.heads.rules.files import read_rule as read_rule
from ghofl.heads.rules.linear import Cosine as Cosine
from ghofl.heads.rules.linear import Diagonal as Diagonal
from ghofl.heads.rules.linear import Factored as Factored
from ghofl.heads.rules.linear import Linear as Linear
from ghofl.heads.rules.quadratic import LowRank as LowRank
from ghofl.heads.rules.quadratic import Quadratic as Quadratic
