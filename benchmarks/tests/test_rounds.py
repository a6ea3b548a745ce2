"""FedAvg, FedProx and SCAFFOLD: by hand, where they converge, what they send, and against Flower's strategies."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from ghofl_benchmarks.baselines.local import LocalTraining, least_rows, rows_of, state_of, train_locally  # noqa: E402
from ghofl_benchmarks.baselines.rounds import MU, Rounds  # noqa: E402

from ghofl.simulation.baselines import BASELINES, FedProxOptions, train_in_rounds  # noqa: E402


def squares(output, target):
    return 0.5 * (output - target).square().mean()


PLAIN = LocalTraining(rate=0.1, momentum=0.0, batch=1, epochs=2, loss=squares)


def scalar(start=0.0):
    """A model with one number w, whose output is w·x."""
    model = torch.nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(start)
    return model


def two_clients():
    """Losses ½·1·(w − 1)² and ½·3·(w + 1)², one row each: their mean is smallest at w = −½."""
    roots = torch.tensor([[1.0], [3.0**0.5]], dtype=torch.float64)
    targets = roots * torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    return rows_of(roots, targets), [torch.tensor([0]), torch.tensor([1])]


def test_two_rounds_of_scaffold_are_those_computed_by_hand():
    """Round 1 has no correction: w₁ 0 → 0.1 → 0.19, w₂ 0 → −0.3 → −0.51. In round 2 c − c₁ = 1.75 = −(c − c₂)."""
    look, clients = two_clients()
    model = scalar()
    play = Rounds("scaffold", model, look, clients, PLAIN)
    play.play()
    assert model.weight.item() == pytest.approx(-0.16)
    assert play._common[0].item() == pytest.approx(0.8)
    play.play()
    assert model.weight.item() == pytest.approx(-0.2815)
    assert play._common[0].item() == pytest.approx(0.6075)
    # Their option II: c₁ − c + (w − w₁) / (K η), with w₁ = −0.2721 at the end.
    assert play._own[0][0].item() == pytest.approx(-0.95 - 0.8 + (-0.16 + 0.2721) / (2 * 0.1))


@pytest.mark.slow
def test_with_many_local_steps_scaffold_finds_the_optimum_and_fedavg_does_not():
    look, clients = two_clients()
    found = {}
    for method in ("fedavg", "scaffold"):
        model = scalar()
        play = Rounds(method, model, look, clients, replace(PLAIN, epochs=10))
        for _ in range(60):
            play.play()
        found[method] = model.weight.item()
    assert found["scaffold"] == pytest.approx(-0.5, abs=1e-6)
    ends = 0.9**10, 0.7**10  # what is left of the way to each client's own optimum
    drifted = 0.5 * ((1 - ends[0]) - (1 - ends[1])) / (1 - 0.5 * sum(ends))
    assert found["fedavg"] == pytest.approx(drifted, abs=1e-6)
    assert abs(found["fedavg"] + 0.5) > 0.2


def test_fedprox_pulls_every_step_back_to_the_common_model():
    look, clients = two_clients()
    model = scalar(2.0)
    train_locally(model, look, clients[0], replace(PLAIN, proximal=0.5), torch.Generator().manual_seed(0))
    first = 2.0 - 0.1 * (2.0 - 1.0)
    assert model.weight.item() == pytest.approx(first - 0.1 * ((first - 1.0) + 0.5 * (first - 2.0)))


def test_momentum_and_decay_are_those_of_plain_training_for_a_single_client():
    look, clients = two_clients()
    training = replace(PLAIN, momentum=0.9, epochs=5, decay=0.01)
    model, alone = scalar(), scalar()
    Rounds("fedavg", model, look, clients[:1], training).play()
    optimizer = torch.optim.SGD(alone.parameters(), 0.1, 0.9, weight_decay=0.01)
    for _ in range(5):
        x, y = look(clients[0])
        optimizer.zero_grad()
        squares(alone(x), y).backward()
        optimizer.step()
    assert model.weight.item() == pytest.approx(alone.weight.item())


def test_the_mean_is_by_rows_and_clients_without_rows_take_no_part():
    x = torch.ones(4, 1, dtype=torch.float64)
    y = torch.tensor([[1.0], [-1.0], [-1.0], [-1.0]], dtype=torch.float64)
    model = scalar()
    clients = [torch.tensor([0]), torch.tensor([], dtype=torch.long), torch.tensor([1, 2, 3])]
    Rounds("fedavg", model, rows_of(x, y), clients, replace(PLAIN, batch=3, epochs=1)).play()
    assert model.weight.item() == pytest.approx(0.25 * 0.1 + 0.75 * -0.1)


def test_a_federation_without_rows_or_of_an_unknown_method_is_refused():
    look, clients = two_clients()
    with pytest.raises(ValueError, match="no client has any rows"):
        Rounds("fedavg", scalar(), look, [clients[0][:0]])
    with pytest.raises(ValueError, match="'fedsgd' is not a method"):
        Rounds("fedsgd", scalar(), look, clients)


def test_scaffold_sends_a_control_variate_per_trained_parameter_and_nobody_sends_frozen_ones():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    model[0].requires_grad_(False)
    look = rows_of(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long))
    sizes = {m: Rounds(m, model, look, [torch.arange(2)]).traffic.up for m in ("fedavg", "fedprox", "scaffold")}
    assert sizes == {"fedavg": 4 * 8, "fedprox": 4 * 8, "scaffold": 2 * 4 * 8}


def test_a_row_that_would_be_alone_in_a_batch_goes_with_the_batch_before():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2))
    look = rows_of(torch.randn(5, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 0, 1, 0]))
    assert least_rows(model) == 2
    train_locally(model, look, torch.arange(5), LocalTraining(batch=4), torch.Generator().manual_seed(0))
    assert model[0].num_batches_tracked.item() == 1


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_the_librarys_heads_in_numpy_are_those_of_a_linear_layer(method):
    """Whole batches, because the two draw their orders differently; equal to rounding of float32."""
    x, y = torch.randn(40, 5, generator=torch.Generator().manual_seed(3)), torch.arange(40) % 3
    clients, layer = [torch.arange(0, 10), torch.arange(10, 40)], torch.nn.Linear(5, 3)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    play = Rounds(method, layer, rows_of(x, y), clients, LocalTraining(rate=0.1, batch=40, epochs=3))
    options = BASELINES[method](rounds=4, epochs=3, batch=40, rate=0.1, momentum=0.9)
    for head in train_in_rounds(x.numpy(), y.numpy(), 3, [rows.numpy() for rows in clients], options, seed=0):
        play.play()
        torch.testing.assert_close(torch.from_numpy(head[:-1].T), layer.weight.detach(), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(torch.from_numpy(head[-1]), layer.bias.detach(), rtol=1e-4, atol=1e-6)
    assert FedProxOptions().proximal == MU


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_heads_trained_by_flowers_own_strategy_are_ours_step_by_step(method):
    """Flower adds up numpy arrays in another order: equal to rounding of float32."""
    pytest.importorskip("flwr")
    from ghofl_benchmarks.baselines.flower_oracle import play

    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(60, 5, generator=generator), torch.randint(3, (60,), generator=generator)
    clients = [torch.arange(0, 10), torch.arange(10, 35), torch.arange(35, 60)]
    training = LocalTraining(rate=0.1, batch=8)

    def federation():
        torch.manual_seed(0)
        return Rounds(method, torch.nn.Linear(5, 3), rows_of(x, y), clients, training, seed=1)

    own, theirs = federation(), federation()

    def train(client, number, model, mu):
        assert mu == (MU if method == "fedprox" else 0.0)
        theirs.round = number
        return theirs.at_client(client, model), len(clients[client])

    for number, common in enumerate(play(method, state_of(theirs.model), 3, 3, train)):
        own.play()
        assert own.round == number + 1
        for name, value in state_of(own.model).items():
            torch.testing.assert_close(value, common[name], rtol=0, atol=1e-6)
