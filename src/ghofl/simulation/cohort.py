"""The clients of a simulated secure round: who vanishes, what the plan assumes, and what the round costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ghofl import secure
from ghofl.recipe import RecipeOptions


@dataclass(frozen=True, slots=True)
class SecureRound:
    """The plan of a secure round, who survived it, and the mean bytes of a surviving client."""

    plan: secure.Plan
    survivors: tuple[str, ...] = field(repr=False)
    sent_bytes: float
    received_bytes: float

    def to_dict(self) -> dict[str, Any]:
        """The round as plain values."""
        names = ("clients", "neighbours", "threshold", "bits", "dropped", "corrupted", "min_survivors")
        return {
            "survivors": len(self.survivors),
            "sent_bytes": round(self.sent_bytes),
            "received_bytes": round(self.received_bytes),
            "plan": {name: getattr(self.plan, name) for name in names},
        }


@dataclass(frozen=True, slots=True)
class Cohort:
    """Who vanishes in a secure round, and what its plan assumes: shares of clients that vanish or are corrupted.

    Both shares round up, and dropouts fall to what a plan can withstand (see `secure.plan`).
    `drops` says before which stage a share of the clients vanishes: advertise, share, mask, endorse or reveal.
    """

    drops: Mapping[str, float] = field(default_factory=dict)
    dropout: float = secure.DROPOUT
    corruption: float = secure.CORRUPTION
    seed: int = 0

    def plan(self, clients: int, bound: int) -> secure.Plan:
        """The plan of a round under these assumptions."""
        return secure.plan(clients, bound, self.dropout, self.corruption)

    def honest_survivors(self, clients: int) -> int:
        """The fewest clients that are in the sum and keep their noise to themselves."""
        agreed = self.plan(clients, 1)
        return max(1, agreed.min_survivors - agreed.corrupted)

    def fill_in(self, options: RecipeOptions, clients: int) -> RecipeOptions:
        """The options with `min_cohort` filled in where noise is distributed and it is not given."""
        is_open = options.noise == "distributed" and options.epsilon is not None and options.min_cohort is None
        return replace(options, min_cohort=self.honest_survivors(clients)) if is_open else options

    def draw_drops(self, names: Sequence[str]) -> dict[str, str]:
        """The clients that vanish, with the stage before which each does, drawn from the seed."""
        order = np.random.default_rng(self.seed).permutation(len(names))
        out, taken = {}, 0
        for stage, share in self.drops.items():
            count = int(share * len(names) + 1e-9)
            out |= {names[i]: stage for i in order[taken : taken + count]}
            taken += count
        return out
