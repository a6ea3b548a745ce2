"""The readable twin tells the same story as the real thing."""

import numpy as np
import pytest

from federations import blobs, recipe_of
from ghofl import Classifier
from ghofl.simulation import story
from ghofl.simulation.simulate import Dataset, HeadSpec, simulate


@pytest.mark.parametrize("sites", [1, 3, 10])
def test_the_story_in_a_few_lines_is_the_real_one(rng, sites):
    recipe = recipe_of(statistics=("S",))
    x, y = blobs(rng, rows=200, spread=1.0)
    names = np.array(recipe.classes)
    parts = np.array_split(rng.permutation(len(y)), sites)
    real = simulate(Dataset(x, y, x, y, recipe.classes), parts, recipe, HeadSpec.parse_list("lda"))
    told = [story.message(recipe, x[rows], list(names[y[rows]])) for rows in parts]
    n, a, s = story.total(told)
    moments = real.total.moments
    assert np.array_equal(n, moments.counts)
    assert np.array_equal(a, moments.sums)
    assert all(np.array_equal(s[c], moments.by_class(c)) for c in range(4))
    head = Classifier.fit(real.total, "lda(shrinkage=0.1)")
    scores = story.scores((n, a, s), story.integers(recipe, x), 0.1)
    assert scores - scores[:, :1] == pytest.approx(head.scores(x) - head.scores(x)[:, :1], rel=1e-8, abs=1e-8)
    predicted = story.story(recipe, [(x[rows], list(names[y[rows]])) for rows in parts], x)
    assert predicted == head.predict(x).tolist()
