"""Federated cross-validation: sites judge heads of one total by leave-out, and their counts choose and calibrate one."""

import json
from dataclasses import replace

import numpy as np
import pytest

from federations import blobs, recipe_of, total_of
from ghofl import Classifier, HeadSpec
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Site
from ghofl.errors import MessageError, PrivacyError, RosterError
from ghofl.evaluation.leave_out import OwnRows, assign_folds, cross_validate, leave_out
from ghofl.evaluation.selection import Report, best_of, calibrate_head, load_reports
from ghofl.evaluation.tally import Tally
from ghofl.recipe import Privacy
from pages import run

SITES, FOLDS, HEADS = 3, 3, "best,lda,nearest_mean"
RECIPE = recipe_of(statistics=("B",))


def sites_of(y):
    return np.array_split(np.arange(len(y)), SITES)


@pytest.fixture(scope="module")
def rows():
    return blobs(np.random.default_rng(5), rows=120, spread=1.0)


@pytest.fixture(scope="module")
def total(rows):
    return total_of(RECIPE, *rows, SITES)


@pytest.fixture(scope="module")
def reports(rows, total):
    """The reports of every site, by site and head."""
    x, y = rows
    found = [cross_validate(total, x[own], y[own], HEADS, FOLDS, tally=True) for own in sites_of(y)]
    return [{name: Report.of_left_out(one) for name, one in each.items()} for each in found]


def every(reports):
    return [report for each in reports for report in each.values()]


def test_what_select_adds_up_is_pooled_cross_validation_with_the_folds_site_and_fold(rows, reports):
    """Counts and tallies of every head, against heads that are fitted to all rows but those of one site's fold."""
    x, y = rows
    for found in best_of(every(reports)):
        confusion, tally = np.zeros((4, 4), dtype=np.int64), Tally.zeros()
        for own in sites_of(y):
            fold = assign_folds(y[own], FOLDS)
            for k in range(FOLDS):
                out = own[fold == k]
                kept = np.setdiff1d(np.arange(len(y)), out)
                pooled = Classifier.fit(total_of(RECIPE, x[kept], y[kept]), found.head)
                np.add.at(confusion, (y[out], pooled.predict_numbers(x[out])), 1)
                tally += Tally.of(pooled, x[out], y[out])
        assert np.array_equal(found.confusion.counts, confusion)
        assert np.array_equal(found.tally.losses, tally.losses)
        assert (found.sites, found.folds, found.confusion.rows) == (("site-0", "site-1", "site-2"), FOLDS, len(y))


def test_a_head_is_calibrated_on_reports_about_the_total_it_was_made_from(total, reports, tmp_path):
    path = tmp_path / "lda"
    Classifier.fit(total, "lda", novelty=True).save(path)
    head = Classifier.load(path)
    made, found = calibrate_head(path, head, every(reports))
    expected = sum((each["lda"].tally for each in reports), start=Tally.zeros()).calibrate(head, 120)
    assert (made.temperature, made.calibration.source) == (expected.temperature, "sites")
    assert found.sites == ("site-0", "site-1", "site-2")
    assert np.array_equal(made.novelty_rule.levels, head.novelty_rule.levels), "leave-out does not measure it"
    assert made.total == "", "the reports are not on what was calibrated by them"
    made.save(path)
    with pytest.raises(RosterError, match="was not made from it alone"):
        calibrate_head(path, made, every(reports))


def test_what_best_chose_is_calibrated_on_reports_on_best(total, reports, tmp_path):
    head = Classifier.fit(total, "best")
    head.save(tmp_path / "best")
    of_best = [each["best"] for each in reports]
    assert calibrate_head(tmp_path / "best", head, of_best)[1].head == "best"


def change(report, **values):
    return replace(report, **values)


@pytest.mark.parametrize(
    ("twist", "said"),
    [
        (lambda r: change(r, sha256="0" * 64), "reports on different totals"),
        (lambda r: change(r, folds=5), "by 3 and by 5 folds"),
        (lambda r: change(r, built="lda(shrinkage=0.5)"), "reports on 'lda' .lda. and 'lda' .lda.shrinkage=0.5.. do not add"),
        (lambda r: change(r, head="rda", built="rda"), "'site-0' reported on one of 'lda' and 'rda' and not on the other"),
        (lambda r: change(r, sites=("site-0",)), "'site-0' reported twice"),
        (lambda r: change(r, recipe="0" * 64), "under two recipes"),
        (lambda r: change(r, folds=0, built=""), "on head files and by leave-out"),
        (lambda r: change(r, confusion=replace(r.confusion, counts=np.eye(1, dtype=np.int64))), "4 and 1 classes"),
    ],
)  # fmt: skip
def test_reports_that_do_not_belong_together_are_told_in_a_sentence(reports, twist, said):
    with pytest.raises(RosterError, match=said):
        best_of([reports[0]["lda"], twist(reports[1]["lda"])])


def test_reports_do_not_calibrate_another_head_or_one_of_another_total(rows, total, reports, tmp_path):
    x, y = rows
    less = total_of(RECIPE, x[:80], y[:80], 2)
    for made, said in (
        (Classifier.fit(less, "lda"), "not made from it"),
        (Classifier.fit(total, "ridge"), "'site-0' did not report"),
    ):
        made.save(tmp_path / "head")
        with pytest.raises(RosterError, match=said):
            calibrate_head(tmp_path / "head", made, every(reports))
    Classifier.fit(total, "lda").save(tmp_path / "head")
    some = [*every(reports[:2]), reports[2]["best"]]
    with pytest.raises(RosterError, match="'site-2' did not report on lda"):
        calibrate_head(tmp_path / "head", Classifier.load(tmp_path / "head"), some)
    bare = [change(each["lda"], tally=None) for each in reports]
    with pytest.raises(MessageError, match="has no tally"):
        calibrate_head(tmp_path / "head", Classifier.load(tmp_path / "head"), bare)


@pytest.mark.parametrize(
    "damage",
    [
        {"folds": 1}, {"folds": True}, {"folds": 2**40}, {"folds": None}, {"built": 3}, {"built": "x" * 2000},
        {"head": "lda\n"}, {"total_sha256": "x" * 64}, {"confusion": [[1, 2]]}, {"confusion": [[-1]]}, {"tally": {}},
        {"sites": ["x" * 65]}, {"kind": "total"}, {"thresholds": {"a": 2}}, {"confusion": []},
        {"sites": []}, {"sites": None}, {"sites": [3]}, {"sites": [""]}, {"sites": ["a", "a"]}, {"sites": ["a\x1b[2J"]},
        {"confusion": [[2**53] * 40] * 40}, {"confusion": [[float("nan")] * 4] * 4},
    ],
)  # fmt: skip
def test_a_hostile_report_by_leave_out_is_refused(reports, damage, tmp_path):
    values = {"heads": [reports[0]["lda"].to_dict(), {**reports[0]["best"].to_dict(), **damage}]}
    (tmp_path / "r.json").write_text(json.dumps(values))
    with pytest.raises(MessageError):
        load_reports(tmp_path / "r.json")


@pytest.mark.parametrize(
    "tally",
    [
        {"losses": [40 * 2**20 * 40 + 1] * 65}, {"novelties": [2**50] + [0] * 599}, {"novelties": [39] + [0] * 599},
        {"novelties": [41] + [0] * 599}, {"losses": [-1] * 65}, {"losses": [0] * 64},
    ],
)  # fmt: skip
def test_a_tally_weighs_no_more_than_its_rows(reports, tally, tmp_path):
    """One site of forty rows could otherwise choose the temperature and the novelty of all."""
    values = reports[0]["lda"].to_dict()
    (tmp_path / "r.json").write_text(json.dumps({**values, "tally": {**values["tally"], **tally}}))
    with pytest.raises(MessageError, match="the tally is not"):
        load_reports(tmp_path / "r.json")


def test_under_an_epsilon_no_report_by_leave_out_is_made_or_used(rows, reports, tmp_path):
    """With leave-out one row moves the heads of all other folds, so that noise on counts would have to hide all rows."""
    private = recipe_of(statistics=("B",), privacy=Privacy(epsilon=50.0, delta=1e-5, radius=20.0))
    x, y = rows
    released = total_of(private, x, y, SITES).release()
    for within in (private, released, total_of(private, x, y, SITES)):
        with pytest.raises(PrivacyError, match="rows cannot be taken out"):
            cross_validate(within, x, y, "lda")
    with pytest.raises(RosterError, match="not in the total, so none can be left out"):
        leave_out(OwnRows.of_new_site(released, x, y), {"lda": HeadSpec("lda")}, assign_folds(y))
    made = Classifier.fit(released, "lda")
    made.save(tmp_path / "head")
    claimed = [change(each["lda"], sha256=made.total, recipe=private.fingerprint) for each in reports]
    with pytest.raises(PrivacyError, match="has an epsilon, and no rows are left out"):
        calibrate_head(tmp_path / "head", made, claimed)


@pytest.mark.parametrize("heads", [[], {}, None, [3], [[]], [{"heads": []}]])
def test_a_file_without_reports_is_refused(heads, tmp_path):
    (tmp_path / "r.json").write_text(json.dumps({"kind": "leave-out", "heads": heads}))
    with pytest.raises(MessageError, match="is not a report"):
        load_reports(tmp_path / "r.json")
    (tmp_path / "r.json").write_text(json.dumps({"heads": [1] * 257}))
    with pytest.raises(MessageError, match="1 to 256 heads"):
        load_reports(tmp_path / "r.json")


@pytest.fixture
def at_sites(tmp_path, monkeypatch, rows, total):
    """A folder with a total, the files of its sites, and a site file with a policy for each."""
    monkeypatch.chdir(tmp_path)
    x, y = rows
    total.save("total.ghofl")
    (tmp_path / "policy.toml").write_text("min_rows = 10\n")
    for i, own in enumerate(sites_of(y)):
        np.savez(f"{i}.npz", x=x[own], y=np.array(RECIPE.classes)[y[own]])
        lines = (f'name = "site-{i}"', f'embeddings = "{i}.npz"', f'folder = "memory-{i}"', 'policy = "policy.toml"')
        (tmp_path / f"{i}.toml").write_text("\n".join(lines) + "\n")
    return tmp_path


def evaluate(site, more=""):
    return f"ghofl evaluate total.ghofl {site}.npz --leave-out 3 --heads best,lda --tally --json {site}.json {more}"


def test_sites_report_through_policy_and_ledger_and_the_server_selects_and_calibrates(at_sites, reports):
    for site in range(SITES):
        run(evaluate(site, f"--site-file {site}.toml"))
        lines = list(Ledger.load(Site.load(f"{site}.toml").storage()).lines)
        assert [line.what for line in lines] == ["received", "reported"], "it has the total, and its report leaves"
        assert lines[1].facts["rows"] == 40
        assert (at_sites / f"{site}.json").stat().st_mode & 0o777 == 0o600
    found = json.loads(run("ghofl select 0.json 1.json 2.json --json -"))["heads"]
    expected = best_of(report for each in reports for name, report in each.items() if name != "nearest_mean")
    assert [each["confusion"] for each in found] == [each.confusion.counts.tolist() for each in expected]
    assert "3 folds at every site" in run("ghofl select 0.json 1.json 2.json")
    run("ghofl head total.ghofl --head lda -o lda.safetensors")
    assert "120 rows of 3 sites" in run("ghofl calibrate lda.safetensors 0.json 1.json 2.json -o mended.safetensors")
    assert Classifier.load("mended.safetensors").calibration.source == "sites"


@pytest.mark.usefixtures("at_sites")
def test_a_report_on_another_site_s_rows_does_not_leave():
    run(evaluate(1, "--site-file 0.toml"), refusal="these rows are of 'site-1', and the site of 0.toml is 'site-0'")


def test_a_report_that_leaves_has_no_probabilities_of_single_rows(at_sites, rng):
    """Of two classes a report for the site alone says what becomes of the rarer one at several thresholds."""
    x, y = blobs(rng, rows=40, classes=2)
    two = recipe_of(classes=2, statistics=("B",))
    total_of(two, x, y, 1).save("total.ghofl")
    np.savez("0.npz", x=x, y=np.array(two.classes)[y])
    for more in ("", "--site-file 0.toml"):
        (at_sites / "0.json").unlink(missing_ok=True)
        run(evaluate(0, more))
        assert all(
            ("by_threshold" in one) == (not more) for one in json.loads((at_sites / "0.json").read_text())["heads"]
        )
