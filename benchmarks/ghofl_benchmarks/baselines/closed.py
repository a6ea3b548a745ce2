"""One-shot baselines in closed form: FedCGS, FedNCM, Fed3R and AFL, each from what its clients send.

=========  =============================================  =========================================================
method     a client sends                                 the head
=========  =============================================  =========================================================
FedCGS     N, A and B                                     discriminants with the *total* covariance, no shrinkage
FedNCM     N and A                                        the nearest class mean, by angle
Fed3R      XᵀX and XᵀY                                    ridge regression, λ = 0.01, one weight vector per class
                                                          scaled to length one
AFL        its own ridge solution and XᵀX + γI            the least squares of all rows: merged, and γ taken out
=========  =============================================  =========================================================
"""

from collections.abc import Sequence

import numpy as np
import scipy.linalg
from jaxtyping import Float, Float64, Int64

from ghofl_benchmarks.baselines.linear import LinearHead

Client = tuple[Float[np.ndarray, "n dim"], Int64[np.ndarray, " n"]]
FED3R_PENALTY = 0.01
AFL_PENALTY = 1.0
SMALLEST = 1e-10  # of the largest eigenvalue, below which a direction is taken for empty


def fedcgs(clients: Sequence[Client], classes: int) -> LinearHead:
    """Linear discriminants whose covariance is that of all rows together, as published: no shrinkage."""
    n, a, b = _counts(clients, classes), _sums(clients, classes), _gram(clients)
    rows, means = n.sum(), a / np.maximum(n, 1)[:, None]
    centre = a.sum(axis=0) / rows
    weights = _solve(b / rows - np.outer(centre, centre), means.T)
    with np.errstate(divide="ignore"):
        bias = np.log(n / rows) - 0.5 * np.einsum("cd,dc->c", means, weights)
    return _head(weights, bias)


def fedncm(clients: Sequence[Client], classes: int) -> LinearHead:
    """The class whose mean has the smallest angle with a row (a row's own length changes no ranking)."""
    n, a = _counts(clients, classes), _sums(clients, classes)
    means = a / np.maximum(n, 1)[:, None]
    length = np.linalg.norm(means, axis=1)
    return _head((means / np.maximum(length, 1e-300)[:, None]).T, np.where(n > 0, 0.0, -np.inf))


def fed3r(clients: Sequence[Client], classes: int, penalty: float = FED3R_PENALTY) -> LinearHead:
    """Recursive ridge regression on one-hot labels, its weights scaled to length one per class."""
    weights = scipy.linalg.solve(
        _gram(clients) + penalty * np.eye(_dim(clients)), _sums(clients, classes).T, assume_a="pos"
    )
    length = np.linalg.norm(weights, axis=0)
    return _head(weights / np.maximum(length, 1e-300), np.zeros(classes))


def afl(clients: Sequence[Client], classes: int, penalty: float = AFL_PENALTY) -> LinearHead:
    """Every client's ridge solution, merged by the absolute aggregation law; the penalties are taken out at the end."""
    dim = _dim(clients)
    total, product = np.zeros((dim, dim)), np.zeros((dim, classes))
    for x, y in clients:
        own = _gram([(x, y)]) + penalty * np.eye(dim)
        solution = scipy.linalg.solve(
            own, _sums([(x, y)], classes).T, assume_a="pos"
        )  # what the client sends, with `own`
        total, product = total + own, product + own @ solution
    return _head(_solve(total - len(clients) * penalty * np.eye(dim), product), np.zeros(classes))


def bytes_of(method: str, classes: int, dim: int) -> int:
    """What a client sends, in float32, symmetric matrices by their triangles."""
    triangle = dim * (dim + 1) // 2
    entries = {
        "FedCGS": classes + classes * dim + triangle, "FedNCM": classes + classes * dim,
        "Fed3R": classes * dim + triangle, "AFL": classes * dim + triangle,
    }  # fmt: skip
    return 4 * entries[method]


CLOSED = {"FedCGS": fedcgs, "FedNCM": fedncm, "Fed3R": fed3r, "AFL": afl}


def _counts(clients: Sequence[Client], classes: int) -> Float64[np.ndarray, " classes"]:
    return sum((np.bincount(y, minlength=classes) for _, y in clients), start=np.zeros(classes))


def _sums(clients: Sequence[Client], classes: int) -> Float64[np.ndarray, "classes dim"]:
    total = np.zeros((classes, _dim(clients)))
    for x, y in clients:
        for c in np.unique(y):
            total[c] += x[y == c].sum(axis=0, dtype=np.float64)
    return total


def _gram(clients: Sequence[Client]) -> Float64[np.ndarray, "dim dim"]:
    total = np.zeros((_dim(clients), _dim(clients)))
    for x, _ in clients:
        rows = np.asarray(x, np.float64)
        total += rows.T @ rows
    return total


def _solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The least-norm solution: directions without any spread are left out."""
    values, vectors = scipy.linalg.eigh(matrix)
    kept = values > SMALLEST * values[-1]
    return vectors[:, kept] @ ((vectors[:, kept].T @ right) / values[kept, None])


def _dim(clients: Sequence[Client]) -> int:
    return clients[0][0].shape[1]


def _head(weights: np.ndarray, bias: np.ndarray) -> LinearHead:
    return LinearHead(weights.astype(np.float32), np.maximum(bias, -1e30).astype(np.float32))
