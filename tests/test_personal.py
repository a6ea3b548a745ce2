"""A head for one site: what it may change, how that is chosen, and that its file says whose it is."""

import json
from dataclasses import replace

import numpy as np
import pytest

from federations import blobs, moments_of, recipe_of, sketched_recipe, total_of
from ghofl import HEADS, Classifier, Features, Gaussians, HeadSpec, Message, Total
from ghofl.errors import EmbeddingsError, HeadError, MessageError
from ghofl.evaluation.leave_out import OwnRows, assign_folds, leave_out
from ghofl.gaussians.covariances import Mixed
from ghofl.personal.adaptation import Adaptation
from ghofl.personal.choice import FEWEST, fit_candidates, personal_head
from ghofl.recipe import Privacy
from pages import run

LDA = HeadSpec("lda")


def sites_of(recipe, *rows):
    """A total of sites' rows."""
    return Total.of(
        (Message.of(moments_of(recipe, x, y), recipe, f"site-{i}") for i, (x, y) in enumerate(rows)), recipe
    )


def two_classes(rng, rows, share=0.5, shift=0.0, apart=2.0, dim=4):
    y = (rng.random(rows) < share).astype(np.int64)
    return rng.normal(size=(rows, dim)) + apart * np.eye(2, dim)[y] + shift * np.eye(1, dim), y


def gaussians_of(recipe, x, y):
    features = Features.of(recipe)
    return Gaussians.estimate(moments_of(recipe, x, y), features.unit, features.sketch)


def test_own_means_are_those_of_the_rows_and_pseudo_rows_of_the_total(rng):
    recipe, (x, y) = recipe_of(dim=4, classes=2), two_classes(rng, 300)
    whole, own = gaussians_of(recipe, x, y), gaussians_of(recipe, x[:40], y[:40])
    found = Adaptation(means=20.0).apply(whole, own)
    for c in (0, 1):
        rows = own.counts[c]
        assert found.means[c] == pytest.approx((rows * own.means[c] + 20 * whole.means[c]) / (rows + 20))
    assert np.array_equal(found.shared, whole.shared)
    alone = Adaptation(means=0.0, covariance=1.0).apply(whole, own)
    assert alone.means == pytest.approx(own.means)
    assert alone.shared == pytest.approx(own.shared)
    assert Adaptation().apply(whole, own) is whole


@pytest.mark.parametrize("name", ["lda", "best", "ridge"])
def test_own_rows_only_is_the_head_of_the_own_message(name, rng):
    recipe, (x, y), spec = recipe_of(dim=4, classes=2), two_classes(rng, 300), HeadSpec(name)
    own = OwnRows.of(sites_of(recipe, (x[:80], y[:80]), (x[80:], y[80:])), x[:80], y[:80])
    every = np.ones(80, dtype=bool)
    (found,) = fit_candidates((Adaptation(alone=True),), own.total, own, every, spec, None)
    local = Classifier.fit(sites_of(recipe, (x[:80], y[:80])), spec)
    assert found.scores(x) == pytest.approx(local.scores(x))


def test_own_rows_only_is_tried_only_by_a_site_that_has_rows_of_every_class(rng):
    """Otherwise its head would never predict the others."""
    recipe, (x, y) = recipe_of(dim=4, classes=2, statistics=("B",)), two_classes(rng, 300)
    both, one = np.arange(40), np.flatnonzero(y == 0)[:40]
    tried = []
    for mine in (both, one):
        own = OwnRows.of(sites_of(recipe, (x[mine], y[mine]), (x, y)), x[mine], y[mine])
        found = personal_head(own, LDA, assign_folds(own.y, 4))
        tried.append(any(each.adaptation.alone for each in found.tried))
    assert tried == [True, False]


def test_columns_that_class_covariances_do_not_describe_stay_left_out(rng):
    x, y = blobs(rng)
    whole, smooth = gaussians_of(recipe_of(), x, y), np.array([True, False] * 3)
    for one in (Adaptation(means=5.0), Adaptation(means=5.0, covariance=0.3), Adaptation(alone=True)):
        assert one.apply(replace(whole, smooth=smooth), whole).smooth is smooth


def test_mixed_class_covariances_agree_with_their_matrices(rng):
    x, y = blobs(rng)
    known = gaussians_of(recipe_of(), x, y)
    made, columns = Mixed(known.covariances, known.pooled(), 0.3), rng.normal(size=(6, 2))
    assert made.times(1, columns) == pytest.approx(made.matrix(1) @ columns)
    assert made.level(1) == pytest.approx(np.trace(made.matrix(1)) / 6)


@pytest.mark.parametrize("name", sorted(HEADS))
def test_every_head_can_be_changed_towards_a_site(name, rng, monkeypatch):
    few = {"MEANS": (20.0,), "COVARIANCES": (0.0, 0.3), "PRIORS": (2.0,)}
    for constant, values in few.items():
        monkeypatch.setattr(f"ghofl.personal.choice.{constant}", values)
    need = HEADS[name].needs[0]
    recipe = sketched_recipe() if "Z" in need else recipe_of(statistics=need)
    x, y = blobs(rng, rows=160)
    total = total_of(recipe, x, y, 2)
    found = personal_head(OwnRows.of(total, x[:80], y[:80]), HeadSpec(name), assign_folds(y[:80], 2))
    assert np.isfinite([one.log_loss for one in found.tried]).all()
    assert len({one.adaptation for one in found.tried}) == len(found.tried) == (5 if need else 3)
    assert found.chosen.log_loss <= found.shared.log_loss
    assert np.isfinite(found.classifier.predict_proba(x)).all()


def test_the_head_of_the_total_is_judged_as_leave_out_judges_it(rng):
    x, y = blobs(rng, rows=120, spread=1.0)
    own = OwnRows.of(total_of(recipe_of(), x, y, 2), x[:60], y[:60])
    fold = assign_folds(own.y, 4)
    one, other = personal_head(own, LDA, fold).shared, leave_out(own, {"lda": LDA}, fold)["lda"].metrics
    assert one.log_loss == pytest.approx(other.log_loss)
    assert one.own_accuracy == pytest.approx(other.confusion.accuracy)
    assert one.balanced_accuracy == pytest.approx(other.confusion.balanced_accuracy)


def test_a_site_with_another_mix_takes_its_own_priors_and_gains_by_them(rng):
    recipe = recipe_of(dim=4, classes=2, statistics=("B",))
    here, there = two_classes(rng, 200, share=0.95, apart=1.0), two_classes(rng, 400, share=0.5, apart=1.0)
    own = OwnRows.of(sites_of(recipe, here, there), *here)
    found = personal_head(own, LDA, assign_folds(own.y, 5))
    x, y = two_classes(rng, 2000, share=0.95, apart=1.0)
    shared = Classifier.fit(own.total, LDA)
    assert found.chosen.adaptation.priors is not None
    assert np.mean(found.classifier.predict_numbers(x) == y) > np.mean(shared.predict_numbers(x) == y) + 0.03


def test_a_site_that_sees_everything_shifted_takes_own_means(rng):
    recipe = recipe_of(dim=4, classes=2, statistics=("B",))
    here, others = two_classes(rng, 200, shift=1.5), [two_classes(rng, 400) for _ in range(3)]
    own = OwnRows.of(sites_of(recipe, here, *others), *here)
    x, y = two_classes(rng, 2000, shift=1.5)
    before = np.mean(Classifier.fit(own.total, LDA).predict_numbers(x) == y)
    for mix in (None, np.array([1.0, 1.0])):
        found = personal_head(own, LDA, assign_folds(own.y, 5), mix)
        assert found.chosen.adaptation.changes_gaussians
        assert np.mean(found.classifier.predict_numbers(x) == y) > before + 0.05


def test_a_site_like_the_others_loses_next_to_nothing(rng):
    recipe, gains = recipe_of(dim=4, classes=2, statistics=("B",)), []
    x, y = two_classes(rng, 4000)
    for _ in range(6):
        here, there = two_classes(rng, 40), two_classes(rng, 600)
        own = OwnRows.of(sites_of(recipe, here, there), *here)
        heads = personal_head(own, LDA, assign_folds(own.y, 4)).classifier, Classifier.fit(own.total, LDA)
        gains.append(np.subtract(*(np.mean(head.predict_numbers(x) == y) for head in heads)))
    assert np.mean(gains) > -0.005


def test_a_head_that_predicts_fewer_rows_rightly_is_not_taken_for_its_log_loss(monkeypatch, rng):
    """Probabilities that fit the site better, and a head that is right less often: seen on 4,000 photos without any shift."""
    here, there = two_classes(rng, 200), two_classes(rng, 600)
    own = OwnRows.of(sites_of(recipe_of(dim=4, classes=2, statistics=("B",)), here, there), *here)
    taken = []
    for wrong in (0, 1):
        losses, hits = np.full((99, 200), 0.5), np.ones((99, 200))
        losses[5] -= 0.1
        hits[5, :wrong] = 0.0
        monkeypatch.setattr(
            "ghofl.personal.choice.judge", lambda tried, *_, a=losses, b=hits: (a[: len(tried)], b[: len(tried)])
        )
        found = personal_head(own, LDA, assign_folds(own.y, 5))
        taken.append(found.tried.index(found.chosen))
    assert taken == [5, 0]


def test_a_site_with_few_rows_keeps_the_head_of_the_total(rng):
    few, there = two_classes(rng, FEWEST - 1, share=0.9), two_classes(rng, 600)
    own = OwnRows.of(sites_of(recipe_of(dim=4, classes=2, statistics=("B",)), few, there), *few)
    found = personal_head(own, LDA, assign_folds(own.y, 3))
    assert found.chosen.adaptation == Adaptation()
    assert "fewer than 10 rows" in found.why
    assert np.array_equal(found.classifier.rule.weights, Classifier.fit(own.total, LDA).rule.weights)


def test_the_mix_that_is_chosen_for_reweights_rows_and_sets_the_priors(rng):
    recipe = recipe_of(dim=4, classes=2, statistics=("B",))
    here, there = two_classes(rng, 200, share=0.9, apart=1.0), two_classes(rng, 300, apart=1.0)
    own = OwnRows.of(sites_of(recipe, here, there), *here)
    even = personal_head(own, LDA, assign_folds(own.y, 5), np.array([3.0, 3.0]))
    assert even.classifier.calibration.in_force == pytest.approx([0.5, 0.5])
    assert all(one.adaptation.priors is None for one in even.tried)
    assert even.shared.accuracy == pytest.approx(even.shared.balanced_accuracy)
    assert even.shared.own_accuracy != pytest.approx(even.shared.balanced_accuracy)
    alone = here[0][here[1] == 1], here[1][here[1] == 1]
    own = OwnRows.of(sites_of(recipe, alone, there), *alone)
    with pytest.raises(HeadError, match="is 0 for every class that this site has rows of"):
        personal_head(own, LDA, assign_folds(own.y, 5), np.array([1.0, 0.0]))


def test_no_promise_survives_in_a_personal_head_whose_file_is_its_owner_s_alone(rng, tmp_path):
    """Of a new site, with a released total: the head of the total has an epsilon, the site's own one does not."""
    recipe = recipe_of(statistics=("B",), privacy=Privacy(epsilon=50.0, delta=1e-5, radius=20.0))
    x, y = blobs(rng, rows=400)
    released = total_of(recipe, x, y, 2).release()
    assert Classifier.fit(released, "lda").guarantee is not None
    found = personal_head(OwnRows.of_new_site(released, x[:50], y[:50]), LDA, assign_folds(y[:50], 5)).classifier
    assert found.guarantee is None
    found.save(tmp_path / "own.safetensors")
    assert (tmp_path / "own.safetensors").stat().st_mode & 0o777 == 0o600
    loaded = Classifier.load(tmp_path / "own.safetensors")
    assert loaded == found
    assert loaded.personal
    assert "promises no epsilon" in loaded.warning
    with pytest.raises(MessageError, match="promises an epsilon, which it cannot"):
        Classifier.from_bytes(replace(found, guarantee=released.guarantee).to_bytes())


def test_rows_of_a_new_site_are_not_taken_out_and_its_classes_must_be_known(rng):
    recipe = recipe_of(dim=4, classes=2, statistics=("B",))
    total = sites_of(recipe, *(two_classes(rng, 300) for _ in range(3)))
    x, y = two_classes(rng, 100, shift=2.0)
    own = OwnRows.of_new_site(total, x, y)
    assert all(left.moments == total.moments for left, _ in own.without_folds(assign_folds(y, 5)))
    found, (new, labels) = personal_head(own, LDA, assign_folds(y, 5)), two_classes(rng, 2000, shift=2.0)
    before = np.mean(Classifier.fit(total, LDA).predict_numbers(new) == labels)
    assert np.mean(found.classifier.predict_numbers(new) == labels) > before + 0.05
    lone = total_of(recipe, x[y == 0], y[y == 0])
    with pytest.raises(EmbeddingsError, match="class 'class 1' has no rows in the total"):
        OwnRows.of_new_site(lone, x, y)


@pytest.fixture
def at_site(tmp_path, monkeypatch, rng):
    """A folder with a total of two sites, the rows of one, and rows of a new one."""
    monkeypatch.chdir(tmp_path)
    recipe = recipe_of(dim=4, classes=2, statistics=("B",))
    names = np.array(recipe.classes)
    here, there, new = two_classes(rng, 120, share=0.9), two_classes(rng, 200), two_classes(rng, 40)
    sites_of(recipe, here, there).save("total.ghofl")
    for name, (x, y) in (("north", here), ("new", new)):
        np.savez(f"{name}.npz", x=x, y=names[y])
    np.savez("bare.npz", x=new[0])
    return tmp_path


def test_the_command_writes_a_private_head_and_the_others_say_so(at_site):
    said = run("ghofl personal total.ghofl north.npz -o own.safetensors --head lda")
    assert "own priors" in said
    assert "This head is personal" in said
    assert "accuracy on the own mix" in said
    assert "personal" in run("ghofl inspect own.safetensors")
    run("ghofl report total.ghofl --head own.safetensors --data north.npz -o page.html")
    assert "This head is personal" in (at_site / "page.html").read_text()
    result = json.loads(run("ghofl personal total.ghofl new.npz --new-site -o new.safetensors --priors total --json -"))
    assert result["rows"] == 40
    assert result["tried"][0]["changes"] == "nothing"
    for name in ("own.safetensors", "new.safetensors", "page.html"):
        assert (at_site / name).stat().st_mode & 0o777 == 0o600


def test_an_exported_personal_head_says_so_and_is_private(at_site):
    onnx = pytest.importorskip("onnx")
    run("ghofl personal total.ghofl north.npz -o own.safetensors --head lda")
    run("ghofl export own.safetensors -o own.onnx")
    (entry,) = onnx.load("own.onnx").metadata_props
    assert json.loads(entry.value)["personal"].startswith("own ")
    assert (at_site / "own.onnx").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("at_site")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("new.npz", "rows are not what any site in this total sent"),
        ("bare.npz --new-site", "without its labels y"),
        ("north.npz --priors cat=1", "there is no class 'cat'"),
    ],
)
def test_bad_input_is_one_sentence(arguments, said):
    run(f"ghofl personal total.ghofl {arguments} -o own.safetensors", refusal=said)


def test_a_covariance_of_few_own_rows_is_shrunk_as_one_of_few_rows(rng):
    """Own covariance alone: the shrinkage, and with it the head, is that of the site's rows and not of all the others'."""
    recipe, (x, y) = recipe_of(dim=4, classes=2, statistics=("B",)), two_classes(rng, 3000)
    whole, own = gaussians_of(recipe, x, y), gaussians_of(recipe, x[:30], y[:30])
    alone = Adaptation(means=0.0, covariance=1.0).apply(whole, own)
    assert alone.rows == pytest.approx(30)
    assert alone.shared_shrinkage() == pytest.approx(own.shared_shrinkage())
    assert alone.counts / alone.rows == pytest.approx(whole.counts / whole.rows)
    half = Adaptation(means=20.0, covariance=0.5).apply(whole, own)
    assert half.rows == pytest.approx(1 / (0.25 / 3000 + 0.25 / 30))
    assert Adaptation(means=20.0).apply(whole, own).rows == 3000
