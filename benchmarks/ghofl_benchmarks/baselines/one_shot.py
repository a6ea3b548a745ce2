"""Every one-shot baseline on embeddings, by name: rows over clients in, accuracy and bytes out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ghofl.simulation.partition import Parts
from ghofl.simulation.simulate import Dataset
from ghofl_benchmarks.baselines.closed import CLOSED, Client, bytes_of
from ghofl_benchmarks.baselines.linear import Fit, LinearHead, ensemble_scores, probe, train_head
from ghofl_benchmarks.baselines.pft import Kind, fedpft


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a baseline did; `bytes_up` is what a client sends, on average."""

    accuracy: float
    bytes_up: int
    seconds: float
    note: str = ""


Baseline = Callable[[Dataset, Parts, int], Outcome]


def closed(method: str) -> Baseline:
    """A baseline in closed form."""

    def run(data: Dataset, parts: Parts, seed: int) -> Outcome:
        started, classes = time.perf_counter(), len(data.classes)
        head = CLOSED[method](clients_of(data, parts), classes)
        seconds = time.perf_counter() - started
        size = bytes_of(method, classes, data.x_train.shape[1])
        return Outcome(head.accuracy(_floats(data.x_test), data.y_test), size, seconds)

    return run


def mixtures(kind: Kind, components: int, fit: Fit) -> Baseline:
    """FedPFT with one kind of covariance."""

    def run(data: Dataset, parts: Parts, seed: int) -> Outcome:
        started, rng = time.perf_counter(), np.random.default_rng(seed)
        head, size = fedpft(clients_of(data, parts), len(data.classes), rng, kind, components, fit)
        seconds = time.perf_counter() - started
        return Outcome(head.accuracy(_floats(data.x_test), data.y_test), size, seconds, f"{components} components")

    return run


def client_heads(data: Dataset, parts: Parts, seed: int, fit: Fit) -> list[LinearHead]:
    """A linear head of every client's own rows."""
    rng = np.random.default_rng(seed)
    return [train_head(x, y, len(data.classes), rng, fit) for x, y in clients_of(data, parts)]


def ensemble(fit: Fit) -> Baseline:
    """Clients send the head they trained; scores are averaged."""

    def run(data: Dataset, parts: Parts, seed: int) -> Outcome:
        started = time.perf_counter()
        heads = client_heads(data, parts, seed, fit)
        seconds = time.perf_counter() - started
        right = ensemble_scores(heads, _floats(data.x_test)).argmax(axis=1) == data.y_test
        return Outcome(float(right.mean()), heads[0].bytes, seconds)

    return run


def pooled_probe(fit: Fit) -> Baseline:
    """The ceiling: everybody's rows in one place."""

    def run(data: Dataset, parts: Parts, seed: int) -> Outcome:
        started = time.perf_counter()
        rows = np.concatenate(parts)
        x, y = _floats(data.x_train[rows]), data.y_train[rows]
        head, decay = probe(x, y, len(data.classes), np.random.default_rng(seed), fit)
        seconds = time.perf_counter() - started
        note = f"raw embeddings leave their site; decay {decay} chosen on held-out rows"
        return Outcome(head.accuracy(_floats(data.x_test), data.y_test), x.nbytes // len(parts), seconds, note)

    return run


def clients_of(data: Dataset, parts: Parts) -> Sequence[Client]:
    """Rows and labels of every client that has any."""
    return [(_floats(data.x_train[rows]), data.y_train[rows]) for rows in parts if len(rows)]


def baselines(fit: Fit = Fit(epochs=15), full: bool = True) -> dict[str, Baseline]:  # noqa: B008
    """All that need no torch, by name; mixtures with full covariances take long in many dimensions."""
    found = {name: closed(name) for name in CLOSED}
    found |= {"FedPFT, spherical": mixtures("spherical", 10, fit), "FedPFT, diagonal": mixtures("diagonal", 10, fit)}
    found |= {"FedPFT, full": mixtures("full", 1, fit)} if full else {}
    return found | {"Client ensemble": ensemble(fit)}


def _floats(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.float32)
