"""
A head of your own
==================

A head is a function from Gaussians to a rule. This one gives every class the same round spread, so its borders are straight
lines halfway between means; then it is compared with two that ghofl has.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from sklearn.datasets import load_iris

import ghofl
from ghofl.heads import Head, HeadOptions, option
from ghofl.heads.rules import Linear


@dataclass(frozen=True)
class RoundOptions(HeadOptions, head="round"):
    """How wide the classes are."""

    width: float = option(1.0, "the spread of every class, times the usual", above=0.0)


def fit_round(gaussians, options=RoundOptions()):
    """Linear head: the same variance in every direction."""
    variance = options.width**2 * gaussians.pooled_variances().mean()
    return Linear.of_means(gaussians.means / variance, gaussians.means, gaussians.log_priors)


ROUND = Head(RoundOptions, fit_round, needs=(("D",), ("B",)))

# %%
# It is given where a head is named, with options or without: to fit, in simulations, for leave-out.

iris = load_iris()
x, y = iris.data[:, 2:], iris.target_names[iris.target]
recipe = ghofl.recipe_for(list(iris.target_names), x, statistics=("S",))
total = ghofl.total(ghofl.message(recipe, f"garden {i}", x[i::3], y[i::3]) for i in range(3))
grid = np.stack(np.meshgrid(np.linspace(0.5, 7.4, 200), np.linspace(-0.2, 2.8, 150)), axis=-1)
pale, strong = ListedColormap(["#c6d8ea", "#f0d4c0", "#c8e0d2"]), ["#2f6fb0", "#c8641e", "#3d8f5f"]

figure, axes = plt.subplots(1, 3, figsize=(6.8, 2.6), sharey=True)
for axis, head in zip(axes, (ROUND(width=1.0), "lda", "qda")):
    classifier = ghofl.fit(total, head)
    classes = classifier.predict_numbers(grid.reshape(-1, 2)).reshape(150, 200)
    axis.pcolormesh(*np.moveaxis(grid, -1, 0), classes, cmap=pale, rasterized=True)
    axis.scatter(*x.T, c=[strong[c] for c in iris.target], s=6)
    axis.set(title=f"{classifier.head}: {100 * classifier.score(x, y):.1f} %", xlabel="petal length")
    print(classifier.head, classifier.rule.kind)
axes[0].set_ylabel("petal width")
