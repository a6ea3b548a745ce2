import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits
from test_cli import ghofl

from federations import blobs, moments_of, recipe_of
from ghofl import Features, Gaussians, Layout, Message, Moments, Privacy, Recipe, Total
from ghofl.errors import EmbeddingsError, MissingStatisticError, PrivacyError, RosterError
from ghofl.evaluation.agreement import Agreement
from ghofl.evaluation.diagnosis import Part, diagnose
from ghofl.heads.lda import fit_lda
from ghofl.privacy import MinCount
from ghofl.recipe import Encoder, Grid
from ghofl.simulation.partition import dirichlet_by_class

DIGITS = Recipe(tuple(map(str, range(10))), Encoder(64), grid=Grid(8, 4.0))
LIES = ("flipped", "swapped", "counted", "scaled")


def digits():
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(5).permutation(len(x))
    return Features.of(DIGITS).rows(x[order])[0], y[order].astype(np.int64)


def lie(kind, x, y, rng):
    """The moments of a site that lies about its rows."""
    layout, classes = Layout.of(DIGITS), 10
    if kind == "flipped":
        y = classes - 1 - y
    if kind == "swapped":
        one = int(np.bincount(y).argmax())
        other = int(rng.choice([c for c in range(classes) if c != one]))
        y = np.where(y == one, other, np.where(y == other, one, y))
    if kind == "scaled":
        x = np.clip(2 * x.astype(np.int64), -127, 127)
    moments = Moments.of(x, y, layout)
    times = 100 if kind == "counted" else 1
    return Moments(layout, {name: times * block for name, block in moments.blocks.items()})


def splits(alpha, seeds):
    """Digits over ten sites, and one of those with 2 % of the rows or more."""
    x, y = digits()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        parts = dirichlet_by_class(y, 10, alpha, rng)
        liar = int(rng.choice([s for s in range(10) if len(parts[s]) >= 0.02 * len(y)]))
        yield [(x[p], y[p]) for p in parts], liar, rng


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.1, 0.5])
@pytest.mark.parametrize("kind", ["honest", *LIES])
def test_a_site_of_ten_that_lies_is_flagged_and_honest_ones_are_not(kind, alpha, as_users_run_it):
    layout, found, alarms, seeds = Layout.of(DIGITS), 0, 0, 20
    for rows, liar, rng in splits(alpha, range(300, 300 + seeds)):
        parts = [Part(str(s), Moments.of(x, y, layout)) for s, (x, y) in enumerate(rows)]
        if kind != "honest":
            parts[liar] = Part(str(liar), lie(kind, *rows[liar], rng))
        flagged = {site.name for site in diagnose(parts, DIGITS).flagged}
        found += str(liar) in flagged and kind != "honest"
        alarms += len(flagged - (set() if kind == "honest" else {str(liar)}))
    assert kind == "honest" or found >= 0.95 * seeds
    assert alarms <= 0.01 * 9 * seeds


def site_parts(sites=6, rows=600, offset=0.0, seed=0, statistics=("B",)):
    """Honest sites with all classes, which differ by offsets of their own."""
    recipe, rng = recipe_of(dim=6, classes=3, statistics=statistics, scale=16.0), np.random.default_rng(seed)
    x, y = blobs(rng, rows, classes=3, spread=2.0)
    chunks = np.array_split(np.arange(rows), sites)
    moved = [x[p] + offset * rng.normal(size=6) for p in chunks]
    return recipe, [
        Part(f"s{i}", moments_of(recipe, m, y[p])) for i, (m, p) in enumerate(zip(moved, chunks, strict=True))
    ]


def swapped(part, a=0, b=1):
    """The same site with two classes exchanged."""
    order = np.arange(part.moments.layout.classes)
    order[[a, b]] = b, a
    blocks = {n: block if n == "B" else block[order] for n, block in part.moments.blocks.items()}
    return replace(part, moments=Moments(part.moments.layout, blocks))


def test_swapped_classes_are_named():
    recipe, parts = site_parts()
    parts[2] = swapped(parts[2])
    found = diagnose(parts, recipe)
    assert [site.name for site in found.flagged] == ["s2"]
    assert found.flagged[0].looks_like == (("class 0", "class 1"), ("class 1", "class 0"))
    assert "its 'class 0' is the others' 'class 1'" in found.sentences()[0]


@pytest.mark.parametrize("statistics", [("D",), ("B",), ("S",)])
def test_any_second_moments_will_do(statistics):
    recipe, parts = site_parts(statistics=statistics)
    assert not diagnose(parts, recipe).flagged
    scaled = {"N": 1, "A": 3, "D": 9, "B": 9, "S": 9}
    blocks = {n: scaled[n] * block for n, block in parts[4].moments.blocks.items()}
    parts[4] = replace(parts[4], moments=Moments(parts[4].moments.layout, blocks))
    found = diagnose(parts, recipe)
    assert [site.name for site in found.flagged] == ["s4"]
    assert found.flagged[0].width == pytest.approx(9, rel=0.5)


def test_sites_that_differ_by_nature_are_not_flagged_and_one_that_lies_among_them_is():
    recipe, parts = site_parts(rows=6000, offset=0.3)
    found = diagnose(parts, recipe)
    assert not found.flagged
    assert found.spread > 0.01
    parts[1] = swapped(parts[1], 0, 2)
    assert [site.name for site in diagnose(parts, recipe).flagged] == ["s1"]


def test_counts_that_are_multiplied_are_recognised_by_their_divisor_or_by_means_that_vary_too_much():
    recipe, parts = site_parts(rows=1200)
    times = Moments(parts[0].moments.layout, {n: 100 * b for n, b in parts[0].moments.blocks.items()})
    found = diagnose([replace(parts[0], moments=times), *parts[1:]], recipe)
    assert [(site.name, site.repeats) for site in found.flagged] == [("s0", 100)]
    blurred = times + parts[0].moments - Moments(parts[1].moments.layout, {n: b // 97 for n, b in times.blocks.items()})
    rest = diagnose([replace(parts[0], moments=blurred), *parts[1:]], recipe).sites[0]
    assert rest.repeats == 1
    assert max(rest.labels, rest.features) > 1


def test_the_change_of_the_head_is_that_of_a_head_built_without_the_site():
    recipe, parts = site_parts(rows=120)
    parts[3] = swapped(parts[3])
    found = diagnose(parts, recipe)
    total = sum((p.moments for p in parts[1:]), start=parts[0].moments)
    z = np.random.default_rng(1).normal(size=(2000, 6)) * 64
    heads = [fit_lda(Gaussians.estimate(total - part.moments)) for part in parts]
    whole = fit_lda(Gaussians.estimate(total)).predict(z)
    apart = [np.mean(head.predict(z) != whole) for head in heads]
    assert np.argmax(apart) == np.argmax([site.head_change for site in found.sites]) == 3
    assert all(0 < site.head_change < 0.5 for site in found.sites)


def test_the_order_of_sites_does_not_matter():
    recipe, parts = site_parts()
    parts[2] = swapped(parts[2])
    one, other = diagnose(parts, recipe), diagnose(parts[::-1], recipe)
    for a, b in zip(one.sites, other.sites[::-1], strict=True):
        assert (a.name, a.flags, a.rows) == (b.name, b.flags, b.rows)
        assert a.labels == pytest.approx(b.labels)


def test_a_class_that_one_site_alone_holds_is_said_to_be_beyond_judgement():
    recipe, parts = site_parts()
    rng = np.random.default_rng(3)
    alone = [replace(p, moments=moments_of(recipe, rng.normal(size=(60, 6)), rng.integers(2, size=60))) for p in parts]
    alone[5] = replace(parts[5], moments=moments_of(recipe, rng.normal(size=(60, 6)), np.repeat([0, 1, 2], 20)))
    found = diagnose(alone, recipe)
    assert [site.alone for site in found.sites] == [()] * 5 + [("class 2",)]
    assert "no other site has class 'class 2'" in found.sentences()[0]


def test_two_sites_noise_in_messages_and_no_second_moments_are_refused():
    recipe, parts = site_parts()
    with pytest.raises(RosterError, match="needs 3 sites and 2 came"):
        diagnose(parts[:2], recipe)
    noisy = replace(recipe, privacy=Privacy(radius=1.0, epsilon=1.0, delta=1e-5, noise="local"))
    with pytest.raises(PrivacyError, match="local noise"):
        diagnose(parts, noisy)
    bare, few = site_parts(statistics=())
    assert bare.statistics == ("N", "A")
    with pytest.raises(MissingStatisticError, match="B, D or S"):
        diagnose(few, bare)
    nobody = [replace(p, moments=Moments.zeros(p.moments.layout)) for p in parts]
    with pytest.raises(EmbeddingsError, match="none of these sites has rows"):
        diagnose(nobody, recipe)
    released = replace(Total(recipe, parts[0].moments), small_classes=MinCount(2, (0,), None, False))
    with pytest.raises(PrivacyError, match="exact totals"):
        Part.of(released, "x")


def test_one_site_more_than_half_is_not_called_outliers():
    """With as many liars as honest sites, nobody can say who is who: fewer than half are ever flagged."""
    rng = np.random.default_rng(0)
    counts, means = np.full((6, 3), 50.0), np.eye(3) * 9.0 + rng.normal(size=(6, 3, 3)) / 7.0
    means[3:] = means[3:][:, [1, 2, 0]]
    assert len(Agreement(counts, means).outliers()) < 3


@pytest.fixture
def sites(tmp_path, monkeypatch):
    """Five message files of which `four` has two classes exchanged."""
    monkeypatch.chdir(tmp_path)
    recipe, parts = site_parts(sites=5)
    parts[4] = swapped(parts[4])
    recipe.save("recipe.toml")
    for name, part in zip(("zero", "one", "two", "three", "four"), parts, strict=True):
        Message.of(part.moments, recipe, name).save(f"{name}.ghofl")
    return recipe, [f"{name}.ghofl" for name in ("zero", "one", "two", "three", "four")]


def test_diagnose_names_the_site_and_ends_with_code_3(sites):
    _, files = sites
    result = json.loads(ghofl("diagnose", *files, "-r", "recipe.toml", "--json", "-", code=3))
    assert result["flagged"] == ["four"]
    assert "swapped" in ghofl("diagnose", *files, "-r", "recipe.toml", code=3)
    fitting = ghofl("diagnose", *files[:4], "-r", "recipe.toml")
    assert "Every site fits" in fitting
    assert "…" not in fitting, "the table fits the terminal"


def test_late_joiners_are_compared_with_the_earlier_total(sites):
    _, files = sites
    ghofl("sum", *files[:3], "-r", "recipe.toml", "-o", "first.ghofl")
    result = json.loads(ghofl("diagnose", *files[3:], "first.ghofl", "-r", "recipe.toml", "--json", "-", code=3))
    assert result["flagged"] == ["four"]
