"""What trained heads share: the space that they are trained in, and a small optimiser for a few matrices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from ghofl.compute.threads import one_thread
from ghofl.gaussians import Fisher, Gaussians, linalg
from ghofl.gaussians.fisher import EPSILON, SHRINKAGE
from ghofl.shapes import Float, Int64

LARGEST = 128  # directions of Fisher, and directions beside them
STEPS = 300
OVERLAP = 1e-3  # cosine with a Fisher direction from which an extra direction counts as that direction
Gradients = Callable[[Sequence[np.ndarray], slice], Sequence[np.ndarray]]


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
        parameters: Sequence[np.ndarray],
        gradients: Gradients,
        rows: int,
        batch: int,
        steps: int,
        rng: np.random.Generator,
    ) -> list[np.ndarray]:
        """The parameters after `steps` steps over batches of `rows` rows, visited in a new order every epoch.

        Rows must lie in random order already: a batch is a slice, which costs no copy. Products run on one thread.

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
        with one_thread():
            for step in range(1, steps + 1):
                order = order or rng.permutation(starts).tolist()
                start = order.pop()
                found = gradients(parameters, slice(start, min(start + batch, rows)))
                rate = self.learning_rate * (1.0 - (step - 1) / steps if self.falls else 1.0)
                for i, g in enumerate(found):
                    first[i] = self.beta1 * first[i] + (1.0 - self.beta1) * g
                    second[i] = self.beta2 * second[i] + (1.0 - self.beta2) * g * g
                    parameters[i] = self._move(parameters[i], first[i], second[i], step, rate)
        return parameters

    def _move(self, parameter: np.ndarray, first: np.ndarray, second: np.ndarray, step: int, rate: float) -> np.ndarray:
        size = rate / (1.0 - self.beta1**step)
        scale = np.sqrt(second / (1.0 - self.beta2**step)) + self.epsilon
        return parameter * (1.0 - rate * self.weight_decay) - size * first / scale


def softmax(scores: Float[np.ndarray, "n classes"], weight: float = 1.0) -> Float[np.ndarray, "n classes"]:
    """Probabilities of each row of scores, times `weight`."""
    ones = np.ones(scores.shape[1], dtype=scores.dtype)
    with np.errstate(over="ignore"):
        found = np.exp(scores)
        sums = found @ ones
    if not 1e-30 < sums.min() <= sums.max() < np.inf:  # the shift by the largest score takes time, so only where needed
        found = np.exp(scores - scores.max(axis=1, keepdims=True))
        sums = found @ ones
    found *= (weight / sums)[:, None]
    return found


def subtract_labels(found: Float[np.ndarray, "n classes"], y: Int64[np.ndarray, " n"], amount: float = 1.0) -> None:
    """Take `amount` off the class of each row, in place."""
    found[np.arange(len(y)), y] -= amount


def steps_for(epochs: float, rows: int, batch: int) -> int:
    """How many steps `epochs` passes over the rows take."""
    return max(1, round(epochs * -(-rows // batch)))


def count_steps(steps: int | None, epochs: float, rows: int, batch: int, gaussians: Gaussians) -> int:
    """The steps to take: those of `epochs`, those asked for, the usual ones, or none where LDA cannot be improved."""
    if epochs:
        return steps_for(epochs, rows, batch)
    return steps if steps is not None else STEPS if gaussians.has_class_covariances else 0


def default_draws(gaussians: Gaussians) -> int:
    """Draws per class: 1,000, and more where there are few classes, so that there are 20,000 in all."""
    return max(1000, 20_000 // gaussians.present)


def with_covariances(gaussians: Gaussians) -> Gaussians:
    """The Gaussians with the covariances that their statistics determine: diagonal ones with D alone."""
    return gaussians if gaussians.has_shared_covariance else gaussians.diagonal()


def basis_for(gaussians: Gaussians, energy: float, extra: int | None) -> Float[np.ndarray, "dim k"]:
    """The Fisher directions that hold `energy` of the between-class variance, and `extra` further ones."""
    amount = gaussians.ease_shrinkage(SHRINKAGE)
    return widen_basis(gaussians, Fisher.of_energy(gaussians, energy, LARGEST, amount).basis, extra)


def widen_basis(
    gaussians: Gaussians, basis: Float[np.ndarray, "dim k"], extra: int | None
) -> Float[np.ndarray, "dim more"]:
    """The Fisher basis and the `extra` whitened directions that class covariances couple most strongly to it.

    With E_c = L⁻¹ Σ_c L⁻ᵀ − I the excess of a class in whitened coordinates and U the Fisher directions there, they
    are the leading eigenvectors of Σ_c E_c U Uᵀ E_c outside of U. There the I falls away, which leaves
    P L⁻¹ (Σ_c Σ_c V Vᵀ Σ_c) L⁻ᵀ P with P = I − U Uᵀ and V = L⁻ᵀ U.
    """
    wished = min(LARGEST, 3 * gaussians.present) if extra is None else extra
    room = min(wished, basis.shape[0] - basis.shape[1])
    if room <= 0 or not gaussians.has_class_covariances:
        return basis
    within = linalg.shrink(gaussians.pooled(), gaussians.ease_shrinkage(SHRINKAGE))
    np.fill_diagonal(within, within.diagonal() + EPSILON)
    lower = linalg.cholesky(within, "the shared covariance")
    u = lower.T @ basis
    half = _outside(u, scipy.linalg.solve_triangular(lower, _coupled(gaussians, basis), lower=True))
    whole = _outside(u, scipy.linalg.solve_triangular(lower, half.T, lower=True))
    vectors = _leading(whole, room)
    # Where classes couple fewer directions to U than there is room for, directions of U are moved to the end.
    if np.abs(u.T @ vectors).max() > OVERLAP:
        vectors = _leading(whole - (1.0 + np.trace(whole)) * (u @ u.T), room)
    return np.hstack([basis, scipy.linalg.solve_triangular(lower, vectors, lower=True, trans=1, check_finite=False)])


def _leading(matrix: Float[np.ndarray, "dim dim"], count: int) -> Float[np.ndarray, "dim count"]:
    d = len(matrix)
    return scipy.linalg.eigh(matrix, subset_by_index=(d - count, d - 1), check_finite=False)[1]


def _coupled(gaussians: Gaussians, basis: Float[np.ndarray, "dim k"]) -> Float[np.ndarray, "dim dim"]:
    """Σ_c (Σ_c V)(Σ_c V)ᵀ over the classes that have rows, in float32, which is precise enough for directions."""
    found, columns = np.zeros((len(basis),) * 2, dtype=np.float32), basis.astype(np.float32)
    for c in np.flatnonzero(gaussians.counts):
        product = gaussians.along(int(c), columns)
        found += product @ product.T
    return found.astype(np.float64)


def _outside(u: Float[np.ndarray, "dim k"], columns: Float[np.ndarray, "dim n"]) -> Float[np.ndarray, "dim n"]:
    """Columns without their part in the orthonormal u."""
    return columns - u @ (u.T @ columns)
