"""The recipe's [privacy] section is kept from rows to heads, and what was promised travels with the result."""

import json
from dataclasses import replace

import numpy as np
import pytest
from test_cli import ghofl, process

from federations import blobs, moments_of, recipe_of
from ghofl import (
    Classifier,
    Features,
    Gaussians,
    HeadSpec,
    Lift,
    Limits,
    Message,
    Moments,
    Privacy,
    Projection,
    Recipe,
    Sketch,
    Total,
    Transform,
)
from ghofl.errors import MessageError, PrivacyError, RecipeError
from ghofl.features import radius_of, unit_scale, usual_length
from ghofl.gaussians import Sums
from ghofl.heads import HEADS
from ghofl.moments import Layout
from ghofl.privacy import (
    NoiseStream,
    as_vector,
    before_noise,
    draw_noise,
    entry_bound,
    from_vector,
    length,
    plan_of,
    protect,
    sensitivity,
    sketch_norm,
)
from ghofl.secure import RoundFailedError
from ghofl.simulation import partition
from ghofl.simulation.demo import digits
from ghofl.simulation.simulate import Cohort, recipe_for, simulate

NOISE = {"radius": 1.0, "epsilon": 4.0, "delta": 1e-5}
MECHANISMS = {
    "central": Privacy(**NOISE),
    "distributed": Privacy(**NOISE, noise="distributed", secure=True, min_cohort=3),
    "local": Privacy(**NOISE, noise="local"),
}
SPACES = {
    "plain": {},
    "projection": {"projection": Projection(dim=4)},
    "lift": {"lift": Lift(dim=9)},
    "sketch": {"sketch": Sketch(dim=3), "statistics": ("B",)},
    "squares": {"statistics": ("D",)},
}


def private_recipe(privacy=MECHANISMS["central"], **parts):
    """Rows of unit length around an anchor, on a grid that was chosen without them."""
    transform = Transform(unit_length=True, anchor=(0.5, -0.25, 0.0, 1.0, 0.0, 0.0))
    return recipe_of(**{"transform": transform, "scale": 100.0, "privacy": privacy, **parts})


@pytest.fixture(scope="module")
def rows():
    return blobs(np.random.default_rng(3), rows=2000, spread=8.0)


def messages_of(recipe, x, y, sites=5, stream=None):
    for i, part in enumerate(np.array_split(np.arange(len(y)), sites)):
        yield Message.of(moments_of(recipe, x[part], y[part]), recipe, f"site-{i}", stream)


def released_total(recipe, x, y, sites=5, stream=None):
    """A released total by whichever way the recipe asks for."""
    if not recipe.privacy.secure:
        return Total.of(messages_of(recipe, x, y, sites, stream), recipe).release(stream)
    parts = np.array_split(np.arange(len(y)), sites)
    vectors = [as_vector(protect(moments_of(recipe, x[p], y[p]), recipe, stream), recipe) for p in parts]
    return Total.of_round(sum(vectors), recipe, [f"site-{i}" for i in range(sites)]).release(stream)


# ------------------------------------------------------------------------------------------------ rows and bounds


@pytest.mark.parametrize("space", SPACES)
def test_no_feature_row_is_longer_than_the_radius(rng, space):
    recipe = private_recipe(replace(MECHANISMS["central"], radius=0.6), **SPACES[space])
    q, _ = Features.of(recipe).rows(rng.normal(size=(500, 6)) * rng.exponential(9.0, size=(500, 1)))
    lengths = np.square(q.astype(np.int64)).sum(axis=1)
    assert lengths.max() <= radius_of(recipe) ** 2
    assert lengths.max() >= 0.9 * radius_of(recipe) ** 2 or space == "lift"


def test_rows_of_unit_length_around_an_anchor_are_on_the_sphere_up_to_the_grid():
    recipe = private_recipe()
    x = np.array([[3.0, 1.0, 0.0, 1.0, 5.0, 2.0], [0.5, -0.25, 0.0, 1.0, 0.0, 0.0]])
    lengths = np.linalg.norm(Features.of(recipe).values(x), axis=1)
    assert lengths[0] == pytest.approx(1.0, abs=0.02)
    assert lengths[0] <= 1.0
    assert lengths[1] == 0.0, "a row that is the anchor keeps its length of zero"


@pytest.mark.parametrize("space", SPACES)
def test_one_record_moves_what_leaves_a_site_by_at_most_the_sensitivity(rng, space):
    """End to end: embeddings through features, moments and rounding, before any noise."""
    privacy = Privacy(radius=0.8, rounding=3)
    recipe = private_recipe(privacy, **SPACES[space])
    features, layout = Features.of(recipe), Layout.of(recipe)
    norm = None if features.sketch is None or not layout.sketch else sketch_norm(features.sketch)
    shifts = {name: 3 for name in layout.shapes if name not in "NA"}
    bound = sensitivity(layout, radius_of(recipe), sketch_norm=norm, shifts=shifts).value
    x, y = rng.normal(size=(40, 6)) * 3, rng.integers(4, size=40)
    before = protect(moments_of(recipe, x, y), recipe)
    for trial in range(60):
        row = rng.normal(size=(1, 6)) * 10.0 ** rng.uniform(-2, 4)
        moved = moments_of(recipe, np.vstack([x, row]), np.append(y, trial % 4))
        assert length(protect(moved, recipe) - before) <= bound


def test_the_usual_length_is_the_mean_one_after_projection_and_lift(rng):
    x = rng.normal(size=(2000, 64))
    for parts in ({}, {"projection": Projection(dim=16)}, {"lift": Lift(dim=128)}):
        recipe = recipe_of(dim=64, bits=12, scale=2000.0, transform=Transform(unit_length=True), **parts)
        values = Features.of(recipe).values(x)
        assert np.sqrt(np.square(values).sum(axis=1).mean()) == pytest.approx(usual_length(recipe), rel=0.03)


def test_rows_that_were_not_clipped_get_no_message(rows):
    recipe = private_recipe(replace(MECHANISMS["central"], radius=0.5))
    unclipped = replace(recipe, privacy=Privacy())
    with pytest.raises(MessageError, match=r"rows longer than privacy.radius, which is 50 steps"):
        Message.of(moments_of(unclipped, *rows), recipe)
    honest = Message.of(moments_of(recipe, *rows), recipe)
    forged = replace(honest, moments=moments_of(unclipped, *rows))
    with pytest.raises(MessageError, match="rows longer than"):
        Message.from_bytes(forged.to_bytes(), recipe)


# ---------------------------------------------------------------------------------------------- noise and heads


@pytest.mark.slow
@pytest.mark.parametrize("statistics", [("D", "B"), ("S",)])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_head_that_the_statistics_allow_is_built_from_a_noisy_total(rows, mechanism, statistics):
    recipe = private_recipe(MECHANISMS[mechanism], statistics=statistics, sketch=Sketch(dim=3))
    total = released_total(recipe, *rows, stream=NoiseStream(mechanism.encode()))
    assert total.guarantee == plan_of(recipe).guarantee
    for name in HEADS:
        if HeadSpec(name).is_possible(total.moments.layout, recipe):
            classifier = Classifier.fit(total, name)
            assert classifier.guarantee == total.guarantee
            assert np.mean(classifier.predict_numbers(rows[0]) == rows[1]) > 0.9, name


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_guarantee_survives_the_files_of_totals_and_heads(rows, tmp_path, mechanism):
    recipe = private_recipe(MECHANISMS[mechanism])
    total = released_total(recipe, *rows)
    total.save(tmp_path / "total.ghofl")
    assert Total.load(tmp_path / "total.ghofl") == total
    Classifier.fit(total, "lda").save(tmp_path / "lda.safetensors")
    assert Classifier.load(tmp_path / "lda.safetensors").guarantee == total.guarantee


def test_a_guarantee_that_the_recipe_does_not_give_is_refused(rows):
    recipe = private_recipe()
    total = released_total(recipe, *rows)
    better = released_total(private_recipe(replace(MECHANISMS["central"], epsilon=1.0)), *rows).guarantee
    with pytest.raises(MessageError, match="not the one of its recipe"):
        Total.from_bytes(replace(total, guarantee=better).to_bytes())


def test_no_head_is_built_before_the_noise_that_the_recipe_promises(rows):
    exact = Total.of(messages_of(private_recipe(), *rows), private_recipe())
    with pytest.raises(PrivacyError, match="ghofl release total.ghofl"):
        Classifier.fit(exact, "lda")


def test_nothing_adds_to_or_is_taken_from_a_released_total(rows):
    recipe = private_recipe()
    messages = list(messages_of(recipe, *rows))
    released = Total.of(messages[1:], recipe).release()
    with pytest.raises(PrivacyError, match="cannot add to a released total"):
        released + messages[0]
    with pytest.raises(PrivacyError, match="cannot subtract from a released total"):
        released - messages[1]


def test_totals_of_local_noise_add_and_subtract_exactly(rows):
    """The noise is in the messages: taking a message out takes its noise out."""
    recipe = private_recipe(MECHANISMS["local"])
    messages = [Message.from_bytes(m.to_bytes(), recipe) for m in messages_of(recipe, *rows)]
    everyone = Total.of(messages, recipe)
    assert everyone - messages[2] == Total.of(messages[:2] + messages[3:], recipe)
    assert everyone - messages[2] + messages[2] == everyone


def test_a_released_total_does_not_tell_rows_and_hashes_of_sites(rows):
    released = released_total(private_recipe(), *rows)
    assert {(e.rows, e.sha256) for e in released.roster} == {(None, "")}
    assert [e.site for e in released.roster] == [f"site-{i}" for i in range(5)]


@pytest.mark.slow
def test_noise_has_the_deviation_that_a_total_says(rows):
    for mechanism, privacy in MECHANISMS.items():
        recipe = private_recipe(privacy, statistics=("D", "B"))
        exact = moments_of(recipe, *rows)
        draws = [released_total(recipe, *rows, stream=NoiseStream(b"%d" % i)) for i in range(12)]
        for name in ("N", "A", "D"):
            seen = np.std([total.moments.blocks[name] - exact.blocks[name] for total in draws])
            assert seen == pytest.approx(draws[0].deviation(name), rel=0.5 if name == "N" else 0.2), mechanism


def test_the_same_noisy_total_always_gives_the_same_head(rows):
    total = released_total(private_recipe(), *rows)
    assert Classifier.fit(total, "rda").to_bytes() == Classifier.fit(total, "rda").to_bytes()


def test_noise_shrinks_towards_fewer_parameters_as_it_grows(rows):
    """With noise that hides all of S, class covariances are the shared one, and that is a sphere."""
    recipe = private_recipe(replace(MECHANISMS["central"], epsilon=0.02))
    total = released_total(recipe, *rows, stream=NoiseStream(b"much"))
    gaussians = Gaussians.of_total(total, Features.of(recipe))
    pooled = gaussians.pooled()
    assert np.allclose(pooled, np.eye(6) * np.trace(pooled) / 6, atol=0.2 * np.trace(pooled))
    exact = Gaussians.estimate(moments_of(recipe, *rows), Features.of(recipe).unit)
    assert np.isfinite(gaussians.means).all()
    with pytest.raises(PrivacyError, match="a larger epsilon"):
        Sums.of_repaired({"N": np.zeros(2), "A": np.zeros((2, 3)), "B": np.eye(3)}, 1.0, {"B": 1.0})
    assert gaussians.means.shape == exact.means.shape


def test_clients_are_protected_by_cutting_their_moments(rows):
    privacy = replace(MECHANISMS["local"], unit="client", client_rows=20)
    recipe = private_recipe(privacy)
    plan = plan_of(recipe)
    central = replace(recipe, privacy=replace(privacy, noise="central"))
    cut = protect(moments_of(central, *rows), central)
    assert length(cut, plan.scales) <= plan.limit
    message = Message.from_bytes(Message.of(moments_of(central, *rows), central).to_bytes(), central)
    assert message.moments == cut
    assert Message.from_bytes(Message.of(moments_of(recipe, *rows), recipe).to_bytes(), recipe)


# --------------------------------------------------------------------------------------- messages and plausibility


@pytest.mark.parametrize("privacy", [*MECHANISMS.values(), Privacy(rounding=5), Privacy(radius=0.7, rounding=9)])
def test_what_leaves_a_site_survives_its_file(rows, privacy):
    recipe = private_recipe(replace(privacy, secure=False, noise="local" if privacy.secure else privacy.noise))
    message = Message.of(moments_of(recipe, *rows), recipe, "site")
    assert Message.from_bytes(message.to_bytes(), recipe) == message


@pytest.mark.parametrize("block", ["N", "A", "B", "D"])
def test_a_message_with_local_noise_is_still_checked_up_to_what_noise_reaches(rows, block):
    recipe = private_recipe(MECHANISMS["local"], statistics=("D", "B"))
    message = Message.of(moments_of(recipe, *rows), recipe, "site")
    blocks = {name: b.copy() for name, b in message.moments.blocks.items()}
    blocks[block].flat[0] = -(10**6) if block == "N" else 10**12
    forged = replace(message, moments=Moments(message.moments.layout, blocks))
    with pytest.raises(MessageError, match="counts are never negative beyond the noise|is larger than its count"):
        Message.from_bytes(forged.to_bytes(), recipe)


def test_a_recipe_with_secure_aggregation_makes_no_plain_messages_or_totals(rows):
    recipe = private_recipe(Privacy(secure=True))
    with pytest.raises(MessageError, match="a message would show the server"):
        Message.of(moments_of(recipe, *rows), recipe)
    with pytest.raises(MessageError, match="never seen one by one"):
        Total.of([], recipe)


@pytest.mark.parametrize("rounding", [None, 4])
def test_a_vector_and_back_is_what_left_the_site_and_stays_in_its_bound(rows, rounding):
    recipe = private_recipe(Privacy(radius=1.0, secure=True, rounding=rounding), statistics=("D", "B"))
    recipe = replace(recipe, limits=Limits(max_rows=len(rows[1])))
    left = protect(moments_of(recipe, *rows), recipe)
    vector = as_vector(left, recipe)
    assert from_vector(vector, recipe) == left
    assert np.abs(vector).max() <= entry_bound(recipe)


def test_rows_beyond_the_limit_are_cut_under_epsilon_and_one_more_moves_nothing_further(rows):
    """Refusing them would be an answer without noise; cutting each entry to a fixed range is as good as fewer rows."""
    promise = Privacy(**NOISE, noise="distributed", secure=True, min_cohort=2)
    recipe = replace(private_recipe(promise), limits=Limits(max_rows=10))
    x, y = rows
    more, fewer = (moments_of(recipe, x[:n], y[:n]) for n in (200, 199))
    cut, cut_fewer = before_noise(more, recipe), before_noise(fewer, recipe)
    for name, block in cut.blocks.items():
        moved = np.abs(more.blocks[name] - fewer.blocks[name])
        assert (np.abs(block - cut_fewer.blocks[name]) <= moved).all()
    assert cut.counts.max() == 10 < more.counts.max()
    assert np.abs(as_vector(draw_noise(cut, recipe), recipe)).max() <= entry_bound(recipe)
    few = moments_of(recipe, x[:10], y[:10])
    assert before_noise(few, recipe) == few


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"unit": "client", **NOISE}, "belong together"),
        ({"client_rows": 5}, "belong together"),
        ({"client_rows": 5, **NOISE}, "belong together"),
        ({"client_rows": 0}, "client_rows is 0"),
        ({"rounding": 41}, "rounding is 41"),
        ({"rounding": 4, "unit": "client"}, "is for the unit 'record'"),
        ({"merge_into": "class 1"}, "write min_count too"),
    ],
)
def test_privacy_sections_that_cannot_be_kept_are_refused(values, says):
    with pytest.raises(RecipeError, match=says):
        Privacy(**values)


def test_small_classes_are_merged_only_into_a_class_that_exists():
    with pytest.raises(RecipeError, match="not one of the classes"):
        recipe_of(privacy=Privacy(min_count=3, merge_into="rest"))


# ------------------------------------------------------------------------------------------------ minimum counts


@pytest.fixture
def few(rows):
    """Rows of which class 3 has only two."""
    x, y = rows
    keep = np.flatnonzero((y != 3) | (np.cumsum(y == 3) <= 2))
    return x[keep], y[keep]


@pytest.mark.parametrize("merge_into", ["", "class 0"])
def test_small_classes_are_gone_before_any_head_is_built(few, merge_into):
    recipe = recipe_of(privacy=Privacy(min_count=3, merge_into=merge_into))
    exact = Total.of(messages_of(recipe, *few), recipe)
    classifier = Classifier.fit(exact, "lda")
    assert 3 not in classifier.predict_numbers(few[0])
    assert "class 3" in classifier.revealed or "classes 3 has" in classifier.revealed
    assert ("counted in class 0" in classifier.revealed) == bool(merge_into)
    released = exact.release()
    assert released.moments.counts[3] == 0
    assert Total.from_bytes(released.to_bytes()) == released
    assert Classifier.fit(released, "lda").to_bytes() == classifier.to_bytes()
    assert Classifier.from_bytes(classifier.to_bytes()).revealed == classifier.revealed


def test_a_total_is_released_once(few):
    recipe = recipe_of(privacy=Privacy(min_count=3))
    with pytest.raises(PrivacyError, match="released already"):
        Total.of(messages_of(recipe, *few), recipe).release().release()


def test_a_total_of_too_few_sites_is_not_used(few):
    recipe = recipe_of(privacy=Privacy(min_cohort=6))
    with pytest.raises(PrivacyError, match="min_cohort is 6"):
        Classifier.fit(Total.of(messages_of(recipe, *few, sites=5), recipe), "lda")


# ---------------------------------------------------------------------------------------- simulations and commands


@pytest.fixture(scope="module")
def data():
    return digits()


def run(data, clients=6, heads="lda", privacy=None, cohort=None, stream=None, **options):
    specs = HeadSpec.parse_list(heads)
    parts = partition.iid(data.y_train, clients, np.random.default_rng(0))
    recipe = recipe_for(data, specs.values(), **options)
    recipe = recipe if privacy is None else replace(recipe, privacy=privacy)
    return simulate(data, parts, recipe, specs, cohort=cohort, stream=stream), parts


@pytest.mark.parametrize("drops", [{}, {"mask": 0.2}, {"advertise": 0.1, "share": 0.1, "endorse": 0.1, "reveal": 0.1}])
def test_a_secure_simulation_has_the_plain_total_of_its_survivors_to_the_bit(data, drops):
    cohort = Cohort(drops, dropout=0.4, corruption=0.0)
    secured, parts = run(data, 10, "lda,nb", Privacy(secure=True), cohort)
    survivors = [int(name[-5:]) for name in secured.secure_round.survivors]
    assert len(survivors) == 10 - round(10 * sum(drops.get(s, 0.0) for s in ("advertise", "share", "mask")))
    plain = moments_of(replace(secured.total.recipe, privacy=Privacy()), *_of(data, [parts[i] for i in survivors]))
    assert secured.total.moments == plain
    assert secured.to_dict()["secure"]["survivors"] == len(survivors)
    assert secured.heads["nb"].payload_bytes < secured.heads["lda"].payload_bytes


def _of(data, parts):
    rows = np.concatenate(parts)
    return data.x_train[rows], data.y_train[rows]


def test_rounding_before_masking_makes_a_smaller_ring(data):
    plain, _ = run(data, 5, privacy=Privacy(secure=True), bits=16, scale=1500.0)
    coarse, _ = run(data, 5, privacy=Privacy(secure=True, rounding=16), bits=16, scale=1500.0)
    assert coarse.secure_round.plan.bits < plain.secure_round.plan.bits
    assert coarse.heads["lda"].accuracy == pytest.approx(plain.heads["lda"].accuracy, abs=0.02)


@pytest.mark.parametrize("noise", ["central", "distributed", "local"])
def test_simulations_with_noise_build_good_heads_and_say_what_is_promised(data, noise):
    privacy = Privacy(radius=1.0, epsilon=8.0, delta=1e-5, noise=noise, secure=noise == "distributed", min_cohort=4)
    grid = {"scale": unit_scale(recipe_of().grid, 64), "unit_length": True, "epsilon": 8.0}
    result, _ = run(data, 6, "lda,nearest_mean", privacy, stream=NoiseStream(b"simulation"), **grid)
    assert result.heads["lda"].accuracy > 0.8
    assert result.to_dict()["guarantee"]["epsilon"] == pytest.approx(8.0)
    assert result.to_dict()["guarantee"]["mechanism"] == noise


def test_noise_for_more_clients_than_may_be_honest_is_refused(data):
    privacy = Privacy(**NOISE, noise="distributed", secure=True, min_cohort=6)
    with pytest.raises(PrivacyError, match=r"this round may end with 3 that keep theirs"):
        run(data, 6, privacy=privacy, cohort=Cohort(dropout=0.2, corruption=0.2))


def test_a_grid_is_not_fitted_to_protected_rows(data):
    specs = HeadSpec.parse_list("lda")
    louder = replace(data, x_train=1000.0 * data.x_train)
    for options in ({}, {"unit_length": True}, {"project": 8}, {"scale": 3.0}):
        recipes = [recipe_for(d, specs.values(), **NOISE, **options) for d in (data, louder)]
        assert recipes[0] == recipes[1]
        assert recipes[0].privacy == Privacy(**NOISE)
    public = recipe_for(data, specs.values(), **NOISE, public=data.x_test)
    assert public.grid == recipe_for(data, specs.values(), public=data.x_test).grid


@pytest.fixture
def folder(tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    arrays = {name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez("digits.npz", **arrays)
    np.savez("public.npz", x=data.x_test)
    np.savez("anchor.npz", anchor=data.x_test.mean(axis=0))
    np.savez("north.npz", x=data.x_train[:700], y=data.y_train[:700])
    np.savez("south.npz", x=data.x_train[700:], y=data.y_train[700:])
    return tmp_path


SIMULATE = ("simulate", "--embeddings", "digits.npz", "--clients", "10", "--heads", "lda,nearest_mean")


def test_below_the_threshold_simulate_fails_closed_and_writes_nothing(folder):
    ghofl(*SIMULATE, "--secure", "--drop", "share=0.1", "--drop", "mask=0.2", "--json", "out.json", code=2)
    assert not (folder / "out.json").exists()
    with pytest.raises(RoundFailedError, match="no sum is revealed"):
        run(digits(), 10, privacy=Privacy(secure=True), cohort=Cohort({"mask": 0.3}))


@pytest.mark.parametrize(
    "extra",
    [
        ("--anchor", "mean-of:public.npz"),
        ("--anchor", "mean-of public.npz", "--noise", "distributed", "--secure", "--drop", "reveal=0.1"),
        ("--anchor", "anchor.npz", "--noise", "local"),
        ("--unit", "client", "--client-rows", "300"),
        ("--min-count", "20", "--merge-into", "9", "--delta", "1e-6", "--radius", "0.9"),
    ],
)
@pytest.mark.filterwarnings("ignore::ghofl.errors.EmptyClassWarning")  # the noise decides whether a class is left empty
def test_simulate_takes_the_options_of_privacy(folder, extra):
    result = json.loads(ghofl(*SIMULATE, "--epsilon", "20", "--unit-length", *extra, "--json", "-"))
    assert result["guarantee"]["epsilon"] == pytest.approx(20.0)
    assert result["heads"]["nearest_mean"]["accuracy"] > (0.0 if "client" in extra else 0.4)
    assert ("fewer than" in (result["small_classes"] or "at least")) is False or "--min-count" in extra
    assert "privacy" in ghofl(*SIMULATE, "--epsilon", "20", "--unit-length", *extra)


@pytest.mark.parametrize(
    "wrong",
    [
        ("--epsilon", "1"),
        ("--drop", "mask=0.1"),
        ("--secure", "--drop", "lunch=0.1"),
        ("--epsilon", "1", "--unit-length", "--noise", "distributed"),
        ("--anchor", "digits.npz"),
        ("--secure", "--clients", "2"),
    ],
)
def test_options_of_privacy_that_cannot_work_end_with_code_2(folder, wrong):
    ghofl(*SIMULATE, *wrong, "--json", "out.json", code=2)
    assert not (folder / "out.json").exists()


def told(folder, *arguments):
    """What `simulate` gives as JSON and says on standard error, in a process of its own."""
    done = process(*SIMULATE[:-2], *arguments, "--json", "-", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), " ".join(done.stderr.split())


@pytest.mark.slow
@pytest.mark.parametrize("space", [("--budget", "300kB"), ("--project", "16"), ()])
def test_simulate_keeps_every_promise_whatever_chooses_the_recipe(folder, space):
    """A budget once replaced the recipe that privacy had been applied to, and the promise was gone without a word."""
    promises = ("--epsilon", "8", "--unit-length", "--min-count", "20", "--secure", "--drop", "mask=0.1")
    result, _ = told(folder, "--heads", "lda", *space, *promises)
    assert result["guarantee"]["epsilon"] == pytest.approx(8.0)
    assert result["secure"]["survivors"] == 9
    assert "20 rows" in result["small_classes"]
    assert result["heads"]["lda"]["accuracy"] > 0.7
    if space[:1] == ("--budget",):
        assert result["heads"]["lda"]["payload_bytes"] <= 300_000


@pytest.mark.slow
def test_epsilon_and_a_radius_are_enough_to_simulate(folder):
    """The usual radius was computed, and missed unit length, although another one was given."""
    result = json.loads(ghofl(*SIMULATE[:-1], "lda", "--epsilon", "8", "--radius", "60", "--json", "-"))
    assert result["guarantee"]["epsilon"] == pytest.approx(8.0)
    assert result["heads"]["lda"]["accuracy"] > 0.85
    assert result["clipped_share"] < 0.001
    # Rows ten times as long as the radius leave the grid; the command runs, and says so.
    result, said = told(folder, "--heads", "lda", "--epsilon", "1", "--radius", "5")
    assert result["guarantee"]["epsilon"] == pytest.approx(1.0)
    assert "fell outside the 8-bit grid" in said


def test_a_budget_and_epsilon_are_enough_to_simulate(folder):
    result, said = told(folder, "--budget", "1MB", "--epsilon", "4", "--heads", "best")
    assert result["guarantee"]["epsilon"] == pytest.approx(4.0)
    assert result["heads"]["best"]["accuracy"] > 0.7
    assert "Recipe: head lda" in said
    assert "Rows are scaled to length 1" in said


@pytest.mark.parametrize("budget", [(), ("--budget", "20kB")])
def test_a_recipe_file_keeps_every_option_with_a_budget_and_without(folder, budget):
    ghofl("recipe", "recipe.toml", "--classes", "10", "--dim", "64", *budget, "--unit-length", "--power", "0.75",
          "--anchor", "anchor.npz", "--bits", "7", "--epsilon", "1", "--secure", "--min-count", "5", "--merge-into", "9",
          "--min-cohort", "3")  # fmt: skip
    made = Recipe.load("recipe.toml")
    assert made.transform == Transform(
        power=0.75, unit_length=True, anchor=tuple(map(float, np.load("anchor.npz")["anchor"]))
    )
    assert made.grid.bits == 7
    assert made.grid.scale == unit_scale(made.grid, 64)
    promised = {"epsilon": 1.0, "delta": 1e-5, "secure": True, "min_count": 5, "merge_into": "9", "min_cohort": 3}
    assert made.privacy == Privacy(radius=usual_length(made), **promised)
    ghofl("recipe", "other.toml", "--classes", "10", "--dim", "64", *budget, "--epsilon", "1", "--radius", "5")
    assert Recipe.load("other.toml").privacy.radius == 5.0


def test_a_site_below_the_minimum_count_is_told_before_it_sends(folder):
    x, y = np.load("north.npz")["x"], np.load("north.npz")["y"]
    keep = np.concatenate([np.flatnonzero(y == 0)[:2], np.flatnonzero(y > 0)])
    np.savez("small.npz", x=x[keep], y=y[keep])
    ghofl("recipe", "recipe.toml", "--classes", "10", "--dim", "64", "--scale", "7", "--min-count", "5")
    said = ghofl("moments", "small.npz", "-r", "recipe.toml", "-o", "small.ghofl")
    assert "fewer than 5 rows of class 0 (2 rows)" in said
    ghofl("sum", "small.ghofl", "-r", "recipe.toml", "-o", "total.ghofl")
    assert "classes 0 has fewer than 5 rows" in ghofl("head", "total.ghofl", "-o", "lda.safetensors")
    ghofl("release", "total.ghofl", "-o", "released.ghofl")
    assert json.loads(ghofl("inspect", "released.ghofl", "--json", "-"))["counts"]["0"] == 0


def test_secure_recipes_send_no_files(folder, capsys):
    ghofl("recipe", "recipe.toml", "--classes", "10", "--dim", "64", "--scale", "7", "--secure")
    ghofl("moments", "north.npz", "-r", "recipe.toml", "-o", "north.ghofl", code=2)
    assert "asks for secure aggregation" in capsys.readouterr().err
    assert not (folder / "north.ghofl").exists()
