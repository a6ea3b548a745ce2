"""Every door puts a recipe together with one function: no option is lost, and privacy comes last."""

import dataclasses
import warnings

import numpy as np
import pytest

import ghofl
from ghofl.errors import PrivacyError, RecipeError
from ghofl.features import TOLERATED_CLIPPING, Features, unit_scale
from ghofl.planning.assembly import assemble
from ghofl.recipe import DEFAULT_BUDGET, OPTIONS, Encoder, Limits, Privacy, RecipeOptions

CLASSES, ENCODER = tuple("abcdef"), Encoder(dim=96, name="mine", fingerprint="f" * 64)
ANCHOR = tuple(np.linspace(0.0, 1.0, 96))
EPSILON = {"epsilon": 1.0}


def recipe_of(public=None, protected=None, example=None, **options):
    """The recipe of these options; where they do not say what sites send, it is B."""
    asked = RecipeOptions(**options)
    if asked.budget is None and not asked.chosen_space:
        asked = dataclasses.replace(asked, statistics=("B",))
    return assemble(asked, CLASSES, ENCODER, public=public, protected=protected, example=example).recipe


@pytest.mark.parametrize("budget", [None, 60_000, 400_000])
@pytest.mark.parametrize(
    ("options", "path", "expected"),
    [
        ({"power": 0.75}, "transform.power", 0.75),
        ({"power": 1.0}, "transform.power", 1.0),
        ({"unit_length": True}, "transform.unit_length", True),
        ({"anchor": ANCHOR}, "transform.anchor", ANCHOR),
        ({"bits": 7}, "grid.bits", 7),
        ({"scale": 3.25}, "grid.scale", 3.25),
        ({}, "encoder.fingerprint", "f" * 64),
        ({"unit_length": True, **EPSILON}, "privacy.epsilon", 1.0),
        ({"unit_length": True, **EPSILON}, "privacy.delta", 1e-5),
        ({"epsilon": 1.0, "radius": 5.0}, "privacy.radius", 5.0),
        ({"epsilon": 1.0, "delta": 1e-7, "radius": 5.0}, "privacy.delta", 1e-7),
        ({"epsilon": 1.0, "radius": 5.0, "noise": "local"}, "privacy.noise", "local"),
        ({"secure": True}, "privacy.secure", True),
        ({"min_count": 7}, "privacy.min_count", 7),
        ({"min_count": 7, "merge_into": "b"}, "privacy.merge_into", "b"),
        ({"min_cohort": 4}, "privacy.min_cohort", 4),
        ({"rounding": 3}, "privacy.rounding", 3),
        ({"unit": "client", "client_rows": 9}, "privacy.client_rows", 9),
    ],
    ids=lambda value: str(value)[:50],
)
def test_every_option_is_in_the_recipe_with_a_budget_and_without(budget, options, path, expected):
    value = recipe_of(budget=budget, **options)
    for name in path.split("."):
        value = getattr(value, name)
    assert value == expected


def test_a_budget_takes_square_roots_of_rows_that_are_never_negative_and_of_no_others(rng):
    """On signed vectors the signed square root costs accuracy and log loss."""
    signed = rng.normal(size=(40, ENCODER.dim))
    for rows, power in ((np.abs(signed), 0.5), (signed, 1.0), (np.maximum(signed, 0.0), 0.5)):
        for given in ("public", "protected", "example"):
            assert recipe_of(budget=30_000, **{given: rows}).transform.power == power
        assert recipe_of(public=rows, statistics=("B",)).transform.power == 1.0
        assert recipe_of(budget=30_000, power=0.5, public=rows).transform.power == 0.5
    assert recipe_of(budget=30_000).transform.power == 1.0, "nothing says what rows are like"
    moved = tuple(np.full(ENCODER.dim, 0.1).tolist())
    assert recipe_of(budget=30_000, anchor=moved, public=np.abs(signed)).transform.power == 1.0


def test_under_epsilon_the_power_does_not_depend_on_protected_rows(rng):
    rows = np.abs(rng.normal(size=(40, ENCODER.dim)))
    promised = {"epsilon": 1.0, "unit_length": True, "budget": 30_000}
    assert recipe_of(protected=rows, **promised) == recipe_of(protected=-rows, **promised)


def test_a_budget_leaves_a_given_scale_the_grid_that_it_is_meant_for(rng):
    """A budget once chose 6 bits for a scale that needs 8, and every site was told not to send its message."""
    x = np.abs(rng.normal(size=(200, ENCODER.dim)))
    for budget in (10_000, 20_000, 65_000, 10**7):
        recipe = recipe_of(budget=budget, scale=20.0, example=x)
        assert (recipe.grid.bits, recipe.grid.scale) == (8, 20.0)
        assert Features.of(recipe).rows(x)[1].share <= TOLERATED_CLIPPING
        assert recipe_of(budget=min(budget, 65_000)).grid.bits == 6
        assert recipe_of(budget=budget, scale=20.0, bits=6).grid.bits == 6


@pytest.mark.parametrize("scale", [20.0, 200.0])
def test_a_scale_that_clips_the_given_rows_is_announced_with_the_recipe(rng, scale):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        recipe_of(scale=scale, public=rng.normal(size=(50, ENCODER.dim)))
    texts = [str(each.message) for each in told]
    assert any("fell outside the 8-bit grid" in text and "clips none of these rows" in text for text in texts) == (
        scale > 100
    )


@pytest.mark.parametrize("budget", [4_000, 9_000, 20_000, 60_000, 10**6])
@pytest.mark.filterwarnings("ignore::ghofl.errors.CalibrationWarning")  # of means alone
def test_a_budget_that_names_a_head_builds_that_head(rng, budget):
    y = np.arange(4000) % len(CLASSES)
    x = rng.normal(size=(4000, ENCODER.dim)) + 2.0 * np.eye(len(CLASSES), ENCODER.dim)[y]
    found = assemble(RecipeOptions(budget=budget), CLASSES, ENCODER, public=x)
    sent = ghofl.message(found.recipe, "north", x, np.array(CLASSES)[y])
    built = ghofl.fit(ghofl.total([sent]))
    options = ", ".join(f"{name}={value}" for name, value in built.options.items())
    assert f"head {built.head}{f'({options})' if options else ''} from enough rows" in found.proposal.why


def test_a_budget_takes_the_seed_of_the_user():
    recipe = recipe_of(budget=30_000, seed=5)
    assert recipe.sketch is not None
    assert recipe.sketch.seed == 5
    lifted = recipe_of(budget=10**7, seed=5)
    assert lifted.lift is not None
    assert lifted.lift.seed == 5


@pytest.mark.parametrize("given", [{"statistics": ("S",)}, {"project": 8}, {"lift": 200}, {"sketch": 8}])
def test_a_budget_and_what_it_chooses_are_not_given_together(given):
    (name,) = given
    with pytest.raises(RecipeError, match=rf"a `budget` chooses .*`{name}` was given too"):
        recipe_of(budget=60_000, **given)


@pytest.mark.parametrize("section", [Privacy, Limits])
def test_the_options_of_a_section_are_its_fields(section):
    """A field that the commands cannot set, or an option that goes nowhere, is found here."""
    name = section.__name__.lower()
    options = {o.name for o in OPTIONS.values() if o.key.startswith(f"{name}.")}
    assert options == {f.name for f in dataclasses.fields(section)}


def test_where_nothing_says_what_sites_send_it_is_the_best_that_fits_the_default_budget():
    assert assemble(RecipeOptions(), CLASSES, ENCODER) == assemble(
        RecipeOptions(budget=DEFAULT_BUDGET), CLASSES, ENCODER
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"keep": True}, r"`keep` was given too"),
        ({"keep": True, "statistics": ("B",)}, "there is no lift; give it too"),
        ({"keep": True, "lift": 200, "sketch": 8}, "a recipe has one of them"),
    ],
)
def test_what_keep_cannot_be_given_with_is_named(options, says):
    with pytest.raises(RecipeError, match=says):
        assemble(RecipeOptions(**options), CLASSES, ENCODER)


def test_rows_per_site_are_for_a_budget():
    few, many = (assemble(RecipeOptions(site_rows=n), CLASSES, ENCODER).proposal for n in (50, 10**6))
    assert few.bytes < many.bytes
    with pytest.raises(RecipeError, match=r"`site_rows` is for a budget, and sketch already says"):
        recipe_of(site_rows=50, sketch=8)


BOUNDED = {
    "unit length": {"unit_length": True, **EPSILON},
    "radius": {"epsilon": 1.0, "radius": 5.0},
    "scale and radius": {"scale": 4.0, "epsilon": 1.0, "radius": 5.0},
    "projection": {"project": 16, "unit_length": True, **EPSILON},
    "projection and radius": {"project": 16, "epsilon": 1.0, "radius": 5.0},
    "budget": {"budget": 60_000, **EPSILON},
    "budget and radius": {"budget": 60_000, "epsilon": 1.0, "radius": 5.0},
    "whole section": vars(Privacy(epsilon=1.0, delta=1e-5, radius=5.0)),
}


@pytest.mark.parametrize("options", BOUNDED.values(), ids=BOUNDED)
def test_under_epsilon_nothing_in_a_recipe_depends_on_protected_rows(rng, options):
    x = rng.normal(size=(50, 96))
    recipes = {recipe_of(protected=rows, **options) for rows in (x, 1000.0 * x, x[:0])}
    assert len(recipes) == 1
    (recipe,) = recipes
    assert recipe.privacy.epsilon == 1.0
    fitted = recipe_of(public=x, protected=1000.0 * x, **options)
    assert fitted == recipe_of(public=x, **options), "public rows are what the grid is fitted to"


def test_without_a_bound_on_rows_epsilon_says_what_to_give(rng):
    with pytest.raises(PrivacyError, match=r"would tell about them.*`unit_length`.*`radius`"):
        recipe_of(protected=rng.normal(size=(50, 96)), **EPSILON)
    for options in ({}, {"scale": 4.0}, {"budget": 60_000, "scale": 4.0}):
        with pytest.raises(PrivacyError, match="write `radius`, or `unit_length`"):
            recipe_of(**EPSILON, **options)


def test_a_budget_under_epsilon_scales_rows_to_unit_length_and_says_so():
    found = assemble(RecipeOptions(budget=60_000, **EPSILON), CLASSES, ENCODER)
    assert found.recipe.transform.unit_length
    assert found.recipe.grid.scale == unit_scale(found.recipe.grid, 96)
    assert "Rows are scaled to length 1" in found.notes[0]
    given = assemble(RecipeOptions(budget=60_000, epsilon=1.0, radius=5.0), CLASSES, ENCODER)
    assert not given.recipe.transform.unit_length
    assert given.notes == ()


def test_a_budget_under_epsilon_stays_with_statistics_of_all_classes():
    """Noise in the covariance of one class is as large as in the shared one, on a sixth of its rows here."""
    for budget in (60_000, 10**9):
        recipe = recipe_of(budget=budget, **EPSILON)
        assert recipe.statistics == ("N", "A", "B")
        assert (recipe.sketch, recipe.lift) == (None, None)


@pytest.mark.parametrize("project", [None, 24])
@pytest.mark.parametrize("radius", [0.02, 1.0, 5.0, 700.0])
def test_the_grid_for_a_radius_fits_rows_of_that_length(rng, radius, project):
    """Neither clipped nor lost between two steps, whatever the unit of the embedding."""
    recipe = recipe_of(project=project, epsilon=1.0, radius=radius)
    features = Features.of(recipe)
    rows = rng.normal(size=(400, 96))
    rows *= radius * (1.0 if project is None else 2.0) / np.linalg.norm(rows, axis=1, keepdims=True)
    q, clipping = features.rows(rows)
    assert clipping.share < 1e-3
    assert np.abs(q).max() > 0.25 * recipe.grid.bound
    assert np.linalg.norm(features.values(rows), axis=1).mean() == pytest.approx(radius, rel=0.12)


def test_limits_of_one_site_go_into_the_recipe():
    assert assemble(RecipeOptions(max_rows=20_000), ("cat", "dog"), Encoder(dim=4)).recipe.max_rows == 20_000
    assert assemble(RecipeOptions(), ("cat", "dog"), Encoder(dim=4)).recipe.max_rows == 1_000_000


def test_columns_that_vanish_on_the_grid_are_named_in_a_note():
    rng = np.random.default_rng(0)
    even = rng.normal(size=(200, 96))
    uneven = even * np.where(np.arange(96) < 24, 1e-4, 1.0)
    plain = RecipeOptions(statistics=("B",))
    notes = assemble(plain, CLASSES, ENCODER, protected=uneven).notes
    assert any("25% of the columns" in note and "schema" in note for note in notes), notes
    assert not any("columns" in note for note in assemble(plain, CLASSES, ENCODER, protected=even).notes)


def test_under_an_epsilon_no_protected_row_makes_a_note():
    uneven = np.random.default_rng(0).normal(size=(200, 96)) * np.where(np.arange(96) < 24, 1e-4, 1.0)
    options = RecipeOptions(epsilon=1.0, radius=5.0)
    assert assemble(options, CLASSES, ENCODER, protected=uneven).notes == assemble(options, CLASSES, ENCODER).notes


@pytest.mark.parametrize(("rows", "is_lifted"), [(2870, False), (5000, True)])
def test_a_lift_is_proposed_only_where_there_are_as_many_rows(rows, is_lifted, rng):
    """Of 2,870 photos a lift of 136 MB was worse than plain class covariances of 8."""
    x = np.abs(rng.normal(size=(rows, 1280)))
    options = RecipeOptions(budget=256 * 10**6)
    recipe = assemble(options, ("a", "b", "c", "d"), Encoder(dim=1280), protected=x).recipe
    assert (recipe.lift is not None) == is_lifted


@pytest.mark.parametrize("dim", [64, 1280])
def test_a_proposal_is_made_on_the_finest_grid_too(dim):
    """Sums of a wide sketch would overflow there, and are no reason to propose nothing."""
    recipe = ghofl.recipe_for(["a", "b"], encoder=ghofl.Encoder(dim=dim), bits=16, scale=100.0, budget=50_000_000)
    assert recipe.grid.bits == 16
