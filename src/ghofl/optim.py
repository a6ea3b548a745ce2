"""A small optimiser for a few matrices, written against the array API: numpy arrays, or tensors on a GPU."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

Array = Any  # any array of the array API standard: numpy, torch, …
Gradients = Callable[[Sequence[Array], slice], Sequence[Array]]


@dataclass(frozen=True, slots=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019).

    ::

        m ← β₁ m + (1−β₁) g      v ← β₂ v + (1−β₂) g²
        w ← w (1 − η λ) − η (m / (1−β₁ᵗ)) / (√(v / (1−β₂ᵗ)) + ε)

    η is `learning_rate`, or falls from it to zero in a straight line where the rate `falls`.
    """

    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    falls: bool = False

    def minimise(
        self,
        parameters: Sequence[Array],
        gradients: Gradients,
        rows: int,
        batch: int,
        steps: int,
        rng: np.random.Generator,
    ) -> list[Array]:
        """The parameters after `steps` steps over batches of `rows` rows, visited in a new order every epoch.

        Rows must lie in random order already: a batch is a slice, which costs no copy.

        >>> def of_square(parameters, rows):
        ...     return [2.0 * parameters[0]]
        >>> start = [np.array([1.0])]
        >>> found = AdamW(learning_rate=0.1).minimise(start, of_square, 1, 1, 200, np.random.default_rng(0))
        >>> bool(abs(found[0][0]) < 0.01)
        True
        """
        parameters = list(parameters)
        first = [0.0 * p for p in parameters]
        second = [0.0 * p for p in parameters]
        starts = np.arange(0, rows, batch)
        order: list[int] = []
        for step in range(1, steps + 1):
            order = order or rng.permutation(starts).tolist()
            start = order.pop()
            found = gradients(parameters, slice(start, min(start + batch, rows)))
            rate = self.learning_rate * (1.0 - (step - 1) / steps if self.falls else 1.0)
            for i, g in enumerate(found):
                first[i] = self.beta1 * first[i] + (1.0 - self.beta1) * g
                second[i] = self.beta2 * second[i] + (1.0 - self.beta2) * g * g
                parameters[i] = self._moved(parameters[i], first[i], second[i], step, rate)
        return parameters

    def _moved(self, parameter: Array, first: Array, second: Array, step: int, rate: float) -> Array:
        xp = array_namespace(parameter)
        size = rate / (1.0 - self.beta1**step)
        scale = xp.sqrt(second / (1.0 - self.beta2**step)) + self.epsilon
        return parameter * (1.0 - rate * self.weight_decay) - size * first / scale


def softmax(scores: Array, weight: float = 1.0) -> Array:
    """Probabilities of each row of scores, times `weight`, in any array namespace."""
    if is_numpy_array(scores):
        return _softmax_of_numpy(scores, weight)
    xp = array_namespace(scores)
    shifted = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    return shifted * (weight / xp.sum(shifted, axis=1, keepdims=True))


def _softmax_of_numpy(scores: np.ndarray, weight: float) -> np.ndarray:
    """The same with fewer passes: the shift by the largest score is left out where no row needs it."""
    ones = np.ones(scores.shape[1], dtype=scores.dtype)
    with np.errstate(over="ignore"):
        found = np.exp(scores)
        sums = found @ ones
    if not 1e-30 < sums.min() <= sums.max() < np.inf:
        found = np.exp(scores - scores.max(axis=1, keepdims=True))
        sums = found @ ones
    found *= (weight / sums)[:, None]
    return found


def minus_labels(found: Array, y: Array, amount: float = 1.0) -> Array:
    """`found`, less `amount` in each row's class; it is changed in place."""
    if is_numpy_array(found):
        found[np.arange(len(y)), y] -= amount
        return found
    xp = array_namespace(found)
    classes = xp.arange(found.shape[1], dtype=y.dtype, device=found.device)
    found -= amount * xp.astype(y[:, None] == classes[None, :], found.dtype)
    return found


def steps_for(epochs: float, rows: int, batch: int) -> int:
    """How many steps `epochs` passes over the rows take."""
    return max(1, round(epochs * -(-rows // batch)))


def on_cpu(array: Array) -> np.ndarray:
    """An array of any namespace as a numpy array."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)
