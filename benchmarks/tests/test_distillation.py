"""DENSE and Co-Boosting: their parts by themselves, and students that learn on embeddings and on images."""

import pytest

torch = pytest.importorskip("torch")

from ghofl_benchmarks.baselines import coboosting, dense  # noqa: E402
from ghofl_benchmarks.baselines.distillation import (  # noqa: E402
    Distillation,
    Ensemble,
    LinearEnsemble,
    Pool,
    ensemble_of,
)
from ghofl_benchmarks.baselines.local import LocalTraining, accuracy, rows_of, train_locally  # noqa: E402
from ghofl_benchmarks.baselines.networks import (  # noqa: E402
    EmbeddingGenerator,
    ImageGenerator,
    embedding_head,
    small_network,
)

METHODS = {"DENSE": dense.dense, "Co-Boosting": coboosting.coboosting}


def blobs(rows=400, dim=6, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % classes
    centres = 4.0 * torch.eye(classes, dim)
    return centres[y] + torch.randn(rows, dim, generator=generator), y


def heads(x, y, clients=3):
    """Heads of clients that see all rows of most classes."""
    networks = []
    for i in range(clients):
        torch.manual_seed(i)
        network = embedding_head(x.shape[1], int(y.max()) + 1)
        rows = torch.nonzero(y != i)[:, 0]
        train_locally(network, rows_of(x, y), rows, LocalTraining(rate=0.1, batch=32, epochs=5), torch.Generator())
        networks.append(network)
    return networks


@pytest.mark.slow
def test_linear_heads_in_one_product_have_the_scores_and_the_gap_of_one_after_the_other():
    x, y = blobs(120)
    networks = heads(x, y)
    quick, slow = ensemble_of(networks), Ensemble(networks)
    assert isinstance(quick, LinearEnsemble)
    torch.testing.assert_close(quick(x), slow(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(quick.scores_and_gap(x)[1], slow.scores_and_gap(x)[1], rtol=1e-4, atol=1e-4)


def test_the_gap_is_zero_for_a_batch_with_the_statistics_that_norms_remember():
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    network = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    network[0].running_mean.copy_(x.mean(dim=0))
    network[0].running_var.copy_(x.var(dim=0, unbiased=False))
    assert Ensemble([network]).scores_and_gap(x)[1].item() == pytest.approx(0.0, abs=1e-6)
    assert Ensemble([network]).scores_and_gap(x + 1.0)[1].item() == pytest.approx(3.0**0.5, rel=1e-4)


def test_an_ensemble_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one network"):
        Ensemble([])


def test_the_weight_of_a_network_that_is_right_grows_and_weights_stay_shares():
    y = torch.tensor([0, 1, 1])
    right = 3.0 * torch.nn.functional.one_hot(y, 2).float()
    weights = torch.tensor([0.5, 0.5])
    for _ in range(3):
        weights = coboosting.reweighted(weights, torch.stack([right, -right]), y)
    assert weights[0] > 0.6
    assert weights.sum().item() == pytest.approx(1.0)
    assert (weights >= 0).all()


def test_harder_samples_are_moved_by_the_given_reach():
    x, y = blobs(40)
    moved = coboosting.harden(ensemble_of(heads(x, y)), x, 0.1, torch.Generator().manual_seed(0))
    torch.testing.assert_close((moved - x).norm(dim=1), torch.full((40,), 0.1 * 6**0.5))


def test_samples_that_the_ensemble_finds_hard_weigh_more_in_the_generators_loss():
    x, y = blobs(40)
    ensemble, student = ensemble_of(heads(x, y)), embedding_head(6, 4)
    how = Distillation(norms=0.0, disagreement=0.0)
    loss = coboosting.hard_sample_loss(ensemble, student, x, y, how).item()
    plain = torch.nn.functional.cross_entropy(ensemble(x), y).item()
    assert 0 < loss < plain  # every sample counts 1 − p_y < 1


def test_a_pool_forgets_its_oldest_batches():
    pool = Pool(kept=2)
    for i in range(4):
        pool.add(torch.full((1,), float(i)), torch.tensor([i]))
    drawn = {pool.draw(torch.Generator().manual_seed(s))[1].item() for s in range(20)}
    assert drawn == {2, 3}


def test_generated_embeddings_stay_within_four_deviations_of_what_norms_remember():
    x, y = blobs(80)
    norms = [network[0] for network in heads(x, y)]
    made = EmbeddingGenerator(4, norms)(1000 * torch.randn(64, 64), torch.zeros(64, dtype=torch.long))
    generator = EmbeddingGenerator(4, norms)
    assert ((made - generator.centre).abs() <= generator.reach + 1e-4).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_student_without_data_comes_near_the_ensemble_on_embeddings(name):
    x, y = blobs()
    networks = heads(x, y)
    torch.manual_seed(0)
    student, generator = embedding_head(6, 4), EmbeddingGenerator(4, [n[0] for n in networks], noise=8, width=32)
    look, rows = rows_of(*blobs(seed=1)), torch.arange(400)
    how = Distillation(epochs=10, generator_steps=5, student_steps=10, batch=64, student_rate=0.01)
    course = METHODS[name](networks, student, generator, 4, lambda: accuracy(student, look, rows), how)
    assert accuracy(ensemble_of(networks), look, rows) > 0.9
    assert course.accuracies[-1] > 0.8
    assert course.epochs == 10
    assert sum(course.weights) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_student_without_data_learns_images_from_small_networks_end_to_end(name):
    """Three classes of noisy images, each with its own bright colour; chance is a third."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(120) % 3
    x = 0.3 * torch.rand(120, 3, 8, 8, generator=generator)
    x[torch.arange(120), y] += 0.6
    look, networks = rows_of(x, y), []
    for i in range(2):
        torch.manual_seed(i)
        network = small_network(3, width=4)
        rows = torch.arange(120)[y != i]
        train_locally(network, look, rows, LocalTraining(rate=0.05, batch=16, epochs=5), torch.Generator())
        networks.append(network)
    torch.manual_seed(0)
    student, artist = small_network(3, width=4), ImageGenerator(3, noise=8, size=8, width=8)
    how = Distillation(epochs=8, generator_steps=5, student_steps=10, batch=32, student_rate=0.02, norms=0.1)
    course = METHODS[name](networks, student, artist, 3, lambda: accuracy(student, look, torch.arange(120)), how)
    assert max(course.accuracies) > 0.6


def test_a_course_ends_when_its_seconds_are_over():
    x, y = blobs(40)
    networks = heads(x, y, clients=1)
    student, generator = embedding_head(6, 4), EmbeddingGenerator(4, [networks[0][0]], noise=4, width=8)
    how = Distillation(epochs=1000, generator_steps=1, student_steps=1, batch=8, seconds=0.0)
    course = dense.dense(networks, student, generator, 4, lambda: 0.5, how)
    assert course.epochs == 1
    assert course.accuracies == [0.5]
