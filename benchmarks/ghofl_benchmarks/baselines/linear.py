"""Linear softmax heads in numpy: what a site trains on its rows, a server on samples, and a probe on everybody's."""

import time
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32, Int64

from ghofl.simulation.baselines import Baseline, bytes_per_round, train_in_rounds
from ghofl.simulation.partition import Parts
from ghofl.simulation.simulate import Dataset

Rows = Float32[np.ndarray, "n dim"]
Labels = Int64[np.ndarray, " n"]
DECAYS = (1e-4, 1e-3, 1e-2)


@dataclass(frozen=True, slots=True, eq=False)
class LinearHead:
    """Scores x @ weights + bias."""

    weights: Float32[np.ndarray, "dim classes"]
    bias: Float32[np.ndarray, " classes"]

    def scores(self, x: Rows) -> Float32[np.ndarray, "n classes"]:
        """One number per row and class."""
        return x @ self.weights + self.bias

    def accuracy(self, x: Rows, y: Labels) -> float:
        """The share of rows whose class is predicted."""
        return float((self.scores(x).argmax(axis=1) == y).mean())

    @property
    def bytes(self) -> int:
        """What it takes to send it in float32."""
        return 4 * (self.weights.size + self.bias.size)


@dataclass(frozen=True, slots=True)
class Fit:
    """How a head is trained: AdamW on standardised features with a falling rate; few rows get more epochs."""

    epochs: int = 20
    rate: float = 2e-3
    decay: float = 1e-3
    batch: int = 256
    least_steps: int = 300

    def epochs_for(self, rows: int) -> int:
        """Enough epochs for the least number of steps."""
        return max(self.epochs, -(-self.least_steps // max(1, -(-rows // self.batch))))


def train_head(x: Rows, y: Labels, classes: int, rng: np.random.Generator, fit: Fit = Fit()) -> LinearHead:
    """The head that minimises cross-entropy on these rows."""
    centre, scale = x.mean(axis=0), x.std(axis=0) + np.float32(1e-6)
    w, b = np.zeros((x.shape[1], classes), np.float32), np.zeros(classes, np.float32)
    moments = [np.zeros_like(p) for p in (w, w, b, b)]
    epochs = fit.epochs_for(len(x))
    step, steps = 0, epochs * -(-len(x) // fit.batch)
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for rows in np.array_split(order, max(1, -(-len(x) // fit.batch))):
            z = (x[rows] - centre) / scale
            p = z @ w + b
            p = np.exp(p - p.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            p[np.arange(len(rows)), y[rows]] -= 1
            p /= len(rows)
            step += 1
            rate = fit.rate * 0.5 * (1 + np.cos(np.pi * step / steps))
            w -= np.float32(rate * fit.decay) * w / np.float32(fit.rate)
            _adam(w, z.T @ p, moments[0], moments[1], rate, step)
            _adam(b, p.sum(axis=0), moments[2], moments[3], rate, step)
    weights = w / scale[:, None]
    return LinearHead(weights, b - centre @ weights)


def _adam(p: np.ndarray, g: np.ndarray, first: np.ndarray, second: np.ndarray, rate: float, step: int) -> None:
    first += np.float32(0.1) * (g - first)
    second += np.float32(0.001) * (g * g - second)
    size = np.float32(rate / (1 - 0.9**step))
    p -= size * first / (np.sqrt(second / np.float32(1 - 0.999**step)) + np.float32(1e-8))


def probe(x: Rows, y: Labels, classes: int, rng: np.random.Generator, fit: Fit = Fit()) -> tuple[LinearHead, float]:
    """The ceiling: a head trained on everybody's rows, its decay chosen on a fifth of them held out; and that decay."""
    out = rng.permutation(len(x)) < len(x) // 5
    tried = [replace(fit, epochs=max(3, fit.epochs // 2), decay=decay) for decay in DECAYS]
    found = [train_head(x[~out], y[~out], classes, rng, f).accuracy(x[out], y[out]) for f in tried]
    decay = DECAYS[int(np.argmax(found))]
    return train_head(x, y, classes, rng, replace(fit, decay=decay)), decay


def rounds(method: str, data: Dataset, parts: Parts, seed: int, number: int) -> tuple[list[float], int, float]:
    """FedAvg or FedProx of a head as in the paper: accuracy after each round, bytes a client sends per round, seconds."""
    options, classes = replace(Baseline.parse(method, "paper").record, rounds=number), len(data.classes)
    started, test = time.perf_counter(), np.asarray(data.x_test, np.float32)
    heads = train_in_rounds(data.x_train, data.y_train, classes, parts, options, seed)
    found = [LinearHead(head[:-1], head[-1]).accuracy(test, data.y_test) for head in heads]
    return found, bytes_per_round(data.x_train.shape[1], classes), time.perf_counter() - started


def ensemble_scores(heads: list[LinearHead], x: Rows) -> Float32[np.ndarray, "n classes"]:
    """The mean of the heads' scores."""
    return np.mean([head.scores(x) for head in heads], axis=0, dtype=np.float32)
