import json

import numpy as np
import pytest

from federations import blobs, recipe_of, sketched_recipe, total_of
from ghofl import Classifier, Encoder, Features, Grid, Layout, Lift, Message, Recipe, Sketch
from ghofl.errors import MessageError, RecipeError
from ghofl.evaluation import Confusion, expected_calibration_error
from ghofl.evaluation.selection import Report, load_reports
from ghofl.gaussians import Gaussians
from ghofl.heads.best import best_head
from ghofl.outbox import Embedded, count
from ghofl.planning.propose import propose

CLASSES = tuple(map(str, range(20)))


@pytest.mark.parametrize(
    ("recipe", "spec"),
    [
        (recipe_of(statistics=()), "nearest_mean"),
        (recipe_of(statistics=("D",)), "nb"),
        (recipe_of(statistics=("B",)), "lda"),
        (recipe_of(statistics=("B",), lift=Lift(dim=30)), "blend(parts=lda+ridge)"),
        (sketched_recipe(), "hedge"),
        (recipe_of(statistics=("S",)), "hedge"),
        (
            recipe_of(statistics=("B",), lift=Lift(dim=30, keep=True), sketch=Sketch(dim=6, kept=True)),
            "blend(parts=lda+z.hedge)",
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
@pytest.mark.filterwarnings("ignore::ghofl.errors.CalibrationWarning")  # of means alone
def test_the_best_head_follows_from_what_the_total_holds_and_can_be_fitted(recipe, spec, rng):
    assert best_head(Layout.of(recipe), recipe).spec == spec
    x, y = blobs(rng)
    classifier = Classifier.fit(total_of(recipe, x, y), "best")
    assert classifier.head == spec.split("(")[0]
    assert np.isfinite(classifier.scores(x)).all()


def test_more_budget_never_gives_a_smaller_message_of_worse_expectation():
    from ghofl.planning.propose import _expected

    proposals = [propose(b, CLASSES, 256) for b in (20_000, 60_000, 200_000, 10**6, 10**7, 10**9)]
    expected = [_expected(p.recipe) for p in proposals]
    assert expected == sorted(expected)
    assert len({p.recipe.fingerprint for p in proposals}) >= 4


DIMS = (2, 4, 16, 32, 64, 100, 1280)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("dim", DIMS)
def test_no_proposal_leaves_out_statistics_of_its_space_that_fit(dim, classes):
    """Five megabytes at 64 dimensions were spent on naive Bayes, because LDA of few dimensions counted as weaker."""
    from ghofl.planning.propose import _bytes

    names = tuple(map(str, range(classes)))
    for budget in (3_000, 10_000, 50_000, 200_000, 10**6, 5 * 10**6, 256 * 10**6):
        full = [Recipe(names, Encoder(dim=dim), (statistic,), grid=Grid(bits=8)) for statistic in "BS"]
        fits_b, fits_s = (_bytes(recipe, 5000) <= budget for recipe in full)
        try:
            recipe = propose(budget, names, dim).recipe
        except RecipeError:
            assert not fits_b
            continue
        head = best_head(Layout.of(recipe), recipe).spec
        assert not fits_b or head not in ("nb", "nearest_mean")
        assert not fits_s or "hedge" in head


@pytest.mark.parametrize("budget", [60_000, 200_000, 10**6])
def test_a_proposal_for_secure_rounds_counts_entries_at_full_width(budget):
    plain, masked = propose(budget, CLASSES, 64), propose(budget, CLASSES, 64, secure=True)
    assert masked.bytes <= budget
    assert Layout.of(masked.recipe).entries <= Layout.of(plain.recipe).entries
    assert 4 * Layout.of(masked.recipe).entries <= masked.bytes
    assert "in a secure round" in masked.why


@pytest.mark.parametrize("budget", [20_000, 60_000, 200_000, 10**6, 10**7])
def test_a_real_message_fits_the_budget_it_was_proposed_for(budget, rng):
    """Embeddings like those of image encoders: non-negative, a few large entries, correlated."""
    recipe = propose(budget, CLASSES, 256, rows=2000).recipe
    y = rng.integers(20, size=2000)
    x = np.abs(rng.normal(size=(2000, 256)) @ rng.normal(size=(256, 256)) / 16 + rng.normal(size=(20, 256))[y]) ** 2
    from ghofl.features import fit_grid

    features = Features.of(fit_grid(recipe, x))
    moments = count(features, Embedded(x, y)).moments
    assert len(Message.of(moments, features.recipe).to_bytes()) <= budget


def test_a_budget_too_small_for_anything_says_the_least():
    with pytest.raises(RecipeError, match="too small: 20 classes need at least"):
        propose(1000, CLASSES, 256)


def test_calibration_error_is_zero_for_calibrated_guesses_and_large_for_sure_wrong_ones(rng):
    p = rng.uniform(0.5, 1.0, size=200_000)
    y = (rng.uniform(size=200_000) > p).astype(int)
    assert expected_calibration_error(np.stack([p, 1 - p], axis=1), y) < 0.01
    assert expected_calibration_error(np.tile([1.0, 0.0], (10, 1)), np.ones(10, dtype=int)) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["lda", "rda", "student", "sketched_qda"])
def test_gaussian_heads_judged_on_wide_draws_err_on_the_side_of_doubt(name, rng, monkeypatch):
    """Embeddings stray further than Gaussians, so there temperatures are above 1; where variances are all, exactly 1."""
    x, y = blobs(rng)
    recipe = sketched_recipe() if name == "sketched_qda" else recipe_of()
    assert Classifier.fit(total_of(recipe_of(statistics=("D",)), x, y), "nb(shrinkage=0)").temperature == 1.0
    monkeypatch.setattr("ghofl.heads.calibration.dispersion_for", lambda dim, classes: 1.7)
    assert Classifier.fit(total_of(recipe, x, y), name).temperature > 1.0


def report(site, right, wrong, sha="a" * 64):
    return Report("lda", sha, "r" * 64, (site,), Confusion(np.array([[right, wrong], [0, 0]])))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "total"}, {"confusion": [[1]] * 2}, {"confusion": [[-1]]}, {"confusion": [[0.5]]}, {"confusion": None},
        {"head": 3}, {"sites": "all"}, {"head_sha256": "x" * 65},
    ],
)  # fmt: skip
def test_a_hostile_report_is_refused(change, tmp_path):
    (tmp_path / "r.json").write_text(json.dumps({**report("n", 1, 1).to_dict(), **change}))
    with pytest.raises(MessageError):
        load_reports(tmp_path / "r.json")
    (tmp_path / "r.json").write_text("[" * 100_000)
    with pytest.raises(MessageError, match="not a report"):
        load_reports(tmp_path / "r.json")


@pytest.mark.parametrize(
    ("statistics", "rows", "spec"),
    [
        (("S",), 20, "blend(parts=hedge+nearest_mean)"), (("B",), 20, "blend(parts=lda+nearest_mean)"),
        (("D",), 20, "nearest_mean"), ((), 20, "nearest_mean"), (("S",), 400, "hedge"), (("B",), 400, "lda"),
        (("D",), 400, "nb"),
    ],
)  # fmt: skip
def test_of_few_rows_the_best_head_looks_at_angles_too(statistics, rows, spec, rng):
    """Twenty rows in thirty dimensions that all vary alike are few; 400 are not."""
    recipe = recipe_of(dim=30, statistics=statistics)
    x, y = blobs(rng, rows=rows, dim=30)
    gaussians = Gaussians.of_total(total_of(recipe, x, y), Features.of(recipe))
    assert best_head(Layout.of(recipe), recipe, gaussians).spec == spec


def test_rows_are_few_by_the_directions_they_vary_in(rng):
    """Sixty rows of a smooth curve at 100 points vary in three directions: enough for a covariance, not for angles."""
    waves = np.stack([np.sin(np.arange(100) / (5 + k)) for k in range(3)])
    y = np.arange(60) % 3
    x = rng.normal(size=(60, 3)) @ waves + 0.01 * rng.normal(size=(60, 100)) + 0.3 * y[:, None]
    recipe = recipe_of(dim=100, statistics=("S",))
    gaussians = Gaussians.of_total(total_of(recipe, x, y), Features.of(recipe))
    assert gaussians.effective_dim < 4
    assert best_head(Layout.of(recipe), recipe, gaussians).spec == "hedge"


@pytest.mark.slow
def test_best_of_few_rows_is_near_the_best_single_head(rng):
    """Eight classes in 120 dimensions, three rows each; the mean over ten seeds is within a point of any single head."""
    found: dict[str, list[float]] = {}
    for seed in range(10):
        local = np.random.default_rng(seed)
        centres = 0.45 * local.normal(size=(8, 120))
        y = np.arange(824) % 8
        x = centres[y] + local.normal(size=(824, 120))
        total = total_of(recipe_of(dim=120, classes=8), x[:24], y[:24])
        for name in ("nearest_mean", "lda", "student", "best"):
            classifier = Classifier.fit(total, name)
            found.setdefault(name, []).append(float(np.mean(classifier.predict_numbers(x[24:]) == y[24:])))
    means = {name: float(np.mean(values)) for name, values in found.items()}
    assert means["best"] > max(means.values()) - 0.01


@pytest.mark.parametrize("head", ["best", "lda"])
def test_where_positives_are_rare_the_default_finds_them_as_lda_does(head):
    """300 dimensions, 3,600 rows, 1 % positives, one covariance."""
    local, positive = np.random.default_rng(0), 1.2 * (np.arange(300) < 30)

    def rows(count):
        y = (local.random(count) < 0.01).astype(int)
        return local.standard_normal((count, 300)) + y[:, None] * positive, y

    total, (x, y) = total_of(recipe_of(dim=300, classes=2, statistics=("S",)), *rows(3600)), rows(4000)
    predicted = Classifier.fit(total, head).predict_numbers(x)
    assert np.mean([np.mean(predicted[y == c] == c) for c in (0, 1)]) > 0.9
