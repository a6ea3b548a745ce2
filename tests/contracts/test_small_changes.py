"""Nothing is decided by the last digit of a sum: a unit more or less in each, and another order of adding, change little.

A unit is little beside how rows differ, as in a grid of 16 bits, so what moves more than it moves means is a choice between
numbers that are rounding noise, as ridge's penalty was with fewer rows than dimensions.
"""

from dataclasses import replace

import numpy as np
import pytest

from federations import blobs, recipe_of, total_of
from ghofl import HEADS, Classifier, Features, Gaussians, HeadSpec, Layout, Moments, Sketch
from ghofl.evaluation.leave_out import OwnRows, assign_folds
from ghofl.heads.best import best_head
from ghofl.heads.novelty import Novelty
from ghofl.personal.choice import _choose, personal_head
from ghofl.privacy import repair

CLASSES, DIM = 4, 40
ROWS = {"fewer rows than dimensions": 20, "as many": 44, "many": 600}
TRAINED = ("fisher_mix", "proto_hyper")
BLENDS = ("best", "blend(parts=lda+nearest_mean)", "blend(parts=student+z.lda)")
CLOSED = [*sorted(set(HEADS) - set(TRAINED)), *BLENDS]
SHARE = 0.001  # of predictions


def rows_of(rng, rows):
    """Rows of features of falling variance, and class numbers, as many of each."""
    y = np.arange(rows) % CLASSES
    centres = np.random.default_rng(1).normal(size=(CLASSES, DIM))
    return (rng.normal(size=(rows, DIM)) + 0.7 * centres[y]) / np.sqrt(1.0 + np.arange(DIM)), y


def recipe_for(statistics, sketch=8):
    parts = {"sketch": Sketch(dim=sketch)} if sketch and statistics != ("D",) else {}
    return recipe_of(DIM, CLASSES, statistics, bits=16, scale=8000.0, **parts)


def moved(moments, rng):
    """Every integer but the counts one more or one less: another number of rows would be another total."""
    blocks = {name: b if name == "N" else b + rng.choice([-1, 1], size=b.shape) for name, b in moments.blocks.items()}
    return Moments(moments.layout, blocks)


def recipe_of_head(name, sketch=8):
    """The smallest recipe that a head can be built from."""
    recipes = [recipe_for(statistics, sketch) for statistics in (("D",), ("B",), ("S",))]
    return next(r for r in recipes if HeadSpec.parse(name).is_possible(Layout.of(r), r))


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("name", CLOSED)
def test_a_unit_in_every_sum_hardly_moves_predictions_and_temperatures(name, rows, rng):
    total = total_of(recipe_of_head(name), *rows_of(rng, rows))
    x, _ = rows_of(rng, 2000)
    known = Classifier.fit(total, name)
    for _ in range(3):
        other = Classifier.fit(replace(total, moments=moved(total.moments, rng)), name)
        assert np.mean(known.predict_numbers(x) != other.predict_numbers(x)) <= SHARE
        assert other.temperature == pytest.approx(known.temperature, rel=0.02)


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("name", sorted(set(CLOSED) - {"sketched_qda", *BLENDS}))
def test_features_in_another_order_are_added_in_another_one_and_predict_the_same(name, rows, rng):
    (x, y), (new, _) = rows_of(rng, rows), rows_of(rng, 2000)
    recipe, head = recipe_of_head(name, sketch=0), HEADS[name]

    def predicted(order):
        total = total_of(recipe, x[:, order], y)
        return head.fit(Gaussians.of_total(total, Features.of(recipe))).predict(new[:, order])

    known = predicted(np.arange(DIM))
    for _ in range(3):
        assert np.mean(predicted(rng.permutation(DIM)) != known) <= SHARE


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("statistics", [("B",), ("S",)])
def test_a_unit_in_every_sum_hardly_moves_what_heads_are_chosen_and_shrunk_by(statistics, rows, rng):
    recipe = recipe_for(statistics)
    total, features = total_of(recipe, *rows_of(rng, rows)), Features.of(recipe)

    def numbers(moments):
        known = Gaussians.of_total(replace(total, moments=moments), features)
        novelty = Novelty.of(known)
        assert novelty is not None
        head = best_head(moments.layout, recipe, known).spec
        return head, str(known.smooth), [
            known.effective_dim, known.oas, known.fewness, known.shared_shrinkage(), novelty.threshold(0.05)
        ]  # fmt: skip

    head, smooth, values = numbers(total.moments)
    for _ in range(3):
        other = numbers(moved(total.moments, rng))
        assert other[:2] == (head, smooth)
        assert other[2] == pytest.approx(values, rel=0.01)


@pytest.mark.parametrize("statistics", [("D",), ("B",), ("S",)])
def test_a_unit_in_every_sum_of_few_rows_is_repaired_to_little_more(statistics, rng):
    """Where eigenvalues are cut at 0, those that a unit moved below it are not far from it."""
    moments = total_of(recipe_for(statistics, sketch=0), *rows_of(rng, 12)).moments
    known, other = repair(moments), repair(moved(moments, rng))
    for name, block in known.items():
        assert np.abs(other[name] - block).max() <= 1e-3 * np.abs(block).max()


@pytest.mark.parametrize("name", ["lda", "ridge", "best"])
def test_a_site_takes_the_same_head_whatever_the_last_digit_of_the_other_sites(name, rng):
    """Its own rows have to be those that it sent, so the sums of the others move."""
    (x, y), (there, of_there) = rows_of(rng, 60), rows_of(rng, 300)
    total = total_of(recipe_for(("S",)), np.vstack([x + 0.5, there]), np.concatenate([y, of_there]))
    own = OwnRows.of_new_site(total, x + 0.4, y)
    fold = assign_folds(y, 3)
    known = personal_head(own, HeadSpec.parse(name), fold).chosen.adaptation
    for _ in range(2):
        other = replace(own, total=replace(total, moments=moved(total.moments, rng)))
        assert personal_head(other, HeadSpec.parse(name), fold).chosen.adaptation == known


def test_a_gain_that_is_rounding_does_not_choose_a_head():
    """Own priors of a site alone in the total are those of the total: they were taken, for a gain of 0.0000 ± 0.0000."""
    losses = np.full((2, 50), 0.5) - np.array([[0.0], [1e-15]])
    assert _choose(losses, np.ones((2, 50)), np.full(50, 0.02))[0] == 0
    for seed in (4, 5, 6):
        x, y = blobs(np.random.default_rng(seed), rows=120, spread=1.0)
        own = OwnRows.of(total_of(recipe_of(statistics=("B",)), x, y), x, y)
        found = personal_head(own, HeadSpec("ridge"), assign_folds(y, 4))
        assert found.chosen is found.shared or found.chosen.log_loss < found.shared.log_loss - 1e-6
