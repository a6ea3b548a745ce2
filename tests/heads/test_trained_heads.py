import warnings
from dataclasses import replace

import numpy as np
import pytest

from federations import blobs, gaussians_of, recipe_of, total_of
from ghofl import HEADS, Classifier, Features, Gaussians, Lift, Sketch
from ghofl.errors import TrainingWarning
from ghofl.gaussians import Fisher
from ghofl.gaussians.linalg import shrink
from ghofl.heads.blend import BlendOptions, fit_blend
from ghofl.heads.fisher_mix import FisherMixOptions, fit_fisher_mix
from ghofl.heads.hedge import fit_hedge
from ghofl.heads.lda import LDAOptions, fit_lda
from ghofl.heads.proto_hyper import ProtoHyperOptions, fit_proto_hyper
from ghofl.heads.rda import RDAOptions, fit_rda
from ghofl.heads.rules.composed import standardise
from ghofl.heads.student import StudentOptions, fit_student
from ghofl.heads.training import basis_for, widen_basis


@pytest.fixture
def data(rng):
    x, y = blobs(rng, rows=600, spread=1.5)
    return Features.of(recipe_of()).values(x), y, gaussians_of(recipe_of(), x, y)


def accuracy(head, values, y):
    return np.mean(head.predict(values) == y)


@pytest.mark.parametrize("kind", [HEADS["fisher_mix"], HEADS["proto_hyper"]], ids=lambda head: head.name)
def test_defaults_do_not_fall_behind_lda(kind, data):
    values, y, gaussians = data
    assert accuracy(kind.fit(gaussians), values, y) >= accuracy(fit_lda(gaussians), values, y) - 0.01


@pytest.mark.parametrize("kind", [HEADS["fisher_mix"], HEADS["proto_hyper"]], ids=lambda head: head.name)
def test_the_paper_preset_trains_a_working_head(kind, data):
    values, y, gaussians = data
    options = {**kind.Options.preset("paper"), "per_class": 500, "learning_rate": 0.02}
    assert (
        accuracy(kind.fit(gaussians, kind.Options(**options)), values, y)
        > accuracy(fit_lda(gaussians), values, y) - 0.03
    )


@pytest.mark.parametrize("classes", [2, 4, 6, 7, 10])
def test_the_released_fisher_mix_warns_where_it_stays_near_its_random_start(rng, classes):
    """On texts of two and four classes it scored 50.9 and 17.8 %, where LDA has 78.4 and 87.9."""
    x, y = blobs(rng, rows=100 * classes, classes=classes, dim=12)
    gaussians = gaussians_of(recipe_of(dim=12, classes=classes), x, y)
    released = FisherMixOptions(**FisherMixOptions.preset("paper"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit_fisher_mix(gaussians, released)
        fit_fisher_mix(gaussians, replace(released, epochs=400))
        fit_fisher_mix(gaussians)
    assert [each.category for each in told] == [TrainingWarning] * (classes < 7)


def test_with_what_the_released_code_falls_back_on_few_classes_are_learnt_from_every_start(rng):
    y = np.arange(1200) % 4
    x = 0.9 * rng.normal(size=(4, 6))[y] + rng.normal(size=(1200, 6))
    values, gaussians = Features.of(recipe_of()).values(x), gaussians_of(recipe_of(), x, y)
    given = FisherMixOptions.preset("paper") | {"per_class": 10_000, "dispersion": 0.75, "shrinkage": 0.0, "epochs": 80}
    for seed in range(2):
        head = fit_fisher_mix(gaussians, FisherMixOptions(**(given | {"seed": seed})))
        assert accuracy(head, values, y) > accuracy(fit_lda(gaussians), values, y) - 0.03


@pytest.mark.parametrize("kind", [HEADS["fisher_mix"], HEADS["proto_hyper"]], ids=lambda head: head.name)
def test_a_trained_head_is_a_function_of_its_seed(kind, data):
    values, _, gaussians = data
    one, two, other = (kind.fit(gaussians, kind.Options(steps=50, seed=s)).scores(values) for s in (1, 1, 2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("base", ["nb", "lda", "qda"])
def test_proto_hyper_starts_at_its_base(base, data):
    """Without a step the residual is zero, and the scores are the base's in the Fisher space."""
    values, _, gaussians = data
    head = fit_proto_hyper(gaussians, ProtoHyperOptions(base=base, steps=0))
    z = values @ head.matrix - head.shift
    assert head.scores(values) == pytest.approx(dict(head.rule.parts)[base].scores(z))


@pytest.mark.parametrize("kind", [HEADS["fisher_mix"], HEADS["proto_hyper"]], ids=lambda head: head.name)
def test_with_one_covariance_for_all_a_trained_head_stays_at_lda(kind, rng):
    """Draws of one covariance have LDA as their best linear rule; training on finitely many would only add noise."""
    x, y = blobs(rng)
    recipe = recipe_of(statistics=("B",))
    gaussians, values = gaussians_of(recipe, x, y), Features.of(recipe).values(x)
    expected = fit_lda(gaussians, LDAOptions(shrinkage=0.05)).predict(values)
    assert np.mean(kind.fit(gaussians).predict(values) == expected) > 0.99
    assert not np.array_equal(
        kind.fit(gaussians).scores(values), kind.fit(gaussians, kind.Options(steps=20)).scores(values)
    )


def test_proto_hypers_residual_has_the_rank_asked_for(data):
    head = fit_proto_hyper(data[2], ProtoHyperOptions(rank=2, steps=30))
    learned = dict(head.rule.parts)[""]
    assert np.linalg.matrix_rank(learned.inward @ learned.outward) == 2


def test_a_base_that_cannot_be_had_is_refused(rng):
    pooled_only = gaussians_of(recipe_of(statistics=("B",)), *blobs(rng))
    with pytest.raises(ValueError, match="write base=lda"):
        fit_proto_hyper(pooled_only, ProtoHyperOptions(base="qda"))


def test_priors_are_put_back_into_fisher_mix(rng):
    x, y = blobs(rng, rows=2000, spread=0.7)
    keep = (y == 0) | (np.arange(len(y)) % 10 == 0)
    gaussians = gaussians_of(recipe_of(), x[keep], y[keep])
    with_priors, without = fit_fisher_mix(gaussians), fit_fisher_mix(gaussians, FisherMixOptions(prior=0))
    assert with_priors.bias - without.bias == pytest.approx(gaussians.log_priors - np.log(0.25))


def test_extra_directions_are_those_that_class_covariances_couple_to_fishers(data):
    """The leading eigenvectors of Σ_c E_c U Uᵀ E_c outside of U, by its definition; all white under S_W."""
    _, _, gaussians = data
    fisher = Fisher.of_dim(gaussians, 2, gaussians.ease_shrinkage(0.05)).basis
    found = widen_basis(gaussians, fisher, 2)
    within = shrink(gaussians.pooled(), gaussians.ease_shrinkage(0.05)) + 1e-6 * np.eye(len(fisher))
    assert found.T @ within @ found == pytest.approx(np.eye(4), abs=1e-5)
    lower = np.linalg.cholesky(within)
    u, inverse = lower.T @ fisher, np.linalg.inv(lower)
    outside = np.eye(len(u)) - u @ u.T
    excess = [outside @ (inverse @ gaussians.by_class(c) @ inverse.T - np.eye(len(u))) @ u for c in range(4)]
    leading = np.linalg.eigh(sum(f @ f.T for f in excess))[1][:, -2:]
    cosines = np.linalg.svd(leading.T @ (lower.T @ found[:, 2:]))[1]
    assert cosines == pytest.approx([1.0, 1.0], abs=1e-4)


@pytest.mark.parametrize(("classes", "energy"), [(2, 1.0), (4, 0.4)])
@pytest.mark.parametrize("seed", range(6))
def test_extra_directions_are_never_fishers_again(classes, energy, seed):
    """With few classes fewer directions are coupled than there is room for, and the draws had a singular covariance."""
    x, y = blobs(np.random.default_rng(seed), rows=600, classes=classes, spread=1.0)
    gaussians = gaussians_of(recipe_of(classes=classes), x, y)
    found = basis_for(gaussians, energy, None)
    assert found.shape == (6, 6)
    within = shrink(gaussians.pooled(), gaussians.ease_shrinkage(0.05)) + 1e-6 * np.eye(6)
    assert found.T @ within @ found == pytest.approx(np.eye(6), abs=1e-3)


def test_student_with_many_degrees_of_freedom_is_rda(data):
    values, _, gaussians = data
    student = fit_student(gaussians, StudentOptions(blend=0.5, shrinkage=0.1, dof=1e9))
    rda = fit_rda(gaussians, RDAOptions(blend=0.5, shrinkage=0.1))
    difference = student.scores(values) - rda.scores(values)
    assert difference - difference[:, :1] == pytest.approx(np.zeros_like(difference), abs=1e-3)


def test_student_is_the_t_density(data):
    import scipy.stats

    values, _, gaussians = data
    scores = fit_student(gaussians, StudentOptions(blend=1.0, shrinkage=0.0, dof=7)).scores(values)
    for c in range(4):
        density = scipy.stats.multivariate_t(gaussians.means[c], gaussians.pooled(), df=7).logpdf(values)
        constant = scores[:, c] - density - gaussians.log_priors[c]
        assert constant == pytest.approx(np.full(len(values), constant[0]))


def test_standardised_scores_have_mean_zero_and_deviation_one_over_possible_classes(rng):
    scores = rng.normal(size=(20, 5)) * 9 + 4
    scores[:, 3] = -np.inf
    found = standardise(scores)
    assert np.all(found[:, 3] == -np.inf)
    rest = np.delete(found, 3, axis=1)
    assert rest.mean(axis=1) == pytest.approx(np.zeros(20), abs=1e-12)
    assert rest.std(axis=1) == pytest.approx(np.ones(20))
    assert not np.isnan(standardise(np.zeros((2, 3)))).any()


def test_a_blend_refuses_parts_it_cannot_have(data):
    with pytest.raises(ValueError, match="parts is nb; option parts of head 'blend' is one of lda, ridge"):
        fit_blend(data[2], BlendOptions(parts="nb"))
    with pytest.raises(ValueError, match="no \\[sketch\\] section"):
        fit_blend(data[2], BlendOptions(parts="lda+z.student"))


def test_a_lift_and_plain_class_covariances_travel_in_one_message(rng):
    """The kept features' S is that of the plain recipe, to the bit, and both spaces have their head."""
    x, y = blobs(rng, spread=3.0)
    both = recipe_of(statistics=("B",), lift=Lift(dim=30, keep=True), sketch=Sketch(dim=6, kept=True))
    total, plain = total_of(both, x, y, sites=3), total_of(recipe_of(), x, y)
    sketch = Features.of(both).sketch
    inside = total.moments.of_sketch(sketch)
    assert np.array_equal(inside.blocks["S"], plain.moments.blocks["S"])
    assert np.array_equal(inside.sums, plain.moments.sums)
    blend = Classifier.fit(total, "best")
    assert blend.head == "blend"
    alone = fit_hedge(Gaussians.estimate(plain.moments, Features.of(both).unit))
    of_z = dict(blend.rule.parts)["z.hedge"].rule
    assert of_z.inner[1].whiteners == pytest.approx(alone.inner[1].whiteners)
    assert np.mean(blend.predict_numbers(x) == y) > 0.9
