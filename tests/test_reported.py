"""A diagnosis with reports: a site where a head does far worse than elsewhere is flagged, and honest ones are not."""

import json

import numpy as np
import pytest
from test_cli import ghofl
from test_diagnosis import DIGITS, splits

from ghofl import Gaussians, Layout, Moments, Total
from ghofl.errors import RosterError
from ghofl.evaluation import Confusion
from ghofl.evaluation.diagnosis import Diagnosis, Part, SiteDiagnosis, diagnose
from ghofl.evaluation.reported import with_reports
from ghofl.evaluation.selection import Report
from ghofl.features import Features
from ghofl.heads.lda import fit_lda


def reports_of(sites, labels):
    """What every site reports of the LDA of all messages, judged by the labels it has."""
    layout, features = Layout.of(DIGITS), Features.of(DIGITS)
    total = sum((Moments.of(x, y, layout) for x, y in sites), start=Moments.zeros(layout))
    head = fit_lda(Gaussians.of_total(Total(DIGITS, total), features))
    for s, ((x, _), y) in enumerate(zip(sites, labels, strict=True)):
        confusion = Confusion.of(y, head.scores(x * features.unit).argmax(axis=1), 10)
        yield Report("lda", "0" * 64, DIGITS.fingerprint, (str(s),), confusion)


def judged(sites, labels):
    """The flags that reports alone raise."""
    blank = [SiteDiagnosis(str(s), len(y), 0.1, 0.0, 0.0, (), None, 0.0) for s, (_, y) in enumerate(sites)]
    return with_reports(Diagnosis(tuple(blank), 0.0), reports_of(sites, labels))


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_a_site_with_flipped_labels_is_flagged_by_its_own_report_and_honest_sites_are_not(alpha):
    alarms, caught, seeds = 0, 0, 20
    for sites, liar, _ in splits(alpha, range(seeds)):
        honest = judged(sites, [y for _, y in sites])
        alarms += sum(bool(site.flags) for site in honest.sites)
        assert all(site.accuracy is not None for site in honest.sites if site.rows)
        lies = [9 - y if s == liar else y for s, (_, y) in enumerate(sites)]
        site = judged(sites, lies).sites[liar]
        caught += bool(site.flags)
    assert alarms <= 0.01 * seeds * 10
    assert caught >= 0.95 * seeds


def test_reports_of_strangers_of_two_heads_and_twice_are_refused():
    rng, layout = np.random.default_rng(0), Layout.of(DIGITS)
    x, y = rng.integers(0, 60, size=(90, 64)), np.arange(90) % 10
    found = diagnose([Part(n, Moments.of(x[i::3], y[i::3], layout)) for i, n in enumerate("abc")], DIGITS)
    confusion = Confusion(np.eye(10, dtype=np.int64))

    def report(name, head="0" * 64):
        return Report("lda", head, DIGITS.fingerprint, (name,), confusion)

    with pytest.raises(RosterError, match="a report of 'd' but no message"):
        with_reports(found, [report("d")])
    with pytest.raises(RosterError, match="reported twice"):
        with_reports(found, [report("a"), report("a")])
    with pytest.raises(RosterError, match="different head files"):
        with_reports(found, [report("a"), report("b", "1" * 64)])
    assert with_reports(found, []) == found
    told = with_reports(found, [report("a"), report("b")])
    assert [site.accuracy for site in told.sites] == [1.0, 1.0, None]
    assert told.sites[0].expected == 1.0


@pytest.mark.slow
def test_the_command_shows_the_accuracy_that_sites_reported(tmp_path):
    """Three sites; the labels with which one of them judged the head were shifted by one."""
    rng = np.random.default_rng(1)
    y = np.arange(900) % 3
    x = rng.normal(size=(900, 6)) + 4 * np.eye(3)[y] @ rng.normal(size=(3, 6))
    recipe, names = tmp_path / "recipe.toml", ("north", "south", "west")
    ghofl("recipe", recipe, "--classes", "a,b,c", "--dim", 6, "--scale", 10)
    messages = []
    for i, name in enumerate(names):
        np.savez(tmp_path / f"{name}.npz", x=x[i::3], y=np.array(list("abc"))[y[i::3]])
        messages.append(tmp_path / f"{name}.ghofl")
        ghofl("moments", tmp_path / f"{name}.npz", "--recipe", recipe, "--site", name, "-o", messages[-1])
    ghofl("sum", *messages, "--recipe", recipe, "-o", tmp_path / "total.ghofl")
    head = tmp_path / "lda.safetensors"
    ghofl("head", tmp_path / "total.ghofl", "--head", "lda", "-o", head)
    np.savez(tmp_path / "west.npz", x=x[2::3], y=np.array(list("bca"))[y[2::3]])
    reports = []
    for name in names:
        reports += ["--report", tmp_path / f"{name}.json"]
        ghofl("evaluate", head, tmp_path / f"{name}.npz", "--site", name, "--json", tmp_path / f"{name}.json")
    done = ghofl("diagnose", *messages, "--recipe", recipe, *reports, "--json", "-", code=3)
    found = json.loads(done)
    assert found["flagged"] == ["west"]
    assert found["sites"][0]["accuracy"] > 0.9 > 0.2 > found["sites"][2]["accuracy"]
    assert any("west: the head is right on" in line for line in found["findings"])
