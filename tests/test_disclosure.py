import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli import ghofl

from federations import blobs, recipe_of
from ghofl import Layout, Message, Moments, Privacy, Total
from ghofl.custody.custody import Custody
from ghofl.custody.disclosure import BROKEN, MET, UNKNOWN, Disclosure
from ghofl.custody.policy import Policy
from ghofl.custody.site import Site
from ghofl.custody.storage import FolderStorage
from ghofl.errors import EmbeddingsError, PolicyError, PrivacyError, RecipeError, SiteError
from ghofl.features import Features
from ghofl.outbox import Embedded, count, outgoing
from ghofl.outbox.site_rows import first_rows, load_persons
from ghofl.privacy import plan_of
from ghofl.privacy.bounds import length, sensitivity


def counted(layout, *counts):
    """Moments of which only the counts matter."""
    return Moments(layout, {**Moments.zeros(layout).blocks, "N": np.array(counts)})


def outcomes(rules, moments):
    return {verdict.rule: verdict.outcome for verdict in rules.of_moments(moments)}


@pytest.mark.parametrize(("preset", "own", "least"), [("usual", None, 5), ("strict", None, 10), ("usual", 3, 3)])
def test_every_class_with_rows_has_at_least_so_many(preset, own, least):
    rules, layout = Disclosure(preset, class_rows=own, saturation=0), Layout(3, 2)
    assert outcomes(rules, counted(layout, 0, least, 50)) == {"class rows": MET}
    assert outcomes(rules, counted(layout, 0, least - 1, 50)) == {"class rows": BROKEN}


def test_a_matrix_over_1280_variables_needs_3879_rows_and_s_as_many_per_class():
    rules, shared, own = Disclosure("usual"), Layout(2, 1280, ("B",)), Layout(2, 1280, ("S",))
    assert outcomes(rules, counted(shared, 2000, 1879))["saturation"] == MET
    assert outcomes(rules, counted(shared, 2000, 1878))["saturation"] == BROKEN
    assert outcomes(rules, counted(own, 3879, 3879))["saturation"] == MET
    assert outcomes(rules, counted(own, 9000, 3878))["saturation"] == BROKEN


@given(st.integers(1, 400), st.integers(1, 60))
def test_the_projection_that_is_proposed_fits_and_one_more_dimension_does_not(rows, extra):
    rules = Disclosure("usual", class_rows=0)
    wide = rules.of_moments(counted(Layout(1, rows + extra, ("B",)), rows))[0]
    assert wide.outcome == BROKEN
    if "at most" in wide.detail:
        most = int(wide.detail.split("at most ")[1].split()[0])
        assert outcomes(rules, counted(Layout(1, most, ("B",)), rows))["saturation"] == MET
        assert outcomes(rules, counted(Layout(1, most + 1, ("B",)), rows))["saturation"] == BROKEN


def test_the_sketch_that_is_proposed_fits():
    rules = Disclosure("usual")
    told = rules.of_moments(counted(Layout(2, 64, ("S",)), 100, 300))[1]
    assert "A sketch of at most 33 dimensions beside B fits (B itself up to 132)" in told.detail
    assert outcomes(rules, counted(Layout(2, 64, ("B",), sketch=33), 100, 300))["saturation"] == MET
    assert outcomes(rules, counted(Layout(2, 64, ("B",), sketch=34), 100, 300))["saturation"] == BROKEN


def test_a_rule_that_cannot_be_evaluated_refuses():
    rules = Disclosure("usual")
    for odd in (counted(Layout(2, 2), 0, 0), counted(Layout(2, 2), -3, 90)):
        assert set(outcomes(rules, odd).values()) == {UNKNOWN}
        with pytest.raises(PolicyError, match="cannot be evaluated"):
            rules.check_moments(odd)


def test_off_has_no_rules_and_unknown_presets_and_numbers_are_refused():
    assert Disclosure().verdicts(counted(Layout(2, 900), 1, 1), recipe_of()) == ()
    for wrong in ({"preset": "lax"}, {"class_rows": -1}, {"saturation": 1.5}):
        with pytest.raises(SiteError, match=r"disclosure\."):
            Disclosure(**wrong)


def test_too_few_sites_are_refused_by_the_recipe_alone():
    with pytest.raises(PolicyError, match="'sites' is not met"):
        Policy(disclosure=Disclosure("strict")).check_recipe(recipe_of(privacy=Privacy(min_cohort=4)))
    Policy(disclosure=Disclosure("strict")).check_recipe(recipe_of(privacy=Privacy(min_cohort=5)))


def make_site(folder, policy, rows=60, **site):
    x, y = blobs(np.random.default_rng(0), rows, classes=4)
    np.savez(folder / "rows.npz", x=x, y=y, person=np.arange(rows) // 4)
    (folder / "policy.toml").write_text(policy)
    lines = {"name": "north", "embeddings": "rows.npz", "folder": "keep", "policy": "policy.toml", **site}
    lines = [f"{key} = {json.dumps(value)}" for key, value in lines.items()]
    (folder / "site.toml").write_text("\n".join([*lines, "labels_are_numbers = true", ""]))
    return Site.load(folder / "site.toml")


def test_a_site_refuses_without_a_word_about_its_rows_and_its_administrator_sees_the_figures(tmp_path, monkeypatch):
    site = make_site(tmp_path, 'disclosure = "strict"\n', rows=16)
    recipe = recipe_of(privacy=Privacy(min_cohort=5), statistics=("B",))
    with pytest.raises(PolicyError) as refused:
        Custody(site, site.storage()).pack(recipe)
    assert not any(c.isdecimal() for c in str(refused.value))
    recipe.save(tmp_path / "recipe.toml")
    monkeypatch.chdir(tmp_path)
    shown = ghofl("flower", "check", "site.toml", "-r", "recipe.toml", code=2)
    assert "The smallest class has" in " ".join(shown.split())


def test_under_an_epsilon_no_rule_is_evaluated_while_answering_and_check_shows_them(tmp_path, monkeypatch):
    rules = '[disclosure]\npreset = "usual"\nclass_rows = 50\n'
    site = make_site(tmp_path, rules, rows=16, recipe="recipe.toml")
    private = Privacy(radius=4.0, epsilon=1.0, delta=1e-5, noise="local", min_cohort=3)
    recipe = recipe_of(privacy=private, statistics=("B",))
    recipe.save(tmp_path / "recipe.toml")
    assert Custody(site, site.storage()).pack(recipe).rows == 16
    monkeypatch.chdir(tmp_path)
    told = json.loads(ghofl("flower", "check", "site.toml", "-r", "recipe.toml", "--json", "-"))
    assert {v["rule"]: v["outcome"] for v in told["disclosure"]}["class rows"] == BROKEN


def test_audit_gives_a_verdict_per_rule_and_json_to_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe, (x, y) = recipe_of(statistics=("B",)), blobs(np.random.default_rng(0), 60)
    recipe.save("recipe.toml")
    message = outgoing(recipe, Embedded(x, y), "north").message
    message.save("north.ghofl")
    told = json.loads(ghofl("audit", "north.ghofl", "-r", "recipe.toml", "--json", "-"))
    assert {v["rule"]: v["outcome"] for v in told["disclosure"]["rules"]} == {
        "class rows": MET, "saturation": MET, "sites": BROKEN, "sole holder": "warning",
    }  # fmt: skip
    Total.of([message], recipe).save("total.ghofl")
    text = " ".join(ghofl("audit", "total.ghofl").split())
    assert "Disclosure rule 'sites': not met. The total has 1 site; 3 are asked for." in text


def test_sum_warns_of_a_class_that_one_site_alone_holds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe, (x, y) = recipe_of(statistics=("B",)), blobs(np.random.default_rng(0), 60)
    recipe.save("recipe.toml")
    for name, keep in (("north", y < 3), ("south", y > 0)):
        outgoing(recipe, Embedded(x[keep], y[keep]), name).message.save(f"{name}.ghofl")
    said = " ".join(ghofl("sum", "north.ghofl", "south.ghofl", "-r", "recipe.toml", "-o", "total.ghofl").split())
    assert "only one site holds class 'class 0' (north), 'class 3' (south)" in said


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 4))
def test_the_first_rows_of_every_person_count_and_nobody_moves_anybody_else_s(persons, most):
    persons = np.array(persons, dtype=np.int64)
    kept = first_rows(persons, most)
    assert all(np.count_nonzero(persons[kept] == p) == min(most, np.count_nonzero(persons == p)) for p in set(persons))
    others = np.flatnonzero(persons != 0)
    assert others[first_rows(persons[others], most)].tolist() == [i for i in kept if persons[i] != 0]


def person_recipe(rows=2, **privacy):
    chosen = {"unit": "person", "person_rows": rows, **privacy}
    return recipe_of(statistics=("B",), privacy=Privacy(**chosen))


def test_one_person_moves_the_moments_by_at_most_the_sensitivity_of_persons():
    recipe = person_recipe(3, radius=2.0, epsilon=1.0, delta=1e-5)
    plan = plan_of(recipe)
    rng = np.random.default_rng(0)
    x, y = 9.0 * rng.normal(size=(40, 6)), rng.integers(4, size=40)
    persons = np.repeat(np.arange(8), 5)
    with_all, without = (
        count(Features.of(recipe), Embedded(x[keep], y[keep], rows_per_person=3)).moments
        for keep in (first_rows(persons, 3), first_rows(persons[:35], 3))
    )
    moved = length(with_all - without, plan.scales)
    one = sensitivity(Layout.of(recipe), plan.radius, scales=plan.scales)
    assert one.value < moved <= plan.sensitivity.value
    assert plan.sensitivity.value == pytest.approx(3 * one.value)
    assert plan.guarantee.unit == "person"
    assert "at most 3 rows of one person" in plan.guarantee.assumptions[0]


def test_a_recipe_about_persons_refuses_rows_of_nobody_knows_whom():
    x, y = blobs(np.random.default_rng(0), 20)
    recipe = person_recipe(2)
    for limited_to in (None, 3):
        with pytest.raises(PrivacyError, match="name the column of persons"):
            outgoing(recipe, Embedded(x, y, rows_per_person=limited_to), "north")
    assert outgoing(recipe, Embedded(x, y, rows_per_person=1), "north").message.rows == 20


def test_unit_and_rows_of_persons_come_together_and_old_recipes_keep_their_fingerprints():
    for wrong in ({"unit": "person"}, {"person_rows": 2}, {"unit": "person", "person_rows": 0}):
        with pytest.raises(RecipeError, match=r"privacy\.person_rows"):
            Privacy(**wrong)
    with pytest.raises(RecipeError, match="rounding"):
        Privacy(unit="person", person_rows=2, rounding=4)
    plain, other = recipe_of(), person_recipe(2)
    assert "person" not in plain.to_toml()
    assert replace(other, privacy=Privacy()).fingerprint == recipe_of(statistics=("B",)).fingerprint
    assert type(other).from_toml(other.to_toml()) == other


def test_the_command_and_the_site_file_count_at_most_so_many_rows_of_one_person(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    site = make_site(tmp_path, "", rows=60, person="person", rows_per_person=3)
    recipe = person_recipe(2)
    recipe.save("recipe.toml")
    assert site.count(recipe).moments.rows == 30, "the recipe's two are fewer than the site's three"
    assert site.count(recipe_of(statistics=("B",))).moments.rows == 45
    words = ["moments", "rows.npz", "-r", "recipe.toml", "--labels-are-numbers"]
    ghofl(*words, "-o", "a.ghofl", "--person", "person")
    ghofl(*words, "-o", "b.ghofl", "--person", "person", "--person-rows", "1")
    assert [Message.load(f"{name}.ghofl", recipe).rows for name in "ab"] == [30, 15]
    ghofl(*words, "-o", "c.ghofl", code=2)
    assert "--person COLUMN" in capsys.readouterr().err
    ghofl(*words, "-o", "c.ghofl", "--person", "nobody", code=2)
    ghofl(*words, "-o", "c.ghofl", "--person-rows", "2", code=2)
    assert isinstance(site.storage(), FolderStorage)


def test_a_column_of_persons_has_one_id_per_row(tmp_path):
    (tmp_path / "t.csv").write_text("text,label,who\na,x,ann\nb,y,bob\nc,x,\n")
    with pytest.raises(EmbeddingsError, match="rows without a person"):
        load_persons(tmp_path / "t.csv", "who", "", 3)
    (tmp_path / "t.csv").write_text("text,label,who\na,x,ann\nb,y,bob\n")
    assert load_persons(tmp_path / "t.csv", "who", "", 2).tolist() == ["ann", "bob"]
    with pytest.raises(EmbeddingsError, match="one id per row, 3"):
        load_persons(tmp_path / "t.csv", "who", "", 3)
    with pytest.raises(EmbeddingsError, match="not a file with a column"):
        load_persons(tmp_path, "who", "", 3)
