"""Baselines on heads over frozen embeddings that need torch: DENSE, Co-Boosting and SCAFFOLD."""

import time

import numpy as np
import torch

from ghofl.simulation.partition import Parts
from ghofl.simulation.simulate import Dataset
from ghofl_benchmarks.baselines.coboosting import coboosting
from ghofl_benchmarks.baselines.dense import dense
from ghofl_benchmarks.baselines.distillation import Distillation
from ghofl_benchmarks.baselines.local import (
    PAPER,
    LocalTraining,
    accuracy,
    bytes_of,
    least_rows,
    rows_of,
    state_of,
    train_locally,
)
from ghofl_benchmarks.baselines.networks import EmbeddingGenerator, embedding_head
from ghofl_benchmarks.baselines.one_shot import Outcome
from ghofl_benchmarks.baselines.rounds import Rounds

DISTILLED = {"DENSE": dense, "Co-Boosting": coboosting}
LOCAL = LocalTraining(rate=0.05, batch=64, epochs=10)
HOW = Distillation(epochs=40, generator_steps=10, student_steps=20, student_rate=0.005)


def distil(
    names: list[str], data: Dataset, parts: Parts, seed: int, device: str = "cpu",
    local: LocalTraining = LOCAL, how: Distillation = HOW,
) -> dict[str, Outcome]:  # fmt: skip
    """Clients' heads, distilled by each named method with a generator in the space of embeddings."""
    classes, dim = len(data.classes), data.x_train.shape[1]
    train, test, rows = _looks(data, device)
    started = time.perf_counter()
    heads = []
    for i, part in enumerate(parts):
        head = embedding_head(dim, classes).to(device)
        if len(part) >= least_rows(head):
            generator = torch.Generator().manual_seed(seed + i)
            train_locally(head, train, torch.from_numpy(part).to(device), local, generator)
            heads.append(head)
    local_seconds = time.perf_counter() - started
    found = {}
    for name in names:
        torch.manual_seed(seed)
        started = time.perf_counter()
        student = embedding_head(dim, classes).to(device)
        generator = EmbeddingGenerator(classes, [head[0] for head in heads]).to(device)
        course = DISTILLED[name](
            heads, student, generator, classes, lambda s=student: accuracy(s, test, rows), how, seed
        )
        seconds = local_seconds + time.perf_counter() - started
        found[name] = Outcome(course.accuracies[-1], bytes_of(state_of(heads[0])), seconds, "heads over embeddings")
    return found


def scaffold(
    data: Dataset, parts: Parts, seed: int, number: int, device: str = "cpu", training: LocalTraining = PAPER
) -> tuple[list[float], int, float]:
    """A linear head trained in rounds of SCAFFOLD, from zeros as `linear.rounds`, and with the same results."""
    train, test, rows = _looks(data, device)
    model = torch.nn.Linear(data.x_train.shape[1], len(data.classes)).to(device)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    play = Rounds("scaffold", model, train, [torch.from_numpy(p).to(device) for p in parts], training, seed)
    started, found = time.perf_counter(), []
    for _ in range(number):
        play.play()
        found.append(accuracy(model, test, rows))
    return found, play.traffic.up, time.perf_counter() - started


def _looks(data: Dataset, device: str) -> tuple:
    def tensors(x: np.ndarray, y: np.ndarray) -> tuple:
        return torch.from_numpy(np.asarray(x, np.float32)).to(device), torch.from_numpy(y).to(device)

    test = tensors(data.x_test, data.y_test)
    return rows_of(*tensors(data.x_train, data.y_train)), rows_of(*test), torch.arange(len(data.y_test), device=device)
