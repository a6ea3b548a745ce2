"""The strongest heads on real embeddings, by the command that users run; figures that a linear probe does not reach."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.real_data]


@pytest.fixture(scope="module")
def simulate(real_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("embeddings")

    def run(name: str, *arguments: str) -> dict:
        path = folder / f"{name}.npz"
        if not path.exists():
            stored = np.load(real_data / "embeddings" / f"{name}-mobilenetv2.npz")
            x = {k: (stored[k] / np.float32(100)) ** 2 for k in ("x_train", "x_test")}
            np.savez(path, **x, y_train=stored["y_train"], y_test=stored["y_test"])
        command = [sys.executable, "-m", "ghofl", "simulate", "--embeddings", path, "--clients", "10", *arguments]
        done = subprocess.run([*command, "--json", "-"], capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["heads"]

    return run


def test_trained_defaults_beat_lda_and_the_released_settings_on_cifar100(simulate):
    heads = simulate("cifar100", "--heads", "lda,fisher_mix,proto_hyper")
    assert heads["fisher_mix"]["accuracy"] >= 0.670
    assert heads["proto_hyper"]["accuracy"] >= heads["lda"]["accuracy"]


def test_trained_defaults_are_not_below_lda_on_cifar10(simulate):
    heads = simulate("cifar10", "--heads", "lda,fisher_mix,proto_hyper")
    assert heads["fisher_mix"]["accuracy"] >= heads["lda"]["accuracy"]
    assert heads["proto_hyper"]["accuracy"] >= heads["lda"]["accuracy"]


@pytest.mark.parametrize(("budget", "least"), [("1MB", 0.615), ("5MB", 0.66), ("20MB", 0.692)])
def test_a_payload_budget_is_kept_and_well_used_on_cifar100(simulate, budget, least):
    head = simulate("cifar100", "--heads", "best", "--budget", budget)["best"]
    assert head["accuracy"] >= least
    assert head["payload_bytes"] <= float(budget[:-2]) * 1e6


def test_the_best_head_at_full_payload_beats_a_linear_probe_on_cifar10(simulate):
    head = simulate("cifar10", "--heads", "best", "--power", "0.5", "--lift", "8192")["best"]
    assert head["accuracy"] >= 0.89
