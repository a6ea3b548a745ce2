"""Accuracy and payload on real MobileNetV2 embeddings of CIFAR, by the command that users run."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ghofl import Features, Gaussians, HeadSpec, Message, Privacy, Total
from ghofl.heads.lda import fit_lda
from ghofl.outbox import Embedded, count
from ghofl.privacy import NoiseStream, as_vector, protect
from ghofl.simulation.simulate import Dataset, recipe_for

# Minutes of matrix products, and other tests beside them.
pytestmark = [pytest.mark.slow, pytest.mark.seconds(900)]

CLASSES = {"cifar10": 10, "cifar100": 100}
# The paper's payload in float32, triangular matrices: bytes for C classes and k dimensions.
PAPER_BYTES = {
    "nb": lambda c, k: 4 * (c + 2 * c * k),
    "lda": lambda c, k: 4 * (c + c * k + k * (k + 1) // 2),
    "qda": lambda c, k: 4 * (c + c * k + c * k * (k + 1) // 2),
}


SKEWED = ("--clients", "10", "--alpha", "0.1")
FEW = ("--clients", "2", "--alpha", "0.1")  # for accuracy: the total, and so each head, is that of every other split
PAPER = (*SKEWED, "--preset", "paper", "--heads", "nb,lda,qda")
FIGURES = {
    "cifar10": {"nb": (79.15, 0.2), "lda": (86.46, 0.2), "qda": (85.07, 0.3)},
    "cifar100": {"nb": (57.0, 0.2), "lda": (64.5, 0.2), "qda": (67.3, 0.3)},
}


@pytest.mark.parametrize("name", CLASSES)
def test_paper_heads_reach_their_figures(simulate, name):
    heads = simulate(name, *PAPER)["heads"]
    for head, (figure, tolerance) in FIGURES[name].items():
        assert 100 * heads[head]["accuracy"] == pytest.approx(figure, abs=tolerance), head


@pytest.mark.parametrize("name", CLASSES)
def test_a_message_is_at_most_three_quarters_of_the_papers(simulate, name):
    heads = simulate(name, *PAPER)["heads"]
    for head, size in PAPER_BYTES.items():
        assert heads[head]["payload_bytes"] <= 0.75 * size(CLASSES[name], 1280), head


def test_rda_on_square_roots_beats_the_paper_on_cifar10(simulate):
    heads = simulate("cifar10", *FEW, "--power", "0.5", "--heads", "rda(blend=0.95,shrinkage=0.05),rda")["heads"]
    assert heads["rda(blend=0.95,shrinkage=0.05)"]["accuracy"] >= 0.874
    assert heads["rda"]["accuracy"] >= 0.872


def test_rda_and_sketched_qda_on_square_roots_beat_the_paper_on_cifar100(simulate):
    rooted = ("cifar100", *FEW, "--power", "0.5")
    rda = simulate(*rooted, "--heads", "rda(blend=0.9,shrinkage=0.05)")["heads"]
    sketched = simulate(*rooted, "--sketch", "256", "--heads", "sketched_qda")["heads"]
    assert rda["rda(blend=0.9,shrinkage=0.05)"]["accuracy"] >= 0.711
    assert sketched["sketched_qda"]["accuracy"] >= 0.689


def test_the_total_of_real_embeddings_is_the_same_for_every_split(simulate):
    """Each of the three commands runs several splits, and scores the heads of equal totals once."""
    evenly = ("--clients", "1", "--clients", "10", "--clients", "100", "--clients", "1000")
    skewed = ("--clients", "10", "--alpha", "0.05", "--alpha", "0.1", "--alpha", "0.5")
    by_class = ("--clients", "10", "--classes-per-client", "1", "--classes-per-client", "2", "--seed", "5")
    found = [simulate("cifar10", *split, "--heads", "lda") for split in (evenly, skewed, by_class)]
    runs = [run for each in found for run in each["runs"]]
    assert len(runs) == 9
    assert len({run["total_sha256"] for run in runs}) == 1
    assert len({run["accuracy"] for run in runs}) == 1


NOISE_SEEDS = 5


@pytest.fixture(scope="session")
def noisy_lda(stored):
    """Accuracy of LDA on CIFAR-10 around CIFAR-100's mean, averaged over draws of noise; moments are computed once."""

    rows, public = stored("cifar10"), stored("cifar100")["x_train"]
    y_train, y_test = (rows[key].astype(int) for key in ("y_train", "y_test"))
    data = Dataset(rows["x_train"], y_train, rows["x_test"], y_test, tuple("0123456789"))
    anchor = tuple(public.mean(axis=0, dtype=np.float64).tolist())
    plain = recipe_for(data, [HeadSpec.parse("lda")], anchor=anchor, unit_length=True, public=public)
    plain = replace(plain, privacy=Privacy(radius=1.0))
    parts = np.array_split(np.arange(len(data.y_train)), 10)
    features = Features.of(plain)
    sites = [count(features, Embedded(data.x_train[p], data.y_train[p])).moments for p in parts]
    test = features.values(data.x_test)

    def total(recipe, stream):
        if recipe.privacy.secure:
            vector = sum(as_vector(protect(moments, recipe, stream), recipe) for moments in sites)
            return Total.of_round(vector, recipe, [f"site-{i}" for i in range(10)])
        messages = (Message.of(moments, recipe, f"site-{i}") for i, moments in enumerate(sites))
        return Total.of(messages, recipe).release(stream)

    @cache
    def accuracy(epsilon: float, **options) -> float:
        privacy = Privacy(radius=1.0, epsilon=epsilon, delta=1e-5, **options)
        recipe = replace(plain, privacy=privacy)
        totals = (total(recipe, NoiseStream(b"draw %d" % seed)) for seed in range(NOISE_SEEDS))
        heads = (fit_lda(Gaussians.of_total(noisy.for_heads(), features)) for noisy in totals)
        return 100 * float(np.mean([head.predict(test) == data.y_test for head in heads]))

    return accuracy


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 82.5), (8.0, 84.5)])
def test_central_noise_around_a_public_anchor_leaves_lda_accurate(noisy_lda, epsilon, least):
    assert noisy_lda(epsilon) >= least


def test_distributed_noise_costs_less_than_a_point_more_than_central(noisy_lda):
    """Ten sites, of whom eight keep their noise to themselves."""
    distributed = noisy_lda(1.0, noise="distributed", secure=True, min_cohort=8)
    assert distributed >= noisy_lda(1.0) - 1.0
