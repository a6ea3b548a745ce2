"""Heads that are trained in rounds, beside heads of one message: against plain descent, in tables, and nowhere else."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import ghofl
from federations import blobs
from ghofl.cli import app
from ghofl.errors import HeadError, PartitionError
from ghofl.heads.spec import IN_ROUNDS
from ghofl.recipe import RecipeOptions
from ghofl.report.findings import Findings
from ghofl.simulation.baselines import (
    BASELINES,
    Baseline,
    FedAvgOptions,
    FedProxOptions,
    bytes_per_round,
    judge_baseline,
    parse_methods,
    train_in_rounds,
)
from ghofl.simulation.partition import split
from ghofl.simulation.simulate import Dataset, simulate


@pytest.fixture
def data(rng):
    x, y = blobs(rng)
    return Dataset(x[:200], y[:200], x[200:], y[200:], tuple("abcd"))


def descended(x, y, classes, steps, rate, momentum=0.0):
    """Gradient descent of softmax regression on all rows, in float64; the last row are offsets."""
    x, target = np.column_stack([x, np.ones(len(x))]), np.eye(classes)[y]
    w, velocity = np.zeros((x.shape[1], classes)), 0.0
    for _ in range(steps):
        p = np.exp(x @ w)
        velocity = momentum * velocity + x.T @ (p / p.sum(axis=1, keepdims=True) - target) / len(x)
        w = w - rate * velocity
    return w


@pytest.mark.parametrize("record", [FedAvgOptions, FedProxOptions])
def test_one_client_with_full_batches_is_gradient_descent_of_softmax_regression(data, record):
    """FedProx too: a round of one step starts at the common head, where nothing pulls."""
    rounds = train_in_rounds(
        data.x_train, data.y_train, 4, [np.arange(200)], record(rounds=7, batch=200, rate=0.05), seed=3
    )
    for number, head in enumerate(rounds, 1):
        expected = descended(data.x_train, data.y_train, 4, number, 0.05)
        assert head == pytest.approx(expected, rel=1e-4, abs=1e-5)  # float32
    assert number == 7


def test_epochs_and_momentum_are_those_of_a_client_that_trains_alone(data):
    options = FedAvgOptions(rounds=1, epochs=6, batch=200, rate=0.05, momentum=0.9)
    (head,) = train_in_rounds(data.x_train, data.y_train, 4, [np.arange(200)], options, seed=0)
    assert head == pytest.approx(descended(data.x_train, data.y_train, 4, 6, 0.05, 0.9), rel=1e-4, abs=1e-5)


def test_the_common_head_is_the_mean_by_rows_and_clients_without_rows_take_no_part(data):
    parts = [np.arange(30), np.arange(0), np.arange(30, 200)]
    options = FedAvgOptions(rounds=1, epochs=3, batch=200, rate=0.05)
    (head,) = train_in_rounds(data.x_train, data.y_train, 4, parts, options, seed=0)
    own = [descended(data.x_train[p], data.y_train[p], 4, 3, 0.05) for p in (parts[0], parts[2])]
    assert head == pytest.approx(0.15 * own[0] + 0.85 * own[1], rel=1e-4, abs=1e-5)
    with pytest.raises(PartitionError, match="none of 2 clients has any rows"):
        next(train_in_rounds(data.x_train, data.y_train, 4, [np.arange(0)] * 2, options, seed=0))


def test_fedprox_holds_clients_at_the_common_head(data):
    parts = split(data.y_train, 4, np.random.default_rng(0), 0.1)
    ends = {}
    for pull in (0.0, 0.1, 10.0):
        options = FedProxOptions(rounds=1, epochs=40, rate=0.05, proximal=pull)
        (head,) = train_in_rounds(data.x_train, data.y_train, 4, parts, options, seed=0)
        ends[pull] = np.linalg.norm(head)
    assert ends[10.0] < ends[0.1] < ends[0.0]
    plain = FedAvgOptions(rounds=1, epochs=40, rate=0.05)
    (head,) = train_in_rounds(data.x_train, data.y_train, 4, parts, plain, seed=0)
    assert np.linalg.norm(head) == ends[0.0]


def test_a_seed_gives_the_same_baseline_again_and_rows_may_be_of_any_size(data):
    """Features are standardised first; powers of two leave every digit where it was."""
    parts = split(data.y_train, 5, np.random.default_rng(0), 0.3)
    larger = Dataset(1024 * data.x_train, data.y_train, 1024 * data.x_test, data.y_test, data.classes)
    baseline = Baseline("fedavg", {"rounds": 30})
    found = [
        judge_baseline(baseline, rows, parts, seed) for rows, seed in ((data, 0), (data, 0), (larger, 0), (data, 1))
    ]
    losses = [each.metrics.log_loss for each in found]
    assert losses[0] == losses[1] == losses[2] != losses[3]
    assert found[0].accuracy > 0.8


def test_a_table_has_what_every_method_costs(data):
    result = simulate(data, 5, heads="lda, fedavg(rounds=8), fedprox", alpha=0.3, seed=1)
    assert list(result.heads) == ["lda", "fedavg(rounds=8)", "fedprox"]
    assert [head.rounds for head in result.heads.values()] == [1, 8, 50]
    assert bytes_per_round(6, 4) == 4 * 7 * 4
    assert [head.payload_bytes for head in list(result.heads.values())[1:]] == [8 * 112, 50 * 112]
    assert result.total.moments == simulate(data, 5, heads="lda", alpha=0.3, seed=1).total.moments
    assert result.notes == ()
    parts = split(data.y_train, 5, np.random.default_rng(1), 0.3)
    alone = judge_baseline(Baseline("fedprox"), data, parts, 1)
    assert result.heads["fedprox"].metrics.to_dict() == alone.metrics.to_dict()


def test_many_runs_have_baselines_as_rows_and_train_them_for_every_split(data):
    runs = simulate(data, [2, 20], heads="lda,fedavg(rounds=2)", seed=[0, 1])
    own = [row for row in runs.rows if row["head"] == "fedavg(rounds=2)"]
    assert len(own) == 4
    assert len({row["log_loss"] for row in own}) == 4
    assert {row["rounds"] for row in own} == {2}
    names, *lines = runs.table()
    assert names[-2:] == ["rounds", "sent per client"]
    assert [line[-2] for line in lines] == ["1", "2"] * 2
    assert "rounds" not in simulate(data, [2], heads="lda").table()[0]


def test_the_command_shows_rounds_and_bytes_of_every_method(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("all.npz", x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test)
    command = ["simulate", "--embeddings", "all.npz", "--clients", "3", "--heads", "lda,fedavg(rounds=50)"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "fedavg(rounds=50)" in done.output
    assert "rounds" in done.output
    assert max(map(len, done.output.splitlines())) <= 80
    told = json.loads(CliRunner().invoke(app, [*command, "--json", "-"]).output)["heads"]
    assert (told["fedavg(rounds=50)"]["rounds"], told["lda"]["rounds"]) == (50, 1)


def test_a_page_of_a_simulation_has_baselines_and_tells_of_the_best_head(data):
    methods = parse_methods("nb,fedavg")
    parts = split(data.y_train, 3, np.random.default_rng(0))
    found = Findings.of_simulation(simulate(data, parts, heads=methods), "Three clients")
    assert [line.name for line in found.heads] == ["nb", "fedavg"]
    assert found.judged is not None
    assert found.judged.head == "nb"


def test_under_epsilon_a_note_says_that_baselines_have_no_noise(data):
    options = RecipeOptions(epsilon=8.0, unit_length=True)
    result = simulate(data, 3, options, "lda,fedavg(rounds=1),fedprox(rounds=1)")
    assert result.notes[-1].startswith(
        "fedavg(rounds=1) and fedprox(rounds=1) are baselines that are trained on rows as they"
    )


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_never_a_head(name):
    for ask in (ghofl.HeadSpec.parse, ghofl.HeadSpec):
        with pytest.raises(HeadError, match=f"'{name}' is a baseline and not a head: it is trained in rounds"):
            ask(name)
    assert set(IN_ROUNDS) == set(BASELINES)
    assert name not in ghofl.HEADS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "lda,fedavg(round=5)",
            "baseline 'fedavg' has no option 'round'; it has rounds, epochs, batch, rate, momentum",
        ),
        ("lda,fedavg(rounds=0)", "option rounds of baseline 'fedavg' is a whole number between 1 and"),
        ("fedavg,fedprox", "names no head to compare with; name one too, e.g. 'best,fedavg,fedprox'"),
    ],
)
def test_a_baseline_that_cannot_be_is_told_in_a_sentence(data, text, told):
    with pytest.raises(HeadError, match=told):
        simulate(data, 2, heads=text)
