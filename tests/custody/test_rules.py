"""What a site's history lets leave next: attacks on sums and budgets, over an engine without a network."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from carriers import history_of, names_of

from ghofl.custody.budget import Release, check_budget, compose_releases, describe_releases, promise_of
from ghofl.custody.history import History
from ghofl.custody.known_sums import Known
from ghofl.custody.ledger import Ledger
from ghofl.custody.policy import Policy
from ghofl.custody.site import Site
from ghofl.custody.storage import FolderStorage
from ghofl.errors import FederationError, PolicyError
from ghofl.flower.server.federation import run
from ghofl.keeper.answers import answer
from ghofl.privacy import epsilon_of
from ghofl.recipe import Privacy
from ghofl.secure.messages import Survivors
from ghofl.secure.wire import from_bytes, to_bytes
from ghofl.wire.letter import Letter
from sites import PLAIN, SECURE, InProcess, confirmed, exact_total, invoke, make_sites, reopen, settings

LOCAL = replace(PLAIN, privacy=Privacy(radius=4.0, epsilon=1.0, delta=1e-6, noise="local"))
SHARED = replace(
    PLAIN, privacy=Privacy(radius=4.0, epsilon=1.0, delta=1e-6, secure=True, noise="distributed", min_cohort=2)
)


def recipes(base, count):
    """Recipes that differ in one field, the scale of the grid."""
    return [replace(base, grid=replace(base.grid, scale=base.grid.scale + i / 8)) for i in range(count)]


def message(path, recipe):
    site = Site.load(path)
    return answer("message", Letter({"recipe": recipe.to_toml()}), site, site.storage())


def test_a_site_passes_on_what_it_was_told_of_earlier_sums(tmp_path):
    memory, rows = FolderStorage(tmp_path / "memory"), "0" * 64
    facts = {"round": "2" * 32, "recipe": "f" * 64, "data": rows, "cohort": ["a", "b", "c"], "guarantee": None}
    Ledger().write(memory, "masked", **facts, told=[("1" * 32, ("a", "b", "c", "d"))])
    known = History.of(Ledger.load(memory)).known("b", rows)
    assert known == Known(0, (("2" * 32, (), 0), ("1" * 32, ("a", "b", "c", "d"), 0)))
    with pytest.raises(PolicyError, match="would show d by itself"):
        History.of(Ledger.load(memory)).check_sum("b", ["a", "b", "c"], rows, 3)


@pytest.mark.slow
def test_one_row_more_is_not_shown_by_a_second_sum_of_the_same_sites(tmp_path):
    paths, recipe_file = make_sites(tmp_path, 3, SECURE), tmp_path / "recipe.toml"
    run(InProcess(paths), SECURE, settings(tmp_path / "1"))
    with np.load(tmp_path / "2.npz") as data:
        x, y = data["x"], data["y"]
    np.savez(tmp_path / "2.npz", x=np.vstack([x, x[:1] + 1]), y=np.append(y, y[0]))
    assert invoke("check", paths[2], "--recipe", recipe_file, "--again").exit_code == 4
    for path in paths[:2]:
        assert reopen(path, recipe_file, names_of(paths)).exit_code == 0
    assert "would show site-2 by itself" in str(reopen(paths[2], recipe_file, names_of(paths)).exception)
    with pytest.raises(FederationError, match="2 sites joined"):
        run(InProcess(paths), SECURE, settings(tmp_path / "2"))
    (tmp_path / "loose.toml").write_text("any_peers = true\nany_recipe = true\nmin_difference = 1\n")
    paths[2].write_text(paths[2].read_text().replace("policy.toml", "loose.toml"))
    assert reopen(paths[2], recipe_file, names_of(paths)).exit_code == 0
    with pytest.raises(FederationError, match="1 of 3 clients advertised keys"):  # the others refuse what it tells them
        run(InProcess(paths), SECURE, settings(tmp_path / "3"))


@pytest.mark.slow
def test_a_changed_field_of_the_recipe_is_a_second_look_at_the_same_rows(tmp_path):
    paths, recipe_file = make_sites(tmp_path, 3, SECURE), tmp_path / "recipe.toml"
    run(InProcess(paths), SECURE, settings(tmp_path / "1"))
    other = recipes(SECURE, 2)[1]
    with pytest.raises(FederationError, match="0 sites joined"):
        run(InProcess(paths), other, settings(tmp_path / "2"))
    for path in paths:
        assert reopen(path, recipe_file, names_of(paths)).exit_code == 0
    with pytest.raises(FederationError, match="0 sites joined"):  # re-opened for the first recipe, and no other
        run(InProcess(paths), other, settings(tmp_path / "3"))
    for path in paths:
        path.write_text(path.read_text() + f'recipe = "{recipe_file}"\n')
    reply = answer(
        "join",
        Letter({"recipe": other.to_toml(), "round": "0" * 32}),
        Site.load(paths[0]),
        Site.load(paths[0]).storage(),
    )
    assert "is not the one agreed on here" in reply.fields["why"]


def swapped(recipe):
    """The recipe with its first two classes swapped: the same moments, in another order."""
    first, second, *rest = recipe.classes
    return replace(recipe, classes=(second, first, *rest))


def named_sites(folder, count):
    """Sites whose labels are class names, so that a recipe may list the classes in any order."""
    paths = make_sites(folder, count, SECURE)
    for i in range(count):
        with np.load(folder / f"{i}.npz") as data:
            x, y = data["x"], np.array(SECURE.classes)[data["y"]]
        np.savez(folder / f"{i}.npz", x=x, y=y)
    return paths


def reopen_loosely(folder, paths, recipe_file, names):
    """Re-open under a looser policy, so that the check in the round itself is seen."""
    policy = folder / "policy.toml"
    before = policy.read_text()
    policy.write_text(before + "min_difference = 1\n")
    for path in paths:
        done = reopen(path, recipe_file, names)
        assert done.exit_code == 0, done.output
    policy.write_text(before)


@pytest.mark.parametrize(
    "changed", [swapped, lambda recipe: recipes(recipe, 2)[1]], ids=["swapped classes", "another grid"]
)
def test_a_grown_cohort_under_another_recipe_does_not_show_the_new_site(tmp_path, changed):
    """The difference of the two sums would be the exact moments of the fourth site."""
    other = changed(SECURE)
    paths, recipe_file = named_sites(tmp_path, 4), tmp_path / "other.toml"
    other.save(recipe_file)
    run(InProcess(paths[:3]), SECURE, settings(tmp_path / "1"))
    reopen_loosely(tmp_path, paths[:3], recipe_file, names_of(paths))
    with pytest.raises(FederationError, match="0 of 4 clients advertised keys"):
        run(InProcess(paths), other, settings(tmp_path / "2"))
    sites = json.loads((tmp_path / "2" / "report.json").read_text())["sites"]
    assert all("would show site-3 by itself" in what for what in sites.values()), sites
    assert all("It would be allowed without site-3." in sites[f"site-{i}"] for i in range(3)), sites
    assert "No cohort close to this one was found that would be allowed." in sites["site-3"]
    again = reopen(paths[0], recipe_file, [*names_of(paths[:2]), "site-3"])
    assert "It would be allowed with site-2 as well and without site-3." in str(again.exception)


@pytest.mark.parametrize("grown", [(0, 1, 2), ()], ids=["grown rows", "the same rows"])
def test_the_same_sites_may_have_another_round_of_another_recipe_or_grown_rows(tmp_path, grown):
    other = swapped(SECURE)
    paths, recipe_file = named_sites(tmp_path, 3), tmp_path / "other.toml"
    other.save(recipe_file)
    run(InProcess(paths), SECURE, settings(tmp_path / "1"))
    for i in grown:
        with np.load(tmp_path / f"{i}.npz") as data:
            x, y = data["x"], data["y"]
        np.savez(tmp_path / f"{i}.npz", x=np.vstack([x, x[:1] + 1]), y=np.append(y, y[0]))
    reopen_loosely(tmp_path, paths, recipe_file, names_of(paths))
    outcome = run(InProcess(paths), other, settings(tmp_path / "2"))
    assert outcome.total.moments == exact_total(tmp_path, paths, other)


def test_two_hundred_recipes_at_epsilon_one_are_one_answer_without_a_budget(tmp_path):
    path = make_sites(tmp_path, 2, LOCAL, 'epsilon = 1.0\ndelta = 1e-6\nnoise = ["local"]\n')[0]
    policy, releases = Site.load(path).load_policy(), []
    replies = []
    for recipe in recipes(LOCAL, 4):
        recipe.save(tmp_path / "recipe.toml")  # the site agrees to each of them
        replies.append(message(path, recipe))
    LOCAL.save(tmp_path / "recipe.toml")
    assert [reply.fields["status"] for reply in replies] == ["sent", "refused", "refused", "refused"]
    assert "budget is epsilon = 1 at delta = 1e-06 in all" in replies[1].fields["why"]
    assert message(path, LOCAL).content == replies[0].content, "the same message again is no new release"
    assert len(history_of(path).releases) == 1
    for number, recipe in enumerate(recipes(LOCAL, 200)):
        try:
            check_budget(policy, releases, recipe)
        except PolicyError:
            continue
        releases.append(Release(str(number), recipe.fingerprint, "", True, promise_of(recipe)))
    assert len(releases) == 1


def test_a_budget_is_spent_by_all_recipes_together_as_the_accountant_composes_them(tmp_path):
    lines = 'epsilon = 1.0\ndelta = 1e-6\nnoise = ["local"]\nmax_epsilon = 3.0\nmax_delta = 1e-5\n'
    policy, releases = make_sites(tmp_path, 2, LOCAL, lines), []
    policy = Policy.load(tmp_path / "policy.toml")
    for number, recipe in enumerate(recipes(LOCAL, 200)):
        try:
            check_budget(policy, releases, recipe)
        except PolicyError:
            break
        releases.append(Release(str(number), recipe.fingerprint, "", True, promise_of(recipe)))
    mu = promise_of(LOCAL).mu
    fits = max(n for n in range(1, 201) if epsilon_of(1 / (mu * n**0.5), 1e-5) <= 3.0 * (1 + 1e-6))
    assert len(releases) == fits > 1
    together = compose_releases(releases, 1e-5)
    assert (together.releases, together.epsilon <= 3.0 * (1 + 1e-6)) == (fits, True)
    assert f"in {fits} releases" in describe_releases(releases)


@pytest.mark.parametrize(
    ("earlier", "then", "why"),
    [
        ([LOCAL], PLAIN, "an exact release has none"),
        ([PLAIN], LOCAL, "no epsilon holds for its rows any more"),
        (
            [LOCAL],
            replace(LOCAL, privacy=replace(LOCAL.privacy, unit="client", client_rows=10)),
            "different unit",
        ),
    ],
    ids=["exact after noise", "noise after exact", "another unit"],
)
def test_what_does_not_compose_is_refused_under_a_budget(earlier, then, why):
    budget = Policy(max_epsilon=50.0, max_delta=1e-5)
    releases = [Release(r.fingerprint, r.fingerprint, "", True, promise_of(r)) for r in earlier]
    with pytest.raises(PolicyError, match=why):
        check_budget(budget, releases, then)
    with pytest.raises(PolicyError, match="max_epsilon and max_delta"):
        check_budget(Policy(), releases, then)


def test_one_exact_release_makes_the_composed_guarantee_none():
    releases = [Release(r.fingerprint, r.fingerprint, "", True, promise_of(r)) for r in (LOCAL, PLAIN)]
    assert compose_releases(releases) is None
    assert describe_releases(releases).startswith("No differential privacy covers them: 1 of 2 left without noise")
    check_budget(Policy(), [releases[1]], replace(PLAIN, classes=("a", "b")))


def test_a_vector_is_spent_when_it_leaves_masked_even_if_the_round_fails(tmp_path):
    paths = make_sites(tmp_path, 3, SHARED, 'epsilon = 1.0\ndelta = 1e-6\nnoise = ["distributed"]\n')
    with pytest.raises(FederationError, match="signed"):
        run(InProcess(paths, dead={101: "endorse", 102: "endorse"}), SHARED, settings(tmp_path / "1"))
    assert [len(history_of(path).releases) for path in paths] == [1, 1, 1]
    with pytest.raises(FederationError, match="0 sites joined"):
        run(InProcess(paths), SHARED, settings(tmp_path / "2"))
    assert "budget is epsilon = 1" in (tmp_path / "2" / "report.json").read_text()


def test_an_exact_message_and_a_secure_sum_do_not_leave_one_folder(tmp_path):
    """Beside the site's own exact message, the sum of three is the sum of the other two."""
    paths = make_sites(tmp_path, 3, SECURE)
    run(InProcess(paths), SECURE, settings(tmp_path / "1"))
    reply = message(paths[0], PLAIN)
    assert "would show site-0 by itself" in reply.fields["why"]
    (tmp_path / "other").mkdir()
    paths = make_sites(tmp_path / "other", 3, SECURE)
    assert message(paths[0], PLAIN).fields["status"] == "sent"
    with pytest.raises(FederationError, match="of 3 clients advertised keys"):
        run(InProcess(paths), SECURE, settings(tmp_path / "2"))


def test_an_exact_message_does_not_leave_beside_a_sum_whose_list_the_site_never_saw(tmp_path):
    """The vector of the site that was not asked to sign is in the sum all the same."""
    paths = make_sites(tmp_path, 5, SECURE)
    run(InProcess(paths, dead={101: "endorse"}), SECURE, settings(tmp_path / "1"))
    history = history_of(paths[1])
    assert (len(history.releases), history.lists, history.reveals) == (1, (), ())
    reply = message(paths[1], PLAIN)
    assert (reply.fields["status"], reply.payload) == ("refused", b"")
    assert "would show site-1 by itself" in reply.fields["why"]
    assert [release.is_message for release in history_of(paths[1]).releases] == [False]
    policy = tmp_path / "policy.toml"
    policy.write_text(policy.read_text() + "min_difference = 1\n")
    assert message(paths[1], PLAIN).fields["status"] == "sent"


def test_a_vector_does_not_leave_beside_an_exact_message_that_left_in_the_middle_of_the_round(tmp_path):
    """The others can finish the round without this site's signature, so it is refused before it masks."""
    paths, left = make_sites(tmp_path, 5, SECURE), []

    class Asking(InProcess):
        def ask(self, action, letters, seconds, size):
            if action == "mask" and not left:
                left.append(message(paths[1], PLAIN).fields["status"])
            yield from super().ask(action, letters, seconds, size)

    total = run(Asking(paths), SECURE, settings(tmp_path / "1")).total
    assert left == ["sent"]
    assert sorted(entry.site for entry in total.roster) == ["site-0", "site-2", "site-3", "site-4"]
    assert [release.is_message for release in history_of(paths[1]).releases] == [True]


def test_a_round_id_is_not_used_twice_where_only_the_ledger_remembers_it(tmp_path):
    paths = make_sites(tmp_path, 3, SECURE)
    run(InProcess(paths), SECURE, settings(tmp_path / "1"))
    folder, site = tmp_path / "memory-0", Site.load(paths[0])
    (folder / "used-rounds").unlink()
    shutil.rmtree(folder / "round")
    query = Letter({"recipe": SECURE.to_toml(), "round": history_of(paths[0]).reveals[0].round})
    assert "was in it before" in answer("join", query, site, site.storage()).fields["why"]


@pytest.mark.parametrize("recipe", [LOCAL, SECURE], ids=["epsilon", "secure"])
def test_a_recipe_with_a_promise_needs_the_site_s_own_copy_or_an_approval(tmp_path, recipe):
    path = make_sites(tmp_path, 3, recipe, "any_recipe = false\n")[0]
    site, query = Site.load(path), Letter({"recipe": recipe.to_toml(), "round": "0" * 32})
    action = "join" if recipe.privacy.secure else "message"
    reply = answer(action, query, site, site.storage())
    assert "neither its own copy of the recipe nor confirm = true" in reply.fields["why"]
    path.write_text(path.read_text() + 'recipe = "recipe.toml"\n')
    assert answer(action, query, Site.load(path), site.storage()).fields["status"] in ("sent", "joined")
    assert (
        answer("message", Letter({"recipe": PLAIN.to_toml()}), Site.load(path), site.storage()).fields["status"]
        == "refused"
    )


@pytest.mark.slow
def test_an_approval_is_for_one_recipe_these_rows_one_cohort_and_one_round(tmp_path):
    paths, recipe_file = (
        make_sites(tmp_path, 4, SECURE, "confirm = true\nmin_difference = 1\n"),
        tmp_path / "recipe.toml",
    )
    for path in paths:
        done = confirmed("check", path, "--recipe", recipe_file, "--cohort", "site-0,site-1,site-2,site-3")
        assert done.exit_code == 0, done.output
    with pytest.raises(FederationError):  # three of the four that were named
        run(InProcess(paths[:3]), SECURE, settings(tmp_path / "1"))
    assert "is for other sites" in (tmp_path / "1" / "report.json").read_text()
    with pytest.raises(FederationError, match="0 sites joined"):
        run(InProcess(paths), recipes(SECURE, 2)[1], settings(tmp_path / "2"))
    outcome = run(InProcess(paths), SECURE, settings(tmp_path / "3"))
    assert outcome.total.moments == exact_total(tmp_path, paths)
    for path in paths:
        assert reopen(path, recipe_file, names_of(paths)).exit_code == 0
    with pytest.raises(FederationError, match="0 sites joined"):
        run(InProcess(paths), SECURE, settings(tmp_path / "4"))
    assert "is used up" in (tmp_path / "4" / "report.json").read_text()
    assert "waits for --confirm" in invoke("check", paths[0], "--recipe", recipe_file).output


class Faulty(InProcess):
    """An engine whose first site fails between a line of its ledger and what it keeps, and is then asked `again`."""

    def __init__(self, paths, monkeypatch, again):
        super().__init__(paths)
        self.monkeypatch, self.again, self.replies = monkeypatch, again, []

    def ask(self, action, letters, seconds, size):
        if action == "endorse" and 100 in letters and not self.replies:
            site, letter = Site.load(self.paths[100]), letters[100]
            with self.monkeypatch.context() as patch:
                patch.setattr(FolderStorage, "put", self.failing(FolderStorage.put))
                self.replies.append(answer(action, letter, site, site.storage()))
            content = self.again(letter.content)
            self.replies.append(answer(action, Letter(letter.fields, content), site, site.storage()))
        yield from super().ask(action, letters, seconds, size)

    @staticmethod
    def failing(put):
        def failing_put(memory, name, content):
            if name.endswith("/endorse"):
                raise OSError(28, "No space left on device")
            put(memory, name, content)

        return failing_put


def without_the_last(letter):
    """A survivor list on which the last site has vanished."""
    shown = from_bytes(Survivors, letter, limit=2**20)
    assert shown.survivors == bytes([0b1111])
    return to_bytes(replace(shown, survivors=bytes([0b0111]), vanished=bytes([0b1000])))


@pytest.mark.parametrize("again", [without_the_last, bytes], ids=["another list", "the same list"])
def test_a_site_that_failed_after_it_recorded_a_list_signs_no_other(tmp_path, monkeypatch, again):
    paths = make_sites(tmp_path, 4, SECURE)
    engine = Faulty(paths, monkeypatch, again)
    outcome = run(engine, SECURE, settings(tmp_path / "1", dropout=0.2))
    fault, second = engine.replies
    assert (fault.fields["status"], fault.payload) == ("refused", b"")
    if again is without_the_last:
        assert "names other survivors for round" in second.fields["why"]
        assert second.payload == b""
    else:
        assert second.fields["status"] == "sent"
    assert outcome.total.moments == exact_total(tmp_path, paths)
    lists = history_of(paths[0]).lists
    assert [listed.survivors for listed in lists] == [tuple(names_of(paths))]


def test_the_ledger_of_a_round_names_its_cohort_survivors_and_guarantee(tmp_path):
    paths = make_sites(tmp_path, 3, SHARED, 'epsilon = 1.0\ndelta = 1e-6\nnoise = ["distributed"]\n')
    run(InProcess(paths), SHARED, settings(tmp_path / "1"))
    lines = Ledger.load(Site.load(paths[0]).storage()).lines
    kinds = [line.what for line in lines]
    assert [kind for kind in kinds if kind != "answered"] == ["packed", "joined", "masked", "endorsed", "revealed"]
    assert kinds.count("answered") == 6
    for kind in ("endorsed", "revealed"):
        facts = lines[kinds.index(kind)].facts
        assert facts["cohort"] == facts["survivors"] == ["site-0", "site-1", "site-2"]
    masked = lines[kinds.index("masked")].facts["guarantee"]
    assert (masked["epsilon"], masked["mechanism"]) == (pytest.approx(1.0), "distributed")
