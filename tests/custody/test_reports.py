"""A report on a head passes through a site's policy and ledger."""

import json

import numpy as np
import pytest
from test_cli import ghofl

from federations import blobs, total_of
from ghofl import Classifier
from ghofl.custody.budget import describe_releases
from ghofl.custody.custody import Custody
from ghofl.custody.history import History
from ghofl.custody.ledger import Ledger
from ghofl.custody.site import Site
from ghofl.errors import PolicyError
from ghofl.recipe import Encoder, Grid, Privacy, Recipe
from ghofl.report.what_left import what_left

RECIPE = Recipe(("a", "b"), Encoder(2), grid=Grid(scale=10.0))
ROWS = np.array([40, 30])


def site_with(folder, policy=""):
    (folder / "policy.toml").write_text(policy)
    (folder / "site.toml").write_text(
        'name = "north"\nembeddings = "rows.npz"\nfolder = "memory"\npolicy = "policy.toml"\n'
    )
    return Site.load(folder / "site.toml")


def lines_of(site):
    return [line.what for line in Ledger.load(site.storage()).lines]


def test_a_report_is_in_the_ledger_once_and_ends_every_guarantee(tmp_path):
    site = site_with(tmp_path)
    for _ in range(2):
        Custody(site, site.storage()).record_evaluation(RECIPE, ROWS, "d" * 64, b"report")
    assert lines_of(site) == ["reported"]
    history = History.of(Ledger.load(site.storage()))
    assert describe_releases(history.releases).startswith(
        "No differential privacy covers them: 1 of 1 left without noise"
    )
    assert history.known("north", "d" * 64).to_text() == History().known("north", "d" * 64).to_text(), (
        "peers in secure rounds are told of sums, and a report is none"
    )


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("max_epsilon = 2.0\nmax_delta = 1e-5\n", "under an epsilon"),
        ("min_rows = 100\n", "fewer rows than this site's policy allows: 100 in all"),
        ("disclosure = { class_rows = 35 }\n", "35 of each class"),
        ('[disclosure]\npreset = "strict"\nclass_rows = 31\n', "31 of each class"),
    ],
)
def test_what_the_policy_does_not_allow_is_refused_and_not_written(policy, why, tmp_path):
    site = site_with(tmp_path, policy)
    with pytest.raises(PolicyError, match=why):
        Custody(site, site.storage()).record_evaluation(RECIPE, ROWS, "d" * 64, b"report")
    assert lines_of(site) == []


def test_after_something_under_an_epsilon_no_exact_report_leaves(tmp_path):
    site = site_with(tmp_path)
    promised = Privacy(radius=4.0, epsilon=1.0, delta=1e-6, noise="local")
    from ghofl.custody.history import guarantee_facts
    from ghofl.privacy import plan_of

    guarantee = plan_of(Recipe(("a", "b"), Encoder(2), grid=Grid(scale=10.0), privacy=promised)).guarantee
    facts = {"id": "e" * 32, "recipe": RECIPE.fingerprint, "data": "d" * 64, "rows": 70, "sha256": "f" * 64}
    Ledger.load(site.storage()).write(site.storage(), "sent", **facts, guarantee=guarantee_facts(guarantee))
    with pytest.raises(PolicyError, match="under an epsilon"):
        Custody(site, site.storage()).record_evaluation(RECIPE, ROWS, "d" * 64, b"report")


def test_a_report_that_leaves_has_no_thresholds(tmp_path, rng):
    """They are probabilities of single rows."""
    site_with(tmp_path, "min_rows = 10\n")
    x, y = blobs(rng, classes=2)
    Classifier.fit(total_of(Recipe(("a", "b"), Encoder(x.shape[1]), grid=Grid(scale=10.0)), x, y), "lda").save(
        tmp_path / "lda.safetensors"
    )
    np.savez(tmp_path / "own.npz", x=x, y=np.array(["a", "b"])[y])
    words = ["evaluate", tmp_path / "lda.safetensors", tmp_path / "own.npz", "--json"]
    for name, options in (("stays", ()), ("leaves", ("--site-file", tmp_path / "site.toml"))):
        ghofl(*words, tmp_path / name, *options)
        report = json.loads((tmp_path / name).read_text())
        assert ("by_threshold" in report, report["thresholds"]) == (name == "stays", {})


def test_the_command_writes_the_ledger_before_the_report(tmp_path, rng):
    site = site_with(tmp_path, "min_rows = 10\n")
    x, y = blobs(rng)
    total = total_of(Recipe(tuple("abcd"), Encoder(x.shape[1]), grid=Grid(scale=10.0)), x, y)
    Classifier.fit(total, "lda").save(tmp_path / "lda.safetensors")
    np.savez(tmp_path / "own.npz", x=x, y=np.array(list("abcd"))[y])
    words = ["evaluate", tmp_path / "lda.safetensors", tmp_path / "own.npz", "--site-file", tmp_path / "site.toml"]
    ghofl(*words, code=2)
    assert lines_of(site) == [], "nothing leaves without --json"
    ghofl(*words, "--json", tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["sites"] == ["north"]
    assert lines_of(site) == ["reported"]
    assert "reported" in ghofl("ledger", tmp_path / "site.toml")
    assert "a file, for whoever the site gave it to" in what_left(site, Ledger.load(site.storage()), "site.toml")
    (tmp_path / "policy.toml").write_text("min_rows = 100000\n")
    np.savez(tmp_path / "own.npz", x=x[:-1], y=np.array(list("abcd"))[y[:-1]])
    ghofl(*words, "--json", tmp_path / "second.json", code=2)
    assert not (tmp_path / "second.json").exists()
    assert lines_of(site) == ["reported"]
