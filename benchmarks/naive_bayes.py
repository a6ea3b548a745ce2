"""How many rows the shared variances count as in naive Bayes, on held-out training rows: the choice behind its default.

    python benchmarks/run.py naive_bayes

Accuracy of `nb` by the weight of the shared variances (0 is the paper's head) and by rows per class, mean of three seeds.
"""

import warnings
from collections.abc import Collection

import few_shots
import numpy as np
from ghofl_benchmarks import made

from ghofl import Features, Gaussians, HeadSpec, Recipe
from ghofl.heads import naive_bayes
from ghofl.simulation.simulate import Dataset, recipe_for, simulate

SETS = ("digits", "banking77", "clinc150", "cifar10")
ROWS = (2, 4, 8, 16, 64, None)
WEIGHTS = (0, 1, 2, 5, 10, 20, 50, 100)
SEEDS, HELD_OUT = 3, 2000


def run(names: Collection[str] = ()) -> list[dict]:
    """One row per set (all of them without names) and number of rows."""
    found = []
    for name in names or SETS:
        try:
            held = few_shots.held_out(few_shots.arrays_of(name), HELD_OUT)
        except FileNotFoundError as error:
            print(f"{name}: left out, {error}")
            continue
        for per_class in (n for n in ROWS if n is None or n <= np.bincount(held.y_train).min()):
            seeds = range(1 if per_class is None else SEEDS)
            drawn = [few_shots.some_of(held, per_class, HELD_OUT, seed) for seed in seeds]
            all_of = [accuracies(few) for few in drawn]
            means = {str(w): round(100 * float(np.mean([found[w] for found in all_of])), 2) for w in WEIGHTS}
            told = {"dataset": name, "rows_per_class": per_class or "all", "seeds": len(seeds), "weights": means}
            found.append({**told, "recipe": made.joint([recipe_of(few).fingerprint for few in drawn])})
            print(found[-1], flush=True)
    return found


def recipe_of(few: Dataset) -> Recipe:
    """The recipe that these rows are counted by."""
    return recipe_for(few, [HeadSpec("nb")], bits=10)


def accuracies(few: Dataset) -> dict[int, float]:
    """The accuracy of the head by the weight of the shared variances."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        total = simulate(few, [np.arange(len(few.y_train))], recipe_of(few), {}).total
    features = Features.of(total.recipe)
    gaussians, x = Gaussians.of_total(total, features), features.values(few.x_test)
    found, usual = {}, naive_bayes.SHARED_ROWS
    try:
        for weight in WEIGHTS:
            naive_bayes.SHARED_ROWS = float(weight)
            options = naive_bayes.NaiveBayesOptions(shrinkage=None if weight else 0.0)
            found[weight] = float(np.mean(naive_bayes.fit_naive_bayes(gaussians, options).predict(x) == few.y_test))
    finally:
        naive_bayes.SHARED_ROWS = usual
    return found


def table(result: list[dict]) -> str:
    """One line per set and number of rows."""
    weights = list(result[0]["weights"])
    lines = [
        f"| set | rows per class | seeds | {' | '.join(f'{w} rows' for w in weights)} |",
        "|---|---|---:|" + "---:|" * len(weights),
    ]
    lines += [
        f"| {r['dataset']} | {r['rows_per_class']} | {r['seeds']} | {' | '.join(f'{v:.1f}' for v in r['weights'].values())} |"
        for r in result
    ]
    return "\n".join(lines)
