"""Baselines: a linear head that is trained in rounds on the same rows of the same clients, beside heads of one message.

In a round of FedAvg (McMahan et al. 2017) every client trains the common head w on its own rows, and the server takes the
mean by rows, w ← Σ p_i w_i with p_i = n_i / n. FedProx (Li et al. 2020) adds μ/2 ‖w_i − w‖² to every client's loss.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ghofl.compute.threads import one_thread
from ghofl.errors import HeadError, PartitionError
from ghofl.evaluation import Metrics
from ghofl.heads.options import HeadOptions, option
from ghofl.heads.spec import AnyHead, HeadSpec, each_head, split_spec, written
from ghofl.heads.training import softmax, subtract_labels
from ghofl.shapes import Float32, Int64, Num
from ghofl.simulation.dataset import Dataset
from ghofl.simulation.partition import Parts
from ghofl.simulation.results import HeadResult


@dataclass(frozen=True)
class FedAvgOptions(HeadOptions, head="fedavg", noun="baseline"):
    """How a head is trained in rounds; the values of the paper are those of its multi-round baselines."""

    rounds: int = option(50, "how often every client trains and sends the head", between=(1, 1_000_000))
    epochs: int = option(1, "passes over its rows that a client makes in a round", between=(1, 1_000_000))
    batch: int = option(32, "rows per step", between=(1, 2**31), paper=256)
    rate: float | None = option(None, "learning rate", above=0.0, auto="√dim, 20 at most", paper=1e-3)
    momentum: float = option(
        0.0, "momentum of a client's steps, from zero in every round", between=(0, 0.999), paper=0.9
    )


@dataclass(frozen=True)
class FedProxOptions(FedAvgOptions, head="fedprox", noun="baseline"):
    """Those of FedAvg, and how strongly a client's head is held at the common one."""

    proximal: float = option(0.01, "μ, the pull towards the common head", between=(0, 1e6))


BASELINES: dict[str, type[FedAvgOptions]] = {record.head: record for record in (FedAvgOptions, FedProxOptions)}
# Of rates from 0.1 to 40 on held-out training rows, for features of spread 1/√dim: 20 is best for embeddings of CIFAR-10 and
# CIFAR-100, 5 on average for 52 tables and sets of vectors, where √dim is as good.
LARGEST_RATE = 20.0
Head = Float32[np.ndarray, "dim classes"]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The name of a baseline and the options that are given, written ``fedavg`` or ``fedprox(rounds=20, proximal=0.1)``.

    >>> Baseline.parse("fedprox(rounds=20)").record.rounds
    20
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in BASELINES:
            raise HeadError(f"baseline {self.name!r} is unknown; known are {', '.join(BASELINES)}.")
        BASELINES[self.name].parse(self.options)

    @classmethod
    def parse(cls, text: str, preset: str = "default") -> "Baseline":
        """A baseline from its text; the preset has the options that it does not set."""
        name, given = split_spec(text)
        return cls(name, {**cls(name).record.preset(preset), **given})

    def __str__(self) -> str:
        return written(self.name, self.options)

    @property
    def record(self) -> FedAvgOptions:
        """All options, with the defaults of those that are not given."""
        found = BASELINES[self.name].parse(self.options)
        assert isinstance(found, FedAvgOptions)
        return found


Method = HeadSpec | Baseline


def parse_methods(heads: AnyHead | Iterable[AnyHead], preset: str = "default") -> dict[str, Method]:
    """Heads and baselines, texts separated by commas, each under the text it is written as.

    >>> list(map(type, parse_methods("lda, fedavg(rounds=5)").values()))
    [<class 'ghofl.heads.spec.HeadSpec'>, <class 'ghofl.simulation.baselines.Baseline'>]
    """
    found: dict[str, Method] = {}
    for each in each_head(heads):
        if isinstance(each, str) and split_spec(each)[0] in BASELINES:
            found[each] = Baseline.parse(each, preset)
        else:
            found |= HeadSpec.parse_list(each, preset)
    return found


def heads_of(methods: Mapping[str, Method]) -> dict[str, HeadSpec]:
    """The heads among heads and baselines, at least one of any: a simulation has one recipe for all of them."""
    found = {name: method for name, method in methods.items() if isinstance(method, HeadSpec)}
    if methods and not found:
        named = ",".join(methods)
        raise HeadError(f"heads = {named!r} names no head to compare with; name one too, e.g. 'best,{named}'.")
    return found


def bytes_per_round(dim: int, classes: int) -> int:
    """What a client sends in a round of FedAvg or FedProx: a linear head in float32."""
    return 4 * (dim + 1) * classes


def train_in_rounds(
    x: Num[np.ndarray, "n dim"], y: Int64[np.ndarray, " n"], classes: int, parts: Parts, options: FedAvgOptions, seed: int
) -> Iterator[Head]:  # fmt: skip
    """The common head after every round: weights of features and, in the last row, of a feature that is 1; from zeros.

    Guarantees
    ----------
    With one client and batches of all rows this is gradient descent of softmax regression. Batches follow from seed, round
    and client, so that methods see the same. Clients without rows take no part.
    """
    ones = np.ones((len(x), 1), np.float32)
    clients = [
        (i, np.hstack([x[rows], ones[rows]], dtype=np.float32), y[rows]) for i, rows in enumerate(parts) if len(rows)
    ]
    if not clients:
        raise PartitionError(f"none of {len(parts)} clients has any rows; give at least one client some.")
    rate = min(LARGEST_RATE, x.shape[1] ** 0.5) if options.rate is None else options.rate
    head, every = np.zeros((x.shape[1] + 1, classes), np.float32), sum(len(labels) for _, _, labels in clients)
    for number in range(options.rounds):
        common = np.zeros_like(head)
        with one_thread():
            for i, rows, labels in clients:
                rng = np.random.default_rng([seed, number, i])
                common += np.float32(len(labels) / every) * _train_locally(head, rows, labels, options, rate, rng)
        head = common
        yield head


def _train_locally(
    head: Head, x: Float32[np.ndarray, "n dim"], y: Int64[np.ndarray, " n"], options: FedAvgOptions, rate: float,
    rng: np.random.Generator,
) -> Head:  # fmt: skip
    """The head that a client makes of the common one."""
    own, velocity = head.copy(), np.zeros_like(head)
    pull = options.proximal if isinstance(options, FedProxOptions) else 0.0
    for _ in range(options.epochs):
        order = rng.permutation(len(y))
        for start in range(0, len(y), options.batch):
            rows = order[start : start + options.batch]
            error = softmax(x[rows] @ own)
            subtract_labels(error, y[rows])
            gradient = x[rows].T @ error / np.float32(len(rows)) + np.float32(pull) * (own - head)
            velocity = np.float32(options.momentum) * velocity + gradient
            own -= np.float32(rate) * velocity
    return own


def judge_baseline(baseline: Baseline, data: Dataset, parts: Parts, seed: int) -> HeadResult:
    """Train a baseline over these clients and score it on the test rows.

    Features are standardised by the mean and the spread over all training rows, and divided by √dim, so that one rate
    suits rows of any size. What clients would send for that is not counted.
    """
    options, started = baseline.record, time.perf_counter()
    mean, spread = data.x_train.mean(axis=0), data.x_train.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0) * np.sqrt(len(spread))
    rows = ((data.x_train - mean) / scale, data.y_train, len(data.classes))
    head = deque(train_in_rounds(*rows, parts, options, seed), maxlen=1).pop()
    trained = time.perf_counter()
    probabilities = softmax(((data.x_test - mean) / scale) @ head[:-1].astype(np.float64) + head[-1])
    scored = time.perf_counter()
    sent = options.rounds * bytes_per_round(len(spread), len(data.classes))
    per_sample = 1000.0 * (scored - trained) / len(data.y_test)
    return HeadResult(Metrics.of(probabilities, data.y_test), sent, trained - started, per_sample, options.rounds)


def notes_on_baselines(methods: Mapping[str, Method], is_protected: bool) -> Sequence[str]:
    """What baselines do not have of a recipe that protects rows."""
    named = [name for name, method in methods.items() if isinstance(method, Baseline)]
    if not named or not is_protected:
        return ()
    are = "is a baseline that is" if len(named) == 1 else "are baselines that are"
    return (
        f"{' and '.join(named)} {are} trained on rows as they are, without the noise, masks or limits of the recipe.",
    )
