"""What `ghofl` reaches on a split: messages through bytes, one total, heads; and that other splits give that total."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ghofl.features import Features
from ghofl.moments import Layout, Moments
from ghofl.outbox import Embedded, count
from ghofl.recipe import Recipe
from ghofl.simulation.partition import Parts, split
from ghofl.simulation.simulate import Dataset, Simulation, recipe_for, simulate
from ghofl_benchmarks import made
from ghofl_benchmarks.baselines.compared import spec_of

PAPER_HEADS = {
    "GH-NB": "nb", "GH-LDA": "lda", "GH-QDA": "qda", "FisherMix": "fisher_mix", "Proto-Hyper": "proto_hyper"
}  # fmt: skip


def parts_of(data: Dataset, clients: int, seed: int, alpha: float | None = None, count: int | None = None) -> Parts:
    """A split of the training rows."""
    return split(data.y_train, clients, np.random.default_rng(seed), alpha, count)


def run(data: Dataset, parts: Parts, heads: Mapping[str, str], preset: str = "default", **recipe: Any) -> Simulation:
    """Heads by title, each given as a spec, through `ghofl simulate`'s own function."""
    specs = {title: spec_of(spec, preset) for title, spec in heads.items()}
    return simulate(data, parts, made.note(recipe_for(data, specs.values(), **recipe)), specs)


def total_of(data: Dataset, parts: Parts, recipe: Recipe) -> Moments:
    """The sum of the moments of every client of a split."""
    features = Features.of(made.note(recipe))
    total = Moments.zeros(Layout.of(recipe))
    for rows in parts:
        if len(rows):
            total = total + count(features, Embedded(data.x_train[rows], data.y_train[rows])).moments
    return total
