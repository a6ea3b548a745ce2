"""Exact leave-out: a site's rows leave a total again, and heads are judged on rows that they were not fitted to."""

import json
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federations import blobs, moments_of, recipe_of, sketched_recipe, total_of
from ghofl import HEADS, Classifier, HeadSpec, Message, Total
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Site
from ghofl.errors import EmbeddingsError, PrivacyError, RosterError
from ghofl.evaluation.leave_out import OwnRows, assign_folds, cross_validate, leave_out
from ghofl.outbox.row_version import version_of
from ghofl.recipe import Privacy
from pages import DOCS, lines_of, run, run_lines

SITES = 3


def sites_of(y):
    return np.array_split(np.arange(len(y)), SITES)


def recipes_for(name):
    need = ("S",) if name == "best" else HEADS[name].needs[0]
    return sketched_recipe() if "Z" in need else recipe_of(statistics=need)


@pytest.mark.parametrize("name", [*sorted(HEADS), "best"])
@pytest.mark.filterwarnings("ignore::ghofl.errors.CalibrationWarning")  # of means alone
def test_all_sites_together_are_cross_validation_on_the_pooled_rows(name, rng):
    """The folds of the pooled rows are the pairs (site, fold): probabilities to the bit, and so the predictions."""
    x, y = blobs(rng, rows=90, spread=1.0)
    recipe = recipes_for(name)
    total = total_of(recipe, x, y, SITES)
    for rows in sites_of(y):
        fold = assign_folds(y[rows], 3)
        found = leave_out(OwnRows.of(total, x[rows], y[rows]), {name: HeadSpec.parse(name)}, fold)[name]
        for k in range(3):
            out = rows[fold == k]
            others = np.setdiff1d(np.arange(len(y)), out)
            pooled = Classifier.fit(total_of(recipe, x[others], y[others]), name)
            assert found.probabilities[fold == k].tobytes() == pooled.predict_proba(x[out]).tobytes()
            assert np.array_equal(found.predicted[fold == k], pooled.predict_numbers(x[out]))
            assert found.metrics.confusion.rows == len(rows)


@given(st.integers(0, 2**32), st.sampled_from([None, 5]), st.sampled_from([("D",), ("B",), ("S",)]))
def test_a_total_without_a_fold_is_the_total_of_the_messages_without_it(seed, rounding, statistics):
    """Under rounding, too: the site's message as sent goes, and that of its kept rows comes."""
    rng = np.random.default_rng(seed)
    x, y = blobs(rng, rows=40)
    recipe = recipe_of(statistics=statistics, privacy=Privacy(rounding=rounding))
    messages = [Message.of(moments_of(recipe, x[p], y[p]), recipe, str(i)) for i, p in enumerate(sites_of(y))]
    total, rows = Total.of(messages, recipe), sites_of(y)[1]
    before = total.moments.sha256
    fold = assign_folds(y[rows], 4)
    for k, (left, out) in enumerate(OwnRows.of(total, x[rows], y[rows]).without_folds(fold)):
        kept = rows[fold != k]
        again = Message.of(moments_of(recipe, x[kept], y[kept]), recipe, "1")
        assert left.moments == Total.of([messages[0], again, messages[2]], recipe).moments
        assert np.array_equal(out, fold == k)
    assert total.moments.sha256 == before


def test_folds_hold_every_class_evenly_and_persons_whole(rng):
    y = rng.integers(3, size=100)
    fold = assign_folds(y, 5)
    counts = np.array([[np.sum((fold == k) & (y == c)) for k in range(5)] for c in range(3)])
    assert np.ptp(counts, axis=1).max() <= 1
    assert np.array_equal(fold, assign_folds(y, 5))
    persons = np.repeat(np.array([f"person {i}" for i in range(20)]), 5)
    by_person = assign_folds(y, 5, persons).reshape(20, 5)
    assert (by_person == by_person[:, :1]).all()
    assert np.bincount(by_person[:, 0]).tolist() == [4, 4, 4, 4, 4]


def test_a_class_without_rows_outside_the_fold_counts_as_an_error_and_is_listed(rng):
    x, y = blobs(rng, rows=60, spread=9.0)
    y[y == 3] = 0
    y[0] = 3
    total, rows = total_of(recipe_of(), x, y, SITES), sites_of(y)[0]
    with warnings.catch_warnings(record=True) as said:
        found = leave_out(OwnRows.of(total, x[rows], y[rows]), {"lda": HeadSpec("lda")}, assign_folds(y[rows], 2))[
            "lda"
        ]
    assert not said
    assert found.unseen == ("class 3",)
    assert found.predicted[0] != 3


def test_leaving_out_holds_one_copy_of_the_class_matrices_whatever_the_folds(rng):
    x, y = blobs(rng, rows=200, classes=40, dim=120)
    total, rows = total_of(recipe_of(dim=120, classes=40), x, y, 2), np.arange(100)
    own, size = OwnRows.of(total, x[rows], y[rows]), total.moments.blocks["S"].nbytes
    tracemalloc.start()
    for _ in own.without_folds(assign_folds(y[rows], 5)):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * size


def test_cross_validation_in_one_place_is_leave_out_with_one_site(rng):
    x, y = blobs(rng, rows=80, spread=1.0)
    recipe = recipe_of(statistics=("B",))
    own = OwnRows.of(total_of(recipe, x, y), x, y)
    pooled = cross_validate(recipe, x, y, "lda", 4)["lda"]
    both = pooled, leave_out(own, {"a": HeadSpec("lda")}, assign_folds(y, 4))["a"]
    assert np.array_equal(both[0].probabilities, both[1].probabilities)


def test_rows_that_were_not_sent_and_totals_with_noise_are_refused(rng):
    x, y = blobs(rng, rows=60)
    total = total_of(recipe_of(), x, y, SITES)
    moved = x[:20].copy()
    moved[0] += 1.0
    for rows, labels in ((moved, y[:20]), (x[:19], y[:19]), (x[:20], np.roll(y[:20], 1))):
        with pytest.raises(RosterError, match="rows are not what any site in this total sent"):
            OwnRows.of(total, rows, labels)
    for rows in (0, 1):
        with pytest.raises(EmbeddingsError, match=f"{rows} rows? came, and leave-out takes 2 or more"):
            OwnRows.of(total, x[:rows], y[:rows])
    with pytest.raises(EmbeddingsError, match="20 rows cannot be left out in 21 folds"):
        assign_folds(y[:20], 21)
    with pytest.raises(EmbeddingsError, match="3 persons cannot be left out in 5 folds"):
        assign_folds(y[:20], 5, np.arange(20) % 3)
    private = recipe_of(privacy=Privacy(epsilon=1.0, delta=1e-5, radius=10.0), statistics=("B",))
    exact = total_of(private, x, y, SITES)
    small = replace(total, recipe=recipe_of(privacy=Privacy(min_count=2))).release()
    for noisy in (exact, exact.release(), small):
        with pytest.raises(PrivacyError, match="rows cannot be taken out of a total with noise"):
            OwnRows.of(noisy, x[:20], y[:20])


def test_of_two_sites_with_the_same_rows_the_one_that_is_named_leaves_them_out(rng):
    x, y = blobs(rng, rows=60)
    total = total_of(recipe_of(), np.concatenate([x, x]), np.concatenate([y, y]), 2)
    assert [OwnRows.of(total, x, y, site=name).site for name in ("site-0", "site-1", "")] == [
        "site-0",
        "site-1",
        "site-0",
    ]


@pytest.mark.parametrize("privacy", [Privacy(), Privacy(rounding=5), Privacy(min_count=2)])
def test_rows_that_are_in_the_total_are_not_those_of_a_new_site(privacy, rng):
    """They would be judged by heads that were fitted to them."""
    x, y = blobs(rng, rows=60)
    total = total_of(recipe_of(privacy=privacy), x, y, SITES)
    with pytest.raises(RosterError, match="20 rows are in this total, 'site-0' sent them"):
        OwnRows.of_new_site(total, x[:20][::-1], y[:20][::-1])
    assert OwnRows.of_new_site(total, x[:19], y[:19]).entry is None


def test_a_total_of_a_secure_round_takes_another_record_than_its_roster(rng):
    x, y = blobs(rng, rows=60)
    recipe = recipe_of(privacy=Privacy(secure=True))
    moments = moments_of(recipe, x, y)
    total = Total.of_round(np.concatenate([b.ravel() for b in moments.blocks.values()]), recipe, ["a", "b", "c"])
    with pytest.raises(RosterError):
        OwnRows.of(total, x[:20], y[:20])
    assert OwnRows.of(total, x[:20], y[:20], site="b").entry.site == "b"


@pytest.fixture
def at_site(tmp_path, monkeypatch, rng):
    """A folder with a total of three sites and their files."""
    monkeypatch.chdir(tmp_path)
    x, y = blobs(rng, rows=120, spread=1.5)
    recipe = recipe_of(statistics=("B",))
    names = np.array(recipe.classes)
    recipe.save("recipe.toml")
    total_of(recipe, x, y, SITES).save("total.ghofl")
    for i, rows in enumerate(sites_of(y)):
        np.savez(f"site-{i}.npz", x=x[rows], y=names[y[rows]], person=np.arange(len(rows)) // 2)


@pytest.mark.usefixtures("at_site")
def test_the_command_prints_every_head_and_keeps_its_report_private(tmp_path):
    said = run("ghofl evaluate total.ghofl site-1.npz --leave-out 5 --heads best,lda --json r.json")
    assert "each left out in one of 5 folds" in said
    assert "is not left out" in said
    report = json.loads((tmp_path / "r.json").read_text())
    assert [one["head"] for one in report["heads"]][1] == "lda"
    assert report["total_sha256"] == Total.load("total.ghofl").moments.sha256
    assert (report["folds"], report["rows"]) == (5, 40)
    assert sum(map(sum, report["heads"][0]["confusion"])) == 40
    assert (tmp_path / "r.json").stat().st_mode & 0o777 == 0o600
    run("ghofl evaluate total.ghofl site-1.npz --leave-out 5 --heads lda --person person")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("total.ghofl empty.npz --leave-out 5", "empty.npz has no rows"),
        ("total.ghofl one.npz --leave-out 5", "1 row came"),
        ("total.ghofl unknown.npz --leave-out 5", "class"),
        ("total.ghofl other.npz --leave-out 5", "rows are not what any site"),
        ("total.ghofl site-0.npz --leave-out 1", "at least 2 folds"),
        ("total.ghofl site-0.npz --leave-out 5 --site north", "leave out --site"),
        ("total.ghofl site-0.npz --leave-out 5 --device cuda", "needs no encoder; leave out"),
        ("total.ghofl site-0.npz --heads lda", "no --leave-out, and one head is judged; leave out --heads"),
        ("total.ghofl site-0.npz --person who", "leave out --person"),
        ("total.ghofl site-0.npz", "a 'head' was expected"),
    ],
)
@pytest.mark.usefixtures("at_site")
def test_bad_input_is_one_sentence(arguments, said, rng):
    x = rng.normal(size=(5, 6))
    np.savez("empty.npz", x=x[:0], y=np.array([], dtype="U9"))
    np.savez("one.npz", x=x[:1], y=np.array(["class 0"]))
    np.savez("unknown.npz", x=x, y=np.array(["elephant"] * 5))
    np.savez("other.npz", x=x, y=np.array(["class 0"] * 5))
    run(f"ghofl evaluate {arguments}", refusal=said)


def test_the_walk_through_at_a_hospital_runs_line_by_line(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    for name, rows in (("north", 120), ("south", 60), ("new", 40)):
        y = rng.integers(3, size=rows)
        np.savez(
            f"{name}.npz", x=rng.normal(size=(rows, 64)) + 2.0 * np.eye(3, 64)[y], y=np.array(["cat", "dog", "bird"])[y]
        )
    np.savez("bare.npz", x=np.load("new.npz")["x"])
    run_lines(lines_of(DOCS / "how-to-own-rows.md"))


def test_a_ledger_says_which_rows_went_into_a_secure_total(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    x, y = blobs(rng, rows=60)
    recipe = recipe_of(statistics=("B",), privacy=Privacy(secure=True))
    blocks = moments_of(recipe, x, y).blocks.values()
    Total.of_round(np.concatenate([b.ravel() for b in blocks]), recipe, ["north", "south", "west"]).save("total.ghofl")
    np.savez("north.npz", x=x[:20], y=np.array(recipe.classes)[y[:20]])
    (tmp_path / "site.toml").write_text('name = "north"\nembeddings = "north.npz"\nfolder = "folder"\n')
    command = "ghofl evaluate total.ghofl north.npz --leave-out 4 --heads lda --json -"
    run(command, refusal="are not what any site in this total sent")
    run(f"{command} --site-file site.toml", refusal="has no line that says that these 20 rows left")
    storage = Site.load("site.toml").storage()
    facts = {"round": "e" * 32, "recipe": recipe.fingerprint, "data": version_of(x[:20], y[:20], recipe.classes)}
    Ledger.load(storage).write(storage, "masked", **facts, rows=20, guarantee=None)
    assert json.loads(run(f"{command} --site-file site.toml"))["rows"] == 20
    few = moments_of(recipe, x[:5], y[:5]).blocks.values()
    Total.of_round(np.concatenate([b.ravel() for b in few]), recipe, ["north", "south", "west"]).save("few.ghofl")
    run(f"{command} --site-file site.toml".replace("total", "few"), refusal="these 20 rows are not in this total")
    Ledger.load(storage).write(
        storage, "masked", **(facts | {"round": "f" * 32, "data": "d" * 64}), rows=9, guarantee=None
    )
    run(f"{command} --site-file site.toml", refusal="several versions of its rows left")
