"""The app simulated by the engine: a thousand clients in one run, and a secure round among a few."""

import json

import numpy as np
import pytest

from federations import blobs
from ghofl.classifier import HeadSpec
from ghofl.flower.new import write_app
from ghofl.simulation import partition
from ghofl.simulation.simulate import Dataset, simulate
from processes import NO_SPACES, Deployment, available
from sites import PLAIN, SECURE

pytestmark = [
    NO_SPACES,
    pytest.mark.slow,
    pytest.mark.seconds(600),
    pytest.mark.skipif(not available(), reason="needs flwr and /proc: pip install 'ghofl[flower-simulation]' on Linux"),
]


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    pytest.importorskip("ray", exc_type=ImportError)
    with Deployment(tmp_path_factory.mktemp("simulation") / "d", secure=False, more=["--simulation"]) as running:
        yield running
    assert running.pids() == []


@pytest.mark.parametrize(("recipe", "clients"), [(PLAIN, 1000), (SECURE, 6)], ids=["plain", "secure"])
def test_the_total_of_simulated_clients_is_that_of_simulate(laptop, tmp_path, recipe, clients):
    x, y = blobs(np.random.default_rng(5), rows=2000)
    np.savez(tmp_path / "rows.npz", x_train=x, y_train=np.array(PLAIN.classes)[y])
    write_app(tmp_path / "app", recipe, f"app{clients}")
    process = laptop.run(
        tmp_path / "app", folder=str(tmp_path / "run"), sites=clients, heads="lda", timeout=400.0,
        simulated_embeddings=str(tmp_path / "rows.npz"), simulated_alpha=0.3, authenticated=False,
        federation={"num-supernodes": clients},
    )  # fmt: skip
    lines = laptop.finish(process, timeout=500)
    parts = partition.split(y, clients, np.random.default_rng(0), 0.3)
    expected = simulate(Dataset(x, y, x, y, PLAIN.classes), parts, PLAIN, HeadSpec.parse_list("lda"))
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["total_sha256"] == expected.total.moments.sha256, lines
    assert report["counted"] == clients
    assert set(report["sites"].values()) == {"counted"}
    assert "The run in run" in (tmp_path / "run" / "report.html").read_text()
