"""The temperature and biases with the least log loss on labelled scores."""

import numpy as np

from ghofl.heads.rules.base import softmax
from ghofl.shapes import Float, Integer

PULL = 1e-7  # of every b_c towards 0
PRECISION = 1e-7  # of log T


def log_sum_exp(x: Float[np.ndarray, "n classes"]) -> Float[np.ndarray, "n 1"]:
    """log Σ_c exp(x_c) of every row."""
    highest = x.max(axis=1, keepdims=True)
    return highest + np.log(np.exp(x - highest).sum(axis=1, keepdims=True))


def log_loss(
    probabilities: Float[np.ndarray, "n classes"], y: Integer[np.ndarray, " n"], priors: Float[np.ndarray, " classes"]
) -> float:
    """The mean of −log p_y over rows, weighted so that every class has the share of its prior."""
    weights = row_weights(y, priors)
    of_label = np.maximum(probabilities[np.arange(len(y)), y], np.finfo(float).tiny)
    return float(-weights @ np.log(of_label))


def row_weights(y: Integer[np.ndarray, " n"], priors: Float[np.ndarray, " classes"]) -> Float[np.ndarray, " n"]:
    """A weight per row, so that every class has the share of its prior."""
    counts = np.bincount(y, minlength=len(priors))
    share = np.where(counts > 0, priors, 0.0)
    return (share / np.maximum(counts, 1) / share.sum())[y]


def fit_with_bias(
    scores: Float[np.ndarray, "n present"],
    y: Integer[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    present: np.ndarray,
) -> tuple[float, Float[np.ndarray, " classes"]]:
    """T and a b_c for every class that is present."""
    rows = np.arange(len(y))
    # Scores are scaled to a spread of one, so that the same steps suit cosines and regressions.
    unit = 1.0 / max(float(np.std(scores)), np.finfo(float).tiny)
    scaled = (scores - scores.mean()) * unit

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        sharpness, bias = np.exp(parameters[0]), parameters[1:]
        logits = sharpness * scaled + bias
        log_p = logits - log_sum_exp(logits)
        error = np.exp(log_p)
        error[rows, y] -= 1.0
        error *= weights[:, None]
        slope = np.concatenate([[sharpness * np.sum(error * scaled)], error.sum(axis=0) + PULL * bias])
        return float(-weights @ log_p[rows, y] + 0.5 * PULL * bias @ bias), slope

    start = np.concatenate([[0.0], np.zeros(scores.shape[1])])
    from scipy.optimize import minimize  # takes a tenth of a second, and few heads need it

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(-7, 7), *[(None, None)] * (len(start) - 1)]).x
    bias = np.zeros(len(present))
    bias[present] = found[1:]
    return float(np.exp(-found[0]) / unit), bias


def fit_temperature(
    scores: Float[np.ndarray, "n classes"],
    y: Integer[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"] | None = None,
    log_priors: Float[np.ndarray, " classes"] | float = 0.0,
) -> float:
    """The T that minimises the weighted mean of −log softmax(scores / T + log π)_y.

    >>> scores = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
    >>> round(fit_temperature(scores, np.array([0, 0, 0, 1])), 2)
    1.82
    """
    shares = np.full(len(y), 1.0 / max(1, len(y))) if weights is None else weights
    values = np.where(np.isfinite(scores), scores, 0.0)  # a class without rows has −∞ and probability 0
    of_label, low, high = values[np.arange(len(y)), y], -7.0, 7.0
    log_t = 0.0
    while high - low > PRECISION:
        # In 1/T the loss is convex: Newton's steps on it, and half of the interval where they would leave it.
        p = softmax(scores * np.exp(-log_t) + log_priors)
        mean = np.einsum("nc,nc->n", p, values)
        slope = float(shares @ (mean - of_label))
        bend = float(shares @ (np.einsum("nc,nc,nc->n", p, values, values) - mean**2))
        low, high = (log_t, high) if slope > 0 else (low, log_t)
        sharpness = np.exp(-log_t) - slope / bend if bend > 0 else 0.0
        step = -np.log(sharpness) if sharpness > 0 else np.inf
        step, before = (step if low < step < high else 0.5 * (low + high)), log_t
        log_t = step
        if abs(log_t - before) < PRECISION:
            break
    return float(np.exp(log_t))
