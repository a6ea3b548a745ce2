import numpy as np
import pytest

import ghofl
from federations import blobs, gaussians_of, recipe_of, total_of
from ghofl import HEADS, Classifier
from ghofl.errors import HeadError, MessageError, MissingStatisticError
from ghofl.evaluation.ranking import Ranking
from ghofl.gaussians import draw
from ghofl.heads import novelty
from ghofl.heads.novelty import PREFIX, Novelty
from pages import run


def relative_distances(gaussians, x):
    """The formula as it is written, with solves."""
    from ghofl.gaussians import linalg

    a = gaussians.shared_shrinkage()
    within, total = linalg.shrink(gaussians.pooled(), a), linalg.shrink(gaussians.total_covariance(), a)
    of = [np.einsum("nd,nd->n", x - m, np.linalg.solve(within, (x - m).T).T) for m in gaussians.means]
    away = x - gaussians.centre
    return np.min(of, axis=0) - np.einsum("nd,nd->n", away, np.linalg.solve(total, away.T).T)


def test_the_novelty_is_the_relative_mahalanobis_distance(rng):
    x, y = blobs(rng)
    gaussians = gaussians_of(recipe_of(), x, y)
    expected = relative_distances(gaussians, x)
    assert Novelty.of(gaussians).scores(x) == pytest.approx(expected, rel=1e-4, abs=1e-3)
    assert novelty._distances(gaussians, x) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_in_many_dimensions_the_fisher_directions_stand_in(rng, monkeypatch):
    x, y = blobs(rng, rows=3000)
    gaussians = gaussians_of(recipe_of(), x, y)
    full = Novelty.of(gaussians)
    monkeypatch.setattr(novelty, "LARGEST", 5)
    small = Novelty.of(gaussians)
    assert small.basis.shape == (6, 3)
    assert not small.triangle.size
    assert np.array_equal(Novelty.from_arrays(small.arrays(), 6).scores(x), small.scores(x))
    assert np.corrcoef(small.scores(x), full.scores(x))[0, 1] > 0.99


@pytest.mark.parametrize("name", sorted(HEADS))
def test_every_head_tells_rows_of_no_class_from_those_of_the_classes(name, rng):
    x, y = blobs(rng, rows=2000, spread=4.0)
    sketch = {"statistics": ("B",)} if "Z" in HEADS[name].needs[0] else {}
    from ghofl import Sketch

    recipe = recipe_of(**sketch, sketch=Sketch(dim=3)) if sketch else recipe_of()
    classifier = Classifier.fit(total_of(recipe, x[:1000], y[:1000]), name, novelty=True)
    strangers = x[1000:] + 3.0 * rng.normal(size=(1000, 6)) + 4.0
    values = np.r_[classifier.novelty(x[1000:]), classifier.novelty(strangers)]
    assert Ranking.of(values, np.repeat([False, True], 1000)).auc > 0.8
    kept = classifier.predict_numbers(x[1000:], reject=0.05)
    assert 0.01 < np.mean(kept == -1) < 0.12
    assert np.array_equal(kept == -1, classifier.is_novel(x[1000:], 0.05))


def test_the_novelty_is_read_as_it_was_written_and_a_damaged_one_is_refused(rng):
    x, y = blobs(rng)
    made = Classifier.fit(total_of(recipe_of(), x, y), "lda", novelty=True)
    read = Classifier.from_bytes(made.to_bytes())
    assert np.array_equal(read.novelty(x), made.novelty(x))
    arrays = made.novelty_rule.arrays()
    for change in (
        {"levels": arrays[PREFIX + "levels"][::-1].copy()}, {"centre": np.zeros(5, np.float32)},
        {"triangle": np.full(21, np.nan, np.float32)}, {"triangle": np.zeros(20, np.float32)},
        {"extra": np.zeros(1)}, {"weights": np.zeros((4, 5), np.float32)},
    ):  # fmt: skip
        with pytest.raises(HeadError, match="novelty"):
            Novelty.from_arrays(arrays | {PREFIX + name: array for name, array in change.items()}, 6)
    assert Novelty.from_arrays({}, 6) is None


def test_a_total_that_does_not_tell_how_rows_vary_is_refused_where_novelty_is_asked_for(rng):
    x, y = blobs(rng)
    with pytest.raises(MissingStatisticError, match="novelty needs statistics = .* this total holds N, A"):
        Classifier.fit(total_of(recipe_of(statistics=()), x, y), "nearest_mean", novelty=True)
    one_each = total_of(recipe_of(statistics=("B",)), x[:4], np.arange(4))
    with pytest.raises(HeadError, match="does not tell how rows of two classes vary"):
        Classifier.fit(one_each, "nearest_mean", lambda _: None, novelty=True)


def test_shares_beyond_those_measured_are_refused(rng):
    x, y = blobs(rng)
    known = Classifier.fit(total_of(recipe_of(), x, y), "lda", novelty=True)
    for rate in (0.0, 1e-4, 0.99999, 1.5):  # shares beyond those measured counted as the nearest one
        with pytest.raises(HeadError, match=f"turn away is {rate:g}; .* between 0.001 and 0.999"):
            known.predict(x, reject=rate)


def test_a_classifier_without_novelty_predicts_the_same_and_says_how_to_ask_for_it(rng):
    x, y = blobs(rng)
    total = total_of(recipe_of(), x, y)
    with_it, without = ghofl.fit(total, "lda", novelty=True), ghofl.fit(total, "lda")
    assert Classifier.fit(total, "lda") == without
    assert np.array_equal(with_it.predict_proba(x), without.predict_proba(x))
    assert with_it.novelty(x).shape == (len(x),)
    assert len(without.to_bytes()) < len(with_it.to_bytes())
    for ask in (without.novelty, lambda x: without.predict(x, reject=0.05)):
        with pytest.raises(HeadError, match=r"make it again with novelty, as ghofl\.fit\(total, head, novelty=True\)"):
            ask(x)


@pytest.mark.parametrize("novelty", [True, False])
def test_the_command_and_the_estimator_learn_novelty_where_it_is_asked_for(novelty, rng, tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    from ghofl.sklearn import GaussianHeadClassifier

    x, y = blobs(rng)
    model = GaussianHeadClassifier("lda", novelty=novelty).fit(x, y)
    assert (model.classifier_.novelty_rule is not None) == novelty
    monkeypatch.chdir(tmp_path)
    total_of(recipe_of(), x, y).save("total.ghofl")
    np.save("x.npy", x)
    run(f"ghofl head total.ghofl --head lda {'--novelty ' * novelty}-o head.safetensors")
    refusal = "" if novelty else "head.safetensors has none; make it with 'ghofl head --novelty'"
    run("ghofl predict head.safetensors x.npy -o out.csv --reject 0.05", refusal=refusal)
    total_of(recipe_of(statistics=()), x, y).save("means.ghofl")
    run("ghofl head means.ghofl --novelty -o none.safetensors", refusal="novelty needs statistics")


def test_a_head_file_with_a_damaged_novelty_is_a_damaged_head_file(rng, monkeypatch):
    x, y = blobs(rng)
    made = Classifier.fit(total_of(recipe_of(), x, y), "lda", novelty=True)
    monkeypatch.setattr(Novelty, "arrays", lambda self: {PREFIX + "basis": self.basis})
    with pytest.raises(MessageError, match="novelty"):
        Classifier.from_bytes(made.to_bytes())


def turned_away(statistic, per_class, classes, dim, tails=None, spreads=1.0):
    """The share of new rows that are turned away at 0.05, of classes with so many rows, and by the Gaussians' own draws."""
    rng = np.random.default_rng(5)
    means = 0.8 * rng.normal(size=(classes, dim))

    def rows(count):
        y = np.repeat(np.arange(classes), count)
        stretch = 1.0 if tails is None else np.sqrt((tails - 2.0) / rng.chisquare(tails, len(y)))[:, None]
        width = np.where(y % 2, spreads, 1.0)[:, None]
        return means[y] + width * stretch * rng.normal(size=(len(y), dim)), y

    gaussians = gaussians_of(recipe_of(dim, classes, (statistic,)), *rows(per_class))
    rule, (new, _) = Novelty.of(gaussians), rows(4000 // classes)
    naive = draw(gaussians, 4000 // classes, np.random.default_rng(0), 1.0, 0.01)
    scores = rule.scores(new)
    return np.mean(scores > rule.threshold(0.05)), np.mean(scores > np.quantile(rule.scores(naive.z * 1.0), 0.95))


@pytest.mark.parametrize("per_class", [3, 8, 40])
def test_rows_outside_the_total_lie_further_and_are_turned_away_as_seldom_as_asked(per_class):
    """Means and covariances of few rows fit those rows; new ones lie further from all of them."""
    found, of_own_draws = turned_away("B", per_class, classes=10, dim=40)
    assert (0.005 if per_class > 3 else 0.0) < found < 0.08  # Gaussian rows lie nearer than the Student's draws
    assert of_own_draws > (0.15 if per_class < 40 else 0.05)


def test_rows_with_heavy_tails_are_turned_away_about_as_often_as_asked():
    found, of_own_draws = turned_away("B", 200, classes=30, dim=40, tails=12.0)
    assert 0.03 < found < 0.09
    assert of_own_draws > 1.5 * found


def test_class_covariances_tell_how_far_the_rows_of_wide_classes_lie():
    wide = {name: turned_away(name, 200, classes=10, dim=20, spreads=2.0)[0] for name in ("B", "S")}
    assert 0.02 < wide["S"] < 0.07
    assert wide["B"] > 1.3 * wide["S"]


def test_in_many_dimensions_draws_are_widened_by_what_few_rows_fit(monkeypatch):
    monkeypatch.setattr(novelty, "LARGEST", 5)
    found, of_own_draws = turned_away("B", 12, classes=10, dim=40)
    assert 0.005 < found < 0.12
    assert of_own_draws > 2 * found


@pytest.mark.parametrize("statistic", ["D", "S"])
def test_a_class_whose_rows_are_all_the_same_does_not_keep_others_from_being_told(statistic, rng):
    x, y = blobs(rng, rows=2000)
    x[y == 2] = x[y == 2][0]
    rule = Novelty.of(gaussians_of(recipe_of(statistics=(statistic,)), x[:1000], y[:1000]))
    limit = {"D": 0.25, "S": 0.12}[statistic]  # correlated features defy draws of independent ones
    assert np.mean(rule.scores(x[1000:]) > rule.threshold(0.05)) < limit
    assert (rule.scores(x[1000:1010] + 30.0) > rule.threshold(0.01)).all()
